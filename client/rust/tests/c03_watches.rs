//! C3: the life of a watch: modes, many watches on one handle, change, pause and resume, and ids that mean nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::time::Instant;

use util::*;

/// C3a: the token comes back untouched, and what was ready before the call is told.
fn a_token_comes_back_untouched(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    for token in [0, 1, u64::from(u32::MAX) + 1, u64::MAX] {
        for mode in MODES {
            let watch = client.watch(&ready, READABLE, mode, token).unwrap();
            assert_eq!(client.expect_ready(watch, READABLE).token, token);
            client.unwatch(watch).unwrap();
        }
    }
}

/// C3a: no readiness is missed between a watch and its first event, whoever is faster.
fn nothing_is_missed_around_the_call(setup: Setup) {
    let mut client = setup.client();
    for round in 0..300 {
        let mode = MODES[round % 3];
        let (reader, writer) = pipe();
        let writing = std::thread::spawn(move || {
            write_all(&writer, b"x");
            writer
        });
        let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
        client.expect_ready(watch, READABLE);
        client.unwatch(watch).unwrap();
        drop(writing.join().unwrap());
    }
}

/// C3b: Once tells once per arm.
fn once_tells_once_per_arm(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Once, 1).unwrap();
    for _ in 0..8 {
        write_all(&writer, b"x");
        client.expect_ready(watch, READABLE);
        write_all(&writer, b"y");
        client.expect_nothing();
        client.arm(watch).unwrap();
        client.expect_ready(watch, READABLE);
        assert_eq!(read_all(&reader), 2);
        client.arm(watch).unwrap();
        client.expect_nothing();
    }
}

/// C3c: Edge tells at each new readiness and not in between, and needs no arm.
fn edge_tells_at_each_new_readiness(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let watch = client.watch(&one, READABLE, Mode::Edge, 1).unwrap();
    for _ in 0..8 {
        write_all(&other, b"x");
        client.expect_ready(watch, READABLE);
        client.expect_nothing();
        // New data beside old data is a new readiness.
        write_all(&other, b"y");
        client.expect_ready(watch, READABLE);
        client.expect_nothing();
        assert_eq!(read_all(&one), 2);
        client.expect_nothing();
    }
}

/// C3d: Level tells as long as the condition holds and the client comes back, by `wait` or by `drain`.
fn level_tells_as_long_as_the_condition_holds(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Level, 1).unwrap();
    for _ in 0..8 {
        write_all(&writer, b"xyz");
        for _ in 0..3 {
            client.expect_ready(watch, READABLE);
        }
        let mut events = Events::with_capacity(8);
        until("drain is a fresh look too", || client.drain(&mut events).unwrap() == 1);
        assert_eq!(read_some(&reader, 1).unwrap().len(), 1);
        client.expect_ready(watch, READABLE);
        assert_eq!(read_all(&reader), 2);
        client.expect_nothing();
    }
}

/// C3d: what was consumed in between is not told again, nor is what other signals of the watch leave.
fn level_does_not_tell_what_was_consumed(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let watch = client.watch(&one, READABLE | WRITABLE, Mode::Level, 1).unwrap();
    client.expect_ready(watch, WRITABLE);
    write_all(&other, b"x");
    until("both hold", || client.expect_event().satisfied == READABLE | WRITABLE);
    assert_eq!(read_all(&one), 1);
    client.expect_ready(watch, WRITABLE);
    fill(&one);
    client.expect_nothing();
    read_all(&other);
    client.expect_ready(watch, WRITABLE);
}

/// C3d: the end of a peer is a condition like any other for a Level watch that asked for it.
fn level_tells_of_an_end_as_long_as_it_was_asked_for(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    drop(other);
    let watch = client.watch(&one, PEER_CLOSED, Mode::Level, 1).unwrap();
    for _ in 0..3 {
        client.expect_ready(watch, PEER_CLOSED);
    }
    client.unwatch(watch).unwrap();
    // A pipe has no half-close: its end is a hang-up.
    let (reader, writer) = pipe();
    drop(writer);
    let watch = client.watch(&reader, PEER_CLOSED, Mode::Level, 1).unwrap();
    for _ in 0..3 {
        client.expect_ready(watch, PEER_CLOSED);
    }
}

/// C3d: so is an error for one that asked for it.
fn level_tells_of_an_error_as_long_as_it_was_asked_for(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    drop(reader);
    let watch = client.watch(&writer, ERROR, Mode::Level, 1).unwrap();
    for _ in 0..3 {
        client.expect_ready(watch, ERROR);
    }
}

/// C3e: a condition that already holds fires at once, at every call that could begin to wait for it.
fn a_condition_that_holds_fires_at_once(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        write_all(&other, b"x");
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        client.expect_ready(watch, READABLE);
        if mode != Mode::Level {
            client.expect_nothing();
        }
        client.arm(watch).unwrap();
        client.expect_ready(watch, READABLE);
        client.change(watch, WRITABLE).unwrap();
        if mode == Mode::Once {
            client.expect_nothing();
            client.arm(watch).unwrap();
        }
        client.expect_ready(watch, WRITABLE);
        client.pause(watch).unwrap();
        client.expect_nothing();
        client.resume(watch).unwrap();
        client.expect_ready(watch, WRITABLE);
    }
}

/// C3f: 64 watches on one handle, of four clients and in every mode: each is told its own, and each ends alone.
fn many_watches_share_one_handle(setup: Setup) {
    let mut clients: [Fixture; 4] = setup.clients();
    let (one, other) = socket_pair();
    fill(&one);
    let mut watches: Vec<Vec<(WatchId, Mode, Signals)>> = Vec::new();
    for client in &clients {
        let watch = |number: usize| {
            let (mode, signals) = (MODES[number % 3], [READABLE, WRITABLE][number % 2]);
            (client.watch(&one, signals, mode, number as u64).unwrap(), mode, signals)
        };
        watches.push((0..16).map(watch).collect());
    }
    for client in &mut clients {
        client.expect_nothing();
    }
    write_all(&other, b"x");
    for (client, watches) in clients.iter_mut().zip(&watches) {
        expect_told(client, watches, READABLE);
    }
    assert_eq!(read_all(&one), 1);
    read_all(&other);
    for (client, watches) in clients.iter_mut().zip(&watches) {
        expect_told(client, watches, WRITABLE);
    }
    fill(&one);
    // Half of them end, among them every one of the first client; the others stay sound.
    for (index, client) in clients.iter_mut().enumerate() {
        client.settle();
        watches[index].retain(|&(watch, mode, _)| {
            if index == 0 || watch.slot() % 2 == 0 {
                client.unwatch(watch).unwrap();
                return false;
            }
            if mode == Mode::Once {
                client.arm(watch).unwrap();
            }
            true
        });
        client.settle();
    }
    write_all(&other, b"y");
    for (client, watches) in clients.iter_mut().zip(&watches) {
        expect_told(client, watches, READABLE);
    }
}

/// C3f: a Once watch that fires leaves one on the same handle armed that waits for something else.
fn one_that_fires_leaves_the_others_armed(setup: Setup) {
    for (first, second) in [(Mode::Once, Mode::Once), (Mode::Once, Mode::Edge), (Mode::Edge, Mode::Once)] {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        fill(&one);
        let reads = client.watch(&one, READABLE, first, 1).unwrap();
        let writes = client.watch(&one, WRITABLE, second, 2).unwrap();
        write_all(&other, b"x");
        client.expect_ready(reads, READABLE);
        client.expect_nothing();
        // An Edge watch may be told again of what it left unread.
        assert_eq!(read_all(&one), 1);
        read_all(&other);
        client.expect_ready(writes, WRITABLE);
        // Room came back in several steps, and each may be a new readiness to an Edge watch.
        let again = client.settle();
        assert!(second == Mode::Edge || again.is_empty(), "told twice: {again:#?}");
        assert!(again.iter().all(|event| event.watch == writes), "nobody else was told: {again:#?}");
        client.expect_nothing();
    }
}

/// Every watch that asked for the signal is told of it, and no other is.
#[track_caller]
fn expect_told(client: &mut Fixture, watches: &[(WatchId, Mode, Signals)], signal: Signals) {
    let expected = watches.iter().filter(|it| it.2 == signal);
    let mut missing: Vec<(WatchId, Mode)> = expected.map(|&(watch, mode, _)| (watch, mode)).collect();
    let until = Instant::now() + PROMPT;
    while !missing.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "these were not told of {signal}: {missing:?}, of {watches:?}");
        for event in client.wait_for(left) {
            assert_eq!(event.satisfied, signal, "{event:#?}");
            assert!(
                watches.contains(&(event.watch, watches_mode(watches, event.watch), signal)),
                "{event:#?}"
            );
            missing.retain(|(watch, _)| *watch != event.watch);
        }
    }
}

fn watches_mode(watches: &[(WatchId, Mode, Signals)], watch: WatchId) -> Mode {
    watches.iter().find(|it| it.0 == watch).expect("a live watch").1
}

/// C3g: change replaces, whatever the mode, and takes back what answers the old question.
fn change_replaces_the_signals(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        fill(&one);
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        client.change(watch, WRITABLE).unwrap();
        write_all(&other, b"x");
        client.expect_nothing();
        read_all(&other);
        client.expect_ready(watch, WRITABLE);
        client.change(watch, READABLE).unwrap();
        if mode == Mode::Once {
            client.expect_nothing();
            client.arm(watch).unwrap();
        }
        client.expect_ready(watch, READABLE);
    }
}

/// C3g: an undelivered Ready is withdrawn, and the watch is armed for the new signals.
fn change_withdraws_an_undelivered_ready(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        fill(&one);
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        write_all(&other, b"x");
        client.until_undelivered(mode, 1);
        client.change(watch, WRITABLE).unwrap();
        assert_eq!(client.client_stats().undelivered, 0);
        client.expect_nothing();
        read_all(&other);
        client.expect_ready(watch, WRITABLE);
        client.unwatch(watch).unwrap();

        // The new condition holds already.
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        client.until_undelivered(mode, 1);
        client.change(watch, WRITABLE).unwrap();
        client.expect_ready(watch, WRITABLE);
    }
}

/// C3g: a Once watch whose Ready was delivered stays disarmed, with the new signals.
fn change_does_not_arm_what_was_told(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    write_all(&other, b"x");
    let watch = client.watch(&one, READABLE, Mode::Once, 1).unwrap();
    client.expect_ready(watch, READABLE);
    client.change(watch, WRITABLE).unwrap();
    client.expect_nothing();
    client.change(watch, READABLE | WRITABLE).unwrap();
    client.expect_nothing();
    client.arm(watch).unwrap();
    client.expect_ready(watch, READABLE | WRITABLE);
}

/// C3h: nothing is told while a watch is paused, not even a hang-up; what still holds is told at resume.
fn a_paused_watch_is_silent(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        client.pause(watch).unwrap();
        write_all(&other, b"x");
        client.expect_nothing();
        // What came and went is not told.
        assert_eq!(read_all(&one), 1);
        client.resume(watch).unwrap();
        client.expect_nothing();
        client.pause(watch).unwrap();
        client.pause(watch).unwrap();
        write_all(&other, b"y");
        drop(other);
        client.expect_nothing();
        client.resume(watch).unwrap();
        client.expect_ready(watch, READABLE | PEER_CLOSED);
    }
}

/// C3h: a watch that was made without signals is paused from birth, and one that is changed to none is paused too.
fn empty_signals_pause(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        let watch = client.watch(&one, NONE, mode, 1).unwrap();
        write_all(&other, b"x");
        drop(other);
        client.expect_nothing();
        client.change(watch, READABLE).unwrap();
        client.expect_ready(watch, READABLE | PEER_CLOSED);
        client.change(watch, NONE).unwrap();
        client.expect_nothing();
        assert_eq!(client.arm(watch).unwrap_err().code(), Code::FailedPrecondition);
        client.change(watch, READABLE).unwrap();
        client.expect_ready(watch, READABLE | PEER_CLOSED);
    }
}

/// C3h: changing to no signals pauses, so resume restores the signals it had, not those of an earlier pause.
fn resume_restores_what_change_to_nothing_paused(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    write_all(&other, b"x");
    let watch = client.watch(&one, WRITABLE, Mode::Level, 1).unwrap();
    client.expect_ready(watch, WRITABLE);
    client.change(watch, NONE).unwrap();
    client.resume(watch).unwrap();
    client.expect_ready(watch, WRITABLE);
    client.pause(watch).unwrap();
    client.change(watch, READABLE).unwrap();
    client.change(watch, NONE).unwrap();
    client.resume(watch).unwrap();
    client.expect_ready(watch, READABLE);
}

/// C3h: a pause takes an undelivered Ready back.
fn a_pause_withdraws_an_undelivered_ready(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let ready = event_fd(1);
        let watch = client.watch(&ready, READABLE, mode, 1).unwrap();
        client.until_undelivered(mode, 1);
        client.pause(watch).unwrap();
        client.expect_nothing();
        client.resume(watch).unwrap();
        client.expect_ready(watch, READABLE);
    }
}

/// C3h: resume leaves a watch alone that is not paused, and cannot invent signals.
fn resume_needs_a_pause(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    let watch = client.watch(&ready, READABLE, Mode::Once, 1).unwrap();
    client.expect_ready(watch, READABLE);
    client.resume(watch).unwrap();
    client.expect_nothing();
    let empty = client.watch(&ready, NONE, Mode::Once, 2).unwrap();
    assert_eq!(client.resume(empty).unwrap_err().code(), Code::FailedPrecondition);
    client.expect_nothing();
}

type Call = (&'static str, fn(&Client, WatchId) -> Result<()>);

/// Every call that takes the id of a watch.
const CALLS: [Call; 6] = [
    ("arm", |client, watch| client.arm(watch)),
    ("arm_until", |client, watch| client.arm_until(watch, Deadline::at_ns(1))),
    ("change", |client, watch| client.change(watch, WRITABLE)),
    ("pause", |client, watch| client.pause(watch)),
    ("resume", |client, watch| client.resume(watch)),
    ("unwatch", |client, watch| client.unwatch(watch)),
];

/// C3i: an id that has ended is NOT_FOUND for every call, and does not reach the slot's next owner.
fn a_stale_id_touches_nothing(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let mut stale: Vec<WatchId> = Vec::new();
    for round in 0..5 {
        let watch = client.watch(&one, READABLE, Mode::Once, round).unwrap();
        client.unwatch(watch).unwrap();
        stale.push(watch);
    }
    let live = client.watch(&one, READABLE, Mode::Once, 9).unwrap();
    assert!(stale.iter().any(|watch| watch.slot() == live.slot()), "the slot was used again");
    assert!(!stale.contains(&live));
    for watch in stale {
        for (name, call) in CALLS {
            assert_eq!(call(&client, watch).unwrap_err().code(), Code::NotFound, "{name}");
        }
    }
    client.expect_nothing();
    write_all(&other, b"x");
    client.expect_ready(live, READABLE);
}

/// C3i: so is another client's id, and one that was made up.
fn a_foreign_id_touches_nothing(setup: Setup) {
    let [mut mine, mut others] = setup.clients();
    let (one, other) = socket_pair();
    let watch = others.watch(&one, READABLE, Mode::Once, 1).unwrap();
    let timer = others.set_timer(Deadline::FARTHEST, 2).unwrap();
    let my_timer = mine.set_timer(Deadline::FARTHEST, 2).unwrap();
    let made_up = [
        watch,
        WatchId::INVALID,
        WatchId::from_raw(u64::MAX),
        WatchId::new(watch.slot(), watch.generation() + 1),
        WatchId::new(watch.slot() + 1000, 1),
        WatchId::new(u32::MAX, 1),
        // The id of a timer is not the id of a watch.
        WatchId::from_raw(timer.raw()),
        WatchId::from_raw(my_timer.raw()),
    ];
    for id in made_up {
        for (name, call) in CALLS {
            assert_eq!(call(&mine, id).unwrap_err().code(), Code::NotFound, "{name} {id}");
        }
    }
    for id in [timer, TimerId::INVALID, TimerId::from_raw(u64::MAX), TimerId::from_raw(watch.raw())] {
        assert_eq!(mine.cancel_timer(id).unwrap_err().code(), Code::NotFound, "{id}");
    }
    mine.expect_nothing();
    write_all(&other, b"x");
    others.expect_ready(watch, READABLE);
    others.unwatch(watch).unwrap();
    others.cancel_timer(timer).unwrap();
    mine.cancel_timer(my_timer).unwrap();
}

/// C3j: arming what is armed succeeds, and what waits undelivered stays one event.
fn arm_keeps_what_is_undelivered(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        client.arm(watch).unwrap();
        client.expect_nothing();
        write_all(&other, b"x");
        client.until_undelivered(mode, 1);
        for _ in 0..10 {
            client.arm(watch).unwrap();
        }
        let mut told = client.settle();
        told.dedup();
        if mode != Mode::Level {
            assert_eq!(told.len(), 1, "{mode:?} {told:#?}");
        }
        assert!(told.iter().all(|event| event.watch == watch && event.satisfied == READABLE));
    }
}

/// C3j: a paused watch cannot be armed.
fn a_paused_watch_cannot_be_armed(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let ready = event_fd(1);
        let watch = client.watch(&ready, READABLE, mode, 1).unwrap();
        client.pause(watch).unwrap();
        assert_eq!(client.arm(watch).unwrap_err().code(), Code::FailedPrecondition);
        let armed = client.arm_until(watch, Deadline::at_ns(1));
        assert_eq!(armed.unwrap_err().code(), Code::FailedPrecondition);
        client.expect_nothing();
        client.resume(watch).unwrap();
        client.expect_ready(watch, READABLE);
    }
}

in_every_setup!(
    a_token_comes_back_untouched,
    nothing_is_missed_around_the_call,
    once_tells_once_per_arm,
    edge_tells_at_each_new_readiness,
    level_tells_as_long_as_the_condition_holds,
    level_does_not_tell_what_was_consumed,
    level_tells_of_an_end_as_long_as_it_was_asked_for,
    level_tells_of_an_error_as_long_as_it_was_asked_for,
    a_condition_that_holds_fires_at_once,
    many_watches_share_one_handle,
    one_that_fires_leaves_the_others_armed,
    change_replaces_the_signals,
    change_withdraws_an_undelivered_ready,
    change_does_not_arm_what_was_told,
    a_paused_watch_is_silent,
    empty_signals_pause,
    resume_restores_what_change_to_nothing_paused,
    a_pause_withdraws_an_undelivered_ready,
    resume_needs_a_pause,
    a_stale_id_touches_nothing,
    arm_keeps_what_is_undelivered,
    a_paused_watch_cannot_be_armed,
);

in_every_embedded_setup!(a_foreign_id_touches_nothing,);
