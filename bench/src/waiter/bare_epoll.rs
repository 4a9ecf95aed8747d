//! The floor: a level-triggered epoll set of one descriptor, used directly.

use crate::Result;
use crate::waiter::Waiter;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

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
