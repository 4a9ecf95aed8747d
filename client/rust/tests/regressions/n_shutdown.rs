//! C5c, C8a, C9a, C14a, C14b, C14c, C14g: group N, stopping, dropping, and what may be called when.
//!
//! - N9, waiting inside a wait, does not compile: a wait borrows the client for itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use crate::sys;
use crate::util::*;

/// servo/ipc-channel PR#413, servo/ipc-channel PR#260, servo/servo#16154: a stop ends the thread and joins it, whoever calls
/// it and however often, and whoever waits returns.
#[test]
fn n1_ipc_channel_pr_413_a_stop_ends_the_thread_and_every_wait() {
    for _ in 0..20 {
        let config = Setup::Own.config();
        let name = config.thread_name.clone();
        let watcher = Watcher::spawn(config).unwrap();
        assert!(find_thread(&name).is_some());
        let mut clients: Vec<Fixture> = (0..4).map(|_| Setup::Own.attach(&watcher)).collect();
        let idle = event_fd(0);
        let watches: Vec<WatchId> =
            clients.iter().map(|client| client.watch(&idle, READABLE, Mode::Level, 1).unwrap()).collect();
        thread::scope(|scope| {
            for (client, watch) in clients.iter_mut().zip(watches) {
                scope.spawn(move || {
                    client.expect_ended(watch, Code::Aborted);
                    let mut events = Events::with_capacity(4);
                    assert_eq!(code_of(client.wait(&mut events, None)), Code::Unavailable);
                    assert_eq!(code_of(client.drain(&mut events)), Code::Unavailable);
                });
            }
            thread::sleep(Duration::from_millis(2));
            for _ in 0..3 {
                scope.spawn(|| {
                    watcher.stop().unwrap();
                });
            }
        });
        // The kernel shows a thread that was joined for a moment more.
        until("the thread is gone", || find_thread(&name).is_none());
        watcher.stop().unwrap();
        drop(watcher);
        for client in &clients {
            assert_eq!(code_of(client.watch(&idle, READABLE, Mode::Once, 1)), Code::Unavailable);
            assert_eq!(code_of(client.set_timer(Duration::ZERO, 1)), Code::Unavailable);
        }
    }
}

/// servo/ipc-channel PR#418: a panic of one client's thread takes that client along, and nobody else.
#[test]
fn n2_ipc_channel_pr_418_a_panic_of_a_clients_thread_hurts_no_other() {
    in_each_setup(|setup| {
        let [client, mut other] = setup.clients();
        let event = event_fd(1);
        let outcome = thread::spawn(move || {
            let mut client = client;
            client.watch(&event, READABLE, Mode::Level, 1).unwrap();
            client.adopt(event).unwrap();
            client.set_periodic(Duration::ZERO, Duration::from_micros(100), 2).unwrap();
            client.wait_for(PROMPT);
            std::panic::resume_unwind(Box::new("on purpose"));
        })
        .join();
        assert!(outcome.is_err());
        make_a_turn(&mut other);
        let stats = other.stats();
        assert_eq!((stats.clients, stats.watches, stats.timers), (1, 0, 0));
        expect_alive(&mut other);
        expect_quiet(&other);
    });
}

/// Everything a client may call, on itself and on others, in the middle of handling events.
fn everything(control: &Control, event: &Event, descriptor: &std::os::fd::OwnedFd, dice: &mut Dice) {
    let id = event.watch;
    // Another thread may have ended it a moment ago; that is an answer too.
    let answers = [
        control.arm(id),
        control.change(id, READABLE | WRITABLE),
        control.pause(id),
        control.resume(id),
        control.arm_until(id, Duration::from_micros(dice.below(50))),
        control.wake(),
    ];
    for answer in answers {
        let code = answer.map_or_else(|status| status.code(), |()| Code::Ok);
        assert!(matches!(code, Code::Ok | Code::NotFound | Code::FailedPrecondition), "{code:?}");
    }
    if dice.below(3) == 0 || control.client_stats().watches > 20 {
        drop(control.unwatch(id));
    }
    if control.client_stats().watches < 20 {
        let mode = MODES[usize::try_from(dice.below(3)).unwrap()];
        control.watch(descriptor, READABLE, mode, 1).unwrap();
    }
    let timer = control.set_timer(Duration::from_micros(dice.below(50)), 2).unwrap();
    if dice.below(2) == 0 {
        drop(control.cancel_timer(timer));
    }
    if dice.below(8) == 0 {
        let handle = control.adopt(event_fd(1)).unwrap();
        control.watch_handle(handle, WatchOptions::new(READABLE, Mode::Level, 3)).unwrap();
        control.close(handle).unwrap();
    }
}

/// eclipse-iceoryx/iceoryx#2202: every call is legal while events are handled, from several threads at once, on one's own
/// watches and on those of others: no deadlock.
#[test]
fn n3_iceoryx_2202_every_call_is_legal_while_events_are_handled() {
    alone!(n3_iceoryx_2202_every_call_is_legal_while_events_are_handled, {
        let _watchdog = Watchdog::new();
        in_each_setup(|setup| {
            let mut clients: [Fixture; 3] = setup.clients();
            let controls = clients.each_ref().map(|client| client.control().clone());
            let descriptors = [event_fd(1), event_fd(1)];
            let end = Instant::now() + Duration::from_millis(300);
            thread::scope(|scope| {
                for (index, client) in clients.iter_mut().enumerate() {
                    let (controls, descriptors) = (&controls, &descriptors);
                    scope.spawn(move || {
                        let mut dice = Dice::new(index as u64);
                        client.watch(&descriptors[0], READABLE, Mode::Level, 1).unwrap();
                        while Instant::now() < end {
                            for event in client.wait_for(Duration::from_millis(1)) {
                                // One's own, and somebody else's with the same id, which is refused.
                                for control in [&controls[index], &controls[(index + 1) % 3]] {
                                    everything(control, &event, &descriptors[index % 2], &mut dice);
                                }
                            }
                        }
                    });
                }
            });
            for mut client in clients {
                expect_alive_among_others(&mut client);
            }
        });
    });
}

/// A fresh pipe is told of, whatever else is.
fn expect_alive_among_others(client: &mut Fixture) {
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Once, 0xa11e).unwrap();
    write_all(&writer, b"x");
    let give_up = Instant::now() + PROMPT;
    while client.wait_for(PROMPT).iter().all(|event| event.watch != watch) {
        assert!(Instant::now() < give_up, "the fresh pipe was not told of");
    }
}

/// eclipse-iceoryx/iceoryx2#695, polkit-org/polkit PR#573, gtk-rs/glib#583: whatever is dropped first, with everything still
/// live, nothing hangs, nothing crashes and nothing stays open; a control handle that outlives all answers UNAVAILABLE.
#[test]
fn n4_iceoryx2_695_every_order_of_dropping_is_legal() {
    alone!(n4_iceoryx2_695_every_order_of_dropping_is_legal, {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        expect_no_leak(|| {
            for order in orders.iter().cycle().take(60) {
                let watcher = Setup::Own.watcher();
                let client = Client::attach(&watcher).unwrap();
                let control = client.control().clone();
                let event = event_fd(1);
                for mode in MODES {
                    client.watch(&event, READABLE, mode, 1).unwrap();
                }
                client.set_periodic(Duration::ZERO, Duration::from_micros(50), 2).unwrap();
                let handle = client.adopt(event_fd(1)).unwrap();
                client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Level, 3)).unwrap();
                let (mut watcher, mut client, mut event) = (Some(watcher), Some(client), Some(event));
                for part in order {
                    match part {
                        0 => drop(watcher.take()),
                        1 => drop(client.take()),
                        _ => drop(event.take()),
                    }
                }
                let unavailable = [
                    control.watch_number(0, WatchOptions::new(READABLE, Mode::Once, 1)).map(drop),
                    control.set_timer(Duration::ZERO, 1).map(drop),
                    control.wake(),
                    control.adopt(event_fd(0)).map(drop).map_err(|refused| refused.status),
                ];
                for answer in unavailable {
                    assert_eq!(code_of(answer), Code::Unavailable);
                }
                assert_eq!(code_of(control.close(handle)), Code::NotFound);
            }
        });
    });
}

/// wahern/cqueues#174, wahern/cqueues#175, wahern/cqueues#85, wahern/cqueues#125: closing what one is just being told of
/// takes back what was ready, ends every watch on it with a result, and leaves the client sound.
#[test]
fn n5_cqueues_174_closing_a_handle_while_its_events_are_handled() {
    in_each(|setup, mode| {
        let [mut client, mut other] = setup.clients();
        client.set_capacity(1);
        for _ in 0..10 {
            let event = event_fd(1);
            let number = number_of(&event);
            let handle = client.adopt(event).unwrap();
            let options = WatchOptions::new(READABLE, mode, 5);
            let first = client.watch_handle(handle, options).unwrap();
            let second = client.watch_handle(handle, options).unwrap();
            let foreign = other.watch_number(number, options).unwrap();
            let told = client.expect_event();
            client.close(handle).unwrap();
            expect_ends(&mut client, &[first, second]);
            assert!(told.watch == first || told.watch == second);
            expect_ends(&mut other, &[foreign]);
            assert!(client.settle().is_empty());
            assert_eq!(code_of(client.unwatch(first)), Code::NotFound);
        }
        expect_alive(&mut other);
    });
}

/// Each of these is told its end, CANCELLED, as the last of it; what was ready before may come first.
#[track_caller]
fn expect_ends(client: &mut Fixture, watches: &[WatchId]) {
    let mut ended: Vec<WatchId> = Vec::new();
    while ended.len() < watches.len() {
        let events = client.wait_for(PROMPT);
        assert!(!events.is_empty(), "only {ended:?} of {watches:?} were ended");
        for event in events {
            assert!(watches.contains(&event.watch) && !ended.contains(&event.watch), "{event:#?}");
            if event.kind == EventKind::Ended {
                assert_eq!(event.status, Code::Cancelled);
                ended.push(event.watch);
            }
        }
    }
}

/// crossbeam-rs/crossbeam#997: a sender that is stopped in the middle of sending does not hold up the watcher for long.
/// Senders that run only when nobody else wants the processor are stopped all the time.
#[test]
fn n6_crossbeam_997_senders_that_hardly_run_do_not_hold_up_the_watcher() {
    let [idle, mut client] = Setup::Own.clients();
    let is_over = AtomicBool::new(false);
    let control = idle.control().clone();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                sys::run_when_idle();
                while !is_over.load(Ordering::Acquire) {
                    let timer = control.set_timer(Duration::from_secs(3600), 6).unwrap();
                    control.cancel_timer(timer).unwrap();
                }
            });
        }
        // Two that leave hardly any time to those.
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
        }
        let end = Instant::now() + Duration::from_millis(1000);
        let mut longest = Duration::ZERO;
        while Instant::now() < end {
            let started = Instant::now();
            expect_alive(&mut client);
            longest = longest.max(started.elapsed());
        }
        is_over.store(true, Ordering::Release);
        assert!(longest < Duration::from_secs(2), "a round took {longest:?}");
    });
}

/// crossbeam-rs/crossbeam#1187, crossbeam-rs/crossbeam#1084, crossbeam-rs/crossbeam#972, crossbeam-rs/crossbeam#669: a client
/// that is dropped with much undelivered and much queued frees all of it, once.
#[test]
fn n7_crossbeam_1187_a_client_dropped_with_much_undelivered_frees_it_once() {
    in_each_setup(|setup| {
        const COUNT: u64 = 500;
        let watcher = setup.watcher();
        let mut other = setup.attach(&watcher);
        let event = event_fd(1);
        for round in 0..3 {
            let client = Client::attach_with(&watcher, setup.client_config()).unwrap();
            for token in 0..COUNT {
                client.set_timer(Duration::ZERO, token).unwrap();
                client.watch(&event, READABLE, MODES[usize::try_from(token % 3).unwrap()], token).unwrap();
            }
            if round % 2 == 0 && setup == Setup::Off {
                until("much is undelivered", || client.client_stats().undelivered == 2 * COUNT);
            }
            drop(client);
            let stats = watcher.stats();
            assert_eq!((stats.watches, stats.timers, stats.undelivered), (0, 0, 0));
        }
        make_a_turn(&mut other);
        assert_eq!(watcher.stats().clients, 1);
        expect_alive(&mut other);
        expect_rest(&watcher);
    });
}

/// solana-labs/solana PR#21981: a wait never returns "ready" with nothing, also when what it was woken for is taken back at
/// that moment.
#[test]
fn n8_solana_pr_21981_a_wait_never_returns_with_nothing_before_its_timeout() {
    // A foreign loop that sees the descriptor readable may find that it was taken back since; a wait may not.
    for setup in [Setup::Own, Setup::Off, Setup::Always, Setup::Tight] {
        let mut client = setup.client();
        let control = client.control().clone();
        let is_over = Arc::new(AtomicBool::new(false));
        let event = event_fd(1);
        let (tell, told) = mpsc::channel();
        let taker = {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut dice = Dice::new(8);
                let mut rounds = 0_u64;
                while !is_over.load(Ordering::Acquire) {
                    let watch = control
                        .watch(&event, READABLE, MODES[usize::try_from(dice.below(3)).unwrap()], 1)
                        .unwrap();
                    let timer = control.set_timer(Duration::from_micros(dice.below(30)), 2).unwrap();
                    dice.spin_below(Duration::from_micros(20));
                    control.pause(watch).unwrap();
                    control.resume(watch).unwrap();
                    dice.spin_below(Duration::from_micros(20));
                    control.unwatch(watch).unwrap();
                    // It may have been delivered.
                    drop(control.cancel_timer(timer));
                    rounds += 1;
                }
                tell.send(rounds).unwrap();
            })
        };
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            // `wait_for` fails the test if it gives nothing before the timeout.
            client.wait_for(Duration::from_millis(30));
        }
        is_over.store(true, Ordering::Release);
        taker.join().unwrap();
        assert!(told.recv().unwrap() > 0);
    }
}
