//! Our timers: they live in the watcher thread, and the client takes their events from its port.

use super::Timers;
use crate::pin::Placement;
use crate::{Result, ours};
use handle_watcher_client::{Client, ClientConfig, Config, EventKind, Events, TimerId};
use std::time::Instant;

/// Events a client takes at once.
const BATCH: usize = 1024;

/// A client that may have `count` timers.
pub(super) fn open(placement: &Placement, count: usize) -> Result<Ours> {
    let config = Config { timer_limit: u32::try_from(count)?, ..ours::config(placement) };
    let client = Client::embedded_with(config, ClientConfig::default())?;
    Ok(Ours { client, timers: Vec::with_capacity(count), events: Events::with_capacity(BATCH) })
}

pub(super) struct Ours {
    client: Client,
    timers: Vec<TimerId>,
    events: Events,
}

impl Ours {
    /// Setting and cancelling may leave work to the watcher thread, which belongs to the figure: wait for it.
    fn settle(&self, live: usize) -> Result<()> {
        let live = u64::try_from(live)?;
        while self.client.stats().timers_live != live {
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Timers for Ours {
    fn set(&mut self, deadlines: &[Instant]) -> Result<()> {
        self.timers.clear();
        for (token, &deadline) in (0..).zip(deadlines) {
            self.timers.push(self.client.set_timer(deadline, token)?);
        }
        self.settle(deadlines.len())
    }

    fn cancel(&mut self) -> Result<()> {
        for timer in self.timers.drain(..) {
            self.client.cancel_timer(timer)?;
        }
        self.settle(0)
    }

    fn take_all(&mut self) -> Result<()> {
        let mut left = self.timers.len();
        while left > 0 {
            ours::wait(&mut self.client, &mut self.events)?;
            if let Some(other) = self.events.iter().find(|event| event.kind != EventKind::Timer) {
                return Err(format!("expected Timer, got {:?}", other.kind).into());
            }
            left = left.checked_sub(self.events.len()).ok_or("more timers fired than were set")?;
        }
        Ok(())
    }
}
