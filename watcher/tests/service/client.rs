//! A client as anybody could write it: two blocking sockets, frames, and descriptors beside them.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use handle_watcher::{Code, EventKind, Mode, Signals, Status};
use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next};
use handle_watcher_wire::protocol::{EventFrame, Hello, Reply, Request, SetTimer, Watch, Welcome};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::util::PROMPT;

/// A reply, with its body still in its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) call: u32,
    pub(crate) status: Status,
    frame: Vec<u8>,
}

impl Answer {
    fn read(frame: &[u8]) -> Self {
        let reply = Reply::read(frame).expect("a reply");
        Self { call: reply.call, status: reply.status, frame: frame.to_vec() }
    }

    pub(crate) fn code(&self) -> Code {
        self.status.code()
    }

    /// What stands behind the status.
    pub(crate) fn body(&self) -> Reader<'_> {
        Reply::read(&self.frame).expect("it was one before").body
    }
}

/// A connection that has not said Hello.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) socket: UnixStream,
    received: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Raw {
    #[track_caller]
    pub(crate) fn connect(path: &str) -> Self {
        Self::of(connect(path).expect("a service listens there"))
    }

    pub(crate) fn of(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(PROMPT)).expect("a timeout");
        Self { socket, received: Vec::new(), descriptors: Vec::new() }
    }

    /// Sends all bytes; the descriptors go with the first.
    pub(crate) fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let beside = if sent == 0 { descriptors } else { &[] };
            sent += send_some(self.socket.as_fd(), &bytes[sent..], beside)?;
        }
        Ok(())
    }

    #[track_caller]
    pub(crate) fn send(&self, request: &Request<'_>, call: u32, descriptors: &[BorrowedFd<'_>]) {
        self.send_bytes(&frame_of(request, call, descriptors), descriptors).expect("the service reads");
    }

    /// The next reply; None at the end of the stream.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Answer> {
        loop {
            if let Some((frame, rest)) = find_next(HeaderSize::PLAIN, &self.received) {
                let (answer, left) = (Answer::read(frame), rest.to_vec());
                self.received = left;
                return Some(answer);
            }
            let mut buffer = vec![0; 1 << 16];
            match self.receive(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                // What was sent before is read first; then a close with something unread is told so.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                self.descriptors.extend(descriptors);
            }
        }
        Ok(message.bytes)
    }

    /// The last word, and then the end.
    #[track_caller]
    pub(crate) fn expect_last(&mut self, code: Code) -> Status {
        let last = self.next().expect("a last word");
        assert_eq!((last.call, last.code()), (0, code), "{}", last.status);
        assert!(self.next().is_none(), "and then the end");
        last.status
    }

    #[track_caller]
    pub(crate) fn hello(mut self) -> Client {
        let hello = Hello { version_lowest: 1, version_highest: 1, name: "test" };
        self.send(&Request::Hello(hello), 1, &[]);
        let answer = self.next().expect("a welcome");
        assert_eq!((answer.call, answer.code()), (1, Code::Ok), "{}", answer.status);
        let welcome = Welcome::read(&mut answer.body()).expect("a welcome");
        let events = UnixStream::from(self.descriptors.pop().expect("the event socket"));
        events.set_nonblocking(false).expect("ours");
        events.set_read_timeout(Some(PROMPT)).expect("a timeout");
        Client { raw: self, events, welcome, last_call: 1, arrived: Vec::new() }
    }
}

/// A session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) raw: Raw,
    pub(crate) events: UnixStream,
    pub(crate) welcome: Welcome,
    last_call: u32,
    arrived: Vec<u8>,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(path: &str) -> Self {
        Raw::connect(path).hello()
    }

    /// Sends a request without waiting; gives its call number.
    #[track_caller]
    pub(crate) fn send(&mut self, request: &Request<'_>, descriptors: &[BorrowedFd<'_>]) -> u32 {
        self.last_call += 1;
        self.raw.send(request, self.last_call, descriptors);
        self.last_call
    }

    /// Asks, and waits for the reply.
    #[track_caller]
    pub(crate) fn call(&mut self, request: &Request<'_>, descriptors: &[BorrowedFd<'_>]) -> Answer {
        let call = self.send(request, descriptors);
        let answer = self.raw.next().expect("a reply");
        assert_eq!(answer.call, call, "{}", answer.status);
        answer
    }

    #[track_caller]
    pub(crate) fn ok(&mut self, request: &Request<'_>) -> Answer {
        let answer = self.call(request, &[]);
        assert_eq!(answer.code(), Code::Ok, "{request:?}: {}", answer.status);
        answer
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, request: &Request<'_>, code: Code) -> Status {
        let answer = self.call(request, &[]);
        assert_eq!(answer.code(), code, "{request:?}: {}", answer.status);
        answer.status
    }

    /// Watches a new handle; its number, the watch's and the token are the same.
    #[track_caller]
    pub(crate) fn watch(&mut self, id: u64, descriptor: impl AsFd, signals: Signals, mode: Mode) {
        let answer = self.call(&watch_of(id, signals, mode), &[descriptor.as_fd()]);
        assert_eq!(answer.code(), Code::Ok, "{}", answer.status);
    }

    #[track_caller]
    pub(crate) fn timer(&mut self, id: u64, deadline_ns: u64, period_ns: u64) {
        self.ok(&Request::SetTimer(SetTimer { id, token: id, deadline_ns, period_ns }));
    }

    #[track_caller]
    pub(crate) fn next_event(&mut self) -> EventFrame {
        self.find_event(PROMPT).expect("an event")
    }

    /// The next event, if one comes in time.
    #[track_caller]
    pub(crate) fn find_event(&mut self, timeout: Duration) -> Option<EventFrame> {
        self.events.set_read_timeout(Some(timeout)).expect("a timeout");
        loop {
            if let Some((frame, rest)) = find_next(HeaderSize::PLAIN, &self.arrived) {
                let (event, left) = (EventFrame::read(frame).expect("an event"), rest.to_vec());
                self.arrived = left;
                return Some(event);
            }
            let mut buffer = [0; 4096];
            match self.events.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.arrived.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("no event: {error}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect_ready(&mut self, id: u64, signals: Signals) {
        let event = self.next_event();
        assert_eq!((event.kind, event.id), (EventKind::Ready, id), "{event:?}");
        assert!(event.satisfied.contains(signals), "{event:?}");
    }

    /// Nothing is told that was not asked for: everything before a timer of now has come.
    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        const FENCE: u64 = u64::MAX;
        self.timer(FENCE, 1, 0);
        let event = self.next_event();
        assert_eq!((event.kind, event.id), (EventKind::Timer, FENCE), "{event:?}");
        assert_eq!(self.find_event(crate::util::SILENCE), None);
    }

    /// A number of the statistics.
    #[track_caller]
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let answer = self.ok(&Request::Stats);
        let stats = handle_watcher_wire::protocol::read_stats(&mut answer.body()).expect("statistics");
        stats.iter().find(|(found, _)| *found == name).expect(name).1
    }
}

/// Connects, again while the queue is full.
pub(crate) fn connect(path: &str) -> std::io::Result<UnixStream> {
    use std::os::linux::net::SocketAddrExt;
    match path.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?),
        None => UnixStream::connect(path),
    }
}

/// A Watch whose id, handle and token are one number.
pub(crate) fn watch_of(id: u64, signals: Signals, mode: Mode) -> Request<'static> {
    Request::Watch(Watch { id, handle: id, token: id, signals, mode, deadline_ns: 0 })
}

pub(crate) fn frame_of(request: &Request<'_>, call: u32, descriptors: &[BorrowedFd<'_>]) -> Vec<u8> {
    let mut writer = Writer::new();
    request.write(call, u32::try_from(descriptors.len()).expect("few"), &mut writer);
    writer.finish().expect("a frame")
}

fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "at most 253");
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}
