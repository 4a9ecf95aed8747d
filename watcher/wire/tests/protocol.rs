//! C15, C16: the frames of the protocol are byte for byte those of PROTOCOL.md, as a program that knows only that page
//! writes them (`vectors/protocol.py`), and every way in which a frame can lie gets the answer that the page promises.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next};
use handle_watcher_wire::protocol::{
    Arm, Change, EventFrame, Head, Hello, Limits, MAGIC, Reply, Request, SessionEntry, SetTimer,
    VERSION_HIGHEST, VERSION_LOWEST, Watch, WatchEntry, Welcome, read_sessions, read_stats, read_watches,
    write_sessions, write_stats, write_watches,
};
use handle_watcher_wire::{Code, EventKind, Mode, Signals, Status};
use serde_json::Value;

mod util;
use util::{bytes, cases, number, text, vectors};

#[path = "protocol/lies.rs"]
mod lies;
#[path = "protocol/page.rs"]
mod page;
#[path = "protocol/properties.rs"]
mod properties;

const VECTORS: &str = include_str!("vectors/protocol.json");

/// A value of a frame; numbers beyond 32 bits are text.
#[track_caller]
fn u64_of(values: &Value, name: &str) -> u64 {
    let value = &values[name];
    value
        .as_u64()
        .or_else(|| value.as_str()?.parse().ok())
        .unwrap_or_else(|| panic!("{values} has no number {name}"))
}

#[track_caller]
fn u32_of(values: &Value, name: &str) -> u32 {
    u32::try_from(u64_of(values, name)).expect("a number of 32 bits")
}

#[track_caller]
fn signals_of(values: &Value, name: &str) -> Signals {
    u8::try_from(u32_of(values, name)).ok().and_then(Signals::from_bits).expect("signals that exist")
}

#[track_caller]
fn mode_of(values: &Value) -> Mode {
    [Mode::Once, Mode::Edge][u32_of(values, "mode") as usize]
}

#[track_caller]
fn code_of(case: &Value) -> Code {
    u8::try_from(number(&case["code"])).ok().and_then(Code::from_number).expect("one of the codes")
}

/// The request that a vector describes. `data` is what an Echo has.
fn request<'a>(case: &'a Value, data: &'a [u8]) -> Request<'a> {
    let values = &case["values"];
    let id = || u64_of(values, "id");
    let token = || u64_of(values, "token");
    let deadline_ns = || u64_of(values, "deadline_ns");
    match text(case, "kind") {
        "hello" => {
            assert_eq!(text(values, "magic"), MAGIC);
            Request::Hello(Hello {
                version_lowest: u32_of(values, "version_lowest"),
                version_highest: u32_of(values, "version_highest"),
                name: text(values, "name"),
            })
        }
        "watch" => Request::Watch(Watch {
            id: id(),
            handle: u64_of(values, "handle"),
            token: token(),
            signals: signals_of(values, "signals"),
            mode: mode_of(values),
            deadline_ns: deadline_ns(),
        }),
        "change" => Request::Change(Change {
            id: id(),
            token: token(),
            signals: signals_of(values, "signals"),
            mode: mode_of(values),
        }),
        "arm" => Request::Arm(Arm { id: id(), token: token(), deadline_ns: deadline_ns() }),
        "pause" => Request::Pause { id: id() },
        "unwatch" => Request::Unwatch { id: id() },
        "close" => Request::Close { handle: u64_of(values, "handle") },
        "set_timer" => Request::SetTimer(SetTimer {
            id: id(),
            token: token(),
            deadline_ns: deadline_ns(),
            period_ns: u64_of(values, "period_ns"),
        }),
        "cancel_timer" => Request::CancelTimer { id: id() },
        "ping" => Request::Ping,
        "echo" => Request::Echo(data),
        "stats" => Request::Stats,
        "sessions" => Request::Sessions,
        "watches" => Request::Watches { session: u64_of(values, "session"), most: u32_of(values, "most") },
        "kill" => Request::Kill { session: u64_of(values, "session") },
        "bye" => Request::Bye,
        kind => panic!("no such kind: {kind}"),
    }
}

#[test]
fn every_request_is_written_byte_for_byte_and_read_back() {
    let vectors = vectors(VECTORS);
    let mut seen = Vec::new();
    for case in cases(&vectors, "requests") {
        let name = text(case, "name");
        let data = case["values"]["data"].as_str().map(bytes).unwrap_or_default();
        let request = request(case, &data);
        let (call, descriptors) = (u32_of(case, "call"), u32_of(case, "descriptors"));
        let expected = bytes(text(case, "hex"));
        let mut writer = Writer::new();
        request.write(call, descriptors, &mut writer);
        assert_eq!(writer.frame().expect("nothing was refused"), expected, "{name}");
        let (head, read) = Request::read(&expected).expect(name);
        assert_eq!((head.call, head.descriptors, read), (call, descriptors, request), "{name}");
        seen.push(head.kind);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (1..=16).collect::<Vec<u32>>(), "every kind has a vector");
}

/// Writes the body that a vector describes.
fn write_body(case: &Value, writer: &mut Writer) {
    let values = &case["values"];
    match case["body"].as_str() {
        None => {}
        Some("welcome") => welcome(values).write(writer),
        Some("echo") => writer.write_data(&bytes(text(values, "data"))),
        Some("stats") => write_stats(&stats(values), writer),
        Some("sessions") => write_sessions(&sessions(values), writer),
        Some("watches") => write_watches(&watches(values), writer),
        Some(body) => panic!("no such body: {body}"),
    }
}

/// Reads the body that a vector describes.
fn check_body(case: &Value, body: &mut Reader<'_>) {
    let values = &case["values"];
    match case["body"].as_str() {
        None => {}
        Some("welcome") => assert_eq!(Welcome::read(body), Ok(welcome(values)), "{case}"),
        Some("echo") => assert_eq!(body.read_data(), Ok(&bytes(text(values, "data"))[..]), "{case}"),
        Some("stats") => assert_eq!(read_stats(body), Ok(stats(values)), "{case}"),
        Some("sessions") => assert_eq!(read_sessions(body), Ok(sessions(values)), "{case}"),
        Some("watches") => assert_eq!(read_watches(body), Ok(watches(values)), "{case}"),
        Some(body) => panic!("no such body: {body}"),
    }
    assert!(body.is_at_end(), "{case}");
}

fn welcome(values: &Value) -> Welcome {
    Welcome {
        version: u32_of(values, "version"),
        session: u64_of(values, "session"),
        limits: Limits {
            frame_bytes: u32_of(values, "frame_bytes"),
            watches: u32_of(values, "watches"),
            timers: u32_of(values, "timers"),
            descriptors: u32_of(values, "descriptors"),
        },
    }
}

fn entries(values: &Value) -> &[Value] {
    values.as_array().expect("a list")
}

fn stats(values: &Value) -> Vec<(&str, u64)> {
    entries(values).iter().map(|entry| (text(entry, "name"), u64_of(entry, "value"))).collect()
}

fn sessions(values: &Value) -> Vec<SessionEntry> {
    let entry = |values: &Value| SessionEntry {
        session: u64_of(values, "session"),
        name: text(values, "name").to_owned(),
        process: u32_of(values, "process"),
        user: u32_of(values, "user"),
        age_ns: u64_of(values, "age_ns"),
        watches: u64_of(values, "watches"),
        timers: u64_of(values, "timers"),
        undelivered: u64_of(values, "undelivered"),
        events: u64_of(values, "events"),
        requests: u64_of(values, "requests"),
    };
    entries(values).iter().map(entry).collect()
}

fn watches(values: &Value) -> Vec<WatchEntry> {
    let entry = |values: &Value| WatchEntry {
        id: u64_of(values, "id"),
        kind: text(values, "kind").to_owned(),
        signals: signals_of(values, "signals"),
        mode: mode_of(values),
        events: u64_of(values, "events"),
    };
    entries(values).iter().map(entry).collect()
}

#[test]
fn every_reply_is_written_byte_for_byte_and_read_back() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "replies") {
        let (call, descriptors) = (u32_of(case, "call"), u32_of(case, "descriptors"));
        let status = Status::new(code_of(case), text(case, "message").to_owned());
        let expected = bytes(text(case, "hex"));
        let mut writer = Writer::new();
        Reply::write(call, descriptors, &status, &mut writer);
        write_body(case, &mut writer);
        assert_eq!(writer.frame().expect("nothing was refused"), expected, "{case}");
        if status.code() == Code::Ok && descriptors == 0 {
            Reply::write_ok(call, &mut writer);
            write_body(case, &mut writer);
            assert_eq!(writer.frame().expect("nothing was refused"), expected, "{case}");
        }
        let mut reply = Reply::read(&expected).expect("a reply");
        assert_eq!((reply.call, reply.descriptors, reply.status), (call, descriptors, status), "{case}");
        check_body(case, &mut reply.body);
    }
}

fn event(case: &Value) -> EventFrame {
    let values = &case["values"];
    let kinds = [
        EventKind::Ready,
        EventKind::Unsatisfiable,
        EventKind::Deadline,
        EventKind::Timer,
        EventKind::Wake,
        EventKind::Reply,
        EventKind::Ended,
    ];
    EventFrame {
        kind: kinds[u32_of(values, "kind") as usize - 1],
        id: u64_of(values, "id"),
        token: u64_of(values, "token"),
        satisfied: signals_of(values, "satisfied"),
        satisfiable: signals_of(values, "satisfiable"),
        count: u32_of(values, "count"),
        status: code_of(case),
    }
}

#[test]
fn every_event_is_written_byte_for_byte_and_read_back() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "events") {
        let (event, expected) = (event(case), bytes(text(case, "hex")));
        let mut writer = Writer::new();
        event.write(&mut writer);
        assert_eq!(writer.frame().expect("nothing was refused"), expected, "{case}");
        assert_eq!(EventFrame::read(&expected), Ok(event), "{case}");
    }
}

/// The vectors are made by `protocol.py`, and by nobody's hand.
#[test]
fn the_vectors_are_what_the_program_makes() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/protocol.py");
    let made = std::process::Command::new("python3")
        .arg(program)
        .output()
        .expect("python3 is missing: run `make setup`");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert!(made == vectors(VECTORS), "protocol.json is not what protocol.py makes: run it again");
}

/// A fingerprint of every byte of the vectors (FNV-1a). A change of the protocol's bytes changes it, and has to be a
/// new version: add vectors and a fingerprint for that, and leave these as they are.
#[test]
fn the_bytes_of_version_1_are_frozen() {
    let vectors = vectors(VECTORS);
    assert_eq!(vectors["version"], 1);
    assert_eq!((VERSION_LOWEST, VERSION_HIGHEST), (1, 1), "a new version needs vectors of its own");
    let frames = ["requests", "replies", "events"].map(|name| cases(&vectors, name));
    let fingerprint = frames
        .into_iter()
        .flatten()
        .flat_map(|case| bytes(text(case, "hex")))
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
    assert_eq!(
        fingerprint, 0x8458_F6AF_D53C_7D67,
        "the bytes of version 1 changed, and clients of version 1 exist: keep them, and make a version 2"
    );
}
