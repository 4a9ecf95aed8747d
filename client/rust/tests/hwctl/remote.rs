//! A session of the real service that is always busy: what it watches becomes ready over and over.

use std::io::{IoSlice, IoSliceMut, PipeWriter, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use handle_watcher_client::{Mode, Signals, Status};
use handle_watcher_wire::pickle::{HeaderSize, Writer, find_next};
use handle_watcher_wire::protocol::{Hello, Reply, Request, Watch};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::PROMPT;

/// The client's number of its one watch.
pub(crate) const WATCH: u64 = 31;

/// A session with one Edge watch of a pipe.
#[derive(Debug)]
pub(crate) struct Remote {
    calls: UnixStream,
    is_over: Arc<AtomicBool>,
    busy: Option<JoinHandle<()>>,
}

impl Remote {
    /// Connects under a name, and keeps the service busy until it is dropped.
    #[track_caller]
    pub(crate) fn start(path: &Path, name: &str) -> Self {
        let calls = UnixStream::connect(path).expect("a service");
        calls.set_read_timeout(Some(PROMPT)).expect("a timeout");
        send(&calls, &Request::Hello(Hello { version_lowest: 1, version_highest: 1, name }), None);
        let (welcome, events) = receive(&calls).expect("a welcome");
        assert_eq!(welcome.message(), "", "{welcome}");
        let events = UnixStream::from(events.expect("the event socket"));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let watch = Watch {
            id: WATCH,
            handle: 1,
            token: 7,
            signals: Signals::READABLE,
            mode: Mode::Edge,
            deadline_ns: 0,
        };
        send(&calls, &Request::Watch(watch), Some(reader.as_fd()));
        let (watched, _) = receive(&calls).expect("a reply");
        assert_eq!(watched.message(), "", "{watched}");
        let is_over = Arc::new(AtomicBool::new(false));
        let sees_end = Arc::clone(&is_over);
        // The service has a descriptor of its own of the pipe; the data is read here.
        let busy = std::thread::spawn(move || be_busy(&sees_end, reader, writer, events));
        Self { calls, is_over, busy: Some(busy) }
    }

    /// The last word of the service.
    #[track_caller]
    pub(crate) fn expect_last_word(&self) -> Status {
        receive(&self.calls).expect("a last word").0
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(busy) = self.busy.take() {
            // What it has to say was said by a failing test.
            drop(busy.join());
        }
    }
}

/// Makes the watch ready and takes its event, until it is over or the session has ended.
fn be_busy(is_over: &AtomicBool, mut reader: impl Read, mut writer: PipeWriter, mut events: UnixStream) {
    events.set_nonblocking(false).expect("a flag");
    events.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    while !is_over.load(Ordering::Acquire) {
        writer.write_all(b"x").expect("our own pipe");
        if matches!(events.read(&mut [0; 4096]), Ok(0)) {
            return;
        }
        reader.read_exact(&mut [0]).expect("what was written");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn send(calls: &UnixStream, request: &Request<'_>, descriptor: Option<BorrowedFd<'_>>) {
    let mut writer = Writer::new();
    request.write(1, u32::from(descriptor.is_some()), &mut writer);
    let frame = writer.frame().expect("a small frame");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !passed.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
    }
    let sent = rustix::net::sendmsg(calls, &[IoSlice::new(frame)], &mut ancillary, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(frame.len()));
}

/// One reply and the descriptor that came with it; None at the end.
#[track_caller]
fn receive(calls: &UnixStream) -> Option<(Status, Option<OwnedFd>)> {
    let (mut received, mut found) = (Vec::new(), None);
    loop {
        if let Some((frame, _)) = find_next(HeaderSize::PLAIN, &received) {
            return Some((Reply::read(frame).expect("a reply").status, found));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [0; 4096];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = rustix::net::recvmsg(calls, &mut slices, &mut ancillary, flags).expect("an answer");
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                found = descriptors.last();
            }
        }
        if message.bytes == 0 {
            return None;
        }
        received.extend_from_slice(&buffer[..message.bytes]);
    }
}
