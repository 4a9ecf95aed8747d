//! Clients of a service that say what they are told to: a good one, and one that sends any bytes with any descriptors.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use handle_watcher_wire::pickle::{HeaderSize, Writer, find_next};
use handle_watcher_wire::protocol::{
    Arm, DESCRIPTORS_MOST, EventFrame, Hello, NO_CALL, Reply, Request, VERSION_HIGHEST, VERSION_LOWEST,
    Watch, read_stats,
};
use handle_watcher_wire::{Code, EventKind, Mode, Signals};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// How long a client waits that expects an answer. Prompt is much less; a busy machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to `@name`.
pub(crate) fn connect(address: &str) -> Result<UnixStream> {
    let name = address.trim_start_matches('@');
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
}

/// The bytes of a Hello.
pub(crate) fn hello(writer: &mut Writer) -> &[u8] {
    let hello = Hello { version_lowest: VERSION_LOWEST, version_highest: VERSION_HIGHEST, name: "a client" };
    Request::Hello(hello).write(1, 0, writer);
    writer.frame().expect("a Hello is short")
}

/// Sends bytes with descriptors, as far as it goes without waiting.
pub(crate) fn send(calls: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize> {
    let descriptors = &descriptors[..descriptors.len().min(DESCRIPTORS_MOST)];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "the space is for that many");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::net::sendmsg(calls, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Reads bytes, and the descriptors that came with them.
pub(crate) fn receive(
    calls: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(calls, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let passed = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Ok((received.bytes, passed.collect()))
}

/// A well-behaved client: it watches a pipe, and expects every answer within [`PATIENCE`].
#[derive(Debug)]
pub(crate) struct GoodClient {
    calls: UnixStream,
    events: UnixStream,
    replied: Vec<u8>,
    told: Vec<u8>,
    reader: std::io::PipeReader,
    writer: std::io::PipeWriter,
    call: u32,
}

/// The one watch of a [`GoodClient`].
const WATCH: u64 = 1;

impl GoodClient {
    /// Begins a session and watches a pipe.
    pub(crate) fn start(address: &str) -> Result<Self> {
        let calls = connect(address)?;
        calls.set_read_timeout(Some(PATIENCE))?;
        calls.set_write_timeout(Some(PATIENCE))?;
        let mut frame = Writer::new();
        (&calls).write_all(hello(&mut frame))?;
        let mut bytes = [0; 4096];
        let (received, descriptors) = receive(calls.as_fd(), &mut bytes, RecvFlags::empty())?;
        let events = descriptors.into_iter().next().map(UnixStream::from);
        let events = events.ok_or_else(|| Error::other("no event socket came with the welcome"))?;
        events.set_nonblocking(false)?;
        events.set_read_timeout(Some(PATIENCE))?;
        let (reader, writer) = std::io::pipe()?;
        let replied = bytes[..received].to_vec();
        let mut client = Self { calls, events, replied, told: Vec::new(), reader, writer, call: 1 };
        client.expect_reply(|_| ())?;

        let watch = Watch {
            id: WATCH,
            handle: 1,
            token: 0,
            signals: Signals::READABLE,
            mode: Mode::Once,
            deadline_ns: 0,
        };
        client.call += 1;
        Request::Watch(watch).write(client.call, 1, &mut frame);
        let frame = frame.frame().expect("a Watch is short");
        assert_eq!(send(client.calls.as_fd(), frame, &[client.reader.as_fd()])?, frame.len());
        client.expect_reply(|_| ())?;
        Ok(client)
    }

    /// Writes to its pipe, is told, reads it, and arms again; then asks for a reply. How long all of that took.
    pub(crate) fn round_trip(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let token = u64::from(self.call);
        self.writer.write_all(b"x")?;
        let event = next_frame(&mut self.events, &mut self.told, |frame| {
            EventFrame::read(frame).map_err(Error::from)
        })??;
        assert_eq!((event.kind, event.id), (EventKind::Ready, WATCH), "{event:?}");
        assert_eq!(self.reader.read(&mut [0; 8])?, 1);
        let mut frame = Writer::new();
        Request::Arm(Arm { id: WATCH, token, deadline_ns: 0 }).write(0, 0, &mut frame);
        self.calls.write_all(frame.frame().expect("an Arm is short"))?;
        self.ask(Request::Ping, |_| ())?;
        Ok(start.elapsed())
    }

    /// Whether a call failed because of somebody's Kill. All of us are one user, who may do that.
    pub(crate) fn was_killed(&mut self, failure: &Error) -> bool {
        if failure.kind() == ErrorKind::ConnectionAborted {
            return true;
        }
        // The end of the other socket was seen first.
        let last = next_frame(&mut self.calls, &mut self.replied, |frame| {
            Reply::read(frame)
                .is_ok_and(|reply| reply.call == NO_CALL && reply.status.code() == Code::Aborted)
        });
        last.unwrap_or(false)
    }

    /// One of the service's counters.
    pub(crate) fn counter(&mut self, name: &str) -> Result<u64> {
        let found = self.ask(Request::Stats, |reply| {
            let stats = read_stats(&mut reply.body.clone()).expect("a list of counters");
            stats.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        })?;
        found.ok_or_else(|| Error::other(format!("no counter is called {name}")))
    }

    fn ask<T>(&mut self, request: Request<'_>, read: impl FnOnce(&Reply<'_>) -> T) -> Result<T> {
        self.call += 1;
        let mut frame = Writer::new();
        request.write(self.call, 0, &mut frame);
        self.calls.write_all(frame.frame().expect("it is short"))?;
        self.expect_reply(read)
    }

    /// The reply to the last call, which has to be a good one.
    fn expect_reply<T>(&mut self, read: impl FnOnce(&Reply<'_>) -> T) -> Result<T> {
        let call = self.call;
        next_frame(&mut self.calls, &mut self.replied, |frame| {
            let reply = Reply::read(frame).map_err(Error::from)?;
            if reply.call == NO_CALL && reply.status.code() == Code::Aborted {
                return Err(Error::from(ErrorKind::ConnectionAborted));
            }
            if reply.status.code() != Code::Ok {
                return Err(Error::other(format!("call {call} got {}: {}", reply.call, reply.status)));
            }
            assert_eq!(reply.call, call);
            Ok(read(&reply))
        })?
    }
}

/// Reads the next whole frame of a stream; what came beyond it stays in the buffer.
fn next_frame<T>(stream: &mut UnixStream, buffer: &mut Vec<u8>, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
    loop {
        if let Some((frame, behind)) = find_next(HeaderSize::PLAIN, buffer) {
            let (value, taken) = (read(frame), buffer.len() - behind.len());
            buffer.drain(..taken);
            return Ok(value);
        }
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer.extend_from_slice(&more[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
