//! Threads that do random things to one watcher, and a ledger that says what they may and must be told (C3–C8).
//!
//! A run is a number of lives. Each life has a watcher of its own, set up at random; its threads act in rounds, rest and
//! compare after each, and in the end the watcher is stopped under them. After a life nothing may be left behind.

mod actor;
mod acts;
mod alone;
mod file;
mod ledger;
mod others;
mod random;
mod sys;
mod watching;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use handle_watcher_client::{Config, Stats, Watcher};

use actor::Actor;
use random::Random;
use world::{Habits, SEATS, STOPPERS, Watchdog, World};

/// How a run is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) threads: usize,
    /// How long something may take that must come at once.
    pub(crate) patience: Duration,
}

impl Settings {
    /// From the environment: HANDLE_WATCHER_STRESS_SEED, _SECONDS, _THREADS, _PATIENCE_MS.
    pub(crate) fn from_environment(seconds: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let seed = number("HANDLE_WATCHER_STRESS_SEED").unwrap_or_else(|| {
            let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            u64::from(time.map_or(0, |time| time.subsec_nanos())) ^ u64::from(std::process::id()) << 32
        });
        let threads = number("HANDLE_WATCHER_STRESS_THREADS").unwrap_or(8);
        Self {
            seed,
            time: Duration::from_secs(number("HANDLE_WATCHER_STRESS_SECONDS").unwrap_or(seconds)),
            threads: usize::try_from(threads).expect("a small number"),
            patience: Duration::from_millis(number("HANDLE_WATCHER_STRESS_PATIENCE_MS").unwrap_or(10_000)),
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) lives: u64,
    pub(crate) steps: u64,
    pub(crate) readiness: u64,
    pub(crate) stale: u64,
    pub(crate) timers: u64,
}

/// Runs until the time is over or something is wrong.
pub(crate) fn run(settings: Settings) -> Result<Summary, String> {
    let limit = sys::raise_descriptor_limit();
    let numbers = u64::try_from(settings.threads * SEATS).expect("a small number");
    let first_number = i32::try_from(limit.min(1 << 16) - numbers).expect("a descriptor number");
    assert!(first_number > 512, "the hard limit of descriptors leaves no range of numbers for the stress");
    let before = sys::open_descriptors();
    let mut random = Random::new(settings.seed);
    let mut summary = Summary::default();
    let began = Instant::now();
    while summary.lives == 0 || began.elapsed() < settings.time {
        let outcome = live(settings, &mut random, first_number, &mut summary);
        let after = sys::open_descriptors();
        outcome
            .and_then(|()| {
                if after == before {
                    Ok(())
                } else {
                    Err(format!("C8: {before} descriptors before, {after} after"))
                }
            })
            .map_err(|complaint| format!("{complaint}\nseed {}, life {}", settings.seed, summary.lives))?;
        summary.lives += 1;
    }
    Ok(summary)
}

fn any_config(random: &mut Random) -> Config {
    Config {
        batch_scheduling: random.chance(50),
        spin: Duration::from_micros(random.pick(&[0, 0, 0, 30])),
        poll_batch: random.pick(&[1, 2, 8, 512]),
        timer_batch: random.pick(&[1, 4, 1024]),
        command_limit: random.pick(&[1, 4, 64, 4096]),
        ..Config::default()
    }
}

fn live(
    settings: Settings,
    random: &mut Random,
    first_number: i32,
    summary: &mut Summary,
) -> Result<(), String> {
    let config = any_config(random);
    let watcher = Watcher::spawn(config.clone()).map_err(|status| format!("no watcher: {status}"))?;
    let seats = random.pick(&[2, 4, SEATS]);
    let (has_periodic, is_once_only) = (random.chance(50), random.chance(30));
    let habits = Habits { patience: settings.patience, has_periodic, seats, is_once_only };
    let world = World::new(watcher, settings.threads, first_number, habits);
    let world = Arc::new(world);
    // Most lives are short: a stop meets a client in the middle of something, and there is one stop in each life.
    let rounds = if random.chance(80) { 0 } else { random.below(5) };
    let steps = 200 + random.below(1500);
    let threads: Vec<_> = (0..settings.threads)
        .map(|me| {
            let actor = Actor::new(Arc::clone(&world), me, random.next());
            std::thread::spawn(move || actor.run(rounds, steps))
        })
        .collect();
    let most_delay = random.pick(&[1, 100, 1000, 3000]);
    let ended = oversee(&world, settings.patience, Duration::from_micros(random.below(most_delay)));
    let complain = |complaint: String| format!("{complaint}\n{config:?}");
    if let Some(complaint) = world.failure.get() {
        // A thread that hangs is left behind; the others see the failure and end.
        return Err(complain(complaint));
    }
    ended.map_err(complain)?;
    for thread in threads {
        thread.join().map_err(|_| complain("a thread of the stress panicked".to_owned()))?;
    }
    let stats = world.watcher.stats();
    let steps = world.progress.iter().map(|progress| progress.load(Ordering::Relaxed) & !(1 << 63));
    summary.steps += steps.sum::<u64>();
    summary.readiness += stats.readiness;
    summary.stale += stats.stale_events;
    summary.timers += stats.timers_fired;
    left_behind(&stats).map_or(Ok(()), |what| Err(complain(what)))
}

fn left_behind(stats: &Stats) -> Option<String> {
    let left = [stats.watches, stats.timers, stats.undelivered];
    (left != [0; 3]).then(|| format!("C14c: left behind: watches, timers, undelivered: {left:?}"))
}

/// Waits until all threads are in their last phase, stops the watcher under them, and waits for their end.
fn oversee(world: &Arc<World>, patience: Duration, delay: Duration) -> Result<(), String> {
    let mut watchdog = Watchdog::new(world.doors.len(), patience * 3);
    let mut wait_until = |is_reached: &dyn Fn() -> bool| {
        while !is_reached() && !world.failure.is_set() {
            if let Some(thread) = watchdog.look(&world.progress) {
                let complaint = format!("thread {thread} hangs");
                world.failure.set(complaint.clone());
                return Err(complaint);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let is_last =
        |world: &World| world.progress.iter().all(|progress| progress.load(Ordering::SeqCst) >> 63 == 1);
    wait_until(&|| is_last(world))?;
    if world.failure.is_set() {
        return Ok(());
    }
    std::thread::sleep(delay);
    world.is_stopping.store(true, Ordering::SeqCst);
    let stoppers: Vec<_> = (0..STOPPERS)
        .map(|_| {
            let world = Arc::clone(world);
            std::thread::spawn(move || {
                let stopped = world.watcher.stop();
                world.stops.fetch_add(1, Ordering::SeqCst);
                stopped
            })
        })
        .collect();
    wait_until(&|| world.running.load(Ordering::SeqCst) == 0)?;
    if world.failure.is_set() {
        // The watcher may be what hangs; then so does its stop.
        return Ok(());
    }
    for stopper in stoppers {
        let stopped = stopper.join().map_err(|_| "stop panicked".to_owned())?;
        stopped.map_err(|status| format!("C14b: stop was refused: {status}"))?;
    }
    Ok(())
}
