//! service: as `round-trip`, but the two clients are in one process and the watcher is in another: a service. One sample is
//! one round trip.
//!
//! The rows `sessions-N` are different: one thread writes a message to each of N sockets, then each of N clients waits for
//! its own and takes it. A sample is the mean time of one event; the clients are those of a service, or, in the
//! `embedded-` rows, of a watcher in the process.

mod sessions;
mod trip;

use crate::catalogue::{Bench, Entry, Measure};
use handle_watcher_client::{FrontPolicy, Mode};
use std::time::Duration;

const MANY: &str = "an event";

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    use crate::round_trip::blocking;
    Bench {
        name: "service",
        measure: Measure::Latency,
        slice: Duration::from_millis(50),
        seconds: Duration::from_secs(2),
        warm_up: true,
        subjects: vec![
            Entry::ours("remote-edge", |placement| trip::remote(placement, Mode::Edge, FrontPolicy::Off))
                .against(&["embedded-back"]),
            Entry::ours("remote-once", |placement| trip::remote(placement, Mode::Once, FrontPolicy::Off))
                .against(&["embedded-back-once"]),
            Entry::ours("remote-front", |placement| {
                trip::remote(placement, Mode::Level, FrontPolicy::Adaptive)
            }),
            Entry::ours("remote-front-once", |placement| {
                trip::remote(placement, Mode::Once, FrontPolicy::Adaptive)
            }),
            Entry::ours("embedded-back", |placement| blocking::ours(placement, Mode::Edge, FrontPolicy::Off)),
            Entry::ours("embedded-back-once", |placement| {
                blocking::ours(placement, Mode::Once, FrontPolicy::Off)
            }),
            Entry::peer("bare-epoll", blocking::bare_epoll),
            Entry::ours("sessions-1", sessions::remote::<1>).part(MANY).against(&["embedded-sessions-1"]),
            Entry::ours("sessions-16", sessions::remote::<16>).part(MANY).against(&["embedded-sessions-16"]),
            Entry::ours("sessions-256", sessions::remote::<256>)
                .part(MANY)
                .against(&["embedded-sessions-256"]),
            Entry::ours("embedded-sessions-1", sessions::embedded::<1>).part(MANY),
            Entry::ours("embedded-sessions-16", sessions::embedded::<16>).part(MANY),
            Entry::ours("embedded-sessions-256", sessions::embedded::<256>).part(MANY),
        ],
    }
}
