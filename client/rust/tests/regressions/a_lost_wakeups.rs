//! C3a, C3e, C4b, C9a, C9b, C9e: group A, wake-ups that were lost.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::support::*;
use crate::sys;
use crate::util::*;

/// libuv/libuv PR#189: the flag "somebody posted" is cleared before the look, so that a post during the look either is
/// seen by it or wakes again.
#[test]
fn a1_libuv_pr_189_the_flag_is_cleared_before_the_look() {
    in_each_setup(|setup| {
        const POSTS: u64 = 2_000;
        const THREADS: usize = 4;
        let mut client = setup.client();
        let posted: [AtomicU64; THREADS] = Default::default();
        let mut counted = 0;
        thread::scope(|scope| {
            for number in &posted {
                let control = client.control().clone();
                scope.spawn(move || {
                    for post in 1..=POSTS {
                        number.store(post, Ordering::Release);
                        control.wake().unwrap();
                    }
                });
            }
            let mut seen = [0; THREADS];
            while seen != [POSTS; THREADS] {
                let event = client.expect_event();
                assert_eq!(event.kind, EventKind::Wake);
                counted += u64::from(event.count);
                let now: [u64; THREADS] = std::array::from_fn(|index| posted[index].load(Ordering::Acquire));
                assert!(now.iter().zip(&seen).all(|(now, seen)| now >= seen), "{seen:?} then {now:?}");
                seen = now;
            }
        });
        counted += client.settle().iter().map(|event| u64::from(event.count)).sum::<u64>();
        assert_eq!(counted, POSTS * THREADS as u64, "every wake is counted once");
    });
}

/// libuv/libuv#4584: what a waiter sees agrees with what is undelivered. A partial hand-out leaves the rest to be told
/// without any new edge, and after the last one the next wait sleeps.
#[test]
fn a2_libuv_4584_a_wait_returns_exactly_while_something_is_undelivered() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        client.set_capacity(2);
        let ready: Vec<_> = (0..5).map(|_| event_fd(1)).collect();
        let watches: Vec<WatchId> =
            ready.iter().map(|event| client.watch(event, READABLE, mode, 2).unwrap()).collect();
        client.until_undelivered(mode, 5);
        let mut told = Vec::new();
        for count in [2, 2, 1] {
            let events = if told.is_empty() { client.wait_for(PROMPT) } else { client.drained() };
            assert!(events.len() == count || mode == Mode::Level, "{events:#?}");
            told.extend(events.iter().map(|event| event.watch));
        }
        told.truncate(5);
        told.sort();
        assert_eq!(told, watches, "each is visited before any is visited twice");
        if mode != Mode::Level {
            client.expect_nothing();
        }
    });
}

/// libuv/libuv#4584: the same for a descriptor that foreign loops poll: readable exactly while something is undelivered,
/// also after a partial hand-out, and also for what was taken back.
#[test]
fn a2_libuv_4584_the_descriptor_is_readable_exactly_while_something_is_undelivered() {
    for setup in [Setup::Exposed, Setup::Off, Setup::Always] {
        for mode in MODES {
            let mut client = setup.client();
            client.set_capacity(1);
            assert!(!is_readable_now(&mut client), "{setup:?}, {mode:?}: nothing is there");
            let ready = [event_fd(1), event_fd(1), event_fd(1)];
            let watches = ready.each_ref().map(|event| client.watch(event, READABLE, mode, 2).unwrap());
            for left in (0..3).rev() {
                until("it is readable", || is_readable_now(&mut client));
                let told = client.drained();
                assert_eq!(told.len(), 1, "{setup:?}, {mode:?}");
                let index = watches.iter().position(|watch| *watch == told[0].watch).unwrap();
                clear_event(&ready[index]);
                if left > 0 {
                    // The watcher may not have come to the others yet.
                    until("the rest is readable", || is_readable_now(&mut client));
                }
            }
            assert!(client.drained().is_empty() && !is_readable_now(&mut client), "{setup:?}, {mode:?}");
            client.wake().unwrap();
            client.arm(watches[0]).unwrap();
            set_event(&ready[0]);
            until("it is readable", || is_readable_now(&mut client));
            client.unwatch(watches[0]).unwrap();
            assert_eq!(client.drained()[0].kind, EventKind::Wake, "what is left is the wake");
            assert!(!is_readable_now(&mut client), "{setup:?}, {mode:?}: the rest was taken back");
        }
    }
}

/// What a foreign loop sees of the port right now.
fn is_readable_now(client: &mut Fixture) -> bool {
    let mut entries = [WaitEntry::new(client.descriptor().unwrap(), READABLE)];
    wait_many(&mut entries, Some(Deadline::at_ns(1))).unwrap().is_some()
}

/// dart-lang/sdk#40589, flutter/flutter#49185: nothing depends on a new edge from a source that was not emptied. Arming
/// and coming back look again.
#[test]
fn a3_dart_sdk_40589_a_pipe_that_is_not_emptied_is_told_of_again() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
        for round in 0..50 {
            write_all(&writer, b"x");
            if mode != Mode::Level && round > 0 {
                client.arm(watch).unwrap();
            }
            assert!(!client.settle().is_empty(), "{mode:?}, round {round}");
        }
    });
}

/// dart-lang/sdk#63656: each signal has its own readiness. Taking "writable" takes nothing of "readable".
#[test]
fn a4_dart_sdk_63656_consuming_writable_must_not_eat_readable() {
    let mut dice = Dice::new(0xa4);
    in_each(|setup, mode| {
        let mut client = setup.client();
        for _ in 0..40 {
            let (ours, peer) = tcp_pair();
            let watch = client.watch(&ours, READABLE | WRITABLE, mode, 4).unwrap();
            let delay = Duration::from_nanos(dice.below(300_000));
            thread::scope(|scope| {
                scope.spawn(|| {
                    spin_for(delay);
                    write_all(&peer, b"x");
                });
                let event = client.expect_event();
                assert!(event.satisfied.contains(WRITABLE), "{event:#?}");
                if !event.satisfied.contains(READABLE) {
                    if mode == Mode::Once {
                        client.arm(watch).unwrap();
                    }
                    expect_signals(&mut client, watch, mode, READABLE);
                }
            });
            client.unwatch(watch).unwrap();
        }
    });
}

/// boostorg/asio#320: a wake is a real write, not a hope that re-adding something ready gives an edge.
#[test]
fn a5_asio_320_a_sleeping_watcher_and_a_parked_client_are_really_woken() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        client.set_timer(Duration::from_secs(3600), 0).unwrap();
        client.settle();
        let control = client.control().clone();
        for round in 1..=100 {
            // From another thread, as the caller's own wait would look anyway.
            thread::scope(|scope| {
                scope.spawn(|| control.set_timer(Duration::ZERO, round).unwrap());
                assert_eq!(client.expect_event().token, round);
                scope.spawn(|| control.wake().unwrap());
                assert_eq!(client.expect_event().kind, EventKind::Wake);
            });
        }
    });
}

/// GNOME/glib PR#21: what is registered while the watcher is about to sleep is waited for in that very sleep.
#[test]
fn a6_glib_pr_21_what_is_added_at_the_edge_of_sleep_is_waited_for() {
    in_each_setup(|setup| {
        let mut dice = Dice::new(0xa6);
        let mut client = setup.client();
        let ready = event_fd(1);
        for round in 0..400 {
            dice.spin_below(Duration::from_micros(30));
            if round % 4 == 0 {
                client.set_timer(Duration::from_micros(dice.below(20)), round).unwrap();
                assert_eq!(client.expect_event().token, round);
            } else {
                let watch = client.watch(&ready, READABLE, Mode::Once, round).unwrap();
                client.expect_ready(watch, READABLE);
                client.unwatch(watch).unwrap();
            }
        }
    });
}

/// GNOME/glib PR#21: the same for the room in the command queue: who waits for it at the edge of the watcher's sleep gets
/// it, also when somebody whose command needs no wake was faster.
#[test]
fn a6_glib_pr_21_who_waits_for_room_in_the_queue_is_not_left_waiting() {
    alone!(a6_glib_pr_21_who_waits_for_room_in_the_queue_is_not_left_waiting, {
        let _watchdog = Watchdog::new();
        const THREADS: usize = 6;
        let watcher = Watcher::spawn(Config { command_limit: 1, ..Setup::Own.config() }).unwrap();
        let client = Client::attach(&watcher).unwrap();
        let control = client.control().clone();
        // They meet after each call, so that whoever is left waiting is not helped by the next one.
        let meeting = Barrier::new(THREADS);
        thread::scope(|scope| {
            for index in 0..THREADS {
                let (watcher, control, meeting) = (&watcher, &control, &meeting);
                scope.spawn(move || {
                    let mut dice = Dice::new(index as u64);
                    for _ in 0..2000 {
                        meeting.wait();
                        for _ in 0..dice.below(4) {
                            dice.spin_below(Duration::from_micros(5));
                            if index % 2 == 0 {
                                // Looked at some time, and wakes nobody.
                                drop(Client::attach(watcher).unwrap());
                            } else {
                                let timer = control.set_timer(Duration::from_secs(3600), 1).unwrap();
                                control.cancel_timer(timer).unwrap();
                            }
                        }
                    }
                });
            }
        });
    });
}

/// smol-rs/async-io#78: delivery does not hang on a counter that other turns move. Everything on one processor, where
/// every step may be interrupted by any other.
#[test]
fn a7_async_io_78_no_wake_is_lost_on_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let processor = (0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor)).unwrap();
    let mut only = CpuSet::new();
    only.set(processor);
    in_each(|setup, mode| {
        let mut client = setup.client_with(|config| config.affinity = Some(vec![processor]));
        let (mut ours, mut peer) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                sched_setaffinity(None, &only).unwrap();
                let mut byte = [0];
                while peer.read(&mut byte).unwrap() > 0 {
                    peer.write_all(&byte).unwrap();
                }
            });
            scope.spawn(|| {
                sched_setaffinity(None, &only).unwrap();
                let watch = client.watch(&ours, READABLE, mode, 7).unwrap();
                for _ in 0..300 {
                    ours.write_all(b"x").unwrap();
                    client.expect_ready(watch, READABLE);
                    ours.read_exact(&mut [0]).unwrap();
                    if mode == Mode::Once {
                        client.arm(watch).unwrap();
                    }
                }
                drop(ours);
            });
        });
    });
}

/// The number of the eventfd that wakes the one watcher of this process.
fn waker_number() -> i32 {
    let is_waker = |number: &i32| {
        let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
        link.is_ok_and(|link| link.to_string_lossy().contains("[eventfd]"))
    };
    let mut found = (0..256).filter(is_waker);
    let number = found.next().expect("the watcher has an eventfd");
    assert_eq!(found.next(), None, "there is one eventfd in this process");
    number
}

/// A thread whose calls may not write to the waker, as in a sandbox. None where the kernel has no filters.
fn sandboxed(work: impl FnOnce() + Send + 'static) -> Option<thread::JoinHandle<()>> {
    let number = waker_number();
    let (is_set_up, set_up) = mpsc::channel();
    let thread = thread::spawn(move || {
        let outcome = sys::forbid_writes_to(number);
        let goes_on = outcome.is_ok();
        is_set_up.send(outcome).unwrap();
        if goes_on {
            work();
        }
    });
    match set_up.recv().unwrap() {
        Ok(()) => Some(thread),
        Err(error) => {
            eprintln!("not tried, as the kernel gives no filter: {error}");
            None
        }
    }
}

/// python/cpython#156054: a wake that cannot be written is reported to the caller, never swallowed. The next caller who
/// may write tries again.
#[test]
fn a8_cpython_156054_a_denied_wake_is_an_error_of_the_call() {
    alone!(a8_cpython_156054_a_denied_wake_is_an_error_of_the_call, {
        let mut client = Setup::Own.client();
        // Asleep without a deadline, so that a timer needs a wake.
        expect_quiet(&client);
        let control = client.control().clone();
        let (tell, told) = mpsc::channel();
        let Some(thread) = sandboxed(move || tell.send(control.set_timer(Duration::ZERO, 1)).unwrap()) else {
            return;
        };
        let answer = told.recv_timeout(PROMPT).expect("the call returns");
        assert_eq!(code_of(answer), Code::Internal);
        thread.join().unwrap();
        assert_eq!(client.client_stats().timers, 0, "a failed call leaves nothing behind");
        client.set_timer(Duration::ZERO, 2).unwrap();
        assert_eq!(client.expect_event().token, 2);
        expect_alive(&mut client);
    });
}

/// python/cpython#156054: the same for the stop. It ends the watcher or says that it could not; it does not wait for
/// ever for a thread that was never told.
#[test]
fn a8_cpython_156054_a_stop_whose_wake_is_denied_does_not_hang() {
    alone!(a8_cpython_156054_a_stop_whose_wake_is_denied_does_not_hang, {
        let watcher = Setup::Own.watcher();
        let mut client = Setup::Own.attach(&watcher);
        expect_alive(&mut client);
        thread::sleep(Duration::from_millis(30));
        let (tell, told) = mpsc::channel();
        let stop = move || {
            let answer = watcher.stop();
            tell.send((watcher, answer)).unwrap();
        };
        if sandboxed(stop).is_none() {
            return;
        }
        let answer = told.recv_timeout(Duration::from_secs(5));
        if answer.is_err() {
            eprintln!("stop hangs: its wake was denied, and nobody was told");
            // Nothing here can be dropped any more without hanging as well.
            std::process::exit(1);
        }
    });
}

/// eclipse-iceoryx/iceoryx2#1811: once `watch` has returned no readiness is missed, also none that is older than the
/// call; and a readiness is told once.
#[test]
fn a9_iceoryx2_1811_readiness_before_during_and_after_the_registration_is_told_once() {
    in_each_setup(|setup| {
        let mut dice = Dice::new(0xa9);
        let mut client = setup.client();
        let (ask, asked) = mpsc::channel::<(std::os::fd::OwnedFd, Duration)>();
        let writer = thread::spawn(move || {
            for (writer, delay) in asked {
                spin_for(delay);
                write_all(&writer, b"x");
            }
        });
        for _ in 0..200 {
            let (reader, writer) = pipe();
            ask.send((writer, Duration::from_nanos(dice.below(40_000)))).unwrap();
            dice.spin_below(Duration::from_micros(40));
            let watch = client.watch(&reader, READABLE, Mode::Once, 9).unwrap();
            let event = client.expect_event();
            assert_eq!(event.watch, watch);
            assert!(event.satisfied.contains(READABLE));
            assert!(client.settle().is_empty(), "told once");
            client.unwatch(watch).unwrap();
        }
        drop(ask);
        writer.join().unwrap();
    });
}

/// eclipse-iceoryx/iceoryx2#694, eclipse-iceoryx/iceoryx2#925: what is undelivered is state of each watch, so telling
/// cannot fail and takes no more room however slow the client is.
#[test]
fn a10_iceoryx2_925_a_client_that_does_not_read_loses_nothing_and_costs_nothing() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let events = [event_fd(0), event_fd(0), event_fd(0)];
        for (token, event) in events.iter().enumerate() {
            client.watch(event, READABLE, Mode::Edge, token as u64).unwrap();
        }
        for round in 0..100_000 {
            set_event(&events[round % 3]);
        }
        client.until_undelivered(Mode::Edge, 3);
        let mut told = tokens(&client.settle());
        told.sort_unstable();
        told.dedup();
        assert_eq!(told, [0, 1, 2]);
        assert_eq!(events.iter().map(clear_event).sum::<u64>(), 100_000, "nothing was read by the watcher");
    });
}
