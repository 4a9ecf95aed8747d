//! What the threads of one life of a watcher share: the watcher, who owns which numbers, where they meet, and the first
//! thing that went wrong.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use handle_watcher_client::{Control, Signals, WatchId, Watcher};

use super::ledger::Complaint;

/// How many numbers each thread owns.
pub(crate) const SEATS: usize = 12;
/// How many threads stop the watcher, at the same time.
pub(crate) const STOPPERS: usize = 2;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A watch on a client's port that another thread made, about a number of that thread.
#[derive(Debug)]
pub(crate) struct Gift {
    pub(crate) token: u64,
    pub(crate) giver: usize,
    pub(crate) wished: Signals,
    /// When its wishes were last replaced; before that the old ones may still be told.
    pub(crate) changed_at: u64,
    pub(crate) number: i32,
    /// How often its number had been closed when it was made.
    pub(crate) closes: u64,
    /// When its `unwatch` had returned.
    pub(crate) dead_at: Option<u64>,
    /// An operation said NOT_FOUND: its Ended is on the way.
    pub(crate) is_ending: bool,
}

/// What others may reach of a client.
#[derive(Debug, Default)]
pub(crate) struct Door {
    pub(crate) control: Option<Control>,
    pub(crate) gifts: HashMap<WatchId, Gift>,
    /// Calls of `wake` that were begun, and those that succeeded.
    pub(crate) wakes: u64,
}

/// What differs from life to life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// How long something may take that must come at once.
    pub(crate) patience: Duration,
    /// Somebody may have periodic timers. They wake everybody all the time, which may hide a lost wake.
    pub(crate) has_periodic: bool,
    /// How many of its numbers a thread uses. Where they are few, many watches share each.
    pub(crate) seats: usize,
    /// Every watch is Once: only then is an entry in the back one-shot although many share it.
    pub(crate) is_once_only: bool,
}

pub(crate) struct World {
    pub(crate) watcher: Watcher,
    pub(crate) doors: Vec<Mutex<Door>>,
    /// By number: how often it was closed.
    closes: Vec<AtomicU64>,
    /// By number: the file there was closed and put back, and its old kernel entries with it.
    has_come_back: Vec<AtomicBool>,
    first_number: i32,
    /// How many watches each client has, as it sees it; compared with the watcher's count while everybody rests.
    pub(crate) watches: Vec<AtomicU64>,
    /// Orders what different threads do.
    clock: AtomicU64,
    tokens: AtomicU64,
    pub(crate) is_stopping: AtomicBool,
    /// Calls of `stop` that have returned.
    pub(crate) stops: AtomicUsize,
    pub(crate) habits: Habits,
    gate: Gate,
    pub(crate) failure: Failure,
    /// By thread: steps done, for the watchdog.
    pub(crate) progress: Vec<AtomicU64>,
    pub(crate) running: AtomicUsize,
}

impl World {
    pub(crate) fn new(watcher: Watcher, threads: usize, first_number: i32, habits: Habits) -> Self {
        let counters = |length: usize| (0..length).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        Self {
            watcher,
            doors: (0..threads).map(|_| Mutex::default()).collect(),
            closes: counters(threads * SEATS),
            has_come_back: (0..threads * SEATS).map(|_| AtomicBool::new(false)).collect(),
            first_number,
            watches: counters(threads),
            clock: AtomicU64::new(1),
            tokens: AtomicU64::new(1),
            is_stopping: AtomicBool::new(false),
            stops: AtomicUsize::new(0),
            habits,
            gate: Gate::new(threads),
            failure: Failure::default(),
            progress: counters(threads),
            running: AtomicUsize::new(threads),
        }
    }

    pub(crate) fn number(&self, thread: usize, seat: usize) -> i32 {
        self.first_number + i32::try_from(thread * SEATS + seat).expect("a small number")
    }

    fn index(&self, number: i32) -> usize {
        usize::try_from(number - self.first_number).expect("a number of a range")
    }

    pub(crate) fn closes(&self, number: i32) -> u64 {
        self.closes[self.index(number)].load(Ordering::SeqCst)
    }

    /// Odd while the number is being closed or replaced.
    pub(crate) fn count_close(&self, number: i32) {
        self.closes[self.index(number)].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn set_come_back(&self, number: i32, has_come_back: bool) {
        self.has_come_back[self.index(number)].store(has_come_back, Ordering::SeqCst);
    }

    /// Something at a number may have been ended by a close, since it was closed `closes` times.
    pub(crate) fn may_be_gone(&self, number: i32, closes: u64) -> bool {
        let was_closing = closes % 2 == 1;
        was_closing
            || self.closes(number) != closes
            || self.has_come_back[self.index(number)].load(Ordering::SeqCst)
    }

    /// What was at a number when it had been closed `closes` times is there no longer. Only true for as long as it is not
    /// closed again.
    pub(crate) fn is_gone(&self, number: i32, closes: u64) -> bool {
        let now = self.closes(number);
        let is_closing = closes % 2 == 1 || now % 2 == 1;
        !is_closing && now != closes && !self.has_come_back[self.index(number)].load(Ordering::SeqCst)
    }

    /// The watcher has stopped: nothing is told from here on that was not queued before.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stops.load(Ordering::SeqCst) == STOPPERS
    }

    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn next_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn door(&self, thread: usize) -> MutexGuard<'_, Door> {
        lock(&self.doors[thread])
    }

    /// Waits for all threads. False if one of them has failed meanwhile.
    pub(crate) fn meet(&self) -> bool {
        self.gate.pass(&self.failure)
    }
}

/// The first complaint counts; what comes after it is often only its echo.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    is_set: AtomicBool,
    complaint: Mutex<Option<Complaint>>,
}

impl Failure {
    pub(crate) fn set(&self, complaint: Complaint) {
        lock(&self.complaint).get_or_insert(complaint);
        self.is_set.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> Option<Complaint> {
        lock(&self.complaint).clone()
    }
}

/// Where all threads wait for the last one; it opens early when one has failed.
#[derive(Debug)]
struct Gate {
    threads: usize,
    state: Mutex<(usize, u64)>,
    opened: Condvar,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self { threads, state: Mutex::new((0, 0)), opened: Condvar::new() }
    }

    fn pass(&self, failure: &Failure) -> bool {
        let mut state = lock(&self.state);
        state.0 += 1;
        if state.0 == self.threads {
            *state = (0, state.1 + 1);
            self.opened.notify_all();
            return !failure.is_set();
        }
        let round = state.1;
        while state.1 == round && !failure.is_set() {
            state = self
                .opened
                .wait_timeout(state, Duration::from_millis(20))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        !failure.is_set()
    }
}

/// Notices threads that no longer get on.
#[derive(Debug)]
pub(crate) struct Watchdog {
    seen: Vec<(u64, Instant)>,
    patience: Duration,
}

impl Watchdog {
    pub(crate) fn new(threads: usize, patience: Duration) -> Self {
        Self { seen: vec![(0, Instant::now()); threads], patience }
    }

    /// The thread that has done nothing for too long.
    pub(crate) fn look(&mut self, progress: &[AtomicU64]) -> Option<usize> {
        let now = Instant::now();
        for (seen, progress) in self.seen.iter_mut().zip(progress) {
            let progress = progress.load(Ordering::Relaxed);
            if seen.0 != progress {
                *seen = (progress, now);
            }
        }
        self.seen.iter().position(|(_, since)| now.duration_since(*since) > self.patience)
    }
}
