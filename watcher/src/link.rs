//! The client's end of one session with a service: calls and their replies on one socket, events on another.
//!
//! Knows frames, and nothing of rows. One call is under way at a time; a request that wants no reply is sent in between.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next, peek_next};
use handle_watcher_wire::protocol::{
    EventFrame, FIRST_FRAME_LIMIT_BYTES, Hello, NO_CALL, Reply, Request, VERSION_HIGHEST, VERSION_LOWEST,
    Welcome,
};
use handle_watcher_wire::{Code, Result, Status};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::deadline::Deadline;
use crate::sys::descriptor;
use crate::sys::stream;

/// How many bytes one look at the event socket takes: some 340 events.
const EVENT_BUFFER_BYTES: usize = 16 << 10;
/// How many such looks in a row, before somebody else has a turn.
const LOOKS_MOST: usize = 16;
/// How much room a reply is given at first; a longer one makes more.
const REPLY_BUFFER_BYTES: usize = 512;
/// The longest and the shortest pause before something that the kernel had no room for is tried again.
const PAUSE_MOST: Duration = Duration::from_millis(20);
const PAUSE_LEAST: Duration = Duration::from_micros(100);

/// How a client connects to a service.
#[derive(Clone, Debug)]
pub struct ConnectConfig {
    /// What the client calls itself, for the service's logs and lists. Default: the name of the running program, so that
    /// whoever looks at the list knows it.
    pub name: String,
    /// How long connecting, and each call, may take before the service counts as lost. Default 30 s: a service that is
    /// stopped in a debugger for a moment does not lose its clients.
    pub call_timeout: Duration,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        let program = std::env::current_exe().ok();
        let name = program
            .as_deref()
            .and_then(std::path::Path::file_name)
            .map(|name| name.to_string_lossy().into_owned());
        Self { name: name.unwrap_or_default(), call_timeout: Duration::from_secs(30) }
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct Link {
    calls: Mutex<Calls>,
    arrivals: Mutex<Arrivals>,
    /// The same sockets, for what needs no lock. Closed with the last of those who hold the link.
    calls_socket: OwnedFd,
    events_socket: OwnedFd,
    welcome: Welcome,
    /// Why nothing more can be asked.
    lost: OnceLock<Status>,
    /// Somebody has told the rows.
    is_told: AtomicBool,
    /// Somebody polls the port's descriptor: what is taken back here has to be taken back there before a call returns.
    is_exact: AtomicBool,
}

#[derive(Debug)]
struct Calls {
    writer: Writer,
    /// What came and was not read yet begins at 0.
    received: Vec<u8>,
    last_call: u32,
    call_timeout: Duration,
}

#[derive(Debug)]
struct Arrivals {
    /// The beginning of a frame whose end has not come yet.
    left: Vec<u8>,
    buffer: Box<[u8]>,
}

/// What one look at the event socket came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Everything that was there was read.
    All,
    /// More may be there.
    Some,
    /// The session is over.
    Lost,
}

impl Link {
    /// Connects and says hello.
    ///
    /// # Errors
    /// `UNAVAILABLE` if nobody listens there, or not in time; `INVALID_ARGUMENT` for a path that no socket can have;
    /// otherwise what the service says.
    pub(crate) fn connect(path: &str, config: &ConnectConfig) -> Result<Self> {
        let until = Deadline::after(config.call_timeout);
        let socket = connect_until(path, until)?;
        stream::set_timeouts(&socket, config.call_timeout).map_err(|errno| no_connection(path, &errno))?;
        let mut writer = Writer::new();
        let name = &config.name[..config.name.floor_char_boundary(FIRST_FRAME_LIMIT_BYTES / 8)];
        let hello = Hello { version_lowest: VERSION_LOWEST, version_highest: VERSION_HIGHEST, name };
        Request::Hello(hello).write(1, 0, &mut writer);
        send_all(&socket, writer.frame()?, None, until).map_err(|errno| no_connection(path, &errno))?;
        let mut received = Vec::with_capacity(REPLY_BUFFER_BYTES);
        let mut events_socket = None;
        let frame_bytes = loop {
            if let Some(frame_bytes) = whole_frame(&received, FIRST_FRAME_LIMIT_BYTES)
                .map_err(|status| no_connection(path, &status))?
            {
                break frame_bytes;
            }
            let (count, descriptor) =
                retry(until, || stream::receive_with_descriptor(&socket, &mut received))
                    .map_err(|errno| no_connection(path, &errno))?;
            events_socket = events_socket.or(descriptor);
            if count == 0 {
                return Err(no_connection(path, &"it hung up before it said anything"));
            }
        };
        // Whoever says something else is no service of ours.
        let mut reply =
            Reply::read(&received[..frame_bytes]).map_err(|status| no_connection(path, &status))?;
        if reply.status.code() != Code::Ok {
            return Err(reply.status);
        }
        let welcome = Welcome::read(&mut reply.body).map_err(|status| no_connection(path, &status))?;
        received.drain(..frame_bytes);
        let events_socket = events_socket.ok_or_else(|| no_event_socket(path))?;
        Ok(Self {
            calls: Mutex::new(Calls { writer, received, last_call: 1, call_timeout: config.call_timeout }),
            arrivals: Mutex::new(Arrivals { left: Vec::new(), buffer: vec![0; EVENT_BUFFER_BYTES].into() }),
            calls_socket: socket,
            events_socket,
            welcome,
            lost: OnceLock::new(),
            is_told: AtomicBool::new(false),
            is_exact: AtomicBool::new(false),
        })
    }

    /// The socket that events come on; readable while some wait, or when the session is over.
    pub(crate) fn events_socket(&self) -> BorrowedFd<'_> {
        self.events_socket.as_fd()
    }

    /// What the service said of the session.
    pub(crate) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// From now on whoever takes something back waits until the service has.
    pub(crate) fn be_exact(&self) {
        self.is_exact.store(true, Ordering::SeqCst);
    }

    /// True for the first who asks after the session is over.
    pub(crate) fn lose_once(&self) -> bool {
        !self.is_told.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact.load(Ordering::SeqCst)
    }

    /// Asks, and waits for the reply.
    ///
    /// # Errors
    /// What the service replies; `UNAVAILABLE` once the session is over.
    pub(crate) fn call(&self, request: &Request<'_>, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        self.call_for(request, descriptor, |_| Ok(()))
    }

    /// Asks, and reads the body of the reply.
    ///
    /// # Errors
    /// As [`call`](Self::call), and what `read` says.
    pub(crate) fn call_for<T>(
        &self,
        request: &Request<'_>,
        descriptor: Option<BorrowedFd<'_>>,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut calls = self.lock_calls();
        self.check()?;
        // Zero is no call's number.
        calls.last_call = calls.last_call.checked_add(1).unwrap_or(1);
        let call = calls.last_call;
        let until = Deadline::after(calls.call_timeout);
        self.send(&mut calls, request, call, descriptor, until)?;
        let frame_bytes = self.receive(&mut calls, until)?;
        let mut reply = Reply::read(&calls.received[..frame_bytes]).map_err(|status| self.lose(&status))?;
        if reply.call == NO_CALL {
            return Err(self.lose(&reply.status));
        }
        // Replies to calls that were given up do not come: giving one up loses the session.
        if reply.call != call {
            return Err(
                self.lose(&Status::new(Code::Internal, "the service answered a call that nobody made"))
            );
        }
        let answer = match reply.status.code() {
            Code::Ok => read(&mut reply.body),
            _ => Err(reply.status),
        };
        calls.received.drain(..frame_bytes);
        answer
    }

    /// Asks for something that wants no reply.
    ///
    /// # Errors
    /// `UNAVAILABLE` once the session is over.
    pub(crate) fn tell(&self, request: &Request<'_>) -> Result<()> {
        let mut calls = self.lock_calls();
        self.check()?;
        let until = Deadline::after(calls.call_timeout);
        self.send(&mut calls, request, NO_CALL, None, until)
    }

    /// Reads what the service has told, without waiting; `tell` is called with each event while no lock is held that
    /// anybody but another reader needs.
    pub(crate) fn arrive(&self, mut tell: impl FnMut(&EventFrame)) -> Arrived {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let Arrivals { left, buffer } = &mut *arrivals;
        for _ in 0..LOOKS_MOST {
            let count = match stream::receive_now(&self.events_socket, buffer) {
                Ok(0) => return self.arrive_at_end(),
                Ok(count) => count,
                Err(Errno::AGAIN) => return Arrived::All,
                Err(errno) => {
                    self.lose(&Status::new(
                        Code::Unavailable,
                        format!("the service could not be listened to: {errno}"),
                    ));
                    return Arrived::Lost;
                }
            };
            let bytes = &buffer[..count];
            let read = if left.is_empty() {
                read_events(bytes, &mut tell).map(|rest| left.extend_from_slice(rest))
            } else {
                left.extend_from_slice(bytes);
                read_events(left, &mut tell).map(<[u8]>::len).map(|rest| {
                    let read = left.len() - rest;
                    left.drain(..read);
                })
            };
            if let Err(status) = read {
                self.lose(&status);
                return Arrived::Lost;
            }
            if count < EVENT_BUFFER_BYTES {
                return Arrived::All;
            }
        }
        Arrived::Some
    }

    /// The service closed the event socket: it may have left word why.
    fn arrive_at_end(&self) -> Arrived {
        let mut status = Status::new(Code::Unavailable, "it closed the connection");
        // Whoever is in a call reads it there.
        if let Ok(mut calls) = self.calls.try_lock() {
            let mut more = [0; REPLY_BUFFER_BYTES];
            while let Ok(count @ 1..) = stream::receive_now(&self.calls_socket, &mut more) {
                calls.received.extend_from_slice(&more[..count]);
            }
            if let Some((frame, _)) = find_next(HeaderSize::PLAIN, &calls.received)
                && let Ok(reply) = Reply::read(frame)
                && reply.call == NO_CALL
            {
                status = reply.status;
            }
        }
        self.lose(&status);
        Arrived::Lost
    }

    /// # Errors
    /// `UNAVAILABLE` once the session is over.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |status| Err(status.clone()))
    }

    /// Ends the session from this side: whoever waits for events returns.
    pub(crate) fn close(&self) {
        // The service is gone already, or goes on without this word.
        let _: Result<()> = self.call(&Request::Bye, None);
        self.lose(&Status::new(Code::Unavailable, "this client was dropped"));
    }

    /// Notes why the session is over, if nobody has, and has everybody who waits for it return. Gives what every call is
    /// told from now on.
    fn lose(&self, cause: &Status) -> Status {
        let status = self.lost.get_or_init(|| {
            Status::new(
                Code::Unavailable,
                format!(
                    "the session with the service is over ({}: {}); connect again",
                    cause.code(),
                    cause.message()
                ),
            )
        });
        for socket in [&self.calls_socket, &self.events_socket] {
            // It fails only if the other side was faster.
            let _: std::result::Result<(), Errno> = rustix::net::shutdown(socket, Shutdown::Both);
        }
        status.clone()
    }

    /// Closes the sockets in a forked child, where nothing is ever asked of them again.
    pub(crate) fn close_in_child(&self) {
        descriptor::close_number_in_child(self.calls_socket.as_raw_fd());
        descriptor::close_number_in_child(self.events_socket.as_raw_fd());
    }

    fn lock_calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(
        &self,
        calls: &mut Calls,
        request: &Request<'_>,
        call: u32,
        descriptor: Option<BorrowedFd<'_>>,
        until: Deadline,
    ) -> Result<()> {
        request.write(call, u32::from(descriptor.is_some()), &mut calls.writer);
        let frame = calls.writer.frame()?;
        if frame.len() > self.welcome.limits.frame_bytes as usize {
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "a frame of {} bytes is beyond the service's limit of {}; send less at once",
                    frame.len(),
                    self.welcome.limits.frame_bytes
                ),
            ));
        }
        match send_all(&self.calls_socket, frame, descriptor, until) {
            Ok(()) => Ok(()),
            // Nothing was sent; the session goes on.
            Err(errno @ (Errno::TOOMANYREFS | Errno::BADF)) => Err(not_sent(errno)),
            Err(errno) => Err(self.lose_in_call(calls, errno)),
        }
    }

    /// The end of the next frame in `received`, once it is there.
    fn receive(&self, calls: &mut Calls, until: Deadline) -> Result<usize> {
        loop {
            let limit_bytes = self.welcome.limits.frame_bytes as usize;
            if let Some(frame_bytes) =
                whole_frame(&calls.received, limit_bytes).map_err(|status| self.lose(&status))?
            {
                return Ok(frame_bytes);
            }
            match retry(until, || stream::receive(&self.calls_socket, &mut calls.received)) {
                Ok(0) => return Err(self.lose(&Status::new(Code::Unavailable, "it closed the connection"))),
                Ok(_) => {}
                Err(errno) => return Err(self.lose_in_call(calls, errno)),
            }
        }
    }

    /// A call failed: what the service said last tells why better than the kernel does.
    fn lose_in_call(&self, calls: &mut Calls, errno: Errno) -> Status {
        while let Ok(count @ 1..) = stream::receive(&self.calls_socket, &mut calls.received) {
            if count < REPLY_BUFFER_BYTES {
                break;
            }
        }
        if let Some((frame, _)) = find_next(HeaderSize::PLAIN, &calls.received)
            && let Ok(reply) = Reply::read(frame)
            && reply.call == NO_CALL
        {
            return self.lose(&reply.status);
        }
        let cause = match errno {
            Errno::AGAIN => Status::new(Code::DeadlineExceeded, "it did not answer in time"),
            errno => Status::new(Code::Unavailable, format!("{errno}")),
        };
        self.lose(&cause)
    }
}

/// Hands each whole frame to `tell`; gives what is left behind the last.
fn read_events(mut bytes: &[u8], mut tell: impl FnMut(&EventFrame)) -> Result<&[u8]> {
    while let Some((frame, rest)) = find_next(HeaderSize::PLAIN, bytes) {
        tell(&EventFrame::read(frame)?);
        bytes = rest;
    }
    whole_frame(bytes, FIRST_FRAME_LIMIT_BYTES).map(|_| bytes)
}

/// How long the frame at the beginning is, if it is all there.
fn whole_frame(bytes: &[u8], limit_bytes: usize) -> Result<Option<usize>> {
    match peek_next(HeaderSize::PLAIN, bytes) {
        Some(claimed) if claimed > limit_bytes as u64 => Err(Status::new(
            Code::Internal,
            format!("the service announced a frame of {claimed} bytes, beyond the limit of {limit_bytes}"),
        )),
        Some(claimed) => Ok(usize::try_from(claimed).ok().filter(|&claimed| claimed <= bytes.len())),
        None => Ok(None),
    }
}

/// Sends every byte; the descriptor goes with the first one only.
fn send_all(
    socket: &OwnedFd,
    mut bytes: &[u8],
    mut descriptor: Option<BorrowedFd<'_>>,
    until: Deadline,
) -> std::result::Result<(), Errno> {
    let mut pause = PAUSE_LEAST;
    while !bytes.is_empty() {
        match retry(until, || stream::send(socket, bytes, descriptor)) {
            Ok(count) => {
                descriptor = None;
                bytes = &bytes[count..];
            }
            // More descriptors of this user are under way than one process may have open: they are taken up in time.
            Err(Errno::TOOMANYREFS) if until.remaining() > pause => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MOST);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Again after an interruption, and after a pause that was shorter than the whole time there is.
fn retry<T>(
    until: Deadline,
    mut attempt: impl FnMut() -> std::result::Result<T, Errno>,
) -> std::result::Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !until.remaining().is_zero() => {}
            other => return other,
        }
    }
}

fn connect_until(path: &str, until: Deadline) -> Result<OwnedFd> {
    let address = stream::address(path)?;
    let mut pause = PAUSE_LEAST;
    loop {
        match stream::connect(&address) {
            Ok(socket) => return Ok(socket),
            // The queue of those who want to connect is full, which passes.
            Err(Errno::AGAIN | Errno::INTR) if until.remaining() > pause => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MOST);
            }
            Err(errno) => return Err(no_connection(path, &errno)),
        }
    }
}

fn no_connection(path: &str, cause: &dyn std::fmt::Display) -> Status {
    Status::new(
        Code::Unavailable,
        format!("no session with a service at {path:?}: {cause}; is handle-watcherd running there?"),
    )
}

fn no_event_socket(path: &str) -> Status {
    Status::new(
        Code::ResourceExhausted,
        format!(
            "the service at {path:?} sent its event socket and this process had no room for it; close descriptors or \
             raise RLIMIT_NOFILE"
        ),
    )
}

fn not_sent(errno: Errno) -> Status {
    match errno {
        Errno::TOOMANYREFS => Status::new(
            Code::ResourceExhausted,
            "more descriptors of this user are on their way than one process may have open, and the service takes none; \
             is it stopped?",
        ),
        _ => Status::new(Code::InvalidArgument, "the descriptor is not open; watch it while it is"),
    }
}
