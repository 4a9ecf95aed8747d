//! Our timers: they live in the watcher thread, and the client takes their events from its port.

use super::Timers;
use crate::pin::Placement;
use crate::subject::nanoseconds;
use crate::{Result, ours};
use handle_watcher_client::{Client, ClientConfig, Config, Deadline, EventKind, Events, Stats, TimerId};
use std::time::{Duration, Instant};

/// Events a client takes at once.
const BATCH: usize = 1024;
/// The watcher sweeps cancelled timers out in bulk; it has caught up when it keeps less than a tenth of them.
const KEPT_SHARE: usize = 10;
/// A watcher that takes longer than this has lost a timer, and waiting for ever would hide it.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Cancelling leaves work to the watcher thread, which belongs to the figure: waits until it is done.
    fn settle(&self, is_done: impl Fn(&Stats) -> bool) -> Result<()> {
        let patience_ends = Instant::now() + PATIENCE;
        while !is_done(&self.client.stats()) {
            if Instant::now() > patience_ends {
                return Err(format!("the watcher thread has not caught up: {:?}", self.client.stats()).into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Timers for Ours {
    fn set(&mut self, first: Instant, offsets: &[Duration]) -> Result<()> {
        self.timers.clear();
        let first = Deadline::from(first).as_ns();
        for (token, &offset) in (0..).zip(offsets) {
            let deadline = Deadline::at_ns(first + nanoseconds(offset));
            self.timers.push(self.client.set_timer(deadline, token)?);
        }
        // The last few may still be commands in the queue: they are taken with the next thing that wakes the watcher.
        // The queue's limit is below half a percent of the timers.
        Ok(())
    }

    fn cancel(&mut self) -> Result<()> {
        let most_kept = u64::try_from(self.timers.len() / KEPT_SHARE)?;
        for timer in self.timers.drain(..) {
            self.client.cancel_timer(timer)?;
        }
        self.settle(|stats| stats.timers == 0 && stats.timers_kept <= most_kept)
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
