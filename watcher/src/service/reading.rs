//! Reading what a session sends, and cutting it into requests.

use std::os::fd::AsFd;

use handle_watcher_wire::pickle::{HeaderSize, find_next, peek_next};
use handle_watcher_wire::{Code, Status};
use rustix::io::Errno;

use crate::service::server::Server;
use crate::service::session::Session;
use crate::sys::passing::{Received, receive};

/// How many times one turn reads from one session.
const READS_PER_TURN: usize = 8;
/// Replies are sent as soon as they are so many bytes, while more are being made.
const REPLIES_BYTES: usize = 16 << 10;

/// What serving a session came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    /// How many requests were carried out.
    pub(super) requests: usize,
    /// It has more to do next turn.
    pub(super) has_more: bool,
}

/// Why no further request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Everything that was there was taken; what is left is the beginning of a frame.
    Dry,
    /// It had its share of this turn.
    Spent,
    /// It has to wait for something; somebody goes on when that has come.
    Blocked,
    /// It takes no requests any more.
    Over,
}

impl Server {
    /// Carries out at most `budget` of a session's requests, and sends the replies.
    pub(super) fn serve(&mut self, session: &mut Session, budget: usize) -> Served {
        let mut left = budget;
        let pace = self.serve_some(session, &mut left);
        if self.count_descriptors(session) {
            let status = Status::new(
                Code::ResourceExhausted,
                format!(
                    "{} descriptors wait for their requests, which is beyond descriptors_per_session or descriptors_per_user; send each with its request",
                    session.inbox.descriptors()
                ),
            );
            self.end(session, Some(&status));
        }
        if pace != Pace::Spent && session.inbox.waiting().any(|waits| self.kinds.is_own_connection(waits)) {
            // While it waits here, nobody's death is noticed: neither in its own session, nor in another's.
            let status = Status::new(
                Code::InvalidArgument,
                "a connection to this service was passed, and the request that is to take it is not whole; do not pass it",
            );
            self.end(session, Some(&status));
        }
        session.inbox.shrink();
        self.flush(session);
        let has_more = pace == Pace::Spent && session.takes_requests();
        Served { requests: budget - left, has_more }
    }

    fn serve_some(&mut self, session: &mut Session, left: &mut usize) -> Pace {
        if !session.inbox.is_empty() {
            let pace = self.take_inbox(session, left);
            if pace != Pace::Dry {
                return pace;
            }
        }
        for _ in 0..READS_PER_TURN {
            if let Some(pace) = self.hold_up(session) {
                return pace;
            }
            let mut buffer = std::mem::take(&mut self.buffers.read);
            let outcome = self.read(session, &mut buffer);
            let pace = match outcome {
                Ok(received) => self.take_read(session, &buffer[..received.bytes], left),
                Err(pace) => pace,
            };
            let is_full = outcome.is_ok_and(|received| received.bytes == buffer.len());
            self.buffers.read = buffer;
            if pace != Pace::Dry {
                return pace;
            }
            if session.inbox.is_empty() && !self.check_orphans(session) {
                return Pace::Over;
            }
            // A read that brought less than it might have left nothing, unless descriptors or an end came with it.
            let is_all = outcome.is_ok_and(|_| !is_full && !session.may_have_more());
            if is_all || outcome.is_err() {
                return Pace::Dry;
            }
        }
        Pace::Spent
    }

    /// Why nothing is to be read from a session now, if so.
    fn hold_up(&mut self, session: &mut Session) -> Option<Pace> {
        if !session.takes_requests() {
            return Some(Pace::Over);
        }
        if session.obstacle(self.buffers.replies.len(), &self.config).is_some() {
            self.flush(session);
        }
        session.obstacle(0, &self.config).map(|_| Pace::Blocked)
    }

    fn read(&mut self, session: &mut Session, buffer: &mut [u8]) -> Result<Received, Pace> {
        let Some(calls) = &session.calls else { return Err(Pace::Over) };
        let inbox = &mut session.inbox;
        let mut descriptors = 0;
        let received = receive(calls.as_fd(), buffer, &mut self.buffers.control, |descriptor| {
            descriptors += 1;
            inbox.pass(descriptor);
        });
        self.counters.descriptors += descriptors;
        session.brought_descriptors = descriptors > 0;
        match received {
            Ok(Received { bytes: 0, .. }) => {
                self.end(session, None);
                Err(Pace::Over)
            }
            Ok(received) => {
                self.counters.descriptors_lost += u64::from(received.is_cut);
                session.brought_descriptors |= received.is_cut;
                session.inbox.count_read(received.bytes, received.is_cut, received.bytes == buffer.len());
                Ok(received)
            }
            Err(Errno::AGAIN) if !session.is_deaf => Err(Pace::Dry),
            Err(_) => {
                self.lose(session);
                Err(Pace::Over)
            }
        }
    }

    /// Takes requests out of what was just read; what is left of it is kept.
    fn take_read(&mut self, session: &mut Session, bytes: &[u8], left: &mut usize) -> Pace {
        let limit_bytes = session.frame_limit_bytes(&self.config);
        let topped = session.inbox.top_up(bytes, limit_bytes);
        let mut rest = &bytes[topped..];
        let mut pace = Pace::Dry;
        if !session.inbox.is_empty() {
            pace = self.take_inbox(session, left);
        }
        if pace == Pace::Dry && session.inbox.is_empty() {
            let (taken, why) = self.take_frames(session, rest, left);
            pace = why;
            rest = &rest[taken..];
        }
        if session.takes_requests() {
            session.inbox.append(rest);
        }
        pace
    }

    /// Takes requests out of what was kept.
    fn take_inbox(&mut self, session: &mut Session, left: &mut usize) -> Pace {
        let (bytes, start) = session.inbox.lend();
        let (taken, pace) = self.take_frames(session, &bytes[start..], left);
        if session.takes_requests() {
            session.inbox.put_back(bytes, start + taken);
        }
        pace
    }

    /// Carries out the requests in `bytes`; gives how many bytes they were, and why it stopped.
    fn take_frames(&mut self, session: &mut Session, bytes: &[u8], left: &mut usize) -> (usize, Pace) {
        let (mut taken, was_deaf) = (0, session.is_deaf);
        loop {
            let rest = &bytes[taken..];
            let limit_bytes = session.frame_limit_bytes(&self.config);
            if let Some(claimed) = peek_next(HeaderSize::PLAIN, rest)
                && claimed > limit_bytes as u64
            {
                let status = Status::new(
                    Code::InvalidArgument,
                    format!(
                        "a frame of {claimed} bytes is beyond the limit of {limit_bytes}; send less at once"
                    ),
                );
                self.end(session, Some(&status));
                return (taken, Pace::Over);
            }
            let Some((frame, _)) = find_next(HeaderSize::PLAIN, rest) else { return (taken, Pace::Dry) };
            if *left == 0 {
                return (taken, Pace::Spent);
            }
            if let Some(pace) = self.hold_up(session) {
                return (taken, pace);
            }
            *left -= 1;
            self.carry_out(session, frame);
            taken += frame.len();
            session.inbox.count_taken(frame.len());
            if self.buffers.replies.len() >= REPLIES_BYTES {
                self.flush(session);
            }
            if session.is_deaf && !was_deaf {
                // The rest of what it left behind waits for those who are still there.
                *left = 0;
            }
            if !session.takes_requests() {
                return (taken, Pace::Over);
            }
        }
    }

    /// At the end of a frame with nothing behind it, descriptors that are left belong to no request. False if the session
    /// was ended for it.
    fn check_orphans(&mut self, session: &mut Session) -> bool {
        let orphans = session.inbox.take_orphans();
        if orphans.is_empty() {
            return true;
        }
        let status = Status::new(
            Code::InvalidArgument,
            format!(
                "{} descriptors came that no request takes; say in each request how many are its own",
                orphans.len()
            ),
        );
        self.close_many(session, orphans);
        self.end(session, Some(&status));
        false
    }
}

impl Session {
    /// Another read may bring something, although the last one did not fill its buffer: a read stops behind descriptors,
    /// and the end of a stream is read by itself.
    fn may_have_more(&self) -> bool {
        self.brought_descriptors || self.is_hung_up || self.is_deaf
    }
}
