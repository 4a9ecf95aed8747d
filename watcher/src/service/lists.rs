//! Replies that are lists: counters, sessions, watches. And the end of another session.

use handle_watcher_wire::protocol::{SessionEntry, write_sessions, write_stats, write_watches};
use handle_watcher_wire::{Code, Result, Status};

use crate::service::credentials::sees_everything;
use crate::service::server::Server;
use crate::service::session::{Phase, Session};
use crate::stats::Histogram;

/// What a reply has before its list at most, in bytes.
const REPLY_HEAD_BYTES: usize = 64;
/// How many bytes one session of a list has without its name, and one watch.
const SESSION_BYTES: usize = 72;
const WATCH_BYTES: usize = 48;

impl Server {
    /// What the service counts, and what this session has.
    pub(super) fn reply_stats(&mut self, session: &Session, call: u32) {
        let engine = self.control().stats();
        let client = session.control().map(crate::control::Control::client_stats).unwrap_or_default();
        let counters = &self.counters;
        let named = [
            ("turns", engine.turns),
            ("wakes", engine.wakes),
            ("client_wakes", engine.client_wakes),
            ("readiness", engine.readiness),
            ("commands", engine.commands),
            ("stale_events", engine.stale_events),
            ("timers_set", engine.timers_set),
            ("timers_fired", engine.timers_fired),
            ("timers_kept", engine.timers_kept),
            ("from_fronts", engine.from_fronts),
            ("undelivered", engine.undelivered),
            ("clients", engine.clients),
            ("watches", engine.watches),
            ("timers", engine.timers),
            ("session_watches", session.watches.len() as u64),
            ("session_timers", session.timers.len() as u64),
            ("session_undelivered", client.undelivered),
            ("session_delivered", client.delivered),
            ("session_wakes", client.wakes),
            ("session_requests", session.requests),
            ("session_events", session.events_told),
            // This one is out of its place while it asks, but its place is counted.
            ("service_sessions", self.sessions.len() as u64),
            ("service_accepted", counters.accepted),
            ("service_refused", counters.refused),
            ("service_ended", counters.ended),
            ("service_requests", counters.requests),
            ("service_replies", counters.replies),
            ("service_events", counters.events),
            ("service_descriptors", counters.descriptors),
            ("service_descriptors_lost", counters.descriptors_lost),
            ("service_accept_pauses", counters.accept_pauses),
        ];
        let ready = classes("ready_per_wait", &engine.ready_per_wait);
        let commands = classes("commands_per_turn", &engine.commands_per_turn);
        let flattened = ready.iter().chain(&commands).map(|(name, value)| (name.as_str(), *value));
        let stats: Vec<(&str, u64)> = named.into_iter().chain(flattened).collect();
        self.reply_with(call, |writer| write_stats(&stats, writer));
    }

    /// The sessions that the caller may see.
    pub(super) fn reply_sessions(&mut self, session: &Session, call: u32) {
        let user = session.peer.user;
        let sees_all = sees_everything(user, self.own_user);
        let others = self.sessions.iter().filter_map(|(_, place)| place.as_deref());
        let mut entries: Vec<SessionEntry> = others
            .chain([session])
            .filter(|other| sees_all || other.peer.user == user)
            .map(Session::entry)
            .collect();
        entries.sort_unstable_by_key(|entry| entry.session);
        // What does not fit a frame is left out; the oldest come first.
        let mut left = (self.config.frame_bytes as usize).saturating_sub(REPLY_HEAD_BYTES);
        let fitting = entries.iter().take_while(|entry| {
            let bytes = SESSION_BYTES + entry.name.len().next_multiple_of(4);
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        });
        let count = fitting.count();
        self.reply_with(call, |writer| write_sessions(&entries[..count], writer));
    }

    /// The busiest watches of a session; 0 is the caller's own.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such session, or it is not for the caller to see.
    pub(super) fn reply_watches(
        &mut self,
        session: &Session,
        call: u32,
        number: u64,
        most: u32,
    ) -> Result<()> {
        let fitting = (self.config.frame_bytes as usize).saturating_sub(REPLY_HEAD_BYTES) / WATCH_BYTES;
        let most = fitting.min(most as usize);
        let entries = if number == 0 || number == session.number {
            session.watches.busiest(most)
        } else {
            let slot = self.find_session(session, number)?;
            let other = self.sessions.get(slot).and_then(Option::as_ref);
            other.map(|other| other.watches.busiest(most)).unwrap_or_default()
        };
        self.reply_with(call, |writer| write_watches(&entries, writer));
        Ok(())
    }

    /// Ends another session.
    ///
    /// # Errors
    /// As [`reply_watches`](Self::reply_watches); `INVALID_ARGUMENT` for the caller's own, which says Bye instead.
    pub(super) fn kill(&mut self, session: &Session, number: u64) -> Result<()> {
        if number == session.number {
            return Err(Status::new(Code::InvalidArgument, "a session does not kill itself; say Bye"));
        }
        let slot = self.find_session(session, number)?;
        let status = Status::new(
            Code::Aborted,
            format!("session {} of user {} ended this one; connect again", session.number, session.peer.user),
        );
        // The replies of whoever asks are under way in the same buffer.
        let replies = std::mem::take(&mut self.buffers.replies);
        self.visit(slot, None, |server, other| server.end(other, Some(&status)));
        self.buffers.replies = replies;
        Ok(())
    }

    /// Where another session is that the caller may see.
    fn find_session(&self, session: &Session, number: u64) -> Result<u32> {
        let user = session.peer.user;
        let sees_all = sees_everything(user, self.own_user);
        let mut others = self.sessions.iter().filter_map(|(slot, place)| Some((slot, place.as_deref()?)));
        let found = others.find(|(_, other)| {
            other.number == number && other.phase != Phase::Ending && (sees_all || other.peer.user == user)
        });
        found.map(|(slot, _)| slot).ok_or_else(|| {
            Status::new(
                Code::NotFound,
                format!(
                    "there is no session {number} that user {user} may see; ask for the list of sessions"
                ),
            )
        })
    }
}

fn classes(name: &str, histogram: &Histogram) -> Vec<(String, u64)> {
    histogram.iter().enumerate().map(|(class, count)| (format!("{name}_{class}"), *count)).collect()
}
