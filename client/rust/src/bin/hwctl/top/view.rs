//! What the screen shows: two samples make rates.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::time::Duration;

use handle_watcher_client::{Result, Status};
use handle_watcher_wire::protocol::SessionEntry;

use super::histogram::Histogram;
use super::sample::{Sample, SessionWatch};
use crate::text::escape;

/// Something and how often it happened in the last interval, per second.
#[derive(Clone, Debug)]
pub(crate) struct Busy<T> {
    pub(crate) per_second: f64,
    pub(crate) what: T,
}

/// Events per second, by who served them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    /// Without a hop, by the fronts of clients inside the service's own process.
    pub(crate) front: f64,
    /// Through the watcher thread.
    pub(crate) back: f64,
}

/// Everything the screen shows. Texts of the service are made fit for a terminal here.
#[derive(Debug)]
pub(crate) struct View {
    /// The socket.
    pub(crate) name: String,
    pub(crate) interval: Duration,
    pub(crate) sample: Option<Sample>,
    pub(crate) events: Events,
    /// Sessions, the busiest first.
    pub(crate) sessions: Vec<Busy<SessionEntry>>,
    /// Watches, the busiest first.
    pub(crate) watches: Vec<Busy<SessionWatch>>,
    /// Ready descriptors per wait, since this screen began.
    pub(crate) ready_per_wait: Histogram,
    /// Round trips of this screen's pings, in microseconds.
    pub(crate) round_trip: Histogram,
    /// Why there is nothing new.
    pub(crate) failure: Option<Status>,
    /// The rates of counters, per second.
    rates: HashMap<&'static str, f64>,
    /// The service's own histogram when this screen began.
    ready_before: Option<Histogram>,
}

/// The counters whose rates are shown.
pub(crate) const RATES: [&str; 5] = ["readiness", "turns", "wakes", "commands", "timers_fired"];

impl View {
    pub(crate) fn new(socket: &OsStr, interval: Duration) -> Self {
        Self {
            name: escape(&socket.to_string_lossy()),
            interval,
            sample: None,
            events: Events::default(),
            sessions: Vec::new(),
            watches: Vec::new(),
            ready_per_wait: Histogram::default(),
            round_trip: Histogram::default(),
            failure: None,
            rates: HashMap::new(),
            ready_before: None,
        }
    }

    /// Takes the next sample, or the news that there is none.
    pub(crate) fn take(&mut self, sample: Result<Sample>) {
        let mut sample = match sample {
            Ok(sample) => sample,
            Err(status) => {
                self.failure = Some(status);
                return;
            }
        };
        self.failure = None;
        for entry in &mut sample.sessions {
            entry.name = escape(&entry.name);
        }
        for SessionWatch { watch, .. } in &mut sample.watches {
            watch.kind = escape(&watch.kind);
        }
        self.round_trip.record(u64::try_from(sample.ping.as_micros()).unwrap_or(u64::MAX));
        let ready = Histogram::from_fn(|class| sample.stat(&format!("ready_per_wait_{class}")));
        self.ready_per_wait = ready.since(self.ready_before.get_or_insert(ready));
        let rates = Rates::between(self.sample.as_ref(), &sample);
        self.sessions = rates.sessions(&sample.sessions);
        self.watches = rates.watches(&sample.watches);
        let back = self.sessions.iter().map(|busy| busy.per_second).sum();
        self.events = Events { front: rates.stat("from_fronts"), back };
        self.rates = RATES.into_iter().map(|name| (name, rates.stat(name))).collect();
        self.sample = Some(sample);
    }

    /// The rate of a counter of [`RATES`].
    pub(crate) fn rate(&self, name: &str) -> f64 {
        self.rates.get(name).copied().unwrap_or(0.0)
    }
}

/// The difference of two samples.
struct Rates<'a> {
    before: Option<&'a Sample>,
    now: &'a Sample,
    seconds: f64,
}

impl<'a> Rates<'a> {
    fn between(before: Option<&'a Sample>, now: &'a Sample) -> Self {
        let taken = before.map(|before| now.taken.saturating_duration_since(before.taken).as_secs_f64());
        // Two samples are never taken at once; a clock that says so makes no rate infinite.
        Self { before, now, seconds: taken.unwrap_or(0.0).max(0.001) }
    }

    fn per_second(&self, before: Option<u64>, now: u64) -> f64 {
        // What was not there before, or counts anew, has no rate yet.
        let change = before.map_or(0, |before| now.saturating_sub(before));
        #[allow(clippy::cast_precision_loss, reason = "a rate for people to read")]
        let change = change as f64;
        change / self.seconds
    }

    fn stat(&self, name: &str) -> f64 {
        self.per_second(self.before.map(|before| before.stat(name)), self.now.stat(name))
    }

    fn sessions(&self, now: &[SessionEntry]) -> Vec<Busy<SessionEntry>> {
        let before: HashMap<u64, u64> = self
            .before
            .map(|before| before.sessions.iter().map(|entry| (entry.session, entry.events)).collect())
            .unwrap_or_default();
        let busy = now.iter().map(|entry| Busy {
            per_second: self.per_second(before.get(&entry.session).copied(), entry.events),
            what: entry.clone(),
        });
        sorted(busy, |entry| entry.events)
    }

    fn watches(&self, now: &[SessionWatch]) -> Vec<Busy<SessionWatch>> {
        let key = |watch: &SessionWatch| (watch.session, watch.watch.id);
        let before: HashMap<(u64, u64), u64> = self
            .before
            .map(|before| before.watches.iter().map(|watch| (key(watch), watch.watch.events)).collect())
            .unwrap_or_default();
        let busy = now.iter().map(|watch| Busy {
            per_second: self.per_second(before.get(&key(watch)).copied(), watch.watch.events),
            what: watch.clone(),
        });
        sorted(busy, |watch| watch.watch.events)
    }
}

/// By rate, then by all that came so far.
fn sorted<T>(busy: impl Iterator<Item = Busy<T>>, total: impl Fn(&T) -> u64) -> Vec<Busy<T>> {
    let mut sorted: Vec<Busy<T>> = busy.collect();
    sorted.sort_by(|one, other| {
        other
            .per_second
            .total_cmp(&one.per_second)
            .then_with(|| Reverse(total(&one.what)).cmp(&Reverse(total(&other.what))))
    });
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use handle_watcher_client::{Mode, Signals};
    use handle_watcher_wire::protocol::WatchEntry;

    fn sample(taken: Instant, events: u64) -> Sample {
        let session =
            SessionEntry { session: 7, name: "a\x1b[2J".to_owned(), events, ..SessionEntry::default() };
        let watch = WatchEntry {
            id: 3,
            kind: "sock\net".to_owned(),
            signals: Signals::READABLE,
            mode: Mode::Once,
            events,
        };
        let stats = [("from_fronts", events / 3), ("turns", events), ("ready_per_wait_1", events)];
        Sample {
            taken,
            ping: Duration::from_micros(100),
            stats: stats.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            sessions: vec![session],
            watches: vec![SessionWatch { session: 7, watch }],
        }
    }

    #[test]
    fn two_samples_make_rates_and_texts_are_escaped() {
        let started = Instant::now();
        let mut view = View::new("/x\n".as_ref(), Duration::from_secs(1));
        view.take(Ok(sample(started, 300)));
        assert_eq!((view.events.back, view.rate("turns")), (0.0, 0.0), "one sample is no rate");
        view.take(Ok(sample(started + Duration::from_secs(2), 600)));
        assert_eq!((view.events.front, view.events.back), (50.0, 150.0));
        assert_eq!((view.rate("turns"), view.watches[0].per_second), (150.0, 150.0));
        assert_eq!(view.ready_per_wait.rows(9), [("1".into(), 300)]);
        assert_eq!(view.round_trip.rows(9), [("64-127".into(), 2)]);
        assert_eq!(view.sessions[0].what.name, "a\\u{1b}[2J");
        assert_eq!((view.name.as_str(), view.watches[0].what.watch.kind.as_str()), ("/x\\n", "sock\\net"));
    }
}
