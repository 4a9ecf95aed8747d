//! C4: what an event holds, and that what is undelivered is bounded, merged within its watch and never lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::time::Duration;

use util::*;

/// C4a: every field of an event, of every kind that an embedded client is told.
fn an_event_says_everything(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    let watch = client.watch(&ready, READABLE, Mode::Once, 11).unwrap();
    let event = client.expect_event();
    assert_eq!((event.watch, event.token, event.kind, event.count), (watch, 11, EventKind::Ready, 1));
    assert_eq!((event.satisfied, event.status, event.timer()), (READABLE, Code::Ok, None));
    assert_eq!(event.state(), SignalsState { satisfied: READABLE, satisfiable: event.satisfiable });

    let timer = client.set_timer(Deadline::at_ns(1), 12).unwrap();
    let event = client.expect_event();
    assert_eq!((event.timer(), event.token, event.kind, event.count), (Some(timer), 12, EventKind::Timer, 1));
    assert_eq!((event.satisfied, event.status), (NONE, Code::Ok));

    client.wake().unwrap();
    let event = client.expect_event();
    assert_eq!((event.kind, event.count, event.satisfied), (EventKind::Wake, 1, NONE));
    assert_eq!((event.status, event.timer()), (Code::Ok, None));

    clear_event(&ready);
    client.arm_until(watch, Deadline::at_ns(1)).unwrap();
    let event = client.expect_event();
    assert_eq!((event.watch, event.token, event.kind, event.count), (watch, 11, EventKind::Deadline, 1));
    assert_eq!((event.satisfied, event.status), (NONE, Code::Ok));

    let handle = client.adopt(event_fd(0)).unwrap();
    let ended = client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Edge, 13)).unwrap();
    client.close(handle).unwrap();
    let event = client.expect_event();
    assert_eq!((event.watch, event.token, event.kind, event.count), (ended, 13, EventKind::Ended, 1));
    assert_eq!(event.status, Code::Cancelled);
    assert_eq!(event.to_status().code(), Code::Cancelled);
    assert!(!event.to_status().message().is_empty());
}

/// C4b: whatever comes in before the hand-out is one event.
fn readiness_merges_into_one_event(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        for _ in 0..200 {
            write_all(&other, b"x");
        }
        client.until_undelivered(mode, 1);
        client.expect_ready(watch, READABLE);
        if mode != Mode::Level {
            // What the kernel had reported before may come once more; it is one event again.
            // Over a service, what was on its way then is told as it comes in.
            let told = client.settle();
            assert!(told.len() <= 1 || setup.is_remote(), "{told:?}");
            client.expect_nothing();
        }
    }
}

/// C4b: the signals of everything that came in are in that event, also of what was consumed meanwhile.
fn signals_merge_by_or(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    fill(&one);
    let watch = client.watch(&one, READABLE | WRITABLE, Mode::Edge, 1).unwrap();
    write_all(&other, b"x");
    client.until_undelivered(Mode::Edge, 1);
    if !setup.serves_in_front(Mode::Edge) {
        assert_eq!(read_all(&one), 1);
    }
    let before = client.stats().readiness;
    read_all(&other);
    if !setup.serves_in_front(Mode::Edge) {
        until("the watcher has seen that", || client.stats().readiness > before);
        assert_eq!(client.client_stats().undelivered, 1);
    }
    if setup.is_remote() {
        // What the service has seen may be on its way still; then it is an event of its own.
        let mut satisfied = NONE;
        while satisfied != READABLE | WRITABLE {
            let event = client.expect_event();
            assert_eq!((event.watch, event.satisfied & satisfied), (watch, NONE), "nothing is told twice");
            satisfied |= event.satisfied;
        }
        return;
    }
    let event = client.expect_event();
    assert_eq!((event.watch, event.satisfied), (watch, READABLE | WRITABLE));
}

/// C4b: a Deadline carries what came in before it and was not delivered; both are one event.
fn a_deadline_carries_what_came_before(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    let soon = Deadline::after(Duration::from_millis(30));
    let options = WatchOptions::new(READABLE, Mode::Edge, 1).deadline(soon);
    let watch = client.watch_with(&ready, options).unwrap();
    until("the deadline has passed", || client.stats().timers_fired == 1);
    client.until_undelivered(Mode::Edge, 1);
    let events = client.settle();
    let told: Vec<_> = events.iter().map(|event| (event.watch, event.kind, event.satisfied)).collect();
    if setup.serves_in_front(Mode::Edge) {
        // Nobody had looked before the deadline: there was nothing to carry.
        assert_eq!(told.last().map(|it| (it.0, it.1)), Some((watch, EventKind::Deadline)), "{told:?}");
    } else if setup.is_remote() && told.len() == 2 {
        // The deadline was on its way still when the Ready was handed out.
        assert_eq!(told[0], (watch, EventKind::Ready, READABLE));
        assert_eq!((told[1].0, told[1].1), (watch, EventKind::Deadline));
    } else {
        assert_eq!(told, [(watch, EventKind::Deadline, READABLE)]);
    }
}

/// C4c: besides that there is one Ended, and it comes last.
fn an_end_waits_beside_a_ready(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let handle = client.adopt(event_fd(1)).unwrap();
        let watch = client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
        client.until_undelivered(mode, 1);
        client.close(handle).unwrap();
        let mut kinds = Vec::new();
        until("the end came", || {
            kinds.extend(client.drained().iter().map(|event| {
                assert_eq!(event.watch, watch);
                event.kind
            }));
            kinds.contains(&EventKind::Ended)
        });
        if setup.serves_in_front(mode) {
            assert_eq!(kinds, [EventKind::Ended], "nobody had looked before the end");
        } else {
            assert_eq!(kinds, [EventKind::Ready, EventKind::Ended], "{mode:?}");
        }
        client.expect_nothing();
    }
}

/// C4d: a client that never drains has one event a watch waiting, costs no memory, and delays nobody.
fn a_client_that_never_drains_costs_nothing(setup: Setup) {
    let [slow, mut quick] = setup.clients();
    let pairs: Vec<_> = (0..16).map(|_| socket_pair()).collect();
    for (index, (one, _)) in pairs.iter().enumerate() {
        for mode in MODES {
            slow.watch(one, READABLE, mode, index as u64).unwrap();
        }
    }
    slow.set_periodic(Deadline::at_ns(1), Duration::from_micros(50), 1).unwrap();
    let (one, other) = socket_pair();
    let watch = quick.watch(&one, READABLE, Mode::Edge, 7).unwrap();
    let before = resident_kib();
    for _ in 0..2000 {
        for (one, other) in &pairs {
            write_all(other, b"x");
            read_all(one);
        }
        slow.wake().unwrap();
        write_all(&other, b"x");
        quick.expect_ready(watch, READABLE);
        assert_eq!(read_all(&one), 1);
    }
    assert!(slow.client_stats().undelivered <= 3 * 16 + 2, "{:?}", slow.client_stats());
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for a client that does not drain");
}

/// C4e: with many watches and many rounds, everything is told, to the right watch, once.
fn nothing_is_lost_mixed_up_or_told_twice(setup: Setup) {
    const COUNT: usize = 100;
    let mut client = setup.client();
    client.set_capacity(7);
    let events: Vec<_> = (0..COUNT).map(|_| event_fd(0)).collect();
    let modes: Vec<Mode> = (0..COUNT).map(|index| MODES[index % 2]).collect();
    let watch = |index: usize| client.watch(&events[index], READABLE, modes[index], index as u64).unwrap();
    let watches: Vec<WatchId> = (0..COUNT).map(watch).collect();
    let mut random = Random::new(4);
    for _ in 0..60 {
        let mut expected = vec![0; COUNT];
        for (index, event) in events.iter().enumerate() {
            if random.below(2) == 0 {
                set_event(event);
                expected[index] = 1;
            }
        }
        let mut told = vec![0; COUNT];
        while told.iter().sum::<u64>() < expected.iter().sum() {
            let came = client.wait_for(PROMPT);
            assert!(!came.is_empty(), "events were lost: {told:?} of {expected:?}");
            for event in came {
                let index = usize::try_from(event.token).unwrap();
                assert_eq!(event.watch, watches[index]);
                told[index] += 1;
                clear_event(&events[index]);
                if modes[index] == Mode::Once {
                    client.arm(event.watch).unwrap();
                }
            }
        }
        assert_eq!(told, expected);
    }
    client.expect_nothing();
}

in_every_setup!(
    an_event_says_everything,
    readiness_merges_into_one_event,
    signals_merge_by_or,
    a_deadline_carries_what_came_before,
    an_end_waits_beside_a_ready,
    nothing_is_lost_mixed_up_or_told_twice,
);

in_every_setup_alone!(a_client_that_never_drains_costs_nothing);
