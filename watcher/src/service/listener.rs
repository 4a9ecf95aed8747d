//! Accepting: who may come in, and what happens when no descriptor is left for the next one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use handle_watcher_wire::protocol::{NO_CALL, Reply};
use handle_watcher_wire::{Code, Mode, Result, Signals, Status, WatchId};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::service::closer::{Job, Load, Receipt};
use crate::service::credentials::{Peer, may_connect};
use crate::service::path::SocketFile;
use crate::service::server::Server;
use crate::service::session::Session;
use crate::service::token::{About, SESSIONS_MOST, session_token, token_of};
use crate::service::users::Thing;
use crate::sys::{passing, stream};

/// How many connections one turn accepts.
const ACCEPTS_PER_TURN: usize = 64;
/// How long accepting rests when descriptors ran out.
const PAUSE: Duration = Duration::from_millis(100);

/// What the service listens at.
#[derive(Debug)]
pub(super) struct Listener {
    /// None once the service is over.
    socket: Option<OwnedFd>,
    file: Option<SocketFile>,
    path: String,
    pub(super) watch: Option<WatchId>,
    /// Connections may wait.
    pub(super) is_ready: bool,
    /// Descriptors ran out; a timer ends it.
    pub(super) is_paused: bool,
    /// That descriptors ran out was said already.
    is_short: bool,
    /// Given up when descriptors run out, so that one more connection can be taken and told so.
    reserve: Option<OwnedFd>,
}

impl Listener {
    pub(super) fn new(socket: OwnedFd, file: Option<SocketFile>, path: String) -> Self {
        let mut listener = Self {
            socket: Some(socket),
            file,
            path,
            watch: None,
            is_ready: false,
            is_paused: false,
            is_short: false,
            reserve: None,
        };
        listener.fill_reserve();
        listener
    }

    /// # Errors
    /// `UNAVAILABLE` once the service is over.
    pub(super) fn socket(&self) -> Result<&OwnedFd> {
        self.socket.as_ref().ok_or_else(|| Status::new(Code::Unavailable, "the service has stopped"))
    }

    /// The socket, to be closed by the closer. Its file goes first, so that nobody connects to it any more.
    pub(super) fn take_socket(&mut self) -> Option<OwnedFd> {
        drop(self.file.take());
        self.socket.take()
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Connections may wait that can be accepted now.
    pub(super) fn has_more(&self) -> bool {
        self.is_ready && !self.is_paused && self.watch.is_some()
    }

    fn fill_reserve(&mut self) {
        if self.reserve.is_none() {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            self.reserve = rustix::fs::open("/", flags, FileMode::empty()).ok();
        }
    }
}

impl Server {
    /// Accepts those who wait, as many as a turn may.
    pub(super) fn accept(&mut self) {
        if !self.listener.has_more() {
            return;
        }
        // Each sets a timer, which the watcher thread takes as a command.
        let most = ACCEPTS_PER_TURN.min(self.control().shared().config.command_limit / 4).max(1);
        for _ in 0..most {
            let Ok(listener) = self.listener.socket() else { return };
            match passing::accept(listener) {
                Ok(socket) => {
                    self.listener.is_short = false;
                    self.welcome(socket);
                }
                Err(Errno::AGAIN) => {
                    self.listener.is_ready = false;
                    return;
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    return self.pause_accepting();
                }
                // Whoever it was has gone again.
                Err(_) => {}
            }
        }
    }

    /// No descriptor is left. The one in reserve takes one connection, which is told so; the others wait in the queue.
    fn pause_accepting(&mut self) {
        self.counters.accept_pauses += 1;
        if !std::mem::replace(&mut self.listener.is_short, true) {
            tracing::warn!(
                target: "handle_watcher::service",
                "no descriptor is left for new connections; end some sessions, or raise RLIMIT_NOFILE"
            );
        }
        drop(self.listener.reserve.take());
        let accepted = self.listener.socket().ok().and_then(|listener| passing::accept(listener).ok());
        if let Some(socket) = accepted {
            let status = Status::new(
                Code::ResourceExhausted,
                "the service has no descriptor left; connect again later, or raise its RLIMIT_NOFILE",
            );
            self.refuse(socket, 0, &status);
        }
        let timer = self.control().set_timer(Deadline::after(PAUSE), token_of(About::Pause));
        // If not even a timer can be had, the next turn tries again.
        self.listener.is_paused = timer.is_ok();
        self.listener.fill_reserve();
    }

    /// Makes a session of a connection, or says why not.
    fn welcome(&mut self, socket: OwnedFd) {
        let Some(peer) = Peer::of(socket.as_fd()) else {
            // It has gone already.
            return self.refuse(
                socket,
                0,
                &Status::new(Code::Unavailable, "who you are is not known any more"),
            );
        };
        let user = peer.user;
        if let Err(status) = self.admit(peer, socket.as_fd()) {
            return self.refuse(socket, user, &status);
        }
        let slot = self.sessions.next_index();
        self.last_number += 1;
        let mut session = Box::new(Session::new(slot, self.last_number, peer, socket));
        if let Err(status) = self.start(&mut session) {
            self.users.give(user, Thing::Session, 1);
            if let Some(socket) = session.calls.take() {
                self.refuse(socket, user, &status);
            }
            return;
        }
        self.counters.accepted += 1;
        tracing::debug!(
            target: "handle_watcher::service",
            session = session.number, user, process = session.peer.process, "a session began"
        );
        self.sessions.insert(Some(session));
    }

    fn admit(&mut self, peer: Peer, socket: BorrowedFd<'_>) -> Result<()> {
        if !may_connect(peer, || passing::peer_groups(socket), self.own_user, &self.config) {
            return Err(Status::new(
                Code::PermissionDenied,
                format!(
                    "user {} may not use this service; let it be started with that user or one of its groups allowed",
                    peer.user
                ),
            ));
        }
        let limit = self.config.session_limit.min(SESSIONS_MOST);
        if self.sessions.len() >= limit as usize {
            return Err(Status::new(
                Code::ResourceExhausted,
                format!("the service has {limit} sessions already; end some, or raise session_limit"),
            ));
        }
        self.users.take(peer.user, Thing::Session, &self.config)
    }

    /// Waits for what a session has to say. Its readiness may be older than the watch, and is told all the same.
    fn start(&mut self, session: &mut Session) -> Result<()> {
        let control = self.control();
        let timer = control
            .set_timer(Deadline::after(self.config.hello_timeout), session_token(About::Deadline, session))?;
        let socket = session.calls.as_ref().ok_or_else(|| Status::new(Code::Internal, "it has no socket"))?;
        let token = session_token(About::Calls, session);
        let watch = control.watch(socket, Signals::READABLE, Mode::Edge, token);
        if watch.is_err() {
            let _: Result<()> = control.cancel_timer(timer);
        }
        session.call_watch = Some(watch?);
        session.timer = Some(timer);
        Ok(())
    }

    /// Says why, and hangs up.
    fn refuse(&mut self, socket: OwnedFd, user: u32, status: &Status) {
        self.counters.refused += 1;
        if let Some(unsaid) = self.throttle.pass() {
            tracing::warn!(target: "handle_watcher::service", user, %status, unsaid, "a connection was refused");
        }
        let writer = &mut self.buffers.writer;
        Reply::write(NO_CALL, 0, status, writer);
        if let Ok(frame) = writer.frame() {
            // If its buffer cannot take even this, it learns nothing but the end.
            let _: std::result::Result<usize, Errno> = stream::send_now(socket.as_fd(), frame, None);
        }
        let load = Load { descriptor: Some(socket), ..Load::default() };
        let receipt = Receipt { slot: 0, call: NO_CALL, thing: Thing::Session, count: 0 };
        self.closer.close(Job { session: 0, user, load, receipt });
    }
}
