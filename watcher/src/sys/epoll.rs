//! One kernel poll set. mio makes it and its waker; level, one-shot and exact flags, and waits of nanoseconds, which
//! mio does not have, go to the same descriptor through rustix.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::event::PollFlags;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::clock::timespec;
use super::descriptor::borrow;

/// The token of whatever wakes a set; no descriptor number reaches it.
pub(crate) const WAKER_TOKEN: u64 = u64::MAX;

/// The token of a service's event socket. A front's own tokens reach it only with more rows than there can be.
pub(crate) const ARRIVALS_TOKEN: u64 = u64::MAX - 1;

/// What the kernel reported of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEvent {
    pub(crate) flags: EventFlags,
    pub(crate) token: u64,
}

/// Room for what one wait reports; kept from wait to wait.
#[derive(Default)]
pub(crate) struct KernelEvents(Vec<Event>);

// SAFETY: the kernel's record could hold a pointer, but ours hold the number that was put in, and nothing else.
unsafe impl Send for KernelEvents {}

impl KernelEvents {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<KernelEvent> {
        self.0.get(index).map(|event| KernelEvent { flags: event.flags, token: event.data.u64() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = KernelEvent> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

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

    /// Whether the set has an entry of the file that this number means now. Changes nothing, and makes the kernel report
    /// nothing: adding what is there is refused.
    ///
    /// # Errors
    /// `NOENT` or `BADF` if the number does not mean a file of this set.
    pub(crate) fn prove(&self, number: RawFd) -> Result<(), Errno> {
        prove_in(self.set(), number)
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

    /// Closes the set's number in a forked child, where nothing is ever asked of it again.
    pub(crate) fn close_in_child(&self) {
        // SAFETY: the value that owns the number is never dropped in the child, since a thread that does not exist
        // there shares it; and every call there is refused before it could use the number.
        unsafe { libc::close(self.set().as_raw_fd()) };
    }

    /// Keeps the set that is behind this one's descriptor number now.
    pub(crate) fn keep(&self) -> std::io::Result<FormerSet> {
        self.poll.registry().try_clone().map(FormerSet)
    }

    /// Puts the set of `fresh` behind this one's descriptor number; what was behind it is closed unless it was kept, and
    /// with it entries that no number can take out any more.
    pub(crate) fn replace(&self, fresh: &Self) -> std::io::Result<()> {
        // SAFETY: both numbers are open and ours for the length of the call, and this one stays ours: it names
        // another set from here on, never nothing.
        match unsafe { libc::dup3(fresh.set().as_raw_fd(), self.set().as_raw_fd(), libc::O_CLOEXEC) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Waits until something is ready or `timeout_ns` passed (`None`: for ever), and fills `events` with at most `most`
    /// of it, never beyond its capacity. An interrupted wait returns with nothing.
    ///
    /// # Errors
    /// Any other error of epoll_pwait2(2); none is expected of a valid set.
    pub(crate) fn wait(
        &self,
        events: &mut KernelEvents,
        most: usize,
        timeout_ns: Option<u64>,
    ) -> Result<(), Errno> {
        let events = &mut events.0;
        events.clear();
        let timeout = timeout_ns.map(timespec);
        let space = events.spare_capacity_mut();
        let most = most.min(space.len());
        match epoll::wait(self.set(), &mut space[..most], timeout.as_ref()) {
            Ok((filled, _)) => {
                let count = filled.len();
                // SAFETY: the kernel filled the first `count` places of the spare capacity, which begins at 0.
                unsafe { events.set_len(count) };
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// True if a wait would find something now.
    pub(crate) fn looks_ready(&self) -> bool {
        let Ok(entry) = super::descriptor::poll_entry(self.set().as_raw_fd(), PollFlags::IN) else {
            return false;
        };
        super::descriptor::poll_now(&mut [entry]).is_ok_and(|ready| ready > 0)
    }

    fn set(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

/// A set that is no longer waited on. What is left of it are its entries: they tell which files they are of.
#[derive(Debug)]
pub(crate) struct FormerSet(mio::Registry);

impl FormerSet {
    /// Whether the number is still the file of its entry here; errors as [`Epoll::prove`].
    pub(crate) fn prove(&self, number: RawFd) -> Result<(), Errno> {
        prove_in(self.0.as_fd(), number)
    }

    /// Takes an entry out; that it can proves that the number is still its file.
    pub(crate) fn delete(&self, number: RawFd) -> Result<(), Errno> {
        epoll::delete(self.0.as_fd(), borrow(number)?)
    }
}

fn prove_in(set: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    let number = borrow(number)?;
    match epoll::add(set, number, EventData::new_u64(0), EventFlags::ONESHOT) {
        Err(Errno::EXIST) => Ok(()),
        Ok(()) => {
            // The error could only be that it is gone again, which is what is wanted.
            let _: Result<(), Errno> = epoll::delete(set, number);
            Err(Errno::NOENT)
        }
        Err(errno) => Err(errno),
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set()
    }
}
