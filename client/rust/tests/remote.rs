//! C14, C16: a client of a service: how it connects, how it loses the service, and what the service holds of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::OwnedFd;
use std::time::Duration;

use util::*;

const SETUPS: [Setup; 3] = [Setup::Remote, Setup::RemoteOff, Setup::RemoteExposed];

/// A service that the test may stop, and a client of it.
fn session(setup: Setup) -> (Watcher, Served, Client) {
    let watcher = setup.watcher();
    let served = Served::by(&watcher);
    let client = served.connect(setup.client_config());
    (watcher, served, client)
}

/// Every end of a lost session: the events up to the error that ends them.
fn last_events(client: &mut Client) -> (Vec<Event>, Status) {
    let mut events = Events::with_capacity(16);
    let mut told = Vec::new();
    loop {
        match client.wait(&mut events, Some(PROMPT)) {
            Ok(count) => {
                assert!(count > 0, "the client was left waiting");
                told.extend_from_slice(events.as_slice());
            }
            Err(status) => return (told, status),
        }
    }
}

/// C14a: a service that stops is told to every watch, whichever set serves it, and to every call from then on.
#[test]
fn a_lost_service_ends_every_watch() {
    for setup in SETUPS {
        let (_watcher, served, mut client) = session(setup);
        if setup.is_exposed() {
            client.descriptor().unwrap();
        }
        let files: Vec<OwnedFd> = MODES.iter().map(|_| event_fd(0)).collect();
        let watches: Vec<WatchId> = files
            .iter()
            .zip(MODES)
            .map(|(file, mode)| client.watch(file, READABLE, mode, 1).unwrap())
            .collect();
        client.set_timer(Duration::from_secs(1000), 2).unwrap();
        served.stop();
        let (told, status) = last_events(&mut client);
        let mut ended: Vec<WatchId> = told.iter().map(|event| event.watch).collect();
        ended.sort_unstable();
        assert_eq!(ended, watches, "{setup:?}");
        assert!(told.iter().all(|event| (event.kind, event.status) == (EventKind::Ended, Code::Unavailable)));
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("connect again"), "{status}");
        let refused = [
            client.watch(&files[0], READABLE, Mode::Once, 1).map(drop),
            client.arm(watches[0]),
            client.change(watches[1], READABLE),
            client.set_timer(Duration::ZERO, 1).map(drop),
            client.wake(),
        ];
        for answer in refused {
            assert_eq!(answer.unwrap_err().code(), Code::Unavailable, "{setup:?}");
        }
        assert_eq!(client.stats(), Stats::default());
    }
}

/// C14a: a thread that waits for ever returns when the service goes, and so does one that is in a call.
#[test]
fn a_waiter_returns_when_the_service_goes() {
    for setup in SETUPS {
        let (_watcher, served, mut client) = session(setup);
        let control = client.control().clone();
        within_time(move || {
            let waiting = std::thread::spawn(move || last_events(&mut client).1);
            let calling = std::thread::spawn(move || {
                loop {
                    match control
                        .set_timer(Duration::from_secs(1000), 1)
                        .and_then(|timer| control.cancel_timer(timer))
                    {
                        Ok(()) => {}
                        Err(status) => return status,
                    }
                }
            });
            std::thread::sleep(SILENCE);
            served.stop();
            for thread in [waiting, calling] {
                assert_eq!(thread.join().unwrap().code(), Code::Unavailable);
            }
        });
    }
}

/// C14g: those who are called instead of waiting are told as well.
#[test]
fn a_lost_service_is_told_by_a_call() {
    let (_watcher, served, client) = session(Setup::Remote);
    let mut client = client.into_channel().unwrap();
    let file = event_fd(0);
    let watch = client.watch(&file, READABLE, Mode::Edge, 7).unwrap();
    set_event(&file);
    client.receiver().recv_timeout(PROMPT).unwrap();
    let mut events = Events::with_capacity(4);
    client.drain(&mut events).unwrap();
    assert_eq!(events.as_slice()[0].watch, watch);
    served.stop();
    client.receiver().recv_timeout(PROMPT).unwrap();
    client.drain(&mut events).unwrap();
    assert_eq!(events.as_slice()[0].status, Code::Unavailable);
}

/// C8b, of F4: after `unwatch`, `close` and the drop of the client the service has no reference to the file.
#[test]
fn the_service_lets_go_of_what_it_was_passed() {
    for setup in SETUPS {
        for mode in MODES {
            let (_watcher, _served, mut client) = session(setup);
            let mut passed = |end: &dyn Fn(&Client, WatchId, OwnedFd)| {
                let (one, peer) = socket_pair();
                let watch = client.watch(&one, READABLE, mode, 1).unwrap();
                let mut events = Events::with_capacity(4);
                client.drain(&mut events).unwrap();
                end(&client, watch, one);
                assert!(is_at_end(&peer), "{setup:?} {mode:?}");
            };
            passed(&|client, watch, one| {
                client.unwatch(watch).unwrap();
                drop(one);
            });
            passed(&|client, watch, one| {
                // Another watch of the number holds the same copy, and is the last to let go.
                let second = client.watch(&one, READABLE, mode, 2).unwrap();
                client.unwatch(watch).unwrap();
                client.unwatch(second).unwrap();
                drop(one);
            });
            let (one, peer) = socket_pair();
            client.watch(&one, READABLE, mode, 1).unwrap();
            drop(client);
            drop(one);
            until("the service has let go", || is_at_end(&peer));
        }
    }
}

/// C16: what cannot be connected to is said, and nothing is left open.
#[test]
fn a_connection_that_cannot_be_made_is_said() {
    alone!(a_connection_that_cannot_be_made_is_said, {
        let folder = Folder::new();
        std::fs::write(folder.file("plain"), b"").unwrap();
        let long = folder.file(&"x".repeat(120));
        expect_no_leak(|| {
            let cases = [
                (folder.file("nobody"), Code::Unavailable),
                (folder.file("plain"), Code::Unavailable),
                (long, Code::InvalidArgument),
                ("".into(), Code::InvalidArgument),
                ("@nobody-is-here".into(), Code::Unavailable),
            ];
            for (path, code) in cases {
                let status = Client::connect(&path).unwrap_err();
                assert_eq!(status.code(), code, "{path:?}: {status}");
            }
        });
    });
}

/// C16: a server that is none of ours gets no further than its first words.
#[test]
fn a_foreign_server_is_found_out() {
    use std::io::Write;
    let folder = Folder::new();
    let path = folder.file("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let answers: [&[u8]; 4] =
        [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x08\0\0\0\x40\0\0\0\x01\0\0\0", &[0; 64]];
    let count = answers.len();
    let serving = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    for _ in 0..count {
        let status = Client::connect(&path).unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    serving.join().unwrap();
}

/// C10: a deadline of a watch comes through the service and takes the watch's turn.
#[test]
fn deadlines_race_with_readiness_over_the_wire() {
    for setup in SETUPS {
        let mut client = setup.client();
        for round in 0..200_u64 {
            let file = event_fd(0);
            let options =
                WatchOptions::new(READABLE, Mode::Once, round).deadline(Duration::from_micros(round));
            client.expect_rivals();
            let watch = client.watch_with(&file, options).unwrap();
            set_event(&file);
            let event = client.expect_event();
            assert!(matches!(event.kind, EventKind::Ready | EventKind::Deadline), "{event:?}");
            assert_eq!((event.watch, event.token), (watch, round));
            client.unwatch(watch).unwrap();
        }
        client.expect_nothing();
    }
}
