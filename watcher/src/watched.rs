//! A descriptor and its watch in one value, so that the watch ends before the descriptor is closed.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};

use handle_watcher_wire::{Result, Signals, Token, WatchId};

use crate::child_process::ChildProcess;
use crate::control::{Control, WatchOptions};
use crate::deadline::Deadline;
use crate::handle_table::Refused;

/// Why a handle is always there.
const HELD: &str = "a handle leaves only with the whole value";

/// Something with a descriptor that is being watched. Dropping it ends the watch first and closes the descriptor then,
/// which is the one order that is always right.
#[derive(Debug)]
pub struct Watched<T> {
    // Declared before the handle; the watch is ended in `drop`, the handle is dropped after that.
    control: Control,
    watch: WatchId,
    /// `None` only once it was given back.
    handle: Option<T>,
}

impl Control {
    /// Watches something with a descriptor and keeps it together with its watch.
    ///
    /// # Errors
    /// As [`watch`](Self::watch); what was to be watched is given back.
    pub fn watch_owned<T: AsFd>(&self, handle: T, options: WatchOptions) -> Result<Watched<T>, Refused<T>> {
        match self.watch_with(&handle, options) {
            Ok(watch) => Ok(Watched { control: self.clone(), watch, handle: Some(handle) }),
            Err(status) => Err(Refused { status, value: handle }),
        }
    }

    /// [`watch_child`](Self::watch_child) of a child that is kept together with its watch.
    ///
    /// # Errors
    /// As [`watch`](Self::watch); the child is given back.
    pub fn watch_child_owned(
        &self,
        child: ChildProcess,
        token: Token,
    ) -> Result<Watched<ChildProcess>, Refused<ChildProcess>> {
        match self.watch_child(&child, token) {
            Ok(watch) => Ok(Watched { control: self.clone(), watch, handle: Some(child) }),
            Err(status) => Err(Refused { status, value: child }),
        }
    }
}

impl<T> Watched<T> {
    /// The watch, for `arm`, `change` and the like, and to know its events by.
    pub fn id(&self) -> WatchId {
        self.watch
    }

    /// Arms the watch again.
    ///
    /// # Errors
    /// As [`Control::arm`].
    pub fn arm(&self) -> Result<()> {
        self.control.arm(self.watch)
    }

    /// Arms the watch with a deadline.
    ///
    /// # Errors
    /// As [`Control::arm_until`].
    pub fn arm_until(&self, deadline: impl Into<Deadline>) -> Result<()> {
        self.control.arm_until(self.watch, deadline)
    }

    /// Replaces what the watch waits for.
    ///
    /// # Errors
    /// As [`Control::change`].
    pub fn change(&self, signals: Signals) -> Result<()> {
        self.control.change(self.watch, signals)
    }

    /// Ends the watch and gives the handle back.
    pub fn into_inner(mut self) -> T {
        self.end();
        self.handle.take().expect(HELD)
    }

    fn end(&self) {
        // NOT_FOUND: it has ended already; after a fork the watch is the parent's.
        let _: Result<()> = self.control.unwatch(self.watch);
    }
}

impl<T> Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.handle.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.handle.as_mut().expect(HELD)
    }
}

impl<T: AsFd> AsFd for Watched<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.end();
        }
    }
}
