//! unary: a call with 1024 bytes and a reply with the same, from one thread to a server in another process, over a Unix
//! socket. One sample is one call.

pub(crate) mod ours;
#[cfg(feature = "peers")]
pub(crate) mod tonic;

use crate::catalogue::{Bench, Entry, Measure};
use std::time::Duration;

/// What travels each way.
const PAYLOAD: [u8; 1024] = [b'x'; 1024];

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![Entry::ours("ours", ours::open)];
    subjects.extend(peers());
    Bench {
        name: "unary",
        measure: Measure::Latency,
        slice: Duration::from_millis(50),
        seconds: Duration::from_secs(2),
        warm_up: true,
        subjects,
    }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![Entry::peer("tonic", tonic::open)]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}
