//! C3, C5, C6, C9, C13: what earlier libraries that wait on many handles test about themselves, in our words.
//!
//! One section for each kind of thing they have: single waits, calls of a system, sets that are waited on, traps that
//! are armed, and run loops. What they have and we do not (handles between processes, nested runs, callbacks) is left out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use util::*;

// Single waits: one thing is waited for, and something happens before, during or after the wait.

/// Satisfied, ended by its owner, ended by a close, timed out: before the wait begins, and while it lasts.
fn what_can_happen_to_a_single_wait(setup: Setup) {
    for mode in MODES {
        for during in [false, true] {
            let mut client = setup.client();
            client.expect_rivals();
            let happen = |what: &(dyn Fn() + Sync), client: &mut Fixture, timeout: Duration| {
                thread::scope(|scope| {
                    if !during {
                        what();
                    }
                    let happening = scope.spawn(|| {
                        if during {
                            thread::sleep(Duration::from_millis(5));
                            what();
                        }
                    });
                    let came = client.wait_for(timeout);
                    happening.join().unwrap();
                    came
                })
            };
            let (one, other) = socket_pair();
            let watch = client.watch(&one, READABLE, mode, 1).unwrap();
            let came = happen(&|| write_all(&other, b"x"), &mut client, PROMPT);
            assert_eq!((came.len(), came[0].watch, came[0].kind), (1, watch, EventKind::Ready));
            client.unwatch(watch).unwrap();

            let watch = client.watch(&one, PRIORITY, mode, 1).unwrap();
            let control = client.control().clone();
            let came = happen(&|| control.unwatch(watch).unwrap(), &mut client, Duration::from_millis(20));
            assert!(came.is_empty(), "who ends a wait is told nothing: {came:?}");

            let handle = client.adopt(event_fd(0)).unwrap();
            let watch = client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
            let came = happen(&|| control.close(handle).unwrap(), &mut client, PROMPT);
            assert_eq!((came.len(), came[0].watch, came[0].status), (1, watch, Code::Cancelled));

            let idle = event_fd(0);
            let watch = client.watch(&idle, READABLE, mode, 1).unwrap();
            let came = happen(&|| control.arm_until(watch, Deadline::at_ns(1)).unwrap(), &mut client, PROMPT);
            assert_eq!((came.len(), came[0].watch, came[0].kind), (1, watch, EventKind::Deadline));
        }
    }
}

/// Several waiters on one thing, one for each way it can go: each is told its own.
fn each_waiter_is_told_its_own(setup: Setup) {
    let [mut ready, mut late, mut other_signal, mut ended] = setup.clients();
    let (one, other) = socket_pair();
    fill(&one);
    let number = number_of(&one);
    let handle = ended.adopt(one).unwrap();
    let options = |signals| WatchOptions::new(signals, Mode::Once, 1);
    let readable = ready.watch_number(number, options(READABLE)).unwrap();
    let timed = late.watch_number(number, options(WRITABLE).deadline(Duration::from_millis(5))).unwrap();
    let priority = other_signal.watch_number(number, options(PRIORITY)).unwrap();
    let own = ended.watch_handle(handle, options(WRITABLE)).unwrap();
    write_all(&other, b"x");
    ready.expect_ready(readable, READABLE);
    let event = late.expect_event();
    assert_eq!((event.watch, event.kind), (timed, EventKind::Deadline));
    other_signal.expect_nothing();
    ended.close(handle).unwrap();
    ready.expect_ended(readable, Code::Cancelled);
    late.expect_ended(timed, Code::Cancelled);
    other_signal.expect_ended(priority, Code::Cancelled);
    ended.expect_ended(own, Code::Cancelled);
}

/// A change of state that changes nothing for a waiter does not wake it.
fn a_change_that_changes_nothing_wakes_nobody(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        client.watch(&one, PRIORITY, mode, 1).unwrap();
        for _ in 0..20 {
            write_all(&other, b"x");
            read_all(&one);
            write_all(&one, b"x");
            read_all(&other);
        }
        client.expect_nothing();
    }
}

/// Fifty waiters on one thing, half for each of two signals.
fn many_waiters_half_for_each_signal(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    fill(&one);
    let watch =
        |index: usize| client.watch(&one, [READABLE, WRITABLE][index % 2], Mode::Once, index as u64).unwrap();
    let watches: Vec<WatchId> = (0..50).map(watch).collect();
    for (half, signal) in [(0, READABLE), (1, WRITABLE)] {
        if half == 0 {
            write_all(&other, b"x");
        } else {
            assert_eq!(read_all(&one), 1);
            read_all(&other);
        }
        let mut told: Vec<WatchId> = Vec::new();
        for event in client.expect_events(25) {
            assert_eq!(event.satisfied, signal);
            told.push(event.watch);
        }
        told.sort_unstable();
        let mut expected: Vec<WatchId> = watches.iter().copied().skip(half).step_by(2).collect();
        expected.sort_unstable();
        assert_eq!(told, expected);
        client.expect_nothing();
    }
}

// Calls of a system: many threads at one thing.

/// The write at one end makes exactly that place of a list readable; the end of a peer leaves what was written readable.
#[test]
fn a_list_follows_its_pipes() {
    let pipes: Vec<(OwnedFd, OwnedFd)> = (0..5).map(|_| pipe()).collect();
    for place in [3, 0, 4] {
        let mut entries: Vec<_> =
            pipes.iter().map(|(reader, _)| WaitEntry::new(reader.as_fd(), READABLE)).collect();
        write_all(&pipes[place].1, b"x");
        assert_eq!(wait_many(&mut entries, Some(Deadline::after(PROMPT))).unwrap(), Some(place));
        assert_eq!(read_all(&pipes[place].0), 1);
        let twin = duplicate(&pipes[place].1);
        let writing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            write_all(&twin, b"y");
        });
        assert_eq!(wait_many(&mut entries, None).unwrap(), Some(place), "written while it waits");
        writing.join().unwrap();
        assert_eq!(read_all(&pipes[place].0), 1);
    }
    let (reader, writer) = pipe();
    write_all(&writer, b"last");
    drop(writer);
    let mut entries =
        [WaitEntry::new(pipes[0].0.as_fd(), READABLE), WaitEntry::new(reader.as_fd(), READABLE)];
    assert_eq!(wait_many(&mut entries, None).unwrap(), Some(1));
    assert_eq!(entries[1].satisfied(), READABLE | PEER_CLOSED);
    read_all(&reader);
    assert_eq!(wait_many(&mut entries, None).unwrap(), Some(1));
    assert_eq!(entries[1].satisfied(), PEER_CLOSED);
}

/// Random calls by many threads on one given handle, which one of them closes in the end: no call hangs or panics, and
/// every watch ends once.
fn random_calls_on_one_handle(setup: Setup) {
    const THREADS: u64 = 4;
    let mut client = setup.client();
    client.expect_rivals();
    for round in 0..15 {
        let handle = client.adopt(event_fd(1)).unwrap();
        let start = Barrier::new(usize::try_from(THREADS).unwrap());
        let unwatched: HashSet<WatchId> = thread::scope(|scope| {
            let call = |seed: u64| {
                let (control, start) = (client.control().clone(), &start);
                move || random_calls(&control, handle, start, seed)
            };
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(call(round * 10 + number))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        match client.close(handle) {
            Ok(()) => {}
            Err(status) => assert_eq!(status.code(), Code::NotFound),
        }
        let mut ends: HashMap<WatchId, usize> = HashMap::new();
        for event in client.settle() {
            assert!(!unwatched.contains(&event.watch), "round {round}: told after unwatch: {event:?}");
            assert!(!ends.contains_key(&event.watch), "round {round}: told after its end: {event:?}");
            if event.kind == EventKind::Ended {
                ends.insert(event.watch, 1);
            }
        }
        assert_eq!(client.client_stats().watches, 0, "round {round}");
    }
}

/// Gives the watches it has unwatched.
fn random_calls(control: &Control, handle: HandleId, start: &Barrier, seed: u64) -> Vec<WatchId> {
    let mut random = Random::new(seed + 1);
    let (mut live, mut unwatched) = (Vec::new(), Vec::new());
    start.wait();
    for call in 0..60 {
        let options = WatchOptions::new(READABLE, MODES[usize::try_from(random.below(3)).unwrap()], seed);
        let watch = live.get(usize::try_from(random.below(8)).unwrap()).copied();
        let result = match (random.below(6), watch) {
            (0 | 1, _) | (_, None) => control.watch_handle(handle, options).map(|watch| live.push(watch)),
            (2, Some(watch)) => control.arm_until(watch, Duration::from_nanos(random.below(100_000))),
            (3, Some(watch)) => control.change(watch, READABLE | WRITABLE),
            (4, Some(watch)) => control.pause(watch),
            (_, Some(watch)) => {
                live.retain(|it| *it != watch);
                control.unwatch(watch).map(|()| unwatched.push(watch))
            }
        };
        if let Err(status) = result {
            assert!(matches!(status.code(), Code::NotFound | Code::FailedPrecondition), "{status}");
        }
        if call == 50 && seed.is_multiple_of(3) {
            // NOT_FOUND: another thread was faster.
            let _: Result<()> = control.close(handle);
        }
    }
    unwatched
}

// Sets that are waited on.

/// The same handle may be watched twice, each with its own token; and what was taken out is not there any more.
fn a_set_has_what_was_put_into_it(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    let first = client.watch(&ready, READABLE, Mode::Once, 1).unwrap();
    let second = client.watch(&ready, READABLE, Mode::Once, 1).unwrap();
    assert_ne!(first, second);
    let told: HashSet<WatchId> = client.expect_events(2).iter().map(|event| event.watch).collect();
    assert_eq!(told, HashSet::from([first, second]));
    client.unwatch(first).unwrap();
    assert_eq!(client.unwatch(first).unwrap_err().code(), Code::NotFound);
    client.arm(second).unwrap();
    client.expect_ready(second, READABLE);
}

/// An empty set is no error: the wait lasts as long as it was asked to.
fn an_empty_set_waits(setup: Setup) {
    let mut client = setup.client();
    assert!(client.wait_for(Duration::from_millis(10)).is_empty());
    let ready = event_fd(1);
    let only = client.watch(&ready, READABLE, Mode::Level, 1).unwrap();
    client.expect_ready(only, READABLE);
    client.unwatch(only).unwrap();
    assert!(client.wait_for(Duration::from_millis(10)).is_empty());
}

/// One that was ready and was drained is not told again; the next wait goes on until another becomes ready.
fn a_drained_entry_is_not_told_again(setup: Setup) {
    for mode in [Mode::Level, Mode::Edge] {
        let mut client = setup.client();
        let (first, second) = (event_fd(1), event_fd(0));
        let one = client.watch(&first, READABLE, mode, 1).unwrap();
        let other = client.watch(&second, READABLE, mode, 2).unwrap();
        client.expect_ready(one, READABLE);
        clear_event(&first);
        let twin = duplicate(&second);
        let setting = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            set_event(&twin);
        });
        client.expect_ready(other, READABLE);
        setting.join().unwrap();
        clear_event(&second);
        client.expect_nothing();
    }
}

/// More ends than the buffer holds are told over several waits; a single close can end any number of watches.
fn ends_are_told_over_several_waits(setup: Setup) {
    let mut client = setup.client();
    client.set_capacity(3);
    let handle = client.adopt(event_fd(0)).unwrap();
    let watch = |index: usize| {
        client.watch_handle(handle, WatchOptions::new(READABLE, MODES[index % 3], index as u64)).unwrap()
    };
    let watches: HashSet<WatchId> = (0..20).map(watch).collect();
    client.close(handle).unwrap();
    let mut ended = HashSet::new();
    while ended.len() < watches.len() {
        let came = client.wait_for(PROMPT);
        assert!((1..=3).contains(&came.len()));
        for event in came {
            assert_eq!((event.kind, event.status), (EventKind::Ended, Code::Cancelled));
            assert!(ended.insert(event.watch), "told twice");
        }
    }
    assert_eq!(ended, watches);
    client.expect_nothing();
}

/// A hundred ready handles and ten wakes and timers with one place in the buffer: all are seen.
fn a_single_place_starves_nobody(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        client.set_capacity(1);
        let ready: Vec<OwnedFd> = (0..100).map(|_| event_fd(1)).collect();
        let mut missing: HashSet<u64> = (0..111).collect();
        for (token, event) in (0..).zip(&ready) {
            client.watch(event, READABLE, mode, token).unwrap();
        }
        for token in 100..110 {
            client.set_timer(Deadline::at_ns(1), token).unwrap();
        }
        client.wake().unwrap();
        let give_up = Instant::now() + PROMPT;
        while !missing.is_empty() {
            let event = client.expect_event();
            missing.remove(&if event.kind == EventKind::Wake { 110 } else { event.token });
            assert!(Instant::now() < give_up, "{mode:?}: these are never seen: {missing:?}");
        }
    }
}

/// A set within a set: an epoll set is a handle like any other, and is ready while something in it is.
fn sets_may_be_nested(setup: Setup) {
    let mut client = setup.client();
    let (inner, outer) = (poll_set(), poll_set());
    let event = event_fd(0);
    add_to_poll_set(&inner, &event);
    add_to_poll_set(&outer, &inner);
    let watch = client.watch(&outer, READABLE, Mode::Level, 1).unwrap();
    client.expect_nothing();
    set_event(&event);
    client.expect_ready(watch, READABLE);
    client.expect_ready(watch, READABLE);
    clear_event(&event);
    client.expect_nothing();
    // A port is such a set too: one client can watch another one's.
    let mut other = setup.client();
    let port = duplicate(&other.descriptor().unwrap());
    let nested = client.watch(&port, READABLE, Mode::Level, 2).unwrap();
    client.expect_nothing();
    other.wake().unwrap();
    client.expect_ready(nested, READABLE);
    assert_eq!(other.expect_event().kind, EventKind::Wake);
    client.expect_nothing();
}

// Traps: something is armed, fires once, and is armed again.

/// One event for each arm, whatever happened in between; arming what is ready fires at once; arming nothing is refused.
fn a_trap_fires_once_per_arm(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let trap = client.watch(&one, READABLE, Mode::Once, 1).unwrap();
    for _ in 0..10 {
        client.arm(trap).unwrap();
        client.expect_nothing();
        for _ in 0..5 {
            write_all(&other, b"x");
        }
        client.expect_ready(trap, READABLE);
        write_all(&other, b"x");
        client.expect_nothing();
        client.arm(trap).unwrap();
        client.arm(trap).unwrap();
        if setup.is_remote() {
            // A service may tell of both, if it has told of the first before it hears of the second.
            let told = client.settle();
            let is_right = |event: &Event| (event.watch, event.satisfied) == (trap, READABLE);
            assert!((1..=2).contains(&told.len()) && told.iter().all(is_right), "{told:#?}");
        } else {
            client.expect_ready(trap, READABLE);
        }
        assert_eq!(read_all(&one), 6);
    }
    client.unwatch(trap).unwrap();
    assert_eq!(client.arm(trap).unwrap_err().code(), Code::NotFound);
}

/// Two hundred traps that are all ready are armed over and over, with little room for what they tell: each gets its turn.
fn two_hundred_traps_take_turns(setup: Setup) {
    const COUNT: usize = 200;
    let mut client = setup.client();
    client.set_capacity(16);
    let ready: Vec<OwnedFd> = (0..COUNT).map(|_| event_fd(1)).collect();
    for (token, event) in (0..).zip(&ready) {
        client.watch(event, READABLE, Mode::Once, token).unwrap();
    }
    let mut told = vec![0_usize; COUNT];
    while told.iter().sum::<usize>() < 5 * COUNT {
        let came = client.wait_for(PROMPT);
        assert!(!came.is_empty());
        for event in came {
            told[usize::try_from(event.token).unwrap()] += 1;
            client.arm(event.watch).unwrap();
        }
    }
    // Where some of them are served by another set than the others they do not get the same number of turns.
    assert!(told.iter().all(|turns| *turns >= 2), "turns are not shared: {told:?}");
}

/// While an event is being handled, its watch and others are armed, ended and added: every one that has ended is silent.
fn watches_are_changed_while_an_event_is_handled(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        client.set_capacity(1);
        let ready: Vec<OwnedFd> = (0..6).map(|_| event_fd(1)).collect();
        let watch = |event: &OwnedFd| client.watch(event, READABLE, mode, 1).unwrap();
        let mut live: Vec<WatchId> = ready.iter().map(watch).collect();
        // Everything but the one that is told ends while its event is handled; then that one ends itself.
        let told = client.expect_event().watch;
        live.retain(|watch| *watch != told);
        for other in live.drain(..) {
            client.unwatch(other).unwrap();
        }
        if mode == Mode::Once {
            client.arm(told).unwrap();
        }
        let new = client.watch(&ready[0], READABLE, mode, 2).unwrap();
        let mut seen = HashSet::new();
        for _ in 0..4 {
            seen.extend(client.wait_for(SILENCE).iter().map(|event| event.watch));
        }
        assert!(seen.iter().all(|watch| [told, new].contains(watch)), "{mode:?}: {seen:?}");
        assert!(seen.contains(&new), "{mode:?}");
        client.unwatch(told).unwrap();
        client.unwatch(new).unwrap();
        client.expect_nothing();
    }
}

/// The end is told in each of three ways (close, stop, drop of the watcher), to armed and to disarmed traps alike, and
/// is the last thing told.
fn the_end_is_always_told_and_last(setup: Setup) {
    for way in 0..3 {
        let watcher = setup.watcher();
        let mut client = setup.attach(&watcher);
        let handle = client.adopt(event_fd(1)).unwrap();
        let options = WatchOptions::new(READABLE, Mode::Once, 1);
        let disarmed = client.watch_handle(handle, options).unwrap();
        client.expect_ready(disarmed, READABLE);
        let undelivered = client.watch_handle(handle, options).unwrap();
        let paused = client.watch_handle(handle, WatchOptions::new(NONE, Mode::Edge, 2)).unwrap();
        client.until_undelivered(Mode::Once, 1);
        match way {
            0 => client.close(handle).unwrap(),
            1 => watcher.stop().unwrap(),
            _ => drop(watcher),
        }
        let mut last = HashMap::new();
        let mut events = Events::with_capacity(8);
        while last.values().filter(|kind| **kind == EventKind::Ended).count() < 3 {
            assert!(client.wait(&mut events, Some(PROMPT)).unwrap() > 0, "an end is missing: {last:?}");
            for event in &events {
                let before = last.insert(event.watch, event.kind);
                assert_ne!(before, Some(EventKind::Ended), "told after the end");
            }
        }
        assert_eq!(
            last.keys().copied().collect::<HashSet<_>>(),
            HashSet::from([disarmed, undelivered, paused])
        );
    }
}

// Run loops: several things at once, timers among them.

/// Three handles that become ready in reverse order are told in that order, once each.
fn three_handles_in_reverse_order(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let events: Vec<OwnedFd> = (0..3).map(|_| event_fd(0)).collect();
        let watch = |event| client.watch(event, READABLE, mode, 1).unwrap();
        let watches: Vec<WatchId> = events.iter().map(watch).collect();
        for place in [2, 1, 0] {
            set_event(&events[place]);
            client.expect_ready(watches[place], READABLE);
            clear_event(&events[place]);
        }
        client.expect_nothing();
    }
}

/// A deadline of one handle, told once; unwatching in answer to it is in order.
fn a_handle_is_unwatched_at_its_deadline(setup: Setup) {
    let mut client = setup.client();
    let idle = event_fd(0);
    for mode in MODES {
        let options = WatchOptions::new(READABLE, mode, 1).deadline(Duration::from_millis(1));
        let watch = client.watch_with(&idle, options).unwrap();
        let event = client.expect_event();
        assert_eq!((event.watch, event.kind), (watch, EventKind::Deadline));
        client.unwatch(watch).unwrap();
        client.expect_nothing();
    }
}

/// Many threads, each with a client of its own and many watches on its own handles, all on one watcher.
fn many_clients_with_many_watches(setup: Setup) {
    const THREADS: usize = 6;
    const WATCHES: usize = 40;
    let watcher = setup.watcher();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let watcher = &watcher;
            scope.spawn(move || {
                let mut client = setup.attach(watcher);
                let events: Vec<OwnedFd> = (0..WATCHES).map(|_| event_fd(0)).collect();
                for (token, event) in (0..).zip(&events) {
                    client.watch(event, READABLE, MODES[(number + events.len()) % 2], token).unwrap();
                }
                for round in 0..5 {
                    events.iter().for_each(set_event);
                    let mut seen = HashSet::new();
                    while seen.len() < WATCHES {
                        for event in client.wait_for(PROMPT) {
                            assert!(seen.insert(event.token), "round {round}: told twice");
                            clear_event(&events[usize::try_from(event.token).unwrap()]);
                            client.arm(event.watch).unwrap();
                        }
                    }
                }
                client.expect_nothing();
            });
        }
    });
}

in_every_setup!(
    what_can_happen_to_a_single_wait,
    a_change_that_changes_nothing_wakes_nobody,
    many_waiters_half_for_each_signal,
    random_calls_on_one_handle,
    a_set_has_what_was_put_into_it,
    an_empty_set_waits,
    a_drained_entry_is_not_told_again,
    ends_are_told_over_several_waits,
    a_single_place_starves_nobody,
    a_trap_fires_once_per_arm,
    two_hundred_traps_take_turns,
    watches_are_changed_while_an_event_is_handled,
    the_end_is_always_told_and_last,
    three_handles_in_reverse_order,
    a_handle_is_unwatched_at_its_deadline,
    many_clients_with_many_watches,
);

in_every_embedded_setup!(each_waiter_is_told_its_own, sets_may_be_nested,);
