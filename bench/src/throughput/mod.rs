//! throughput: 1000 socket pairs, 256 of them active. For each event the client reads one byte and writes one to the
//! other end of the same pair, which makes it ready again. A sample is the mean time of 256 events.

pub(crate) mod loops;
#[cfg(feature = "peers")]
pub(crate) mod tasks;

use crate::catalogue::{Bench, Entry, Measure};
use handle_watcher_client::{FrontPolicy, Mode};
use std::time::Duration;

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![
        Entry::ours("back-wait", |placement| loops::ours(placement, Mode::Edge, FrontPolicy::Off)),
        Entry::ours("back-wait-level", |placement| loops::ours(placement, Mode::Level, FrontPolicy::Off)),
        Entry::ours("back-wait-once", |placement| loops::ours(placement, Mode::Once, FrontPolicy::Off)),
        Entry::ours("front-wait", |placement| loops::ours(placement, Mode::Level, FrontPolicy::Adaptive)),
        Entry::ours("front-wait-once", |placement| loops::ours(placement, Mode::Once, FrontPolicy::Always)),
        Entry::peer("bare-epoll", loops::bare_epoll),
        Entry::peer("bare-epoll-once", loops::bare_epoll_once),
        Entry::peer("mio", loops::mio),
    ];
    subjects.extend(peers());
    Bench {
        name: "throughput",
        measure: Measure::Rate,
        slice: Duration::from_millis(100),
        seconds: Duration::from_secs(2),
        warm_up: true,
        subjects,
    }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![
        Entry::peer("libuv", loops::libuv),
        Entry::peer("async-io-thread", tasks::async_io_thread),
        Entry::peer("tokio-current", tasks::tokio_current),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}
