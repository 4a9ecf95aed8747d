//! C2: the five signals, what each kernel flag means, and that the end of a peer hides nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use util::*;

/// Two sockets that do not block, as sockets.
fn unix_pair() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

/// A fresh watch on something whose state does not change: exactly these signals, or nothing at all.
#[track_caller]
fn expect_state(client: &mut Fixture, handle: &impl AsFd, wished: Signals, expected: Signals) {
    for mode in MODES {
        let watch = client.watch(handle, wished, mode, 1).unwrap();
        if expected.is_empty() {
            client.expect_nothing();
        } else {
            let event = client.expect_event();
            let told = (event.watch, event.kind, event.satisfied);
            assert_eq!(told, (watch, EventKind::Ready, expected), "{mode:?}, wished {wished}");
            assert_eq!(event.satisfiable & (READABLE | WRITABLE), READABLE | WRITABLE);
        }
        client.unwatch(watch).unwrap();
    }
}

/// C2a: numbers are frozen, and a bit that is none of the five is refused by `watch`.
fn an_unknown_bit_is_refused_by_watch(setup: Setup) {
    let frozen = [(READABLE, 1), (WRITABLE, 2), (PEER_CLOSED, 4), (PRIORITY, 8), (ERROR, 16)];
    assert!(frozen.iter().all(|(signal, number)| signal.bits() == *number));
    let mut client = setup.client();
    let (reader, writer) = pipe();
    write_all(&writer, b"x");
    for bit in [32, 64, 128] {
        assert_eq!(Signals::from_bits(bit), None);
        for mode in MODES {
            let refused = client.watch(&reader, Signals::from_bits_retain(bit | 1), mode, 2);
            assert_eq!(refused.map_err(|status| status.code()), Err(Code::InvalidArgument), "bit {bit}");
        }
    }
    client.expect_nothing();
}

/// C2a: nor does it get in by `change`, which leaves the watch as it was.
fn an_unknown_bit_is_refused_by_change(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Once, 1).unwrap();
    for bit in [32, 64, 128] {
        let refused = client.change(watch, Signals::from_bits_retain(bit | 2));
        assert_eq!(refused.map_err(|status| status.code()), Err(Code::InvalidArgument), "bit {bit}");
    }
    write_all(&writer, b"x");
    client.expect_ready(watch, READABLE);
    client.unwatch(watch).unwrap();
}

/// C2d: EPOLLIN and EPOLLOUT are told when they were asked for, and not otherwise.
fn readable_and_writable_are_told_when_asked_for(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = unix_pair();
    expect_state(&mut client, &one, READABLE, NONE);
    expect_state(&mut client, &one, WRITABLE, WRITABLE);
    expect_state(&mut client, &one, READABLE | WRITABLE, WRITABLE);
    write_all(&other, b"x");
    expect_state(&mut client, &one, READABLE, READABLE);
    expect_state(&mut client, &one, WRITABLE, WRITABLE);
    expect_state(&mut client, &one, READABLE | WRITABLE, READABLE | WRITABLE);
    expect_state(&mut client, &one, PRIORITY | PEER_CLOSED | ERROR, NONE);
    fill(&one);
    expect_state(&mut client, &one, WRITABLE, NONE);
    expect_state(&mut client, &one, READABLE | WRITABLE, READABLE);
}

/// C2d: EPOLLPRI is PRIORITY, when asked for.
fn priority_is_told_when_asked_for(setup: Setup) {
    let mut client = setup.client();
    let (near, far) = tcp_pair();
    expect_state(&mut client, &near, PRIORITY, NONE);
    assert_eq!(rustix::net::send(&far, b"!", SendFlags::OOB), Ok(1));
    let watch = client.watch(&near, PRIORITY, Mode::Once, 1).unwrap();
    client.expect_ready(watch, PRIORITY);
    expect_state(&mut client, &near, PRIORITY, PRIORITY);
    expect_state(&mut client, &near, READABLE, NONE);
    write_all(&far, b"x");
    expect_state(&mut client, &near, READABLE | PRIORITY, READABLE | PRIORITY);
}

/// C2d, C2e: a half-close is told to those who asked for PEER_CLOSED or READABLE, and disturbs nobody else.
fn a_half_close_is_told_only_when_asked_for(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = unix_pair();
    fill(&one);
    let watches: Vec<WatchId> =
        MODES.iter().map(|mode| client.watch(&one, WRITABLE | PRIORITY, *mode, 1).unwrap()).collect();
    other.shutdown(Shutdown::Write).unwrap();
    client.expect_nothing();
    expect_state(&mut client, &one, READABLE, READABLE | PEER_CLOSED);
    expect_state(&mut client, &one, READABLE | PEER_CLOSED, READABLE | PEER_CLOSED);
    expect_state(&mut client, &one, PEER_CLOSED, PEER_CLOSED);
    expect_state(&mut client, &one, PRIORITY, NONE);
    expect_state(&mut client, &one, ERROR, NONE);
    let edges = client.settle();
    // Other watches of the number were added: an Edge watch may be told again of what it knows, and it knows nothing.
    assert!(edges.is_empty(), "{edges:#?}");
    read_all(&other);
    // Each of them, at its own time; Edge and Level may be told again until the last one is.
    let mut untold = watches.clone();
    until("all are told", || {
        let told = client.settle();
        assert!(
            told.iter().all(|event| event.satisfied == WRITABLE),
            "the other direction works on: {told:#?}"
        );
        untold.retain(|watch| told.iter().all(|event| event.watch != *watch));
        untold.is_empty()
    });
    watches.iter().for_each(|watch| client.unwatch(*watch).unwrap());
    let (near, far) = tcp_pair();
    far.shutdown(Shutdown::Write).unwrap();
    until("the half-close arrived", || is_at_end(&near));
    expect_state(&mut client, &near, PEER_CLOSED, PEER_CLOSED);
    expect_state(&mut client, &near, WRITABLE, WRITABLE);
    expect_state(&mut client, &near, PRIORITY, NONE);
}

/// C2d, C2f: a hang-up and an error are told to every watch that asks for anything.
fn a_hang_up_and_an_error_are_always_told(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = unix_pair();
    drop(other);
    for wished in [PRIORITY, ERROR, PEER_CLOSED] {
        expect_state(&mut client, &one, wished, PEER_CLOSED);
    }
    expect_state(&mut client, &one, READABLE, READABLE | PEER_CLOSED);
    expect_state(&mut client, &one, WRITABLE, WRITABLE | PEER_CLOSED);

    let (reader, writer) = pipe();
    drop(writer);
    for wished in [READABLE, WRITABLE, PRIORITY, ERROR, PEER_CLOSED] {
        expect_state(&mut client, &reader, wished, PEER_CLOSED);
    }

    let (reader, writer) = pipe();
    fill(&writer);
    drop(reader);
    for wished in [READABLE, WRITABLE, PRIORITY, ERROR, PEER_CLOSED] {
        expect_state(&mut client, &writer, wished, ERROR);
    }

    let udp = udp_to_nobody();
    assert_eq!(udp.send(b"x").unwrap(), 1);
    for wished in [READABLE, PRIORITY, ERROR, PEER_CLOSED] {
        expect_state(&mut client, &udp, wished, ERROR);
    }
    assert!(udp.take_error().unwrap().is_some());
    expect_state(&mut client, &udp, READABLE, NONE);
}

/// C2f: the same when they come while the watch waits.
fn a_hang_up_and_an_error_come_in_unasked(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let (one, other) = socket_pair();
        let (reader, writer) = pipe();
        let hung_up = client.watch(&one, PRIORITY, mode, 1).unwrap();
        let failed = client.watch(&writer, PRIORITY, mode, 1).unwrap();
        client.expect_nothing();
        drop(other);
        client.expect_ready(hung_up, PEER_CLOSED);
        drop(reader);
        client.expect_ready(failed, ERROR);
    }
}

/// C2c: who hangs up may come back, on the same watch.
fn a_fifo_takes_its_hang_up_back(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let folder = Folder::new();
        let path = folder.file("fifo");
        let (reader, writer) = fifo(&path);
        let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
        for _ in 0..3 {
            client.expect_nothing();
            let writer_again = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            write_all(&writer_again, b"x");
            client.expect_ready(watch, READABLE);
            assert_eq!(read_all(&reader), 1);
            if mode == Mode::Once {
                client.arm(watch).unwrap();
            }
        }
        client.expect_nothing();
        drop(writer);
        client.expect_ready(watch, PEER_CLOSED);
        if mode == Mode::Once {
            client.arm(watch).unwrap();
            client.expect_ready(watch, PEER_CLOSED);
        }
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
        client.expect_nothing();
        write_all(&writer, b"y");
        let event = client.expect_ready(watch, READABLE);
        assert!(event.satisfiable.contains(READABLE | WRITABLE));
        assert_eq!(read_all(&reader), 1);
    }
}

/// C2c: a TCP socket that is not connected yet is hung up for the kernel, until it is connected.
fn an_unconnected_socket_takes_its_hang_up_back(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        let watch = client.watch(&socket, READABLE, mode, 1).unwrap();
        client.expect_ready(watch, PEER_CLOSED);
        client.expect_nothing();
        let address = listener.local_addr().unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        let (far, _) = listener.accept().unwrap();
        set_nonblocking(&socket);
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
        client.expect_nothing();
        write_all(&far, b"hello");
        client.expect_ready(watch, READABLE);
        assert_eq!(read_all(&socket), 5);
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
        drop(far);
        client.expect_ready(watch, READABLE | PEER_CLOSED);
    }
}

/// C2c: a terminal's master is hung up while nobody has its slave open.
fn a_terminal_takes_its_hang_up_back(setup: Setup) {
    let mut client = setup.client();
    let (master, slave) = pty();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let watch = client.watch(&master, READABLE, Mode::Once, 1).unwrap();
    client.expect_nothing();
    drop(slave);
    let event = client.expect_event();
    assert_eq!((event.watch, event.satisfied & PEER_CLOSED), (watch, PEER_CLOSED));
    let open = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, open, rustix::fs::Mode::empty()).unwrap();
    client.arm(watch).unwrap();
    client.expect_nothing();
    write_all(&slave, b"back");
    client.expect_ready(watch, READABLE);
}

/// C2g: 64 KiB that were written before the end are READABLE, piece by piece, until the last byte was read.
#[track_caller]
fn expect_data_before_end(setup: Setup, reader: &OwnedFd, mode: Mode, writing: thread::JoinHandle<()>) {
    const TOTAL: usize = 65536;
    let mut client = setup.client();
    let watch = client.watch(reader, READABLE | PEER_CLOSED, mode, 1).unwrap();
    let (mut read, mut is_over) = (0, false);
    while read < TOTAL || !is_over {
        let event = client.expect_event();
        assert_eq!((event.watch, event.kind), (watch, EventKind::Ready));
        is_over = event.satisfied.contains(PEER_CLOSED);
        assert!(event.satisfied.contains(READABLE) || read == TOTAL, "the end hides data: {event:#?}");
        // Edge tells of what is new, so it is read dry; the others are read in pieces.
        read += if mode == Mode::Edge {
            read_all(reader)
        } else {
            read_some(reader, 4096).map_or(0, |it| it.len())
        };
        if mode == Mode::Once {
            client.arm(watch).unwrap();
        }
    }
    writing.join().unwrap();
    assert_eq!(read_all(reader), 0);
}

fn write_and_close(writer: OwnedFd) -> thread::JoinHandle<()> {
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    thread::spawn(move || write_all(&writer, &vec![b'x'; 65536]))
}

fn the_end_does_not_hide_data(setup: Setup) {
    for mode in MODES {
        let (reader, writer) = pipe();
        let writing = write_and_close(writer);
        expect_data_before_end(setup, &reader, mode, writing);
        let (reader, writer) = socket_pair();
        let writing = write_and_close(writer);
        expect_data_before_end(setup, &reader, mode, writing);
        let (near, far) = tcp_pair();
        let writing = write_and_close(far.into());
        expect_data_before_end(setup, &near.into(), mode, writing);
        let (master, slave) = pty();
        let writing = write_and_close(slave);
        expect_data_before_end(setup, &master, mode, writing);
    }
}

/// C2g: the same when everything, the end too, was there before the watch.
fn an_old_end_does_not_hide_data(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        for (reader, writer) in [pipe(), socket_pair()] {
            write_all(&writer, b"rest");
            drop(writer);
            let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
            client.expect_ready(watch, READABLE | PEER_CLOSED);
            assert_eq!(read_some(&reader, 64).as_deref(), Some(&b"rest"[..]));
            client.unwatch(watch).unwrap();
        }
    }
}

in_every_setup!(
    an_unknown_bit_is_refused_by_watch,
    an_unknown_bit_is_refused_by_change,
    readable_and_writable_are_told_when_asked_for,
    priority_is_told_when_asked_for,
    a_half_close_is_told_only_when_asked_for,
    a_hang_up_and_an_error_are_always_told,
    a_hang_up_and_an_error_come_in_unasked,
    a_fifo_takes_its_hang_up_back,
    an_unconnected_socket_takes_its_hang_up_back,
    a_terminal_takes_its_hang_up_back,
    the_end_does_not_hide_data,
    an_old_end_does_not_hide_data,
);
