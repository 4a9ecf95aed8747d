//! Ways for a thread to wait until one socket is readable: the subjects that block.

pub(crate) mod bare_epoll;
#[cfg(feature = "peers")]
pub(crate) mod libuv;
pub(crate) mod mio;
pub(crate) mod ours;
pub(crate) mod outer;
#[cfg(feature = "peers")]
pub(crate) mod polling;
pub(crate) mod receiver;
pub(crate) mod waker;

use crate::Result;
use handle_watcher_client::Control;

/// Waits on one socket that it was made for.
pub(crate) trait Waiter: Send {
    /// Blocks until the socket is readable.
    fn wait(&mut self) -> Result<()>;

    /// Asks for the next readiness, where that must be said. Called after each read, when the socket is empty.
    fn arm(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A waiter of ours, which counts what it does.
pub(crate) trait OfOurs: Waiter {
    /// Its client.
    fn control(&self) -> &Control;
}
