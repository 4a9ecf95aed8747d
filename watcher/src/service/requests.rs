//! Carrying out one request.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use handle_watcher_wire::protocol::{
    Arm, Change, Head, Hello, NO_CALL, Reply, Request, RequestError, SetTimer, VERSION_HIGHEST,
    VERSION_LOWEST, Watch, Welcome,
};
use handle_watcher_wire::{Code, Result, Signals, Status};

use crate::config::ClientConfig;
use crate::control::{Control, WatchOptions};
use crate::deadline::Deadline;
use crate::front::FrontPolicy;
use crate::port::Port;
use crate::service::entrance::{Errand, Messenger};
use crate::service::inbox::Absent;
use crate::service::kinds::Kind;
use crate::service::server::Server;
use crate::service::session::{Phase, Session};
use crate::service::throttle::words_of;
use crate::service::timers::TimerSlot;
use crate::service::users::Thing;
use crate::service::watches::WatchSlot;
use crate::sys::passing;

/// How a request was answered.
#[derive(Debug)]
enum Answer {
    /// With nothing but a status.
    Ok,
    /// The reply is written already.
    Given,
    /// It comes when something is closed, or not at all.
    Later,
}

impl Server {
    /// Carries out the request in a whole frame. The reply joins the others of this turn.
    pub(super) fn carry_out(&mut self, session: &mut Session, frame: &[u8]) {
        session.requests += 1;
        self.counters.requests += 1;
        let (head, request) = match Request::read(frame) {
            Ok(read) => read,
            Err(RequestError::Malformed(status)) => return self.end(session, Some(&status)),
            Err(RequestError::Refused(head, status)) => {
                self.discard(session, head.descriptors);
                if session.phase == Phase::Greeting {
                    return self.end(session, Some(&no_hello()));
                }
                return self.answer(session, head, Err(status));
            }
        };
        if let Err(status) = check_order(session, head, &request) {
            return self.end(session, Some(&status));
        }
        let descriptor = match self.take_descriptor(session, head, &request) {
            Ok(descriptor) => descriptor,
            Err(status) => return self.answer(session, head, Err(status)),
        };
        let answer = self.execute(session, head.call, request, descriptor);
        self.answer(session, head, answer);
    }

    fn answer(&mut self, session: &mut Session, head: Head, answer: Result<Answer>) {
        match answer {
            Ok(Answer::Ok) => self.reply_ok(head.call),
            Ok(Answer::Given | Answer::Later) => {}
            Err(status) => {
                tracing::debug!(target: "handle_watcher::service", session = session.number, %status, "a request was refused");
                if head.call != NO_CALL {
                    self.reply_status(head.call, &status);
                }
            }
        }
    }

    fn execute(
        &mut self,
        session: &mut Session,
        call: u32,
        request: Request<'_>,
        descriptor: Option<OwnedFd>,
    ) -> Result<Answer> {
        match request {
            Request::Hello(hello) => self.greet(session, call, hello),
            Request::Watch(watch) => self.watch(session, watch, descriptor),
            Request::Change(change) => self.change(session, change),
            Request::Arm(arm) => self.arm(session, arm),
            Request::Pause { id } => self.pause(session, id),
            Request::Unwatch { id } => self.unwatch(session, call, id),
            Request::Close { handle } => self.close_handle(session, call, handle),
            Request::SetTimer(timer) => self.set_timer(session, timer),
            Request::CancelTimer { id } => self.cancel_timer(session, id),
            Request::Ping => Ok(Answer::Ok),
            Request::Echo(bytes) => {
                self.reply_with(call, |writer| writer.write_data(bytes));
                Ok(Answer::Given)
            }
            Request::Stats => {
                self.reply_stats(session, call);
                Ok(Answer::Given)
            }
            Request::Sessions => {
                self.reply_sessions(session, call);
                Ok(Answer::Given)
            }
            Request::Watches { session: number, most } => {
                self.reply_watches(session, call, number, most).map(|()| Answer::Given)
            }
            Request::Kill { session: number } => self.kill(session, number).map(|()| Answer::Ok),
            Request::Bye => {
                if session.closing == 0 {
                    self.leave(session, call);
                } else {
                    session.phase = Phase::Leaving { call };
                }
                Ok(Answer::Later)
            }
        }
    }

    /// The descriptor of a request that has one.
    fn take_descriptor(
        &mut self,
        session: &mut Session,
        head: Head,
        request: &Request<'_>,
    ) -> Result<Option<OwnedFd>> {
        let most = u32::from(matches!(request, Request::Watch(_)));
        if head.descriptors > most {
            self.discard(session, head.descriptors);
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "a request of kind {} takes {most} descriptors and came with {}; they were closed",
                    head.kind, head.descriptors
                ),
            ));
        }
        if head.descriptors == 0 {
            return Ok(None);
        }
        session.inbox.take_descriptor().map(Some).map_err(|absent| match absent {
            Absent::NotSent => Status::new(
                Code::InvalidArgument,
                "the request says that a descriptor came with it, and none did; send both with one system call",
            ),
            Absent::Lost => Status::new(
                Code::ResourceExhausted,
                "the service ran out of descriptors, and that of this request was lost; close some and send again",
            ),
        })
    }

    /// Closes descriptors that a request says are its own and does not take.
    fn discard(&mut self, session: &mut Session, count: u32) {
        let taken: Vec<OwnedFd> = (0..count).map_while(|_| session.inbox.take_descriptor().ok()).collect();
        if !taken.is_empty() {
            self.close_many(session, taken);
        }
    }

    fn greet(&mut self, session: &mut Session, call: u32, hello: Hello<'_>) -> Result<Answer> {
        let version = VERSION_HIGHEST.min(hello.version_highest);
        if version < VERSION_LOWEST.max(hello.version_lowest) {
            let status = Status::new(
                Code::FailedPrecondition,
                format!(
                    "the client speaks versions {} to {} and the service {VERSION_LOWEST} to {VERSION_HIGHEST}; update the older one",
                    hello.version_lowest, hello.version_highest
                ),
            );
            self.reply_status(call, &status);
            self.end(session, None);
            return Ok(Answer::Given);
        }
        if let Err(status) = self.open(session) {
            self.reply_status(call, &status);
            self.end(session, None);
            return Ok(Answer::Given);
        }
        session.name = hello.name.into();
        session.phase = Phase::Open;
        if let Some(timer) = session.timer.take() {
            // It may have fired just now; then there is nothing left of it to do.
            let _: Result<()> = self.control().cancel_timer(timer);
        }
        let welcome = Welcome { version, session: session.number, limits: self.config.limits() };
        let writer = &mut self.buffers.writer;
        Reply::write(call, 1, &Status::new(Code::Ok, ""), writer);
        welcome.write(writer);
        self.add_reply(call);
        // At once, so that the descriptor goes with the first byte of this reply.
        self.flush(session);
        tracing::debug!(
            target: "handle_watcher::service", session = session.number, name = words_of(hello.name), version, "welcome"
        );
        Ok(Answer::Given)
    }

    /// Makes the engine's client and the event socket.
    fn open(&mut self, session: &mut Session) -> Result<()> {
        let config = ClientConfig { front: FrontPolicy::Off, ..ClientConfig::default() };
        let (_, port) = Port::open(self.control().shared(), config)?;
        let entrance = self.entrance.upgrade();
        let entrance = entrance.ok_or_else(|| Status::new(Code::Unavailable, "the service has stopped"))?;
        let errand = Errand::Events { slot: session.slot, number: session.number };
        let port = port.into_notified(Messenger::new(&entrance, errand)).map_err(|refused| refused.status)?;
        let (ours, theirs) = passing::pair().map_err(|errno| {
            Status::new(
                Code::ResourceExhausted,
                format!(
                    "the service has no descriptors left for the event socket ({errno}); connect again later"
                ),
            )
        })?;
        // Nothing that a client sends there is read, so it cannot send anything.
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Read)
            .map_err(|errno| Status::new(Code::Internal, format!("the event socket is unusable: {errno}")))?;
        session.port = Some(port);
        session.events = Some(ours);
        session.outbox.attach(theirs);
        Ok(())
    }

    fn watch(&mut self, session: &mut Session, watch: Watch, descriptor: Option<OwnedFd>) -> Result<Answer> {
        match descriptor {
            Some(descriptor) => {
                let added = self.watch_new(session, watch, &descriptor);
                match added {
                    Ok((slot, kind)) => {
                        session.watches.insert_head(&self.seed, slot, descriptor, kind);
                        Ok(Answer::Ok)
                    }
                    Err(status) => {
                        self.close_one(session, descriptor, NO_CALL, Thing::Descriptor, 0);
                        Err(status)
                    }
                }
            }
            None => self.watch_known(session, watch).map(|()| Answer::Ok),
        }
    }

    fn watch_new(
        &mut self,
        session: &mut Session,
        watch: Watch,
        descriptor: &OwnedFd,
    ) -> Result<(WatchSlot, Kind)> {
        if session.watches.find_handle(&self.seed, watch.handle).is_some() {
            return Err(taken("handle", watch.handle));
        }
        let kind = self.kinds.examine(descriptor.as_fd())?;
        Ok((self.add_watch(session, watch, descriptor)?, kind))
    }

    fn watch_known(&mut self, session: &mut Session, watch: Watch) -> Result<()> {
        let head = session.watches.find_handle(&self.seed, watch.handle);
        let head = head.ok_or_else(|| unknown("handle", watch.handle))?;
        let Some((descriptor, _)) = session.watches.descriptor_of(head) else {
            return Err(unknown("handle", watch.handle));
        };
        let number = descriptor.as_raw_fd();
        let slot = self.add_number(session, watch, number)?;
        session.watches.insert_beside(&self.seed, slot, head);
        Ok(())
    }

    fn add_watch(&mut self, session: &mut Session, watch: Watch, descriptor: &OwnedFd) -> Result<WatchSlot> {
        self.add_number(session, watch, descriptor.as_raw_fd())
    }

    /// Counts a watch and has the engine make it.
    fn add_number(&mut self, session: &mut Session, watch: Watch, number: i32) -> Result<WatchSlot> {
        if session.watches.find(&self.seed, watch.id).is_some() {
            return Err(taken("watch", watch.id));
        }
        let limit = self.config.watches_per_session;
        if session.watches_taken >= limit {
            return Err(Status::new(
                Code::ResourceExhausted,
                format!("this session has {limit} watches already; end some, or raise watches_per_session"),
            ));
        }
        let control = open_control(session)?;
        let token = u64::from(session.watches.next_slot());
        let options = with_deadline(WatchOptions::new(watch.signals, watch.mode, token), watch.deadline_ns);
        self.users.take(session.peer.user, Thing::Watch, &self.config)?;
        let engine = control.watch_number(number, options).inspect_err(|_| {
            self.users.give(session.peer.user, Thing::Watch, 1);
        })?;
        session.watches_taken += 1;
        Ok(WatchSlot::new(watch, engine))
    }

    fn change(&mut self, session: &mut Session, change: Change) -> Result<Answer> {
        let slot = find_watch(session, &self.seed, change.id)?;
        let port = session.port.as_ref().ok_or_else(no_hello)?;
        let handle = session.watches.get(slot).map_or(0, |watch| watch.handle);
        let head = session.watches.find_handle(&self.seed, handle);
        let number = head.and_then(|head| session.watches.descriptor_of(head));
        let number = number.map(|(descriptor, _)| descriptor.as_raw_fd());
        let Some(watch) = session.watches.get_mut(slot) else { return Err(unknown("watch", change.id)) };
        let control = port.control();
        if watch.mode == change.mode {
            control.change(watch.engine, change.signals)?;
            if !change.signals.is_empty() {
                control.arm(watch.engine)?;
            }
        } else {
            let options = WatchOptions::new(change.signals, change.mode, slot.into());
            let number = number.ok_or_else(|| unknown("handle", handle))?;
            let engine = control.watch_number(number, options)?;
            let former = std::mem::replace(&mut watch.engine, engine);
            control.unwatch(former)?;
        }
        (watch.token, watch.signals, watch.mode) = (change.token, change.signals, change.mode);
        Ok(Answer::Ok)
    }

    fn arm(&mut self, session: &mut Session, arm: Arm) -> Result<Answer> {
        let slot = find_watch(session, &self.seed, arm.id)?;
        let port = session.port.as_ref().ok_or_else(no_hello)?;
        let Some(watch) = session.watches.get_mut(slot) else { return Err(unknown("watch", arm.id)) };
        let before = std::mem::replace(&mut watch.token, arm.token);
        let armed = match arm.deadline_ns {
            0 => port.control().arm(watch.engine),
            deadline_ns => port.control().arm_until(watch.engine, Deadline::at_ns(deadline_ns)),
        };
        if armed.is_err() {
            watch.token = before;
        }
        armed.map(|()| Answer::Ok)
    }

    fn pause(&mut self, session: &mut Session, id: u64) -> Result<Answer> {
        let slot = find_watch(session, &self.seed, id)?;
        let control = open_control(session)?;
        let Some(watch) = session.watches.get(slot) else { return Err(unknown("watch", id)) };
        control.pause(watch.engine)?;
        if let Some(watch) = session.watches.get_mut(slot) {
            watch.signals = Signals::empty();
        }
        Ok(Answer::Ok)
    }

    fn unwatch(&mut self, session: &mut Session, call: u32, id: u64) -> Result<Answer> {
        let slot = find_watch(session, &self.seed, id)?;
        Ok(match self.end_watch(session, slot) {
            Some(descriptor) => {
                self.close_one(session, descriptor, call, Thing::Watch, 1);
                Answer::Later
            }
            None => Answer::Ok,
        })
    }

    /// Ends a watch. Gives the handle's descriptor if it was its last, which then still counts as a watch.
    fn end_watch(&mut self, session: &mut Session, slot: u32) -> Option<OwnedFd> {
        if let (Some(watch), Some(control)) = (session.watches.get(slot), session.control()) {
            // NOT_FOUND: it has ended by itself; its last word is not said any more.
            let _: Result<()> = control.unwatch(watch.engine);
        }
        self.forget_watch(session, slot)
    }

    /// The same for a watch that the engine has ended.
    pub(super) fn forget_watch(&mut self, session: &mut Session, slot: u32) -> Option<OwnedFd> {
        let descriptor = session.watches.remove(&self.seed, slot);
        if descriptor.is_none() {
            session.watches_taken -= 1;
            self.users.give(session.peer.user, Thing::Watch, 1);
        }
        descriptor
    }

    /// Ends the watches of a handle; the client is told of each with `CANCELLED`.
    fn close_handle(&mut self, session: &mut Session, call: u32, handle: u64) -> Result<Answer> {
        let mut head = session.watches.find_handle(&self.seed, handle);
        if head.is_none() {
            return Err(unknown("handle", handle));
        }
        while let Some(slot) = head {
            if let Some(watch) = session.watches.get(slot) {
                self.add_ended(watch.id, watch.token, Code::Cancelled);
            }
            if let Some(descriptor) = self.end_watch(session, slot) {
                self.close_one(session, descriptor, call, Thing::Watch, 1);
            }
            head = session.watches.find_handle(&self.seed, handle);
        }
        self.send_events(session);
        Ok(Answer::Later)
    }

    fn set_timer(&mut self, session: &mut Session, timer: SetTimer) -> Result<Answer> {
        let former = session.timers.find(&self.seed, timer.id);
        let port = session.port.as_ref().ok_or_else(no_hello)?;
        let slot = former.unwrap_or_else(|| session.timers.next_slot());
        let (user, limit) = (session.peer.user, self.config.timers_per_session);
        if former.is_none() {
            if session.timers.len() >= limit as usize {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    format!(
                        "this session has {limit} timers already; cancel some, or raise timers_per_session"
                    ),
                ));
            }
            self.users.take(user, Thing::Timer, &self.config)?;
        }
        let is_periodic = timer.period_ns > 0;
        let deadline = Deadline::at_ns(timer.deadline_ns);
        let engine = if is_periodic {
            let period = Duration::from_nanos(timer.period_ns);
            port.control().set_periodic(deadline, period, slot.into())
        } else {
            port.control().set_timer(deadline, slot.into())
        };
        let engine = engine.inspect_err(|_| {
            if former.is_none() {
                self.users.give(user, Thing::Timer, 1);
            }
        })?;
        match session.timers.get_mut(slot).filter(|_| former.is_some()) {
            Some(place) => {
                // NOT_FOUND: it has fired, and was not told yet.
                let _: Result<()> = port.control().cancel_timer(place.engine);
                (place.engine, place.token, place.is_periodic) = (engine, timer.token, is_periodic);
            }
            None => {
                session
                    .timers
                    .insert(&self.seed, TimerSlot { id: timer.id, token: timer.token, engine, is_periodic });
            }
        }
        Ok(Answer::Ok)
    }

    fn cancel_timer(&mut self, session: &mut Session, id: u64) -> Result<Answer> {
        let slot = session.timers.find(&self.seed, id).ok_or_else(|| unknown("timer", id))?;
        self.forget_timer(session, slot, true);
        Ok(Answer::Ok)
    }

    /// A timer's id is free again.
    pub(super) fn forget_timer(&mut self, session: &mut Session, slot: u32, is_live: bool) {
        let Some(timer) = session.timers.remove(&self.seed, slot) else { return };
        self.users.give(session.peer.user, Thing::Timer, 1);
        if let Some(control) = session.control().filter(|_| is_live) {
            // NOT_FOUND only after the watcher's stop.
            let _: Result<()> = control.cancel_timer(timer.engine);
        }
    }
}

/// Hello comes first and once, and most requests have to have a number.
fn check_order(session: &Session, head: Head, request: &Request<'_>) -> Result<()> {
    let is_hello = matches!(request, Request::Hello(_));
    match session.phase {
        Phase::Greeting if !is_hello => return Err(no_hello()),
        Phase::Greeting => {}
        _ if is_hello => {
            return Err(Status::new(
                Code::InvalidArgument,
                "this session has said Hello already; say it once",
            ));
        }
        _ => {}
    }
    let may_be_silent = matches!(
        request,
        Request::Change(_)
            | Request::Arm(_)
            | Request::Pause { .. }
            | Request::Unwatch { .. }
            | Request::CancelTimer { .. }
            | Request::Bye
    );
    if head.call == NO_CALL && !may_be_silent {
        return Err(Status::new(
            Code::InvalidArgument,
            format!(
                "a request of kind {} needs a reply, so its call number cannot be 0; number it",
                head.kind
            ),
        ));
    }
    Ok(())
}

fn with_deadline(options: WatchOptions, deadline_ns: u64) -> WatchOptions {
    if deadline_ns == 0 { options } else { options.deadline(Deadline::at_ns(deadline_ns)) }
}

fn open_control(session: &Session) -> Result<&Control> {
    session.control().ok_or_else(no_hello)
}

fn find_watch(session: &Session, seed: &ahash::RandomState, id: u64) -> Result<u32> {
    session.watches.find(seed, id).ok_or_else(|| unknown("watch", id))
}

fn no_hello() -> Status {
    Status::new(Code::InvalidArgument, "the first frame of a session is a Hello; send it first")
}

fn unknown(what: &str, number: u64) -> Status {
    Status::new(
        Code::NotFound,
        format!("this session has no {what} {number}: it has ended or never was; make a new one"),
    )
}

fn taken(what: &str, number: u64) -> Status {
    Status::new(
        Code::AlreadyExists,
        format!("this session has a {what} {number} already; choose another number, or end that one first"),
    )
}
