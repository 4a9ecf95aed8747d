//! Ways for a thread to wait until one socket is readable: the subjects that block.

pub(crate) mod bare_epoll;
pub(crate) mod mio;
pub(crate) mod ours;
#[cfg(feature = "peers")]
pub(crate) mod polling;

use crate::Result;

/// Waits on one socket that it was made for.
pub(crate) trait Waiter: Send {
    /// Blocks until the socket is readable.
    fn wait(&mut self) -> Result<()>;

    /// Asks for the next readiness, where that must be said. Called after each read, when the socket is empty.
    fn arm(&mut self) -> Result<()> {
        Ok(())
    }
}
