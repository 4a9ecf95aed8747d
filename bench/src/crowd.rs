//! Many clients of a service in one process, which have many watches each and do nothing.

use crate::{Result, ours, pair};
use handle_watcher_client::{Client, FrontPolicy, Mode, Signals};
use std::os::unix::net::UnixStream;

/// How many sessions.
pub(crate) const SESSIONS: usize = 150;
/// How many watches each of them has, every one on a descriptor of its own.
pub(crate) const WATCHES: usize = 100;

/// The clients, and what they watch.
pub(crate) struct Crowd {
    _clients: Vec<Client>,
    _sockets: Vec<UnixStream>,
}

/// Connects all of them and makes their watches.
pub(crate) fn gather(address: &str) -> Result<Crowd> {
    let mut sockets = Vec::with_capacity(SESSIONS * WATCHES);
    for _ in 0..SESSIONS * WATCHES / 2 {
        let (one, other) = pair::pair()?;
        sockets.extend([one, other]);
    }
    let mut clients = Vec::with_capacity(SESSIONS);
    for watched in sockets.chunks(WATCHES) {
        let client = ours::connect(address, FrontPolicy::Off)?;
        for socket in watched {
            client.watch(socket, Signals::READABLE, Mode::Edge, 0)?;
        }
        clients.push(client);
    }
    Ok(Crowd { _clients: clients, _sockets: sockets })
}
