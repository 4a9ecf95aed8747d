//! C1a, C1d, C1f, C1g, C1h, C2f: group E, files that cannot be waited on, and devices that behave oddly.
//!
//! - E2 is about a binding's standard input; the same descriptor is tested without a binding.
//! - E5 is B13 again: see `b13_libuv_4992_…`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::*;
use crate::util::*;

/// libuv/libuv#658: what the kernel cannot wait on is refused when it is registered, with the reason, and nobody is hurt.
#[test]
fn e1_libuv_658_files_without_readiness_are_refused_by_name() {
    let kinds = [
        ("/proc/self/exe", "a regular file"),
        ("/", "a directory"),
        ("/dev/null", "a device"),
        ("/dev/zero", "a device"),
    ];
    for (path, name) in kinds {
        let mut client = Setup::Own.client();
        let file = File::open(path).unwrap();
        for mode in MODES {
            for signals in [READABLE, WRITABLE, NONE, ERROR] {
                let status = client.watch(&file, signals, mode, 1).unwrap_err();
                assert_eq!(status.code(), Code::FailedPrecondition, "{path}");
                assert!(status.message().contains(name), "{path}: {status}");
            }
        }
        assert_eq!(client.client_stats().watches, 0);
        // Given ones come back, or can be closed by whoever gave them.
        match client.adopt(file.into()) {
            Ok(handle) => {
                let options = WatchOptions::new(READABLE, Mode::Once, 1);
                assert_eq!(code_of(client.watch_handle(handle, options)), Code::FailedPrecondition, "{path}");
                client.close(handle).unwrap();
            }
            Err(refused) => assert_eq!(refused.status.code(), Code::FailedPrecondition, "{path}"),
        }
        expect_alive(&mut client);
    }
}

/// libuv/libuv#658: a number that was watched and is a regular file by now ends the old watch and refuses the new one.
#[test]
fn e1_libuv_658_a_number_that_became_a_regular_file_is_refused() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let old = client.watch(number.take(event_fd(0)), READABLE, Mode::Level, 1).unwrap();
        let file = number.take(File::open("/proc/self/exe").unwrap().into());
        assert_eq!(code_of(client.watch(&file, READABLE, Mode::Level, 2)), Code::FailedPrecondition);
        client.expect_ended(old, Code::NotFound);
        client.expect_nothing();
        drop(file);
        let event = number.take(event_fd(1));
        let new = client.watch(&event, READABLE, Mode::Once, 3).unwrap();
        client.expect_ready(new, READABLE);
    });
}

/// python/cpython#73903: standard input is a terminal in one run and a file in the next; the second is an error that can
/// be handled, not a hang.
#[test]
fn e2_cpython_73903_standard_input_may_be_a_file() {
    alone!(e2_cpython_73903_standard_input_may_be_a_file, {
        let mut client = Setup::Own.client();
        let kept = duplicate(&std::io::stdin());
        let (master, slave) = pty();
        // The number belongs to the process and is put back at the end.
        std::mem::forget(place_at(&slave, 0));
        let watch = client.watch(std::io::stdin(), READABLE, Mode::Once, 1).unwrap();
        write_all(&master, b"typed");
        client.expect_ready(watch, READABLE);
        client.unwatch(watch).unwrap();
        std::mem::forget(place_at(&File::open("/proc/self/exe").unwrap(), 0));
        let status = client.watch(std::io::stdin(), READABLE, Mode::Once, 2).unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        std::mem::forget(place_at(&kept, 0));
        client.expect_nothing();
    });
}

/// golang/go#30624, golang/go#30426: a device that takes the registration and then reports an error has it forwarded.
/// A socket that is not connected does: it is hung up from the start.
#[test]
fn e3_go_30624_what_is_wrong_from_the_start_is_told_and_not_kept_silent() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let watch = client.watch(&socket, READABLE, mode, 3).unwrap();
        let event = client.expect_event();
        assert_eq!(event.watch, watch);
        assert!(event.satisfied.contains(PEER_CLOSED), "{event:#?}");
        expect_quiet(&client);
        // And it is not for ever: once connected, the socket is like any other.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::connect(&socket, &listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        client.settle();
        client.arm(watch).unwrap();
        client.expect_nothing();
        write_all(&peer, b"x");
        client.expect_ready(watch, READABLE);
    });
}

/// Watches something that is ready in every mode; gives what was told of it.
fn told_of(descriptor: &impl AsFd) -> Signals {
    let mut told = Signals::empty();
    in_each(|setup, mode| {
        let mut client = setup.client();
        let flags = flags_of(descriptor);
        let watch = client.watch(descriptor, READABLE, mode, 4).unwrap();
        told |= client.expect_event().satisfied;
        client.unwatch(watch).unwrap();
        assert!(client.settle().is_empty());
        assert_eq!(flags_of(descriptor), flags, "flags are the owner's");
    });
    told
}

/// tokio-rs/tokio#6632: handles are waited on, not read: every kind is told of, and its owner finds all that was there.
#[test]
fn e4_tokio_6632_every_kind_is_told_of_and_none_is_read() {
    let event = event_fd(3);
    assert_eq!(told_of(&event), READABLE);
    assert_eq!(clear_event(&event), 3);

    let timer = timer_fd();
    set_timer_fd(&timer, Duration::from_nanos(1));
    assert_eq!(told_of(&timer), READABLE);
    assert_eq!(clear_event(&timer), 1);

    let (inner, set) = (event_fd(1), poll_set());
    add_to_poll_set(&set, &inner);
    assert_eq!(told_of(&set), READABLE);
    assert_eq!(clear_event(&inner), 1);

    let folder = Folder::new();
    let mut changes = FileChanges::new().unwrap();
    changes.watch_path(folder.path(), Changes::CREATED).unwrap();
    std::fs::write(folder.file("new"), b"x").unwrap();
    assert_eq!(told_of(&changes), READABLE);
    assert_eq!(changes.read().unwrap().len(), 1);

    let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
    assert_eq!(told_of(&ChildProcess::of(&child).unwrap()), READABLE);
    assert_eq!(child.wait().unwrap().code(), Some(3));

    let (reader, writer) = fifo(&folder.file("fifo"));
    write_all(&writer, b"five!");
    assert_eq!(told_of(&reader), READABLE);
    assert_eq!(read_all(&reader), 5);

    let (master, slave) = pty();
    write_all(&slave, b"five!");
    assert_eq!(told_of(&master), READABLE);
    assert_eq!(read_all(&master), 5);

    let mut child = Command::new("sh").args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut client = Setup::Own.client();
    let stdin: OwnedFd = child.stdin.take().unwrap().into();
    let watch = client.watch(&stdin, WRITABLE, Mode::Once, 4).unwrap();
    client.expect_ready(watch, WRITABLE);
    write_all(&stdin, b"line\n");
    assert!(child.wait().unwrap().success(), "nothing but our line was written");
}

/// tokio-rs/tokio#6632: a signalfd too. It tells of signals of the whole process, which are blocked in every thread; so
/// this runs in a forked child, which has one thread.
#[test]
fn e4_tokio_6632_a_signalfd_is_told_of_and_not_read() {
    alone!(e4_tokio_6632_a_signalfd_is_told_of_and_not_read, {
        let child = Forked::run(|| {
            block_signal(libc::SIGUSR2);
            let signals = signal_fd(libc::SIGUSR2);
            let mut client = Setup::Own.client();
            let watch = client.watch(&signals, READABLE, Mode::Once, 4).unwrap();
            client.expect_nothing();
            kill_process(getpid(), Signal::USR2).unwrap();
            client.expect_ready(watch, READABLE);
            let info = read_some(&signals, 4096).unwrap();
            assert_eq!(info[..4], libc::SIGUSR2.to_ne_bytes(), "the signal is still there");
        });
        child.expect_success();
    });
}
