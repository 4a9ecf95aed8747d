//! timers: one million timers live at once, in two parts.
//!
//! *set + cancel*: every timer is set, its deadline random within an hour that begins in a minute, then every one is
//! cancelled. The clock runs from the first set until the last is cancelled.
//!
//! *set + fire*: every timer is set, its deadline random within `FIRE_WINDOW` that begins after the last one is set
//! (`lead` sees to that, from how long setting took the last time); then the client takes them as they fire. Two
//! stretches are counted: the setting, and from the beginning of the window until the last timer was taken. The wait
//! between them is not: nobody works in it. The window is so short that it is work, not waiting, that fills it.
//!
//! Where another thread keeps the timers, setting and cancelling last until that thread has done its part. A sample is
//! one such run divided by the number of timers; `set` and `end` show the two halves.

#[cfg(feature = "peers")]
mod delay_queue;
#[cfg(feature = "peers")]
mod libuv;
mod ours;
#[cfg(feature = "peers")]
mod tasks;

use crate::Result;
use crate::catalogue::{Bench, Entry, Measure};
use crate::pin::Placement;
use crate::random::Random;
use crate::subject::{Recorder, Slice, Stretch, Subject, nanoseconds, share};
use std::time::{Duration, Instant};

/// Timers live at once.
const TIMERS: usize = 1_000_000;
/// Timers of the `allocations` bench: the figures are per timer, so fewer do.
const FEWER_TIMERS: usize = 100_000;
/// Deadlines of timers that are going to be cancelled.
const CANCEL_WINDOW: Duration = Duration::from_secs(3600);
/// Deadlines of timers that are going to fire lie this close together.
const FIRE_WINDOW: Duration = Duration::from_millis(10);
/// Time to set the timers in the first run, when nobody knows yet how long it takes.
const FIRST_LEAD: Duration = Duration::from_secs(3);

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![
        Entry::ours("ours", |placement| fire(ours::open(placement, TIMERS)?, TIMERS)).part(FIRE),
        Entry::ours("ours-cancel", |placement| cancel(ours::open(placement, TIMERS)?, TIMERS)).part(CANCEL),
    ];
    subjects.extend(peers());
    Bench {
        name: "timers",
        measure: Measure::Rate,
        // A slice is one run, however long it takes; this is about how long.
        slice: Duration::from_secs(1),
        seconds: Duration::from_secs(3),
        warm_up: true,
        subjects,
    }
}

const FIRE: &str = "set+fire";
const CANCEL: &str = "set+cancel";

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![
        Entry::peer("async-io", |_| fire(tasks::async_io(), TIMERS)).part(FIRE),
        Entry::peer("async-io-cancel", |_| cancel(tasks::async_io(), TIMERS)).part(CANCEL),
        Entry::peer("tokio", |_| fire(tasks::tokio()?, TIMERS)).part(FIRE),
        Entry::peer("tokio-cancel", |_| cancel(tasks::tokio()?, TIMERS)).part(CANCEL),
        Entry::peer("tokio-delay-queue", |_| fire(delay_queue::open()?, TIMERS)).part(FIRE),
        Entry::peer("tokio-delay-queue-cancel", |_| cancel(delay_queue::open()?, TIMERS)).part(CANCEL),
        Entry::peer("libuv", |_| fire(libuv::open(TIMERS)?, TIMERS)).part(FIRE),
        Entry::peer("libuv-cancel", |_| cancel(libuv::open(TIMERS)?, TIMERS)).part(CANCEL),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

/// For `allocations`: fewer timers of ours, set and fired.
pub(crate) fn fewer_of_ours(placement: &Placement) -> Result<Box<dyn Subject>> {
    fire(ours::open(placement, FEWER_TIMERS)?, FEWER_TIMERS)
}

/// For `allocations`: fewer of async-io's.
#[cfg(feature = "peers")]
pub(crate) fn fewer_of_async_io(_: &Placement) -> Result<Box<dyn Subject>> {
    fire(tasks::async_io(), FEWER_TIMERS)
}

/// For `allocations`: fewer of tokio's.
#[cfg(feature = "peers")]
pub(crate) fn fewer_of_tokio(_: &Placement) -> Result<Box<dyn Subject>> {
    fire(tasks::tokio()?, FEWER_TIMERS)
}

/// Something that holds many timers for one client.
trait Timers {
    /// Sets a timer for `first` plus each offset and returns when all are live. The bench adds up nothing before the
    /// clock runs, so every subject makes its deadlines the way that is cheapest for it.
    fn set(&mut self, first: Instant, offsets: &[Duration]) -> Result<()>;

    /// Cancels every timer and returns when none is live.
    fn cancel(&mut self) -> Result<()>;

    /// Blocks until every timer has fired and the client has seen which one.
    fn take_all(&mut self) -> Result<()>;
}

fn cancel(timers: impl Timers + 'static, count: usize) -> Result<Box<dyn Subject>> {
    Ok(Box::new(Cancelling { timers, offsets: offsets(count, CANCEL_WINDOW) }))
}

fn fire(timers: impl Timers + 'static, count: usize) -> Result<Box<dyn Subject>> {
    Ok(Box::new(Firing { timers, offsets: offsets(count, FIRE_WINDOW), lead: FIRST_LEAD }))
}

/// The same random offsets for every subject.
fn offsets(count: usize, window: Duration) -> Vec<Duration> {
    let mut random = Random::new(1);
    (0..count).map(|_| Duration::from_nanos(random.below(nanoseconds(window)))).collect()
}

struct Cancelling<T> {
    timers: T,
    offsets: Vec<Duration>,
}

impl<T: Timers> Subject for Cancelling<T> {
    fn run(&mut self, _: Duration, recorder: &mut Recorder) -> Result<Slice> {
        // A minute away at least: none may fire while this runs.
        let first = Instant::now() + Duration::from_secs(60);
        let stretch = Stretch::begin()?;
        self.timers.set(first, &self.offsets)?;
        let set = stretch.began().elapsed();
        self.timers.cancel()?;
        let slice = stretch.end(u64::try_from(self.offsets.len())?)?;
        let cancelled = slice.elapsed - set;
        finish(slice, set, cancelled, recorder)
    }
}

struct Firing<T> {
    timers: T,
    offsets: Vec<Duration>,
    lead: Duration,
}

impl<T: Timers> Subject for Firing<T> {
    fn run(&mut self, _: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let first = Instant::now() + self.lead;
        let stretch = Stretch::begin()?;
        self.timers.set(first, &self.offsets)?;
        let all_set = Instant::now();
        self.timers.take_all()?;
        // Timers that were due before all were set are late by our fault; then the clock just runs on.
        let fired = first.max(all_set).elapsed();
        let slice = stretch.end(u64::try_from(self.offsets.len())?)?;
        let set = all_set - stretch.began();
        self.lead = set * 2 + Duration::from_millis(100);
        finish(slice, set, fired, recorder)
    }
}

/// Both stretches of a run make one sample.
fn finish(mut slice: Slice, set: Duration, end: Duration, recorder: &mut Recorder) -> Result<Slice> {
    slice.elapsed = set + end;
    recorder.record(share(slice.elapsed, slice.operations));
    let per_timer = |stretch: Duration| nanoseconds(stretch) as f64 / slice.operations as f64;
    let (set, end) = (per_timer(set), per_timer(end));
    Ok(slice.with_gauge("set_ns", set).with_gauge("end_ns", end))
}
