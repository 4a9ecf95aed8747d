//! A session that only calls: requests go out, each waits for its reply, events are asked for by nobody.

use std::ffi::{OsStr, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use handle_watcher_client::{Code, Result, Status};
use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next, peek_next};
use handle_watcher_wire::protocol::{
    FIRST_FRAME_LIMIT_BYTES, Hello, NO_CALL, Reply, Request, SessionEntry, VERSION_HIGHEST, VERSION_LOWEST,
    WatchEntry, Welcome, read_sessions, read_stats, read_watches,
};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

/// How long the service may take for one answer, and for accepting us.
const ANSWER_MOST: Duration = Duration::from_secs(5);

/// How many descriptors one message may bring. The service sends one in the life of a session.
const DESCRIPTORS_MOST: usize = 4;

/// How many bytes are taken with one system call.
const READ_BYTES: usize = 16_384;

/// One session. Not to be used by two threads at a time. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    /// Where it is connected to, for messages.
    name: OsString,
    welcome: Welcome,
    /// Events would come here. It stays open, since closing it means that the client has gone.
    events: Option<OwnedFd>,
    call: u32,
    writer: Writer,
    received: Vec<u8>,
    /// How many bytes of `received` belong to frames that were read.
    read_bytes: usize,
}

impl Connection {
    /// Connects and says hello.
    ///
    /// # Errors
    /// `UNAVAILABLE` if nobody listens or answers there; `PERMISSION_DENIED` if we may not connect; `INVALID_ARGUMENT` if
    /// the path is no address; otherwise what the service refused.
    pub(crate) fn open(name: &OsStr) -> Result<Self> {
        let socket = connect(name)?;
        let mut connection = Self {
            socket,
            name: name.to_owned(),
            welcome: Welcome {
                version: 0,
                session: 0,
                limits: handle_watcher_wire::protocol::Limits {
                    frame_bytes: u32::try_from(FIRST_FRAME_LIMIT_BYTES).unwrap_or(u32::MAX),
                    watches: 0,
                    timers: 0,
                    descriptors: 0,
                },
            },
            events: None,
            call: NO_CALL,
            writer: Writer::new(),
            received: Vec::new(),
            read_bytes: 0,
        };
        let hello = Hello { version_lowest: VERSION_LOWEST, version_highest: VERSION_HIGHEST, name: "hwctl" };
        connection.welcome = connection.call(&Request::Hello(hello), Welcome::read)?;
        if connection.events.is_none() {
            return Err(connection.broken("no event socket came with its welcome"));
        }
        Ok(connection)
    }

    /// What the service said at the start.
    pub(crate) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Asks for a sign of life; gives how long it took.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn ping(&mut self) -> Result<Duration> {
        let started = Instant::now();
        self.call(&Request::Ping, |_| Ok(()))?;
        Ok(started.elapsed())
    }

    /// The counters, in the order of the service.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn stats(&mut self) -> Result<Vec<(String, u64)>> {
        self.call(&Request::Stats, |body| {
            Ok(read_stats(body)?.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        })
    }

    /// The sessions.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn sessions(&mut self) -> Result<Vec<SessionEntry>> {
        self.call(&Request::Sessions, read_sessions)
    }

    /// The busiest watches of a session.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such session; otherwise as [`open`](Self::open).
    pub(crate) fn watches(&mut self, session: u64, most: u32) -> Result<Vec<WatchEntry>> {
        self.call(&Request::Watches { session, most }, read_watches)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such session; otherwise as [`open`](Self::open).
    pub(crate) fn kill(&mut self, session: u64) -> Result<()> {
        self.call(&Request::Kill { session }, |_| Ok(()))
    }

    fn call<T>(
        &mut self,
        request: &Request<'_>,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + ANSWER_MOST;
        // 0 is no call.
        self.call = self.call.checked_add(1).unwrap_or(1);
        request.write(self.call, 0, &mut self.writer);
        self.send(deadline)?;
        let frame_bytes = self.receive(deadline)?;
        let frame = &self.received[..frame_bytes];
        let mut reply = Reply::read(frame)?;
        let is_ours = reply.call == self.call || (reply.call == NO_CALL && reply.status.code() != Code::Ok);
        let result = match reply.status.code() {
            Code::Ok => read(&mut reply.body),
            _ => Err(reply.status),
        };
        let call = reply.call;
        self.read_bytes = frame_bytes;
        if !is_ours {
            return Err(self.broken(&format!("call {call} was answered where {} was asked", self.call)));
        }
        result
    }

    fn send(&mut self, deadline: Instant) -> Result<()> {
        let mut left = self.writer.frame()?;
        while !left.is_empty() {
            set_timeout(&self.socket, Timeout::Send, deadline);
            match rustix::net::send(&self.socket, left, SendFlags::NOSIGNAL) {
                Ok(sent_bytes) => left = &left[sent_bytes..],
                Err(Errno::INTR) => {}
                // Why the service closed may still be there to be read.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(errno) => return Err(self.lost(errno)),
            }
        }
        Ok(())
    }

    /// Reads until a frame is whole; gives its length. It stands at the beginning of `received`.
    fn receive(&mut self, deadline: Instant) -> Result<usize> {
        self.received.drain(..std::mem::take(&mut self.read_bytes));
        let limit_bytes = u64::from(self.welcome.limits.frame_bytes);
        loop {
            if let Some((frame, _)) = find_next(HeaderSize::PLAIN, &self.received) {
                return Ok(frame.len());
            }
            if let Some(frame_bytes) = peek_next(HeaderSize::PLAIN, &self.received)
                && frame_bytes > limit_bytes
            {
                return Err(self.broken(&format!(
                    "a frame of {frame_bytes} bytes was announced, and {limit_bytes} is the limit"
                )));
            }
            if self.read_some(deadline)? == 0 {
                return Err(self.lost(Errno::CONNRESET));
            }
        }
    }

    fn read_some(&mut self, deadline: Instant) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [0; READ_BYTES];
        let message = loop {
            set_timeout(&self.socket, Timeout::Recv, deadline);
            let mut slices = [IoSliceMut::new(&mut buffer)];
            match rustix::net::recvmsg(&self.socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.lost(errno)),
            }
        };
        for rights in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = rights {
                // The first one is ours to keep; what nobody announced is closed here.
                for descriptor in descriptors {
                    self.events.get_or_insert(descriptor);
                }
            }
        }
        if message.flags.contains(ReturnFlags::CTRUNC) && self.events.is_none() {
            return Err(Status::new(
                Code::ResourceExhausted,
                "the event socket could not be received; close descriptors or raise RLIMIT_NOFILE",
            ));
        }
        self.received.extend_from_slice(&buffer[..message.bytes]);
        Ok(message.bytes)
    }

    fn lost(&self, errno: Errno) -> Status {
        let why = match errno {
            Errno::AGAIN => format!("it does not answer within {} s", ANSWER_MOST.as_secs()),
            Errno::CONNRESET | Errno::PIPE => "it closed the connection".to_owned(),
            other => other.to_string(),
        };
        Status::new(Code::Unavailable, format!("the service at {:?} is lost: {why}", self.name))
    }

    fn broken(&self, why: &str) -> Status {
        Status::new(
            Code::Internal,
            format!(
                "{:?} does not keep to the protocol: {why}; is that the socket of the service?",
                self.name
            ),
        )
    }
}

fn connect(name: &OsStr) -> Result<OwnedFd> {
    let bytes = name.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(bytes),
    };
    let address = address.map_err(|errno| {
        Status::new(
            Code::InvalidArgument,
            format!(
                "{name:?} is no address of a Unix socket ({errno}): it has {} bytes, and 107 is the most; pass --socket",
                bytes.len()
            ),
        )
    })?;
    let refused = |errno: Errno| {
        let (code, remedy) = match errno {
            Errno::NOENT | Errno::CONNREFUSED => (
                Code::Unavailable,
                "nobody listens; start handle-watcherd, or pass --socket or set HANDLE_WATCHER_SOCKET",
            ),
            Errno::ACCESS | Errno::PERM => (Code::PermissionDenied, "the service belongs to somebody else"),
            Errno::AGAIN => (Code::Unavailable, "it does not accept; is it stopped?"),
            _ => (Code::Unavailable, "pass --socket or set HANDLE_WATCHER_SOCKET"),
        };
        Status::new(code, format!("the service at {name:?} cannot be reached ({errno}): {remedy}"))
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(refused)?;
    // It bounds connecting as well: the kernel waits while the queue of the listener is full.
    set_timeout(&socket, Timeout::Send, Instant::now() + ANSWER_MOST);
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
}

/// Lets the next call on the socket block until the deadline. Zero would mean for ever.
fn set_timeout(socket: &OwnedFd, which: Timeout, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    // A kernel without timeouts would only wait longer.
    let _: rustix::io::Result<()> = set_socket_timeout(socket, which, Some(left));
}
