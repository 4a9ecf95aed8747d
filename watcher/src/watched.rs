//! A descriptor and its watch in one value, so that the watch ends before the descriptor is closed.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};

use handle_watcher_wire::{Result, WatchId};

use crate::control::{Control, WatchOptions};

/// Something with a descriptor that is being watched. Dropping it ends the watch first and closes the descriptor then,
/// which is the one order that is always right.
#[derive(Debug)]
pub struct Watched<T> {
    // Declared before the handle; the watch is ended in `drop`, the handle is dropped after that.
    control: Control,
    watch: WatchId,
    handle: T,
}

impl Control {
    /// Watches something with a descriptor and keeps it together with its watch.
    ///
    /// # Errors
    /// As [`watch`](Self::watch); what was to be watched is dropped.
    pub fn watch_owned<T: AsFd>(&self, handle: T, options: WatchOptions) -> Result<Watched<T>> {
        let watch = self.watch_with(&handle, options)?;
        Ok(Watched { control: self.clone(), watch, handle })
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
}

impl<T> Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.handle
    }
}

impl<T> DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.handle
    }
}

impl<T: AsFd> AsFd for Watched<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        // NOT_FOUND: it has ended already; after a fork the watch is the parent's.
        let _: Result<()> = self.control.unwatch(self.watch);
    }
}
