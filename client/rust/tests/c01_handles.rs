//! C1: what can be watched, who owns it, and that we only ever look at it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::any::Any;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use util::*;

/// A descriptor that is not readable yet, and what makes it so.
struct Sample {
    watched: OwnedFd,
    make_readable: Box<dyn FnOnce() -> Vec<Box<dyn Any>>>,
}

impl Sample {
    fn new<K: 'static>(
        watched: impl Into<OwnedFd>,
        kept: K,
        make_readable: impl FnOnce(&K) + 'static,
    ) -> Self {
        let make_readable = Box::new(move || -> Vec<Box<dyn Any>> {
            make_readable(&kept);
            vec![Box::new(kept)]
        });
        Self { watched: watched.into(), make_readable }
    }
}

/// One of every kind that epoll accepts, but for the signalfd, which needs a process of its own.
fn samples() -> Vec<(&'static str, Sample)> {
    let folder = Folder::new();
    let mut samples = stream_samples(&folder);
    samples.extend(counter_samples());
    samples.extend(file_samples(folder));
    samples
}

fn stream_samples(folder: &Folder) -> Vec<(&'static str, Sample)> {
    let write = |descriptor: &OwnedFd| write_all(descriptor, b"x");
    let (one, other) = socket_pair();
    let (near, far) = tcp_pair();
    let (reader, writer) = pipe();
    let (fifo_reader, fifo_writer) = fifo(&folder.file("fifo"));
    let (master, slave) = pty();
    let (other_master, other_slave) = pty();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_address = udp.local_addr().unwrap();
    vec![
        ("socket pair", Sample::new(one, other, write)),
        ("TCP stream", Sample::new(near, OwnedFd::from(far), write)),
        ("pipe", Sample::new(reader, writer, write)),
        ("FIFO", Sample::new(fifo_reader, fifo_writer, write)),
        ("terminal, master", Sample::new(master, slave, write)),
        ("terminal, slave", Sample::new(other_slave, other_master, write)),
        (
            "TCP listener",
            Sample::new(listener, (), move |()| drop(std::net::TcpStream::connect(address).unwrap())),
        ),
        (
            "UDP socket",
            Sample::new(udp, std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), move |sender| {
                assert_eq!(sender.send_to(b"x", udp_address).unwrap(), 1);
            }),
        ),
    ]
}

fn counter_samples() -> Vec<(&'static str, Sample)> {
    let event = event_fd(0);
    let twin = duplicate(&event);
    let (inner, inner_writer) = pipe();
    let set = poll_set();
    add_to_poll_set(&set, &inner);
    vec![
        ("eventfd", Sample::new(event, twin, |twin: &OwnedFd| set_event(twin))),
        ("timerfd", {
            let timer = timer_fd();
            let twin = duplicate(&timer);
            Sample::new(timer, twin, |twin: &OwnedFd| set_timer_fd(twin, Duration::from_micros(50)))
        }),
        (
            "epoll set",
            Sample::new(set, (inner, inner_writer), |(_, writer): &(OwnedFd, OwnedFd)| {
                write_all(writer, b"x")
            }),
        ),
    ]
}

/// A child that ends when its input is closed.
struct Cat(RefCell<Child>);

impl Cat {
    fn spawn() -> Self {
        Self(RefCell::new(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()))
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        // `wait` closes its input first.
        assert!(self.0.get_mut().wait().unwrap().success());
    }
}

fn file_samples(folder: Folder) -> Vec<(&'static str, Sample)> {
    let child = Cat::spawn();
    let process = ChildProcess::of(&child.0.borrow()).unwrap();
    let mut changes = FileChanges::new().unwrap();
    changes.watch_path(folder.path(), Changes::CREATED).unwrap();
    let descriptor = changes.as_fd().try_clone_to_owned().unwrap();
    let new_file = folder.file("new");
    vec![
        ("pidfd", Sample::new(process, child, |child| drop(child.0.borrow_mut().stdin.take()))),
        (
            "inotify",
            Sample::new(descriptor, (changes, folder), move |_| std::fs::write(&new_file, b"x").unwrap()),
        ),
    ]
}

/// Every kind is accepted, silent while it is not ready, and told when it is.
fn every_kind_can_be_watched(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        for (name, sample) in samples() {
            let watched = client.watch(&sample.watched, READABLE, mode, 5);
            if name == "epoll" && setup.is_remote() && !setup.serves_in_front(mode) {
                // A service cannot know what is in there.
                assert_eq!(watched.unwrap_err().code(), Code::FailedPrecondition);
                continue;
            }
            let watch = watched.unwrap_or_else(|status| {
                panic!("{name} was refused: {status}");
            });
            client.expect_nothing();
            let kept = (sample.make_readable)();
            let event = client.expect_event();
            assert_eq!(
                (event.watch, event.token, event.kind),
                (watch, 5, EventKind::Ready),
                "{name} {mode:?}"
            );
            assert_eq!(event.satisfied, READABLE, "{name} {mode:?}");
            client.unwatch(watch).unwrap();
            client.expect_nothing();
            drop(kept);
        }
    }
}

/// A signalfd tells of signals that wait for the whole process, so they have to be blocked in every thread: in a process
/// with no other thread than this and the watcher's.
fn a_signalfd_can_be_watched(setup: Setup) {
    let child = Forked::run(|| {
        block_signal(libc::SIGURG);
        let signals = signal_fd(libc::SIGURG);
        for mode in MODES {
            let mut client = setup.client();
            let watch = client.watch(&signals, READABLE, mode, 5).unwrap();
            client.expect_nothing();
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::URG).unwrap();
            client.expect_ready(watch, READABLE);
            assert_eq!(read_some(&signals, 128).unwrap().len(), 128, "nobody else has taken it");
        }
    });
    child.expect_success();
}

/// C1d: a whole life of a watch leaves data, counters, flags and the descriptor itself as they were.
fn a_lent_descriptor_is_only_looked_at(setup: Setup) {
    for mode in MODES {
        for blocking in [true, false] {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            one.set_nonblocking(!blocking).unwrap();
            let event = event_fd(41);
            let before = (flags_of(&one), flags_of(&event));
            write_all(&other, b"data");
            let mut client = setup.client();
            for descriptor in [one.as_fd(), event.as_fd()] {
                let watch = client.watch(descriptor, READABLE, mode, 1).unwrap();
                client.expect_ready(watch, READABLE);
                client.arm(watch).unwrap();
                client.change(watch, READABLE | WRITABLE).unwrap();
                client.pause(watch).unwrap();
                client.resume(watch).unwrap();
                client.expect_ready(watch, READABLE | WRITABLE);
                client.unwatch(watch).unwrap();
            }
            // And once more with a watch that the client's end takes along.
            client.watch(&one, READABLE, mode, 2).unwrap();
            drop(client);
            assert_eq!((flags_of(&one), flags_of(&event)), before, "{mode:?}");
            assert_eq!(read_some(&one, 64).as_deref(), Some(&b"data"[..]));
            assert_eq!(clear_event(&event), 41);
            write_all(&one, b"open");
            assert_eq!(read_some(&other, 64).as_deref(), Some(&b"open"[..]));
        }
    }
}

/// C1f: what epoll refuses is refused at once, with the reason, and leaves nothing behind.
fn files_and_directories_are_refused(setup: Setup) {
    let client = setup.client();
    let folder = Folder::new();
    let path = folder.file("regular");
    std::fs::write(&path, b"text").unwrap();
    let null = || std::fs::File::open("/dev/null").unwrap();
    let regular = || std::fs::File::open(&path).unwrap();
    let directory = || std::fs::File::open(folder.path()).unwrap();
    for (file, reason) in [(regular(), "a regular file"), (directory(), "a directory"), (null(), "a device")]
    {
        for mode in MODES {
            for signals in [READABLE, WRITABLE, NONE] {
                let status = client.watch(&file, signals, mode, 1).unwrap_err();
                assert_eq!(status.code(), Code::FailedPrecondition, "{reason}");
                assert!(status.message().contains(reason), "{status}");
            }
        }
    }
    assert_eq!(client.client_stats().watches, 0);
}

/// C1f: any number may be passed; one that is not open is refused.
fn a_number_that_is_not_open_is_refused(setup: Setup) {
    let client = setup.client();
    let closed = PrivateNumber::new().number();
    for number in [closed, -1, -100, i32::MIN, i32::MAX] {
        let options = WatchOptions::new(READABLE, Mode::Once, 1);
        let status = client.watch_number(number, options).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{number}");
        assert!(status.message().contains(&number.to_string()), "{status}");
    }
    assert_eq!(client.client_stats().watches, 0);
}

/// C1e: a given descriptor is ours until close, and then closed.
fn a_given_descriptor_is_ours_until_close(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let handle = client.adopt(one).unwrap();
    assert_eq!(client.client_stats().handles, 1);
    let watch = client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Once, 3)).unwrap();
    write_all(&other, b"x");
    client.expect_ready(watch, READABLE);
    client.unwatch(watch).unwrap();
    assert!(!is_at_end(&other), "an unwatched handle stays open");
    client.close(handle).unwrap();
    // A process that another test starts at this moment may hold it for a moment longer.
    until("close closes", || peer_is_gone(&other));
    assert_eq!(client.client_stats().handles, 0);
    let options = WatchOptions::new(READABLE, Mode::Once, 3);
    assert_eq!(client.watch_handle(handle, options).unwrap_err().code(), Code::NotFound);
}

/// A socket whose peer closed with data unread says "reset" first.
fn peer_is_gone(socket: &OwnedFd) -> bool {
    matches!(rustix::io::read(socket, &mut [0; 8]), Ok(0) | Err(rustix::io::Errno::CONNRESET))
}

/// C1e: or until its client is dropped.
fn a_given_descriptor_goes_with_its_client(setup: Setup) {
    let client = setup.client();
    let (one, other) = socket_pair();
    let (unwatched, unwatched_other) = socket_pair();
    let handle = client.adopt(one).unwrap();
    client.adopt(unwatched).unwrap();
    client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Level, 3)).unwrap();
    assert!(!is_at_end(&other) && !is_at_end(&unwatched_other));
    drop(client);
    until("dropping the client closes what it was given", || {
        is_at_end(&other) && is_at_end(&unwatched_other)
    });
}

/// C1e: a refused descriptor comes back open, with the reason.
fn a_refused_descriptor_comes_back(setup: Setup) {
    let client = setup.client();
    let folder = Folder::new();
    std::fs::write(folder.file("regular"), b"text").unwrap();
    let regular = std::fs::File::open(folder.file("regular")).unwrap();
    let directory = std::fs::File::open(folder.path()).unwrap();
    for (file, reason) in [(regular, "a regular file"), (directory, "a directory")] {
        let number = number_of(&file);
        let refused = client.adopt(file.into()).unwrap_err();
        assert_eq!(refused.status.code(), Code::FailedPrecondition);
        assert!(refused.status.message().contains(reason), "{}", refused.status);
        assert_eq!(number_of(&refused.value), number);
        assert!(rustix::fs::fstat(&refused.value).is_ok(), "it is still open");
    }
    assert_eq!(client.client_stats().handles, 0);
}

/// C1g: a child is readable once it has ended, and its status is left to its owner.
fn the_exit_status_stays_with_the_owner(setup: Setup) {
    let mut client = setup.client();
    let mut child =
        Command::new("sh").args(["-c", "read line; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
    let process = ChildProcess::of(&child).unwrap();
    let watch = client.watch_child(&process, 4).unwrap();
    client.expect_nothing();
    drop(child.stdin.take());
    let event = client.expect_ready(watch, READABLE);
    assert_eq!(event.token, 4);
    client.expect_nothing();
    // A child that ended before it is watched is told at once, by any mode and by a given descriptor too.
    for mode in MODES {
        let again = client.watch(&process, READABLE, mode, 5).unwrap();
        client.expect_ready(again, READABLE);
        client.unwatch(again).unwrap();
    }
    let handle = client.adopt(process.into()).unwrap();
    let given = client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Once, 6)).unwrap();
    client.expect_ready(given, READABLE);
    client.close(handle).unwrap();
    client.expect_events(2);
    assert_eq!(child.wait().unwrap().code(), Some(7), "the status was not stolen");
}

/// C1g: what cannot be a child.
fn a_process_that_is_not_there_is_refused(_setup: Setup) {
    let mut child = Command::new("true").spawn().unwrap();
    let id = child.id();
    assert!(child.wait().unwrap().success());
    assert_eq!(ChildProcess::open(id).unwrap_err().code(), Code::NotFound);
    for id in [0, u32::MAX, 1 << 31] {
        let status = ChildProcess::open(id).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{id}");
        assert!(status.message().contains(&id.to_string()), "{status}");
    }
}

/// C1h: readable exactly while changes wait; reading never blocks.
fn file_changes_are_told(setup: Setup) {
    let mut client = setup.client();
    let folder = Folder::new();
    let log = folder.file("log");
    std::fs::write(&log, b"").unwrap();
    let mut changes = FileChanges::new().unwrap();
    changes.watch_path(&log, Changes::CONTENT).unwrap();
    changes.watch_path(folder.path(), Changes::CREATED | Changes::REMOVED).unwrap();
    let watch = client.watch(&changes, READABLE, Mode::Level, 9).unwrap();
    assert_eq!(changes.read().unwrap(), [], "reading never blocks");
    client.expect_nothing();

    let append = |text: &[u8]| {
        let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        std::io::Write::write_all(&mut file, text).unwrap();
    };
    append(b"one");
    client.expect_ready(watch, READABLE);
    client.expect_ready(watch, READABLE);
    let found = changes.read().unwrap();
    assert_eq!(found, [Change { path: log.clone(), name: None, changes: Changes::CONTENT }]);
    client.expect_nothing();

    std::fs::write(folder.file("other"), b"x").unwrap();
    client.expect_ready(watch, READABLE);
    let created = changes.read().unwrap();
    let name = Some(std::ffi::OsString::from("other"));
    assert_eq!(created, [Change { path: folder.path().to_owned(), name, changes: Changes::CREATED }]);
    client.expect_nothing();

    std::fs::remove_file(&log).unwrap();
    client.expect_ready(watch, READABLE);
    let gone = changes.read().unwrap();
    assert!(gone.iter().any(|change| change.path == log && change.changes == Changes::GONE), "{gone:?}");
    assert!(gone.iter().any(|change| change.path == folder.path() && change.changes == Changes::REMOVED));
    assert_eq!(changes.read().unwrap(), []);
    client.expect_nothing();
}

in_every_setup!(
    every_kind_can_be_watched,
    a_lent_descriptor_is_only_looked_at,
    files_and_directories_are_refused,
    a_number_that_is_not_open_is_refused,
    a_given_descriptor_is_ours_until_close,
    a_given_descriptor_goes_with_its_client,
    a_refused_descriptor_comes_back,
    the_exit_status_stays_with_the_owner,
    a_process_that_is_not_there_is_refused,
    file_changes_are_told,
);

in_every_embedded_setup_alone!(a_signalfd_can_be_watched,);
