//! Clients that do not read: bounded, and then everything comes.

use std::io::Write;

use handle_watcher::{Code, EventKind, Mode, Signals};
use handle_watcher_wire::protocol::{Arm, Request, SetTimer};

use crate::client::*;
use crate::process::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;

/// Sends until the socket takes no more; gives how many whole frames went.
fn send_until_full(client: &mut Client, frame: &[u8]) -> usize {
    client.raw.socket.set_nonblocking(true).expect("ours");
    let mut sent = 0;
    let is_full = loop {
        match (&client.raw.socket).write(&frame[sent % frame.len()..]) {
            Ok(count) => sent += count,
            // Is it full for good? The service takes some as long as it may.
            Err(_) => {
                std::thread::sleep(std::time::Duration::from_millis(50));
                match (&client.raw.socket).write(&frame[sent % frame.len()..]) {
                    Ok(count) => sent += count,
                    Err(_) => break true,
                }
            }
        }
        if sent > 64 << 20 {
            break false;
        }
    };
    assert!(is_full, "64 MiB of requests were taken, although no reply was read");
    client.raw.socket.set_nonblocking(false).expect("ours");
    // The rest of the last frame follows once there is room.
    let rest = (frame.len() - sent % frame.len()) % frame.len();
    let socket = client.raw.socket.try_clone().expect("a clone");
    let tail = frame[frame.len() - rest..].to_vec();
    std::thread::spawn(move || (&socket).write_all(&tail));
    sent.div_ceil(frame.len())
}

#[test]
fn unread_replies_stop_the_reading_and_nothing_is_lost() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut witness = Client::connect(&stage.path);
    let frame = frame_of(&Request::Echo(&[7; 1000]), 2, &[]);
    let sent = send_until_full(&mut client, &frame);
    assert!(sent > 100);
    witness.ok(&Request::Ping);
    for _ in 0..sent {
        let answer = client.raw.next().expect("a reply");
        assert_eq!((answer.call, answer.code()), (2, Code::Ok));
        assert_eq!(answer.body().read_data().expect("data").len(), 1000);
    }
    client.ok(&Request::Ping);
}

#[test]
fn unread_events_wait_in_the_engine_one_a_watch_and_all_come() {
    alone!(unread_events_wait_in_the_engine_one_a_watch_and_all_come, {
        const MANY: u64 = 3000;
        raise_descriptor_limit();
        let stage = Stage::new();
        let mut client = Client::connect(&stage.path);
        let mut witness = Client::connect(&stage.path);
        let pipes: Vec<_> = (0..MANY).map(|_| std::io::pipe().expect("a pipe")).collect();
        for (id, (reader, _)) in (0..).zip(&pipes) {
            client.watch(id, reader, READABLE, Mode::Edge);
        }
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        witness.watch(1, &reader, READABLE, Mode::Edge);
        let before = resident_kib();
        for _ in 0..20 {
            for (_, writer) in &pipes {
                (&*writer).write_all(b"x").expect("room");
            }
            // Others are told as ever.
            writer.write_all(b"x").expect("room");
            witness.expect_ready(1, READABLE);
        }
        assert!(resident_kib() < before + 4096, "memory grew while nobody read");
        // One more round, which is told after everything that went before.
        let mut seen = vec![0_u32; MANY as usize];
        while let Some(event) = client.find_event(SILENCE * 10) {
            assert_eq!(event.kind, EventKind::Ready);
            seen[event.id as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count >= 1), "each that is ready is told");
        client.expect_nothing();
    });
}

#[test]
fn a_flood_of_one_session_leaves_others_prompt() {
    let stage = Stage::new();
    let mut witness = Client::connect(&stage.path);
    let path = stage.path;
    let flood = std::thread::spawn(move || {
        let mut client = Client::connect(&path);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        client.watch(1, &reader, READABLE, Mode::Once);
        let mut bytes = Vec::new();
        for _ in 0..20_000 {
            bytes.extend(frame_of(&Request::Arm(Arm { id: 1, token: 1, deadline_ns: u64::MAX }), 0, &[]));
        }
        for _ in 0..5 {
            client.raw.send_bytes(&bytes, &[]).expect("room");
        }
        client.ok(&Request::Ping);
        client.stat("session_requests")
    });
    let mut rounds = 0;
    while !flood.is_finished() || rounds < 10 {
        witness.ok(&Request::Ping);
        rounds += 1;
    }
    assert_eq!(flood.join().expect("it ends"), 100_004);
    assert!(rounds >= 10);
}

#[test]
fn a_burst_of_timers_is_more_than_the_command_queue_holds() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut bytes = Vec::new();
    for id in 0..20_000_u64 {
        let timer = SetTimer { id, token: id, deadline_ns: 1, period_ns: 0 };
        bytes.extend(frame_of(&Request::SetTimer(timer), 2, &[]));
    }
    let socket = client.raw.socket.try_clone().expect("a clone");
    let sender = std::thread::spawn(move || (&socket).write_all(&bytes));
    for _ in 0..20_000 {
        let answer = client.raw.next().expect("a reply");
        assert_eq!(answer.code(), Code::Ok, "{}", answer.status);
    }
    sender.join().expect("it ends").expect("all was sent");
    let mut fired: Vec<u64> = (0..20_000).map(|_| client.next_event().id).collect();
    fired.sort_unstable();
    assert_eq!(fired, (0..20_000).collect::<Vec<_>>());
    assert_eq!(client.stat("session_timers"), 0);
}
