//! Subjects that hand a loop batches of ready tokens.

use crate::flock::{BATCH, Flock};
use crate::meter::Meter;
use crate::pin::Placement;
use crate::served::Server;
use crate::subject::{Recorder, Slice, Subject};
#[cfg(feature = "peers")]
use crate::sys::uv::{Kind, Turn, Uv};
use crate::{Result, ours};
use handle_watcher_client::{Client, ClientStats, EventKind, FrontPolicy, Mode, Signals, WatchId};
use mio::unix::SourceFd;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::io::ErrorKind;
#[cfg(feature = "peers")]
use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// A client with a watch for each pair, its front under `policy`.
pub(crate) fn ours(placement: &Placement, mode: Mode, policy: FrontPolicy) -> Result<Box<dyn Subject>> {
    let flock = Flock::open()?;
    let client = ours::client(placement, policy)?;
    let mut watches = Vec::new();
    for (token, socket) in (0..).zip(flock.watched()) {
        watches.push(client.watch(socket, Signals::READABLE, mode, token)?);
    }
    flock.activate()?;
    let events = handle_watcher_client::Events::with_capacity(BATCH);
    let server = if policy == FrontPolicy::Off { Server::Back } else { Server::Front };
    let turns = Ours { client, watches, mode, events, server };
    Ok(Box::new(Loop { turns, flock, meter: Meter::new() }))
}

/// A level-triggered epoll set, used directly.
pub(crate) fn bare_epoll(_: &Placement) -> Result<Box<dyn Subject>> {
    bare(EventFlags::IN)
}

/// A one-shot epoll set, used directly: what arming again costs whoever does it.
pub(crate) fn bare_epoll_once(_: &Placement) -> Result<Box<dyn Subject>> {
    bare(EventFlags::IN | EventFlags::ONESHOT)
}

fn bare(flags: EventFlags) -> Result<Box<dyn Subject>> {
    let flock = Flock::open()?;
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for (token, socket) in (0..).zip(flock.watched()) {
        epoll::add(&set, socket, EventData::new_u64(token), flags)?;
    }
    flock.activate()?;
    let turns = BareEpoll { set, flags, events: Vec::with_capacity(BATCH) };
    Ok(Box::new(Loop { turns, flock, meter: Meter::new() }))
}

/// A `mio::Poll`, edge-triggered.
pub(crate) fn mio(_: &Placement) -> Result<Box<dyn Subject>> {
    let flock = Flock::open()?;
    let poll = mio::Poll::new()?;
    for (number, socket) in flock.watched().iter().enumerate() {
        let mut source = SourceFd(&socket.as_raw_fd());
        poll.registry().register(&mut source, mio::Token(number), mio::Interest::READABLE)?;
    }
    flock.activate()?;
    let turns = Mio { poll, events: mio::Events::with_capacity(BATCH) };
    Ok(Box::new(Loop { turns, flock, meter: Meter::new() }))
}

/// A libuv loop with a poll handle for each pair.
#[cfg(feature = "peers")]
pub(crate) fn libuv(_: &Placement) -> Result<Box<dyn Subject>> {
    let flock = Flock::open()?;
    let mut uv = Uv::new(Kind::Poll, flock.watched().len())?;
    for (number, socket) in flock.watched().iter().enumerate() {
        uv.poll(number, socket.as_fd())?;
    }
    flock.activate()?;
    Ok(Box::new(Loop { turns: uv, flock, meter: Meter::new() }))
}

/// Waits for a batch and serves it.
trait Turns {
    fn turn(&mut self, flock: &Flock, meter: &Meter) -> Result<()>;

    /// What the watcher and its client did so far, where there is a watcher.
    fn done(&self) -> Option<Done> {
        None
    }

    /// What else there is to say of a slice that began with `before`.
    fn note(&self, _before: &Done, slice: Slice) -> Result<Slice> {
        Ok(slice)
    }
}

/// Turns of a watcher, and what its client was told.
struct Done {
    turns: u64,
    served: ClientStats,
}

/// Fields drop in order: watches end before their sockets close.
struct Loop<T> {
    turns: T,
    flock: Flock,
    meter: Meter,
}

impl<T: Turns> Subject for Loop<T> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let before = self.turns.done();
        self.meter.start(length)?;
        while !self.meter.is_over() {
            self.turns.turn(&self.flock, &self.meter)?;
        }
        let slice = self.meter.finish(recorder)?;
        match before {
            Some(before) => self.turns.note(&before, slice),
            None => Ok(slice),
        }
    }
}

struct Ours {
    client: Client,
    watches: Vec<WatchId>,
    mode: Mode,
    events: handle_watcher_client::Events,
    server: Server,
}

impl Turns for Ours {
    fn turn(&mut self, flock: &Flock, meter: &Meter) -> Result<()> {
        ours::wait(&mut self.client, &mut self.events)?;
        for event in &self.events {
            if event.kind != EventKind::Ready {
                return Err(format!("expected Ready, got {:?}", event.kind).into());
            }
            let number = usize::try_from(event.token)?;
            let taken = flock.take(number)?;
            // Armed while the socket is empty: a watch armed over a byte would fire a second time for it.
            if self.mode == Mode::Once {
                let watch = self.watches.get(number).ok_or("an event for a watch that does not exist")?;
                self.client.arm(*watch)?;
            }
            if taken {
                flock.give(number)?;
                meter.tick();
            }
        }
        Ok(())
    }

    fn done(&self) -> Option<Done> {
        Some(Done { turns: self.client.stats().turns, served: self.client.client_stats() })
    }

    fn note(&self, before: &Done, slice: Slice) -> Result<Slice> {
        let slice = slice.with_counter("turns", self.client.stats().turns - before.turns);
        self.server.check(&before.served, &self.client, slice)
    }
}

struct BareEpoll {
    set: OwnedFd,
    flags: EventFlags,
    events: Vec<epoll::Event>,
}

impl Turns for BareEpoll {
    fn turn(&mut self, flock: &Flock, meter: &Meter) -> Result<()> {
        self.events.clear();
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let number = usize::try_from(event.data.u64())?;
            let taken = flock.take(number)?;
            if self.flags.contains(EventFlags::ONESHOT) {
                epoll::modify(&self.set, &flock.watched()[number], event.data, self.flags)?;
            }
            if taken {
                flock.give(number)?;
                meter.tick();
            }
        }
        Ok(())
    }
}

struct Mio {
    poll: mio::Poll,
    events: mio::Events,
}

impl Turns for Mio {
    fn turn(&mut self, flock: &Flock, meter: &Meter) -> Result<()> {
        match self.poll.poll(&mut self.events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &self.events {
            let number = event.token().0;
            if flock.take(number)? {
                flock.give(number)?;
                meter.tick();
            }
        }
        Ok(())
    }
}

#[cfg(feature = "peers")]
impl Turns for Uv {
    fn turn(&mut self, flock: &Flock, meter: &Meter) -> Result<()> {
        for &number in self.run(Turn::Wait) {
            if flock.take(number)? {
                flock.give(number)?;
                meter.tick();
            }
        }
        Ok(())
    }
}
