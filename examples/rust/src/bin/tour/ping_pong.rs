//! A ping-pong: two threads that send each other one message over a pair of sockets, and a few ways to wait for it.

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handle_watcher_client::{
    Client, ClientConfig, ClientStats, Events, FrontPolicy, Mode, Signals, WatchId, Watcher,
};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;

const MESSAGE: &[u8; 12] = b"ping or pong";

/// Pins this thread, and those that it will spawn, to the first processor it may use. None if that is refused.
pub(crate) fn pin_here() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let processor = (0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor))?;
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).ok()?;
    Some(processor)
}

/// A part of what was measured, in microseconds: 0.5 for the median.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    microseconds(sorted.get((last as f64 * part) as usize).copied().unwrap_or_default())
}

pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A way to wait until one socket is readable.
pub(crate) trait Waiter: Send + 'static {
    fn wait(&mut self) -> Result<()>;

    /// Asks for the next readiness, where that must be said. Called when the socket is empty.
    fn arm(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Waiter for Box<dyn Waiter> {
    fn wait(&mut self) -> Result<()> {
        (**self).wait()
    }

    fn arm(&mut self) -> Result<()> {
        (**self).arm()
    }
}

/// One end of the pair. The waiter is dropped first, so that nothing is watched when the socket closes.
struct End<W> {
    waiter: W,
    socket: UnixStream,
}

impl<W: Waiter> End<W> {
    fn send(&mut self) -> Result<()> {
        Ok(self.socket.write_all(MESSAGE)?)
    }

    /// Takes one message; false when the other end is closed. The room is larger than a message, so that a
    /// short reading proves that the socket is empty.
    fn receive(&mut self) -> Result<bool> {
        loop {
            self.waiter.wait()?;
            let mut room = [0; 64];
            match self.socket.read(&mut room) {
                Ok(0) => return Ok(false),
                Ok(length) if &room[..length] == MESSAGE => {
                    self.waiter.arm()?;
                    return Ok(true);
                }
                Ok(length) => return Err(format!("{:?} is not the message", &room[..length]).into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.waiter.arm()?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A pair of sockets, the near end here and the far end on a thread that sends everything back.
pub(crate) struct Pair<W> {
    near: End<W>,
    echo: JoinHandle<std::result::Result<(), String>>,
}

impl<W: Waiter> Pair<W> {
    pub(crate) fn new(wait_on: impl Fn(&UnixStream) -> Result<W>) -> Result<Self> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        let near = End { waiter: wait_on(&near)?, socket: near };
        let mut far = End { waiter: wait_on(&far)?, socket: far };
        let echo = std::thread::Builder::new().name("echo".to_owned()).spawn(move || {
            let mut echo = || -> Result<()> {
                while far.receive()? {
                    far.send()?;
                }
                Ok(())
            };
            echo().map_err(|error| error.to_string())
        })?;
        Ok(Self { near, echo })
    }

    /// One message there and back. Gives how long that took.
    pub(crate) fn round(&mut self) -> Result<Duration> {
        let sent = Instant::now();
        self.near.send()?;
        if self.near.receive()? { Ok(sent.elapsed()) } else { Err("the echo has ended".into()) }
    }

    /// How the near end waits.
    pub(crate) fn waiter(&self) -> &W {
        &self.near.waiter
    }

    /// Closes the near end, which ends the echo.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.near);
        Ok(self.echo.join().map_err(|_| "the echo panicked")??)
    }
}

/// The floor: a level-triggered epoll set of one socket.
pub(crate) struct BareEpoll {
    set: OwnedFd,
}

impl BareEpoll {
    pub(crate) fn new(socket: &UnixStream) -> Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&set, socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { set })
    }
}

impl Waiter for BareEpoll {
    fn wait(&mut self) -> Result<()> {
        loop {
            match epoll::wait(&self.set, &mut [MaybeUninit::<epoll::Event>::uninit()], None) {
                Ok(([], _)) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A client of the watcher with one watch.
pub(crate) struct Ours {
    client: Client,
    watch: WatchId,
    mode: Mode,
    events: Events,
}

impl Ours {
    pub(crate) fn new(
        watcher: &Watcher,
        socket: &UnixStream,
        mode: Mode,
        front: FrontPolicy,
    ) -> Result<Self> {
        Self::of(
            Client::attach_with(watcher, ClientConfig { front, ..ClientConfig::default() })?,
            socket,
            mode,
        )
    }

    /// The same through a client, which may be a service's.
    pub(crate) fn of(client: Client, socket: &UnixStream, mode: Mode) -> Result<Self> {
        let watch = client.watch(socket, Signals::READABLE, mode, 0)?;
        Ok(Self { client, watch, mode, events: Events::with_capacity(1) })
    }

    pub(crate) fn stats(&self) -> ClientStats {
        self.client.client_stats()
    }
}

impl Waiter for Ours {
    fn wait(&mut self) -> Result<()> {
        self.client.wait(&mut self.events, None)?;
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        if self.mode == Mode::Once {
            self.client.arm(self.watch)?;
        }
        Ok(())
    }
}
