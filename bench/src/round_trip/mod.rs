//! round-trip: a 12-byte message there and back between two threads of one process. Each thread holds one end of a
//! non-blocking Unix socket pair and waits through the subject. One sample is one round trip.
//!
//! One row is different: a sample of `adaptive-cold` is the `arm` that moved a cold watch to the front.

mod adaptive_cold;
pub(crate) mod blocking;
#[cfg(feature = "peers")]
pub(crate) mod tasks;

use crate::catalogue::{Bench, Entry, Measure};
use crate::waiter::receiver::Way;
use std::time::Duration;

const MOVE: &str = "a move";

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    Bench {
        name: "round-trip",
        measure: Measure::Latency,
        slice: Duration::from_millis(50),
        seconds: Duration::from_secs(2),
        warm_up: true,
        subjects: subjects(),
    }
}

fn subjects() -> Vec<Entry> {
    use handle_watcher_client::{FrontPolicy, Mode};
    let mut subjects = vec![
        Entry::ours("back-wait", |placement| blocking::ours(placement, Mode::Edge, FrontPolicy::Off)),
        Entry::ours("back-wait-once", |placement| blocking::ours(placement, Mode::Once, FrontPolicy::Off)),
        Entry::ours("back-wait-level", |placement| blocking::ours(placement, Mode::Level, FrontPolicy::Off)),
        Entry::ours("front-wait", |placement| blocking::ours(placement, Mode::Level, FrontPolicy::Adaptive)),
        Entry::ours("front-wait-once", |placement| {
            blocking::ours(placement, Mode::Once, FrontPolicy::Adaptive)
        }),
        Entry::ours("front-outer", blocking::front_outer),
        Entry::ours("back-waker", blocking::back_waker),
        Entry::ours("back-receiver", |placement| blocking::back_receiver(placement, Way::Select)),
        Entry::ours("back-receiver-recv", |placement| blocking::back_receiver(placement, Way::Recv)),
        Entry::ours("adaptive-cold", adaptive_cold::open).part(MOVE),
        Entry::peer("before", blocking::before),
        Entry::peer("bare-epoll", blocking::bare_epoll),
        Entry::peer("bare-epoll-once", blocking::bare_epoll_once),
        Entry::peer("bare-epoll-outer", blocking::bare_epoll_outer),
        Entry::peer("mio", blocking::mio),
    ];
    subjects.extend(peers());
    subjects
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![
        Entry::peer("libuv", blocking::libuv),
        Entry::peer("polling", blocking::polling),
        Entry::peer("async-io-thread", tasks::async_io_thread),
        Entry::peer("async-io-block-on", tasks::async_io_block_on),
        Entry::peer("tokio-current", tasks::tokio_current),
        Entry::peer("tokio-outside", tasks::tokio_outside),
        Entry::peer("tokio-multi", tasks::tokio_multi),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}
