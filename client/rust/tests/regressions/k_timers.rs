//! C9f, C10a, C10b, C10c, C10d, C10e, C10f, C10g, C13d: group K, timers and timeouts.
//!
//! - K7 asks for a clock that runs while the machine sleeps: not promised, CLOCK_MONOTONIC is the only one (C10a).
//! - K12 is K6 again, with a timerfd: no timer of ours has a descriptor, which k13 checks.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::support::*;
use crate::sys;
use crate::util::*;

/// Nanoseconds of CLOCK_MONOTONIC, read without the library.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// tokio-rs/mio PR#1948: a timeout beyond what some type of milliseconds or seconds can hold is a long wait: neither one
/// that is over at once nor one that nothing can end.
#[test]
fn k1_mio_pr_1948_a_timeout_of_weeks_is_a_long_wait() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let control = client.control().clone();
        let (reader, writer) = pipe();
        // 2^31 ms are 24.8 days, where the report has its edge; then where other types of milliseconds have theirs.
        for milliseconds in [(1 << 31) - 1, 1 << 31, (1 << 31) + 1, 1 << 32, 1000 << 32] {
            let timeout = Duration::from_millis(milliseconds);
            // The watcher sleeps that long, too.
            let timer = client.set_timer(timeout, 1).unwrap();
            let watch = client.watch(&reader, READABLE, Mode::Once, 2).unwrap();
            client.arm_until(watch, timeout).unwrap();
            expect_quiet(&client);
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(5));
                    control.wake().unwrap();
                });
                assert_eq!(tokens(&client.wait_for(timeout)), [0], "{timeout:?}");
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(5));
                    write_all(&writer, b"x");
                });
                let mut entries = [WaitEntry::new(reader.as_fd(), READABLE)];
                assert_eq!(wait_many(&mut entries, Some(Deadline::after(timeout))), Ok(Some(0)));
            });
            client.expect_ready(watch, READABLE);
            read_all(&reader);
            client.unwatch(watch).unwrap();
            client.cancel_timer(timer).unwrap();
            client.expect_nothing();
        }
    });
}

/// tokio-rs/mio PR#1657, smol-rs/polling PR#71, crossbeam-rs/crossbeam#798, crossbeam-rs/crossbeam#953: the longest
/// duration is legal everywhere, never comes, and can be cancelled.
#[test]
fn k2_mio_pr_1657_the_longest_duration_is_legal_everywhere() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let event = event_fd(0);
        let mut timers = Vec::new();
        for far in [Deadline::after(Duration::MAX), Deadline::FARTHEST, Deadline::at_ns(u64::MAX - 1)] {
            timers.push(client.set_timer(far, 1).unwrap());
            timers.push(client.set_periodic(far, Duration::MAX, 2).unwrap());
            timers.push(client.set_periodic(far, Duration::from_nanos(1), 3).unwrap());
            let options = WatchOptions::new(READABLE, Mode::Edge, 4).deadline(far);
            let watch = client.watch_with(&event, options).unwrap();
            client.arm_until(watch, far).unwrap();
            client.wake().unwrap();
            let mut events = Events::with_capacity(8);
            assert_eq!(client.wait_until(&mut events, far), Ok(1));
            let mut entries = [WaitEntry::new(event.as_fd(), WRITABLE)];
            assert_eq!(wait_many(&mut entries, Some(far)), Ok(Some(0)));
        }
        client.wake().unwrap();
        let mut events = Events::with_capacity(8);
        assert_eq!(client.wait(&mut events, Some(Duration::MAX)), Ok(1));
        // The longest period after a first time that comes: told once, and the next one lies beyond the end of time.
        let periodic = client.set_periodic(Duration::ZERO, Duration::MAX, 5).unwrap();
        let event = client.expect_event();
        assert_eq!((event.timer(), event.count), (Some(periodic), 1));
        timers.push(periodic);
        client.expect_nothing();
        expect_quiet(&client);
        for timer in timers {
            client.cancel_timer(timer).unwrap();
        }
        client.expect_nothing();
    });
}

/// Sets a timer at one base plus 2^power ns for each of these; all are set before the base comes.
fn set_all(client: &mut Fixture, powers: &[u32]) -> Vec<(u32, TimerId)> {
    let mut lead_ns = 20_000_000;
    loop {
        let base_ns = now_ns() + lead_ns;
        let set = |power: u32| {
            let deadline = Deadline::at_ns(base_ns.saturating_add(1 << power));
            (power, client.set_timer(deadline, power.into()).unwrap())
        };
        let timers: Vec<(u32, TimerId)> = powers.iter().copied().map(set).collect();
        if now_ns() < base_ns {
            return timers;
        }
        // A slow machine: again, with more time.
        for (_, timer) in timers {
            drop(client.cancel_timer(timer));
        }
        client.settle();
        lead_ns *= 2;
    }
}

/// tokio-rs/tokio#5183, tokio-rs/tokio#6634, tokio-rs/tokio PR#8385: there is no "far, but not far enough": every power of
/// two works as a delay, as a period and as a new deadline, and the order is that of the deadlines.
#[test]
fn k3_tokio_5183_every_power_of_two_works_and_keeps_its_place() {
    in_each_setup(|setup| {
        let mut dice = Dice::new(0xc3);
        let mut client = setup.client();
        let mut powers: Vec<u32> = (0..64).collect();
        for index in (1..powers.len()).rev() {
            powers.swap(index, usize::try_from(dice.below(index as u64 + 1)).unwrap());
        }
        let timers = set_all(&mut client, &powers);
        // 2^26 ns are 67 ms; on a slow machine the next ones may have come as well.
        let mut told = Vec::new();
        while told.len() < 27 {
            told.extend(tokens(&client.wait_for(PROMPT)));
        }
        assert!(told.iter().copied().eq(0..told.len() as u64), "in order: {told:?}");
        for (power, timer) in timers {
            let answer = client.cancel_timer(timer);
            if power >= 40 {
                assert_eq!(answer, Ok(()), "2^{power} ns");
            }
        }
        client.settle();
        let (reader, _writer) = pipe();
        let watch = client.watch(&reader, READABLE, Mode::Level, 99).unwrap();
        for power in 0..64 {
            let time = Duration::from_nanos(1 << power);
            let timer = client.set_periodic(time, time, 100).unwrap();
            client.arm_until(watch, time).unwrap();
            let events = if power < 22 { with_a_deadline_of(&mut client, watch) } else { client.settle() };
            assert!(power < 40 || events.is_empty(), "2^{power} ns: {events:#?}");
            client.cancel_timer(timer).unwrap();
            client.arm(watch).unwrap();
            client.settle();
        }
        client.expect_nothing();
        expect_quiet(&client);
    });
}

/// Everything up to the Deadline of this watch.
#[track_caller]
fn with_a_deadline_of(client: &mut Fixture, watch: WatchId) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let came = client.wait_for(PROMPT);
        assert!(!came.is_empty(), "the deadline did not come: {events:#?}");
        events.extend(came);
        if events.iter().any(|event| (event.watch, event.kind) == (watch, EventKind::Deadline)) {
            return events;
        }
    }
}

/// eclipse-iceoryx/iceoryx2#518: a deadline that was missed is told once and disarms; it does not come again without end,
/// and it comes again after the watch was armed with a new one.
#[test]
fn k4_iceoryx2_518_a_missed_deadline_is_told_once() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let options = WatchOptions::new(READABLE, mode, 4).deadline(Duration::from_millis(1));
        let watch = client.watch_with(&reader, options).unwrap();
        for _ in 0..2 {
            let event = client.expect_event();
            assert_eq!((event.watch, event.kind), (watch, EventKind::Deadline));
            client.expect_nothing();
            expect_quiet_while_waiting(&mut client);
            client.arm_until(watch, Duration::from_millis(1)).unwrap();
        }
        client.expect_event();
        write_all(&writer, b"x");
        client.expect_nothing();
        client.arm(watch).unwrap();
        client.expect_ready(watch, READABLE);
    });
}

/// wahern/cqueues#63, wahern/cqueues#75, tokio-rs/mio PR#1615, rakshasa/libtorrent PR#757, open62541/open62541#7102: a
/// part of a millisecond is not rounded down to none: nothing is early, and nobody waits in many waits of no time.
#[test]
fn k5_cqueues_75_parts_of_a_millisecond_are_neither_early_nor_a_spin() {
    in_each_setup(|setup| {
        let mut dice = Dice::new(0xc5);
        let mut client = setup.client();
        client.expect_nothing();
        let before = client.stats().turns;
        for round in 0..30 {
            let time = Duration::from_nanos(100_000 + dice.below(1_900_000));
            // Timeouts are checked not to be early in `wait_for`.
            assert!(client.wait_for(time / 4).is_empty());
            let due_ns = now_ns() + u64::try_from(time.as_nanos()).unwrap();
            client.set_timer(Deadline::at_ns(due_ns), round).unwrap();
            assert_eq!(client.expect_event().token, round);
            let now = now_ns();
            assert!(now >= due_ns, "{} ns early", due_ns - now);
        }
        let turns = client.stats().turns - before;
        // Some to take the command, at the deadline, and when it is a hair early; a spin would make thousands.
        assert!(turns <= 180, "{turns} turns for 30 timers");
    });
}

/// eclipse-iceoryx/iceoryx2#1000, smol-rs/smol PR#89: all waiting is on CLOCK_MONOTONIC, so setting the wall clock moves
/// nothing. Setting it would move the whole machine; so the monotonic clock of a forked child is moved instead, and all
/// waits there still agree with it.
#[test]
fn k6_iceoryx2_1000_all_waiting_is_on_the_monotonic_clock() {
    alone!(k6_iceoryx2_1000_all_waiting_is_on_the_monotonic_clock, {
        let agrees = || {
            let mut client = Setup::Own.client();
            let (before, deadline, after) = (now_ns(), Deadline::after(Duration::ZERO).as_ns(), now_ns());
            assert!(before <= deadline && deadline <= after, "deadlines are on the monotonic clock");
            let due_ns = now_ns() + 30_000_000;
            client.set_timer(Deadline::at_ns(due_ns), 6).unwrap();
            let started = Instant::now();
            assert_eq!(client.expect_event().token, 6);
            assert!(now_ns() >= due_ns && started.elapsed() < PROMPT / 2);
            let started = Instant::now();
            assert!(client.wait_for(Duration::from_millis(30)).is_empty());
            assert!(started.elapsed() < PROMPT / 2);
            assert_eq!(wait_many(&mut [], Some(Deadline::after(Duration::MAX))), Ok(None));
            expect_quiet(&client);
        };
        agrees();
        let (here, seconds) = (now_ns(), 1_000_000);
        if let Err(error) = sys::shift_monotonic_clock_of_children(seconds) {
            eprintln!("the clock is not moved, as that is not allowed here: {error}");
            return;
        }
        let child = Forked::run(|| {
            assert!(now_ns() >= here + u64::from(seconds) * 1_000_000_000, "the clock was moved");
            agrees();
        });
        child.expect_success();
    });
}

/// libuv/libuv PR#922: the rest of a long wait is counted from an absolute deadline each time something else comes first:
/// a thousand other events a second neither put it off nor make it early.
#[test]
fn k8_libuv_pr_922_other_events_do_not_move_a_deadline() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let event = event_fd(0);
        client.watch(&event, READABLE, Mode::Edge, 1).unwrap();
        let is_over = AtomicBool::new(false);
        let noise = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    set_event(&event);
                    noise.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let due_ns = now_ns() + 150_000_000;
            let timer = client.set_timer(Deadline::at_ns(due_ns), 8).unwrap();
            let mut events = Events::with_capacity(16);
            let mut fired = 0;
            // A wait for a little longer than the timer, with an absolute deadline, which the events interrupt.
            let until_ns = due_ns + 50_000_000;
            while now_ns() < until_ns {
                client.wait_until(&mut events, Deadline::at_ns(until_ns)).unwrap();
                for event in events.iter().filter(|event| event.timer() == Some(timer)) {
                    assert!(now_ns() >= due_ns, "early");
                    fired += event.count;
                }
            }
            is_over.store(true, Ordering::Release);
            assert_eq!(fired, 1, "it came in time and once, among {} others", noise.load(Ordering::Relaxed));
        });
    });
}

/// crossbeam-rs/crossbeam#456: the next period is counted from when the last was due. A client that is late gets all that
/// passed in one event, and none is lost.
#[test]
fn k9_crossbeam_456_periods_do_not_drift() {
    in_each_setup(|setup| {
        let mut dice = Dice::new(0xc9);
        let mut client = setup.client();
        let period_ns = 2_000_000;
        let first_ns = now_ns() + period_ns;
        let period = Duration::from_nanos(period_ns);
        let timer = client.set_periodic(Deadline::at_ns(first_ns), period, 9).unwrap();
        let mut counted = 0;
        for _ in 0..20 {
            thread::sleep(Duration::from_nanos(dice.below(9_000_000)));
            let before_ns = now_ns();
            // What is due now is told at the latest together with a fence that is ready now.
            counted += client.settle().iter().map(|event| u64::from(event.count)).sum::<u64>();
            let after_ns = now_ns();
            let due = |now_ns: u64| now_ns.checked_sub(first_ns).map_or(0, |passed| passed / period_ns + 1);
            assert!(counted >= due(before_ns), "{counted} of {}", due(before_ns));
            assert!(counted <= due(after_ns), "{counted} of {}: early", due(after_ns));
        }
        client.cancel_timer(timer).unwrap();
        client.expect_nothing();
    });
}

/// smol-rs/async-io PR#73: due means now or before: a deadline of exactly now needs no further turn, and leaves the
/// watcher asleep.
#[test]
fn k10_async_io_pr_73_a_deadline_of_now_or_before_fires_at_once() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let (reader, _writer) = pipe();
        let now = Deadline::after(Duration::ZERO);
        for due in [now, Deadline::at_ns(0), Deadline::at_ns(1), Deadline::from(Instant::now())] {
            let timer = client.set_timer(due, 10).unwrap();
            assert_eq!(client.expect_event().timer(), Some(timer));
            let options = WatchOptions::new(READABLE, Mode::Once, 11).deadline(due);
            let watch = client.watch_with(&reader, options).unwrap();
            assert_eq!(client.expect_event().kind, EventKind::Deadline);
            client.arm_until(watch, due).unwrap();
            assert_eq!(client.expect_event().kind, EventKind::Deadline);
            client.unwatch(watch).unwrap();
            assert!(client.wait_for(Duration::ZERO).is_empty());
            expect_quiet(&client);
        }
    });
}

/// MagicStack/uvloop#469, MagicStack/uvloop#239, libuv/libuv#2416: a cancel is final. Ok means that no event of the timer
/// comes any more; only one that was delivered, or cancelled before, is not found.
#[test]
fn k11_uvloop_469_a_cancelled_timer_is_silent() {
    let mut dice = Dice::new(0xcb);
    in_each_setup(|setup| {
        let mut client = setup.client();
        for round in 0..400 {
            let time = Duration::from_nanos(dice.below(20_000));
            let timer = if round % 2 == 0 {
                client.set_timer(time, round)
            } else {
                client.set_periodic(time, Duration::from_nanos(1 + dice.below(5_000)), round)
            };
            dice.spin_below(Duration::from_micros(30));
            // Nothing was drained, so nothing was delivered.
            client.cancel_timer(timer.as_ref().copied().unwrap()).unwrap();
            assert_eq!(code_of(client.cancel_timer(timer.unwrap())), Code::NotFound);
            assert!(client.drained().is_empty(), "round {round}");
        }
        client.expect_nothing();
        assert_eq!(client.client_stats().timers, 0);
        let timer = client.set_timer(Duration::ZERO, 1).unwrap();
        client.expect_event();
        assert_eq!(code_of(client.cancel_timer(timer)), Code::NotFound, "delivered");
    });
}

/// libuv/libuv#2416: nor does a cancelled timer that is expiring at that moment touch the timer or the watch that gets its
/// place: each of them fires, once, for what it was set to.
#[test]
fn k11_libuv_2416_a_cancelled_timer_does_not_touch_the_next_owner_of_its_place() {
    let mut client = Setup::Own.client();
    let (reader, writer) = pipe();
    write_all(&writer, b"x");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Keep the processors busy, so that the watcher is stopped at every place there is.
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut round = |round: u64| {
            let busy = client.set_periodic(Duration::ZERO, Duration::from_nanos(200), 1).unwrap();
            thread::yield_now();
            client.cancel_timer(busy).unwrap();
            if round.is_multiple_of(2) {
                let timer = client.set_timer(Duration::from_micros(100), 2).unwrap();
                let event = client.expect_event();
                assert_eq!((event.timer(), event.count), (Some(timer), 1), "round {round}");
            } else {
                let watch = client.watch(&reader, READABLE, Mode::Once, 3).unwrap();
                client.expect_ready(watch, READABLE);
                client.arm(watch).unwrap_or_else(|status| panic!("round {round}: {status}"));
                client.expect_ready(watch, READABLE);
                client.unwatch(watch).unwrap();
            }
        };
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..100).for_each(&mut round)));
        is_over.store(true, Ordering::Release);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// libuv/libuv ("unix: use a heap for timers"): many timers cost no descriptors and no memory that stays.
#[test]
fn k13_libuv_heap_many_timers_cost_no_descriptors_and_give_their_memory_back() {
    alone!(k13_libuv_heap_many_timers_cost_no_descriptors_and_give_their_memory_back, {
        const COUNT: u64 = 100_000;
        let mut client = Setup::Own.client();
        client.settle();
        let descriptors = descriptor_count();
        let mut timers = Vec::with_capacity(usize::try_from(COUNT).unwrap());
        let mut after_first = 0;
        for round in 0..3 {
            timers.extend((0..COUNT).map(|number| {
                client.set_timer(Duration::from_secs(3600 + number * 7919 % COUNT), number).unwrap()
            }));
            assert_eq!(descriptor_count(), descriptors);
            assert_eq!(client.client_stats().timers, COUNT);
            for timer in timers.drain(..) {
                client.cancel_timer(timer).unwrap();
            }
            assert_eq!(client.client_stats().timers, 0);
            client.settle();
            until("cancelled timers are swept out", || {
                // A turn sweeps.
                client.settle();
                client.stats().timers_kept < COUNT / 10
            });
            if round == 0 {
                after_first = resident_kib();
            }
        }
        let grown = resident_kib().saturating_sub(after_first);
        assert!(grown < 4096, "{grown} KiB more after three more rounds");
        expect_quiet(&client);
    });
}
