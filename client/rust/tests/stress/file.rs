//! The files that are watched: one end at a number of its owner's range, the other end in its owner's hands, so that the
//! owner knows what holds of it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use handle_watcher_client::Signals;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair, sockopt};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::random::Random;
use super::sys;

/// Told whether asked for or not.
pub(crate) const ALWAYS: Signals = Signals::PEER_CLOSED.union(Signals::ERROR);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    PipeReader,
    PipeWriter,
    Socket,
    Counter,
}

/// One open file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    peer: Option<OwnedFd>,
    /// When something was last read from it, in steps of its owner.
    pub(crate) read_at: u64,
    /// When something was last written to it.
    pub(crate) written_at: u64,
    /// It was closed at its number and put back there.
    pub(crate) has_come_back: bool,
}

impl File {
    /// Opens one, and gives its watched end too.
    pub(crate) fn open(id: u64, kind: Kind) -> (Self, OwnedFd) {
        let (watched, peer) = match kind {
            Kind::PipeReader | Kind::PipeWriter => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
                // One page, so that it is soon full.
                fcntl_setpipe_size(&writer, 4096).expect("a pipe of one page");
                if kind == Kind::PipeReader { (reader, Some(writer)) } else { (writer, Some(reader)) }
            }
            Kind::Socket => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let (watched, peer) =
                    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("two sockets");
                sockopt::set_socket_send_buffer_size(&watched, 1).expect("the least buffer there is");
                (watched, Some(peer))
            }
            Kind::Counter => {
                (eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"), None)
            }
        };
        (Self { id, kind, peer, read_at: 0, written_at: 0, has_come_back: false }, watched)
    }

    pub(crate) fn random_kind(random: &mut Random) -> Kind {
        random.pick(&[Kind::PipeReader, Kind::PipeReader, Kind::PipeWriter, Kind::Socket, Kind::Counter])
    }

    fn peer_number(&self) -> Option<RawFd> {
        self.peer.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Makes it readable, if its kind can be and its peer is there.
    pub(crate) fn feed(&self, number: RawFd) {
        match (self.kind, self.peer_number()) {
            (Kind::PipeReader | Kind::Socket, Some(peer)) => {
                sys::write(peer, b"x");
            }
            (Kind::Counter, _) => {
                sys::write(number, &1_u64.to_ne_bytes());
            }
            _ => {}
        }
    }

    /// Reads everything there is.
    pub(crate) fn consume(&mut self, number: RawFd, step: u64) {
        self.read_at = step;
        let mut buffer = [0; 4096];
        while self.kind != Kind::PipeWriter && sys::read(number, &mut buffer) == buffer.len() {}
    }

    /// Reads a little.
    pub(crate) fn sip(&mut self, number: RawFd, step: u64) {
        self.read_at = step;
        if self.kind != Kind::PipeWriter {
            sys::read(number, &mut [0; 8]);
        }
    }

    /// Makes it unwritable, if its kind can be.
    pub(crate) fn fill(&mut self, number: RawFd, step: u64) {
        if matches!(self.kind, Kind::PipeWriter | Kind::Socket) {
            self.written_at = step;
            while sys::write(number, &[0; 4096]) > 0 {}
        }
    }

    /// Makes it writable again.
    pub(crate) fn make_room(&self) {
        if let (Kind::PipeWriter | Kind::Socket, Some(peer)) = (self.kind, self.peer_number()) {
            let mut buffer = [0; 4096];
            while sys::read(peer, &mut buffer) > 0 {}
        }
    }

    /// The other end goes away.
    pub(crate) fn hang_up(&mut self) {
        self.peer = None;
    }

    /// The other end will send no more.
    pub(crate) fn half_close(&self) {
        if let (Kind::Socket, Some(peer)) = (self.kind, &self.peer) {
            shutdown(peer, Shutdown::Write).expect("a connected socket");
        }
    }
}

/// What holds of a number now, in the words of the contract (C2d), for a watch that wishes for `wished`.
pub(crate) fn holds(number: RawFd, wished: Signals) -> Signals {
    to_signals(sys::poll_now(number), wished)
}

pub(crate) fn to_signals(flags: PollFlags, wished: Signals) -> Signals {
    let mut signals = Signals::empty();
    signals.set(Signals::READABLE, flags.contains(PollFlags::IN));
    signals.set(Signals::WRITABLE, flags.contains(PollFlags::OUT));
    signals.set(Signals::PRIORITY, flags.contains(PollFlags::PRI));
    signals.set(Signals::ERROR, flags.contains(PollFlags::ERR));
    let half_closed =
        flags.contains(PollFlags::RDHUP) && wished.intersects(Signals::READABLE | Signals::PEER_CLOSED);
    signals.set(Signals::PEER_CLOSED, half_closed || flags.contains(PollFlags::HUP));
    signals & (wished | ALWAYS)
}
