//! Sessions from Hello to Bye, and every request.

use std::io::Write;
use std::os::fd::AsFd;

use handle_watcher::{Code, Deadline, EventKind, Mode, ServiceConfig, Signals};
use handle_watcher_wire::protocol::{
    Arm, Change, Hello, Request, SetTimer, Watch, read_sessions, read_stats, read_watches,
};

use crate::client::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;
const WRITABLE: Signals = Signals::WRITABLE;

fn now_ns() -> u64 {
    Deadline::after(std::time::Duration::ZERO).as_ns()
}

#[test]
fn a_session_watches_a_pipe() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    client.watch(7, &reader, READABLE, Mode::Once);
    client.expect_nothing();
    writer.write_all(b"x").expect("room");
    client.expect_ready(7, READABLE);
    client.expect_nothing();
    client.ok(&Request::Arm(Arm { id: 7, token: 9, deadline_ns: 0 }));
    assert_eq!(client.next_event().token, 9);
    client.ok(&Request::Unwatch { id: 7 });
    client.refused(&Request::Unwatch { id: 7 }, Code::NotFound);
    client.refused(&Request::Arm(Arm { id: 7, token: 9, deadline_ns: 0 }), Code::NotFound);
    client.ok(&Request::Bye);
    assert!(client.raw.next().is_none());
}

#[test]
fn the_welcome_names_version_session_and_limits() {
    let stage = Stage::with(ServiceConfig {
        frame_bytes: 8192,
        watches_per_session: 11,
        timers_per_session: 12,
        descriptors_per_session: 13,
        ..ServiceConfig::default()
    });
    let (one, two) = (Client::connect(&stage.path), Client::connect(&stage.path));
    let limits = one.welcome.limits;
    assert_eq!(one.welcome.version, 1);
    assert_eq!((limits.frame_bytes, limits.watches, limits.timers, limits.descriptors), (8192, 11, 12, 13));
    assert_ne!(one.welcome.session, two.welcome.session);
}

#[test]
fn the_highest_common_version_is_taken_and_none_is_told() {
    let stage = Stage::new();
    let mut raw = Raw::connect(&stage.path);
    let hello = Hello { version_lowest: 0, version_highest: 7, name: "" };
    raw.send(&Request::Hello(hello), 5, &[]);
    let answer = raw.next().expect("a welcome");
    assert_eq!((answer.call, answer.code()), (5, Code::Ok));
    for (version_lowest, version_highest) in [(2, 9), (0, 0), (9, 2)] {
        let mut raw = Raw::connect(&stage.path);
        raw.send(&Request::Hello(Hello { version_lowest, version_highest, name: "" }), 5, &[]);
        let answer = raw.next().expect("a refusal");
        assert_eq!((answer.call, answer.code()), (5, Code::FailedPrecondition));
        let message = answer.status.message().to_owned();
        assert!(message.contains(&format!("{version_lowest} to {version_highest}")), "{message}");
        assert!(message.contains("1 to 1"), "{message}");
        assert!(raw.next().is_none(), "and then the end");
    }
}

#[test]
fn events_may_precede_their_reply_and_the_watch_holds_what_was_there() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"x").expect("room");
    client.watch(1, &reader, READABLE, Mode::Edge);
    client.expect_ready(1, READABLE);
    writer.write_all(b"x").expect("room");
    client.expect_ready(1, READABLE);
    drop(writer);
    client.expect_ready(1, Signals::PEER_CLOSED);
}

#[test]
fn watches_of_one_handle_share_it_and_the_last_one_closes_it() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    client.watch(1, &theirs, WRITABLE, Mode::Once);
    client.expect_ready(1, WRITABLE);
    drop(theirs);
    let second = Watch { id: 2, handle: 1, token: 20, signals: READABLE, mode: Mode::Edge, deadline_ns: 0 };
    client.ok(&Request::Watch(second));
    client.refused(&Request::Watch(second), Code::AlreadyExists);
    client.refused(&Request::Watch(Watch { id: 3, handle: 3, ..second }), Code::NotFound);
    let answer = client.call(&watch_of(1, READABLE, Mode::Once), &[ours.as_fd()]);
    assert_eq!(answer.code(), Code::AlreadyExists, "{}", answer.status);
    let taken = Watch { id: 9, handle: 1, ..second };
    let answer = client.call(&Request::Watch(taken), &[ours.as_fd()]);
    assert_eq!(answer.code(), Code::AlreadyExists, "the handle is taken: {}", answer.status);
    (&ours).write_all(b"x").expect("room");
    let event = client.next_event();
    assert_eq!((event.id, event.token), (2, 20));
    client.ok(&Request::Unwatch { id: 1 });
    assert_eq!(rustix::io::ioctl_fionread(&ours), Ok(0));
    (&ours).write_all(b"x").expect("the service holds the other end");
    client.ok(&Request::Unwatch { id: 2 });
    // The reply came after the close.
    let error = (&ours).write_all(b"x").expect_err("nobody holds the other end");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn close_tells_every_watch_and_frees_the_numbers() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Once);
    drop(reader);
    for id in 2..6 {
        let watch =
            Watch { id, handle: 1, token: id * 10, signals: READABLE, mode: Mode::Edge, deadline_ns: 0 };
        client.ok(&Request::Watch(watch));
    }
    client.ok(&Request::Close { handle: 1 });
    let error = (&writer).write_all(b"x").expect_err("the reply came after the close");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    let mut ended: Vec<u64> = (0..5)
        .map(|_| {
            let event = client.next_event();
            assert_eq!((event.kind, event.status), (EventKind::Ended, Code::Cancelled));
            event.id
        })
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3, 4, 5]);
    client.refused(&Request::Close { handle: 1 }, Code::NotFound);
    client.refused(&Request::Unwatch { id: 3 }, Code::NotFound);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Once);
    client.expect_nothing();
}

#[test]
fn change_replaces_signals_token_and_mode() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    client.watch(1, &theirs, READABLE, Mode::Once);
    let change = Change { id: 1, token: 5, signals: WRITABLE, mode: Mode::Once };
    client.ok(&Request::Change(change));
    let event = client.next_event();
    assert_eq!((event.id, event.token, event.satisfied), (1, 5, WRITABLE));
    client.expect_nothing();
    // Told once; a change arms it again.
    client.ok(&Request::Change(Change { token: 6, ..change }));
    assert_eq!(client.next_event().token, 6);
    // Another mode is another watch of the engine, under the same number.
    client.ok(&Request::Change(Change { token: 7, signals: READABLE, mode: Mode::Edge, ..change }));
    client.expect_nothing();
    for _ in 0..2 {
        (&ours).write_all(b"x").expect("room");
        let event = client.next_event();
        assert_eq!((event.id, event.token, event.satisfied), (1, 7, READABLE));
    }
    // Nothing pauses.
    client.ok(&Request::Change(Change { token: 8, signals: Signals::empty(), mode: Mode::Edge, ..change }));
    (&ours).write_all(b"x").expect("room");
    client.expect_nothing();
    client.refused(&Request::Arm(Arm { id: 1, token: 1, deadline_ns: 0 }), Code::FailedPrecondition);
    client.ok(&Request::Change(Change { token: 9, signals: READABLE, mode: Mode::Once, ..change }));
    assert_eq!(client.next_event().token, 9);
    client.ok(&Request::Pause { id: 1 });
    client.refused(&Request::Arm(Arm { id: 1, token: 1, deadline_ns: 0 }), Code::FailedPrecondition);
    client.refused(&Request::Change(Change { id: 2, ..change }), Code::NotFound);
    client.refused(&Request::Pause { id: 2 }, Code::NotFound);
    client.expect_nothing();
}

#[test]
fn a_watch_has_a_deadline() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let watch = Watch {
        id: 1,
        handle: 1,
        token: 1,
        signals: READABLE,
        mode: Mode::Edge,
        deadline_ns: now_ns() + 1_000_000,
    };
    assert_eq!(client.call(&Request::Watch(watch), &[reader.as_fd()]).code(), Code::Ok);
    assert_eq!(client.next_event().kind, EventKind::Deadline);
    assert!(now_ns() >= watch.deadline_ns, "never early");
    writer.write_all(b"x").expect("room");
    client.expect_nothing();
    client.ok(&Request::Arm(Arm { id: 1, token: 2, deadline_ns: now_ns() + 3_600_000_000_000 }));
    let event = client.next_event();
    assert_eq!((event.kind, event.token), (EventKind::Ready, 2));
}

#[test]
fn timers_fire_once_or_again_and_are_set_anew() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let deadline_ns = now_ns() + 1_000_000;
    client.timer(1, deadline_ns, 0);
    let event = client.next_event();
    assert!(now_ns() >= deadline_ns, "never early");
    assert_eq!((event.kind, event.id, event.token, event.count), (EventKind::Timer, 1, 1, 1));
    // It has fired, so its number is free.
    client.refused(&Request::CancelTimer { id: 1 }, Code::NotFound);
    client.timer(1, u64::MAX, 0);
    // Set anew: with another token, and sooner.
    client.ok(&Request::SetTimer(SetTimer { id: 1, token: 5, deadline_ns: now_ns(), period_ns: 2_000_000 }));
    for _ in 0..2 {
        let event = client.next_event();
        assert_eq!((event.id, event.token), (1, 5));
        assert!(event.count >= 1);
    }
    client.ok(&Request::CancelTimer { id: 1 });
    client.refused(&Request::CancelTimer { id: 1 }, Code::NotFound);
    while client.find_event(SILENCE).is_some() {}
    client.expect_nothing();
}

#[test]
fn an_echo_brings_the_same_bytes_up_to_the_frame_limit() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let limit = client.welcome.limits.frame_bytes as usize;
    for length in [0, 1, 1024, 100_000, limit - 64] {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let answer = client.ok(&Request::Echo(&bytes));
        assert_eq!(answer.body().read_data().expect("data"), bytes);
    }
    // A request that just fits, whose reply would not.
    client.refused(&Request::Echo(&vec![0; limit - 20]), Code::ResourceExhausted);
    client.ok(&Request::Ping);
}

#[test]
fn many_requests_in_one_write_are_answered_in_order() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut bytes = Vec::new();
    for call in 2..1002_u32 {
        bytes.extend(frame_of(&Request::Echo(&call.to_le_bytes()), call, &[]));
    }
    client.raw.send_bytes(&bytes, &[]).expect("room");
    for call in 2..1002_u32 {
        let answer = client.raw.next().expect("a reply");
        assert_eq!((answer.call, answer.code()), (call, Code::Ok));
        assert_eq!(answer.body().read_data().expect("data"), call.to_le_bytes());
    }
}

#[test]
fn requests_may_come_byte_by_byte() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut bytes = frame_of(&Request::Echo(b"abcde"), 2, &[]);
    bytes.extend(frame_of(&Request::Ping, 3, &[]));
    for byte in bytes {
        client.raw.send_bytes(&[byte], &[]).expect("room");
    }
    assert_eq!(client.raw.next().expect("a reply").body().read_data().expect("data"), b"abcde");
    assert_eq!(client.raw.next().expect("a reply").call, 3);
}

#[test]
fn call_zero_is_silent_where_that_is_allowed() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Once);
    drop(reader);
    client.timer(1, u64::MAX, 0);
    for request in [
        Request::Change(Change { id: 1, token: 1, signals: READABLE, mode: Mode::Once }),
        Request::Arm(Arm { id: 1, token: 1, deadline_ns: 0 }),
        Request::Pause { id: 1 },
        Request::CancelTimer { id: 1 },
        Request::CancelTimer { id: 1 },
        Request::Unwatch { id: 1 },
        Request::Unwatch { id: 1 },
    ] {
        client.raw.send(&request, 0, &[]);
    }
    client.ok(&Request::Ping);
    client.refused(&Request::CancelTimer { id: 1 }, Code::NotFound);
    until("the handle is closed", || (&writer).write(b"x").is_err());
    client.raw.send(&Request::Bye, 0, &[]);
    assert!(client.raw.next().is_none());
}

#[test]
fn lists_name_sessions_watches_and_counters() {
    let stage = Stage::new();
    let mut busy = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (calm, _calm_writer) = std::io::pipe().expect("a pipe");
    busy.watch(1, &calm, READABLE, Mode::Once);
    busy.watch(2, &reader, READABLE, Mode::Edge);
    for _ in 0..3 {
        writer.write_all(b"x").expect("room");
        busy.expect_ready(2, READABLE);
    }
    busy.timer(5, u64::MAX, 0);
    let mut client = Client::connect(&stage.path);
    let answer = client.ok(&Request::Sessions);
    let sessions = read_sessions(&mut answer.body()).expect("sessions");
    let numbers: Vec<u64> = sessions.iter().map(|entry| entry.session).collect();
    assert_eq!(numbers, [busy.welcome.session, client.welcome.session]);
    let entry = &sessions[0];
    assert_eq!((&*entry.name, entry.process), ("test", std::process::id()));
    assert_eq!(entry.user, rustix::process::geteuid().as_raw());
    assert_eq!((entry.watches, entry.timers, entry.undelivered, entry.events), (2, 1, 0, 3));
    assert_eq!(entry.requests, 4);
    let ask = Request::Watches { session: busy.welcome.session, most: 10 };
    let answer = client.ok(&ask);
    let watches = read_watches(&mut answer.body()).expect("watches");
    let seen: Vec<_> =
        watches.iter().map(|entry| (entry.id, &*entry.kind, entry.mode, entry.events)).collect();
    assert_eq!(seen, [(2, "pipe", Mode::Edge, 3), (1, "pipe", Mode::Once, 0)]);
    let answer = busy.ok(&Request::Watches { session: 0, most: 1 });
    assert_eq!(read_watches(&mut answer.body()).expect("watches").len(), 1);
    client.refused(&Request::Watches { session: 999, most: 1 }, Code::NotFound);
    let answer = client.ok(&Request::Stats);
    let stats = read_stats(&mut answer.body()).expect("statistics");
    let names: Vec<&str> = stats.iter().map(|(name, _)| *name).collect();
    for name in ["turns", "ready_per_wait_0", "commands_per_turn_15", "session_watches", "service_requests"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    assert_eq!(client.stat("service_sessions"), 2);
    assert_eq!(busy.stat("session_watches"), 2);
}

#[test]
fn a_request_of_a_kind_to_come_is_refused_and_the_session_goes_on() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut writer = handle_watcher_wire::pickle::Writer::new();
    for value in [99, 2, 0] {
        writer.write_u32(value);
    }
    client.raw.send_bytes(writer.frame().expect("a frame"), &[]).expect("room");
    let answer = client.raw.next().expect("a reply");
    assert_eq!((answer.call, answer.code()), (2, Code::Unimplemented));
    // Values behind those that are known are passed over.
    writer.clear();
    for value in [10, 3, 0, 77, 78] {
        writer.write_u32(value);
    }
    client.raw.send_bytes(writer.frame().expect("a frame"), &[]).expect("room");
    let answer = client.raw.next().expect("a reply");
    assert_eq!((answer.call, answer.code()), (3, Code::Ok));
}
