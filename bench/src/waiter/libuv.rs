//! libuv: a loop of one poll handle, level-triggered as libuv always is.

use crate::Result;
use crate::sys::uv::{Kind, Turn, Uv};
use crate::waiter::Waiter;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// A loop.
pub(crate) struct UvPoll {
    uv: Uv,
}

impl UvPoll {
    /// Watches `socket`.
    pub(crate) fn new(socket: &UnixStream) -> Result<Self> {
        let mut uv = Uv::new(Kind::Poll, 1)?;
        uv.poll(0, socket.as_fd())?;
        Ok(Self { uv })
    }
}

impl Waiter for UvPoll {
    fn wait(&mut self) -> Result<()> {
        while self.uv.run(Turn::Wait).is_empty() {}
        Ok(())
    }
}
