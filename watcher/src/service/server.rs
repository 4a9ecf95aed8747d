//! The service behind its lock: the sessions, the line of those that have something to do, and how they end.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ahash::RandomState;
use handle_watcher_wire::pickle::Writer;
use handle_watcher_wire::protocol::{NO_CALL, Reply};
use handle_watcher_wire::{Code, Event, EventKind, Mode, Result, Signals, Status};

use crate::control::Control;
use crate::deadline::Deadline;
use crate::events::Events;
use crate::notified_port::NotifiedPort;
use crate::service::closer::{Closer, Done, Job, Load, Receipt};
use crate::service::config::ServiceConfig;
use crate::service::entrance::Entrance;
use crate::service::kinds::Kinds;
use crate::service::lazy::Lazy;
use crate::service::listener::Listener;
use crate::service::outbox::Flushed;
use crate::service::session::{Phase, Session};
use crate::service::slab::Slab;
use crate::service::throttle::{Throttle, words_of};
use crate::service::token::{About, read_token, session_token, token_of};
use crate::service::users::{Thing, Users};
use crate::sys::eventfd::EventFd;
use crate::sys::passing::ControlSpace;

/// How many bytes one read takes at most.
const READ_BYTES: usize = 64 << 10;
/// How many of the service's own events, and of a session's, are looked at together.
pub(super) const EVENT_BATCH: usize = 256;
/// How many such batches of its own a turn looks at.
const BATCHES_PER_TURN: usize = 16;
/// How many requests one turn carries out at most, over all sessions.
const REQUESTS_PER_TURN: usize = 512;
/// How long what was said last may stay unread.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// What the service counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) ended: u64,
    pub(super) requests: u64,
    pub(super) replies: u64,
    pub(super) events: u64,
    pub(super) descriptors: u64,
    pub(super) descriptors_lost: u64,
    pub(super) accept_pauses: u64,
}

/// Memory that every session uses while it is served.
#[derive(Debug)]
pub(super) struct Buffers {
    /// What was read. Taken out while it is looked at.
    pub(super) read: Box<[u8]>,
    pub(super) control: ControlSpace,
    /// A session's events. Taken out while they are looked at.
    pub(super) events: Option<Events>,
    pub(super) frames: Vec<u8>,
    pub(super) writer: Writer,
    /// Replies of the session that is being served.
    pub(super) replies: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) entrance: Weak<Entrance>,
    pub(super) config: ServiceConfig,
    pub(super) own_user: u32,
    /// The service's own client of the engine.
    pub(super) port: NotifiedPort,
    own_events: Option<Events>,
    pub(super) bell: Arc<EventFd>,
    pub(super) closer: Arc<Closer>,
    pub(super) listener: Listener,
    pub(super) kinds: Kinds,
    /// A session that is being served is taken out of its place.
    pub(super) sessions: Slab<Option<Box<Session>>>,
    pub(super) last_number: u64,
    /// The slots of those that have something to do, first come first.
    line: VecDeque<u32>,
    /// The same of those whose clients are gone: what they left behind is carried out, and holds nobody up.
    late: VecDeque<u32>,
    pub(super) users: Users,
    pub(super) seed: RandomState,
    pub(super) buffers: Buffers,
    pub(super) throttle: Throttle,
    pub(super) counters: Counters,
    requests_per_turn: usize,
    pub(super) is_stopping: bool,
}

impl Server {
    /// A service of this client, which watches the bell and the listener.
    pub(super) fn new(
        entrance: Weak<Entrance>,
        config: ServiceConfig,
        port: NotifiedPort,
        bell: Arc<EventFd>,
        closer: Arc<Closer>,
        mut listener: Listener,
    ) -> Result<Self> {
        let control = port.control();
        control.watch(&*bell, Signals::READABLE, Mode::Edge, token_of(About::Bell))?;
        listener.watch = Some(control.watch(
            listener.socket()?,
            Signals::READABLE,
            Mode::Edge,
            token_of(About::Listener),
        )?);
        let kinds = Kinds::new(Kinds::address_of(listener.socket()?))?;
        // The watcher thread cannot wait for its own commands, of which a request makes at most one.
        let command_limit = control.shared().config.command_limit;
        Ok(Self {
            entrance,
            own_user: crate::service::credentials::own_user(),
            own_events: Some(Events::with_capacity(EVENT_BATCH)),
            bell,
            closer,
            listener,
            kinds,
            sessions: Slab::default(),
            last_number: 0,
            line: VecDeque::new(),
            late: VecDeque::new(),
            users: Users::default(),
            seed: RandomState::new(),
            buffers: Buffers {
                read: vec![0; READ_BYTES].into(),
                control: ControlSpace::new(),
                events: Some(Events::with_capacity(EVENT_BATCH)),
                frames: Vec::new(),
                writer: Writer::new().with_payload_limit(config.frame_bytes as usize - 4),
                replies: Vec::new(),
            },
            throttle: Throttle::default(),
            counters: Counters::default(),
            requests_per_turn: REQUESTS_PER_TURN.min(command_limit / 2).max(1),
            is_stopping: false,
            config,
            port,
        })
    }

    pub(super) fn control(&self) -> &Control {
        self.port.control()
    }

    /// Looks at what came, then serves those in the line.
    pub(super) fn turn(&mut self) {
        let Some(mut events) = self.own_events.take() else { return };
        let mut has_more = true;
        for _ in 0..BATCHES_PER_TURN {
            match self.port.drain(&mut events) {
                Ok(drained) => has_more = drained.has_more,
                Err(_) => {
                    // The watcher has stopped.
                    self.stop();
                    has_more = false;
                }
            }
            events.iter().for_each(|event| self.look(event));
            if !has_more {
                break;
            }
        }
        self.own_events = Some(events);
        self.serve_line();
        if has_more || !self.line.is_empty() || !self.late.is_empty() || self.listener.has_more() {
            self.ring();
        }
    }

    /// Ends every session; the service is over when the last one is.
    pub(super) fn stop(&mut self) {
        if self.is_stopping {
            return;
        }
        self.is_stopping = true;
        if let Some(watch) = self.listener.watch.take() {
            // NOT_FOUND after the watcher's stop, which ended it.
            let _: Result<()> = self.control().unwatch(watch);
        }
        let slots: Vec<u32> = self.sessions.iter().map(|(slot, _)| slot).collect();
        let status = Status::new(Code::Unavailable, "the service stops; connect again when it is back");
        for slot in slots {
            self.visit(slot, None, |server, session| server.end(session, Some(&status)));
        }
    }

    /// Nobody is left, after a stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopping && self.sessions.len() == 0
    }

    /// Has another turn come.
    pub(super) fn ring(&self) {
        // It is an eventfd of our own; where write(2) is forbidden, the watcher itself could not have been made.
        let _: std::result::Result<(), rustix::io::Errno> = self.bell.raise();
    }

    /// Takes a session out of its place while something is done with it.
    pub(super) fn visit(
        &mut self,
        slot: u32,
        number_low: Option<u32>,
        action: impl FnOnce(&mut Self, &mut Session),
    ) {
        let Some(place) = self.sessions.get_mut(slot) else { return };
        let is_meant = |session: &Session| {
            number_low.is_none_or(|low| session.number & u64::from(u32::MAX) == low.into())
        };
        let Some(mut session) = place.take_if(|session| is_meant(session)) else { return };
        action(self, &mut session);
        if session.phase == Phase::Gone {
            self.sessions.remove(slot);
        } else if let Some(place) = self.sessions.get_mut(slot) {
            *place = Some(session);
        }
    }

    /// Puts a session into the line.
    pub(super) fn line_up(&mut self, session: &mut Session) {
        if !session.is_waiting {
            session.is_waiting = true;
            let line = if session.is_deaf { &mut self.late } else { &mut self.line };
            line.push_back(session.slot);
        }
    }

    fn serve_line(&mut self) {
        let mut left = self.requests_per_turn;
        self.accept();
        for _ in 0..self.line.len() {
            if left == 0 {
                break;
            }
            let Some(slot) = self.line.pop_front() else { break };
            self.serve_next(slot, &mut left);
        }
        // One of them a turn, however many they are.
        if let Some(slot) = self.late.pop_front() {
            let mut share = self.requests_per_turn;
            self.serve_next(slot, &mut share);
        }
    }

    /// Serves whoever is next in a line, and takes what that was from what is left of the turn.
    fn serve_next(&mut self, slot: u32, left: &mut usize) {
        let budget = (*left).min(self.config.requests_per_turn as usize);
        self.visit(slot, None, |server, session| {
            session.is_waiting = false;
            let served = server.serve(session, budget);
            *left -= served.requests.min(*left);
            if served.has_more {
                server.line_up(session);
            }
        });
    }

    fn look(&mut self, event: &Event) {
        let Some((about, slot, number_low)) = read_token(event.token) else { return };
        match about {
            About::Listener => self.listener.is_ready = true,
            About::Pause => self.listener.is_paused = false,
            About::Bell => {
                self.bell.lower();
                let done = self.closer.take_done();
                done.into_iter().for_each(|done| self.note_done(done));
            }
            About::Calls => self.visit(slot, Some(number_low), |server, session| {
                let is_end = event.kind == EventKind::Ended
                    || event.satisfied.intersects(Signals::PEER_CLOSED | Signals::ERROR);
                session.is_hung_up |= is_end;
                if is_end && matches!(session.phase, Phase::Leaving { .. }) {
                    // It does not wait for the answer.
                    server.end(session, None);
                } else {
                    server.line_up(session);
                }
            }),
            About::Replies => self.visit(slot, Some(number_low), Self::flush),
            About::Events => self.visit(slot, Some(number_low), Self::tell_session),
            About::Deadline => self.visit(slot, Some(number_low), |server, session| {
                session.timer = None;
                if session.phase == Phase::Greeting {
                    let status = Status::new(
                        Code::DeadlineExceeded,
                        format!("no Hello came within {:?}; send it first", server.config.hello_timeout),
                    );
                    server.end(session, Some(&status));
                } else if session.phase == Phase::Ending {
                    server.finish(session);
                }
            }),
        }
    }

    /// Sends what waits, and goes on where that was in the way.
    pub(super) fn flush(&mut self, session: &mut Session) {
        let replies = std::mem::take(&mut self.buffers.replies);
        let flushed = session.flush(&replies);
        self.buffers.replies = replies;
        self.buffers.replies.clear();
        match flushed {
            Flushed::All => {
                if let Some(watch) = session.reply_watch.take() {
                    // NOT_FOUND after the watcher's stop, which ended it.
                    let _: Result<()> = self.control().unwatch(watch);
                    if session.takes_requests() {
                        self.line_up(session);
                    }
                }
                if session.phase == Phase::Ending {
                    self.finish(session);
                }
            }
            Flushed::Some => {
                let token = session_token(About::Replies, session);
                let armed = match (session.reply_watch, &session.calls) {
                    (Some(watch), _) => self.control().arm(watch).map(|()| watch).ok(),
                    (None, Some(calls)) => {
                        self.control().watch(calls, Signals::WRITABLE, Mode::Once, token).ok()
                    }
                    (None, None) => None,
                };
                // Without being told, nobody would ever go on here.
                if armed.is_none() {
                    self.lose(session);
                }
                session.reply_watch = armed.or(session.reply_watch);
            }
            Flushed::Lost(_) if session.phase == Phase::Ending => self.lose(session),
            // What its client had sent before it went is still carried out.
            Flushed::Lost(_) => {
                session.outbox.give_up();
                if !session.is_deaf {
                    session.is_deaf = true;
                    self.line_up(session);
                }
            }
        }
    }

    /// Ends a session: `last` is said to it, what it has is taken back, and its sockets are closed when it has read what
    /// was said, or after a while.
    pub(super) fn end(&mut self, session: &mut Session, last: Option<&Status>) {
        if matches!(session.phase, Phase::Ending | Phase::Gone) {
            return;
        }
        session.phase = Phase::Ending;
        self.counters.ended += 1;
        self.log_end(session, last);
        if let Some(status) = last {
            self.reply_status(NO_CALL, status);
        }
        if let Some(events) = &session.events {
            // As far as it goes.
            let _: Flushed = session.event_outbox.send(std::os::fd::AsFd::as_fd(events), &[]);
        }
        self.release(session);
        if let Some(timer) = session.timer.take() {
            let _: Result<()> = self.control().cancel_timer(timer);
        }
        if let Some(watch) = session.call_watch.take() {
            let _: Result<()> = self.control().unwatch(watch);
        }
        self.flush(session);
        if session.phase == Phase::Ending {
            let token = session_token(About::Deadline, session);
            match self.control().set_timer(Deadline::after(LAST_WORDS_TIMEOUT), token) {
                Ok(timer) => session.timer = Some(timer),
                Err(_) => self.finish(session),
            }
        }
    }

    fn log_end(&mut self, session: &Session, last: Option<&Status>) {
        let (number, user, name) = (session.number, session.peer.user, words_of(&session.name));
        match last {
            Some(status) if !self.is_stopping => {
                if let Some(unsaid) = self.throttle.pass() {
                    tracing::warn!(
                        target: "handle_watcher::service", session = number, user, name, %status, unsaid, "a session was ended"
                    );
                }
            }
            _ => {
                tracing::debug!(target: "handle_watcher::service", session = number, user, name, "a session ended")
            }
        }
    }

    /// Its client is gone.
    pub(super) fn lose(&mut self, session: &mut Session) {
        session.outbox.give_up();
        self.end(session, None);
        self.finish(session);
    }

    /// Gives everything that a session watches to the closer.
    fn release(&mut self, session: &mut Session) {
        let user = session.peer.user;
        let orphans = session.inbox.take_descriptors();
        self.count_descriptors(session);
        let count = u32::try_from(session.watches.len()).unwrap_or(u32::MAX);
        self.users.give(user, Thing::Timer, u32::try_from(session.timers.len()).unwrap_or(u32::MAX));
        let load = Load {
            port: session.port.take(),
            watches: std::mem::take(&mut session.watches),
            descriptors: orphans,
            descriptor: None,
        };
        session.timers = Lazy::default();
        self.close(session, load, NO_CALL, Thing::Watch, count);
    }

    /// The last thing of a session: its sockets are closed, too.
    pub(super) fn finish(&mut self, session: &mut Session) {
        if session.phase == Phase::Gone {
            return;
        }
        session.phase = Phase::Gone;
        for watch in [session.reply_watch.take(), session.event_watch.take()].into_iter().flatten() {
            let _: Result<()> = self.control().unwatch(watch);
        }
        if let Some(timer) = session.timer.take() {
            let _: Result<()> = self.control().cancel_timer(timer);
        }
        if let Some(calls) = session.calls.take() {
            // A socket with descriptors under way in it closes them, and may be held up as they may.
            let descriptors = [Some(calls), session.events.take()].into_iter().flatten().collect();
            self.close(session, Load { descriptors, ..Load::default() }, NO_CALL, Thing::Session, 1);
        }
    }

    /// Gives one descriptor to the closer; the user's count of it shrinks when it is closed.
    pub(super) fn close_one(
        &mut self,
        session: &mut Session,
        descriptor: OwnedFd,
        call: u32,
        thing: Thing,
        count: u32,
    ) {
        self.close(session, Load { descriptor: Some(descriptor), ..Load::default() }, call, thing, count);
    }

    /// Gives descriptors to the closer that nothing counts any more.
    pub(super) fn close_many(&mut self, session: &mut Session, descriptors: Vec<OwnedFd>) {
        self.close(session, Load { descriptors, ..Load::default() }, NO_CALL, Thing::Descriptor, 0);
    }

    fn close(&mut self, session: &mut Session, load: Load, call: u32, thing: Thing, count: u32) {
        session.closing += 1;
        let receipt = Receipt { slot: session.slot, call, thing, count };
        self.closer.close(Job { session: session.number, user: session.peer.user, load, receipt });
    }

    fn note_done(&mut self, done: Done) {
        let Receipt { slot, call, thing, count } = done.receipt;
        self.users.give(done.user, thing, count);
        let low = u32::try_from(done.session & u64::from(u32::MAX)).unwrap_or(0);
        self.visit(slot, Some(low), |server, session| {
            let was_in_the_way = session.obstacle(0, &server.config).is_some();
            session.closing -= 1;
            if thing == Thing::Watch && session.phase != Phase::Ending {
                session.watches_taken -= count;
            }
            if !matches!(session.phase, Phase::Ending | Phase::Gone) {
                server.reply_ok(call);
            }
            if let Phase::Leaving { call } = session.phase
                && session.closing == 0
            {
                server.leave(session, call);
                return;
            }
            server.flush(session);
            if was_in_the_way && session.takes_requests() {
                server.line_up(session);
            }
        });
    }

    /// Answers a Bye and ends.
    pub(super) fn leave(&mut self, session: &mut Session, call: u32) {
        self.reply_ok(call);
        self.end(session, None);
    }

    /// Says of the descriptors in an inbox what the user's count has to know. Gives whether there are too many.
    pub(super) fn count_descriptors(&mut self, session: &mut Session) -> bool {
        let (before, now) = (session.descriptors_taken, session.inbox.descriptors());
        session.descriptors_taken = now;
        let user = session.peer.user;
        if now <= before {
            self.users.give(user, Thing::Descriptor, before - now);
            return false;
        }
        let is_beyond = self.users.add(user, Thing::Descriptor, now - before, &self.config);
        is_beyond || now > self.config.descriptors_per_session
    }

    /// Adds a reply that says that all went well to those of the session that is being served.
    pub(super) fn reply_ok(&mut self, call: u32) {
        self.reply_with(call, |_| {});
    }

    /// The same with something in it. What is too long for a frame is refused instead.
    pub(super) fn reply_with(&mut self, call: u32, body: impl FnOnce(&mut Writer)) {
        if call == NO_CALL {
            return;
        }
        Reply::write_ok(call, &mut self.buffers.writer);
        body(&mut self.buffers.writer);
        self.add_reply(call);
    }

    /// The same with a status that is not OK. Call 0 is that of a session that ends.
    pub(super) fn reply_status(&mut self, call: u32, status: &Status) {
        Reply::write(call, 0, status, &mut self.buffers.writer);
        self.add_reply(call);
    }

    /// Adds the frame in the writer to the replies.
    pub(super) fn add_reply(&mut self, call: u32) {
        let Buffers { writer, replies, .. } = &mut self.buffers;
        let refusal = match writer.frame() {
            Ok(frame) => {
                replies.extend_from_slice(frame);
                self.counters.replies += 1;
                return;
            }
            Err(refusal) => refusal,
        };
        Reply::write(call, 0, &refusal, writer);
        if let Ok(frame) = writer.frame() {
            replies.extend_from_slice(frame);
            self.counters.replies += 1;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = self.listener.take_socket() {
            // Connections that nobody accepted may have descriptors under way in them.
            let load = Load { descriptor: Some(socket), ..Load::default() };
            let receipt = Receipt { slot: 0, call: NO_CALL, thing: Thing::Session, count: 0 };
            self.closer.close(Job { session: 0, user: self.own_user, load, receipt });
        }
        tracing::info!(target: "handle_watcher::service", path = self.listener.path(), "stopped");
    }
}
