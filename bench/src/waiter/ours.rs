//! Handle Watcher: a client with one watch.

use crate::waiter::{OfOurs, Waiter};
use crate::{Result, ours};
use handle_watcher_client::{Client, Control, Events, Mode, Signals, WatchId};
use std::os::unix::net::UnixStream;

/// A client, its watch and room for its events.
pub(crate) struct Ours {
    client: Client,
    watch: WatchId,
    mode: Mode,
    events: Events,
}

impl Ours {
    /// Watches `socket` through `client`.
    pub(crate) fn new(client: Client, socket: &UnixStream, mode: Mode) -> Result<Self> {
        let watch = client.watch(socket, Signals::READABLE, mode, 0)?;
        Ok(Self { client, watch, mode, events: Events::with_capacity(16) })
    }
}

impl OfOurs for Ours {
    fn control(&self) -> &Control {
        self.client.control()
    }
}

impl Waiter for Ours {
    fn wait(&mut self) -> Result<()> {
        ours::wait(&mut self.client, &mut self.events)
    }

    fn arm(&mut self) -> Result<()> {
        match self.mode {
            Mode::Once => Ok(self.client.arm(self.watch)?),
            Mode::Edge | Mode::Level => Ok(()),
        }
    }
}
