//! Sessions from Hello to Bye, and every request.

use std::io::Write;
use std::os::fd::AsFd;

use handle_watcher::{Code, EventKind, Mode, Signals};
use handle_watcher_wire::protocol::{Arm, Change, Hello, Request, SetTimer, Watch};

use crate::client::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;

#[test]
fn a_session_watches_a_pipe() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    client.watch(7, &reader, READABLE, Mode::Once);
    writer.write_all(b"x").expect("room");
    client.expect_ready(7, READABLE);
    client.expect_nothing();
    client.ok(&Request::Arm(Arm { id: 7, token: 9, deadline_ns: 0 }));
    assert_eq!(client.next_event().token, 9);
    client.ok(&Request::Unwatch { id: 7 });
    client.refused(&Request::Unwatch { id: 7 }, Code::NotFound);
    client.ok(&Request::Bye);
    assert!(client.raw.next().is_none());
}
