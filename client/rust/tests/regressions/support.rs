//! What the regressions share beyond `util`: dice with a seed that is told, and two questions asked all over.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::util::*;

/// How long a watcher that should sleep is watched. A loop that spins makes thousands of turns meanwhile.
pub(crate) const QUIET: Duration = Duration::from_millis(40);

/// Every set-up that serves watches in another way.
pub(crate) const SETUPS: [Setup; 5] = [Setup::Own, Setup::Off, Setup::Always, Setup::Exposed, Setup::Tight];

/// Runs a body in each set-up. A test that fails says in which.
pub(crate) fn in_each_setup(mut body: impl FnMut(Setup)) {
    for setup in SETUPS {
        let _said = SaidOnPanic(format!("{setup:?}"));
        body(setup);
    }
}

/// Runs a body in each set-up with watches of each mode. A test that fails says in which.
pub(crate) fn in_each(mut body: impl FnMut(Setup, Mode)) {
    for setup in SETUPS {
        for mode in MODES {
            let _said = SaidOnPanic(format!("{setup:?}, {mode:?}"));
            body(setup, mode);
        }
    }
}

/// Says where a test was when it failed.
struct SaidOnPanic(String);

impl Drop for SaidOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was in {}", self.0);
        }
    }
}

/// Ends a process that hangs, so that a test of a deadlock fails instead of hanging too. Only for a test that runs alone.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Dropped with it, which tells the thread that all is well.
    _is_over: mpsc::Sender<()>,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        let (sender, is_over) = mpsc::channel();
        std::thread::spawn(move || {
            if is_over.recv_timeout(3 * PROMPT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("this test hangs");
                std::process::exit(1);
            }
        });
        Self { _is_over: sender }
    }
}

/// Numbers that look random and are the same in every run. A test that fails says which seed it had.
#[derive(Debug)]
pub(crate) struct Dice {
    seed: u64,
    state: u64,
}

impl Dice {
    /// With this seed, or with the one in `HANDLE_WATCHER_REGRESSION_SEED`.
    pub(crate) fn new(seed: u64) -> Self {
        let asked = std::env::var("HANDLE_WATCHER_REGRESSION_SEED").ok();
        let seed = asked.and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        Self { seed, state: seed }
    }

    /// A number below `end` (splitmix64).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Spins for a time below `end`; too short to sleep.
    pub(crate) fn spin_below(&mut self, end: Duration) {
        let nanoseconds = u64::try_from(end.as_nanos()).unwrap();
        spin_for(Duration::from_nanos(self.below(nanoseconds.max(1))));
    }
}

impl Drop for Dice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {} (HANDLE_WATCHER_REGRESSION_SEED repeats it)", self.seed);
        }
    }
}

pub(crate) fn spin_for(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A fresh pipe of this client is still told of: whatever happened before hurt nobody else.
#[track_caller]
pub(crate) fn expect_alive(client: &mut Fixture) {
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Once, 0xa11e).unwrap();
    write_all(&writer, b"x");
    client.expect_ready(watch, READABLE);
    client.unwatch(watch).unwrap();
}

/// Waits until the watcher's thread sleeps in the kernel: what this thread has brought about is done and counted then.
#[track_caller]
pub(crate) fn until_asleep(client: &Fixture) {
    let thread = thread_id(client.thread_name());
    until("the watcher's thread sleeps", || thread_status(thread, "State").starts_with('S'));
}

/// The watcher comes to rest and makes no turn for a while. Nobody waits meanwhile.
#[track_caller]
pub(crate) fn expect_quiet(client: &Fixture) {
    until_asleep(client);
    client.expect_quiet_for(QUIET);
}

/// The same while this thread waits, and is told nothing and does not spin either.
#[track_caller]
pub(crate) fn expect_quiet_while_waiting(client: &mut Fixture) {
    until_asleep(client);
    client.expect_quiet_while_waiting(QUIET);
}

/// Makes the watcher turn, which does what was left for its next turn.
#[track_caller]
pub(crate) fn make_a_turn(client: &mut Fixture) {
    let timer = client.set_timer(Duration::ZERO, 0xbea7).unwrap();
    assert_eq!(client.expect_event().timer(), Some(timer));
}

/// A watcher that was busy comes to rest: it makes no turn any more.
#[track_caller]
pub(crate) fn expect_rest(watcher: &Watcher) {
    let mut turns = watcher.stats().turns;
    until("the watcher rests", || {
        std::thread::sleep(QUIET);
        let before = std::mem::replace(&mut turns, watcher.stats().turns);
        before == turns
    });
}

/// Waits until an event of this watch holds these signals, arming a Once watch after each other event.
#[track_caller]
pub(crate) fn expect_signals(client: &mut Fixture, watch: WatchId, mode: Mode, signals: Signals) -> Event {
    let give_up = Instant::now() + PROMPT;
    loop {
        assert!(Instant::now() < give_up, "{watch} was never told of {signals} ({mode:?})");
        for event in client.wait_for(PROMPT) {
            assert_eq!((event.watch, event.kind), (watch, EventKind::Ready), "{event:#?}");
            if event.satisfied.contains(signals) {
                return event;
            }
        }
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
    }
}

/// The code that a call failed with.
#[track_caller]
pub(crate) fn code_of<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("this call fails").code()
}

/// The tokens of these events.
pub(crate) fn tokens(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.token).collect()
}
