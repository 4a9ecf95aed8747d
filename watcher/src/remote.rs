//! A client whose watcher is in another process.

use std::path::Path;
use std::sync::Arc;

use handle_watcher_wire::{Code, Result, Status};

use crate::config::{ClientConfig, Config};
use crate::control::Control;
use crate::link::{ConnectConfig, Link};
use crate::port::Port;
use crate::shared::Shared;

/// Connects to the service at a socket's path (`@name`: an abstract name) and makes a client of it: a control handle and
/// a port, which do and promise what those of a watcher in this process do.
///
/// Level watches and hot ones are served by the port's own thread, without the service. When the service is lost, every
/// watch is told `Ended(UNAVAILABLE)` and every call answers UNAVAILABLE.
///
/// # Errors
/// `UNAVAILABLE` if no service answers there in time; `INVALID_ARGUMENT` for a path that no socket can have;
/// `PERMISSION_DENIED` if the service does not take this user; `FAILED_PRECONDITION` if it speaks no version of the
/// protocol that we do; `RESOURCE_EXHAUSTED` at a limit of the service or of this process.
pub fn connect(path: &Path, connect: &ConnectConfig, client: ClientConfig) -> Result<(Control, Port)> {
    let path = path.to_str().ok_or_else(|| {
        Status::new(Code::InvalidArgument, format!("the socket path {path:?} is not UTF-8; choose another"))
    })?;
    let link = Arc::new(Link::connect(path, connect)?);
    let limits = link.welcome().limits;
    let config = Config { timer_limit: limits.timers, ..Config::default() };
    let (shared, _) = Shared::new(config, Some(Arc::clone(&link)))?;
    let (control, port) = Port::open(&Arc::new(shared), client)?;
    let front = control.shared().front(control.port()).ok_or_else(|| {
        Status::new(
            Code::ResourceExhausted,
            "the poll set that a service's client waits on could not be made; close descriptors or raise RLIMIT_NOFILE",
        )
    })?;
    front.listen_to(link.events_socket()).map_err(|errno| {
        Status::new(Code::Internal, format!("the service's event socket cannot be waited for: {errno}"))
    })?;
    tracing::info!(target: "handle_watcher::link", session = link.welcome().session, "connected");
    Ok((control, port))
}
