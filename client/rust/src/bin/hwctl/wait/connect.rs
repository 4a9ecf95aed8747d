//! `tcp:host:port` and `unix:path`: somebody accepts connections there.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use handle_watcher_client::{
    Code, Control, Event, EventKind, Mode, Result, Signals, Status, Token, WatchId, WatchOptions,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType};

use super::awaited::{Awaited, Step, check_end};
use super::resolve::{Answer, Target, known_addresses, resolve};

/// How long one attempt may take. The kernel asks again after 1 and 3 seconds; after that a new attempt is quicker.
const ATTEMPT_MOST: Duration = Duration::from_secs(5);

/// The rest after the first round of attempts. It doubles with each.
const REST_LEAST: Duration = Duration::from_millis(50);

/// The longest rest.
const REST_MOST: Duration = Duration::from_secs(1);

pub(crate) struct Connect {
    target: Target,
    token: Token,
    /// The addresses of this round that were not tried yet.
    untried: VecDeque<SocketAddrAny>,
    attempt: Option<Attempt>,
    resolving: Option<Receiver<Answer>>,
    rest: Duration,
    obstacle: Option<String>,
}

/// A connection that is being made.
struct Attempt {
    socket: OwnedFd,
    watch: WatchId,
}

impl Connect {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            token: 0,
            untried: VecDeque::new(),
            attempt: None,
            resolving: None,
            rest: REST_LEAST,
            obstacle: None,
        }
    }

    fn begin_round(&mut self, control: &Control) -> Result<Step> {
        match &self.target {
            Target::Address(address) => self.untried.push_back(address.clone()),
            Target::Host { host, port } => match known_addresses(host, *port) {
                Some(address) => self.untried.push_back(address),
                None => {
                    self.resolving = Some(resolve(host, *port, control)?);
                    return Ok(Step::Pending);
                }
            },
        }
        self.try_next(control)
    }

    /// Goes through the addresses until one takes time, and rests after the last.
    fn try_next(&mut self, control: &Control) -> Result<Step> {
        while let Some(address) = self.untried.pop_front() {
            let socket = match open_socket(&address)? {
                Ok(socket) => socket,
                Err(errno) => {
                    self.obstacle = Some(errno.to_string());
                    continue;
                }
            };
            match rustix::net::connect(&socket, &address) {
                Ok(()) if !is_own_echo(&socket) => return Ok(Step::came("connected")),
                Ok(()) => self.obstacle = Some(Errno::CONNREFUSED.to_string()),
                Err(Errno::INPROGRESS) => {
                    let options = WatchOptions::new(Signals::WRITABLE, Mode::Once, self.token);
                    let watch = control.watch_with(&socket, options.deadline(ATTEMPT_MOST))?;
                    self.attempt = Some(Attempt { socket, watch });
                    return Ok(Step::Pending);
                }
                Err(errno) => self.obstacle = Some(errno.to_string()),
            }
        }
        control.set_timer(self.rest, self.token)?;
        self.rest = (self.rest * 2).min(REST_MOST);
        Ok(Step::Pending)
    }

    /// An attempt has come to something.
    fn finish(&mut self, control: &Control, event: &Event) -> Result<Step> {
        let Some(attempt) = self.attempt.take() else { return Ok(Step::Pending) };
        let outcome = if event.kind == EventKind::Deadline && event.satisfied.is_empty() {
            Some(format!("no answer within {} s", ATTEMPT_MOST.as_secs()))
        } else {
            match rustix::net::sockopt::socket_error(&attempt.socket) {
                Ok(Ok(())) if is_own_echo(&attempt.socket) => Some(Errno::CONNREFUSED.to_string()),
                Ok(Ok(())) => None,
                Ok(Err(errno)) | Err(errno) => Some(errno.to_string()),
            }
        };
        // Before its socket is closed.
        control.unwatch(attempt.watch)?;
        if outcome.is_none() {
            return Ok(Step::came("connected"));
        }
        self.obstacle = outcome;
        self.try_next(control)
    }
}

impl Awaited for Connect {
    fn start(&mut self, control: &Control, token: Token) -> Result<Step> {
        self.token = token;
        self.begin_round(control)
    }

    fn tell(&mut self, control: &Control, event: &Event) -> Result<Step> {
        check_end(event, "a connection")?;
        if event.kind == EventKind::Timer { self.begin_round(control) } else { self.finish(control, event) }
    }

    fn look(&mut self, control: &Control) -> Result<Step> {
        let Some(receiver) = &self.resolving else { return Ok(Step::Pending) };
        match receiver.try_recv() {
            Err(TryRecvError::Empty) => return Ok(Step::Pending),
            Ok(Ok(addresses)) => self.untried.extend(addresses),
            Ok(Err(obstacle)) => self.obstacle = Some(obstacle),
            Err(TryRecvError::Disconnected) => self.obstacle = Some("the look-up failed".to_owned()),
        }
        self.resolving = None;
        self.try_next(control)
    }

    fn obstacle(&self) -> Option<String> {
        self.obstacle.clone()
    }
}

/// A socket for an address, or why this address cannot be tried now.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if there can be no socket at all.
fn open_socket(address: &SocketAddrAny) -> Result<std::result::Result<OwnedFd, Errno>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::socket_with(address.address_family(), SocketType::STREAM, flags, None) {
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => Err(Status::new(
            Code::ResourceExhausted,
            format!("no socket for an attempt to connect: {errno}; close descriptors or raise RLIMIT_NOFILE"),
        )),
        other => Ok(other),
    }
}

/// True if a socket is connected to itself: the kernel may choose the very port it was asked to reach, and then TCP meets
/// itself. Nobody listens there.
fn is_own_echo(socket: &OwnedFd) -> bool {
    let ends = (rustix::net::getsockname(socket), rustix::net::getpeername(socket));
    match ends {
        (Ok(own), Ok(Some(peer))) => own == peer && own.address_family() != AddressFamily::UNIX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use handle_watcher_client::{WaitEntry, wait_many};

    #[test]
    fn a_socket_that_meets_itself_is_no_server() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let socket = open_socket(&any.into()).expect("a socket").expect("IPv4");
        rustix::net::bind(&socket, &any).expect("a port");
        let own = rustix::net::getsockname(&socket).expect("its address");
        assert_eq!(rustix::net::connect(&socket, &own), Err(Errno::INPROGRESS));
        let mut entries = [WaitEntry::new(socket.as_fd(), Signals::WRITABLE)];
        wait_many(&mut entries, None).expect("it meets itself");
        assert_eq!(rustix::net::sockopt::socket_error(&socket), Ok(Ok(())));
        assert!(is_own_echo(&socket));
        let listener = TcpListener::bind(any).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("a server");
        assert!(!is_own_echo(&stream.into()));
    }
}
