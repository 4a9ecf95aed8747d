//! C3, C6, C7, C9g, C11b: watches in a client's front, on their way there and back, and beside others in the back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use util::*;

/// Longer than the gap after which a Once watch counts as cold.
const LONG_GAP: Duration = Duration::from_millis(1200);

/// So many rounds heat a watch even on a machine that is busy with something else.
const HEATING_ROUNDS: usize = 2000;

/// Fires and arms a Once watch of an eventfd until it is served by the front.
#[track_caller]
fn heat(client: &mut Fixture, event: &OwnedFd, watch: WatchId) -> usize {
    let before = client.client_stats().from_front;
    for round in 1..=HEATING_ROUNDS {
        set_event(event);
        client.expect_ready(watch, READABLE);
        clear_event(event);
        client.arm(watch).unwrap();
        if client.client_stats().from_front > before {
            return round;
        }
    }
    panic!("the watch did not come to the front: {:#?}", client.client_stats());
}

/// A zero-timeout look with poll(2).
fn is_readable(client: &mut Fixture) -> bool {
    is_readable_within(&client.descriptor().unwrap(), Duration::ZERO)
}

#[test]
fn a_hot_watch_moves_to_the_front_and_a_cold_one_back() {
    let mut client = Setup::Own.client();
    let event = event_fd(0);
    let watch = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    let rounds = heat(&mut client, &event, watch);
    assert!(rounds > 4, "moved before it had earned it, in round {rounds}");
    let readiness = client.stats().readiness;
    set_event(&event);
    client.expect_ready(watch, READABLE);
    assert_eq!(client.stats().readiness, readiness, "the watcher saw nothing of it");
    std::thread::sleep(LONG_GAP);
    clear_event(&event);
    client.arm(watch).unwrap();
    let from_front = client.client_stats().from_front;
    set_event(&event);
    client.expect_ready(watch, READABLE);
    assert_eq!(client.client_stats().from_front, from_front, "it is cold and the back serves it");
    assert!(client.stats().readiness > readiness);
}

#[test]
fn heat_belongs_to_a_watch_and_not_to_its_descriptor() {
    let mut client = Setup::Own.client();
    let event = event_fd(0);
    let cold = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    let hot = client.watch(&event, READABLE, Mode::Once, 2).unwrap();
    set_event(&event);
    assert_eq!(client.expect_events(2).len(), 2);
    clear_event(&event);
    client.arm(hot).unwrap();
    heat(&mut client, &event, hot);
    client.arm(cold).unwrap();
    let from_front = client.client_stats().from_front;
    set_event(&event);
    expect_both(&mut client, cold, hot);
    assert_eq!(client.client_stats().from_front, from_front + 1, "one of them sits in the front");
}

#[test]
fn level_sits_in_the_front_from_the_start() {
    let mut client = Setup::Own.client();
    let (reader, writer) = pipe();
    write_all(&writer, b"x");
    let watch = client.watch(&reader, READABLE, Mode::Level, 1).unwrap();
    assert_eq!(client.drained().len(), 1, "what holds already is there at once, without a hop");
    for _ in 0..10 {
        client.expect_ready(watch, READABLE);
    }
    assert_eq!(client.client_stats().from_front, 11);
    assert_eq!(client.stats().readiness, 0, "the watcher saw nothing of it");
    read_all(&reader);
    client.expect_nothing();
}

#[test]
fn off_serves_nothing_in_the_front_and_always_everything() {
    for (setup, in_front) in [(Setup::Off, false), (Setup::Always, true)] {
        for mode in MODES {
            let mut client = setup.client();
            let event = event_fd(1);
            let watch = client.watch(&event, READABLE, mode, 1).unwrap();
            client.expect_ready(watch, READABLE);
            assert_eq!(client.client_stats().from_front > 0, in_front, "{setup:?} {mode:?}");
        }
    }
}

/// Exactly one event of each, in any order.
#[track_caller]
fn expect_both(client: &mut Fixture, one: WatchId, other: WatchId) {
    let told = client.expect_events(2);
    assert!([one, other].iter().all(|watch| told.iter().any(|event| event.watch == *watch)), "{told:#?}");
}

/// Waits until a watch is told once more; gives everything that came.
#[track_caller]
fn until_told(client: &mut Fixture, watch: WatchId) -> Vec<Event> {
    let mut events = Vec::new();
    let give_up = Instant::now() + PROMPT;
    while events.iter().all(|event: &Event| event.watch != watch) {
        events.extend(client.wait_for(PROMPT));
        assert!(Instant::now() < give_up, "{watch:?} was not told: {events:#?}");
    }
    events
}

/// The order in which modes meet on one number decides where each of them sits; nobody may notice.
fn every_mode_on_one_number_in_every_order(setup: Setup) {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let mut watches = [None; 3];
        for index in order {
            watches[index] = Some(client.watch(&reader, READABLE, MODES[index], index as u64).unwrap());
        }
        let [once, edge, level] = watches.map(Option::unwrap);
        for round in 0..3 {
            write_all(&writer, b"x");
            let (mut told, give_up) = (BTreeMap::<WatchId, u32>::new(), Instant::now() + PROMPT);
            while told.len() < 3 {
                client.wait_for(PROMPT).iter().for_each(|event| *told.entry(event.watch).or_default() += 1);
                assert!(
                    Instant::now() < give_up,
                    "{setup:?} {order:?} {round}: only {told:?} of {watches:?}"
                );
            }
            assert_eq!(told[&once], 1, "{order:?}");
            // Edge may tell again beside the others, Once may not.
            let again = until_told(&mut client, level);
            assert!(again.iter().all(|event| event.watch != once), "{again:#?}");
            read_all(&reader);
            client.settle();
            client.arm(once).unwrap();
            client.expect_nothing();
        }
        client.unwatch(level).unwrap();
        write_all(&writer, b"x");
        expect_both(&mut client, once, edge);
    }
}

/// What one watch was told uses the kernel's one-shot entry up, and another still waits for something else.
fn once_watches_of_one_number_wait_for_different_things(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    fill(&one);
    let readable = client.watch(&one, READABLE, Mode::Once, 1).unwrap();
    let writable = client.watch(&one, WRITABLE, Mode::Once, 2).unwrap();
    write_all(&other, b"x");
    client.expect_ready(readable, READABLE);
    client.expect_nothing();
    read_all(&other);
    client.expect_ready(writable, WRITABLE);
    client.expect_nothing();
}

/// The same, when only the heat of the two has brought them to the front.
#[test]
fn hot_once_watches_of_one_number_wait_for_different_things() {
    let mut client = Setup::Own.client();
    let (one, other) = socket_pair();
    let readable = client.watch(&one, READABLE, Mode::Once, 1).unwrap();
    let writable = client.watch(&one, WRITABLE, Mode::Once, 2).unwrap();
    let mut from_front = 0;
    for _ in 0..HEATING_ROUNDS {
        let before = client.client_stats().from_front;
        write_all(&other, b"x");
        client.expect_events(2);
        read_all(&one);
        client.arm(readable).unwrap();
        client.arm(writable).unwrap();
        from_front = client.client_stats().from_front - before;
        if from_front == 2 {
            break;
        }
    }
    assert_eq!(from_front, 2, "both sit in the front");
    client.expect_ready(writable, WRITABLE);
    fill(&one);
    client.arm(writable).unwrap();
    write_all(&other, b"x");
    client.expect_ready(readable, READABLE);
    read_all(&other);
    client.expect_ready(writable, WRITABLE);
}

fn level_watches_of_one_number_take_turns_in_small_buffers(setup: Setup) {
    let mut client = setup.client();
    let (shared, alone) = (event_fd(1), event_fd(1));
    let mut watches: Vec<WatchId> =
        (0..3).map(|token| client.watch(&shared, READABLE, Mode::Level, token).unwrap()).collect();
    watches.push(client.watch(&alone, READABLE, Mode::Level, 3).unwrap());
    for capacity in [1, 2, 3] {
        client.set_capacity(capacity);
        let mut visits = BTreeMap::<WatchId, u32>::new();
        for _ in 0..40 {
            client.wait_for(PROMPT).iter().for_each(|event| *visits.entry(event.watch).or_default() += 1);
        }
        for watch in &watches {
            assert!(
                visits.contains_key(watch),
                "{setup:?}, room for {capacity}: {watch:?} never came: {visits:?}"
            );
        }
    }
}

fn clients_on_one_number_are_independent(setup: Setup) {
    let [mut one, mut other, mut third] = setup.clients();
    let (reader, writer) = pipe();
    let level = one.watch(&reader, READABLE, Mode::Level, 1).unwrap();
    let once = other.watch(&reader, READABLE, Mode::Once, 2).unwrap();
    let edge = third.watch(&reader, READABLE, Mode::Edge, 3).unwrap();
    write_all(&writer, b"x");
    one.expect_ready(level, READABLE);
    other.expect_ready(once, READABLE);
    third.expect_ready(edge, READABLE);
    assert_eq!(one.arm(once).unwrap_err().code(), Code::NotFound, "it is another client's");
    one.expect_ready(level, READABLE);
    one.unwatch(level).unwrap();
    one.expect_nothing();
    read_all(&reader);
    other.settle();
    other.arm(once).unwrap();
    write_all(&writer, b"x");
    other.expect_ready(once, READABLE);
    third.expect_ready(edge, READABLE);
    drop(other);
    read_all(&reader);
    write_all(&writer, b"x");
    third.expect_ready(edge, READABLE);
    one.expect_nothing();
}

fn a_watch_is_changed_paused_resumed_and_ended(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        write_all(&other, b"x");
        let watch = client.watch(&one, READABLE, mode, 1).unwrap();
        client.until_undelivered(mode, 1);
        client.change(watch, PRIORITY).unwrap();
        client.expect_nothing();
        client.change(watch, WRITABLE).unwrap();
        client.expect_ready(watch, WRITABLE);
        client.pause(watch).unwrap();
        client.expect_nothing();
        client.change(watch, READABLE).unwrap();
        client.pause(watch).unwrap();
        client.expect_nothing();
        client.resume(watch).unwrap();
        client.expect_ready(watch, READABLE);
        client.arm(watch).unwrap();
        if mode != Mode::Level {
            client.until_undelivered(mode, 1);
        }
        client.unwatch(watch).unwrap();
        client.expect_nothing();
        assert_eq!(client.arm(watch).unwrap_err().code(), Code::NotFound);
    }
}

fn a_deadline_disarms_and_an_arm_brings_back(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let soon = Deadline::after(Duration::from_millis(5));
        let options = WatchOptions::new(READABLE, mode, 1).deadline(soon);
        let watch = client.watch_with(&reader, options).unwrap();
        let event = client.expect_event();
        assert_eq!(
            (event.watch, event.kind, event.satisfied),
            (watch, EventKind::Deadline, NONE),
            "{mode:?}"
        );
        write_all(&writer, b"x");
        client.expect_nothing();
        client.arm_until(watch, Deadline::after(PROMPT * 100)).unwrap();
        client.expect_ready(watch, READABLE);
        read_all(&reader);
        client.arm_until(watch, Deadline::after(Duration::from_millis(5))).unwrap();
        let event = client.expect_event();
        assert_eq!((event.watch, event.kind), (watch, EventKind::Deadline), "{mode:?}");
        drop(writer);
        client.expect_nothing();
        client.arm(watch).unwrap();
        client.expect_ready(watch, PEER_CLOSED);
    }
}

/// C6b: what nobody can consume is told once per arm, and then an idle process uses no processor time.
fn a_hang_up_nobody_can_consume_is_told_once_per_arm(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        fill(&writer);
        let watch = client.watch(&writer, WRITABLE, mode, 1).unwrap();
        drop(reader);
        client.expect_ready(watch, ERROR);
        client.expect_nothing();
        client.expect_quiet_while_waiting(Duration::from_millis(150));
        client.arm(watch).unwrap();
        client.expect_ready(watch, ERROR);
        client.expect_nothing();
        client.change(watch, WRITABLE).unwrap();
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
        client.expect_ready(watch, ERROR);
        client.expect_quiet_while_waiting(Duration::from_millis(150));
    }
}

/// C6b: silence ends when something that was asked for appears, and returns with it.
fn a_silent_level_watch_speaks_again(setup: Setup) {
    let mut client = setup.client();
    let (master, slave) = pty();
    let watch = client.watch(&master, READABLE, Mode::Level, 1).unwrap();
    drop(slave);
    client.expect_ready(watch, PEER_CLOSED);
    client.expect_nothing();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let open = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let slave = rustix::fs::open(name, open, rustix::fs::Mode::empty()).unwrap();
    client.expect_nothing();
    write_all(&slave, b"x");
    client.expect_ready(watch, READABLE);
    client.expect_ready(watch, READABLE);
    read_all(&master);
    client.expect_nothing();
    drop(slave);
    client.expect_ready(watch, PEER_CLOSED);
    client.expect_quiet_while_waiting(Duration::from_millis(100));
}

/// C7: a number closed behind our back and used again.
fn a_number_used_again_belongs_to_the_new_watch(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let (first_reader, first_writer) = pipe();
        let first = number.take(first_reader);
        let old = client.watch(&first, READABLE, mode, 1).unwrap();
        // Its place is taken by another file, which closes it.
        let (second_reader, second_writer) = pipe();
        std::mem::forget(first);
        let second = number.take(second_reader);
        let new = client.watch(&second, READABLE, mode, 2).unwrap();
        client.expect_ended(old, Code::NotFound);
        write_all(&second_writer, b"x");
        client.expect_ready(new, READABLE);
        assert_eq!(client.unwatch(old).unwrap_err().code(), Code::NotFound);
        read_all(&second);
        client.settle();
        drop(first_writer);
        client.expect_nothing();
        client.unwatch(new).unwrap();
    }
}

/// C7b, for a watch that only its heat has brought to the front.
#[test]
fn a_hot_watch_whose_number_was_closed_ends_at_its_next_operation() {
    let mut client = Setup::Own.client();
    let number = PrivateNumber::new();
    let event = number.take(event_fd(0));
    let watch = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    heat(&mut client, &event, watch);
    drop(event);
    assert_eq!(client.arm(watch).unwrap_err().code(), Code::NotFound);
    client.expect_ended(watch, Code::NotFound);
    let event = number.take(event_fd(1));
    let watch = client.watch(&event, READABLE, Mode::Once, 2).unwrap();
    client.expect_ready(watch, READABLE);
}

/// Makes a Level entry that no number can take out: its file has unread data and lives on under another number.
fn poison(client: &mut Fixture, number: PrivateNumber) -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe();
    write_all(&writer, b"x");
    let watched = number.take_duplicate(&reader);
    let watch = client.watch(&watched, READABLE, Mode::Level, 99).unwrap();
    drop(watched);
    // The number is closed: taken back or ended by that, the watch leaves its entry behind.
    let _: Result<()> = client.unwatch(watch);
    (reader, writer)
}

/// Until a look shows what the entry is, its file makes the descriptor readable. That ends soon.
#[track_caller]
fn until_cured(client: &mut Fixture) {
    let mut for_nothing = 0;
    while is_readable(client) {
        assert_eq!(client.drained(), [], "what was taken back is not told");
        for_nothing += 1;
        assert!(for_nothing < 4, "the descriptor is readable for nothing, again and again");
    }
}

/// C7e.
fn a_closed_number_with_a_living_duplicate_makes_nothing_spin(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Level, 1).unwrap();
    let kept = poison(&mut client, PrivateNumber::new());
    if setup.is_exposed() {
        until_cured(&mut client);
    }
    client.expect_quiet_while_waiting(Duration::from_millis(300));
    write_all(&writer, b"x");
    client.expect_ready(watch, READABLE);
    read_all(&reader);
    client.expect_nothing();
    drop(kept);
}

/// The foreign loop's descriptor stays what it was, in sets of either trigger, while what is behind it is replaced.
fn a_foreign_loop_works_on_through_a_rebuild(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Level, 1).unwrap();
    let by_level = poll_set();
    let by_edge = poll_set();
    let number = number_of(&client.descriptor().unwrap());
    add_to_poll_set(&by_level, &client.descriptor().unwrap());
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&by_edge, client.descriptor().unwrap(), epoll::EventData::new_u64(0), edge).unwrap();
    for round in 0..3 {
        let kept = poison(&mut client, PrivateNumber::new());
        until_cured(&mut client);
        assert_eq!(number_of(&client.descriptor().unwrap()), number);
        while is_readable_within(&by_edge, Duration::ZERO) {
            let mut room = Vec::with_capacity(4);
            epoll::wait(&by_edge, rustix::buffer::spare_capacity(&mut room), None).unwrap();
        }
        write_all(&writer, b"x");
        assert!(is_readable_within(&by_level, PROMPT), "{setup:?} {round}");
        assert!(is_readable_within(&by_edge, PROMPT), "{setup:?} {round}");
        client.expect_ready(watch, READABLE);
        read_all(&reader);
        client.expect_nothing();
        assert!(!is_readable(&mut client), "{setup:?} {round}");
        drop(kept);
    }
}

/// A rebuild carries over what it can prove, and binds no old watch to whatever has its number now (C7c, C7d).
fn a_rebuild_gives_no_number_to_an_old_watch(setup: Setup) {
    let mut client = setup.client();
    let number = PrivateNumber::new();
    let (old_reader, _old_writer) = pipe();
    let first = number.take(old_reader);
    let old = client.watch(&first, READABLE, Mode::Level, 1).unwrap();
    std::mem::forget(first);
    let (new_reader, new_writer) = pipe();
    let second = number.take(new_reader);
    let kept = poison(&mut client, PrivateNumber::new());
    let mut events = Vec::new();
    for _ in 0..8 {
        events.extend(client.drained());
    }
    events.extend(client.settle());
    write_all(&new_writer, b"x");
    events.extend(client.settle());
    events.extend(client.wait_for(SILENCE));
    let told = events.iter().filter(|event| event.watch == old && event.kind == EventKind::Ready).count();
    assert_eq!(told, 0, "{setup:?}: the old watch was told of the new file");
    drop((second, kept));
}

/// C9g: of what is ready from the start and served by one set, nothing is handed out twice before everything was handed
/// out once. Gives the batches.
#[track_caller]
fn expect_everything_before_anything_twice(
    client: &mut Fixture,
    lanes: &[&[WatchId]],
    what: &str,
) -> Vec<Vec<WatchId>> {
    let mut visits: BTreeMap<WatchId, u32> =
        lanes.iter().flat_map(|lane| lane.iter()).map(|watch| (*watch, 0)).collect();
    let mut left: Vec<usize> = lanes.iter().map(|lane| lane.len()).collect();
    let mut batches = Vec::new();
    while left.iter().sum::<usize>() > 0 {
        let events = client.wait_for(PROMPT);
        assert!(!events.is_empty(), "{what}: {left:?} never came");
        for event in &events {
            let lane = lanes.iter().position(|lane| lane.contains(&event.watch)).unwrap();
            let count = visits.get_mut(&event.watch).unwrap();
            *count += 1;
            assert!(*count == 1 || left[lane] == 0, "{what}: {:?} again while {left:?} wait", event.watch);
            left[lane] -= usize::from(*count == 1);
        }
        batches.push(events.iter().map(|event| event.watch).collect());
    }
    batches
}

fn queue_and_front_take_turns(setup: Setup) {
    for (levels, onces) in [(8, 8), (3, 12), (12, 3)] {
        for capacity in [1, 2, 3] {
            let mut client = setup.client();
            client.set_capacity(capacity);
            let events: Vec<OwnedFd> = (0..levels + onces).map(|_| event_fd(1)).collect();
            let mut watches = Vec::new();
            for (index, event) in events.iter().enumerate() {
                let mode = if index < onces { Mode::Once } else { Mode::Level };
                watches.push(client.watch(event, READABLE, mode, index as u64).unwrap());
            }
            // Until what the watcher serves has come through.
            if !setup.serves_in_front(Mode::Once) {
                until("the queue is full", || client.client_stats().undelivered >= onces as u64);
            }
            let what = format!("{setup:?}, {levels} Level and {onces} Once, room for {capacity}");
            let (once, level) = watches.split_at(onces);
            let batches = expect_everything_before_anything_twice(&mut client, &[once, level], &what);
            // While both wait, neither is left out of two batches in a row.
            let both = batches.len().min(2 * onces.min(levels) / capacity);
            for pair in batches[..both.saturating_sub(1)].windows(2) {
                let seen = pair.concat();
                let has_both = [once, level].iter().all(|lane| seen.iter().any(|watch| lane.contains(watch)));
                assert!(has_both || setup != Setup::Own, "{what}: one side was left out: {batches:?}");
            }
        }
    }
}

/// C9g, C11b.
fn a_thousand_ready_come_one_by_one(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        client.set_capacity(1);
        let events: Vec<OwnedFd> = (0..1000).map(|_| event_fd(1)).collect();
        let watches: Vec<WatchId> = events
            .iter()
            .enumerate()
            .map(|(token, event)| client.watch(event, READABLE, mode, token as u64).unwrap())
            .collect();
        expect_everything_before_anything_twice(&mut client, &[&watches], &format!("{setup:?} {mode:?}"));
        for event in &events {
            clear_event(event);
        }
        client.set_capacity(64);
        client.settle();
        client.expect_nothing();
    }
}

#[test]
fn a_port_that_nobody_asked_for_its_descriptor_has_one_later() {
    let mut client = Setup::Own.client();
    let event = event_fd(0);
    let watch = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    heat(&mut client, &event, watch);
    client.wake().unwrap();
    assert_eq!(client.expect_event().kind, EventKind::Wake);
    assert!(!is_readable(&mut client), "nothing is there");
    set_event(&event);
    assert!(is_readable_within(&client.descriptor().unwrap(), PROMPT));
    client.expect_ready(watch, READABLE);
    assert!(!is_readable(&mut client));
}

in_every_setup!(
    every_mode_on_one_number_in_every_order,
    once_watches_of_one_number_wait_for_different_things,
    level_watches_of_one_number_take_turns_in_small_buffers,
    a_watch_is_changed_paused_resumed_and_ended,
    a_deadline_disarms_and_an_arm_brings_back,
    a_hang_up_nobody_can_consume_is_told_once_per_arm,
    a_silent_level_watch_speaks_again,
    a_number_used_again_belongs_to_the_new_watch,
    a_closed_number_with_a_living_duplicate_makes_nothing_spin,
    a_foreign_loop_works_on_through_a_rebuild,
    a_rebuild_gives_no_number_to_an_old_watch,
    queue_and_front_take_turns,
);
in_every_embedded_setup!(clients_on_one_number_are_independent);

in_every_setup_alone!(a_thousand_ready_come_one_by_one);
