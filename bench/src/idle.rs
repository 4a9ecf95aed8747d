//! idle: what 10 000 watches cost while nothing happens, whatever state their descriptors are in. The subject builds
//! every state, lets things settle, then sleeps; a slice counts what the other threads did meanwhile. It ought to be
//! nothing.

use crate::catalogue::{Bench, Entry, Measure};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::{Result, ours, pair, proc};
use handle_watcher_client::{Client, Config, Deadline, Events, Mode, Signals, WatchOptions, Watcher};
use rustix::io::fcntl_dupfd_cloexec;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Watches in all: `PAIRS` sockets, each watched `WATCHES_PER_PAIR` times.
const PAIRS: usize = 2500;
const WATCHES_PER_PAIR: usize = 4;
/// Events that were due are told within this; afterwards nothing may happen.
const SETTLE: Duration = Duration::from_millis(500);
/// How often a client comes back for more before it stays away. Level watches on unread data always have more.
const DRAINS: usize = 50;

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![Entry::ours("ours", ours)];
    subjects.extend(peers());
    Bench {
        name: "idle",
        measure: Measure::Value("other_threads_cpu_ns"),
        slice: Duration::from_secs(5),
        seconds: Duration::from_secs(5),
        warm_up: false,
        subjects,
    }
}

/// Sleeps, and says what the other threads did.
fn sleep(length: Duration) -> Result<Slice> {
    let stretch = Stretch::begin()?;
    let before = proc::other_threads()?;
    std::thread::sleep(length);
    let after = proc::other_threads()?;
    let slice = stretch.end(0)?.with_gauge("watches", (PAIRS * WATCHES_PER_PAIR) as f64);
    Ok(slice
        .with_counter("other_threads_cpu_ns", after.cpu_ns - before.cpu_ns)
        .with_counter("other_threads_switches", after.context_switches - before.context_switches))
}

/// What happened to a socket and to its watches before the silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing ever happened; a deadline lies an hour away.
    Quiet,
    /// Data was told and not read.
    Unread,
    /// The same, told once, not armed again.
    UnreadOnce,
    /// Data waits in the queue of a client that never drains.
    UndeliveredEdge,
    /// The same with a level watch.
    UndeliveredLevel,
    /// Data was told to a level watch whose client never came back.
    LevelLeftAlone,
    /// Data arrived while paused.
    Paused,
    /// Hung up, told, not consumed.
    HungUp,
    /// Hung up, and nothing was asked for that a hang-up satisfies.
    HungUpUnasked,
    /// Hung up, in the queue of a client that never drains.
    HungUpUndelivered,
    /// The peer shut down its writing side, and nothing was asked for that this satisfies.
    HalfClosedUnasked,
    /// Closed behind the watcher's back with data coming, the open file alive in a duplicate.
    ClosedBehind,
}

const STATES: [State; 12] = [
    State::Quiet,
    State::Unread,
    State::UnreadOnce,
    State::UndeliveredEdge,
    State::UndeliveredLevel,
    State::LevelLeftAlone,
    State::Paused,
    State::HungUp,
    State::HungUpUnasked,
    State::HungUpUndelivered,
    State::HalfClosedUnasked,
    State::ClosedBehind,
];

impl State {
    fn mode(self) -> Mode {
        match self {
            Self::UnreadOnce => Mode::Once,
            Self::UndeliveredLevel | Self::LevelLeftAlone | Self::HalfClosedUnasked => Mode::Level,
            _ => Mode::Edge,
        }
    }

    fn signals(self) -> Signals {
        match self {
            Self::HungUpUnasked | Self::HalfClosedUnasked => Signals::PRIORITY,
            _ => Signals::READABLE,
        }
    }

    /// Whether the client that watches it drains.
    fn is_drained(self) -> bool {
        !matches!(self, Self::UndeliveredEdge | Self::UndeliveredLevel | Self::HungUpUndelivered)
    }

    /// Lets happen what this state is named after. `other` is the far end.
    fn happen(self, other: UnixStream) -> Result<Option<UnixStream>> {
        match self {
            Self::Quiet => Ok(Some(other)),
            Self::HungUp | Self::HungUpUnasked | Self::HungUpUndelivered => Ok(None),
            Self::HalfClosedUnasked => {
                other.shutdown(Shutdown::Write)?;
                Ok(Some(other))
            }
            _ => {
                pair::send(&other)?;
                Ok(Some(other))
            }
        }
    }
}

/// One watcher, a client that drains, one that never does, and every state in turn.
fn ours(placement: &Placement) -> Result<Box<dyn Subject>> {
    pair::require_descriptors(3 * PAIRS)?;
    let watches = u32::try_from(PAIRS * WATCHES_PER_PAIR)?;
    let watcher = Watcher::spawn(Config { watch_limit: watches, ..ours::config(placement) })?;
    let (mut drains, silent) = (Client::attach(&watcher)?, Client::attach(&watcher)?);
    let mut kept = Kept::default();
    for (&state, _) in STATES.iter().cycle().zip(0..PAIRS) {
        let (watched, other) = pair::pair()?;
        let client = if state.is_drained() { &drains } else { &silent };
        watch(client, &watched, state)?;
        kept.others.extend(state.happen(other)?);
        kept.keep(watched, state)?;
    }
    // Only now, so that none of these numbers is used again.
    kept.closed_behind.clear();
    let mut events = Events::with_capacity(PAIRS * WATCHES_PER_PAIR);
    for _ in 0..DRAINS {
        std::thread::sleep(SETTLE / u32::try_from(DRAINS)?);
        drains.drain(&mut events)?;
    }
    std::thread::sleep(SETTLE);
    Ok(Box::new(Ours { watcher, _clients: [drains, silent], _kept: kept }))
}

fn watch(client: &Client, watched: &UnixStream, state: State) -> Result<()> {
    for token in 0..WATCHES_PER_PAIR {
        let mut options = WatchOptions::new(state.signals(), state.mode(), u64::try_from(token)?);
        if state == State::Quiet {
            options = options.deadline(Deadline::after(Duration::from_secs(3600)));
        }
        let watch = client.watch_with(watched, options)?;
        if state == State::Paused {
            client.pause(watch)?;
        }
    }
    Ok(())
}

/// The descriptors that have to stay open.
#[derive(Default)]
struct Kept {
    watched: Vec<UnixStream>,
    others: Vec<UnixStream>,
    duplicates: Vec<OwnedFd>,
    closed_behind: Vec<UnixStream>,
}

impl Kept {
    fn keep(&mut self, watched: UnixStream, state: State) -> Result<()> {
        if state == State::ClosedBehind {
            self.duplicates.push(fcntl_dupfd_cloexec(&watched, 0)?);
            self.closed_behind.push(watched);
        } else {
            self.watched.push(watched);
        }
        Ok(())
    }
}

/// Fields drop in order: the clients leave before the watcher stops.
struct Ours {
    _clients: [Client; 2],
    watcher: Watcher,
    _kept: Kept,
}

impl Subject for Ours {
    fn run(&mut self, length: Duration, _: &mut Recorder) -> Result<Slice> {
        let before = self.watcher.stats();
        let slice = sleep(length)?;
        let after = self.watcher.stats();
        Ok(slice
            .with_counter("turns", after.turns - before.turns)
            .with_counter("wakes", after.wakes - before.wakes)
            .with_gauge("undelivered", after.undelivered as f64))
    }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![Entry::peer("async-io", tasks::async_io), Entry::peer("tokio", tasks::tokio)]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

#[cfg(feature = "peers")]
mod tasks {
    use super::*;
    use crate::sys::async_fd;
    use ::tokio::runtime::{Builder, Runtime};
    use async_io::Async;
    use std::task::{Context, Waker};

    /// The states that peers know too: they have neither paused watches nor a queue nobody drains.
    const STATES: [State; 4] = [State::Quiet, State::Unread, State::HungUp, State::HalfClosedUnasked];

    /// Sockets in those states; peers take one watch a descriptor, so every socket has duplicates.
    fn sockets() -> Result<(Vec<OwnedFd>, Vec<UnixStream>)> {
        pair::require_descriptors((WATCHES_PER_PAIR + 1) * PAIRS)?;
        let (mut watched, mut others) = (Vec::new(), Vec::new());
        for (&state, _) in STATES.iter().cycle().zip(0..PAIRS) {
            let (socket, other) = pair::pair()?;
            for _ in 1..WATCHES_PER_PAIR {
                watched.push(fcntl_dupfd_cloexec(&socket, 0)?);
            }
            watched.push(socket.into());
            others.extend(state.happen(other)?);
        }
        Ok((watched, others))
    }

    /// Every socket asked for readability; what is ready stays unread and is not asked for again.
    pub(super) fn async_io(placement: &Placement) -> Result<Box<dyn Subject>> {
        let (watched, others) = sockets()?;
        let mut context = Context::from_waker(Waker::noop());
        placement.start_async_io()?;
        let mut all = Vec::new();
        for descriptor in watched {
            let source = Async::new_nonblocking(descriptor)?;
            drop(source.poll_readable(&mut context));
            all.push(source);
        }
        std::thread::sleep(SETTLE);
        Ok(Box::new(Held { _held: (all, others) }))
    }

    /// The same in a runtime with one worker.
    pub(super) fn tokio(placement: &Placement) -> Result<Box<dyn Subject>> {
        let (watched, others) = sockets()?;
        let runtime: Runtime = placement
            .start_far(|| Ok(Builder::new_multi_thread().worker_threads(1).enable_io().build()?))?;
        let mut context = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        let inside = runtime.enter();
        for descriptor in watched {
            let source = async_fd::register(descriptor)?;
            drop(source.poll_read_ready(&mut context));
            all.push(source);
        }
        drop(inside);
        std::thread::sleep(SETTLE);
        Ok(Box::new(Held { _held: (all, others, runtime) }))
    }

    struct Held<T> {
        _held: T,
    }

    impl<T> Subject for Held<T> {
        fn run(&mut self, length: Duration, _: &mut Recorder) -> Result<Slice> {
            sleep(length)
        }
    }
}
