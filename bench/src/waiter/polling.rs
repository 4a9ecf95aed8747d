//! polling, in the one-shot mode it has by default.

use crate::Result;
use crate::sys::poller::Polled;
use crate::waiter::Waiter;

impl Waiter for Polled {
    fn wait(&mut self) -> Result<()> {
        Ok(Polled::wait(self)?)
    }

    fn arm(&mut self) -> Result<()> {
        Ok(Polled::arm(self)?)
    }
}
