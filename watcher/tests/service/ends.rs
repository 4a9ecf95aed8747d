//! How sessions and services end, and that nothing of them is left.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use handle_watcher::{Code, Config, Mode, Service, ServiceConfig, Signals, Watcher};
use handle_watcher_wire::protocol::{Request, read_sessions};

use crate::client::*;
use crate::process::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;

#[test]
fn a_killed_session_is_told_by_whom() {
    let stage = Stage::new();
    let mut one = Client::connect(&stage.path);
    let mut two = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    two.watch(1, &reader, READABLE, Mode::Once);
    drop(reader);
    let (own, other) = (one.welcome.session, two.welcome.session);
    one.refused(&Request::Kill { session: own }, Code::InvalidArgument);
    one.refused(&Request::Kill { session: 12345 }, Code::NotFound);
    one.ok(&Request::Kill { session: other });
    let status = two.raw.expect_last(Code::Aborted);
    assert!(status.message().contains(&format!("session {own}")), "{status}");
    until("its descriptor is closed", || writer.write_all(b"x").is_err());
    one.refused(&Request::Kill { session: other }, Code::NotFound);
    let answer = one.ok(&Request::Sessions);
    assert_eq!(read_sessions(&mut answer.body()).expect("sessions").len(), 1);
}

#[test]
fn a_kill_between_other_requests_keeps_their_replies() {
    let stage = Stage::new();
    let mut one = Client::connect(&stage.path);
    let two = Client::connect(&stage.path);
    let mut bytes = frame_of(&Request::Echo(b"before"), 2, &[]);
    bytes.extend(frame_of(&Request::Kill { session: two.welcome.session }, 3, &[]));
    bytes.extend(frame_of(&Request::Echo(b"behind"), 4, &[]));
    one.raw.send_bytes(&bytes, &[]).expect("room");
    for (call, words) in [(2, &b"before"[..]), (3, b""), (4, b"behind")] {
        let answer = one.raw.next().expect("a reply");
        assert_eq!((answer.call, answer.code()), (call, Code::Ok));
        assert!(words.is_empty() || answer.body().read_data() == Ok(words));
    }
}

#[test]
fn bye_waits_for_what_is_being_closed() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Once);
    drop(reader);
    let mut bytes = frame_of(&Request::Unwatch { id: 1 }, 3, &[]);
    bytes.extend(frame_of(&Request::Bye, 4, &[]));
    bytes.extend(frame_of(&Request::Ping, 5, &[]));
    client.raw.send_bytes(&bytes, &[]).expect("room");
    assert_eq!(client.raw.next().expect("a reply").call, 3);
    assert_eq!(client.raw.next().expect("a reply").call, 4);
    assert!(client.raw.next().is_none(), "nothing behind a Bye is carried out");
    assert!(writer.write_all(b"x").is_err());
}

#[test]
fn a_stopped_service_tells_its_sessions_and_leaves_no_file() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut raw = Raw::connect(&stage.path);
    // So that it is known to have been accepted.
    until("both are there", || client.stat("service_sessions") == 2);
    stage.service.stop();
    stage.service.stop();
    for raw in [&mut client.raw, &mut raw] {
        let status = raw.expect_last(Code::Unavailable);
        assert!(status.message().contains("stops"), "{status}");
    }
    assert_eq!(client.find_event(PROMPT), None);
    assert!(UnixStream::connect(&stage.path).is_err());
    assert!(!std::path::Path::new(&stage.path).exists());
    assert!(!std::path::Path::new(&format!("{}.lock", stage.path)).exists());
    // The watcher goes on, and may have another.
    let again = Service::bind(&stage.watcher, &stage.path, ServiceConfig::default()).expect("a service");
    Client::connect(&stage.path).ok(&Request::Ping);
    drop(again);
}

#[test]
fn a_stopped_watcher_stops_its_service() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Once);
    stage.watcher.stop().expect("stopped");
    client.raw.expect_last(Code::Unavailable);
    assert_eq!(client.find_event(PROMPT), None, "the end of the session is the end of its watches");
    stage.service.stop();
    assert!(!std::path::Path::new(&stage.path).exists());
    let refused = Service::bind(&stage.watcher, &stage.path, ServiceConfig::default());
    assert_eq!(refused.expect_err("it has stopped").code(), Code::Unavailable);
}

#[test]
fn a_service_and_its_sessions_leave_no_descriptor() {
    alone!(a_service_and_its_sessions_leave_no_descriptor, {
        let before = descriptor_count();
        for _ in 0..3 {
            let stage = Stage::new();
            let clients: Vec<Client> = (0..5)
                .map(|_| {
                    let mut client = Client::connect(&stage.path);
                    for id in 0..20 {
                        let (reader, _) = std::io::pipe().expect("a pipe");
                        client.watch(id, &reader, READABLE, Mode::Edge);
                        client.timer(id, u64::MAX, 0);
                    }
                    client
                })
                .collect();
            drop(stage);
            drop(clients);
        }
        expect_descriptors(before);
        assert_eq!(std::fs::read_dir("/proc/self/task").expect("proc").count(), 2, "threads are left");
    });
}

#[test]
fn a_lingering_close_holds_up_nobody_else() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut witness = Client::connect(&stage.path);
    // A connection with unread data on the other side's full buffer, which lingers when it is closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut lingering = Vec::new();
    for id in 0..3 {
        let stream = std::net::TcpStream::connect(address).expect("a connection");
        let (peer, _) = listener.accept().expect("a connection");
        stream.set_nonblocking(true).expect("ours");
        while (&stream).write(&[0; 65536]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(2))).expect("ours");
        client.watch(id, &stream, Signals::PEER_CLOSED, Mode::Once);
        lingering.push(peer);
    }
    let started = Instant::now();
    for id in 0..3 {
        client.send(&Request::Unwatch { id }, &[]);
    }
    // Other sessions close as ever, and so is everything else of this one answered.
    for id in 0..20 {
        let (reader, _) = std::io::pipe().expect("a pipe");
        witness.watch(id, &reader, READABLE, Mode::Once);
        witness.ok(&Request::Unwatch { id });
    }
    let call = client.send(&Request::Ping, &[]);
    let answer = client.raw.next().expect("a reply");
    let was_prompt = started.elapsed() < Duration::from_secs(2);
    // On a machine so slow that the lingering is over by now, there is nothing to see.
    assert!(!was_prompt || answer.call == call, "the Ping waits for a close");
    drop(lingering);
    for _ in 0..3 {
        client.raw.next().expect("a reply");
    }
    drop(stage);
}

/// The child of `sessions_that_die_by_sigkill_leave_nothing`: connects, registers, says so, and waits for its end.
#[test]
#[ignore = "started by another test"]
fn child_of_many_sessions() {
    let Ok(path) = std::env::var("HANDLE_WATCHER_TEST_SOCKET") else { return };
    raise_descriptor_limit();
    let mut clients: Vec<Client> = (0..150).map(|_| Client::connect(&path)).collect();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    for client in &mut clients {
        let mut bytes = Vec::new();
        let mut descriptors = Vec::new();
        for id in 0..100 {
            bytes.extend(frame_of(&watch_of(id, READABLE, Mode::Edge), 2, &[event.as_fd()]));
            descriptors.push(event.as_fd());
        }
        client.raw.send_bytes(&bytes, &descriptors).expect("room");
    }
    for client in &mut clients {
        for _ in 0..100 {
            assert_eq!(client.raw.next().expect("a reply").code(), Code::Ok);
        }
    }
    println!("registered");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn sessions_that_die_by_sigkill_leave_nothing() {
    alone!(sessions_that_die_by_sigkill_leave_nothing, {
        raise_descriptor_limit();
        let stage = Stage::new();
        let mut witness = Client::connect(&stage.path);
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        witness.watch(1, &reader, READABLE, Mode::Edge);
        witness.ok(&Request::Ping);
        let before = descriptor_count();
        let mut child = this_program("ends::child_of_many_sessions")
            .env("HANDLE_WATCHER_TEST_SOCKET", &stage.path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs again");
        let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("registered") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut said, &mut line).expect("text") > 0, "it ended early");
        }
        assert_eq!(witness.stat("service_sessions"), 151);
        assert!(descriptor_count() >= before + 150 * 102);
        child.kill().expect("it lives");
        child.wait().expect("ours");
        drop(said);
        until("the sessions are gone", || {
            // Meanwhile others are told as ever.
            writer.write_all(b"x").expect("room");
            witness.expect_ready(1, READABLE);
            witness.stat("service_sessions") == 1
        });
        expect_descriptors(before);
        until("the watches are gone", || witness.stat("watches") == 4);
        let clock = ThreadClock::of("handle-watcher");
        let ticks = clock.ticks();
        std::thread::sleep(Duration::from_millis(500));
        assert!(clock.ticks() <= ticks + 5, "the watcher spins");
    });
}

#[test]
fn several_services_of_one_watcher_are_strangers() {
    let watcher = Watcher::spawn(Config::default()).expect("a watcher");
    let folder = Folder::new();
    let (one, two) = (folder.path("1"), folder.path("2"));
    let first = Service::bind(&watcher, &one, ServiceConfig::default()).expect("a service");
    let _second = Service::bind(&watcher, &two, ServiceConfig::default()).expect("a service");
    let mut of_one = Client::connect(&one);
    let mut of_two = Client::connect(&two);
    drop(first);
    of_one.raw.expect_last(Code::Unavailable);
    of_two.ok(&Request::Ping);
    assert_eq!(of_two.stat("service_sessions"), 1);
}
