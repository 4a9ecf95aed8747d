//! C3i, C7a, C7b, C7c, C7d, C8a, C8e: group C, numbers that were closed and used again.
//!
//! C8 asks for a run under a sanitizer too: `make sanitize` runs the stress under it; here only what is told is checked.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::*;
use crate::util::*;

/// golang/go#59545: an event that is in flight for the old owner of a number never reaches the next one.
#[test]
fn c1_go_59545_an_event_in_flight_never_reaches_the_next_owner() {
    in_each_setup(|setup| {
        let mut dice = Dice::new(0xc1);
        let mut client = setup.client();
        let number = PrivateNumber::new();
        for round in 0..200 {
            let mode = MODES[usize::try_from(dice.below(3)).unwrap()];
            let in_order = dice.below(2) == 0;
            let (ours, peer) = socket_pair();
            let old_file = number.take(ours);
            let old = client.watch(&old_file, READABLE, mode, 2 * round).unwrap();
            let delay = Duration::from_nanos(dice.below(20_000));
            let (new_file, writer, new) = thread::scope(|scope| {
                scope.spawn(move || {
                    spin_for(delay);
                    drop(peer);
                });
                dice.spin_below(Duration::from_micros(20));
                if in_order {
                    client.unwatch(old).unwrap();
                }
                drop(old_file);
                let (reader, writer) = pipe();
                let new_file = number.take(reader);
                let new = client.watch(&new_file, READABLE, Mode::Once, 2 * round + 1).unwrap();
                (new_file, writer, new)
            });
            let events = client.settle();
            assert!(events.iter().all(|event| (event.watch, event.token) == (old, 2 * round)), "{events:#?}");
            if in_order {
                assert!(events.is_empty(), "unwatched: {events:#?}");
            } else {
                let ends = events.iter().filter(|event| event.kind == EventKind::Ended);
                assert_eq!(ends.map(|event| event.status).collect::<Vec<_>>(), [Code::NotFound]);
                assert_eq!(events.last().unwrap().kind, EventKind::Ended, "it comes last: {events:#?}");
            }
            write_all(&writer, b"x");
            client.expect_ready(new, READABLE);
            client.unwatch(new).unwrap();
            drop(new_file);
        }
    });
}

fn watch_reader(client: &Fixture, pipe: &Option<(OwnedFd, OwnedFd)>, mode: Mode, token: u64) -> WatchId {
    client.watch(&pipe.as_ref().unwrap().0, READABLE, mode, token).unwrap()
}

/// joyent/libuv#826, creytiv/re PR#266, reem/transfer#9: when the first event of a batch makes its reader end, close and
/// replace the others, nothing of the old ones is handed out any more.
#[test]
fn c2_libuv_826_the_rest_of_a_batch_is_checked_against_what_is_registered_now() {
    const COUNT: usize = 64;
    let numbers: Vec<PrivateNumber> = (0..COUNT).map(|_| PrivateNumber::new()).collect();
    in_each(|setup, mode| {
        for reopens in [false, true] {
            let mut client = setup.client();
            let mut pipes: Vec<_> = numbers
                .iter()
                .map(|number| {
                    let (reader, writer) = pipe();
                    write_all(&writer, b"x");
                    Some((number.take(reader), writer))
                })
                .collect();
            let old: Vec<WatchId> = pipes.iter().map(|pipe| watch_reader(&client, pipe, mode, 1)).collect();
            client.until_undelivered(mode, COUNT as u64);
            client.set_capacity(1);
            assert_eq!(client.drained()[0].watch, old[0]);
            client.set_capacity(COUNT);
            let mut new = Vec::new();
            for (index, watch) in old.iter().enumerate() {
                client.unwatch(*watch).unwrap();
                if reopens {
                    pipes[index] = None;
                    let (reader, writer) = pipe();
                    pipes[index] = Some((numbers[index].take(reader), writer));
                }
                new.push(watch_reader(&client, &pipes[index], mode, 2));
            }
            if reopens {
                client.expect_nothing();
                pipes.iter().flatten().for_each(|(_, writer)| write_all(writer, b"x"));
            }
            let told: Vec<WatchId> = client.settle().iter().map(|event| event.watch).collect();
            let set: BTreeSet<WatchId> = told.iter().copied().collect();
            assert_eq!(set, new.into_iter().collect(), "only new ids");
            assert!(told.len() == COUNT || mode == Mode::Level, "each once: {told:?}");
        }
    });
}

/// libuv/libuv#1172, libuv/libuv PR#2686, MagicStack/uvloop#317: a late end of an old watch is NOT_FOUND and touches
/// nothing of the new one on that number.
#[test]
fn c3_libuv_1172_a_stale_id_touches_nothing_of_its_successor() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let (reader, _writer) = pipe();
        let file = number.take(reader);
        let old = client.watch(&file, READABLE, Mode::Once, 1).unwrap();
        client.unwatch(old).unwrap();
        drop(file);
        let (reader, writer) = pipe();
        let file = number.take(reader);
        let new = client.watch(&file, READABLE, Mode::Once, 2).unwrap();
        let answers = [
            client.unwatch(old),
            client.arm(old),
            client.arm_until(old, Duration::ZERO),
            client.change(old, WRITABLE),
            client.pause(old),
            client.resume(old),
            client.unwatch(old),
        ];
        for answer in answers {
            assert_eq!(code_of(answer), Code::NotFound);
        }
        client.expect_nothing();
        write_all(&writer, b"x");
        client.expect_ready(new, READABLE);
        drop(file);
    });
}

/// libuv/libuv#1172: the same when the stale call races with the end and with the next owner of the same row, which may
/// be a timer.
#[test]
fn c3_libuv_1172_a_pause_that_comes_too_late_does_not_touch_the_next_owner() {
    let mut client = Setup::Own.client();
    let (reader, _writer) = pipe();
    let target = AtomicU64::new(0);
    let is_over = AtomicU64::new(0);
    let control = client.control().clone();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while is_over.load(Ordering::Acquire) == 0 {
                    let watch = WatchId::from_raw(target.load(Ordering::Acquire));
                    // It may be gone by now, which is what this is about.
                    drop(control.pause(watch));
                    drop(control.resume(watch));
                }
            });
        }
        let mut round = || {
            let watch = client.watch(&reader, READABLE, Mode::Once, 3).unwrap();
            target.store(watch.raw(), Ordering::Release);
            thread::sleep(Duration::from_micros(200));
            client.unwatch(watch).unwrap();
            let timer = client.set_periodic(Duration::from_millis(5), Duration::from_secs(3600), 4).unwrap();
            let event = client.expect_event();
            assert_eq!((event.timer(), event.count), (Some(timer), 1), "the period is an hour");
            let extra = client.settle();
            assert!(extra.is_empty(), "the period is an hour: {extra:#?}");
            client.cancel_timer(timer).unwrap();
        };
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..250).for_each(|_| round())));
        is_over.store(1, Ordering::Release);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// python/cpython#88968, twisted/twisted#12681: what counts is the open file, not the number. A watch on a number that
/// was closed and used again works, and the old one is told its end.
#[test]
fn c4_cpython_88968_a_watch_on_a_used_again_number_works() {
    let number = PrivateNumber::new();
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (reader, _old_writer) = pipe();
        let file = number.take(reader);
        let old = client.watch(&file, READABLE, mode, 1).unwrap();
        drop(file);
        let (reader, writer) = pipe();
        let file = number.take(reader);
        let new = client.watch(&file, READABLE, mode, 2).unwrap();
        client.expect_ended(old, Code::NotFound);
        assert_eq!(code_of(client.unwatch(old)), Code::NotFound, "its end was delivered");
        client.expect_nothing();
        write_all(&writer, b"x");
        client.expect_ready(new, READABLE);
        drop(file);
    });
}

/// python/cpython#130141: ids cannot be forged. Another client's, or a guessed one, is refused, and its watch goes on.
#[test]
fn c5_cpython_130141_foreign_and_guessed_ids_touch_nothing() {
    in_each_setup(|setup| {
        let [mut client, mut other] = setup.clients();
        let (reader, writer) = pipe();
        let watch = client.watch(&reader, READABLE, Mode::Once, 1).unwrap();
        let timer = client.set_timer(Duration::from_secs(3600), 2).unwrap();
        let handle = client.adopt(event_fd(0)).unwrap();
        let guessed = (0..64).flat_map(|slot| (0..4).map(move |generation| WatchId::new(slot, generation)));
        let extreme = [0, 1, u64::MAX, u64::MAX << 32].map(WatchId::from_raw);
        for id in guessed.chain(extreme) {
            let answers = [
                other.unwatch(id),
                other.arm(id),
                other.change(id, WRITABLE),
                other.pause(id),
                other.resume(id),
                other.cancel_timer(TimerId::from_raw(id.raw())),
                other.close(HandleId::from_raw(id.raw())),
            ];
            for answer in answers {
                assert_eq!(code_of(answer), Code::NotFound, "{id}");
            }
        }
        assert_eq!(
            code_of(client.unwatch(WatchId::from_raw(timer.raw()))),
            Code::NotFound,
            "a timer is no watch"
        );
        assert_eq!(code_of(client.cancel_timer(TimerId::from_raw(watch.raw()))), Code::NotFound);
        write_all(&writer, b"x");
        client.expect_ready(watch, READABLE);
        client.cancel_timer(timer).unwrap();
        client.close(handle).unwrap();
        expect_alive(&mut other);
    });
}

/// tokio-rs/tokio-core#172: a number that was closed without a word, while a duplicate of its file lives on, is watched
/// again and again without any "exists".
#[test]
fn c6_tokio_core_172_a_used_again_number_is_never_refused_as_existing() {
    in_each_setup(|setup| {
        for unwatches in [true, false] {
            let mut client = setup.client();
            let number = PrivateNumber::new();
            let event = event_fd(1);
            for round in 0..100 {
                let file = number.take_duplicate(&event);
                let watch = client.watch(&file, READABLE, Mode::Once, round).unwrap();
                let told = client.settle();
                assert_eq!(told.iter().filter(|event| event.watch == watch).count(), 1, "{told:#?}");
                if unwatches {
                    client.unwatch(watch).unwrap();
                }
                drop(file);
            }
        }
    });
}

/// tokio-rs/tokio-core#172: the kernel keeps an entry for a closed number while a duplicate of its file lives. When the
/// number goes to another file and then back to a duplicate of the first, that old entry must not make the watch of the
/// other file look alive.
#[test]
fn c6_tokio_core_172_an_entry_that_lived_on_is_not_taken_for_another_file() {
    let number = PrivateNumber::new();
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (first, first_writer) = pipe();
        let (second, _second_writer) = pipe();
        let file = number.take_duplicate(&first);
        let on_first = client.watch(&file, READABLE, mode, 1).unwrap();
        drop(file);
        let file = number.take_duplicate(&second);
        let on_second = client.watch(&file, READABLE, mode, 2).unwrap();
        client.expect_ended(on_first, Code::NotFound);
        drop(file);
        let file = number.take_duplicate(&first);
        let again = client.watch(&file, READABLE, mode, 3).unwrap();
        write_all(&first_writer, b"x");
        let told = client.settle();
        let wrong: Vec<&Event> =
            told.iter().filter(|event| event.watch == on_second && event.kind == EventKind::Ready).collect();
        assert!(wrong.is_empty(), "{mode:?}: the second pipe was never readable: {wrong:#?}");
        assert!(told.iter().any(|event| event.watch == again && event.satisfied == READABLE), "{told:#?}");
        let end = told.iter().find(|event| event.watch == on_second).map(|event| event.status);
        assert_eq!(end, Some(Code::NotFound), "its number was watched again: {told:#?}");
        drop(file);
    });
}

/// MagicStack/uvloop#763, MagicStack/uvloop#645, MagicStack/uvloop#414: a number has one owner. What was lent is never
/// closed by us; what was given is closed once, and a second close does not hit whoever has the number now.
#[test]
fn c7_uvloop_763_only_what_was_given_is_closed_and_only_once() {
    in_each_setup(|setup| {
        let client = setup.client();
        let lent = PrivateNumber::new();
        let given = PrivateNumber::new();
        let lent_file = lent.take(event_fd(1));
        let ended = client.watch(&lent_file, READABLE, Mode::Once, 1).unwrap();
        client.unwatch(ended).unwrap();
        client.watch(&lent_file, READABLE, Mode::Level, 2).unwrap();
        let handle = client.adopt(given.take(event_fd(1))).unwrap();
        let control = client.control().clone();
        let successes = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| match control.close(handle) {
                    Ok(()) => drop(successes.fetch_add(1, Ordering::Relaxed)),
                    Err(status) => assert_eq!(status.code(), Code::NotFound),
                });
            }
        });
        assert_eq!(successes.load(Ordering::Relaxed), 1);
        assert!(!is_open(given.number()));
        let next_owner = given.take(event_fd(7));
        assert_eq!(code_of(client.close(handle)), Code::NotFound);
        drop(client);
        assert_eq!(code_of(control.close(handle)), Code::NotFound);
        assert_eq!(clear_event(&next_owner), 7, "it is still the next owner's");
        assert_eq!(clear_event(&lent_file), 1, "what was lent is still open");
    });
}

/// 7etsuo/tetsuo-pulse PR#227: readable and hung up arrive together; the client ends the watch, or its neighbour, at the
/// first of them.
#[test]
fn c8_tetsuo_pulse_pr_227_a_watch_that_ends_inside_a_batch_is_silent_from_then_on() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        client.set_capacity(1);
        for _ in 0..100 {
            let (ours, peer) = socket_pair();
            let watches = [READABLE, PEER_CLOSED, READABLE | PEER_CLOSED]
                .map(|signals| client.watch(&ours, signals, mode, 8).unwrap());
            write_all(&peer, b"x");
            drop(peer);
            let first = client.expect_event();
            for watch in watches {
                client.unwatch(watch).unwrap();
            }
            assert!(watches.contains(&first.watch));
            assert!(client.settle().is_empty());
        }
    });
}
