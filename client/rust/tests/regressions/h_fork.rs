//! C14d, C14e, C1d, C8b: group H, fork and exec. Each test forks in a process of its own.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::*;
use crate::util::*;

/// tokio-rs/tokio PR#8204, tokio-rs/tokio#4301: a fork is noticed and refused: the child takes none of the parent's
/// events, whatever it calls.
#[test]
fn h1_tokio_4301_the_child_is_refused_and_steals_nothing() {
    alone!(h1_tokio_4301_the_child_is_refused_and_steals_nothing, {
        for setup in [Setup::Off, Setup::Always, Setup::Exposed] {
            let watcher = setup.watcher();
            let mut client = setup.attach(&watcher);
            let (reader, writer) = pipe();
            let watch = client.watch(&reader, READABLE, Mode::Once, 1).unwrap();
            let timer = client.set_timer(Duration::from_secs(3600), 2).unwrap();
            let handle = client.adopt(event_fd(0)).unwrap();
            for _ in 0..8 {
                write_all(&writer, b"x");
                if setup == Setup::Off {
                    client.until_undelivered(Mode::Once, 1);
                }
                let child = Forked::run(|| {
                    let mut events = Events::with_capacity(8);
                    let options = WatchOptions::new(READABLE, Mode::Once, 3);
                    let answers = [
                        client.drain(&mut events).map(drop),
                        client.wait(&mut events, None).map(drop),
                        client.wait(&mut events, Some(Duration::ZERO)).map(drop),
                        client.watch(&reader, READABLE, Mode::Once, 3).map(drop),
                        client.watch_number(-1, options).map(drop),
                        client.watch_handle(handle, options).map(drop),
                        client.adopt(event_fd(0)).map(drop).map_err(|refused| refused.status),
                        client.close(handle),
                        client.arm(watch),
                        client.arm_until(watch, Duration::ZERO),
                        client.change(watch, WRITABLE),
                        client.pause(watch),
                        client.resume(watch),
                        client.unwatch(watch),
                        client.set_timer(Duration::ZERO, 4).map(drop),
                        client.set_periodic(Duration::ZERO, Duration::from_secs(1), 4).map(drop),
                        client.cancel_timer(timer),
                        client.wake(),
                        watcher.stop(),
                        watcher.client(ClientConfig::default()).map(drop),
                    ];
                    for (index, answer) in answers.into_iter().enumerate() {
                        assert_eq!(code_of(answer), Code::FailedPrecondition, "call {index}");
                    }
                });
                child.expect_success();
                client.expect_ready(watch, READABLE);
                assert_eq!(read_all(&reader), 1);
                client.arm(watch).unwrap();
            }
            client.cancel_timer(timer).unwrap();
            client.close(handle).unwrap();
            watcher.stop().unwrap();
        }
    });
}

/// libuv/libuv#3483: what was pending at the fork stays the parent's. The child's own watcher starts from nothing and
/// waits for nothing that cannot come.
#[test]
fn h2_libuv_3483_the_childs_own_watcher_starts_from_nothing() {
    alone!(h2_libuv_3483_the_childs_own_watcher_starts_from_nothing, {
        let mut client = Setup::Own.client();
        client.wake().unwrap();
        client.wake().unwrap();
        client.set_timer(Duration::ZERO, 1).unwrap();
        until("both are told of", || client.client_stats().undelivered == 2);
        for _ in 0..5 {
            let child = Forked::run(|| {
                let mut own = Setup::Own.client();
                let stats = own.stats();
                assert_eq!((stats.clients, stats.watches, stats.timers, stats.undelivered), (1, 0, 0, 0));
                own.expect_nothing();
                expect_alive(&mut own);
                own.wake().unwrap();
                assert_eq!(own.expect_event().count, 1);
                // A grandchild is a fork of the child.
                let grandchild = Forked::run(|| {
                    assert_eq!(code_of(own.wake()), Code::FailedPrecondition);
                    assert_eq!(code_of(client.wake()), Code::FailedPrecondition);
                    expect_alive(&mut Setup::Own.client());
                });
                grandchild.expect_success();
                expect_alive(&mut own);
            });
            child.expect_success();
        }
        let events = client.expect_events(2);
        assert_eq!((events[0].kind, events[0].count), (EventKind::Wake, 2));
        assert_eq!(events[1].kind, EventKind::Timer);
    });
}

/// gevent/gevent#1686: a child that drops the parent's client only closes descriptors. The kernel's sets are shared with
/// the parent, whose watches and data stay as they were.
#[test]
fn h3_gevent_1686_dropping_the_client_in_the_child_changes_nothing_for_the_parent() {
    alone!(h3_gevent_1686_dropping_the_client_in_the_child_changes_nothing_for_the_parent, {
        for setup in SETUPS {
            let mut client = Some(setup.client());
            let (reader, writer) = pipe();
            let (given, given_writer) = pipe();
            let number = number_of(&given);
            let own = client.as_ref().unwrap();
            let watches = MODES.map(|mode| own.watch(&reader, READABLE, mode, 1).unwrap());
            let handle = own.adopt(given).unwrap();
            let on_given = own.watch_handle(handle, WatchOptions::new(READABLE, Mode::Once, 2)).unwrap();
            let timer = own.set_timer(Duration::from_millis(100), 3).unwrap();
            for _ in 0..3 {
                let child = Forked::run(|| {
                    drop(client.take());
                    assert!(!is_open(number), "what was given is closed");
                });
                child.expect_success();
            }
            let client = client.as_mut().unwrap();
            assert!(is_open(number));
            write_all(&writer, b"x");
            let mut told: Vec<WatchId> = client
                .settle()
                .iter()
                .map(|event| event.watch)
                .filter(|id| id.raw() != timer.raw())
                .collect();
            told.sort();
            told.dedup();
            assert_eq!(told, watches, "{setup:?}");
            assert_eq!(read_all(&reader), 1);
            write_all(&given_writer, b"x");
            let mut told = Vec::new();
            while !told.contains(&on_given) {
                told.extend(client.wait_for(PROMPT).iter().map(|event| event.watch));
            }
            client.close(handle).unwrap();
        }
    });
}

/// gevent/gevent#1686: and it does close them, all of them: a child that goes on for long keeps none of ours open.
#[test]
fn h3_gevent_1686_dropping_the_client_in_the_child_closes_every_descriptor_of_it() {
    alone!(h3_gevent_1686_dropping_the_client_in_the_child_closes_every_descriptor_of_it, {
        for setup in SETUPS {
            let descriptors = descriptor_count();
            let mut client = Some(setup.client());
            client.as_ref().unwrap().adopt(event_fd(0)).unwrap();
            client.as_mut().unwrap().settle();
            let child = Forked::run(|| {
                drop(client.take());
                assert_eq!(descriptor_count(), descriptors, "{setup:?}");
            });
            child.expect_success();
        }
    });
}

/// MagicStack/uvloop PR#268: nothing of ours runs between fork and exec, so a program that starts others from several
/// threads while the watcher is busy never freezes.
#[test]
fn h4_uvloop_pr_268_starting_programs_while_the_watcher_is_busy_never_freezes() {
    alone!(h4_uvloop_pr_268_starting_programs_while_the_watcher_is_busy_never_freezes, {
        let _watchdog = Watchdog::new();
        let mut client = Setup::Own.client();
        let is_over = AtomicBool::new(false);
        client.set_periodic(Duration::ZERO, Duration::from_micros(20), 1).unwrap();
        let event = event_fd(1);
        let control = client.control().clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let watch = control.watch(&event, READABLE, Mode::Once, 2).unwrap();
                    control.unwatch(watch).unwrap();
                }
            });
            let starters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            assert!(Command::new("true").status().unwrap().success());
                        }
                    })
                })
                .collect();
            while !starters.iter().all(|starter| starter.is_finished()) {
                client.wait_for(Duration::from_millis(10));
            }
            is_over.store(true, Ordering::Release);
        });
    });
}

/// benoitc/gunicorn PR#654: parent and child each with a watcher of its own watch the same descriptor, and neither sees an
/// "exists".
#[test]
fn h5_gunicorn_pr_654_parent_and_child_watch_the_same_descriptor() {
    alone!(h5_gunicorn_pr_654_parent_and_child_watch_the_same_descriptor, {
        let mut client = Setup::Own.client();
        let ready = event_fd(1);
        let idle = event_fd(0);
        let on_ready = client.watch(&ready, READABLE, Mode::Once, 1).unwrap();
        client.expect_ready(on_ready, READABLE);
        let children: Vec<Forked> = (0..4)
            .map(|_| {
                Forked::run(|| {
                    let mut own = Setup::Own.client();
                    let watch = own.watch(&ready, READABLE, Mode::Once, 2).unwrap();
                    own.expect_ready(watch, READABLE);
                    let watch = own.watch(&idle, READABLE, Mode::Edge, 3).unwrap();
                    own.expect_nothing();
                    own.unwatch(watch).unwrap();
                })
            })
            .collect();
        let on_idle = client.watch(&idle, READABLE, Mode::Edge, 4).unwrap();
        children.into_iter().for_each(Forked::expect_success);
        client.expect_nothing();
        set_event(&idle);
        client.expect_ready(on_idle, READABLE);
        client.arm(on_ready).unwrap();
        client.expect_ready(on_ready, READABLE);
    });
}

/// tokio-rs/tokio#3809: every descriptor of ours is close-on-exec from birth, so no program that is started gets one.
#[test]
fn h6_tokio_3809_every_descriptor_of_ours_is_close_on_exec() {
    alone!(h6_tokio_3809_every_descriptor_of_ours_is_close_on_exec, {
        let open = || (0..64).filter(|&number| is_open(number)).collect::<Vec<i32>>();
        let before = open();
        let mut client = Setup::Shared.client();
        let _changes = FileChanges::new().unwrap();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let _child = ChildProcess::of(&child).unwrap();
        client.set_timer(Duration::ZERO, 1).unwrap();
        client.expect_event();
        let ours: Vec<i32> = open().into_iter().filter(|number| !before.contains(number)).collect();
        assert!(ours.len() >= 4, "a poll set, a waker, a pidfd, an inotify: {ours:?}");
        for number in ours {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            let flags = i32::from_str_radix(flags, 8).unwrap();
            assert_ne!(flags & libc::O_CLOEXEC, 0, "descriptor {number} would be inherited:\n{info}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

/// MagicStack/uvloop#40: flags of descriptors that are not ours are left alone: a program that is started later gets its
/// standard streams, and what blocked before blocks still.
#[test]
fn h7_uvloop_40_flags_of_lent_and_given_descriptors_are_left_alone() {
    alone!(h7_uvloop_40_flags_of_lent_and_given_descriptors_are_left_alone, {
        let mut client = Setup::Own.client();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let before = [flags_of(&reader), flags_of(&writer)];
        for mode in MODES {
            let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
            write_all(&writer, b"x");
            client.expect_ready(watch, READABLE);
            rustix::io::read(&reader, &mut [0; 1]).unwrap();
            client.pause(watch).unwrap();
            client.resume(watch).unwrap();
            client.unwatch(watch).unwrap();
        }
        let number = number_of(&writer);
        let handle = client.adopt(writer).unwrap();
        client.watch_handle(handle, WatchOptions::new(WRITABLE, Mode::Once, 2)).unwrap();
        client.expect_event();
        // A second owner of the number is never closed, so that the first stays the only one.
        let seen = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        assert!(seen.contains("flags:\t01\n") || seen.contains("flags:\t0100001\n"), "{seen}");
        assert_eq!(flags_of(&reader), before[0]);
        drop(client);
        assert!(is_at_end(&reader), "what was given is closed with the client");
    });
}
