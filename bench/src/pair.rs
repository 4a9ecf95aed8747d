//! Socket pairs, and room for many of them.

use crate::Result;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;

/// Descriptors we leave to the standard streams, poll sets, event descriptors and libraries.
const SPARE_DESCRIPTORS: u64 = 256;

/// Two connected non-blocking Unix stream sockets.
pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (one, other) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

/// Raises this process's descriptor limit as far as it goes and returns how many a bench may open.
pub(crate) fn descriptor_budget() -> Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    let most = limit.current.unwrap_or(1 << 20).saturating_sub(SPARE_DESCRIPTORS);
    Ok(usize::try_from(most)?)
}

/// Raises the limit and fails with a sentence when `needed` descriptors do not fit.
pub(crate) fn require_descriptors(needed: usize) -> Result<()> {
    let budget = descriptor_budget()?;
    if budget < needed {
        return Err(
            format!("needs {needed} descriptors, the limit leaves {budget}; raise `ulimit -Hn`").into()
        );
    }
    Ok(())
}

/// The message of a round trip and of a hop.
pub(crate) const MESSAGE: &[u8; 12] = b"ping or pong";
/// Room for more than one message: a short read proves that the socket is empty, so no subject has to read twice.
pub(crate) const ROOM: usize = 64;

/// Sends one message. A full socket is an error: every bench has at most one message in flight.
pub(crate) fn send(socket: &UnixStream) -> io::Result<()> {
    match rustix::io::write(socket, MESSAGE)? {
        sent if sent == MESSAGE.len() => Ok(()),
        sent => Err(io::Error::new(ErrorKind::WriteZero, format!("sent {sent} bytes of a message"))),
    }
}

/// Takes one message; `None` when there is none yet.
pub(crate) fn take(socket: &UnixStream) -> io::Result<Option<Taken>> {
    match rustix::io::read(socket, &mut [0; ROOM]) {
        Ok(length) => taken(length).map(Some),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Message,
    /// The other end is gone: the run is over.
    Hangup,
}

/// Messages of 12 bytes through a stream socket arrive whole; anything else is a bug in the bench.
pub(crate) fn taken(length: usize) -> io::Result<Taken> {
    match length {
        0 => Ok(Taken::Hangup),
        length if length == MESSAGE.len() => Ok(Taken::Message),
        length => {
            Err(io::Error::new(ErrorKind::InvalidData, format!("read {length} bytes of a 12-byte message")))
        }
    }
}
