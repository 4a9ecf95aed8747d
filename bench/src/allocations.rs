//! allocations: heap allocations in steady state, counted by this program's own allocator. The subjects are those of
//! the other benches; what their warm-up slice allocates does not count. Clients' threads and all other threads
//! (watcher, reactor, workers) are counted apart; per round is per round trip, event or timer.

use crate::Result;
use crate::catalogue::{Bench, Entry, Measure};
use crate::subject::Subject;
use crate::sys::allocator;
use crate::waiter::receiver::Way;
use crate::{round_trip, throughput, timers};
use handle_watcher_client::{FrontPolicy, Mode};
use std::time::Duration;

const ROUND_TRIP: &str = "round-trip";
const THROUGHPUT: &str = "throughput";
const TIMERS: &str = "timers";

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![
        Entry::ours("ours", |placement| {
            counted(round_trip::blocking::ours(placement, Mode::Edge, FrontPolicy::Off)?)
        })
        .part(ROUND_TRIP),
        Entry::ours("ours-once", |placement| {
            counted(round_trip::blocking::ours(placement, Mode::Once, FrontPolicy::Off)?)
        })
        .part(ROUND_TRIP),
        Entry::ours("ours-level", |placement| {
            counted(round_trip::blocking::ours(placement, Mode::Level, FrontPolicy::Off)?)
        })
        .part(ROUND_TRIP),
        Entry::ours("ours-throughput", |placement| {
            counted(throughput::loops::ours(placement, Mode::Edge, FrontPolicy::Off)?)
        })
        .part(THROUGHPUT),
        Entry::ours("ours-throughput-once", |placement| {
            counted(throughput::loops::ours(placement, Mode::Once, FrontPolicy::Off)?)
        })
        .part(THROUGHPUT),
        Entry::ours("ours-throughput-level", |placement| {
            counted(throughput::loops::ours(placement, Mode::Level, FrontPolicy::Off)?)
        })
        .part(THROUGHPUT),
        Entry::ours("ours-front", |placement| {
            counted(round_trip::blocking::ours(placement, Mode::Level, FrontPolicy::Adaptive)?)
        })
        .part(ROUND_TRIP),
        Entry::ours("ours-front-once", |placement| {
            counted(round_trip::blocking::ours(placement, Mode::Once, FrontPolicy::Adaptive)?)
        })
        .part(ROUND_TRIP),
        Entry::ours("ours-outer", |placement| counted(round_trip::blocking::front_outer(placement)?))
            .part(ROUND_TRIP),
        Entry::ours("ours-waker", |placement| counted(round_trip::blocking::back_waker(placement)?))
            .part(ROUND_TRIP),
        Entry::ours("ours-receiver", |placement| {
            counted(round_trip::blocking::back_receiver(placement, Way::Select)?)
        })
        .part(ROUND_TRIP),
        Entry::ours("ours-throughput-front", |placement| {
            counted(throughput::loops::ours(placement, Mode::Level, FrontPolicy::Adaptive)?)
        })
        .part(THROUGHPUT),
        Entry::ours("ours-throughput-front-once", |placement| {
            counted(throughput::loops::ours(placement, Mode::Once, FrontPolicy::Adaptive)?)
        })
        .part(THROUGHPUT),
        Entry::ours("ours-timers", |placement| counted(timers::fewer_of_ours(placement)?)).part(TIMERS),
    ];
    subjects.extend(peers());
    Bench {
        name: "allocations",
        measure: Measure::Value("allocations_per_round"),
        slice: Duration::from_millis(250),
        seconds: Duration::from_secs(1),
        warm_up: true,
        subjects,
    }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![
        Entry::peer("async-io", |placement| counted(round_trip::tasks::async_io_thread(placement)?))
            .part(ROUND_TRIP),
        Entry::peer("tokio", |placement| counted(round_trip::tasks::tokio_current(placement)?))
            .part(ROUND_TRIP),
        Entry::peer("async-io-throughput", |placement| {
            counted(throughput::tasks::async_io_thread(placement)?)
        })
        .part(THROUGHPUT),
        Entry::peer("tokio-throughput", |placement| counted(throughput::tasks::tokio_current(placement)?))
            .part(THROUGHPUT),
        Entry::peer("async-io-timers", |placement| counted(timers::fewer_of_async_io(placement)?))
            .part(TIMERS),
        Entry::peer("tokio-timers", |placement| counted(timers::fewer_of_tokio(placement)?)).part(TIMERS),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

/// Another bench's subject, its allocations counted.
fn counted(subject: Box<dyn Subject>) -> Result<Box<dyn Subject>> {
    allocator::start_counting();
    Ok(subject)
}
