//! The floors: an epoll set of one descriptor, used directly; and what arming again, or a set around the set, adds.

use crate::Result;
use crate::waiter::Waiter;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// An epoll set.
pub(crate) struct BareEpoll {
    set: OwnedFd,
}

impl BareEpoll {
    /// Watches `descriptor` level-triggered: nothing ever has to be armed again.
    pub(crate) fn new(descriptor: impl AsFd) -> Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&set, descriptor, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { set })
    }
}

/// A one-shot set, armed again after each event.
pub(crate) struct BareOnce {
    set: BareEpoll,
    socket: UnixStream,
}

impl BareOnce {
    /// Watches a duplicate of `socket`.
    pub(crate) fn new(socket: &UnixStream) -> Result<Self> {
        let (set, socket) = (epoll::create(CreateFlags::CLOEXEC)?, socket.try_clone()?);
        epoll::add(&set, &socket, EventData::new_u64(0), Self::FLAGS)?;
        Ok(Self { set: BareEpoll { set }, socket })
    }

    const FLAGS: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
}

impl Waiter for BareOnce {
    fn wait(&mut self) -> Result<()> {
        self.set.wait()
    }

    fn arm(&mut self) -> Result<()> {
        Ok(epoll::modify(&self.set.set, &self.socket, EventData::new_u64(0), Self::FLAGS)?)
    }
}

/// A set in a set, as a foreign loop sees one that it polls: wait for the outer one, then ask the inner one.
pub(crate) struct BareOuter {
    outer: BareEpoll,
    inner: BareEpoll,
}

impl BareOuter {
    pub(crate) fn new(descriptor: impl AsFd) -> Result<Self> {
        let inner = BareEpoll::new(descriptor)?;
        Ok(Self { outer: BareEpoll::new(&inner.set)?, inner })
    }
}

impl Waiter for BareOuter {
    fn wait(&mut self) -> Result<()> {
        self.outer.wait()?;
        self.inner.wait()
    }
}

impl Waiter for BareEpoll {
    fn wait(&mut self) -> Result<()> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
        loop {
            match epoll::wait(&self.set, &mut events, None) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
