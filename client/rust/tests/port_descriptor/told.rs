//! C6, C9b: Level watches that were told of what nobody can consume, and have nothing to tell any more.

use crate::util::*;
use crate::{SETUPS, Watched};

/// Found by `level_correctness`: of two Level watches on a hung-up handle the one that asked for the hang-up goes, by
/// whatever call, and the other, told of it already, has nothing to tell. It is heard again when it has.
#[test]
fn a_watch_that_was_told_makes_nothing_readable_when_another_goes() {
    let ways: [fn(&Fixture, WatchId); 3] = [
        |client, watch| client.pause(watch).unwrap(),
        |client, watch| client.unwatch(watch).unwrap(),
        |client, watch| client.change(watch, PRIORITY).unwrap(),
    ];
    for setup in SETUPS {
        for go in ways {
            let mut port = Watched::new(setup, "one of two went");
            let (one, other) = socket_pair();
            let asks = port.client.watch(&one, PEER_CLOSED, Mode::Level, 1).unwrap();
            let told = port.client.watch(&one, PRIORITY, Mode::Level, 2).unwrap();
            write_all(&other, b"xy");
            drop(other);
            port.expect_readable();
            until("both are told", || port.client.drained().iter().any(|event| event.watch == told));
            port.expect_readable();
            go(&port.client, asks);
            port.drain_while_readable(2);
            port.expect_silent();
            port.client.change(told, READABLE).unwrap();
            for _ in 0..3 {
                port.expect_readable();
                assert!(port.client.drained().iter().all(|event| event.watch == told));
            }
            assert_eq!(read_all(&one), 2);
        }
    }
}

/// The same where the hang-up goes away again: a FIFO that somebody opens anew and writes to.
#[test]
fn a_watch_that_was_told_is_level_again_once_it_has_something() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "told, then ready");
        let folder = Folder::new();
        let path = folder.file("fifo");
        let (reader, writer) = fifo(&path);
        let asks = port.client.watch(&reader, PEER_CLOSED, Mode::Level, 1).unwrap();
        let told = port.client.watch(&reader, PRIORITY, Mode::Level, 2).unwrap();
        port.client.change(told, READABLE).unwrap();
        drop(writer);
        until("both are told", || port.client.drained().iter().any(|event| event.watch == told));
        port.client.unwatch(asks).unwrap();
        port.drain_while_readable(1);
        port.expect_silent();
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        write_all(&writer, b"xy");
        for _ in 0..3 {
            port.expect_readable();
            let drained = port.client.drained();
            assert_eq!(drained.len(), 1, "{drained:#?}");
            assert!(drained[0].satisfied.contains(READABLE));
        }
        assert_eq!(read_some(&reader, 1).unwrap().len(), 1);
        port.expect_readable();
        assert_eq!(port.client.drained().len(), 1);
        assert_eq!(read_all(&reader), 1);
        port.expect_silent();
    }
}

/// Found by `level_correctness`: a Level watch that the back served fires; its condition is consumed before the
/// descriptor is asked for.
#[test]
fn what_was_queued_before_the_descriptor_was_there_is_looked_at_again() {
    let mut client = Setup::Off.client();
    let ready = event_fd(1);
    let watch = client.watch(&ready, READABLE, Mode::Level, 1).unwrap();
    until("it has fired", || client.client_stats().undelivered == 1);
    clear_event(&ready);
    assert!(!is_readable_within(&client.descriptor().unwrap(), SILENCE), "readable for nothing");
    assert_eq!(client.drained(), []);
    set_event(&ready);
    for _ in 0..3 {
        assert!(is_readable_within(&client.descriptor().unwrap(), PROMPT));
        client.expect_ready(watch, READABLE);
    }
}
