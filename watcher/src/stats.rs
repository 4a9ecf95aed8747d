//! Counters. The watcher thread alone writes its own; everybody may read them at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many classes a [`Histogram`] has.
pub const HISTOGRAM_CLASSES: usize = 16;

/// Counts by size: class 0 counts zeroes, class `k` counts sizes from `2^(k-1)` to `2^k - 1`, the last class counts
/// everything above.
pub type Histogram = [u64; HISTOGRAM_CLASSES];

/// What a watcher did since it was spawned. The numbers are read one by one, so they may differ by the events that
/// came in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Passes of the watcher's loop.
    pub turns: u64,
    /// Times a client had to wake the watcher thread.
    pub wakes: u64,
    /// Times the watcher woke a parked client.
    pub client_wakes: u64,
    /// Ready descriptors the kernel reported.
    pub readiness: u64,
    /// Commands taken.
    pub commands: u64,
    /// Reports of the kernel that no longer meant anything: their registration had been changed or ended.
    pub stale_events: u64,
    /// Timers and deadlines set.
    pub timers_set: u64,
    /// Timers and deadlines that expired.
    pub timers_fired: u64,
    /// Timers and deadlines the watcher keeps, cancelled ones it has not swept yet included.
    pub timers_kept: u64,
    /// Events that clients' own fronts handed out, which the watcher never saw.
    pub from_fronts: u64,
    /// Events that wait in ports now.
    pub undelivered: u64,
    /// Clients now.
    pub clients: u64,
    /// Watches now, ended ones whose last event is undelivered included.
    pub watches: u64,
    /// Timers of clients now.
    pub timers: u64,
    /// Ready descriptors per wait, by size.
    pub ready_per_wait: Histogram,
    /// Commands per turn, by size.
    pub commands_per_turn: Histogram,
}

impl Stats {
    /// The counters that a service names; what it does not name stays zero, and what is not among these is passed over.
    pub(crate) fn from_named<'a>(named: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut stats = Self::default();
        for (name, value) in named {
            match name {
                "turns" => stats.turns = value,
                "wakes" => stats.wakes = value,
                "client_wakes" => stats.client_wakes = value,
                "readiness" => stats.readiness = value,
                "commands" => stats.commands = value,
                "stale_events" => stats.stale_events = value,
                "timers_set" => stats.timers_set = value,
                "timers_fired" => stats.timers_fired = value,
                "timers_kept" => stats.timers_kept = value,
                "from_fronts" => stats.from_fronts = value,
                "undelivered" => stats.undelivered = value,
                "clients" => stats.clients = value,
                "watches" => stats.watches = value,
                "timers" => stats.timers = value,
                _ => {
                    let (class, histogram) = match name.rsplit_once('_') {
                        Some(("ready_per_wait", class)) => (class, &mut stats.ready_per_wait),
                        Some(("commands_per_turn", class)) => (class, &mut stats.commands_per_turn),
                        _ => continue,
                    };
                    if let Some(place) = class.parse().ok().and_then(|class: usize| histogram.get_mut(class))
                    {
                        *place = value;
                    }
                }
            }
        }
        stats
    }
}

/// What one client has and had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Watches now, ended ones whose last event is undelivered included.
    pub watches: u64,
    /// Timers now.
    pub timers: u64,
    /// Handles given and not closed.
    pub handles: u64,
    /// Events that wait in the port now.
    pub undelivered: u64,
    /// Events handed out.
    pub delivered: u64,
    /// How many of them came from the port's own front, without a hop.
    pub from_front: u64,
    /// Times the watcher or another thread woke the waiter, or called the notifier.
    pub wakes: u64,
    /// Panics of the notifier that were caught.
    pub notifier_panics: u64,
}

/// A counter. [`add`](Self::add) is for a single writer and costs no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    pub(crate) fn add_shared(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::Relaxed).wrapping_add(amount)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A [`Histogram`] being written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Classes([Counter; HISTOGRAM_CLASSES]);

impl Classes {
    pub(crate) fn record(&self, size: usize) {
        let class = (usize::BITS - size.leading_zeros()) as usize;
        self.0[class.min(HISTOGRAM_CLASSES - 1)].add(1);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        std::array::from_fn(|class| self.0[class].get())
    }
}

/// The counters of a watcher.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) turns: Counter,
    pub(crate) wakes: Counter,
    pub(crate) client_wakes: Counter,
    pub(crate) readiness: Counter,
    pub(crate) commands: Counter,
    pub(crate) stale_events: Counter,
    pub(crate) timers_set: Counter,
    pub(crate) timers_fired: Counter,
    pub(crate) timers_kept: Counter,
    pub(crate) ready_per_wait: Classes,
    pub(crate) commands_per_turn: Classes,
}

impl Counters {
    /// The part of [`Stats`] that the watcher itself counts; the clients' part is left at zero.
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            turns: self.turns.get(),
            wakes: self.wakes.get(),
            client_wakes: self.client_wakes.get(),
            readiness: self.readiness.get(),
            commands: self.commands.get(),
            stale_events: self.stale_events.get(),
            timers_set: self.timers_set.get(),
            timers_fired: self.timers_fired.get(),
            timers_kept: self.timers_kept.get(),
            ready_per_wait: self.ready_per_wait.snapshot(),
            commands_per_turn: self.commands_per_turn.snapshot(),
            ..Stats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_their_classes() {
        let classes = Classes::default();
        for size in [0, 1, 2, 3, 4, 1 << 20] {
            classes.record(size);
        }
        let snapshot = classes.snapshot();
        assert_eq!((snapshot[0], snapshot[1], snapshot[2], snapshot[3]), (1, 1, 2, 1));
        assert_eq!(snapshot[HISTOGRAM_CLASSES - 1], 1);
    }
}
