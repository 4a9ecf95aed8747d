//! Which descriptors are taken, and that each reaches its own request and nobody keeps one.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use handle_watcher::{Code, Mode, Signals};
use handle_watcher_wire::protocol::{Request, read_watches};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags};

use crate::client::*;
use crate::process::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;

fn open(path: &str) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .or_else(|_| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty()))
        .expect(path)
}

#[test]
fn the_kinds_that_are_taken() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let fifo = stage.folder.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &*fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("a fifo");
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY)
        .expect("a terminal");
    rustix::pty::unlockpt(&master).expect("unlocked");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("a name").into_string().expect("readable");
    let terminal = open(&name);
    let (stream, _peer) = UnixStream::pair().expect("a pair");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    )
    .expect("a timerfd");
    let process =
        rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
            .expect("a pidfd");
    let inotify = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).expect("an inotify");
    let expected: [(&str, OwnedFd); 11] = [
        ("pipe", pipe.into()),
        ("pipe", open(&fifo)),
        ("terminal", master),
        ("terminal", terminal),
        ("socket", stream.into()),
        ("socket", tcp.into()),
        ("socket", udp.into()),
        ("eventfd", event),
        ("timerfd", timer),
        ("pidfd", process),
        ("inotify", inotify),
    ];
    for (id, (_, descriptor)) in (0..).zip(&expected) {
        client.watch(id, descriptor, READABLE, Mode::Once);
    }
    let answer = client.ok(&Request::Watches { session: 0, most: 100 });
    let mut watches = read_watches(&mut answer.body()).expect("watches");
    watches.sort_by_key(|entry| entry.id);
    let kinds: Vec<&str> = watches.iter().map(|entry| &*entry.kind).collect();
    assert_eq!(kinds, expected.iter().map(|(kind, _)| *kind).collect::<Vec<_>>());
}

#[test]
fn the_kinds_that_are_refused() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let file = stage.folder.path("file");
    std::fs::write(&file, "x").expect("a file");
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("a set");
    let memory = rustix::fs::memfd_create("m", MemfdFlags::CLOEXEC).expect("a memfd");
    let own = UnixStream::connect(&stage.path).expect("a connection");
    let mut refused: Vec<(&str, OwnedFd)> = vec![
        ("epoll set", epoll),
        ("regular file", open(&file)),
        ("directory", open("/")),
        ("regular file", memory),
        ("no terminal", open("/dev/null")),
        ("no terminal", open("/dev/zero")),
        ("connection to this service", own.into()),
    ];
    if let Ok(signals) = signal_descriptor() {
        refused.push(("signalfd", signals));
    }
    for (id, (words, descriptor)) in (0..).zip(&refused) {
        let answer = client.call(&watch_of(id, READABLE, Mode::Once), &[descriptor.as_fd()]);
        assert_eq!(answer.code(), Code::FailedPrecondition, "{words}: {}", answer.status);
        assert!(answer.status.message().contains(words), "{words}: {}", answer.status);
    }
    assert_eq!(client.stat("session_watches"), 0);
}

/// A signalfd without unsafe code: another process makes one. Tests without Python do without.
fn signal_descriptor() -> std::io::Result<OwnedFd> {
    let folder = Folder::new();
    let path = folder.path("s");
    let listener = UnixListener::bind(&path)?;
    let script = "import ctypes, socket, sys\n\
                  mask = (ctypes.c_ulong * 16)()\n\
                  number = ctypes.CDLL(None).signalfd(-1, mask, 0)\n\
                  client = socket.socket(socket.AF_UNIX)\n\
                  client.connect(sys.argv[1])\n\
                  socket.send_fds(client, [b'x'], [number])\n";
    let mut child = std::process::Command::new("python3").args(["-c", script, &path]).spawn()?;
    let status = child.wait()?;
    if !status.success() {
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    let (socket, _) = listener.accept()?;
    let mut raw = Raw::of(socket);
    raw.take_descriptor().ok_or(std::io::ErrorKind::Unsupported.into())
}

/// Every descriptor reaches its own request: the service says of each watch what came through it.
#[test]
fn p5_wayland_rs_647_a_thousand_in_one_burst_reach_their_own_requests() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let pipes: Vec<_> = (0..1000).map(|_| std::io::pipe().expect("a pipe")).collect();
    for part in pipes.chunks(253).enumerate() {
        let (at, part) = part;
        let mut bytes = Vec::new();
        let mut descriptors = Vec::new();
        for (offset, (reader, _)) in part.iter().enumerate() {
            let id = (at * 253 + offset) as u64;
            bytes.extend(frame_of(&watch_of(id, READABLE, Mode::Once), 2, &[reader.as_fd()]));
            descriptors.push(reader.as_fd());
        }
        client.raw.send_bytes(&bytes, &descriptors).expect("room");
    }
    for _ in 0..1000 {
        assert_eq!(client.raw.next().expect("a reply").code(), Code::Ok);
    }
    for (id, (_, writer)) in (0..).zip(&pipes) {
        if id % 97 == 0 {
            (&*writer).write_all(b"x").expect("room");
            client.expect_ready(id, READABLE);
        }
    }
    client.expect_nothing();
}

#[test]
fn frames_with_and_without_descriptors_mix() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let pipes: Vec<_> = (0..50).map(|_| std::io::pipe().expect("a pipe")).collect();
    let mut bytes = Vec::new();
    let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
    let mut call = 1;
    for (id, (reader, _)) in (0..).zip(&pipes) {
        call += 1;
        bytes.extend(frame_of(&Request::Ping, call, &[]));
        call += 1;
        bytes.extend(frame_of(&watch_of(id, READABLE, Mode::Once), call, &[reader.as_fd()]));
        descriptors.push(reader.as_fd());
        // Refused, and it came with one: the next one's is still the next one's.
        if id % 5 == 0 {
            call += 1;
            bytes.extend(frame_of(&watch_of(id, READABLE, Mode::Once), call, &[reader.as_fd()]));
            descriptors.push(reader.as_fd());
        }
    }
    client.raw.send_bytes(&bytes, &descriptors).expect("room");
    let mut refused = 0;
    for expected in 2..=call {
        let answer = client.raw.next().expect("a reply");
        assert_eq!(answer.call, expected);
        refused += u32::from(answer.code() == Code::AlreadyExists);
    }
    assert_eq!(refused, 10);
    for (id, (_, writer)) in (0..).zip(&pipes) {
        (&*writer).write_all(b"x").expect("room");
        client.expect_ready(id, READABLE);
    }
}

/// The descriptor limit is reached in the middle of a burst: some are lost, and no request gets another's.
#[test]
fn p1_freeunit_264_p2_systemd_42043_lost_descriptors_are_a_refusal_of_those_requests_alone() {
    alone!(p1_freeunit_264_p2_systemd_42043_lost_descriptors_are_a_refusal_of_those_requests_alone, {
        const MANY: u64 = 100;
        let stage = Stage::new();
        let mut client = Client::connect(&stage.path);
        // Half of them become the service's: this is one process.
        let pipes: Vec<_> = (0..MANY).map(|_| std::io::pipe().expect("a pipe")).collect();
        let mut bytes = Vec::new();
        for (id, (reader, _)) in (0..).zip(&pipes) {
            bytes.extend(frame_of(
                &watch_of(id, READABLE, Mode::Once),
                u32::try_from(id).expect("few") + 2,
                &[reader.as_fd()],
            ));
        }
        let descriptors: Vec<BorrowedFd<'_>> = pipes.iter().map(|(reader, _)| reader.as_fd()).collect();
        limit_descriptors(descriptor_count() as u64 + 31);
        client.raw.send_bytes(&bytes, &descriptors).expect("room");
        let mut lost = Vec::new();
        for id in 0..MANY {
            let answer = client.raw.next().expect("a reply");
            assert_eq!(u64::from(answer.call), id + 2);
            if answer.code() != Code::Ok {
                assert_eq!(answer.code(), Code::ResourceExhausted, "{}", answer.status);
                assert!(answer.status.message().contains("send again"), "{}", answer.status);
                lost.push(id);
            }
        }
        raise_descriptor_limit();
        let expected: Vec<u64> = (MANY - lost.len() as u64..MANY).collect();
        assert!(!lost.is_empty() && lost.len() < MANY as usize, "{lost:?}");
        assert_eq!(lost, expected, "the kernel gives a beginning");
        for (id, (_, writer)) in (0..).zip(&pipes) {
            (&*writer).write_all(b"x").expect("room");
            if !lost.contains(&id) {
                client.expect_ready(id, READABLE);
            }
        }
        client.expect_nothing();
        // Sent again, it works.
        let id = lost[0];
        client.watch(id, &pipes[usize::try_from(id).expect("few")].0, READABLE, Mode::Once);
        client.expect_ready(id, READABLE);
        assert!(client.stat("service_descriptors_lost") >= 1);
    });
}
