//! What the test programs share: a client in every configuration, what to expect of it, and looks at the kernel.
//!
//! A test body is a function of a [`Setup`] and never says how its client is made. `in_every_setup!` expands a list of
//! bodies over every configuration, so that a later configuration runs the same tests:
//!
//! ```text
//! mod util;
//! use util::*;
//!
//! fn a_pipe_becomes_readable(setup: Setup) {
//!     let mut client = setup.client();
//!     let (reader, writer) = pipe();
//!     let watch = client.watch(&reader, Signals::READABLE, Mode::Once, 7).unwrap();
//!     write_all(&writer, b"x");
//!     client.expect_ready(watch, Signals::READABLE);
//!     client.expect_nothing();
//! }
//!
//! in_every_setup!(a_pipe_becomes_readable);
//! ```
//!
//! Tests run in parallel threads of one process. A test that counts descriptors, changes a limit, forks or needs a
//! silent process is listed in `in_every_setup_alone!`, or calls [`alone`] itself, and runs in a process of its own.
#![allow(dead_code, reason = "every test program uses a part of this")]
#![allow(unused_imports, reason = "every test program uses a part of this")]
#![allow(unused_macros, reason = "every test program uses a part of this")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod kinds;
mod macros;
mod process;
mod served;
mod sys;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use handle_watcher_client::{
    Change, Changes, ChildProcess, Client, ClientConfig, Code, Config, Control, Deadline, Event, EventKind,
    Events, FileChanges, FrontPolicy, HandleId, Mode, Result, Signals, SignalsState, Stats, Status, TimerId,
    WaitEntry, WatchId, WatchOptions, Watcher, wait_many,
};
pub(crate) use kinds::*;
pub(crate) use macros::*;
pub(crate) use process::*;
pub(crate) use served::*;
pub(crate) use sys::*;

/// How long something that has to come is waited for. Reached only by a failing test.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// How long something that must not come is waited for, after everything before it has come through.
pub(crate) const SILENCE: Duration = Duration::from_millis(8);

/// The token of the fence in [`Fixture::settle`]. No test uses it.
const FENCE_TOKEN: u64 = 0xfe9c_e000_fe9c_e000;

pub(crate) const READABLE: Signals = Signals::READABLE;
pub(crate) const WRITABLE: Signals = Signals::WRITABLE;
pub(crate) const PEER_CLOSED: Signals = Signals::PEER_CLOSED;
pub(crate) const PRIORITY: Signals = Signals::PRIORITY;
pub(crate) const ERROR: Signals = Signals::ERROR;
pub(crate) const NONE: Signals = Signals::empty();

pub(crate) const MODES: [Mode; 3] = [Mode::Once, Mode::Edge, Mode::Level];

/// One way to set a client up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// The client has a watcher of its own; which of them serves a watch is theirs to decide.
    Own,
    /// The watcher serves every watch.
    Off,
    /// The client's own thread serves every watch that it can.
    Always,
    /// The client's thread waits on the port's descriptor, as a foreign loop does, and drains when it is readable.
    Exposed,
    /// The client shares its watcher with a neighbour, who must not notice anything.
    Shared,
    /// The watcher serves every watch, and every batch and every queue of it holds one thing.
    Tight,
    /// The watcher is a service's, behind a socket; which of them serves a watch is theirs to decide.
    Remote,
    /// The service serves every watch.
    RemoteOff,
    /// The client of a service is waited for by its descriptor, as [`Exposed`](Self::Exposed).
    RemoteExposed,
}

impl Setup {
    /// The configuration of a watcher, with a thread name that no other has.
    pub(crate) fn config(self) -> Config {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let thread_name = format!("hw-test-{}", LAST.fetch_add(1, Ordering::Relaxed) + 1);
        let config = Config { thread_name, ..Config::default() };
        match self {
            Self::Tight => Config { poll_batch: 1, timer_batch: 1, command_limit: 1, ..config },
            _ => config,
        }
    }

    /// The configuration of a client.
    pub(crate) fn client_config(self) -> ClientConfig {
        let front = match self {
            Self::Own | Self::Shared | Self::Exposed | Self::Remote | Self::RemoteExposed => {
                FrontPolicy::Adaptive
            }
            Self::Off | Self::Tight | Self::RemoteOff => FrontPolicy::Off,
            Self::Always => FrontPolicy::Always,
        };
        ClientConfig { front, ..ClientConfig::default() }
    }

    /// A new watch of this mode is served by the client's own thread: nothing is undelivered before it comes and looks.
    pub(crate) fn serves_in_front(self, mode: Mode) -> bool {
        match self.client_config().front {
            FrontPolicy::Off => false,
            FrontPolicy::Adaptive => mode == Mode::Level,
            FrontPolicy::Always => true,
        }
    }

    /// A client.
    pub(crate) fn client(self) -> Fixture {
        self.client_with(|_| {})
    }

    /// A client of a watcher whose configuration is changed before it is spawned.
    pub(crate) fn client_with(self, change: impl FnOnce(&mut Config)) -> Fixture {
        let mut config = self.config();
        change(&mut config);
        if self == Self::Shared || self.is_remote() {
            let [client] = self.clients_of(config);
            return client;
        }
        let thread_name = config.thread_name.clone();
        let client = Client::embedded_with(config, self.client_config()).expect("a client");
        Fixture::new(self, client, thread_name)
    }

    /// Several clients of one watcher.
    pub(crate) fn clients<const N: usize>(self) -> [Fixture; N] {
        self.clients_of(self.config())
    }

    fn clients_of<const N: usize>(self, config: Config) -> [Fixture; N] {
        let thread_name = config.thread_name.clone();
        let watcher = Arc::new(Watcher::spawn(config).expect("a watcher"));
        let service = self.is_remote().then(|| Arc::new(Served::by(&watcher)));
        let neighbour = (self == Self::Shared).then(|| Arc::new(Neighbour::of(&watcher)));
        std::array::from_fn(|_| Fixture {
            neighbour: neighbour.clone(),
            watcher: Some(Arc::clone(&watcher)),
            thread_name: thread_name.clone(),
            ..self.attach_or_connect(&watcher, service.as_ref())
        })
    }

    /// A watcher, for tests that stop it.
    pub(crate) fn watcher(self) -> Watcher {
        Watcher::spawn(self.config()).expect("a watcher")
    }

    /// A client of a watcher that the test has made.
    pub(crate) fn attach(self, watcher: &Watcher) -> Fixture {
        let service = self.is_remote().then(|| Arc::new(Served::by(watcher)));
        self.attach_or_connect(watcher, service.as_ref())
    }

    fn attach_or_connect(self, watcher: &Watcher, service: Option<&Arc<Served>>) -> Fixture {
        let client = match service {
            Some(served) => served.connect(self.client_config()),
            None => Client::attach_with(watcher, self.client_config()).expect("a client"),
        };
        Fixture { service: service.cloned(), ..Fixture::new(self, client, String::new()) }
    }

    /// A client and nothing else, for what takes it by value.
    pub(crate) fn bare_client(self) -> Client {
        static SERVED: OnceLock<(Watcher, Served)> = OnceLock::new();
        if !self.is_remote() {
            return Client::embedded_with(self.config(), self.client_config()).expect("a client");
        }
        let (_, served) = SERVED.get_or_init(|| {
            let watcher = self.watcher();
            let served = Served::by(&watcher);
            (watcher, served)
        });
        served.connect(self.client_config())
    }

    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Self::Remote | Self::RemoteOff | Self::RemoteExposed)
    }

    /// The port's descriptor is what is waited on.
    pub(crate) fn is_exposed(self) -> bool {
        matches!(self, Self::Exposed | Self::RemoteExposed)
    }
}

/// A client under test. Everything a client can do, and what to expect of it.
#[derive(Debug)]
pub(crate) struct Fixture {
    // Dropped first, so that the neighbour is looked at afterwards.
    client: Client,
    setup: Setup,
    events: Events,
    /// Something else than this thread may take back what made the port's descriptor readable.
    has_rivals: bool,
    thread_name: String,
    neighbour: Option<Arc<Neighbour>>,
    // Stopped before its watcher.
    service: Option<Arc<Served>>,
    watcher: Option<Arc<Watcher>>,
}

impl Deref for Fixture {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Fixture {
    fn new(setup: Setup, mut client: Client, thread_name: String) -> Self {
        if setup.is_exposed() {
            client.descriptor().expect("a descriptor");
        }
        let events = Events::with_capacity(64);
        Self {
            client,
            setup,
            events,
            has_rivals: false,
            thread_name,
            neighbour: None,
            service: None,
            watcher: None,
        }
    }

    /// What the watcher did so far. Asking a service for it would be something that it does.
    pub(crate) fn stats(&self) -> Stats {
        match (&self.service, &self.watcher) {
            (Some(_), Some(watcher)) => watcher.stats(),
            _ => self.client.stats(),
        }
    }

    /// From now on a call hands out at most so many events.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.events = Events::with_capacity(capacity);
    }

    /// From now on something else than this thread may take back what made the port's descriptor readable: another
    /// thread's unwatch, or the deadline of a watch that is ready.
    pub(crate) fn expect_rivals(&mut self) {
        self.has_rivals = true;
    }

    /// One `wait` of at most `timeout`: what it handed out. Checks what holds for every hand-out (C2b, C4a, C9a).
    #[track_caller]
    pub(crate) fn wait_for(&mut self, timeout: Duration) -> Vec<Event> {
        let started = Instant::now();
        let count = match self.setup {
            Setup::Exposed | Setup::RemoteExposed => self.wait_outside(timeout),
            _ => self.client.wait(&mut self.events, Some(timeout)).expect("the watcher runs"),
        };
        assert_eq!(count, self.events.len(), "the count is the length");
        assert!(count > 0 || started.elapsed() >= timeout, "0 only at the timeout");
        let events = self.events.as_slice().to_vec();
        events.iter().for_each(check_event);
        events
    }

    /// Waits as a foreign loop does: on the descriptor, which is readable exactly while a drain gives something.
    #[track_caller]
    fn wait_outside(&mut self, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_readable = is_readable_within(&self.client.descriptor().expect("a descriptor"), left);
            let count = self.client.drain(&mut self.events).expect("the watcher runs");
            let is_explained = count > 0 || self.has_rivals;
            assert!(!is_readable || is_explained, "the port's descriptor was readable for nothing");
            if count > 0 || left.is_zero() {
                return count;
            }
        }
    }

    /// One `drain`: what it handed out.
    #[track_caller]
    pub(crate) fn drained(&mut self) -> Vec<Event> {
        let count = self.client.drain(&mut self.events).expect("the watcher runs");
        assert_eq!(count, self.events.len(), "the count is the length");
        let events = self.events.as_slice().to_vec();
        events.iter().for_each(check_event);
        events
    }

    /// Waits until exactly so many events have come, oldest first. One more in the same hand-out is one too many.
    #[track_caller]
    pub(crate) fn expect_events(&mut self, count: usize) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let until = Instant::now() + PROMPT;
        while events.len() < count {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "only {} of {count} events came: {events:#?}", events.len());
            events.extend(self.wait_for(left));
        }
        assert_eq!(events.len(), count, "more events than expected: {events:#?}");
        events
    }

    /// The only event there is.
    #[track_caller]
    pub(crate) fn expect_event(&mut self) -> Event {
        self.expect_events(1)[0]
    }

    /// Exactly one Ready of this watch, with exactly these signals.
    #[track_caller]
    pub(crate) fn expect_ready(&mut self, watch: WatchId, signals: Signals) -> Event {
        let event = self.expect_event();
        assert_eq!((event.watch, event.kind), (watch, EventKind::Ready), "{event:#?}");
        assert_eq!(event.satisfied, signals, "{event:#?}");
        event
    }

    /// Exactly one Ended of this watch, with this code.
    #[track_caller]
    pub(crate) fn expect_ended(&mut self, watch: WatchId, code: Code) -> Event {
        let event = self.expect_event();
        assert_eq!((event.watch, event.kind, event.status), (watch, EventKind::Ended, code), "{event:#?}");
        event
    }

    /// Nothing was told up to now, and nothing is for a short while.
    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        let events = self.settle();
        assert!(events.is_empty(), "nothing was expected: {events:#?}");
        let events = self.wait_for(SILENCE);
        assert!(events.is_empty(), "nothing was expected: {events:#?}");
    }

    /// Waits until a watch of this mode has something undelivered; where the client's own thread serves it, there is
    /// nothing to wait for.
    #[track_caller]
    pub(crate) fn until_undelivered(&self, mode: Mode, count: u64) {
        if !self.setup.serves_in_front(mode) {
            until("events wait undelivered", || self.client.client_stats().undelivered == count);
        }
    }

    /// Takes everything that had come when this was called, on every road an event can take, and gives it.
    #[track_caller]
    pub(crate) fn settle(&mut self) -> Vec<Event> {
        let fence = event_fd(0);
        // The first is served by the client's thread where that serves any; the second then is not, because watches of
        // different modes on one number do not sit in a front together; the timer is always the watcher's.
        let near = self.client.watch(&fence, READABLE, Mode::Level, FENCE_TOKEN).expect("a fence");
        let far = self.client.watch(&fence, READABLE, Mode::Once, FENCE_TOKEN + 1).expect("a fence");
        set_event(&fence);
        let mut events = self.events_until(&[FENCE_TOKEN, FENCE_TOKEN + 1]);
        self.client.unwatch(near).expect("a live watch");
        self.client.unwatch(far).expect("a live watch");
        self.client.set_timer(Deadline::at_ns(1), FENCE_TOKEN + 2).expect("a timer");
        events.extend(self.events_until(&[FENCE_TOKEN + 2]));
        events
    }

    /// The events that come before and with those of these tokens.
    #[track_caller]
    fn events_until(&mut self, tokens: &[u64]) -> Vec<Event> {
        let mut missing: Vec<u64> = tokens.to_vec();
        let mut events = Vec::new();
        let until = Instant::now() + PROMPT;
        while !missing.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the fence did not come: {events:#?}");
            for event in self.wait_for(left) {
                missing.retain(|token| *token != event.token);
                if !tokens.contains(&event.token) {
                    events.push(event);
                }
            }
        }
        events
    }

    /// The name of the watcher's thread.
    pub(crate) fn thread_name(&self) -> &str {
        &self.thread_name
    }

    /// The watcher's thread sleeps: for a second it makes no turn and uses no processor time. Nobody waits meanwhile.
    #[track_caller]
    pub(crate) fn expect_quiet(&self) {
        self.expect_quiet_for(Duration::from_secs(1));
    }

    #[track_caller]
    pub(crate) fn expect_quiet_for(&self, time: Duration) {
        let watcher = self.resting_watcher();
        std::thread::sleep(time);
        watcher.expect_rest(self);
    }

    /// The same while this thread waits, and is told nothing and uses no processor time either.
    #[track_caller]
    pub(crate) fn expect_quiet_while_waiting(&mut self, time: Duration) {
        let watcher = self.resting_watcher();
        let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let ticks = processor_ticks(this);
        let events = self.wait_for(time);
        assert!(events.is_empty(), "nothing was expected: {events:#?}");
        let grown = processor_ticks(this) - ticks;
        assert!(grown <= 2, "the waiting thread used {grown} ticks of processor time");
        watcher.expect_rest(self);
    }

    /// Waits until the watcher rests: work that is under way may end first.
    #[track_caller]
    fn resting_watcher(&self) -> Resting {
        let until = Instant::now() + PROMPT;
        let mut turns = self.stats().turns;
        let thread = thread_id(&self.thread_name);
        loop {
            std::thread::sleep(Duration::from_millis(20));
            // One that was not given a processor for so long has not come to rest.
            let is_asleep = thread_status(thread, "State").starts_with('S');
            let now = self.stats().turns;
            if now == turns && is_asleep {
                return Resting { thread, turns, ticks: processor_ticks(thread) };
            }
            turns = now;
            assert!(Instant::now() < until, "the watcher does not come to rest: {:#?}", self.stats());
        }
    }
}

/// A watcher's thread as it was when it rested.
struct Resting {
    thread: u32,
    turns: u64,
    ticks: u64,
}

impl Resting {
    #[track_caller]
    fn expect_rest(&self, client: &Fixture) {
        let grown = processor_ticks(self.thread) - self.ticks;
        assert!(grown <= 2, "the watcher used {grown} ticks of processor time while it should sleep");
        assert_eq!(client.stats().turns, self.turns, "the watcher turned while it should sleep");
    }
}

/// Raises a flag when it is dropped, so that threads that wait for it end though a test fails.
pub(crate) struct RaiseOnDrop<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What holds for every event, whatever the test is about.
#[track_caller]
fn check_event(event: &Event) {
    assert!(event.satisfiable.contains(event.satisfied), "satisfied is a part of satisfiable: {event:#?}");
    assert_ne!(event.kind, EventKind::Unsatisfiable, "never told of a descriptor: {event:#?}");
    assert_eq!(
        event.status != Code::Ok,
        event.kind == EventKind::Ended,
        "a status belongs to Ended: {event:#?}"
    );
    match event.kind {
        EventKind::Ready => {
            assert!(!event.satisfied.is_empty(), "a Ready says of what: {event:#?}");
            assert!(event.satisfiable.contains(READABLE | WRITABLE), "both stay satisfiable: {event:#?}");
        }
        EventKind::Timer | EventKind::Wake => assert!(event.count > 0, "{event:#?}"),
        _ => {}
    }
    if !matches!(event.kind, EventKind::Timer | EventKind::Wake) {
        assert_eq!(event.count, 1, "{event:#?}");
    }
}

/// A client that shares the watcher of the one under test: it has something undelivered, something hung up and
/// something idle, and at the end it must have been told exactly that.
#[derive(Debug)]
struct Neighbour {
    client: std::sync::Mutex<Client>,
    ready: WatchId,
    hung_up: WatchId,
    _kept: Vec<std::os::fd::OwnedFd>,
}

impl Neighbour {
    fn of(watcher: &Watcher) -> Self {
        let client = Client::attach(watcher).expect("a client");
        let ready = event_fd(1);
        let (idle, idle_writer) = pipe();
        let (hung_up, hung_up_reader) = {
            let (reader, writer) = pipe();
            (writer, reader)
        };
        fill(&hung_up);
        drop(hung_up_reader);
        let ready_watch = client.watch(&ready, READABLE, Mode::Once, 1).expect("a watch");
        let hung_up_watch = client.watch(&hung_up, WRITABLE, Mode::Edge, 2).expect("a watch");
        client.watch(&idle, READABLE, Mode::Once, 3).expect("a watch");
        client.set_timer(Duration::from_secs(3600), 4).expect("a timer");
        Self {
            client: std::sync::Mutex::new(client),
            ready: ready_watch,
            hung_up: hung_up_watch,
            _kept: vec![ready, idle, idle_writer, hung_up],
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let client = self.client.get_mut().expect("nobody panicked with it");
        let mut events = Events::with_capacity(8);
        // In a forked child there is nothing to look at.
        if client.drain(&mut events).is_err_and(|status| status.code() == Code::FailedPrecondition) {
            return;
        }
        let told =
            |events: &Events| events.iter().map(|event| (event.watch, event.satisfied)).collect::<Vec<_>>();
        let mut all = told(&events);
        while all.len() < 2 {
            let count = client.wait(&mut events, Some(PROMPT)).expect("the watcher runs");
            assert!(count > 0, "the neighbour lost an event; it has {all:?}");
            all.extend(told(&events));
        }
        all.sort_by_key(|(watch, _)| *watch);
        assert_eq!(all, [(self.ready, READABLE), (self.hung_up, ERROR)], "the neighbour noticed something");
    }
}
