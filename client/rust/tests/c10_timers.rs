//! C10: timers and the deadlines of watches: never early, in order, without drift, of any length.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use util::*;

/// CLOCK_MONOTONIC in nanoseconds.
fn now_ns() -> u64 {
    Deadline::after(Duration::ZERO).as_ns()
}

/// C10a, C10b: many deadlines: each comes once, says its token, and not before its time.
fn no_timer_is_early(setup: Setup) {
    const COUNT: usize = 200;
    let mut client = setup.client();
    let mut random = Random::new(10);
    let mut due = HashMap::new();
    for token in 0..COUNT as u64 {
        let deadline = Deadline::after(Duration::from_nanos(random.below(40_000_000)));
        let timer = client.set_timer(deadline, token).unwrap();
        assert!(due.insert(token, (timer, deadline)).is_none());
    }
    while !due.is_empty() {
        let came = client.wait_for(PROMPT);
        let now = now_ns();
        assert!(!came.is_empty(), "lost: {due:?}");
        for event in came {
            let (timer, deadline) = due.remove(&event.token).expect("each comes once");
            assert_eq!((event.kind, event.timer(), event.count), (EventKind::Timer, Some(timer), 1));
            assert!(deadline.as_ns() <= now, "{} ns early", deadline.as_ns() - now);
        }
    }
    client.expect_nothing();
    assert_eq!(client.client_stats().timers, 0);
}

/// C10c: timers that are due together come by deadline, and equal deadlines in the order they were set.
fn timers_keep_their_order(setup: Setup) {
    const COUNT: u64 = 500;
    let mut client = setup.client();
    let mut random = Random::new(11);
    // All of them have passed already when the last one is set, but none before the first.
    let base = now_ns() + 250_000_000;
    let mut expected = Vec::new();
    for token in 0..COUNT {
        let deadline_ns = base + random.below(5) * 1000;
        client.set_timer(Deadline::at_ns(deadline_ns), token).unwrap();
        expected.push((deadline_ns, token));
    }
    assert!(now_ns() < base, "this machine is too slow for this test");
    expected.sort_unstable();
    let told: Vec<u64> =
        client.expect_events(usize::try_from(COUNT).unwrap()).iter().map(|event| event.token).collect();
    assert_eq!(told, expected.into_iter().map(|(_, token)| token).collect::<Vec<_>>());
}

/// C10c: the same for deadlines that had passed when they were set.
fn past_deadlines_keep_their_order(setup: Setup) {
    let mut client = setup.client();
    for token in 0..300 {
        client.set_timer(Deadline::at_ns(1000), token).unwrap();
    }
    let told: Vec<u64> = client.expect_events(300).iter().map(|event| event.token).collect();
    assert_eq!(told, (0..300).collect::<Vec<_>>());
}

/// C10d: periods are counted from the last deadline: as many are told as have passed, never more, and after a turn of
/// the watcher never less.
fn periods_do_not_drift(setup: Setup) {
    const PERIOD_NS: u64 = 1_000_000;
    let mut client = setup.client();
    let first_ns = now_ns() + 3_000_000;
    let timer = client.set_periodic(Deadline::at_ns(first_ns), Duration::from_nanos(PERIOD_NS), 5).unwrap();
    let passed = |now: u64| if now < first_ns { 0 } else { (now - first_ns) / PERIOD_NS + 1 };
    let mut told = 0;
    while told < 150 {
        for event in client.wait_for(PROMPT) {
            assert_eq!((event.kind, event.timer(), event.token), (EventKind::Timer, Some(timer), 5));
            told += u64::from(event.count);
        }
        assert!(told <= passed(now_ns()), "early: {told} periods of {}", passed(now_ns()));
    }
    // What is late is merged: one event for all of them.
    thread::sleep(Duration::from_millis(30));
    let due = passed(now_ns());
    let late = client.settle();
    assert!(late.iter().any(|event| event.count >= 10), "{late:?}");
    told += late.iter().map(|event| u64::from(event.count)).sum::<u64>();
    assert!(told >= due, "late: {told} periods of {due}");
    assert!(told <= passed(now_ns()));
    client.cancel_timer(timer).unwrap();
    client.expect_nothing();
}

/// C10d: a period much shorter than a turn is merged, and a count that does not fit stays at the largest.
fn an_absurd_number_of_periods_is_counted(setup: Setup) {
    let mut client = setup.client();
    // Some billions of periods have passed since boot.
    let timer = client.set_periodic(Deadline::at_ns(1), Duration::from_nanos(1), 1).unwrap();
    until("it is due", || client.client_stats().undelivered == 1);
    let turns = client.stats().turns;
    until("more has come in", || client.stats().turns > turns + 3);
    let event = client.drained()[0];
    assert_eq!((event.timer(), event.count), (Some(timer), u32::MAX));
    client.cancel_timer(timer).unwrap();
    assert!(client.set_periodic(Duration::ZERO, Duration::ZERO, 1).is_err());
    client.expect_nothing();
    client.expect_quiet_for(Duration::from_millis(100));
}

/// C10e: after a cancel that succeeded nothing is told, though it was queued.
fn cancel_takes_back_what_was_queued(setup: Setup) {
    let mut client = setup.client();
    let once = client.set_timer(Deadline::at_ns(1), 1).unwrap();
    let periodic = client.set_periodic(Deadline::at_ns(1), Duration::from_secs(1000), 2).unwrap();
    let later = client.set_timer(Duration::from_secs(1000), 3).unwrap();
    until("two wait", || client.client_stats().undelivered == 2);
    for timer in [once, periodic, later] {
        client.cancel_timer(timer).unwrap();
        assert_eq!(client.cancel_timer(timer).unwrap_err().code(), Code::NotFound);
    }
    client.expect_nothing();
    assert_eq!(client.client_stats().timers, 0);
}

/// C10e: NOT_FOUND says that a one-shot was delivered; a periodic timer can be cancelled until it is.
fn cancel_after_the_event(setup: Setup) {
    let mut client = setup.client();
    let once = client.set_timer(Duration::ZERO, 1).unwrap();
    assert_eq!(client.expect_event().timer(), Some(once));
    assert_eq!(client.cancel_timer(once).unwrap_err().code(), Code::NotFound);
    let periodic = client.set_periodic(Duration::ZERO, Duration::from_secs(1000), 2).unwrap();
    assert_eq!(client.expect_event().timer(), Some(periodic));
    client.cancel_timer(periodic).unwrap();
    // The slot's next owner is another timer.
    let next = client.set_timer(Duration::from_secs(1000), 3).unwrap();
    assert_ne!(next, periodic);
    assert_eq!(client.cancel_timer(periodic).unwrap_err().code(), Code::NotFound);
    client.cancel_timer(next).unwrap();
}

/// C10e: cancel races the expiry: with nothing delivered meanwhile it always succeeds, and then nothing is told.
fn cancel_races_the_expiry(setup: Setup) {
    let mut client = setup.client();
    for round in 0..1500_u64 {
        let timer = client.set_timer(Duration::from_nanos(round % 100 * 1000), round).unwrap();
        for _ in 0..round % 40 {
            std::hint::spin_loop();
        }
        client.cancel_timer(timer).unwrap();
        assert!(client.drained().is_empty(), "round {round}");
    }
    client.expect_nothing();
}

/// C10e: cancel races the hand-out: exactly one of them has the timer.
fn cancel_races_the_hand_out(setup: Setup) {
    let mut client = setup.client();
    let control = client.control().clone();
    for round in 0..150_u64 {
        let timer = client.set_timer(Duration::from_nanos(round % 50 * 1000), round).unwrap();
        let control = &control;
        let (cancelled, told) = thread::scope(|scope| {
            let cancelling = scope.spawn(move || control.cancel_timer(timer));
            let mut told = Vec::new();
            for _ in 0..20 {
                told.extend(client.drained());
            }
            (cancelling.join().unwrap(), told)
        });
        let told = told.into_iter().chain(client.settle()).count();
        match cancelled {
            Ok(()) => assert_eq!(told, 0, "round {round}"),
            Err(status) => assert_eq!((status.code(), told), (Code::NotFound, 1), "round {round}"),
        }
    }
}

/// C10f: every duration of a power of two of nanoseconds, and the largest of all.
fn any_duration_is_legal(setup: Setup) {
    let mut client = setup.client();
    let mut durations: Vec<Duration> = (0..64).map(|power| Duration::from_nanos(1 << power)).collect();
    durations.extend([Duration::MAX, Duration::from_secs(u64::MAX)]);
    let idle = event_fd(0);
    for duration in durations {
        let is_soon = duration < Duration::from_millis(5);
        let is_far = duration > Duration::from_secs(100);
        let timer = client.set_timer(duration, 1).unwrap();
        let by_deadline = client.set_timer(Deadline::after(duration), 2).unwrap();
        let periodic = client.set_periodic(duration, Duration::from_secs(1000), 3).unwrap();
        let period = client.set_periodic(Duration::from_secs(1000), duration, 4).unwrap();
        let options = WatchOptions::new(READABLE, Mode::Edge, 5).deadline(duration);
        let watch = client.watch_with(&idle, options).unwrap();
        if is_soon {
            let mut tokens: Vec<u64> = client.expect_events(4).iter().map(|event| event.token).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, [1, 2, 3, 5], "{duration:?}");
        } else if is_far {
            assert!(client.settle().is_empty(), "{duration:?}");
        }
        for timer in [timer, by_deadline, periodic, period] {
            match client.cancel_timer(timer) {
                Ok(()) => {}
                Err(status) => assert!(is_soon && status.code() == Code::NotFound, "{duration:?}: {status}"),
            }
        }
        client.arm_until(watch, duration).unwrap();
        client.unwatch(watch).unwrap();
        client.drained();
    }
    let farthest = client.set_timer(Deadline::FARTHEST, 6).unwrap();
    let both = client.set_periodic(Deadline::FARTHEST, Duration::MAX, 7).unwrap();
    client.expect_nothing();
    client.cancel_timer(farthest).unwrap();
    client.cancel_timer(both).unwrap();
}

/// C10f: what is past fires at once, in whatever words it is said.
fn a_past_deadline_fires_at_once(setup: Setup) {
    let mut client = setup.client();
    let past = Instant::now();
    thread::sleep(Duration::from_millis(1));
    for deadline in [
        Deadline::at_ns(0),
        Deadline::at_ns(1),
        Deadline::from(past),
        Deadline::from(Duration::ZERO),
        Deadline::after(Duration::ZERO),
    ] {
        let timer = client.set_timer(deadline, 1).unwrap();
        assert_eq!(client.expect_event().timer(), Some(timer), "{deadline:?}");
        let periodic = client.set_periodic(deadline, Duration::from_secs(100_000_000), 1).unwrap();
        assert_eq!(client.expect_event().timer(), Some(periodic), "{deadline:?}");
        client.cancel_timer(periodic).unwrap();
        let idle = event_fd(0);
        let options = WatchOptions::new(READABLE, Mode::Once, 1).deadline(deadline);
        let watch = client.watch_with(&idle, options).unwrap();
        let event = client.expect_event();
        assert_eq!((event.watch, event.kind), (watch, EventKind::Deadline), "{deadline:?}");
        client.unwatch(watch).unwrap();
    }
}

/// C10f: an earlier timer wakes a watcher that sleeps for a later one.
fn an_earlier_timer_is_not_kept_waiting(setup: Setup) {
    let mut client = setup.client();
    client.set_timer(Duration::from_secs(10_000), 0).unwrap();
    for token in (1..20).rev() {
        client.set_timer(Duration::from_millis(token), token).unwrap();
        // The watcher goes to sleep in between.
        thread::sleep(Duration::from_micros(token * 50));
    }
    let told: HashSet<u64> = client.expect_events(19).iter().map(|event| event.token).collect();
    assert_eq!(told.len(), 19);
}

/// A million timers at once: no descriptor more, and every one that is due is told, once, in order, not early.
#[test]
fn a_million_timers() {
    alone!(a_million_timers, {
        const COUNT: u64 = 1_000_000;
        const DUE: u64 = 150_000;
        let mut client = Setup::Own.client();
        client.set_capacity(4096);
        client.expect_nothing();
        let before = descriptor_count();
        let hour = 3_600_000_000_000;
        let base = now_ns() + 1_000_000_000;
        for token in 0..COUNT {
            let later = if token < DUE { token / 2 } else { hour };
            client.set_timer(Deadline::at_ns(base + later), token).unwrap();
        }
        assert_eq!(descriptor_count(), before);
        let mut next = 0;
        while next < DUE {
            let came = client.wait_for(PROMPT);
            let now = now_ns();
            assert!(!came.is_empty(), "lost after {next}");
            for event in came {
                assert_eq!((event.token, event.kind), (next, EventKind::Timer));
                assert!(base + next / 2 <= now);
                next += 1;
            }
        }
        client.expect_nothing();
        assert_eq!((descriptor_count(), client.client_stats().timers), (before, COUNT - DUE));
        // The process ends here; taking back what is left one by one would only take time.
        std::mem::forget(client);
    });
}

/// Those that are cancelled leave no trace either.
fn cancelled_timers_leave_no_trace(setup: Setup) {
    let mut client = setup.client();
    let before = client.stats().timers_kept;
    for round in 0..2 {
        let timers: Vec<TimerId> =
            (0..10_000).map(|token| client.set_timer(Duration::from_secs(3600), token).unwrap()).collect();
        timers.into_iter().for_each(|timer| client.cancel_timer(timer).unwrap());
        assert_eq!(client.client_stats().timers, 0, "round {round}");
    }
    until("the watcher has swept", || {
        client.settle();
        client.stats().timers_kept < before + 6000
    });
}

/// C10g: a deadline is told when it passes, and disarms the watch in every mode until it is armed.
fn a_deadline_disarms(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        let deadline = Deadline::after(Duration::from_millis(5));
        let options = WatchOptions::new(READABLE, mode, 1).deadline(deadline);
        let watch = client.watch_with(&one, options).unwrap();
        let event = client.expect_event();
        assert!(deadline.as_ns() <= now_ns(), "early");
        assert_eq!((event.watch, event.kind, event.satisfied), (watch, EventKind::Deadline, NONE));
        write_all(&other, b"x");
        client.expect_nothing();
        client.arm(watch).unwrap();
        client.expect_ready(watch, READABLE);
        assert_eq!(read_all(&one), 1);
        // It has no deadline any more.
        client.expect_nothing();
    }
}

/// C10g: an Edge or Level watch that told something stays armed, so its deadline still comes.
fn a_deadline_comes_after_a_ready(setup: Setup) {
    for mode in [Mode::Edge, Mode::Level] {
        let mut client = setup.client();
        client.expect_rivals();
        let (one, other) = socket_pair();
        write_all(&other, b"x");
        // Long enough for the Ready to be taken first on a busy machine: later it would be in the Deadline.
        let options = WatchOptions::new(READABLE, mode, 1).deadline(Duration::from_millis(500));
        let watch = client.watch_with(&one, options).unwrap();
        client.expect_ready(watch, READABLE);
        let mut kinds = vec![];
        let give_up = Instant::now() + PROMPT;
        while !kinds.contains(&EventKind::Deadline) {
            // A Level watch goes on being told meanwhile.
            kinds.extend(client.wait_for(Duration::from_secs(1)).iter().map(|event| event.kind));
            assert!(
                Instant::now() < give_up,
                "{mode:?}: the deadline did not come, only {} others",
                kinds.len()
            );
        }
        assert_eq!(kinds.last(), Some(&EventKind::Deadline));
        client.expect_nothing();
    }
}

/// C10g: a Once watch that fired is not armed, so no deadline comes.
fn a_ready_takes_the_deadline_of_a_once_watch_along(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    let options = WatchOptions::new(READABLE, Mode::Once, 1).deadline(Duration::from_millis(60));
    let watch = client.watch_with(&ready, options).unwrap();
    client.expect_ready(watch, READABLE);
    assert!(client.wait_for(Duration::from_millis(80)).is_empty());
    client.expect_nothing();
}

/// C10g, C3j: `arm` clears a deadline, `arm_until` replaces it, by an earlier one and by a later one.
fn arming_replaces_the_deadline(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let idle = event_fd(0);
        let hour = Duration::from_secs(3600);
        let options = WatchOptions::new(READABLE, mode, 1).deadline(Duration::from_millis(30));
        let watch = client.watch_with(&idle, options).unwrap();
        client.arm(watch).unwrap();
        assert!(client.wait_for(Duration::from_millis(50)).is_empty(), "cleared");
        client.arm_until(watch, Duration::from_millis(30)).unwrap();
        client.arm_until(watch, hour).unwrap();
        assert!(client.wait_for(Duration::from_millis(50)).is_empty(), "put off");
        client.arm_until(watch, Duration::from_millis(1)).unwrap();
        let event = client.expect_event();
        assert_eq!((event.watch, event.kind), (watch, EventKind::Deadline), "moved up");
        client.arm_until(watch, Instant::now()).unwrap();
        assert_eq!(client.expect_event().kind, EventKind::Deadline);
        client.expect_nothing();
    }
}

/// C10g: unwatch takes a deadline along, also one that is queued.
fn unwatch_takes_the_deadline_along(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let idle = event_fd(0);
        let past = WatchOptions::new(READABLE, mode, 1).deadline(Deadline::at_ns(1));
        let queued = client.watch_with(&idle, past).unwrap();
        until("it waits", || client.client_stats().undelivered == 1);
        client.unwatch(queued).unwrap();
        let soon = WatchOptions::new(READABLE, mode, 1).deadline(Duration::from_millis(2));
        let watch = client.watch_with(&idle, soon).unwrap();
        client.unwatch(watch).unwrap();
        assert!(client.wait_for(Duration::from_millis(10)).is_empty());
        client.expect_nothing();
    }
}

in_every_setup!(
    no_timer_is_early,
    past_deadlines_keep_their_order,
    periods_do_not_drift,
    an_absurd_number_of_periods_is_counted,
    cancel_takes_back_what_was_queued,
    cancel_after_the_event,
    cancel_races_the_expiry,
    cancel_races_the_hand_out,
    any_duration_is_legal,
    a_past_deadline_fires_at_once,
    an_earlier_timer_is_not_kept_waiting,
    a_deadline_disarms,
    a_deadline_comes_after_a_ready,
    a_ready_takes_the_deadline_of_a_once_watch_along,
    arming_replaces_the_deadline,
    unwatch_takes_the_deadline_along,
    timers_keep_their_order,
    cancelled_timers_leave_no_trace,
);
