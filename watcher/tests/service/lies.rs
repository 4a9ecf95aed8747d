//! One test for each way a frame can lie. Each ends at most the session that sent it, with a status.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};

use handle_watcher::{Code, Mode, ServiceConfig, Signals};
use handle_watcher_wire::pickle::Writer;
use handle_watcher_wire::protocol::{FIRST_FRAME_LIMIT_BYTES, Hello, Request};

use crate::client::*;
use crate::util::*;

/// A frame of these words.
fn words(words: &[u32]) -> Vec<u8> {
    let mut writer = Writer::new();
    words.iter().for_each(|word| writer.write_u32(*word));
    writer.finish().expect("a frame")
}

/// What a session that has said Hello gets for these bytes; another one goes on meanwhile.
#[track_caller]
fn expect_end(bytes: &[u8], code: Code, words: &str) {
    let stage = Stage::new();
    let mut witness = Client::connect(&stage.path);
    let mut client = Client::connect(&stage.path);
    client.raw.send_bytes(bytes, &[]).expect("room");
    let status = client.raw.expect_last(code);
    assert!(status.message().contains(words), "{status}");
    assert_eq!(client.find_event(PROMPT), None, "the event socket is closed, too");
    witness.ok(&Request::Ping);
    assert_eq!(witness.stat("service_sessions"), 1);
}

/// The same for the first frame of a connection.
#[track_caller]
fn expect_no_session(bytes: &[u8], code: Code, words: &str) {
    let stage = Stage::new();
    let mut raw = Raw::connect(&stage.path);
    raw.send_bytes(bytes, &[]).expect("room");
    let status = raw.expect_last(code);
    assert!(status.message().contains(words), "{status}");
    assert!(raw.descriptors.is_empty());
}

/// What a request gets that is refused; the session goes on.
#[track_caller]
fn expect_refusal(bytes: &[u8], descriptors: &[BorrowedFd<'_>], code: Code, words: &str) {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    client.raw.send_bytes(bytes, descriptors).expect("room");
    let answer = client.raw.next().expect("a reply");
    assert_eq!((answer.call, answer.code()), (7, code), "{}", answer.status);
    assert!(answer.status.message().contains(words), "{}", answer.status);
    client.ok(&Request::Ping);
}

#[test]
fn a_frame_longer_than_the_limit() {
    let mut bytes = words(&[10, 2, 0]);
    bytes[..4].copy_from_slice(&(256_u32 << 10).to_le_bytes());
    expect_end(&bytes, Code::InvalidArgument, "beyond the limit of 262144");
}

#[test]
fn a_frame_that_claims_four_gibibytes() {
    expect_end(&[0xff; 4], Code::InvalidArgument, "4294967299 bytes");
}

#[test]
fn a_frame_of_nothing() {
    expect_end(&[0; 4], Code::InvalidArgument, "offset 0");
}

#[test]
fn a_frame_shorter_than_its_head() {
    expect_end(&words(&[10, 2]), Code::InvalidArgument, "offset 8");
}

#[test]
fn a_frame_shorter_than_its_kind() {
    for kind in [2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 15] {
        expect_end(&words(&[kind, 2, 0, 1]), Code::InvalidArgument, "offset 12");
    }
}

#[test]
fn a_length_inside_beyond_the_frame() {
    expect_end(&words(&[11, 2, 0, 1_000_000, 5]), Code::InvalidArgument, "1000000 bytes");
    expect_end(&words(&[11, 2, 0, u32::MAX, 5]), Code::InvalidArgument, "-1");
}

#[test]
fn a_second_hello() {
    let hello = Request::Hello(Hello { version_lowest: 1, version_highest: 1, name: "again" });
    expect_end(&frame_of(&hello, 2, &[]), Code::InvalidArgument, "already");
}

#[test]
fn no_number_where_a_reply_is_needed() {
    let requests = [
        Request::Ping,
        Request::Echo(b""),
        Request::Stats,
        Request::Sessions,
        Request::Watches { session: 0, most: 1 },
        Request::Kill { session: 1 },
        Request::Close { handle: 1 },
        watch_of(1, Signals::READABLE, Mode::Once),
    ];
    for request in requests {
        expect_end(&frame_of(&request, 0, &[]), Code::InvalidArgument, "call number");
    }
}

#[test]
fn no_hello_first() {
    expect_no_session(&frame_of(&Request::Ping, 1, &[]), Code::InvalidArgument, "Hello");
    expect_no_session(&words(&[99, 1, 0]), Code::InvalidArgument, "Hello");
}

#[test]
fn a_hello_without_the_magic() {
    let mut writer = Writer::new();
    [1, 1, 0].iter().for_each(|word| writer.write_u32(*word));
    writer.write_str("handle-botcher");
    expect_no_session(writer.frame().expect("a frame"), Code::InvalidArgument, "Handle Watcher");
    // Somebody else's protocol.
    expect_no_session(b"GET / HTTP/1.1\r\n\r\n", Code::InvalidArgument, "limit of 4096");
}

#[test]
fn a_hello_without_a_number() {
    let hello = Request::Hello(Hello { version_lowest: 1, version_highest: 1, name: "" });
    expect_no_session(&frame_of(&hello, 0, &[]), Code::InvalidArgument, "call number");
}

#[test]
fn a_hello_whose_name_is_no_text() {
    let hello = Request::Hello(Hello { version_lowest: 1, version_highest: 1, name: "name" });
    let mut bytes = frame_of(&hello, 1, &[]);
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&[0xff, 0xfe, 0xfd, 0xfc]);
    expect_no_session(&bytes, Code::InvalidArgument, "");
}

#[test]
fn a_hello_longer_than_a_first_frame_may_be() {
    let name = "x".repeat(FIRST_FRAME_LIMIT_BYTES);
    let hello = Request::Hello(Hello { version_lowest: 1, version_highest: 1, name: &name });
    expect_no_session(&frame_of(&hello, 1, &[]), Code::InvalidArgument, "limit of 4096");
}

#[test]
fn a_name_that_would_forge_a_line_is_kept_as_it_is_and_shown_escaped() {
    let stage = Stage::new();
    let mut raw = Raw::connect(&stage.path);
    let name = "a\nERROR forged";
    raw.send(&Request::Hello(Hello { version_lowest: 1, version_highest: 1, name }), 1, &[]);
    assert_eq!(raw.next().expect("a welcome").code(), Code::Ok);
    let mut client = Client::connect(&stage.path);
    let answer = client.ok(&Request::Sessions);
    let sessions = handle_watcher_wire::protocol::read_sessions(&mut answer.body()).expect("sessions");
    assert_eq!(sessions[0].name, name);
}

#[test]
fn unknown_signals_modes_and_values() {
    // kind, call, descriptors, id, handle, token, signals, mode, deadline
    let watch = |signals, mode| words(&[2, 7, 0, 1, 0, 1, 0, 1, 0, signals, mode, 0, 0]);
    expect_refusal(&watch(32, 0), &[], Code::InvalidArgument, "unknown bits");
    expect_refusal(&watch(0x101, 0), &[], Code::InvalidArgument, "unknown bits");
    expect_refusal(&watch(1, 2), &[], Code::InvalidArgument, "no mode 2");
    // kind, call, descriptors, id, token, signals, mode
    expect_refusal(&words(&[3, 7, 0, 1, 0, 1, 0, 1, 9]), &[], Code::InvalidArgument, "no mode 9");
}

#[test]
fn a_descriptor_that_did_not_come() {
    expect_refusal(&words(&[2, 7, 1, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0]), &[], Code::InvalidArgument, "none did");
}

#[test]
fn more_descriptors_than_a_request_takes() {
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let reader = reader.as_fd();
    let watch = watch_of(1, Signals::READABLE, Mode::Once);
    let two = [reader, reader];
    expect_refusal(&frame_of(&watch, 7, &two), &two, Code::InvalidArgument, "takes 1");
    expect_refusal(&frame_of(&Request::Ping, 7, &two), &two, Code::InvalidArgument, "takes 0");
    // It says four thousand million and brings two.
    expect_refusal(&words(&[10, 7, u32::MAX]), &two, Code::InvalidArgument, "takes 0");
}

#[test]
fn descriptors_that_no_request_takes() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let bytes = frame_of(&Request::Ping, 2, &[]);
    client.raw.send_bytes(&bytes, &[reader.as_fd(), reader.as_fd()]).expect("room");
    drop(reader);
    assert_eq!(client.raw.next().expect("a reply").code(), Code::Ok);
    let status = client.raw.expect_last(Code::InvalidArgument);
    assert!(status.message().contains("2 descriptors"), "{status}");
    until("they are closed", || writer.write_all(b"x").is_err());
}

#[test]
fn more_descriptors_under_way_than_the_limit() {
    let stage = Stage::with(ServiceConfig { descriptors_per_session: 10, ..ServiceConfig::default() });
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let many = [reader.as_fd(); 11];
    // The frame is not whole, so they wait.
    client.raw.send_bytes(&[100, 0, 0, 0], &many).expect("room");
    client.raw.expect_last(Code::ResourceExhausted);
    drop(reader);
    until("they are closed", || writer.write_all(b"x").is_err());
}

#[test]
fn half_a_frame_and_then_the_end() {
    let stage = Stage::new();
    let mut witness = Client::connect(&stage.path);
    let client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let frame = frame_of(&watch_of(1, Signals::READABLE, Mode::Once), 2, &[reader.as_fd()]);
    client.raw.send_bytes(&frame[..frame.len() - 1], &[reader.as_fd()]).expect("room");
    drop((client, reader));
    until("the session is gone", || witness.stat("service_sessions") == 1);
    until("its descriptor is closed", || writer.write_all(b"x").is_err());
}

#[test]
fn no_hello_in_time() {
    let stage = Stage::with(ServiceConfig {
        hello_timeout: std::time::Duration::from_millis(20),
        ..ServiceConfig::default()
    });
    let mut raw = Raw::connect(&stage.path);
    raw.send_bytes(&[8, 0], &[]).expect("room");
    let status = raw.expect_last(Code::DeadlineExceeded);
    assert!(status.message().contains("20ms"), "{status}");
    // Whoever said Hello in time is not held to it later.
    let mut client = Client::connect(&stage.path);
    std::thread::sleep(std::time::Duration::from_millis(60));
    client.ok(&Request::Ping);
}

#[test]
fn the_event_socket_takes_nothing() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let error = client.events.write_all(b"x").expect_err("nobody reads there");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    client.ok(&Request::Ping);
}

#[test]
fn a_closed_event_socket_ends_the_session() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (nobody, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
    client.events = nobody;
    let call = client.send(
        &Request::SetTimer(handle_watcher_wire::protocol::SetTimer {
            id: 1,
            token: 1,
            deadline_ns: 1,
            period_ns: 0,
        }),
        &[],
    );
    assert_eq!(client.raw.next().expect("a reply").call, call);
    let status = client.raw.expect_last(Code::FailedPrecondition);
    assert!(status.message().contains("event socket"), "{status}");
}
