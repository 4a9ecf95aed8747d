//! The service: clients of other processes, over a Unix socket.
//!
//! A session is served on the watcher thread itself, between the wait and the socket there is no further hop:
//!
//! ```text
//!                 the watcher thread
//!  connect  ──▶ listener ──▶ session        the service's own client of the engine watches all sockets
//!  requests ──▶ inbox ──▶ requests ──▶ the session's client of the engine
//!  replies  ◀── outbox ◀──┘      │                 │
//!  events   ◀── outbox ◀── telling ◀── its port ◀──┘
//!                                └──▶ closer threads: descriptors that a close could block on
//! ```
//!
//! Nothing here waits: sockets are asked without waiting, and the one lock is tried, never waited for.

mod closer;
mod config;
mod credentials;
mod entrance;
mod inbox;
mod index;
mod kinds;
mod lazy;
mod listener;
mod lists;
mod outbox;
mod path;
mod reading;
mod requests;
mod server;
mod session;
mod slab;
mod telling;
mod throttle;
mod timers;
mod token;
mod users;
mod watches;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use handle_watcher_wire::{Code, Result, Status};

use crate::config::ClientConfig;
use crate::control::Control;
use crate::front::FrontPolicy;
use crate::service::closer::Closer;
use crate::service::entrance::{Entrance, Errand, Messenger};
use crate::service::listener::Listener;
use crate::service::server::Server;
use crate::sys::eventfd::EventFd;
use crate::watcher::Watcher;

pub use crate::service::config::ServiceConfig;

/// A watcher's service for clients of other processes: they connect to its socket, pass descriptors, and are told what
/// becomes of them. PROTOCOL.md has the bytes.
///
/// It is served by the watcher thread, beside the watcher's other clients. It stops when it is dropped, and with its
/// watcher. Safe to use from any thread.
#[derive(Debug)]
pub struct Service {
    entrance: Arc<Entrance>,
    closer: Arc<Closer>,
    control: Control,
}

impl Service {
    /// Makes a socket at `path` and serves whoever connects there. A path that begins with `@` is an abstract name: no
    /// file, so no permissions, but the rules about users and groups hold.
    ///
    /// The socket's file has its mode from birth. A file that a dead server left is replaced; one that a server lives at is
    /// never touched, and neither is one that is no socket. A file `path.lock` stands beside it while the service lives.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a path that no socket can have, or a configuration that cannot work; `ALREADY_EXISTS` if a
    /// server lives at the path; `FAILED_PRECONDITION` if something else is there, /proc is not mounted, or after a fork;
    /// `PERMISSION_DENIED` and `NOT_FOUND` as the file system says; `RESOURCE_EXHAUSTED` when descriptors, threads or the
    /// watcher's clients ran out; `UNAVAILABLE` after the watcher's stop.
    pub fn bind(watcher: &Watcher, path: &str, config: ServiceConfig) -> Result<Self> {
        config.check()?;
        let (socket, file) = path::bind(path, config.mode, config.backlog)?;
        Self::start(watcher, Listener::new(socket, file, path.to_owned()), config)
    }

    /// Serves whoever connects to a listening Unix stream socket that somebody else made, such as a service manager. The
    /// socket's file, if it has one, is left alone, also at the end.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); `INVALID_ARGUMENT` if the socket is not a listening one.
    pub fn from_listener(
        watcher: &Watcher,
        listener: impl Into<OwnedFd>,
        config: ServiceConfig,
    ) -> Result<Self> {
        config.check()?;
        let socket = listener.into();
        path::check_listener(&socket)?;
        Self::start(watcher, Listener::new(socket, None, String::new()), config)
    }

    fn start(watcher: &Watcher, listener: Listener, config: ServiceConfig) -> Result<Self> {
        let (control, port) =
            watcher.client(ClientConfig { front: FrontPolicy::Off, ..ClientConfig::default() })?;
        let bell = EventFd::new().map_err(|errno| {
            Status::new(
                Code::ResourceExhausted,
                format!("the service's eventfd could not be made: {errno}; close descriptors or raise RLIMIT_NOFILE"),
            )
        })?;
        let bell = Arc::new(bell);
        let closer = Arc::new(Closer::spawn(Arc::clone(&bell))?);
        let entrance = Arc::new(Entrance::new());
        let port =
            port.into_notified(Messenger::new(&entrance, Errand::Own)).map_err(|refused| refused.status)?;
        tracing::info!(target: "handle_watcher::service", path = listener.path(), "listening");
        let server =
            Server::new(Arc::downgrade(&entrance), config, port, bell, Arc::clone(&closer), listener)?;
        entrance.open(server);
        Ok(Self { entrance, closer, control })
    }

    /// Stops the service: each session is told `UNAVAILABLE` and closed, the socket's file is removed if it is still ours.
    /// Returns when that is done, after at most some seconds; what a client left lingering may be closed later. Calling it
    /// again is harmless. On the watcher thread itself it only begins the stop.
    ///
    /// Nothing happens in a process that was forked since: the service, its sockets and its file are the parent's.
    pub fn stop(&self) {
        if self.control.check_process().is_err() {
            // The sessions are the parent's, and their sockets are shared with it.
            return;
        }
        if !self.entrance.is_over() {
            self.entrance.enter(Errand::Stop);
        }
        if self.control.shared().is_watcher_thread() {
            return;
        }
        self.entrance.wait_until_over();
        self.closer.stop();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.control.check_process().is_err() {
            // To end anything here would end the parent's sessions and remove its file, so nothing is ever dropped.
            std::mem::forget((Arc::clone(&self.entrance), Arc::clone(&self.closer)));
        }
        self.stop();
    }
}
