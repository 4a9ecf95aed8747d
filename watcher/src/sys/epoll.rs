//! One kernel poll set. mio makes it and its waker; level, one-shot and exact flags, and waits of nanoseconds, which
//! mio does not have, go to the same descriptor through rustix.

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::clock::timespec;
use super::descriptor::borrow;

/// The token of whatever wakes a set; no descriptor number reaches it.
pub(crate) const WAKER_TOKEN: u64 = u64::MAX;

/// A kernel poll set. Entries may be changed from any thread while another waits.
#[derive(Debug)]
pub(crate) struct Epoll {
    poll: mio::Poll,
}

impl Epoll {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { poll: mio::Poll::new()? })
    }

    /// Something that makes a `wait` on this set return, from any thread. Each wake is one write.
    pub(crate) fn waker(&self) -> std::io::Result<mio::Waker> {
        let token = usize::try_from(WAKER_TOKEN).map_err(std::io::Error::other)?;
        mio::Waker::new(self.poll.registry(), mio::Token(token))
    }

    pub(crate) fn add(&self, number: RawFd, flags: EventFlags, token: u64) -> Result<(), Errno> {
        epoll::add(self.set(), borrow(number)?, EventData::new_u64(token), flags)
    }

    pub(crate) fn modify(&self, number: RawFd, flags: EventFlags, token: u64) -> Result<(), Errno> {
        epoll::modify(self.set(), borrow(number)?, EventData::new_u64(token), flags)
    }

    pub(crate) fn delete(&self, number: RawFd) -> Result<(), Errno> {
        epoll::delete(self.set(), borrow(number)?)
    }

    /// Puts another set into this one.
    pub(crate) fn add_set(&self, inner: &Self, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(self.set(), inner.set(), EventData::new_u64(0), flags)
    }

    pub(crate) fn delete_set(&self, inner: &Self) -> Result<(), Errno> {
        epoll::delete(self.set(), inner.set())
    }

    /// Waits until something is ready or `timeout_ns` passed (`None`: for ever), and fills `events` up to its
    /// capacity. An interrupted wait returns with nothing.
    ///
    /// # Errors
    /// Any other error of epoll_pwait2(2); none is expected of a valid set.
    pub(crate) fn wait(&self, events: &mut Vec<Event>, timeout_ns: Option<u64>) -> Result<(), Errno> {
        events.clear();
        let timeout = timeout_ns.map(timespec);
        match epoll::wait(self.set(), rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn set(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set()
    }
}
