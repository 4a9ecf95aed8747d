//! C5: a watch ends exactly once, and after its end nothing is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use util::*;

/// C5b: when `unwatch` has returned nothing is delivered, though a Ready was queued, and nobody says Ended.
fn unwatch_takes_back_what_was_queued(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let ready = event_fd(1);
        let watch = client.watch(&ready, READABLE, mode, 1).unwrap();
        client.until_undelivered(mode, 1);
        client.unwatch(watch).unwrap();
        assert_eq!(client.client_stats().undelivered, 0);
        assert_eq!(client.client_stats().watches, 0);
        client.expect_nothing();
        assert_eq!(client.unwatch(watch).unwrap_err().code(), Code::NotFound);
    }
}

/// C5b: nor what the watcher was about to post at that moment.
fn unwatch_takes_back_what_was_on_its_way(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let mut ended = Vec::new();
    for round in 0..3000_u32 {
        let watch = client.watch(&one, READABLE, MODES[(round % 3) as usize], round.into()).unwrap();
        write_all(&other, b"x");
        for _ in 0..round % 64 {
            std::hint::spin_loop();
        }
        if round % 7 == 0 {
            thread::yield_now();
        }
        client.unwatch(watch).unwrap();
        ended.push(watch);
        let came = client.drained();
        assert!(came.is_empty(), "round {round}: {came:#?}");
        assert_eq!(read_all(&one), 1);
    }
    client.expect_nothing();
    let mut distinct = ended.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ended.len(), "no id was given out twice");
}

/// C5a: of many threads that unwatch the same watch, exactly one is told that it did.
fn unwatch_succeeds_once(setup: Setup) {
    const THREADS: usize = 4;
    let mut client = setup.client();
    let ready = event_fd(1);
    for round in 0..200 {
        let watch = client.watch(&ready, READABLE, MODES[round % 3], 1).unwrap();
        let (start, control) = (Barrier::new(THREADS), client.control());
        let successes: usize = thread::scope(|scope| {
            let unwatch = || {
                start.wait();
                match control.unwatch(watch) {
                    Ok(()) => 1,
                    Err(status) => {
                        assert_eq!(status.code(), Code::NotFound);
                        0
                    }
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(unwatch)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(successes, 1, "round {round}");
        assert!(client.drained().is_empty());
    }
}

/// C5e, C5f: readiness, a deadline, a close and an unwatch meet. As nothing is delivered meanwhile, unwatch always
/// succeeds, whoever was first, and then nothing is told at all.
fn unwatch_wins_over_what_is_undelivered(setup: Setup) {
    let mut client = setup.client();
    for round in 0..400_u64 {
        let (one, other) = socket_pair();
        let handle = client.adopt(one).unwrap();
        let deadline = Deadline::after(Duration::from_nanos(round % 50 * 1000));
        let mode = MODES[(round % 3) as usize];
        let watch =
            client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1).deadline(deadline)).unwrap();
        let start = Barrier::new(3);
        thread::scope(|scope| {
            let (control, start, other) = (client.control(), &start, &other);
            scope.spawn(move || {
                start.wait();
                // The reader may be closed by now.
                let _: Result<usize, rustix::io::Errno> =
                    rustix::net::send(other, b"x", rustix::net::SendFlags::NOSIGNAL);
            });
            scope.spawn(move || {
                start.wait();
                control.close(handle).unwrap();
            });
            start.wait();
            control.unwatch(watch).unwrap();
        });
        assert!(client.drained().is_empty(), "round {round}");
    }
    client.expect_nothing();
}

/// C5a, C5e: the same while the client takes events. Either unwatch succeeded and no Ended was told, or it was
/// NOT_FOUND and exactly one was; in both cases nothing came afterwards.
fn every_watch_ends_exactly_once(setup: Setup) {
    let mut client = setup.client();
    for round in 0..400_u64 {
        let (one, other) = socket_pair();
        let handle = client.adopt(one).unwrap();
        let deadline = Deadline::after(Duration::from_nanos(round % 50 * 1000));
        let mode = MODES[(round % 3) as usize];
        let watch =
            client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1).deadline(deadline)).unwrap();
        let control = client.control().clone();
        let start = Barrier::new(3);
        let (told, unwatched) = thread::scope(|scope| {
            let (control, start, other) = (&control, &start, &other);
            let unwatching = scope.spawn(move || {
                start.wait();
                control.unwatch(watch)
            });
            scope.spawn(move || {
                start.wait();
                let _: Result<usize, rustix::io::Errno> =
                    rustix::net::send(other, b"x", rustix::net::SendFlags::NOSIGNAL);
                control.close(handle).unwrap();
            });
            start.wait();
            let mut told = Vec::new();
            for _ in 0..20 {
                told.extend(client.drained());
            }
            (told, unwatching.join().unwrap())
        });
        let told: Vec<Event> = told.into_iter().chain(client.settle()).collect();
        assert!(told.iter().all(|event| event.watch == watch));
        let ends = told.iter().filter(|event| event.kind == EventKind::Ended).count();
        match unwatched {
            Ok(()) => assert_eq!(ends, 0, "round {round}: {told:#?}"),
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound);
                assert_eq!(ends, 1, "round {round}: {told:#?}");
            }
        }
        if ends == 1 {
            let last = told.last().unwrap();
            assert_eq!(
                (last.kind, last.status),
                (EventKind::Ended, Code::Cancelled),
                "round {round}: {told:#?}"
            );
        }
    }
}

/// C5c: what ends a watch is said by the code of its last event.
fn the_last_event_says_why(setup: Setup) {
    for mode in MODES {
        let watcher = setup.watcher();
        let mut client = setup.attach(&watcher);
        let handle = client.adopt(event_fd(0)).unwrap();
        let closed = client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
        client.close(handle).unwrap();
        client.expect_ended(closed, Code::Cancelled);

        let number = PrivateNumber::new();
        let lent = number.take(event_fd(0));
        let gone = client.watch(&lent, READABLE, mode, 2).unwrap();
        drop(lent);
        assert_eq!(client.arm(gone).unwrap_err().code(), Code::NotFound);
        client.expect_ended(gone, Code::NotFound);

        let idle = event_fd(0);
        let stopped = client.watch(&idle, READABLE, mode, 3).unwrap();
        watcher.stop().unwrap();
        client.expect_ended(stopped, Code::Aborted);
    }
}

/// C5f: an id is worth nothing after its Ended was delivered.
fn an_ended_id_is_stale(setup: Setup) {
    let mut client = setup.client();
    let handle = client.adopt(event_fd(0)).unwrap();
    let watch = client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Once, 1)).unwrap();
    client.close(handle).unwrap();
    client.expect_ended(watch, Code::Cancelled);
    assert_eq!(client.client_stats().watches, 0);
    for result in
        [client.arm(watch), client.change(watch, WRITABLE), client.pause(watch), client.unwatch(watch)]
    {
        assert_eq!(result.unwrap_err().code(), Code::NotFound);
    }
    client.expect_nothing();
}

/// C5f: an undelivered Ended is withdrawn by unwatch, which succeeds.
fn unwatch_withdraws_an_undelivered_end(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let handle = client.adopt(event_fd(1)).unwrap();
        let options = WatchOptions::new(READABLE, mode, 1);
        let withdrawn = client.watch_handle(handle, options).unwrap();
        let told = client.watch_handle(handle, options).unwrap();
        client.close(handle).unwrap();
        assert_eq!(client.arm(withdrawn).unwrap_err().code(), Code::NotFound, "it has ended");
        client.unwatch(withdrawn).unwrap();
        assert_eq!(client.unwatch(withdrawn).unwrap_err().code(), Code::NotFound);
        let mut last = HashMap::new();
        for event in client.settle() {
            last.insert(event.watch, event.kind);
        }
        assert_eq!(last, HashMap::from([(told, EventKind::Ended)]));
        client.expect_nothing();
    }
}

/// C5a: two different ends meet: exactly one of them is told.
fn one_of_two_ends_is_told(setup: Setup) {
    for round in 0..60 {
        let watcher = setup.watcher();
        let mut client = setup.attach(&watcher);
        let handle = client.adopt(event_fd(0)).unwrap();
        let options = WatchOptions::new(READABLE, MODES[round % 3], 1);
        let watches: Vec<WatchId> = (0..8).map(|_| client.watch_handle(handle, options).unwrap()).collect();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                watcher.stop().unwrap();
            });
            start.wait();
            client.close(handle).unwrap();
        });
        let mut ended: Vec<WatchId> = Vec::new();
        for event in client.expect_events(watches.len()) {
            assert_eq!(event.kind, EventKind::Ended);
            assert!(matches!(event.status, Code::Cancelled | Code::Aborted), "{event:#?}");
            ended.push(event.watch);
        }
        ended.sort_unstable();
        let mut expected = watches;
        expected.sort_unstable();
        assert_eq!(ended, expected);
        let mut events = Events::with_capacity(4);
        assert_eq!(client.drain(&mut events).unwrap_err().code(), Code::Unavailable);
    }
}

in_every_setup!(
    unwatch_takes_back_what_was_queued,
    unwatch_takes_back_what_was_on_its_way,
    unwatch_succeeds_once,
    unwatch_wins_over_what_is_undelivered,
    every_watch_ends_exactly_once,
    an_ended_id_is_stale,
    unwatch_withdraws_an_undelivered_end,
);

in_every_embedded_setup!(one_of_two_ends_is_told, the_last_event_says_why,);
