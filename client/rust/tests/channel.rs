//! C9b, C9d, C3k: a client that is told through a channel, and its port inside the waits of other libraries.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::OwnedFd;
use std::time::Duration;

use crossbeam_channel::{after, select, tick, unbounded};
use handle_watcher_client::ChannelClient;
use util::*;

fn channel_of(setup: Setup) -> ChannelClient {
    setup.bare_client().into_channel().unwrap()
}

const SETUPS: [Setup; 5] = [Setup::Own, Setup::Off, Setup::Always, Setup::Tight, Setup::Remote];

/// The next message, then what a drain of so many gives.
#[track_caller]
fn told(client: &mut ChannelClient, room: usize) -> Vec<Event> {
    client.receiver().recv_timeout(PROMPT).expect("a message");
    drained(client, room)
}

#[track_caller]
fn drained(client: &mut ChannelClient, room: usize) -> Vec<Event> {
    let mut events = Events::with_capacity(room);
    client.drain(&mut events).unwrap();
    events.as_slice().to_vec()
}

#[track_caller]
fn expect_silence(client: &ChannelClient) {
    assert!(client.receiver().recv_timeout(SILENCE).is_err(), "a message for nothing");
}

#[test]
fn a_select_serves_channels_and_descriptors() {
    for setup in SETUPS {
        let mut client = channel_of(setup);
        let (reader, writer) = pipe();
        let watch = client.watch(&reader, READABLE, Mode::Once, 7).unwrap();
        let (jobs, more_jobs) = unbounded();
        let feeder = std::thread::spawn(move || {
            for job in 0..50 {
                jobs.send(job).unwrap();
                write_all(&writer, b"x");
                std::thread::sleep(Duration::from_micros(300));
            }
            (jobs, writer)
        });
        let (mut done, mut read, give_up) = (0, 0, after(PROMPT));
        let mut events = Events::with_capacity(8);
        while done < 50 || read < 50 {
            select! {
                recv(client.receiver()) -> message => {
                    message.unwrap();
                    client.drain(&mut events).unwrap();
                    for event in &events {
                        assert_eq!((event.watch, event.token, event.kind), (watch, 7, EventKind::Ready));
                        read += read_all(&reader);
                        client.arm(watch).unwrap();
                    }
                }
                recv(more_jobs) -> job => { assert_eq!(job.unwrap(), done); done += 1; }
                recv(give_up) -> _ => panic!("{setup:?}: {done} jobs done, {read} bytes read"),
            }
        }
        drop(feeder.join().unwrap());
    }
}

#[test]
fn messages_merge_and_one_drain_takes_everything() {
    for setup in SETUPS {
        let mut client = channel_of(setup);
        let events: Vec<OwnedFd> = (0..20).map(|_| event_fd(1)).collect();
        for (token, event) in events.iter().enumerate() {
            client.watch(event, READABLE, Mode::Once, token as u64).unwrap();
        }
        for _ in 0..5 {
            client.wake().unwrap();
        }
        until("everything is queued", || client.client_stats().undelivered == 21);
        assert_eq!(client.receiver().len(), 1, "one message for all of it");
        let events = told(&mut client, 64);
        assert_eq!(events.len(), 21);
        let wakes: Vec<u32> =
            events.iter().filter(|event| event.kind == EventKind::Wake).map(|event| event.count).collect();
        assert_eq!(wakes, [5]);
        expect_silence(&client);
    }
}

#[test]
fn a_partial_drain_announces_the_rest() {
    for room in [1, 2, 3] {
        let mut client = channel_of(Setup::Own);
        let events: Vec<OwnedFd> = (0..7).map(|_| event_fd(1)).collect();
        for (token, event) in events.iter().enumerate() {
            client.watch(event, READABLE, Mode::Edge, token as u64).unwrap();
        }
        until("everything is queued", || client.client_stats().undelivered == 7);
        let mut seen = Vec::new();
        while seen.len() < 7 {
            let events = told(&mut client, room);
            assert!(!events.is_empty() && events.len() <= room);
            seen.extend(events.iter().map(|event| event.token));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..7).collect::<Vec<u64>>());
        expect_silence(&client);
    }
}

#[test]
fn a_drain_without_a_message_uses_the_message_up() {
    let mut client = channel_of(Setup::Own);
    let event = event_fd(1);
    client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    until("it is queued", || client.receiver().len() == 1);
    assert_eq!(drained(&mut client, 8).len(), 1);
    expect_silence(&client);
    // And the next event brings the next message.
    client.wake().unwrap();
    assert_eq!(told(&mut client, 8).len(), 1);
}

/// C3k.
#[test]
fn level_is_refused_and_says_why() {
    let client = channel_of(Setup::Own);
    let event = event_fd(1);
    let status = client.watch(&event, READABLE, Mode::Level, 1).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("Once or Edge"), "{status}");
    assert_eq!(client.client_stats().watches, 0, "nothing stays behind");
}

#[test]
fn a_client_with_a_level_watch_is_not_turned() {
    for setup in SETUPS {
        let client = Client::embedded_with(setup.config(), setup.client_config()).unwrap();
        let event = event_fd(1);
        client.watch(&event, READABLE, Mode::Level, 1).unwrap();
        let status = client.into_channel().expect_err("it has a Level watch");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("unwatch"), "{status}");
    }
}

/// What a client had before it was turned comes through the channel, wherever it was served until then.
#[test]
fn what_waits_at_the_turn_is_not_lost() {
    for setup in SETUPS {
        let client = Client::embedded_with(setup.config(), setup.client_config()).unwrap();
        let before = event_fd(1);
        let after = event_fd(0);
        client.watch(&before, READABLE, Mode::Once, 1).unwrap();
        client.watch(&after, READABLE, Mode::Edge, 2).unwrap();
        client.wake().unwrap();
        if setup != Setup::Always {
            until("it is queued", || client.client_stats().undelivered == 2);
        }
        let mut client = client.into_channel().unwrap();
        set_event(&after);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            match client.receiver().recv_timeout(PROMPT) {
                Ok(()) => seen.extend(drained(&mut client, 8)),
                Err(error) => panic!("{setup:?}: {error}, and only {seen:#?} came"),
            }
        }
        let mut tokens: Vec<u64> = seen.iter().map(|event| event.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2], "{setup:?}");
        expect_silence(&client);
    }
}

#[test]
fn timers_and_ends_come_through_the_channel() {
    let watcher = Setup::Own.watcher();
    let mut client = Client::attach(&watcher).unwrap().into_channel().unwrap();
    let event = event_fd(0);
    let watch = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    let started = std::time::Instant::now();
    client.set_timer(Duration::from_millis(3), 2).unwrap();
    let events = told(&mut client, 8);
    assert_eq!((events[0].kind, events[0].token), (EventKind::Timer, 2));
    assert!(started.elapsed() >= Duration::from_millis(3));
    watcher.stop().unwrap();
    let events = told(&mut client, 8);
    assert_eq!((events[0].watch, events[0].kind, events[0].status), (watch, EventKind::Ended, Code::Aborted));
    assert_eq!(client.drain(&mut Events::with_capacity(8)).unwrap_err().code(), Code::Unavailable);
}

#[test]
fn the_watcher_sleeps_while_nobody_listens() {
    let mut client = channel_of(Setup::Own);
    let (reader, writer) = pipe();
    client.watch(&reader, READABLE, Mode::Edge, 1).unwrap();
    write_all(&writer, b"x");
    client.receiver().recv_timeout(PROMPT).unwrap();
    let turns = client.stats().turns;
    assert!(tick(Duration::from_millis(100)).recv().is_ok());
    assert!(client.stats().turns <= turns + 1, "an unread event costs nothing");
    assert_eq!(drained(&mut client, 8).len(), 1);
}

/// A duplicate of the port's descriptor, which a foreign runtime can own: the same poll set under another number.
fn descriptor_of(client: &mut Client) -> OwnedFd {
    client.descriptor().unwrap().try_clone_to_owned().unwrap()
}

fn writer_thread(writer: OwnedFd, bytes: usize) -> std::thread::JoinHandle<OwnedFd> {
    std::thread::spawn(move || {
        for _ in 0..bytes {
            write_all(&writer, b"x");
            std::thread::sleep(Duration::from_micros(200));
        }
        writer
    })
}

/// Reads and arms as told; gives how many bytes that were.
fn serve(client: &mut Client, events: &mut Events, reader: &OwnedFd, mode: Mode) -> usize {
    let mut read = 0;
    while client.drain(events).unwrap() > 0 {
        for event in events.iter() {
            read += read_all(reader);
            if mode == Mode::Once {
                client.arm(event.watch).unwrap();
            }
        }
    }
    read
}

#[test]
fn the_port_works_inside_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for setup in SETUPS {
        for mode in MODES {
            runtime.block_on(async {
                let mut client = Client::embedded_with(setup.config(), setup.client_config()).unwrap();
                let (reader, writer) = pipe();
                client.watch(&reader, READABLE, mode, 1).unwrap();
                let descriptor = descriptor_of(&mut client);
                #[expect(
                    deprecated,
                    reason = "its replacement is unsafe, and an owned descriptor keeps the promise"
                )]
                let port = tokio::io::unix::AsyncFd::with_interest(descriptor, tokio::io::Interest::READABLE)
                    .unwrap();
                let writer = writer_thread(writer, 30);
                let (mut read, mut events) = (0, Events::with_capacity(2));
                while read < 30 {
                    let ready = tokio::time::timeout(PROMPT, port.readable()).await;
                    let mut guard = ready.unwrap_or_else(|_| panic!("{setup:?} {mode:?} {read}")).unwrap();
                    guard.clear_ready();
                    read += serve(&mut client, &mut events, &reader, mode);
                }
                drop(writer.join().unwrap());
            });
        }
    }
}

#[test]
fn the_port_works_inside_async_io() {
    for setup in SETUPS {
        for mode in MODES {
            let mut client = Client::embedded_with(setup.config(), setup.client_config()).unwrap();
            let (reader, writer) = pipe();
            client.watch(&reader, READABLE, mode, 1).unwrap();
            let port = async_io::Async::new_nonblocking(descriptor_of(&mut client)).unwrap();
            let writer = writer_thread(writer, 30);
            let (mut read, mut events) = (0, Events::with_capacity(2));
            async_io::block_on(async {
                while read < 30 {
                    let late = async {
                        async_io::Timer::after(PROMPT).await;
                        panic!("{setup:?} {mode:?} {read}")
                    };
                    smol::future::or(async { port.readable().await.unwrap() }, late).await;
                    read += serve(&mut client, &mut events, &reader, mode);
                }
            });
            drop(writer.join().unwrap());
        }
    }
}
