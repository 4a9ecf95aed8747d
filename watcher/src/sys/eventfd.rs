//! An eventfd as a flag: raised by a write, lowered by a read, never blocking.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Raises it; a new edge each time.
    ///
    /// # Errors
    /// Whatever write(2) says, so that a forbidden write is not silent.
    pub(crate) fn raise(&self) -> Result<(), Errno> {
        match rustix::io::write(&self.0, &1_u64.to_ne_bytes()) {
            // The counter is at its maximum: lower it, or no edge would come of this write.
            Err(Errno::AGAIN) => {
                self.lower();
                rustix::io::write(&self.0, &1_u64.to_ne_bytes()).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Lowers it, if it is raised.
    pub(crate) fn lower(&self) {
        let mut count = [0; 8];
        // EAGAIN means that it was not raised, which is what is wanted.
        let _: Result<usize, Errno> = rustix::io::read(&self.0, &mut count);
    }

    /// Closes the number in a forked child, where nothing is ever asked of it again.
    pub(crate) fn close_in_child(&self) {
        // SAFETY: the value that owns the number is never dropped in the child, since a thread that does not exist
        // there shares it; and every call there is refused before it could use the number.
        unsafe { libc::close(self.0.as_raw_fd()) };
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
