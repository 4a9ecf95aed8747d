//! Our timers: they live in the watcher thread, and the client takes their events from its port.

use super::Timers;
use crate::pin::Placement;
use crate::subject::nanoseconds;
use crate::{Result, ours};
use handle_watcher_client::{Client, ClientConfig, Config, Deadline, EventKind, Events, TimerId};
use std::time::{Duration, Instant};

/// Events a client takes at once.
const BATCH: usize = 1024;
/// Token of the timer that shows how far the watcher thread is.
const BARRIER: u64 = u64::MAX;

/// A client that may have `count` timers.
pub(super) fn open(placement: &Placement, count: usize) -> Result<Ours> {
    let config = Config { timer_limit: u32::try_from(count + 1)?, ..ours::config(placement) };
    let client = Client::embedded_with(config, ClientConfig::default())?;
    let (timers, events) = (Vec::with_capacity(count), Events::with_capacity(BATCH));
    Ok(Ours { client, timers, events, left: 0 })
}

pub(super) struct Ours {
    client: Client,
    timers: Vec<TimerId>,
    events: Events,
    /// Timers that have not fired yet.
    left: usize,
}

impl Ours {
    /// Setting and cancelling leave commands to the watcher thread, whose work belongs to the figure. It takes them in
    /// order, so when a timer that is due at once has fired, everything before it is done.
    fn catch_up(&mut self) -> Result<()> {
        self.client.set_timer(Deadline::at_ns(0), BARRIER)?;
        while !self.take()? {}
        Ok(())
    }

    /// Takes a batch of fired timers; true when the barrier was among them.
    fn take(&mut self) -> Result<bool> {
        ours::wait(&mut self.client, &mut self.events)?;
        let mut is_past_barrier = false;
        for event in &self.events {
            match (event.kind, event.token) {
                (EventKind::Timer, BARRIER) => is_past_barrier = true,
                (EventKind::Timer, _) => {
                    self.left = self.left.checked_sub(1).ok_or("more timers fired than were set")?;
                }
                (other, _) => return Err(format!("expected Timer, got {other:?}").into()),
            }
        }
        Ok(is_past_barrier)
    }
}

impl Timers for Ours {
    fn set(&mut self, first: Instant, offsets: &[Duration]) -> Result<()> {
        self.timers.clear();
        self.left = offsets.len();
        let first = Deadline::from(first).as_ns();
        for (token, &offset) in (0..).zip(offsets) {
            let deadline = Deadline::at_ns(first + nanoseconds(offset));
            self.timers.push(self.client.set_timer(deadline, token)?);
        }
        self.catch_up()
    }

    fn cancel(&mut self) -> Result<()> {
        for timer in self.timers.drain(..) {
            self.client.cancel_timer(timer)?;
        }
        self.left = 0;
        self.catch_up()
    }

    fn take_all(&mut self) -> Result<()> {
        while self.left > 0 {
            self.take()?;
        }
        Ok(())
    }
}
