//! From names to addresses.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, channel};

use handle_watcher_client::{Code, Control, Result, Status};
use rustix::net::{SocketAddrAny, SocketAddrUnix};

/// What is connected to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One address, known from the start.
    Address(SocketAddrAny),
    /// A name and a port, looked up for each round of attempts.
    Host {
        /// The name, or an address.
        host: String,
        /// The port.
        port: u16,
    },
}

/// The answer of a name server, or why there is none.
pub(crate) type Answer = std::result::Result<Vec<SocketAddrAny>, String>;

/// The address of a Unix socket; `@` begins an abstract name.
///
/// # Errors
/// Why there is no such address.
pub(crate) fn unix_address(path: &OsStr) -> std::result::Result<SocketAddrAny, String> {
    let bytes = path.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some([]) => return Err("names no socket".to_owned()),
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(bytes),
    };
    address.map(SocketAddrAny::from).map_err(|errno| {
        format!("is no address of a Unix socket ({errno}): it has {} bytes, and 107 is the most", bytes.len())
    })
}

/// The addresses of a host if they are known without asking anybody.
pub(crate) fn known_addresses(host: &str, port: u16) -> Option<SocketAddrAny> {
    host.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, port).into())
}

/// Asks for the addresses of a host on a thread of its own, since the system's function blocks, sometimes for long. The
/// client is woken when the answer is there.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if there can be no thread.
pub(crate) fn resolve(host: &str, port: u16, control: &Control) -> Result<Receiver<Answer>> {
    let (sender, receiver) = channel();
    let (host, control) = (host.to_owned(), control.clone());
    let ask = move || {
        let answer = (host.as_str(), port).to_socket_addrs();
        let answer = answer.map(|addresses| addresses.map(SocketAddrAny::from).collect());
        // Nobody listens any more when another source has come first.
        if sender.send(answer.map_err(|error| error.to_string())).is_ok() {
            let _: Result<()> = control.wake();
        }
    };
    let spawned = std::thread::Builder::new().name("hwctl-resolve".to_owned()).spawn(ask);
    spawned.map(|_| receiver).map_err(|error| {
        Status::new(
            Code::ResourceExhausted,
            format!("no thread for looking up a name: {error}; raise RLIMIT_NPROC"),
        )
    })
}
