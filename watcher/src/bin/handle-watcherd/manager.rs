//! What a service manager and its services say to each other: the socket, readiness, the watchdog. See sd_notify(3) and
//! sd_listen_fds(3).

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use handle_watcher::{Code, Result, Status};

use super::sys;

/// The first descriptor that a manager passes.
const FIRST_PASSED: i32 = 3;

/// The listener that the manager passed, if it did. To be called once, before anything is opened.
///
/// # Errors
/// `INVALID_ARGUMENT` if it passed more than one.
pub(super) fn take_listener() -> Result<Option<OwnedFd>> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    // Meant for another process, such as one that started this one.
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) => sys::take_inherited(FIRST_PASSED).map(Some).ok_or_else(|| {
            Status::new(
                Code::InvalidArgument,
                "LISTEN_FDS says that a socket was passed, and descriptor 3 is not open",
            )
        }),
        Some(count) => Err(Status::new(
            Code::InvalidArgument,
            format!(
                "{count} sockets were passed, and one is served; keep one ListenStream in the socket unit"
            ),
        )),
    }
}

/// Where the manager wants to be told.
#[derive(Debug)]
pub(super) struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// As the environment says; one that tells nobody if there is none.
    pub(super) fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|name| match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            _ => SocketAddr::from_pathname(&name).ok(),
        });
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_meant = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let watchdog =
            number("WATCHDOG_USEC").filter(|usec| *usec > 0 && is_meant).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// How often the manager wants a sign of life, halved, if it does.
    pub(super) fn sign_interval(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|interval| interval / 2)
    }

    pub(super) fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::warn!(target: "handle_watcher::daemon", %error, state, "the service manager could not be told");
        }
    }
}
