//! C5b, C5c, C5d, C5e, C6a, C8a, C8d, C15c: group D, closing while somebody else waits, wakes or registers.
//!
//! - D8 compares languages; there is one so far. d2 fixes the names of the errors that all will have to give.

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::*;
use crate::util::*;

/// gevent/gevent#191: who waits for a handle that another thread closes is told, and does not sleep for ever.
#[test]
fn d1_gevent_191_closing_a_handle_tells_every_waiter() {
    in_each(|setup, mode| {
        let [mut client, mut other] = setup.clients();
        let (reader, writer) = socket_pair();
        let number = number_of(&reader);
        let handle = client.adopt(reader).unwrap();
        let watch = client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
        let foreign = other.watch_number(number, WatchOptions::new(READABLE, mode, 2)).unwrap();
        let control = client.control().clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                control.close(handle).unwrap();
            });
            client.expect_ended(watch, Code::Cancelled);
            other.expect_ended(foreign, Code::Cancelled);
        });
        assert!(is_at_end(&writer), "the peer sees the close");
        client.expect_nothing();
        assert_eq!(code_of(client.unwatch(watch)), Code::NotFound);
        expect_alive(&mut other);
    });
}

/// gevent/gevent#191: who ends a watch knows of it, so the waiter is not told, and goes on with what is left.
#[test]
fn d1_gevent_191_unwatching_from_another_thread_leaves_the_waiter_sound() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let (kept, kept_writer) = pipe();
        let control = client.control().clone();
        let watch = client.watch(&reader, READABLE, Mode::Level, 1).unwrap();
        let kept = client.watch(&kept, READABLE, Mode::Once, 2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                control.unwatch(watch).unwrap();
                write_all(&writer, b"x");
                write_all(&kept_writer, b"x");
            });
            client.expect_ready(kept, READABLE);
        });
        client.expect_nothing();
    });
}

type Operation = fn(&Control, WatchId) -> Result<()>;

/// What a client may ask of a watch, by name; each has to go to the kernel.
const OPERATIONS: [(&str, Operation); 5] = [
    ("arm", |control, watch| control.arm(watch)),
    ("arm_until", |control, watch| control.arm_until(watch, Duration::from_secs(3600))),
    ("change", |control, watch| control.change(watch, WRITABLE)),
    ("change to nothing", |control, watch| control.change(watch, NONE)),
    ("pause", |control, watch| control.pause(watch)),
];

/// libuv/libuv#5130, libuv/libuv PR#5129, joyent/libuv#1191: a descriptor that was closed behind our back makes an error
/// of the call and an end of the watch, never an abort.
#[test]
fn d2_libuv_5130_every_operation_on_a_closed_number_is_an_answer() {
    let number = PrivateNumber::new();
    in_each(|setup, mode| {
        for (name, operation) in OPERATIONS {
            let [mut client, mut other] = setup.clients();
            let watch = client.watch(number.take(event_fd(0)), READABLE, mode, 1).unwrap();
            let answer = operation(client.control(), watch);
            assert_eq!(code_of(answer), Code::NotFound, "{name}, {mode:?}");
            client.expect_ended(watch, Code::NotFound);
            assert_eq!(code_of(operation(client.control(), watch)), Code::NotFound, "{name}, {mode:?}");
            let again = client.watch_number(number.number(), WatchOptions::new(READABLE, mode, 2));
            assert_eq!(code_of(again), Code::InvalidArgument);
            client.expect_nothing();
            expect_alive(&mut other);
        }
    });
}

/// joyent/libuv#1191: the same for a paused watch, which is resumed after its descriptor was closed.
#[test]
fn d2_libuv_1191_resuming_on_a_closed_number_is_an_answer() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let file = number.take(event_fd(0));
        let watch = client.watch(&file, READABLE, mode, 1).unwrap();
        client.pause(watch).unwrap();
        drop(file);
        assert_eq!(code_of(client.resume(watch)), Code::NotFound);
        client.expect_ended(watch, Code::NotFound);
        client.expect_nothing();
    });
}

/// Puts something else at a number, or nothing.
type Replacement = fn(PrivateNumber) -> Option<OwnedFd>;

/// gevent/gevent#2100, gevent/gevent#1504: a change on a number that is closed, or is a regular file by now, is an error
/// of that watch; a stricter kernel or library does not make an abort of it.
#[test]
fn d3_gevent_2100_a_change_on_what_became_something_else_is_an_answer() {
    in_each_setup(|setup| {
        let becomes: [(&str, Replacement); 3] = [
            ("closed", |_| None),
            ("a regular file", |number| {
                Some(number.take(std::fs::File::open("/proc/self/exe").unwrap().into()))
            }),
            ("another eventfd", |number| Some(number.take(event_fd(1)))),
        ];
        for (name, replace) in becomes {
            let [mut client, mut other] = setup.clients();
            let number = PrivateNumber::new();
            let watch = client.watch(number.take(event_fd(0)), READABLE, Mode::Once, 1).unwrap();
            let _now = replace(number);
            assert_eq!(code_of(client.change(watch, READABLE | WRITABLE)), Code::NotFound, "{name}");
            client.expect_ended(watch, Code::NotFound);
            client.expect_nothing();
            expect_alive(&mut other);
        }
    });
}

/// joyent/node#4558: that the kernel does not know a number any more matters to nobody who ends a watch; its place is
/// free for the next one.
#[test]
fn d4_node_4558_unwatching_a_closed_number_succeeds_and_frees_its_place() {
    in_each_setup(|setup| {
        let mut client = setup.client_with(|config| config.watch_limit = 4);
        let number = PrivateNumber::new();
        for round in 0..200 {
            let mode = MODES[round % 3];
            let file = number.take(event_fd(1));
            let watch = client.watch(&file, READABLE, mode, 1).unwrap();
            let second = client.watch(&file, WRITABLE, mode, 2).unwrap();
            drop(file);
            client.unwatch(watch).unwrap();
            // The first may have brought to light that the number is gone, which ended the second.
            client.unwatch(second).unwrap();
            assert_eq!(client.client_stats().watches, 0, "round {round}");
        }
        client.expect_nothing();
        expect_alive(&mut client);
    });
}

/// libuv/libuv#4323, libuv/libuv PR#4328: the end of a watch reaches the kernel before the call returns, so a close right
/// after it leaves no entry behind on a file that lives on in a duplicate.
#[test]
fn d5_libuv_4323_an_unwatch_has_reached_the_kernel_when_it_returns() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let (reader, writer) = pipe();
        for _ in 0..100 {
            let file = number.take_duplicate(&reader);
            let watch = client.watch(&file, READABLE, mode, 5).unwrap();
            client.unwatch(watch).unwrap();
            drop(file);
        }
        until_asleep(&client);
        let before = client.stats();
        write_all(&writer, b"x");
        expect_quiet(&client);
        let after = client.stats();
        assert_eq!((after.turns, after.readiness), (before.turns, before.readiness), "{mode:?}");
        client.expect_nothing();
    });
}

/// libuv/libuv#2226, libuv/libuv PR#3879, libuv/libuv PR#5058: waking a client that another thread drops is Ok or
/// UNAVAILABLE, and never touches what the next client gets in its place.
#[test]
fn d6_libuv_2226_a_wake_that_races_with_the_drop_touches_nothing_else() {
    alone!(d6_libuv_2226_a_wake_that_races_with_the_drop_touches_nothing_else, {
        let _watchdog = Watchdog::new();
        in_each_setup(|setup| {
            let watcher = setup.watcher();
            for round in 0..30 {
                let client = Client::attach_with(&watcher, setup.client_config()).unwrap();
                // A client that has no places of its own to give to its watches: they get those that are freed now.
                let mut other = setup.attach(&watcher);
                thread::scope(|scope| {
                    for _ in 0..4 {
                        let control = client.control().clone();
                        scope.spawn(move || {
                            while control.wake().is_ok() {}
                            assert_eq!(code_of(control.wake()), Code::Unavailable);
                        });
                    }
                    thread::sleep(Duration::from_micros(300));
                    drop(client);
                    let (reader, writer) = pipe();
                    let watches = [READABLE, READABLE | WRITABLE, READABLE | PRIORITY]
                        .map(|signals| other.watch(&reader, signals, Mode::Once, round).unwrap());
                    thread::sleep(Duration::from_micros(500));
                    for _ in 0..2 {
                        write_all(&writer, b"x");
                        let events = other.expect_events(3);
                        assert!(
                            events.iter().all(|event| event.satisfied == READABLE),
                            "{round}: {events:#?}"
                        );
                        read_all(&reader);
                        for watch in watches {
                            other.arm(watch).unwrap_or_else(|status| panic!("round {round}: {status}"));
                        }
                    }
                    for watch in watches {
                        other.unwatch(watch).unwrap();
                    }
                });
                assert!(other.settle().is_empty());
            }
        });
    });
}

/// dart-lang/sdk#53190: a thread that ends right after it registered something leaves nothing behind, and closes nothing
/// under somebody else's registration.
#[test]
fn d7_dart_sdk_53190_a_client_that_ends_right_after_registering_leaves_nothing() {
    alone!(d7_dart_sdk_53190_a_client_that_ends_right_after_registering_leaves_nothing, {
        let watcher = Setup::Own.watcher();
        let mut other = Setup::Own.attach(&watcher);
        expect_alive(&mut other);
        expect_no_leak(|| {
            for round in 0..200 {
                thread::scope(|scope| {
                    for mode in MODES {
                        let watcher = &watcher;
                        scope.spawn(move || {
                            let client = Client::attach(watcher).unwrap();
                            let event = event_fd(round % 2);
                            client.watch(&event, READABLE | WRITABLE, mode, 7).unwrap();
                            let handle = client.adopt(event_fd(1)).unwrap();
                            client.watch_handle(handle, WatchOptions::new(READABLE, mode, 8)).unwrap();
                            client.set_timer(Duration::ZERO, 9).unwrap();
                        });
                    }
                });
            }
        });
        make_a_turn(&mut other);
        assert_eq!(watcher.stats().clients, 1);
        let stats = watcher.stats();
        assert_eq!((stats.watches, stats.timers, stats.undelivered), (0, 0, 0));
        expect_alive(&mut other);
    });
}

/// dart-lang/sdk#53190: the same when one thread registers through a control handle while another drops the client.
#[test]
fn d7_dart_sdk_53190_registering_with_a_client_that_is_dropped_meanwhile() {
    alone!(d7_dart_sdk_53190_registering_with_a_client_that_is_dropped_meanwhile, {
        let _watchdog = Watchdog::new();
        in_each_setup(|setup| {
            let watcher = setup.watcher();
            let mut other = setup.attach(&watcher);
            let event = event_fd(1);
            for _ in 0..60 {
                let client = Client::attach_with(&watcher, setup.client_config()).unwrap();
                let control = client.control().clone();
                let (begin, begun) = mpsc::channel();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        begin.send(()).unwrap();
                        for round in 0.. {
                            let mode = MODES[round % 3];
                            let watched = control.watch(&event, READABLE, mode, 1).map(drop);
                            let set = watched.and_then(|()| control.set_timer(Duration::ZERO, 2)).map(drop);
                            let armed = set.and_then(|()| {
                                let deadline = WatchOptions::new(WRITABLE, mode, 3).deadline(Duration::ZERO);
                                control.watch_with(&event, deadline).map(drop)
                            });
                            if let Err(status) = armed {
                                assert_eq!(status.code(), Code::Unavailable);
                                return;
                            }
                        }
                    });
                    begun.recv().unwrap();
                    drop(client);
                });
            }
            make_a_turn(&mut other);
            assert_eq!(watcher.stats().clients, 1);
            let stats = watcher.stats();
            assert_eq!((stats.watches, stats.timers, stats.undelivered), (0, 0, 0));
            expect_alive(&mut other);
        });
    });
}

/// dart-lang/sdk#53190: what a client that ended had, its place included, is there for the next one at once.
#[test]
fn d7_dart_sdk_53190_a_client_that_ended_makes_room_for_the_next_at_once() {
    in_each_setup(|setup| {
        let watcher = Watcher::spawn(Config { client_limit: 2, ..setup.config() }).unwrap();
        let mut kept = setup.attach(&watcher);
        for round in 0..50 {
            let client = Client::attach_with(&watcher, setup.client_config())
                .unwrap_or_else(|status| panic!("client {round} of two at a time: {status}"));
            let second = Client::attach(&watcher).map(drop);
            assert_eq!(code_of(second), Code::ResourceExhausted);
            drop(client);
        }
        expect_alive(&mut kept);
    });
}
