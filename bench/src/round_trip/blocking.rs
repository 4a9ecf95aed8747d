//! Subjects whose threads block in a `Waiter`.

use crate::before::Before;
use crate::pair::{self, Taken};
use crate::pin::Placement;
use crate::served::Server;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::sys::allocator;
use crate::waiter::bare_epoll::{BareEpoll, BareOnce, BareOuter};
use crate::waiter::mio::MioPoll;
use crate::waiter::ours::Ours;
use crate::waiter::outer::Outer;
use crate::waiter::receiver::{Received, Way};
use crate::waiter::waker::Awaited;
use crate::waiter::{OfOurs, Waiter};
use crate::{Result, ours};
use handle_watcher_client::{FrontPolicy, Mode, Watcher};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Two clients of one watcher of ours, their fronts under `policy`.
pub(crate) fn ours(placement: &Placement, mode: Mode, policy: FrontPolicy) -> Result<Box<dyn Subject>> {
    ours_with(ours::watcher(placement)?, placement, mode, policy)
}

/// Two clients of that watcher, their fronts under `policy`.
pub(crate) fn ours_with(
    watcher: Watcher,
    placement: &Placement,
    mode: Mode,
    policy: FrontPolicy,
) -> Result<Box<dyn Subject>> {
    let server = if policy == FrontPolicy::Off { Server::Back } else { Server::Front };
    of_ours(watcher, placement, server, |watcher, socket| {
        Ours::new(ours::attach(watcher, policy)?, socket, mode)
    })
}

/// Our port's descriptor in a foreign epoll set, which each thread polls before it drains.
pub(crate) fn front_outer(placement: &Placement) -> Result<Box<dyn Subject>> {
    of_ours(ours::watcher(placement)?, placement, Server::Front, Outer::new)
}

/// A future for each thread, which parks until its waker is called.
pub(crate) fn back_waker(placement: &Placement) -> Result<Box<dyn Subject>> {
    of_ours(ours::watcher(placement)?, placement, Server::Back, Awaited::new)
}

/// A channel for each thread.
pub(crate) fn back_receiver(placement: &Placement, way: Way) -> Result<Box<dyn Subject>> {
    of_ours(ours::watcher(placement)?, placement, Server::Back, |watcher, socket| {
        Received::new(watcher, socket, way)
    })
}

fn of_ours<W: OfOurs + 'static>(
    watcher: Watcher,
    placement: &Placement,
    server: Server,
    wait_on: impl Fn(&Watcher, &UnixStream) -> Result<W>,
) -> Result<Box<dyn Subject>> {
    let subject = between(placement, server, |socket| wait_on(&watcher, socket))?;
    Ok(Box::new(OursSubject { _watcher: Some(watcher), ..subject }))
}

/// Two clients of ours, whatever they are clients of.
pub(crate) fn between<W: OfOurs + 'static>(
    placement: &Placement,
    server: Server,
    wait_on: impl Fn(&UnixStream) -> Result<W>,
) -> Result<OursSubject<W>> {
    let (near, far) = pair::pair()?;
    let near = End::new(wait_on(&near)?, near);
    let far = End::new(wait_on(&far)?, far);
    // With a watcher in between, it has the far processor for itself and both clients are near; where the clients wait
    // on their descriptors themselves, each has a processor, as in a direct pair.
    let place = if server == Server::Back { Placement::move_near } else { Placement::move_far };
    let echo = spawn_echo(far, *placement, place)?;
    Ok(OursSubject { trip: RoundTrip::new(near, echo), server, _watcher: None })
}

/// Two clients of one naive watcher.
pub(crate) fn before(placement: &Placement) -> Result<Box<dyn Subject>> {
    let watcher = Before::spawn(placement)?;
    let (near, far) = pair::pair()?;
    let near = End::new(watcher.watch(&near, 0)?, near);
    let far = End::new(watcher.watch(&far, 1)?, far);
    let echo = spawn_echo(far, *placement, Placement::move_near)?;
    Ok(Box::new(BeforeSubject { trip: RoundTrip::new(near, echo), _watcher: watcher }))
}

/// Each thread with its own epoll set: the direct floor.
pub(crate) fn bare_epoll(placement: &Placement) -> Result<Box<dyn Subject>> {
    direct(placement, |socket| BareEpoll::new(socket))
}

/// The same, one-shot.
pub(crate) fn bare_epoll_once(placement: &Placement) -> Result<Box<dyn Subject>> {
    direct(placement, BareOnce::new)
}

/// The same, with a set around each set.
pub(crate) fn bare_epoll_outer(placement: &Placement) -> Result<Box<dyn Subject>> {
    direct(placement, |socket| BareOuter::new(socket))
}

/// Each thread with its own `mio::Poll`.
pub(crate) fn mio(placement: &Placement) -> Result<Box<dyn Subject>> {
    direct(placement, MioPoll::new)
}

/// Each thread with its own poller.
#[cfg(feature = "peers")]
pub(crate) fn polling(placement: &Placement) -> Result<Box<dyn Subject>> {
    direct(placement, |socket| Ok(crate::sys::poller::Polled::new(socket)?))
}

/// Each thread with its own libuv loop.
#[cfg(feature = "peers")]
pub(crate) fn libuv(placement: &Placement) -> Result<Box<dyn Subject>> {
    direct(placement, crate::waiter::libuv::UvPoll::new)
}

/// No thread in between: the two threads have a processor each, if there are two.
fn direct<W: Waiter + 'static>(
    placement: &Placement,
    wait_on: impl Fn(&UnixStream) -> Result<W>,
) -> Result<Box<dyn Subject>> {
    let (near, far) = pair::pair()?;
    let near = End::new(wait_on(&near)?, near);
    let far = End::new(wait_on(&far)?, far);
    let echo = spawn_echo(far, *placement, Placement::move_far)?;
    Ok(Box::new(RoundTrip::new(near, echo)))
}

/// One end of the pair and the way to wait on it.
struct End<W> {
    // Dropped in this order: nothing is watched any more when the socket closes.
    waiter: W,
    socket: UnixStream,
}

impl<W: Waiter> End<W> {
    fn new(waiter: W, socket: UnixStream) -> Self {
        Self { waiter, socket }
    }

    fn send(&self) -> Result<()> {
        Ok(pair::send(&self.socket)?)
    }

    /// Waits for a message, takes it and arms for the next one.
    fn receive(&mut self) -> Result<Taken> {
        loop {
            self.waiter.wait()?;
            let taken = pair::take(&self.socket)?;
            if taken != Some(Taken::Hangup) {
                self.waiter.arm()?;
            }
            if let Some(taken) = taken {
                return Ok(taken);
            }
        }
    }
}

/// The far end, on a thread of its own: sends everything back until the near end closes.
fn spawn_echo<W: Waiter + 'static>(
    mut end: End<W>,
    placement: Placement,
    place: fn(&Placement) -> Result<()>,
) -> Result<JoinHandle<Result<()>>> {
    let echo = std::thread::Builder::new().name("echo".to_owned());
    Ok(echo.spawn(move || {
        allocator::mark_client_thread();
        place(&placement)?;
        while end.receive()? == Taken::Message {
            end.send()?;
        }
        Ok(())
    })?)
}

/// The near end, on the calling thread, and the echo.
struct RoundTrip<W> {
    near: Option<End<W>>,
    echo: Option<JoinHandle<Result<()>>>,
}

impl<W: Waiter> RoundTrip<W> {
    fn new(near: End<W>, echo: JoinHandle<Result<()>>) -> Self {
        Self { near: Some(near), echo: Some(echo) }
    }

    fn near(&mut self) -> Result<&mut End<W>> {
        Ok(self.near.as_mut().ok_or("the near end is closed")?)
    }
}

impl<W: Waiter> Subject for RoundTrip<W> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let near = self.near()?;
        let stretch = Stretch::begin()?;
        let (mut sent, mut count) = (stretch.began(), 0);
        while sent - stretch.began() < length {
            near.send()?;
            if near.receive()? == Taken::Hangup {
                return Err("the echo hung up".into());
            }
            // One look at the clock a round: where this one ends, the next begins.
            let received = Instant::now();
            recorder.record(received - sent);
            sent = received;
            count += 1;
        }
        stretch.end(count)
    }
}

impl<W> Drop for RoundTrip<W> {
    fn drop(&mut self) {
        // The echo sees the hang-up and ends.
        drop(self.near.take());
        if let Some(Err(_)) = self.echo.take().map(JoinHandle::join) {
            eprintln!("hw-bench: the echo thread panicked");
        }
    }
}

/// Fields drop in order: both clients leave before the watcher stops.
pub(crate) struct OursSubject<W> {
    trip: RoundTrip<W>,
    server: Server,
    /// The clients' watcher, if it lives in this process.
    _watcher: Option<Watcher>,
}

impl<W: OfOurs> Subject for OursSubject<W> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let control = self.trip.near()?.waiter.control();
        let (turns, served) = (control.stats().turns, control.client_stats());
        let slice = self.trip.run(length, recorder)?;
        let control = self.trip.near()?.waiter.control();
        let slice = slice.with_counter("turns", control.stats().turns - turns);
        self.server.check(&served, control, slice)
    }
}

/// As above, for the naive watcher.
struct BeforeSubject {
    trip: RoundTrip<crate::before::BeforeClient>,
    _watcher: Before,
}

impl Subject for BeforeSubject {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        self.trip.run(length, recorder)
    }
}
