//! C6: one bad entry never hurts another, and what nobody can consume never keeps the process busy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::OwnedFd;
use std::time::Duration;

use util::*;

/// C6a: descriptors that are refused, that have gone bad and that hung up leave fifty good ones alone.
fn bad_entries_do_not_hurt_good_ones(setup: Setup) {
    let mut client = setup.client();
    let pairs: Vec<_> = (0..50).map(|_| socket_pair()).collect();
    let mut watches = Vec::new();
    let mut bad = Vec::new();
    for (index, (one, _)) in pairs.iter().enumerate() {
        let mode = MODES[index % 3];
        watches.push(client.watch(one, READABLE, mode, index as u64).unwrap());
        if index % 5 == 0 {
            let number = PrivateNumber::new();
            let lent = number.take(event_fd(0));
            bad.push(client.watch(&lent, READABLE, mode, 1000 + index as u64).unwrap());
            drop(lent);
            let folder = std::fs::File::open("/").unwrap();
            assert!(client.watch(&folder, READABLE, mode, 2000).is_err());
            assert!(client.watch_number(number.number(), WatchOptions::new(READABLE, mode, 2001)).is_err());
        }
    }
    // The numbers that had gone bad were touched again, so their watches have ended.
    let mut ended: Vec<WatchId> = client.expect_events(bad.len()).iter().map(|event| event.watch).collect();
    ended.sort_unstable();
    bad.sort_unstable();
    assert_eq!(ended, bad);
    for ((_, other), watch) in pairs.iter().zip(&watches) {
        write_all(other, b"x");
        let mut came = client.wait_for(PROMPT);
        came.retain(|event| event.watch == *watch);
        assert_eq!(came.len(), 1, "the good ones are told");
        client.unwatch(*watch).unwrap();
    }
    client.expect_nothing();
}

/// A thing nobody can consume: what is watched, what for, and what is told unasked.
struct Unconsumable {
    name: &'static str,
    watched: OwnedFd,
    wished: Signals,
    told: Signals,
    _kept: Option<OwnedFd>,
}

fn unconsumables() -> Vec<Unconsumable> {
    let (hung_up, _) = socket_pair();
    let (empty, _) = pipe();
    let (full, peer) = {
        let (reader, writer) = pipe();
        fill(&writer);
        (writer, reader)
    };
    drop(peer);
    let udp = udp_to_nobody();
    assert_eq!(udp.send(b"x").unwrap(), 1);
    let queued = udp_to_nobody();
    keep_errors(&queued);
    assert_eq!(queued.send(b"x").unwrap(), 1);
    let (master, slave) = pty();
    drop(slave);
    let new = |name, watched, wished, told| Unconsumable { name, watched, wished, told, _kept: None };
    vec![
        new("hung-up socket", hung_up, PRIORITY, PEER_CLOSED),
        new("pipe without a writer", empty, PRIORITY, PEER_CLOSED),
        new("full pipe without a reader", full, WRITABLE, ERROR),
        new("refused datagram", udp.into(), READABLE, ERROR),
        new("error queue", queued.into(), READABLE, ERROR),
        new("terminal without a slave", master, PRIORITY, PEER_CLOSED),
    ]
}

/// C6b: told once, then silent, however often the client comes back.
fn what_nobody_can_consume_is_told_once(setup: Setup) {
    for mode in MODES {
        for thing in unconsumables() {
            let mut client = setup.client();
            println!("{} {mode:?}", thing.name);
            let watch = client.watch(&thing.watched, thing.wished, mode, 1).unwrap();
            expect_told_once(&mut client, watch, &thing);
        }
    }
}

/// C6b: once per arm, in every mode; a change arms too.
fn arming_tells_it_once_more(setup: Setup) {
    for mode in MODES {
        for thing in unconsumables() {
            let mut client = setup.client();
            let watch = client.watch(&thing.watched, thing.wished, mode, 1).unwrap();
            client.expect_event();
            println!("{} {mode:?}", thing.name);
            client.arm(watch).unwrap();
            expect_told_once(&mut client, watch, &thing);
            client.change(watch, thing.wished).unwrap();
            if mode == Mode::Once {
                // It had fired and that was delivered: it is for the client to arm it.
                client.expect_nothing();
            } else {
                expect_told_once(&mut client, watch, &thing);
            }
        }
    }
}

#[track_caller]
fn expect_told_once(client: &mut Fixture, watch: WatchId, thing: &Unconsumable) {
    let event = client.expect_event();
    assert_eq!((event.watch, event.kind, event.satisfied), (watch, EventKind::Ready, thing.told));
    let again = client.wait_for(Duration::from_micros(100));
    assert!(again.is_empty(), "it was told again: {again:#?}");
    client.expect_nothing();
}

/// C6b: what was asked for is told when it comes after all.
fn a_signal_that_was_asked_for_ends_the_silence(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let folder = Folder::new();
        let path = folder.file("fifo");
        let (reader, writer) = fifo(&path);
        drop(writer);
        let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
        // A FIFO that never had a writer since it was opened is not hung up; this one had.
        client.expect_ready(watch, PEER_CLOSED);
        client.expect_nothing();
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
        client.expect_nothing();
        write_all(&writer, b"x");
        client.expect_ready(watch, READABLE);
    }
}

/// C6c: a watcher and a client with every kind of dead, failed, paused, disarmed and unconsumed watch sleep, while the
/// client waits and while it does not.
fn an_idle_process_uses_no_processor_time(setup: Setup) {
    let mut client = setup.client();
    let mut kept: Vec<OwnedFd> = Vec::new();
    let mut count = 0;
    for mode in MODES {
        for thing in unconsumables() {
            client.watch(&thing.watched, thing.wished, mode, 1).unwrap();
            count += 1;
            kept.push(thing.watched);
        }
        let (one, other) = socket_pair();
        write_all(&other, b"x");
        drop(other);
        let paused = client.watch(&one, READABLE, mode, 2).unwrap();
        client.pause(paused).unwrap();
        client.watch(&one, NONE, mode, 3).unwrap();
        let (half, half_other) = socket_pair();
        rustix::net::shutdown(&half_other, rustix::net::Shutdown::Write).unwrap();
        client.watch(&half, PRIORITY, mode, 4).unwrap();
        kept.extend([one, half, half_other]);
        if mode != Mode::Level {
            // Ready, told, and nobody takes it.
            let ready = event_fd(1);
            client.watch(&ready, READABLE, mode, 5).unwrap();
            count += 1;
            kept.push(ready);
        }
    }
    let told = client.settle();
    assert_eq!(told.len(), count, "{told:#?}");
    client.expect_nothing();
    client.expect_quiet_while_waiting(Duration::from_millis(500));
    client.expect_quiet_for(Duration::from_millis(200));
}

/// C6c: nor does it when everything is ready and nobody comes to be told, or nobody comes back.
fn an_absent_client_costs_nothing(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    let (reader, writer) = pipe();
    drop(writer);
    for mode in MODES {
        client.watch(&ready, READABLE, mode, 1).unwrap();
        client.watch(&reader, READABLE | PEER_CLOSED, mode, 2).unwrap();
    }
    client.expect_quiet_for(Duration::from_millis(250));
    assert!(client.settle().len() >= 6);
    client.expect_quiet_for(Duration::from_millis(250));
}

in_every_setup!(
    bad_entries_do_not_hurt_good_ones,
    what_nobody_can_consume_is_told_once,
    arming_tells_it_once_more,
    a_signal_that_was_asked_for_ends_the_silence,
    an_idle_process_uses_no_processor_time,
    an_absent_client_costs_nothing,
);
