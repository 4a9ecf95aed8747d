//! Limits hold for a session and for a user over all of its sessions, and are given back.

use handle_watcher::{ClientConfig, Code, Config, Mode, Service, ServiceConfig, Signals, Watcher};
use handle_watcher_wire::protocol::{Request, SetTimer, Watch};

use crate::client::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;

fn beside(id: u64, handle: u64) -> Request<'static> {
    Request::Watch(Watch { id, handle, token: id, signals: READABLE, mode: Mode::Once, deadline_ns: 0 })
}

fn timer(id: u64) -> Request<'static> {
    Request::SetTimer(SetTimer { id, token: id, deadline_ns: u64::MAX, period_ns: 0 })
}

#[test]
fn watches_of_a_session() {
    let stage = Stage::with(ServiceConfig { watches_per_session: 3, ..ServiceConfig::default() });
    let mut client = Client::connect(&stage.path);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Once);
    client.ok(&beside(2, 1));
    client.ok(&beside(3, 1));
    let status = client.refused(&beside(4, 1), Code::ResourceExhausted);
    assert!(status.message().contains("watches_per_session"), "{status}");
    client.ok(&Request::Unwatch { id: 2 });
    client.ok(&beside(4, 1));
    // Another session has its own.
    Client::connect(&stage.path).watch(1, &reader, READABLE, Mode::Once);
    client.ok(&Request::Close { handle: 1 });
    for _ in 0..3 {
        client.next_event();
    }
    client.watch(1, &reader, READABLE, Mode::Once);
}

#[test]
fn watches_of_a_user() {
    let stage = Stage::with(ServiceConfig { watches_per_user: 3, ..ServiceConfig::default() });
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let mut one = Client::connect(&stage.path);
    let mut two = Client::connect(&stage.path);
    one.watch(1, &reader, READABLE, Mode::Once);
    one.ok(&beside(2, 1));
    two.watch(1, &reader, READABLE, Mode::Once);
    let status = two.refused(&beside(2, 1), Code::ResourceExhausted);
    assert!(status.message().contains("watches_per_user"), "{status}");
    drop(one);
    until("they are given back", || two.call(&beside(2, 1), &[]).code() == Code::Ok);
    two.ok(&beside(3, 1));
    two.refused(&beside(4, 1), Code::ResourceExhausted);
    for id in [1, 2, 3] {
        two.ok(&Request::Unwatch { id });
    }
    two.watch(1, &reader, READABLE, Mode::Once);
}

#[test]
fn timers_of_a_session_and_of_a_user() {
    let stage =
        Stage::with(ServiceConfig { timers_per_session: 2, timers_per_user: 3, ..ServiceConfig::default() });
    let mut one = Client::connect(&stage.path);
    let mut two = Client::connect(&stage.path);
    one.ok(&timer(1));
    one.ok(&timer(2));
    let status = one.refused(&timer(3), Code::ResourceExhausted);
    assert!(status.message().contains("timers_per_session"), "{status}");
    // One that there is may be set anew.
    one.ok(&timer(2));
    two.ok(&timer(1));
    let status = two.refused(&timer(2), Code::ResourceExhausted);
    assert!(status.message().contains("timers_per_user"), "{status}");
    one.ok(&Request::CancelTimer { id: 1 });
    two.ok(&timer(2));
    // A timer that was told is none any more.
    one.timer(2, 1, 0);
    one.next_event();
    one.ok(&timer(1));
    drop(two);
    until("they are given back", || one.call(&timer(2), &[]).code() == Code::Ok);
}

#[test]
fn sessions_of_a_user_and_of_the_service() {
    for config in [
        ServiceConfig { sessions_per_user: 2, ..ServiceConfig::default() },
        ServiceConfig { session_limit: 2, ..ServiceConfig::default() },
    ] {
        let stage = Stage::with(config);
        let one = Client::connect(&stage.path);
        let mut two = Client::connect(&stage.path);
        let status = Raw::connect(&stage.path).expect_last(Code::ResourceExhausted);
        assert!(status.message().contains("session"), "{status}");
        drop(one);
        until("it is given back", || {
            let mut raw = Raw::connect(&stage.path);
            raw.send_bytes(&frame_of(&Request::Ping, 1, &[]), &[]).is_ok()
                && raw.next().is_some_and(|last| last.code() == Code::InvalidArgument)
        });
        two.ok(&Request::Ping);
    }
}

#[test]
fn clients_of_the_watcher() {
    // One is the service's own.
    let watcher = Watcher::spawn(Config { client_limit: 2, ..Config::default() }).expect("a watcher");
    let folder = Folder::new();
    let path = folder.path("s");
    let _service = Service::bind(&watcher, &path, ServiceConfig::default()).expect("a service");
    let mut client = Client::connect(&path);
    let mut raw = Raw::connect(&path);
    let hello = handle_watcher_wire::protocol::Hello { version_lowest: 1, version_highest: 1, name: "" };
    raw.send(&Request::Hello(hello), 1, &[]);
    let answer = raw.next().expect("a refusal");
    assert_eq!((answer.call, answer.code()), (1, Code::ResourceExhausted), "{}", answer.status);
    assert!(raw.next().is_none());
    client.ok(&Request::Bye);
    until("its place is free", || watcher.client(ClientConfig::default()).is_ok());
}

#[test]
fn configurations_that_cannot_work() {
    let watcher = Watcher::spawn(Config::default()).expect("a watcher");
    let folder = Folder::new();
    let config = ServiceConfig { frame_bytes: 1, ..ServiceConfig::default() };
    let status = Service::bind(&watcher, &folder.path("s"), config).expect_err("no frame fits");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(!std::path::Path::new(&folder.path("s")).exists());
}
