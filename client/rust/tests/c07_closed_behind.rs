//! C7: a lent descriptor that is closed while it is watched harms its own watch and nobody else. C5c, C5d: that watch
//! ends, at the latest when it or its number is touched again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use util::*;

/// A watched descriptor at a number of its own, and its other side.
struct Lent {
    number: PrivateNumber,
    watched: OwnedFd,
    other: OwnedFd,
}

impl Lent {
    fn new() -> Self {
        let number = PrivateNumber::new();
        let (one, other) = socket_pair();
        Self { number, watched: number.take(one), other }
    }
}

type Call = (&'static str, fn(&Client, WatchId) -> Result<()>);

/// The operations that touch a live watch.
const CALLS: [Call; 4] = [
    ("arm", |client, watch| client.arm(watch)),
    ("arm_until", |client, watch| client.arm_until(watch, Deadline::FARTHEST)),
    ("change", |client, watch| client.change(watch, WRITABLE)),
    ("pause", |client, watch| client.pause(watch)),
];
const RESUME: Call = ("resume", |client, watch| client.resume(watch));

/// The watch ends with NOT_FOUND at this call: the call says so, and so does its last event.
#[track_caller]
fn expect_end_at(client: &mut Fixture, (name, call): Call, watch: WatchId, mode: Mode) {
    let result = call(client, watch);
    assert_eq!(result.map_err(|status| status.code()), Err(Code::NotFound), "{name} {mode:?}");
    client.expect_ended(watch, Code::NotFound);
    assert_eq!(call(client, watch).unwrap_err().code(), Code::NotFound, "{name} {mode:?}, again");
    client.expect_nothing();
}

/// C7b, C5d: closed, and nothing else happened: the next operation on the watch ends it.
fn the_next_operation_notices(setup: Setup) {
    for mode in MODES {
        for call in CALLS {
            let mut client = setup.client();
            let lent = Lent::new();
            let watch = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
            client.expect_nothing();
            drop(lent.watched);
            expect_end_at(&mut client, call, watch, mode);
        }
    }
}

/// C5d: resuming a watch that is not paused is an operation too, though it has nothing else to do than to look.
fn a_resume_without_a_pause_notices(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let lent = Lent::new();
        let watch = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
        drop(lent.watched);
        expect_end_at(&mut client, RESUME, watch, mode);
    }
}

/// C7b: a paused watch is noticed at its resume or change.
fn a_paused_watch_is_noticed_too(setup: Setup) {
    for mode in MODES {
        for call in [CALLS[2], RESUME] {
            let mut client = setup.client();
            let lent = Lent::new();
            let watch = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
            client.pause(watch).unwrap();
            drop(lent.watched);
            expect_end_at(&mut client, call, watch, mode);
        }
    }
}

/// C5b: unwatch succeeds, since the caller knows, and nothing is told.
fn unwatch_succeeds_after_the_close(setup: Setup) {
    for mode in MODES {
        for reuse in [false, true] {
            let mut client = setup.client();
            let lent = Lent::new();
            let watch = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
            drop(lent.watched);
            let new = reuse.then(|| lent.number.take(event_fd(1)));
            client.unwatch(watch).unwrap();
            client.expect_nothing();
            assert_eq!(new.map(|new| clear_event(&new)), reuse.then_some(1), "the new file was not touched");
        }
    }
}

/// C7c, C7d: closed, and another file has the number: nothing of it reaches the old watch, and no operation on the old
/// id reaches it.
fn a_new_file_is_not_the_old_one(setup: Setup) {
    for mode in MODES {
        for call in CALLS {
            let mut client = setup.client();
            let lent = Lent::new();
            let watch = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
            drop(lent.watched);
            let (one, other) = socket_pair();
            let new = lent.number.take(one);
            write_all(&other, b"new");
            let told = client.settle();
            assert!(told.iter().all(|event| event.kind == EventKind::Ended), "{mode:?} {told:#?}");
            if told.is_empty() {
                expect_end_at(&mut client, call, watch, mode);
            }
            assert_eq!(read_all(&new), 3);
        }
    }
}

/// C7a, C7b, C7c: the number is watched again: the new watch works, the old one ends, and each is told its own.
fn a_new_watch_on_the_number_works(setup: Setup) {
    for old_mode in MODES {
        for new_mode in MODES {
            let mut client = setup.client();
            let lent = Lent::new();
            let old = client.watch(&lent.watched, READABLE, old_mode, 1).unwrap();
            drop(lent.watched);
            let (one, other) = socket_pair();
            let new_file = lent.number.take(one);
            let new = client.watch(&new_file, READABLE, new_mode, 2).unwrap();
            client.expect_ended(old, Code::NotFound);
            client.expect_nothing();
            for call in CALLS {
                assert_eq!(call.1(&client, old).unwrap_err().code(), Code::NotFound, "{}", call.0);
            }
            write_all(&other, b"x");
            let event = client.expect_ready(new, READABLE);
            assert_eq!(event.token, 2);
            assert_eq!(read_all(&new_file), 1);
        }
    }
}

/// C7b: the same when the new watch is another client's: the old one ends on its own port.
fn another_client_watches_the_number(setup: Setup) {
    for mode in MODES {
        let [mut first, mut second] = setup.clients();
        let lent = Lent::new();
        let old = first.watch(&lent.watched, READABLE, mode, 1).unwrap();
        drop(lent.watched);
        let (one, other) = socket_pair();
        let new_file = lent.number.take(one);
        let new = second.watch(&new_file, READABLE, mode, 2).unwrap();
        first.expect_ended(old, Code::NotFound);
        write_all(&other, b"x");
        second.expect_ready(new, READABLE);
        first.expect_nothing();
    }
}

/// C7b: noticed when its number is watched again, even if that is refused, because a file has it now.
fn a_refused_watch_on_the_number_notices_too(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let lent = Lent::new();
        let old = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
        drop(lent.watched);
        let folder = lent.number.take(std::fs::File::open("/").unwrap().into());
        let refused = client.watch(&folder, READABLE, mode, 2).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        client.expect_ended(old, Code::NotFound);
    }
}

/// C5c: the cause is the close, whatever has the number now.
fn a_file_that_cannot_be_watched_took_the_number(setup: Setup) {
    for mode in MODES {
        for call in CALLS {
            let mut client = setup.client();
            let lent = Lent::new();
            let old = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
            drop(lent.watched);
            let folder = lent.number.take(std::fs::File::open("/").unwrap().into());
            expect_end_at(&mut client, call, old, mode);
            drop(folder);
        }
    }
}

/// C7b, C9: a Level watch that is handed out and then closed is noticed when the client comes back, or stays silent.
fn coming_back_to_a_closed_level_watch(setup: Setup) {
    let mut client = setup.client();
    let lent = Lent::new();
    write_all(&lent.other, b"x");
    let watch = client.watch(&lent.watched, READABLE, Mode::Level, 1).unwrap();
    client.expect_ready(watch, READABLE);
    drop(lent.watched);
    let told = client.settle();
    assert!(told.iter().all(|event| event.kind == EventKind::Ended), "{told:#?}");
    if told.is_empty() {
        expect_end_at(&mut client, CALLS[0], watch, Mode::Level);
    }
    client.expect_nothing();
}

/// C7a: `dup2` over a watched number is a close and a reuse in one.
fn a_duplicate_over_the_number(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let lent = Lent::new();
        let old = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
        let (one, other) = socket_pair();
        let new_file = lent.number.take(one);
        // The number changed its owner.
        let _closed = std::os::fd::IntoRawFd::into_raw_fd(lent.watched);
        let new = client.watch(&new_file, READABLE, mode, 2).unwrap();
        client.expect_ended(old, Code::NotFound);
        write_all(&other, b"x");
        client.expect_ready(new, READABLE);
    }
}

/// The open file has become readable, so a Ready is true, and a Level watch may tell it a bounded number of times
/// before it finds out. Gives true if it did.
#[track_caller]
fn until_silent(client: &mut Fixture, watch: WatchId, mode: Mode) -> bool {
    let (mut ready, mut ended) = (0, 0);
    loop {
        let told = client.settle();
        if told.is_empty() {
            break;
        }
        assert!(told.iter().all(|event| event.watch == watch));
        ready += told.iter().filter(|event| event.kind == EventKind::Ready).count();
        ended += told.iter().filter(|event| event.kind == EventKind::Ended).count();
        assert!(ready <= if mode == Mode::Level { 2048 } else { 1 }, "{mode:?}: told {ready} times");
    }
    assert!(ended <= 1);
    ended == 1
}

/// C7e: the number is closed, its open file lives on in a duplicate, and data keeps coming: nothing spins, nothing is
/// told for ever, and the number can be watched again.
fn a_living_duplicate_makes_nothing_spin(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let lent = Lent::new();
        let duplicate = duplicate(&lent.watched);
        let old = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
        drop(lent.watched);
        write_all(&lent.other, b"x");
        let has_ended = until_silent(&mut client, old, mode);
        client.expect_quiet_while_waiting(Duration::from_millis(120));
        let (one, other) = socket_pair();
        let new_file = lent.number.take(one);
        let new = client.watch(&new_file, READABLE, mode, 2).unwrap();
        if !has_ended {
            client.expect_ended(old, Code::NotFound);
        }
        write_all(&lent.other, b"old");
        client.expect_nothing();
        write_all(&other, b"x");
        client.expect_ready(new, READABLE);
        assert_eq!(read_all(&new_file), 1);
        write_all(&lent.other, b"old");
        client.expect_nothing();
        client.expect_quiet_while_waiting(Duration::from_millis(120));
        assert_eq!(read_all(&duplicate), 7, "its data is still there");
    }
}

/// C7e: the same with a hang-up, which a level trigger would report for ever, asked for or not.
fn a_hung_up_duplicate_makes_nothing_spin(setup: Setup) {
    for (mode, wished) in MODES.into_iter().flat_map(|mode| [(mode, READABLE), (mode, PRIORITY)]) {
        let mut client = setup.client();
        let lent = Lent::new();
        let duplicate = duplicate(&lent.watched);
        let old = client.watch(&lent.watched, wished, mode, 1).unwrap();
        drop(lent.watched);
        drop(lent.other);
        until_silent(&mut client, old, mode);
        client.expect_quiet_while_waiting(Duration::from_millis(120));
        client.expect_quiet_for(Duration::from_millis(100));
        assert!(is_at_end(&duplicate));
    }
}

/// C7e: nor is a Level watch told for ever of a closed number beside others that are rightly told again and again.
fn a_living_duplicate_is_found_among_ready_handles(setup: Setup) {
    for place in 0..3 {
        let mut client = setup.client();
        let ready = [event_fd(1), event_fd(1)];
        let lent = Lent::new();
        let duplicate = duplicate(&lent.watched);
        write_all(&lent.other, b"x");
        let mut order = vec![ready[0].as_fd(), ready[1].as_fd()];
        order.insert(place, lent.watched.as_fd());
        let watch = |descriptor| client.watch(descriptor, READABLE, Mode::Level, 1).unwrap();
        let watches: Vec<WatchId> = order.into_iter().map(watch).collect();
        let old = watches[place];
        drop(lent.watched);
        let mut told = 0;
        'waits: loop {
            for event in client.wait_for(PROMPT) {
                if event.watch == old {
                    if event.kind == EventKind::Ended {
                        break 'waits;
                    }
                    told += 1;
                }
            }
            assert!(told < 20_000, "place {place}: told {told} times of a number that is closed");
        }
        drop(duplicate);
    }
}

/// C7a: the same file comes back to its number: a watch on it works, and no event is told twice.
fn the_same_file_comes_back(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let lent = Lent::new();
        let duplicate = duplicate(&lent.watched);
        let old = client.watch(&lent.watched, READABLE, mode, 1).unwrap();
        drop(lent.watched);
        let back = lent.number.take_duplicate(&duplicate);
        let new = client.watch(&back, READABLE, mode, 2).unwrap();
        let ended = client.settle();
        assert!(ended.iter().all(|event| (event.watch, event.kind) == (old, EventKind::Ended)), "{ended:#?}");
        write_all(&lent.other, b"x");
        let told = client.settle();
        assert_eq!(told.iter().filter(|event| event.watch == new).count().min(1), 1, "{told:#?}");
        client.unwatch(new).unwrap();
        if ended.is_empty() {
            client.unwatch(old).unwrap();
        }
        client.settle();
        write_all(&lent.other, b"y");
        client.expect_nothing();
    }
}

/// C5e: a deadline passes on a watch whose number was closed: it is told, and so is the end, once, last.
fn a_deadline_on_a_closed_number(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let lent = Lent::new();
        let options = WatchOptions::new(READABLE, mode, 1).deadline(Duration::from_millis(20));
        let watch = client.watch_with(&lent.watched, options).unwrap();
        drop(lent.watched);
        let mut kinds: Vec<EventKind> = client.wait_for(PROMPT).iter().map(|event| event.kind).collect();
        kinds.extend(client.settle().iter().map(|event| event.kind));
        assert!(kinds.contains(&EventKind::Deadline) || kinds == [EventKind::Ended], "{kinds:?}");
        if *kinds.last().unwrap() != EventKind::Ended {
            assert_eq!(client.arm(watch).unwrap_err().code(), Code::NotFound);
            client.expect_ended(watch, Code::NotFound);
        }
        assert!(kinds.iter().filter(|kind| **kind == EventKind::Ended).count() <= 1, "{kinds:?}");
        client.expect_nothing();
    }
}

/// C7c: over and over, the number is closed with data unread and used again at once: nothing old is told of anything new.
fn no_event_crosses_over(setup: Setup) {
    let mut client = setup.client();
    let number = PrivateNumber::new();
    let mut old = None;
    for round in 0..600_u64 {
        let (one, other) = socket_pair();
        let file = number.take(one);
        let mode = MODES[(round % 3) as usize];
        let watch = client.watch(&file, READABLE, mode, round).unwrap();
        for event in client.drained() {
            assert_ne!(event.watch, watch, "round {round}: told of what the old file held: {event:#?}");
            if event.kind == EventKind::Ended {
                assert_eq!((Some(event.watch), event.status), (old, Code::NotFound));
            }
        }
        if round % 4 == 0 {
            let told = client.settle();
            assert!(told.iter().all(|event| event.watch != watch), "round {round}: {told:#?}");
        }
        write_all(&other, b"x");
        if round % 3 == 0 {
            std::thread::yield_now();
        }
        drop(file);
        old = Some(watch);
    }
}

in_every_setup!(
    the_next_operation_notices,
    a_resume_without_a_pause_notices,
    a_paused_watch_is_noticed_too,
    unwatch_succeeds_after_the_close,
    a_new_file_is_not_the_old_one,
    a_new_watch_on_the_number_works,
    a_refused_watch_on_the_number_notices_too,
    a_file_that_cannot_be_watched_took_the_number,
    coming_back_to_a_closed_level_watch,
    a_duplicate_over_the_number,
    a_living_duplicate_makes_nothing_spin,
    a_hung_up_duplicate_makes_nothing_spin,
    a_living_duplicate_is_found_among_ready_handles,
    the_same_file_comes_back,
    a_deadline_on_a_closed_number,
    no_event_crosses_over,
);

in_every_embedded_setup!(another_client_watches_the_number,);
