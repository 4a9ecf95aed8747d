//! Handle Watcher behind a channel: waits for the client's receiver, then drains.

use crate::waiter::{OfOurs, Waiter};
use crate::{Result, ours};
use crossbeam_channel::{Receiver, never, select};
use handle_watcher_client::{ChannelClient, Control, Events, FrontPolicy, Mode, Signals, Watcher};
use std::os::unix::net::UnixStream;

/// How a thread waits for the receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// In a `select!` beside another channel, which is what the receiver is for.
    Select,
    /// With `recv`, which yields the processor a few times before it sleeps.
    Recv,
}

/// A client that is told through a channel.
pub(crate) struct Received {
    client: ChannelClient,
    way: Way,
    /// Another channel of the program's, on which nothing ever comes.
    jobs: Receiver<()>,
    events: Events,
}

impl Received {
    /// An Edge watch on `socket`.
    pub(crate) fn new(watcher: &Watcher, socket: &UnixStream, way: Way) -> Result<Self> {
        let client = ours::attach(watcher, FrontPolicy::default())?.into_channel()?;
        client.watch(socket, Signals::READABLE, Mode::Edge, 0)?;
        Ok(Self { client, way, jobs: never(), events: Events::with_capacity(16) })
    }
}

impl Waiter for Received {
    fn wait(&mut self) -> Result<()> {
        loop {
            match self.way {
                Way::Recv => self.client.receiver().recv()?,
                Way::Select => select! {
                    recv(self.client.receiver()) -> told => told?,
                    recv(self.jobs) -> job => job?,
                },
            }
            if self.client.drain(&mut self.events)? > 0 {
                return Ok(());
            }
        }
    }
}

impl OfOurs for Received {
    fn control(&self) -> &Control {
        &self.client
    }
}
