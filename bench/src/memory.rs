//! memory: user memory per watch, clients' and watcher's side together; what the kernel keeps is not in it. Resident
//! memory is what grew; the bytes that went through the allocator stand beside it.

use crate::catalogue::{Bench, Entry, Measure};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::sys::allocator;
use crate::{Result, ours, pair, proc};
use handle_watcher_client::{Client, ClientConfig, Config, Mode, Signals};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Watches that share descriptors.
const SHARED_WATCHES: usize = 1_000_000;
/// The descriptors they share.
const SHARED_SOCKETS: usize = 1000;
/// Watches on a descriptor each, where the limit allows them.
const DISTINCT_WATCHES: usize = 18_000;

/// A watcher that takes longer than this has lost a watch.
const PATIENCE: Duration = Duration::from_secs(30);

const SHARED: &str = "shared descriptors";
const UNDELIVERED: &str = "shared, all undelivered";
const DISTINCT: &str = "distinct descriptors";
const SPARSE: &str = "every other number";

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![
        Entry::ours("ours", |placement| {
            ours(placement, Sockets::open(SHARED_SOCKETS)?, SHARED_WATCHES, false)
        })
        .part(SHARED),
        Entry::ours("ours-undelivered", |placement| {
            ours(placement, Sockets::open(SHARED_SOCKETS)?, SHARED_WATCHES, true)
        })
        .part(UNDELIVERED),
        Entry::ours("ours-distinct", |placement| {
            let sockets = Sockets::open_both(distinct_pairs()?)?;
            let watches = sockets.watched.len();
            ours(placement, sockets, watches, false)
        })
        .part(DISTINCT),
        Entry::ours("ours-sparse", |placement| {
            let watches = distinct_pairs()?;
            ours(placement, Sockets::open(watches)?, watches, false)
        })
        .part(SPARSE),
    ];
    subjects.extend(peers());
    Bench {
        name: "memory",
        measure: Measure::Value("bytes_per_watch"),
        // Every subject fills up once; time does not matter.
        slice: Duration::from_secs(3600),
        seconds: Duration::from_secs(1),
        warm_up: false,
        subjects,
    }
}

/// As many pairs as the descriptor limit allows.
fn distinct_pairs() -> Result<usize> {
    Ok(DISTINCT_WATCHES.min(pair::descriptor_budget()?) / 2)
}

/// Sockets to watch, and their other ends.
struct Sockets {
    watched: Vec<UnixStream>,
    others: Vec<UnixStream>,
}

impl Sockets {
    fn open(count: usize) -> Result<Self> {
        pair::require_descriptors(2 * count)?;
        let (mut watched, mut others) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let (socket, other) = pair::pair()?;
            watched.push(socket);
            others.push(other);
        }
        Ok(Self { watched, others })
    }

    /// Pairs of which both ends are watched, so that no descriptor number between them is not.
    fn open_both(pairs: usize) -> Result<Self> {
        let Self { mut watched, mut others } = Self::open(pairs)?;
        watched.append(&mut others);
        Ok(Self { watched, others })
    }
}

/// What the process holds at one moment.
#[derive(Clone, Copy)]
struct Held {
    resident: u64,
    heap: i64,
}

impl Held {
    fn now() -> Result<Self> {
        Ok(Self { resident: proc::resident_bytes()?, heap: allocator::allocations().live_bytes })
    }

    /// A slice that says how much was added since, per watch.
    fn report(self, watches: usize) -> Result<Slice> {
        let now = Self::now()?;
        let share = |bytes: f64| bytes / watches as f64;
        let slice = Stretch::begin()?.end(0)?.with_gauge("watches", watches as f64);
        Ok(slice
            .with_gauge("bytes_per_watch", share(now.resident as f64 - self.resident as f64))
            .with_gauge("heap_bytes_per_watch", share((now.heap - self.heap) as f64)))
    }
}

fn ours(placement: &Placement, sockets: Sockets, watches: usize, is_ready: bool) -> Result<Box<dyn Subject>> {
    allocator::start_counting();
    let config = Config { watch_limit: u32::try_from(watches)?, ..ours::config(placement) };
    let client = Client::embedded_with(config, ClientConfig::default())?;
    Ok(Box::new(Ours { client, sockets, watches, is_ready }))
}

struct Ours {
    client: Client,
    sockets: Sockets,
    watches: usize,
    is_ready: bool,
}

impl Subject for Ours {
    fn run(&mut self, _: Duration, _: &mut Recorder) -> Result<Slice> {
        let before = Held::now()?;
        for (token, socket) in (0..u64::try_from(self.watches)?).zip(self.sockets.watched.iter().cycle()) {
            self.client.watch(socket, Signals::READABLE, Mode::Edge, token)?;
        }
        let watches = u64::try_from(self.watches)?;
        settle(|| self.client.stats().watches == watches)?;
        if self.is_ready {
            self.sockets.others.iter().try_for_each(pair::send)?;
            settle(|| self.client.stats().undelivered == watches)?;
        }
        before.report(self.watches)
    }
}

/// The watcher's side of a watch is made by the watcher thread: waits for it, but not for ever.
fn settle(is_settled: impl Fn() -> bool) -> Result<()> {
    let patience_ends = Instant::now() + PATIENCE;
    while !is_settled() {
        if Instant::now() > patience_ends {
            return Err("the watcher thread has not caught up".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    // One registration a descriptor is all that peers allow, so there is no row of shared descriptors.
    vec![
        Entry::peer("async-io-distinct", tasks::async_io).part(DISTINCT),
        Entry::peer("tokio-distinct", tasks::tokio).part(DISTINCT),
        Entry::peer("libuv-distinct", tasks::libuv).part(DISTINCT),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

#[cfg(feature = "peers")]
mod tasks {
    use super::*;
    use crate::sys::async_fd;
    use crate::sys::uv::{Kind, Turn, Uv};
    use ::tokio::io::unix::AsyncFd;
    use ::tokio::runtime::{Builder, Runtime};
    use async_io::Async;
    use std::os::fd::{AsFd, OwnedFd};
    use std::task::{Context, Waker};

    pub(super) fn async_io(placement: &Placement) -> Result<Box<dyn Subject>> {
        allocator::start_counting();
        let sockets = Sockets::open_both(distinct_pairs()?)?;
        // Its thread's memory is not a watch's.
        placement.start_async_io()?;
        Ok(Box::new(AsyncIo { sockets: Some(sockets), held: Vec::new() }))
    }

    struct AsyncIo {
        sockets: Option<Sockets>,
        held: Vec<Async<UnixStream>>,
    }

    impl Subject for AsyncIo {
        fn run(&mut self, _: Duration, _: &mut Recorder) -> Result<Slice> {
            let Sockets { watched, others: _others } =
                self.sockets.take().ok_or("memory is measured once")?;
            self.held.reserve_exact(watched.len());
            let before = Held::now()?;
            for socket in watched {
                let source = Async::new_nonblocking(socket)?;
                drop(source.poll_readable(&mut Context::from_waker(Waker::noop())));
                self.held.push(source);
            }
            before.report(self.held.len())
        }
    }

    pub(super) fn tokio(placement: &Placement) -> Result<Box<dyn Subject>> {
        allocator::start_counting();
        let sockets = Sockets::open_both(distinct_pairs()?)?;
        let runtime = placement
            .start_far(|| Ok(Builder::new_multi_thread().worker_threads(1).enable_io().build()?))?;
        Ok(Box::new(Tokio { sockets: Some(sockets), held: Vec::new(), runtime }))
    }

    /// Fields drop in order: the registrations leave before the runtime does.
    struct Tokio {
        sockets: Option<Sockets>,
        held: Vec<AsyncFd<OwnedFd>>,
        runtime: Runtime,
    }

    impl Subject for Tokio {
        fn run(&mut self, _: Duration, _: &mut Recorder) -> Result<Slice> {
            let Sockets { watched, others: _others } =
                self.sockets.take().ok_or("memory is measured once")?;
            self.held.reserve_exact(watched.len());
            let before = Held::now()?;
            let inside = self.runtime.enter();
            for socket in watched {
                let source = async_fd::register(socket.into())?;
                drop(source.poll_read_ready(&mut Context::from_waker(Waker::noop())));
                self.held.push(source);
            }
            drop(inside);
            before.report(self.held.len())
        }
    }

    /// libuv's own allocations go past our counter: the resident figure has them.
    pub(super) fn libuv(_: &Placement) -> Result<Box<dyn Subject>> {
        allocator::start_counting();
        Ok(Box::new(Libuv { uv: None, sockets: Sockets::open_both(distinct_pairs()?)? }))
    }

    /// Fields drop in order: the handles close before their sockets do.
    struct Libuv {
        uv: Option<Uv>,
        sockets: Sockets,
    }

    impl Subject for Libuv {
        fn run(&mut self, _: Duration, _: &mut Recorder) -> Result<Slice> {
            let (before, watched) = (Held::now()?, &self.sockets.watched);
            let uv = self.uv.insert(Uv::new(Kind::Poll, watched.len())?);
            for (number, socket) in watched.iter().enumerate() {
                uv.poll(number, socket.as_fd())?;
            }
            uv.run(Turn::Look);
            before.report(watched.len())
        }
    }
}
