//! C16: PROTOCOL.md is what the service does: its worked session is played byte for byte, its limits are the defaults, and
//! its table of what goes wrong is what one gets.

#[path = "../fuzz/src/raw_client.rs"]
#[allow(dead_code, reason = "the hostile clients use the rest")]
mod raw_client;

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use handle_watcher::{Code, Config, Mode, Service, ServiceConfig, Signals, Watcher};
use handle_watcher_wire::pickle::{HeaderSize, Writer, find_next};
use handle_watcher_wire::protocol::{Arm, Change, Hello, MAGIC, Reply, Request, Watch};
use raw_client::{PATIENCE, connect, hello, receive, send};
use rustix::net::RecvFlags;

const PAGE: &str = include_str!("../../PROTOCOL.md");

/// One frame of the worked session.
#[derive(Debug)]
struct Block {
    /// Who sends it, and on which socket.
    place: &'static str,
    frame: Vec<u8>,
}

fn blocks() -> Vec<Block> {
    let block = |text: &'static str| {
        let (place, rest) = text.split_once('\n').expect("a block has lines");
        let lines =
            rest.split("```").next().unwrap_or_default().lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.flat_map(|line| line.split("  ").next().unwrap_or_default().split(' '));
        let byte = |pair: &str| u8::from_str_radix(pair, 16).expect("hexadecimal digits");
        Block { place, frame: pairs.filter(|pair| !pair.is_empty()).map(byte).collect() }
    };
    PAGE.split("```hex ").skip(1).map(block).collect()
}

/// A service that knows nobody yet, and whoever connects to it.
struct Stage {
    calls: UnixStream,
    address: String,
    service: Service,
    _watcher: Watcher,
}

impl Stage {
    fn new(name: &str, config: ServiceConfig) -> Self {
        let watcher = Watcher::spawn(Config::default()).expect("a watcher");
        let address = format!("@handle-watcher-{name}-{}", std::process::id());
        let service = Service::bind(&watcher, &address, config).expect("a service");
        Self { calls: patient(&address), address, service, _watcher: watcher }
    }

    /// Another connection. The one before is gone.
    fn renew(&mut self) {
        self.calls = patient(&self.address);
    }

    fn greet(&mut self) {
        self.renew();
        self.send(hello(&mut Writer::new()), &[]);
        assert_eq!(self.reply(), (1, Code::Ok));
    }

    fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        assert_eq!(send(self.calls.as_fd(), bytes, descriptors).expect("room"), bytes.len());
    }

    fn request(&self, request: &Request<'_>, call: u32, descriptors: &[BorrowedFd<'_>]) {
        let mut writer = Writer::new();
        request.write(call, u32::try_from(descriptors.len()).expect("few"), &mut writer);
        self.send(writer.frame().expect("it is short"), descriptors);
    }

    /// The next reply's call and code.
    fn reply(&mut self) -> (u32, Code) {
        let frame = next_frame(&mut self.calls);
        let reply = Reply::read(&frame).expect("a reply");
        assert!(reply.status.code() == Code::Ok || !reply.status.message().is_empty(), "it says why");
        (reply.call, reply.status.code())
    }

    fn expect_end(&mut self) {
        assert_eq!(self.calls.read(&mut [0]).expect("an end"), 0);
    }
}

fn patient(address: &str) -> UnixStream {
    let calls = connect(address).expect("somebody listens");
    calls.set_read_timeout(Some(PATIENCE)).expect("a socket");
    calls
}

/// Reads exactly one frame.
fn next_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame).expect("a frame comes within ten seconds");
    let size = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
    frame.resize(4 + usize::try_from(size).expect("a size"), 0);
    stream.read_exact(&mut frame[4..]).expect("the rest of it");
    assert_eq!(find_next(HeaderSize::PLAIN, &frame).map(|(whole, _)| whole.len()), Some(frame.len()));
    frame
}

#[test]
fn the_worked_session_is_played_byte_for_byte() {
    let mut stage = Stage::new("worked", ServiceConfig::default());
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut events: Option<UnixStream> = None;
    let blocks = blocks();
    assert_eq!(blocks.len(), 10);
    for (index, block) in blocks.iter().enumerate() {
        match block.place {
            "client calls" => {
                let passed = [reader.as_fd()];
                // The third frame is the Watch, the only one with a descriptor.
                stage.send(&block.frame, if index == 2 { &passed } else { &[] });
            }
            "service calls" if index == 1 => {
                let mut bytes = vec![0; block.frame.len()];
                let (count, passed) =
                    receive(stage.calls.as_fd(), &mut bytes, RecvFlags::WAITALL).expect("a welcome");
                assert_eq!((count, &bytes), (block.frame.len(), &block.frame));
                let stream = UnixStream::from(passed.into_iter().next().expect("the event socket"));
                stream.set_nonblocking(false).expect("a socket");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
                events = Some(stream);
            }
            "service calls" => assert_eq!(next_frame(&mut stage.calls), block.frame, "block {index}"),
            _ => {
                writer.write_all(b"x").expect("room");
                let events = events.as_mut().expect("the welcome came before");
                assert_eq!(next_frame(events), block.frame, "block {index}");
                assert_eq!(reader.read(&mut [0; 8]).expect("a byte"), 1);
            }
        }
    }
    stage.expect_end();
    assert_eq!(events.expect("it came").read(&mut [0]).expect("an end"), 0);
}

#[test]
fn the_limits_on_the_page_are_the_defaults() {
    let defaults = ServiceConfig::default();
    let cell = |row: &str| -> u64 {
        let start = format!("| {row} |");
        let line = PAGE.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        let digits: String = line[start.len().min(line.len())..].split('|').take(1).collect();
        let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| unreachable!("PROTOCOL.md has no limit {row}"))
    };
    let rows = [
        ("a frame, in bytes", defaults.frame_bytes),
        (
            "watches of a session; a descriptor that is being closed counts, and a watch whose Ended was not sent yet",
            defaults.watches_per_session,
        ),
        ("watches of a user, over all sessions", defaults.watches_per_user),
        ("timers of a session", defaults.timers_per_session),
        ("timers of a user", defaults.timers_per_user),
        ("descriptors under way of a session", defaults.descriptors_per_session),
        ("descriptors under way of a user", defaults.descriptors_per_user),
        ("sessions", defaults.session_limit),
        ("sessions of a user", defaults.sessions_per_user),
        ("unread replies before requests wait", defaults.reply_bytes),
    ];
    for (row, limit) in rows {
        assert_eq!(cell(row), u64::from(limit), "{row}");
    }
    assert_eq!(Duration::from_secs(cell("time until the Hello")), defaults.hello_timeout);
}

fn watch(id: u64, handle: u64) -> Request<'static> {
    let (signals, mode) = (Signals::READABLE, Mode::Once);
    Request::Watch(Watch { id, handle, token: 0, signals, mode, deadline_ns: 0 })
}

/// A frame of these words.
fn words(words: &[u32]) -> Vec<u8> {
    let mut writer = Writer::new();
    words.iter().for_each(|&word| writer.write_u32(word));
    writer.finish().expect("it is short")
}

#[test]
fn what_the_page_says_gets_a_reply_gets_it() {
    let config = ServiceConfig { watches_per_session: 2, timers_per_session: 0, ..ServiceConfig::default() };
    let mut stage = Stage::new("replies", config);
    stage.greet();
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let file = std::fs::File::open("/proc/self/stat").expect("proc");
    let calls = stage.calls.try_clone().expect("a duplicate");
    stage.request(&watch(1, 1), 2, &[reader.as_fd()]);
    assert_eq!(stage.reply(), (2, Code::Ok));

    let cases: [(&str, Vec<u8>, &[BorrowedFd<'_>], Code); 11] = [
        ("a kind that does not exist", words(&[17, 9, 0]), &[], Code::Unimplemented),
        ("unknown signals", words(&[3, 9, 0, 1, 0, 0, 0, 32, 0]), &[], Code::InvalidArgument),
        ("an unknown mode", words(&[3, 9, 0, 1, 0, 0, 0, 1, 2]), &[], Code::InvalidArgument),
        ("no descriptor came", words(&[2, 9, 1, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0]), &[], Code::InvalidArgument),
        ("a ping with one", words(&[10, 9, 1]), &[reader.as_fd()], Code::InvalidArgument),
        (
            "a file",
            words(&[2, 9, 1, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0]),
            &[file.as_fd()],
            Code::FailedPrecondition,
        ),
        (
            "its own socket",
            words(&[2, 9, 1, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0]),
            &[calls.as_fd()],
            Code::FailedPrecondition,
        ),
        ("a watch in use", words(&[2, 9, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0]), &[], Code::AlreadyExists),
        (
            "a handle in use",
            words(&[2, 9, 1, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
            &[reader.as_fd()],
            Code::AlreadyExists,
        ),
        ("a handle that is not there", words(&[2, 9, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0]), &[], Code::NotFound),
        ("a session that is not there", words(&[15, 9, 0, 99, 0]), &[], Code::NotFound),
    ];
    for (what, frame, descriptors, code) in cases {
        stage.send(&frame, descriptors);
        assert_eq!(stage.reply(), (9, code), "{what}");
    }
}

#[test]
fn what_the_page_says_of_requests_in_order_holds() {
    let config = ServiceConfig { watches_per_session: 2, timers_per_session: 0, ..ServiceConfig::default() };
    let mut stage = Stage::new("requests", config);
    stage.greet();
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    stage.request(&watch(1, 1), 2, &[reader.as_fd()]);
    assert_eq!(stage.reply(), (2, Code::Ok));
    stage.request(&Request::Pause { id: 1 }, 3, &[]);
    assert_eq!(stage.reply(), (3, Code::Ok));
    let requests = [
        (Request::Arm(Arm { id: 1, token: 0, deadline_ns: 0 }), Code::FailedPrecondition),
        (Request::Arm(Arm { id: 5, token: 0, deadline_ns: 0 }), Code::NotFound),
        (
            Request::Change(Change { id: 5, token: 0, signals: Signals::READABLE, mode: Mode::Once }),
            Code::NotFound,
        ),
        (Request::Unwatch { id: 5 }, Code::NotFound),
        (Request::Close { handle: 5 }, Code::NotFound),
        (Request::CancelTimer { id: 5 }, Code::NotFound),
        (
            Request::SetTimer(handle_watcher_wire::protocol::SetTimer {
                id: 1,
                token: 0,
                deadline_ns: 0,
                period_ns: 0,
            }),
            Code::ResourceExhausted,
        ),
        (watch(2, 1), Code::Ok),
        (watch(3, 1), Code::ResourceExhausted),
        (Request::Ping, Code::Ok),
    ];
    for (index, (request, code)) in requests.into_iter().enumerate() {
        let call = 10 + u32::try_from(index).expect("few");
        stage.request(&request, call, &[]);
        assert_eq!(stage.reply(), (call, code), "{request:?}");
    }
    // With call 0 a request that fails is silent.
    stage.request(&Request::Unwatch { id: 5 }, 0, &[]);
    stage.request(&Request::Ping, 30, &[]);
    assert_eq!(stage.reply(), (30, Code::Ok));
}

#[test]
fn what_the_page_says_ends_a_session_ends_it() {
    let frame_bytes = ServiceConfig::default().frame_bytes;
    let mut stage = Stage::new("ends", ServiceConfig::default());

    let hello_of = |magic: &str, lowest: u32, name: &[u8]| {
        let mut writer = Writer::new();
        [1_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
        writer.write_str(magic);
        writer.write_u32(lowest);
        writer.write_u32(u32::MAX);
        writer.write_data(name);
        writer.finish().expect("it is short")
    };
    let first: [(&str, Vec<u8>, (u32, Code)); 6] = [
        ("no Hello first", words(&[10, 1, 0]), (0, Code::InvalidArgument)),
        ("an unknown kind first", words(&[99, 1, 0]), (0, Code::InvalidArgument)),
        ("a Hello for somebody else", hello_of("somebody", 1, b""), (0, Code::InvalidArgument)),
        ("a name that is no text", hello_of(MAGIC, 1, b"\xFF"), (0, Code::InvalidArgument)),
        ("a first frame that is too long", 4093_u32.to_le_bytes().to_vec(), (0, Code::InvalidArgument)),
        ("no version in common", hello_of(MAGIC, 2, b""), (1, Code::FailedPrecondition)),
    ];
    for (what, frame, answer) in first {
        stage.renew();
        stage.send(&frame, &[]);
        assert_eq!(stage.reply(), answer, "{what}");
        stage.expect_end();
    }

    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let lie = Hello { version_lowest: 1, version_highest: 1, name: "" };
    let mut second = Writer::new();
    Request::Hello(lie).write(2, 0, &mut second);
    let later: [(&str, Vec<u8>, &[BorrowedFd<'_>]); 7] = [
        ("a second Hello", second.finish().expect("it is short"), &[]),
        ("a frame that is too long", (frame_bytes - 3).to_le_bytes().to_vec(), &[]),
        ("a frame that is too short", words(&[2, 2, 0, 1, 0]), &[]),
        ("a frame without a head", words(&[]), &[]),
        ("a length below zero", words(&[11, 2, 0, u32::MAX]), &[]),
        ("call 0 for a Ping", words(&[10, 0, 0]), &[]),
        ("a descriptor that no frame asks for", words(&[10, 2, 0]), &[reader.as_fd()]),
    ];
    for (what, frame, descriptors) in later {
        stage.greet();
        stage.send(&frame, descriptors);
        let mut answer = stage.reply();
        if answer == (2, Code::Ok) {
            // The Ping itself is answered; then what came with it is looked at.
            answer = stage.reply();
        }
        assert_eq!(answer, (0, Code::InvalidArgument), "{what}");
        stage.expect_end();
    }
}

#[test]
fn a_connection_that_says_nothing_is_told_so() {
    let config = ServiceConfig { hello_timeout: Duration::from_millis(20), ..ServiceConfig::default() };
    let mut stage = Stage::new("silent", config);
    assert_eq!(stage.reply(), (0, Code::DeadlineExceeded));
    stage.expect_end();
}

#[test]
fn a_killed_session_is_told_and_so_is_one_whose_service_stops() {
    let mut stage = Stage::new("kill", ServiceConfig::default());
    stage.greet();
    let mut other = patient(&stage.address);
    send(other.as_fd(), hello(&mut Writer::new()), &[]).expect("room");
    let mut bytes = [0; 4096];
    let (count, passed): (usize, Vec<OwnedFd>) =
        receive(other.as_fd(), &mut bytes, RecvFlags::empty()).expect("a welcome");
    let mut welcome = Reply::read(&bytes[..count]).expect("a welcome").body;
    let welcome = handle_watcher_wire::protocol::Welcome::read(&mut welcome).expect("a welcome");
    stage.request(&Request::Kill { session: welcome.session }, 2, &[]);
    assert_eq!(stage.reply(), (2, Code::Ok));
    let last = next_frame(&mut other);
    let last = Reply::read(&last).expect("a reply");
    assert_eq!((last.call, last.status.code()), (0, Code::Aborted));
    drop(passed);

    stage.service.stop();
    assert_eq!(stage.reply(), (0, Code::Unavailable));
    stage.expect_end();
}
