//! PROTOCOL.md says what the code does: its worked session is read, and its limits are ours.

use super::*;

use handle_watcher_wire::protocol::{DESCRIPTORS_MOST, FIRST_FRAME_LIMIT_BYTES};

const PAGE: &str = include_str!("../../../../PROTOCOL.md");

/// One block of the worked session.
struct Block {
    sender: String,
    socket: String,
    frame: Vec<u8>,
}

/// The bytes of a line: pairs of digits up to the first two spaces.
fn bytes_of(line: &str) -> Vec<u8> {
    let digits = line.split("  ").next().unwrap_or_default();
    bytes(&digits.replace(' ', ""))
}

fn blocks() -> Vec<Block> {
    let block = |text: &str| {
        let (first, rest) = text.split_once('\n').expect("a block has lines");
        let (sender, socket) = first.split_once(' ').expect("a sender and a socket");
        let lines = rest.split("```").next().unwrap_or_default().lines();
        Block {
            sender: sender.to_owned(),
            socket: socket.to_owned(),
            frame: lines.filter(|line| !line.starts_with('#')).flat_map(bytes_of).collect(),
        }
    };
    PAGE.split("```hex ").skip(1).map(block).collect()
}

#[test]
fn the_worked_session_has_the_bytes_of_the_vectors() {
    let vectors = vectors(VECTORS);
    let (blocks, session) = (blocks(), cases(&vectors, "session"));
    assert_eq!(blocks.len(), session.len());
    for (block, case) in blocks.iter().zip(session) {
        assert_eq!((&*block.sender, &*block.socket), (text(case, "sender"), text(case, "socket")));
        assert_eq!(block.frame, bytes(text(case, "hex")), "{}", text(case, "what"));
        let whole =
            find_next(HeaderSize::PLAIN, &block.frame).map(|(frame, behind)| (frame.len(), behind.len()));
        assert_eq!(whole, Some((block.frame.len(), 0)));
    }
}

#[test]
fn the_worked_session_is_hello_watch_event_arm_unwatch_and_bye() {
    let blocks = blocks();
    let of = |sender: &str, socket: &str| -> Vec<&[u8]> {
        let is_meant = |block: &&Block| block.sender == sender && block.socket == socket;
        blocks.iter().filter(is_meant).map(|block| &block.frame[..]).collect()
    };
    let requests: Vec<(Head, Request<'_>)> =
        of("client", "calls").into_iter().map(|frame| Request::read(frame).expect("a request")).collect();
    let arm = Arm { id: 7, token: 0xA2, deadline_ns: 0 };
    let watch =
        Watch { id: 7, handle: 3, token: 0xA1, signals: Signals::READABLE, mode: Mode::Once, deadline_ns: 0 };
    let hello = Hello { version_lowest: 1, version_highest: 1, name: "demo" };
    let expected = [
        (1, 0, Request::Hello(hello)),
        (2, 1, Request::Watch(watch)),
        (0, 0, Request::Arm(arm)),
        (3, 0, Request::Unwatch { id: 7 }),
        (4, 0, Request::Bye),
    ];
    let read: Vec<_> =
        requests.iter().map(|(head, request)| (head.call, head.descriptors, *request)).collect();
    assert_eq!(read, expected);

    let replies: Vec<Reply<'_>> =
        of("service", "calls").into_iter().map(|frame| Reply::read(frame).expect("a reply")).collect();
    let calls: Vec<_> = replies.iter().map(|reply| (reply.call, reply.descriptors)).collect();
    assert_eq!(calls, [(1, 1), (2, 0), (3, 0), (4, 0)]);
    assert!(replies.iter().all(|reply| reply.status.code() == Code::Ok));
    let welcome = Welcome::read(&mut replies[0].body.clone()).expect("a welcome");
    assert_eq!((welcome.version, welcome.session), (1, 1));

    let events = of("service", "events");
    let event = EventFrame::read(events[0]).expect("an event");
    assert_eq!((events.len(), event.kind, event.id, event.token), (1, EventKind::Ready, 7, 0xA1));
}

#[test]
fn the_page_has_the_limits_that_are_fixed() {
    for limit in [
        format!("| descriptors in one system call | {DESCRIPTORS_MOST} |"),
        format!("| a Hello | {FIRST_FRAME_LIMIT_BYTES} bytes |"),
    ] {
        assert!(PAGE.contains(&limit), "PROTOCOL.md has no line {limit}");
    }
}

/// Whoever reads a name in the code finds it on the page.
#[test]
fn the_page_has_every_kind() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "requests") {
        let words = text(case, "kind").split('_');
        let name: String = words.map(|word| format!("{}{}", word[..1].to_uppercase(), &word[1..])).collect();
        let frame = bytes(text(case, "hex"));
        let kind = Request::read(&frame).expect("a request").0.kind;
        let titles = PAGE.lines().filter(|line| line.starts_with("### "));
        let entry = format!("{name}, {kind}");
        let is_there = |line: &str| line.trim_start_matches("### ").split("; ").any(|title| title == entry);
        assert!(titles.clone().any(is_there), "PROTOCOL.md has no section {entry}");
    }
}
