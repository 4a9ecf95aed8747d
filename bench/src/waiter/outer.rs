//! Handle Watcher inside a foreign loop: the port's descriptor in somebody else's epoll set.

use crate::waiter::bare_epoll::BareEpoll;
use crate::waiter::{OfOurs, Waiter};
use crate::{Result, ours};
use handle_watcher_client::{Client, Control, Events, FrontPolicy, Mode, Signals, Watcher};
use std::os::unix::net::UnixStream;

/// The foreign loop, and the client whose port it polls.
pub(crate) struct Outer {
    // Dropped in this order: the set is gone before the descriptor in it closes.
    set: BareEpoll,
    client: Client,
    events: Events,
}

impl Outer {
    /// A Level watch on `socket`.
    pub(crate) fn new(watcher: &Watcher, socket: &UnixStream) -> Result<Self> {
        let mut client = ours::attach(watcher, FrontPolicy::Adaptive)?;
        client.watch(socket, Signals::READABLE, Mode::Level, 0)?;
        let set = BareEpoll::new(client.descriptor()?)?;
        Ok(Self { set, client, events: Events::with_capacity(16) })
    }
}

impl Waiter for Outer {
    fn wait(&mut self) -> Result<()> {
        loop {
            self.set.wait()?;
            if self.client.drain(&mut self.events)? > 0 {
                return Ok(());
            }
        }
    }
}

impl OfOurs for Outer {
    fn control(&self) -> &Control {
        self.client.control()
    }
}
