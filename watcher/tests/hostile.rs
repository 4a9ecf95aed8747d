//! C16c, C16d, C16e: hostile clients harm nobody but themselves. While several threads attack a service with all that they
//! can think of, a well-behaved client is served promptly; when they are gone, the service is as it was before.
//!
//! `HANDLE_WATCHER_HOSTILE_SECONDS` says how long (10 by default, 60 with `make hostile`), `HANDLE_WATCHER_HOSTILE_SEED`
//! repeats the attacks of a run that failed.

#[path = "hostile/attacks.rs"]
mod attacks;
#[path = "../fuzz/src/raw_client.rs"]
#[allow(dead_code, reason = "the corpus uses the rest")]
mod raw_client;
#[path = "../fuzz/src/session.rs"]
#[allow(dead_code, reason = "the corpus uses the rest")]
mod session;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attacks::Attacker;
use handle_watcher::{Config, Service, ServiceConfig, Watcher};
use raw_client::{GoodClient, PATIENCE};

/// How many threads attack.
const ATTACKERS: u64 = 4;
/// How long what hostile clients left behind may take to be gone: it is carried out after everybody else's.
const AFTERMATH: Duration = Duration::from_secs(60);
/// How much more memory the second half of the attacks may leave behind: what allocators keep for the next time.
const MEMORY_SLACK_BYTES: u64 = 24 << 20;

/// What has to be as it was, once the hostile clients are gone.
const COUNTERS: [&str; 4] = ["service_sessions", "watches", "timers", "clients"];

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// How many descriptors this process has.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// How much memory this process has in use.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("proc");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("resident pages");
    pages * rustix::param::page_size() as u64
}

/// The well-behaved client, how long each of its round trips took, and what it learned.
#[derive(Debug)]
struct Good {
    address: String,
    client: GoodClient,
    took: Vec<Duration>,
    killed: u64,
}

impl Good {
    fn start(address: &str) -> Self {
        let client = GoodClient::start(address).expect("a session");
        Self { address: address.to_owned(), client, took: Vec::new(), killed: 0 }
    }

    /// Everybody here is one user, who may kill any session; garbage can happen to say so.
    fn replace(&mut self, failure: &std::io::Error) {
        assert!(self.client.was_killed(failure), "the well-behaved client was not served: {failure}");
        self.killed += 1;
        let start = Instant::now();
        // Refused while no descriptor is left, or too many sessions are there.
        self.client = loop {
            match GoodClient::start(&self.address) {
                Ok(client) => break client,
                Err(error) => assert!(start.elapsed() < PATIENCE, "no new session: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
    }

    fn round_trip(&mut self) {
        match self.client.round_trip() {
            Ok(took) => {
                assert!(took < PATIENCE, "a round trip took {took:?}");
                self.took.push(took);
            }
            Err(failure) => self.replace(&failure),
        }
    }

    fn counter(&mut self, name: &str) -> u64 {
        match self.client.counter(name) {
            Ok(value) => value,
            Err(failure) => {
                self.replace(&failure);
                self.client.counter(name).expect("nobody attacks any more")
            }
        }
    }

    /// What there is while nobody else is there.
    fn count(&mut self) -> [u64; 4] {
        COUNTERS.map(|name| self.counter(name))
    }

    /// Waits until nothing is left of the others.
    fn expect_to_be_alone(&mut self, alone: [u64; 4]) {
        let start = Instant::now();
        loop {
            let now = self.count();
            if now == alone {
                return;
            }
            assert!(start.elapsed() < AFTERMATH, "{COUNTERS:?} are {now:?} and not {alone:?} as before");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Attacks for a while, and measures a round trip after the other meanwhile.
fn attack(address: &str, seed: u64, duration: Duration, good: &mut Good) -> u64 {
    let (is_over, attacks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..ATTACKERS {
            let mut attacker = Attacker::new(address, seed.wrapping_add(number));
            let (is_over, attacks) = (&is_over, &attacks);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    attacker.attack();
                    attacks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + duration;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while Instant::now() < end {
                good.round_trip();
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    attacks.into_inner()
}

fn until_descriptors_are(expected: usize) {
    let start = Instant::now();
    while descriptors() != expected {
        assert!(start.elapsed() < AFTERMATH, "{} descriptors and not {expected}", descriptors());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn hostile_clients_harm_nobody_but_themselves() {
    let seconds = from_environment("HANDLE_WATCHER_HOSTILE_SECONDS").unwrap_or(10);
    let clock = || u64::from(std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos()));
    let seed = from_environment("HANDLE_WATCHER_HOSTILE_SEED").unwrap_or_else(clock);
    println!("HANDLE_WATCHER_HOSTILE_SEED={seed} repeats these attacks");

    let watcher = Watcher::spawn(Config::default()).expect("a watcher");
    let address = format!("@handle-watcher-hostile-{}", std::process::id());
    // A short time for a Hello, so that those who never say it come and go in this test, too.
    let config = ServiceConfig { hello_timeout: Duration::from_millis(500), ..ServiceConfig::default() };
    let service = Service::bind(&watcher, &address, config).expect("a service");
    let mut good = Good::start(&address);
    let alone = good.count();
    assert_eq!(alone[0], 1, "its own session");
    let descriptors_before = descriptors();

    let half = Duration::from_secs(seconds) / 2;
    let first = attack(&address, seed, half, &mut good);
    good.expect_to_be_alone(alone);
    until_descriptors_are(descriptors_before);
    let memory_between = memory_bytes();

    let second = attack(&address, seed.wrapping_add(ATTACKERS), half, &mut good);
    good.expect_to_be_alone(alone);
    until_descriptors_are(descriptors_before);
    let memory_after = memory_bytes();

    good.took.sort_unstable();
    let took = &good.took;
    assert!(!took.is_empty(), "not a single round trip was measured");
    println!(
        "{} attacks, {} round trips: median {:?}, p99 {:?}, longest {:?}; killed {} times; {} KiB, then {} KiB",
        first + second,
        took.len(),
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1],
        good.killed,
        memory_between >> 10,
        memory_after >> 10,
    );
    assert!(first + second >= ATTACKERS, "nobody attacked");
    assert!(
        memory_after <= memory_between + MEMORY_SLACK_BYTES,
        "the memory grew from {memory_between} to {memory_after} bytes"
    );
    service.stop();
    watcher.stop().expect("the watcher stops");
}
