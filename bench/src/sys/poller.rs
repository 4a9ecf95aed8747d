//! polling's `Poller` holding one socket that lives exactly as long.

#![allow(unsafe_code)]

use polling::{Event, Events, Poller};
use std::io;
use std::os::unix::net::UnixStream;

/// A poller and the one source it polls, in polling's default one-shot mode.
#[derive(Debug)]
pub(crate) struct Polled {
    poller: Poller,
    socket: UnixStream,
    events: Events,
}

impl Polled {
    /// Takes a duplicate of `socket`, so that the source cannot be closed while it is polled.
    pub(crate) fn new(socket: &UnixStream) -> io::Result<Self> {
        let (poller, socket) = (Poller::new()?, socket.try_clone()?);
        // SAFETY: `Drop` deletes the source before its descriptor closes.
        unsafe { poller.add(&socket, Event::readable(0))? };
        Ok(Self { poller, socket, events: Events::new() })
    }

    /// Blocks until the socket is readable.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.events.clear();
        while self.events.is_empty() {
            self.poller.wait(&mut self.events, None)?;
        }
        Ok(())
    }

    /// Asks for the next readiness.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.poller.modify(&self.socket, Event::readable(0))
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // The poller goes next and takes every registration with it, so a failure changes nothing.
        self.poller.delete(&self.socket).ok();
    }
}
