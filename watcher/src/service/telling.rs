//! Telling a session its events: from the engine's port into the event socket, on the thread that found them.

use std::os::fd::AsFd;

use handle_watcher_wire::pickle::Writer;
use handle_watcher_wire::protocol::EventFrame;
use handle_watcher_wire::{Code, Event, EventKind, Mode, Result, Signals, Status, Token};

use crate::service::outbox::Flushed;
use crate::service::server::Server;
use crate::service::session::{Phase, Session};
use crate::service::token::{About, session_token};
use crate::service::users::Thing;

/// How many batches of events one session is told before others have their turn.
const BATCHES_PER_TURN: usize = 4;

impl Server {
    /// Events wait in a session's port.
    pub(super) fn tell(&mut self, slot: u32, number: u64) {
        let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
        self.visit(slot, Some(low), Self::tell_session);
    }

    /// Tells as much as the event socket takes. What it does not take stays in the engine's port, one event a watch.
    pub(super) fn tell_session(&mut self, session: &mut Session) {
        for _ in 0..BATCHES_PER_TURN {
            if !session.event_outbox.is_empty() && !self.send_events(session) {
                return;
            }
            match self.tell_batch(session) {
                Some(true) => {}
                Some(false) | None => return,
            }
        }
        self.wait_for_room(session);
    }

    /// One batch; gives whether more wait.
    fn tell_batch(&mut self, session: &mut Session) -> Option<bool> {
        if session.phase == Phase::Ending {
            return None;
        }
        let mut events = self.buffers.events.take()?;
        let drained = session.port.as_mut().map(|port| port.drain(&mut events));
        let drained = match drained {
            Some(Ok(drained)) => drained,
            // The watcher has stopped, which ends the whole service.
            Some(Err(_)) | None => {
                self.buffers.events = Some(events);
                return None;
            }
        };
        for event in &events {
            self.add_event(session, event);
        }
        self.buffers.events = Some(events);
        (self.send_events(session)).then_some(drained.has_more)
    }

    /// Writes one event into the frames to be sent, and ends what it ends.
    fn add_event(&mut self, session: &mut Session, event: &Event) {
        let Ok(slot) = u32::try_from(event.token) else { return };
        if event.kind == EventKind::Timer {
            let Some(timer) = session.timers.get(slot) else { return };
            let is_periodic = timer.is_periodic;
            add_frame(&mut self.buffers.writer, &mut self.buffers.frames, event, timer.id, timer.token);
            if !is_periodic {
                self.forget_timer(session, slot, false);
            }
        } else if let Some(watch) = session.watches.get_mut(slot) {
            watch.events = watch.events.saturating_add(1);
            add_frame(&mut self.buffers.writer, &mut self.buffers.frames, event, watch.id, watch.token);
            if event.kind == EventKind::Ended
                && let Some(descriptor) = self.forget_watch(session, slot)
            {
                self.close_one(session, descriptor, 0, Thing::Watch, 1);
            }
        }
    }

    /// Writes the end of a watch that the service itself has ended.
    pub(super) fn add_ended(&mut self, id: u64, token: Token, code: Code) {
        let frame = EventFrame {
            kind: EventKind::Ended,
            id,
            token,
            satisfied: Signals::empty(),
            satisfiable: Signals::empty(),
            count: 1,
            status: code,
        };
        frame.write(&mut self.buffers.writer);
        if let Ok(frame) = self.buffers.writer.frame() {
            self.buffers.frames.extend_from_slice(frame);
        }
    }

    /// Sends the frames that were written. False if the session cannot be told more now.
    pub(super) fn send_events(&mut self, session: &mut Session) -> bool {
        let Some(events) = &session.events else {
            self.buffers.frames.clear();
            return false;
        };
        let flushed = session.event_outbox.send(events.as_fd(), &self.buffers.frames);
        let told = (self.buffers.frames.len() / EVENT_FRAME_BYTES) as u64;
        self.buffers.frames.clear();
        session.events_told += told;
        self.counters.events += told;
        match flushed {
            Flushed::All => {
                if let Some(watch) = session.event_watch.take() {
                    // NOT_FOUND after the watcher's stop, which ended it.
                    let _: Result<()> = self.control().unwatch(watch);
                }
                true
            }
            Flushed::Some => {
                self.wait_for_room(session);
                false
            }
            Flushed::Lost(_) => {
                let status = Status::new(
                    Code::FailedPrecondition,
                    "the event socket was closed, so nothing can be told any more; keep it open, or say Bye",
                );
                self.end(session, Some(&status));
                false
            }
        }
    }

    /// Goes on when the event socket takes more.
    fn wait_for_room(&mut self, session: &mut Session) {
        let Some(events) = &session.events else { return };
        let token = session_token(About::Events, session);
        let armed = match session.event_watch {
            Some(watch) => self.control().arm(watch).map(|()| watch),
            None => self.control().watch(events, Signals::WRITABLE, Mode::Once, token),
        };
        match armed {
            Ok(watch) => session.event_watch = Some(watch),
            // Without being told, nobody would ever go on here.
            Err(status) => self.end(session, Some(&status)),
        }
    }
}

/// Every event has the same length.
const EVENT_FRAME_BYTES: usize = 48;

fn add_frame(writer: &mut Writer, frames: &mut Vec<u8>, event: &Event, id: u64, token: Token) {
    let frame = EventFrame {
        kind: event.kind,
        id,
        token,
        satisfied: event.satisfied,
        satisfiable: event.satisfiable,
        count: event.count,
        status: event.status,
    };
    frame.write(writer);
    // An event is always shorter than the shortest limit of frames.
    if let Ok(frame) = writer.frame() {
        debug_assert_eq!(frame.len(), EVENT_FRAME_BYTES);
        frames.extend_from_slice(frame);
    }
}
