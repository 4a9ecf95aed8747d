//! One session: what a client has here.

use std::os::fd::{AsFd, OwnedFd};

use handle_watcher_wire::protocol::{FIRST_FRAME_LIMIT_BYTES, SessionEntry};
use handle_watcher_wire::{TimerId, WatchId};

use crate::control::Control;
use crate::notified_port::NotifiedPort;
use crate::service::config::ServiceConfig;
use crate::service::credentials::Peer;
use crate::service::inbox::Inbox;
use crate::service::lazy::Lazy;
use crate::service::outbox::{Flushed, Outbox};
use crate::service::timers::Timers;
use crate::service::watches::Watches;
use crate::sys::clock::now_ns;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing but a Hello is taken.
    Greeting,
    /// Requests are taken.
    Open,
    /// It said Bye: once everything it asked to be closed is closed, this call is answered, and it ends.
    Leaving { call: u32 },
    /// Nothing is taken any more; what was said last is still being sent.
    Ending,
    /// It is to be forgotten.
    Gone,
}

/// Why a session does nothing at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It has left too many bytes of replies unread.
    Replies,
    /// Too much of what it passed is still being closed.
    Closing,
}

#[derive(Debug)]
pub(super) struct Session {
    /// Where it is kept.
    pub(super) slot: u32,
    /// Its number, which no other session ever has.
    pub(super) number: u64,
    pub(super) peer: Peer,
    pub(super) phase: Phase,
    pub(super) name: Box<str>,
    pub(super) born_ns: u64,
    /// The socket of requests and replies; none once it is being closed.
    pub(super) calls: Option<OwnedFd>,
    pub(super) call_watch: Option<WatchId>,
    pub(super) reply_watch: Option<WatchId>,
    /// The Hello's deadline, and later that of the last words.
    pub(super) timer: Option<TimerId>,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// The service's end of the event socket, since the Hello.
    pub(super) events: Option<OwnedFd>,
    pub(super) event_watch: Option<WatchId>,
    pub(super) event_outbox: Outbox,
    /// The engine's client, since the Hello.
    pub(super) port: Option<NotifiedPort>,
    pub(super) watches: Lazy<Watches>,
    pub(super) timers: Lazy<Timers>,
    /// How many watches of its user's count are its own, closing ones included.
    pub(super) watches_taken: u32,
    /// How many descriptors of its user's count wait in its inbox.
    pub(super) descriptors_taken: u32,
    /// How many jobs of its own the closer has.
    pub(super) closing: u32,
    /// It stands in the line of those that have something to do.
    pub(super) is_waiting: bool,
    /// Its client hung up: everything it sent is read to the end.
    pub(super) is_hung_up: bool,
    /// The last read brought descriptors, or should have.
    pub(super) brought_descriptors: bool,
    /// Its client reads no replies any more.
    pub(super) is_deaf: bool,
    pub(super) events_told: u64,
    pub(super) requests: u64,
}

impl Session {
    pub(super) fn new(slot: u32, number: u64, peer: Peer, calls: OwnedFd) -> Self {
        Self {
            slot,
            number,
            peer,
            phase: Phase::Greeting,
            name: Box::default(),
            born_ns: now_ns(),
            calls: Some(calls),
            call_watch: None,
            reply_watch: None,
            timer: None,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            events: None,
            event_watch: None,
            event_outbox: Outbox::default(),
            port: None,
            watches: Lazy::default(),
            timers: Lazy::default(),
            watches_taken: 0,
            descriptors_taken: 0,
            closing: 0,
            is_waiting: false,
            is_hung_up: false,
            brought_descriptors: false,
            is_deaf: false,
            events_told: 0,
            requests: 0,
        }
    }

    /// The engine's client.
    pub(super) fn control(&self) -> Option<&Control> {
        self.port.as_ref().map(NotifiedPort::control)
    }

    /// The longest frame it may send now.
    pub(super) fn frame_limit_bytes(&self, config: &ServiceConfig) -> usize {
        if self.phase == Phase::Greeting { FIRST_FRAME_LIMIT_BYTES } else { config.frame_bytes as usize }
    }

    /// It takes requests, also the first.
    pub(super) fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Greeting | Phase::Open)
    }

    /// Why its requests have to wait, if they do.
    pub(super) fn obstacle(&self, unsent_bytes: usize, config: &ServiceConfig) -> Option<Obstacle> {
        if self.outbox.len() + unsent_bytes >= config.reply_bytes as usize {
            Some(Obstacle::Replies)
        } else if self.closing >= config.descriptors_per_session {
            Some(Obstacle::Closing)
        } else {
            None
        }
    }

    /// Sends the replies that wait, and then these.
    pub(super) fn flush(&mut self, replies: &[u8]) -> Flushed {
        match &self.calls {
            Some(calls) => self.outbox.send(calls.as_fd(), replies),
            None => Flushed::All,
        }
    }

    pub(super) fn entry(&self) -> SessionEntry {
        SessionEntry {
            session: self.number,
            name: self.name.to_string(),
            process: self.peer.process,
            user: self.peer.user,
            age_ns: now_ns().saturating_sub(self.born_ns),
            watches: self.watches.len() as u64,
            timers: self.timers.len() as u64,
            undelivered: self.control().map_or(0, |control| control.client_stats().undelivered),
            events: self.events_told,
            requests: self.requests,
        }
    }
}
