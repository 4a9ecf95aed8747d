//! C8: closing what we were given, on the caller's thread, after every watch on it was told; and holding on to nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use util::*;

/// C8a: watches of this and of other clients, in any state, are told CANCELLED, and the descriptor is closed when the
/// call returns.
fn close_tells_every_watch_and_closes(setup: Setup) {
    let [mut owner, mut other] = setup.clients();
    let (one, peer) = socket_pair();
    let number = number_of(&one);
    let handle = owner.adopt(one).unwrap();
    let mut mine = Vec::new();
    let mut theirs = Vec::new();
    for mode in MODES {
        let options = WatchOptions::new(READABLE, mode, 1);
        mine.push(owner.watch_handle(handle, options).unwrap());
        let paused = owner.watch_handle(handle, options).unwrap();
        owner.pause(paused).unwrap();
        mine.push(paused);
        theirs.push(other.watch_number(number, options).unwrap());
    }
    owner.close(handle).unwrap();
    assert!(is_at_end(&peer), "closed when the call returns");
    for (client, watches) in [(&mut owner, mine), (&mut other, theirs)] {
        let mut ended = Vec::new();
        for event in client.expect_events(watches.len()) {
            assert_eq!((event.kind, event.status), (EventKind::Ended, Code::Cancelled));
            ended.push(event.watch);
        }
        ended.sort_unstable();
        let mut expected = watches;
        expected.sort_unstable();
        assert_eq!(ended, expected);
        client.expect_nothing();
    }
}

/// C8a: a watch that is disarmed, and one that was told, are told of the close as well.
fn close_tells_disarmed_watches(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let handle = client.adopt(event_fd(1)).unwrap();
        let told = client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
        client.expect_ready(told, READABLE);
        client.arm_until(told, Deadline::at_ns(1)).unwrap();
        let mut kinds: Vec<EventKind> = client.settle().iter().map(|event| event.kind).collect();
        kinds.dedup();
        assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::Ended).count(), 0);
        client.close(handle).unwrap();
        client.expect_ended(told, Code::Cancelled);
        client.expect_nothing();
    }
}

/// C8b: a descriptor that takes a second to close blocks the thread that closes it, by `close` or by dropping the
/// client, and nobody else: the watcher goes on serving.
fn a_slow_close_blocks_only_its_caller(setup: Setup) {
    for by_drop in [false, true] {
        let [closing, mut working] = setup.clients();
        let (near, far) = tcp_pair();
        // Nobody reads the far side, so the data cannot leave.
        fill(&near);
        set_linger(&near, 1);
        let handle = closing.adopt(near.into()).unwrap();
        closing.watch_handle(handle, WatchOptions::new(READABLE, Mode::Edge, 1)).unwrap();
        let is_closed = AtomicBool::new(false);
        let is_closed = &is_closed;
        let (one, other) = socket_pair();
        let watch = working.watch(&one, READABLE, Mode::Once, 2).unwrap();
        let elapsed = thread::scope(|scope| {
            let closer = scope.spawn(move || {
                let started = Instant::now();
                if by_drop {
                    drop(closing);
                } else {
                    closing.close(handle).unwrap();
                }
                is_closed.store(true, Ordering::Release);
                started.elapsed()
            });
            let mut rounds = 0;
            while !is_closed.load(Ordering::Acquire) {
                write_all(&other, b"x");
                working.expect_ready(watch, READABLE);
                assert_eq!(read_all(&one), 1);
                working.arm(watch).unwrap();
                working.set_timer(Deadline::at_ns(1), 3).unwrap();
                working.expect_event();
                rounds += 1;
            }
            assert!(rounds >= 20, "{rounds} rounds while a descriptor was being closed");
            closer.join().unwrap()
        });
        assert!(elapsed >= Duration::from_millis(900), "the close was meant to block: {elapsed:?}");
        drop(far);
    }
}

/// C8c: ending a watch, however, throws no data away.
fn unread_data_outlives_every_watch(setup: Setup) {
    for mode in MODES {
        let watcher = setup.watcher();
        let (reader, writer) = pipe();
        write_all(&writer, b"kept");
        drop(writer);
        let client = setup.attach(&watcher);
        let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
        client.unwatch(watch).unwrap();
        client.watch(&reader, READABLE, mode, 1).unwrap();
        drop(client);
        let client = setup.attach(&watcher);
        client.watch(&reader, READABLE, mode, 1).unwrap();
        watcher.stop().unwrap();
        drop((client, watcher));
        assert_eq!(read_some(&reader, 64).as_deref(), Some(&b"kept"[..]), "{mode:?}");
        assert!(is_at_end(&reader));
    }
}

/// C8d: after the last watch has ended we hold no reference: the peer sees the close at once.
fn an_unwatched_descriptor_is_its_owners_alone(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, peer) = socket_pair();
        let (reader, writer) = pipe();
        let first = client.watch(&one, READABLE, mode, 1).unwrap();
        let second = client.watch(&one, WRITABLE, Mode::Once, 2).unwrap();
        let third = client.watch(&reader, READABLE, mode, 3).unwrap();
        client.expect_ready(second, WRITABLE);
        for watch in [first, second, third] {
            client.unwatch(watch).unwrap();
        }
        drop((one, reader));
        assert!(is_at_end(&peer), "{mode:?}");
        assert_eq!(rustix::io::write(&writer, b"x"), Err(rustix::io::Errno::PIPE), "{mode:?}");
        client.expect_nothing();
    }
}

/// C8d: and while a watch lives, too: a watch does not keep a file open that its owner closes.
fn a_watch_keeps_no_file_open(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let (one, peer) = socket_pair();
        let lent = number.take(one);
        write_all(&peer, b"x");
        let watch = client.watch(&lent, READABLE, mode, 1).unwrap();
        client.expect_ready(watch, READABLE);
        assert_eq!(read_all(&lent), 1);
        drop(lent);
        assert!(is_at_end(&peer), "{mode:?}");
    }
}

/// C8e: an id is worth nothing after its close, also when its slot has another owner, and a foreign one never was.
fn a_stale_or_foreign_handle_is_not_found(setup: Setup) {
    let [mine, others] = setup.clients();
    let (one, peer) = socket_pair();
    let stale = mine.adopt(event_fd(0)).unwrap();
    mine.close(stale).unwrap();
    let live = mine.adopt(one).unwrap();
    let foreign = others.adopt(event_fd(0)).unwrap();
    let foreign = HandleId::new(foreign.slot() + 1, foreign.generation());
    let made_up =
        [stale, foreign, HandleId::INVALID, HandleId::from_raw(u64::MAX), HandleId::new(u32::MAX, 1)];
    for handle in made_up {
        let status = mine.close(handle).unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{handle}");
        let options = WatchOptions::new(READABLE, Mode::Once, 1);
        assert_eq!(mine.watch_handle(handle, options).unwrap_err().code(), Code::NotFound, "{handle}");
    }
    assert_eq!(others.close(live).map_err(|status| status.code()), Err(Code::NotFound));
    assert!(!is_at_end(&peer), "none of them touched the live one");
    mine.close(live).unwrap();
    assert_eq!(mine.close(live).unwrap_err().code(), Code::NotFound);
}

in_every_setup!(
    close_tells_disarmed_watches,
    a_slow_close_blocks_only_its_caller,
    unread_data_outlives_every_watch,
    an_unwatched_descriptor_is_its_owners_alone,
    a_stale_or_foreign_handle_is_not_found,
);

in_every_embedded_setup!(a_watch_keeps_no_file_open, close_tells_every_watch_and_closes,);
