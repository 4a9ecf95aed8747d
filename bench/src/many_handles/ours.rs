//! Handle Watcher: one client with all the watches.

use super::field::{Field, Load, Many, Watching};
use crate::pin::Placement;
use crate::served::Server;
use crate::subject::{Slice, Subject};
use crate::{Result, ours};
use handle_watcher_client::{Client, ClientStats, EventKind, Events, FrontPolicy, Mode, Signals, WatchId};

/// Events a client takes at once.
const BATCH: usize = 1024;

/// A client, its watches by number and room for its events.
pub(super) struct Ours {
    client: Client,
    watches: Vec<WatchId>,
    events: Events,
    server: Server,
    /// What was served when the last slice ended.
    served: ClientStats,
}

impl Ours {
    pub(super) fn open(placement: &Placement, load: Load, policy: FrontPolicy) -> Result<Box<dyn Subject>> {
        let field = Field::open(load)?;
        let client = ours::client(placement, policy)?;
        let mut watches = Vec::with_capacity(field.watches());
        for (token, number) in (0..).zip(0..field.watches()) {
            let descriptor = &field.descriptors()[number % field.descriptors().len()];
            watches.push(client.watch(descriptor, Signals::READABLE, Mode::Once, token)?);
        }
        let is_shared = field.watches() > field.descriptors().len();
        let server = match policy {
            FrontPolicy::Off => Server::Back,
            // One report of a shared descriptor is an event for each of its watches. Those that the client has no room
            // for wait in the port's queue, where nobody counts them as the front's.
            FrontPolicy::Always if !is_shared => Server::Front,
            FrontPolicy::Adaptive | FrontPolicy::Always => Server::Either,
        };
        let (events, served) = (Events::with_capacity(BATCH), ClientStats::default());
        Ok(Box::new(Many { watching: Self { client, watches, events, server, served }, field }))
    }
}

impl Watching for Ours {
    fn take_batch(&mut self, field: &mut Field) -> Result<usize> {
        ours::wait(&mut self.client, &mut self.events)?;
        for event in &self.events {
            if event.kind != EventKind::Ready {
                return Err(format!("expected Ready, got {:?}", event.kind).into());
            }
            let number = usize::try_from(event.token)?;
            for number in field.take(number)? {
                self.client.arm(self.watches[number])?;
            }
        }
        Ok(self.events.len())
    }

    fn note(&mut self, slice: Slice) -> Result<Slice> {
        let before = std::mem::replace(&mut self.served, self.client.client_stats());
        self.server.check(&before, &self.client, slice)
    }
}
