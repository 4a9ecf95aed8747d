//! many-handles: what an event costs while more and more handles are watched. The handles are eventfds; one thread
//! writes to the active ones, then waits until it has taken, read and armed again every event that is due, all of it
//! with Once watches. A sample is such a turn divided by its events, the writes and the reads included.
//!
//! Sizes are 1, 100, 10 000 and 19 000 descriptors with a watch each (or as many as the descriptor limit allows:
//! `descriptors` says it), and 1 000 000 watches that share 19 000 descriptors. 100 descriptors are active, or, in the
//! rows with `-all`, every one. Where watches share a descriptor, each of them has an event, so that one write and one
//! read stand for about 53 events; the descriptor is read when all of them came.
//!
//! `array-front` has no rows for 1 000 000 watches: poll(2) refuses more entries than RLIMIT_NOFILE allows.

mod array_front;
mod field;
mod ours;

use crate::catalogue::{Bench, Entry, Measure};
use array_front::ArrayFront;
use field::Load;
use handle_watcher_client::FrontPolicy;
use ours::Ours;
use std::time::Duration;

/// Descriptors in all: what fits under the usual limit of 20 000.
const MOST: usize = 19_000;
const SHARED_WATCHES: usize = 1_000_000;
/// Active descriptors, where not all are.
const FEW: usize = 100;

/// The three policies at one size and activity.
macro_rules! policies {
    ($size:literal, $suffix:literal, $load:expr) => {
        [
            Entry::ours(concat!($size, "-adaptive", $suffix), |placement| {
                Ours::open(placement, $load, FrontPolicy::Adaptive)
            })
            .part(concat!($size, $suffix))
            .against(&[concat!($size, "-off", $suffix), concat!($size, "-always", $suffix)]),
            Entry::ours(concat!($size, "-off", $suffix), |placement| {
                Ours::open(placement, $load, FrontPolicy::Off)
            })
            .part(concat!($size, $suffix)),
            Entry::ours(concat!($size, "-always", $suffix), |placement| {
                Ours::open(placement, $load, FrontPolicy::Always)
            })
            .part(concat!($size, $suffix)),
        ]
    };
}

/// The ancestors' design at the same.
macro_rules! array_front {
    ($size:literal, $suffix:literal, $load:expr) => {
        Entry::peer(concat!($size, "-array-front", $suffix), |placement| ArrayFront::open(placement, $load))
            .part(concat!($size, $suffix))
    };
}

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = Vec::new();
    subjects.extend(policies!("1", "", Load::new(1, 1)));
    subjects.push(array_front!("1", "", Load::new(1, 1)));
    subjects.extend(policies!("100", "", Load::new(100, FEW)));
    subjects.push(array_front!("100", "", Load::new(100, FEW)));
    subjects.extend(policies!("10000", "", Load::new(10_000, FEW)));
    subjects.push(array_front!("10000", "", Load::new(10_000, FEW)));
    subjects.extend(policies!("10000", "-all", Load::new(10_000, 10_000)));
    subjects.push(array_front!("10000", "-all", Load::new(10_000, 10_000)));
    subjects.extend(policies!("19000", "", Load::new(MOST, FEW)));
    subjects.push(array_front!("19000", "", Load::new(MOST, FEW)));
    subjects.extend(policies!("19000", "-all", Load::new(MOST, MOST)));
    subjects.push(array_front!("19000", "-all", Load::new(MOST, MOST)));
    subjects.extend(policies!("1000000", "", Load::new(SHARED_WATCHES, FEW)));
    subjects.extend(policies!("1000000", "-all", Load::new(SHARED_WATCHES, MOST)));
    for (larger, smaller) in [("19000-adaptive", "100-adaptive"), ("1000000-adaptive", "100-adaptive")] {
        if let Some(entry) = subjects.iter_mut().find(|entry| entry.name == larger) {
            entry.against.push(smaller);
        }
    }
    Bench {
        name: "many-handles",
        measure: Measure::Latency,
        // At least one turn, which takes longer where a million watches are active.
        slice: Duration::from_millis(100),
        seconds: Duration::from_secs(1),
        warm_up: true,
        subjects,
    }
}
