//! mio: a `Poll` of one socket, edge-triggered as mio always is.

use crate::Result;
use crate::waiter::Waiter;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A poll and room for its events.
pub(crate) struct MioPoll {
    poll: Poll,
    events: Events,
}

impl MioPoll {
    /// Watches `socket`.
    pub(crate) fn new(socket: &UnixStream) -> Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(0), Interest::READABLE)?;
        Ok(Self { poll, events: Events::with_capacity(1) })
    }
}

impl Waiter for MioPoll {
    fn wait(&mut self) -> Result<()> {
        loop {
            match self.poll.poll(&mut self.events, None) {
                Ok(()) if self.events.is_empty() => {}
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
