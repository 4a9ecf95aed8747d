//! A service that says what a test wants. It speaks the frames and keeps no rules.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use handle_watcher_client::{Code, Mode, Signals, Status};
use handle_watcher_wire::pickle::{HeaderSize, Writer, find_next};
use handle_watcher_wire::protocol::{
    Limits, NO_CALL, Reply, Request, SessionEntry, WatchEntry, Welcome, write_sessions, write_stats,
    write_watches,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// The name of a session that would like to take a terminal over.
pub(crate) const NASTY: &str = "evil\u{1b}[2J\u{9b}2J\n\u{202e}name";

/// How the service behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As it should.
    #[default]
    Good,
    /// It takes requests and answers none.
    Silent,
    /// It closes instead of answering a hello.
    Closing,
    /// It ends each session with a status instead of answering a hello.
    Refusing,
    /// Its welcome comes without the event socket.
    WithoutEvents,
    /// It announces more than it may.
    Boastful,
    /// It answers another call than the one it was asked.
    Confused,
    /// It answers one byte at a time.
    Slow,
}

/// What the threads of the service share.
#[derive(Debug, Default)]
struct Shared {
    manner: Manner,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: Vec<UnixStream>,
    killed: Vec<u64>,
    names: Vec<String>,
    /// Grows with each look, so that there are rates.
    looks: u64,
    faults: Vec<String>,
}

/// The service. It ends with this value.
#[derive(Debug)]
pub(crate) struct Fake {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Fake {
    pub(crate) fn start(path: &Path, manner: Manner) -> Self {
        let listener = Arc::new(UnixListener::bind(path).expect("a free name"));
        let shared = Arc::new(Shared { manner, ..Shared::default() });
        let (accepts, sees) = (Arc::clone(&listener), Arc::clone(&shared));
        let accepting = std::thread::spawn(move || accept_all(&accepts, &sees));
        Self { path: path.to_owned(), listener, shared, accepting: Some(accepting) }
    }

    /// The sessions that were killed.
    pub(crate) fn killed(&self) -> Vec<u64> {
        self.shared.state.lock().expect("no panic").killed.clone()
    }

    /// What the clients called themselves.
    pub(crate) fn names(&self) -> Vec<String> {
        self.shared.state.lock().expect("no panic").names.clone()
    }

    /// What the clients did wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.shared.state.lock().expect("no panic").faults.clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Whoever connects from here on is refused; who waits for connections is told so.
        let _: rustix::io::Result<()> = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        // The whole folder may be gone.
        let _: std::io::Result<()> = std::fs::remove_file(&self.path);
        let ended = self.accepting.take().map(JoinHandle::join);
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in &state.streams {
            let _: std::io::Result<()> = stream.shutdown(std::net::Shutdown::Both);
        }
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the service panicked");
    }
}

fn accept_all(listener: &UnixListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        let copy = stream.try_clone().expect("a copy");
        shared.state.lock().expect("no panic").streams.push(copy);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let session = Session { stream, shared, events: None };
            let copy = session.stream.try_clone().expect("a copy");
            session.serve();
            // The list still has a copy.
            let _: std::io::Result<()> = copy.shutdown(std::net::Shutdown::Both);
        });
    }
}

struct Session {
    stream: UnixStream,
    shared: Arc<Shared>,
    /// Our end of the event socket, which the client has to keep open.
    events: Option<UnixStream>,
}

impl Session {
    /// Serves until the client has gone.
    fn serve(mut self) {
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            while let Some((frame, rest)) = find_next(HeaderSize::PLAIN, &received) {
                let rest = rest.to_vec();
                if !self.answer(frame) {
                    return;
                }
                received = rest;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// False when the session is over.
    fn answer(&mut self, frame: &[u8]) -> bool {
        let (head, request) = Request::read(frame).expect("a request");
        if self.shared.manner == Manner::Silent && !matches!(request, Request::Hello(_)) {
            return true;
        }
        if let Some(mut events) = self.events.as_ref()
            && !matches!(events.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        {
            self.state(|state| state.faults.push("it closed its event socket".to_owned()));
        }
        let mut writer = Writer::new();
        let call = if self.shared.manner == Manner::Confused { head.call + 1 } else { head.call };
        match request {
            Request::Hello(hello) => {
                self.state(|state| state.names.push(hello.name.to_owned()));
                return self.welcome(head.call);
            }
            Request::Ping => Reply::write_ok(call, &mut writer),
            Request::Stats => self.write_stats(call, &mut writer),
            Request::Sessions => {
                Reply::write_ok(call, &mut writer);
                let looks = self.state(|state| state.looks);
                write_sessions(&sessions(looks), &mut writer);
            }
            Request::Watches { session, most } => {
                let looks = self.state(|state| state.looks);
                Reply::write_ok(call, &mut writer);
                let most = usize::try_from(most).expect("few");
                let watches = watches(session, looks);
                write_watches(&watches[..watches.len().min(most)], &mut writer);
            }
            Request::Kill { session: session @ (1 | 2) } => {
                self.state(|state| state.killed.push(session));
                Reply::write_ok(call, &mut writer);
            }
            Request::Kill { session } => {
                let message = format!("there is no session {session}\u{1b}[2J");
                Reply::write(call, 0, &Status::new(Code::NotFound, message), &mut writer);
            }
            other => panic!("hwctl does not ask for {other:?}"),
        }
        self.send(writer.frame().expect("a small frame"))
    }

    fn welcome(&mut self, call: u32) -> bool {
        let mut writer = Writer::new();
        match self.shared.manner {
            Manner::Closing => return false,
            Manner::Boastful => return self.send(&[0xff, 0xff, 0xff, 0x7f]),
            Manner::Refusing => {
                let status = Status::new(Code::ResourceExhausted, "too many sessions of user 0; end some");
                Reply::write(NO_CALL, 0, &status, &mut writer);
                self.send(writer.frame().expect("a small frame"));
                return false;
            }
            _ => {}
        }
        let descriptors = u32::from(self.shared.manner != Manner::WithoutEvents);
        Reply::write(call, descriptors, &Status::new(Code::Ok, ""), &mut writer);
        let limits = Limits { frame_bytes: 1 << 20, watches: 1000, timers: 1000, descriptors: 253 };
        Welcome { version: 1, session: 9, limits }.write(&mut writer);
        let frame = writer.frame().expect("a small frame");
        if descriptors == 0 {
            return self.send(frame);
        }
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a flag");
        self.events = Some(ours);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let passed = [theirs.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
        let sent =
            rustix::net::sendmsg(&self.stream, &[IoSlice::new(frame)], &mut ancillary, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(frame.len()), "descriptor {}", theirs.as_raw_fd());
        true
    }

    fn write_stats(&self, call: u32, writer: &mut Writer) {
        let looks = self.state(|state| {
            state.looks += 1;
            state.looks
        });
        let names: Vec<String> = (0..16).map(|class| format!("ready_per_wait_{class}")).collect();
        let mut stats =
            vec![("turns", 10 * looks), ("wakes", 3), ("sessions", 2), ("watches", 12), (NASTY, 1)];
        stats.extend([("from_fronts", 1000 * looks), ("largest", u64::MAX)]);
        stats.extend(
            names
                .iter()
                .enumerate()
                .map(|(class, name)| (name.as_str(), if class == 3 { 7 * looks } else { 0 })),
        );
        Reply::write_ok(call, writer);
        write_stats(&stats, writer);
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        if self.shared.manner == Manner::Slow {
            return frame.iter().all(|byte| self.stream.write_all(&[*byte]).is_ok());
        }
        self.stream.write_all(frame).is_ok()
    }

    fn state<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        read(&mut self.shared.state.lock().expect("no panic"))
    }
}

/// A busy session with a nasty name, and a quiet one.
fn sessions(looks: u64) -> Vec<SessionEntry> {
    let quiet = SessionEntry {
        session: 1,
        name: "quiet".to_owned(),
        process: 4711,
        user: 1000,
        age_ns: 90_000_000_000,
        watches: 2,
        timers: 5,
        events: 77,
        requests: 8,
        ..SessionEntry::default()
    };
    let busy = SessionEntry {
        session: 2,
        name: NASTY.to_owned(),
        process: 4712,
        watches: 10,
        events: 3000 * looks,
        ..quiet
    };
    vec![quiet, busy]
}

fn watches(session: u64, looks: u64) -> Vec<WatchEntry> {
    let watch = |id, kind: &str, events| WatchEntry {
        id,
        kind: kind.to_owned(),
        signals: Signals::READABLE,
        mode: Mode::Once,
        events,
    };
    match session {
        2 => vec![watch(31, "socket", 100 * looks), watch(32, "pipe\u{1b}[2J", 2000 * looks)],
        _ => vec![watch(33, "eventfd", 77)],
    }
}
