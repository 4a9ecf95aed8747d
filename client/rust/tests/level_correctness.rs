//! C9b, as a property: whatever happens to a port, poll(2) on its descriptor equals "the next drain returns something".
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::OwnedFd;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use util::*;

/// How many descriptors a case has, and how many watches at most.
const HANDLES: usize = 3;
const WATCHES: usize = 8;

/// So many sequences of so many steps are tried for each policy.
const CASES: u32 = 256;
const STEPS: usize = 40;

/// One step. Watches and handles are named by an index into what is there.
#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    ClosePeer(usize),
    /// Puts a fresh pair in the place of one, after its watches were taken back.
    Renew(usize),
    Watch(usize, Mode, Signals),
    WatchUntil(usize, Mode),
    Unwatch(usize),
    Change(usize, Signals),
    Pause(usize),
    Resume(usize),
    Arm(usize),
    Wake,
    Timer,
    /// Compares poll(2) with a drain of so many.
    Drain(usize),
}

fn a_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Once), Just(Mode::Edge), Just(Mode::Level)]
}

fn some_signals() -> impl Strategy<Value = Signals> {
    prop_oneof![
        4 => Just(READABLE),
        2 => Just(WRITABLE),
        1 => Just(READABLE | WRITABLE),
        1 => Just(PEER_CLOSED),
        1 => Just(PRIORITY),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..HANDLES).prop_map(Step::Write),
        3 => (0..HANDLES).prop_map(Step::Read),
        1 => (0..HANDLES).prop_map(Step::ClosePeer),
        1 => (0..HANDLES).prop_map(Step::Renew),
        5 => (0..HANDLES, a_mode(), some_signals()).prop_map(|(handle, mode, signals)| Step::Watch(handle, mode, signals)),
        1 => (0..HANDLES, a_mode()).prop_map(|(handle, mode)| Step::WatchUntil(handle, mode)),
        2 => (0..WATCHES).prop_map(Step::Unwatch),
        2 => (0..WATCHES, some_signals()).prop_map(|(watch, signals)| Step::Change(watch, signals)),
        1 => (0..WATCHES).prop_map(Step::Pause),
        1 => (0..WATCHES).prop_map(Step::Resume),
        4 => (0..WATCHES).prop_map(Step::Arm),
        1 => Just(Step::Wake),
        1 => Just(Step::Timer),
        7 => (1..4_usize).prop_map(Step::Drain),
    ]
}

/// Lets the watcher come through with everything that happened before.
struct Fence {
    client: Client,
    events: Events,
    event: OwnedFd,
    watch: WatchId,
}

impl Fence {
    fn new(watcher: &Watcher) -> Self {
        let client = Setup::Off.client_config();
        let client = Client::attach_with(watcher, client).unwrap();
        let event = event_fd(0);
        let watch = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
        Self { client, events: Events::with_capacity(4), event, watch }
    }

    /// What was ready before stands before the fence in the kernel's list, and what was due before stands before it
    /// among the timers. Twice, because ports are told in any order at the end of a turn.
    fn settle(&mut self) {
        for _ in 0..2 {
            set_event(&self.event);
            self.client.set_timer(Deadline::at_ns(1), 2).unwrap();
            let mut left = 2;
            while left > 0 {
                let count = self.client.wait(&mut self.events, Some(PROMPT)).unwrap();
                assert!(count > 0, "the watcher does not come through");
                left -= count;
            }
            clear_event(&self.event);
            self.client.arm(self.watch).unwrap();
        }
    }
}

struct World {
    client: Client,
    fence: Fence,
    handles: Vec<(OwnedFd, Option<OwnedFd>)>,
    /// The watches and the handle each is on.
    watches: Vec<(WatchId, usize)>,
    watcher: Watcher,
}

impl World {
    fn new(setup: Setup) -> Self {
        let watcher = setup.watcher();
        let client = Client::attach_with(&watcher, setup.client_config()).unwrap();
        let handles = (0..HANDLES).map(|_| Self::pair()).collect();
        Self { client, fence: Fence::new(&watcher), handles, watches: Vec::new(), watcher }
    }

    fn pair() -> (OwnedFd, Option<OwnedFd>) {
        let (one, other) = socket_pair();
        (one, Some(other))
    }

    fn watch_at(&self, index: usize) -> Option<WatchId> {
        self.watches.get(index).map(|(watch, _)| *watch)
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Write(handle) => {
                if let (_, Some(peer)) = &self.handles[handle] {
                    // Full is as good as written.
                    let _: rustix::io::Result<usize> = rustix::io::write(peer, b"x");
                }
            }
            Step::Read(handle) => {
                read_all(&self.handles[handle].0);
            }
            Step::ClosePeer(handle) => self.handles[handle].1 = None,
            Step::Renew(handle) => self.renew(handle),
            Step::Watch(handle, mode, signals) => self.watch(handle, WatchOptions::new(signals, mode, 1)),
            Step::WatchUntil(handle, mode) => {
                let due = WatchOptions::new(READABLE, mode, 1).deadline(Deadline::at_ns(1));
                self.watch(handle, due);
            }
            Step::Unwatch(index) if index < self.watches.len() => {
                let (watch, _) = self.watches.swap_remove(index);
                self.client.unwatch(watch).unwrap();
            }
            Step::Change(index, signals) => {
                if let Some(watch) = self.watch_at(index) {
                    self.client.change(watch, signals).unwrap();
                }
            }
            Step::Pause(index) => {
                if let Some(watch) = self.watch_at(index) {
                    self.client.pause(watch).unwrap();
                }
            }
            Step::Resume(index) => {
                if let Some(watch) = self.watch_at(index) {
                    self.client.resume(watch).unwrap();
                }
            }
            Step::Arm(index) => {
                if let Some(watch) = self.watch_at(index)
                    && let Err(status) = self.client.arm(watch)
                {
                    assert_eq!(status.code(), Code::FailedPrecondition, "paused, and nothing else: {status}");
                }
            }
            Step::Wake => self.client.wake().unwrap(),
            Step::Timer => {
                self.client.set_timer(Deadline::at_ns(1), 3).unwrap();
            }
            Step::Unwatch(_) | Step::Drain(_) => {}
        }
    }

    fn watch(&mut self, handle: usize, options: WatchOptions) {
        if self.watches.len() < WATCHES {
            let watch = self.client.watch_with(&self.handles[handle].0, options).unwrap();
            self.watches.push((watch, handle));
        }
    }

    fn renew(&mut self, handle: usize) {
        for (watch, on) in &self.watches {
            if *on == handle {
                self.client.unwatch(*watch).unwrap();
            }
        }
        self.watches.retain(|(_, on)| *on != handle);
        self.handles[handle] = Self::pair();
    }

    fn is_readable(&mut self) -> bool {
        is_readable_within(&self.client.descriptor().unwrap(), Duration::ZERO)
    }

    /// The property. A look that found nothing changes nothing either.
    fn compare(&mut self, room: usize) -> Result<(), TestCaseError> {
        self.fence.settle();
        let is_readable = self.is_readable();
        let mut events = Events::with_capacity(room);
        let count = self.client.drain(&mut events).unwrap();
        prop_assert_eq!(
            is_readable,
            count > 0,
            "poll(2) against a drain of {}: {:?}",
            room,
            events.as_slice()
        );
        if count == 0 {
            self.fence.settle();
            prop_assert!(!self.is_readable(), "a drain of nothing made it readable: events waited unseen");
        }
        Ok(())
    }
}

/// Applies the steps; the descriptor is asked for after `exposed_at` of them.
fn run(setup: Setup, steps: &[Step], exposed_at: usize) -> Result<(), TestCaseError> {
    let mut world = World::new(setup);
    let mut is_exposed = false;
    for (index, step) in steps.iter().enumerate() {
        if index == exposed_at {
            world.client.descriptor().unwrap();
            is_exposed = true;
        }
        world.apply(step);
        if let Step::Drain(room) = step {
            if is_exposed {
                world.compare(*room)?;
            } else {
                world.client.drain(&mut Events::with_capacity(*room)).unwrap();
            }
        }
    }
    for (index, room) in [1, 2, 3, 64, 64, 64].into_iter().enumerate() {
        world.compare(room).map_err(|error| TestCaseError::fail(format!("at the end, {index}: {error}")))?;
    }
    world.watcher.stop().unwrap();
    let mut drains = 0;
    while world.client.drain(&mut Events::with_capacity(2)).is_ok() {
        prop_assert!(world.is_readable(), "the stop is news until it was told");
        drains += 1;
        prop_assert!(drains < 100);
    }
    prop_assert!(world.is_readable());
    Ok(())
}

/// Tries random sequences. Prints its seed; `HANDLE_WATCHER_SEED` repeats one.
fn try_sequences(setup: Setup) {
    let given = std::env::var("HANDLE_WATCHER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    println!("{setup:?}: HANDLE_WATCHER_SEED={seed}");
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 2000,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let sequences = (proptest::collection::vec(a_step(), 1..STEPS), 0..STEPS / 2);
    let tried = TestRunner::new(config)
        .run(&sequences, |(steps, exposed_at)| run(setup, &steps, exposed_at.min(steps.len() - 1)));
    if let Err(error) = tried {
        panic!("{setup:?}, HANDLE_WATCHER_SEED={seed}: {error}");
    }
}

#[test]
fn off_is_level_correct() {
    try_sequences(Setup::Off);
}

#[test]
fn adaptive_is_level_correct() {
    try_sequences(Setup::Own);
}

#[test]
fn always_is_level_correct() {
    try_sequences(Setup::Always);
}

#[test]
fn small_batches_are_level_correct() {
    try_sequences(Setup::Tight);
}
