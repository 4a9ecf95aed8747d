//! The bodies of replies that are lists: counters, sessions, watches.

use super::request::{mode_number, to_known_signals, to_mode};
use crate::pickle::{Reader, Writer};
use crate::{Mode, Result, Signals};

/// How many bytes one entry of each list has at least: what a count is checked against before anything is made of it.
const STAT_BYTES_LEAST: usize = 12;
const SESSION_BYTES_LEAST: usize = 68;
const WATCH_BYTES_LEAST: usize = 28;

/// One session of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionEntry {
    /// Its number.
    pub session: u64,
    /// What it calls itself.
    pub name: String,
    /// The process that connected, as it was then.
    pub process: u32,
    /// Its user.
    pub user: u32,
    /// How long ago it connected, in nanoseconds.
    pub age_ns: u64,
    /// Watches now.
    pub watches: u64,
    /// Timers now.
    pub timers: u64,
    /// Events that wait for it now.
    pub undelivered: u64,
    /// Events sent to it so far.
    pub events: u64,
    /// Requests taken from it so far.
    pub requests: u64,
}

/// One watch of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEntry {
    /// The client's number of it.
    pub id: u64,
    /// What kind of file it is about, such as `socket`.
    pub kind: String,
    /// What it waits for.
    pub signals: Signals,
    /// Once or Edge.
    pub mode: Mode,
    /// Events sent of it so far.
    pub events: u64,
}

/// Writes counters by name.
pub fn write_stats(stats: &[(&str, u64)], writer: &mut Writer) {
    writer.write_count(stats.len());
    for &(name, value) in stats {
        writer.write_str(name);
        writer.write_u64(value);
    }
}

/// Reads counters by name. A reader takes those it knows; there may be others.
///
/// # Errors
/// `OUT_OF_RANGE` if the body is too short for what it claims; `INVALID_ARGUMENT` for a count below zero and text that
/// is none.
pub fn read_stats<'a>(body: &mut Reader<'a>) -> Result<Vec<(&'a str, u64)>> {
    let count = body.read_count(STAT_BYTES_LEAST)?;
    (0..count).map(|_| Ok((body.read_str()?, body.read_u64()?))).collect()
}

/// Writes sessions.
pub fn write_sessions(sessions: &[SessionEntry], writer: &mut Writer) {
    writer.write_count(sessions.len());
    for entry in sessions {
        writer.write_u64(entry.session);
        writer.write_str(&entry.name);
        writer.write_u32(entry.process);
        writer.write_u32(entry.user);
        writer.write_u64(entry.age_ns);
        for value in [entry.watches, entry.timers, entry.undelivered, entry.events, entry.requests] {
            writer.write_u64(value);
        }
    }
}

/// Reads sessions.
///
/// # Errors
/// `OUT_OF_RANGE` if the body is too short for what it claims; `INVALID_ARGUMENT` for a count below zero and text that
/// is none.
pub fn read_sessions(body: &mut Reader<'_>) -> Result<Vec<SessionEntry>> {
    let count = body.read_count(SESSION_BYTES_LEAST)?;
    (0..count)
        .map(|_| {
            Ok(SessionEntry {
                session: body.read_u64()?,
                name: body.read_str()?.to_owned(),
                process: body.read_u32()?,
                user: body.read_u32()?,
                age_ns: body.read_u64()?,
                watches: body.read_u64()?,
                timers: body.read_u64()?,
                undelivered: body.read_u64()?,
                events: body.read_u64()?,
                requests: body.read_u64()?,
            })
        })
        .collect()
}

/// Writes watches.
pub fn write_watches(watches: &[WatchEntry], writer: &mut Writer) {
    writer.write_count(watches.len());
    for entry in watches {
        writer.write_u64(entry.id);
        writer.write_str(&entry.kind);
        writer.write_u32(entry.signals.bits().into());
        writer.write_u32(mode_number(entry.mode));
        writer.write_u64(entry.events);
    }
}

/// Reads watches.
///
/// # Errors
/// `OUT_OF_RANGE` if the body is too short for what it claims; `INVALID_ARGUMENT` for a count below zero, text that is
/// none, and a mode or signals that do not exist.
pub fn read_watches(body: &mut Reader<'_>) -> Result<Vec<WatchEntry>> {
    let count = body.read_count(WATCH_BYTES_LEAST)?;
    (0..count)
        .map(|_| {
            let (id, kind) = (body.read_u64()?, body.read_str()?.to_owned());
            let (signals, mode) = (body.read_u32()?, body.read_u32()?);
            let (signals, mode) = (to_known_signals(signals)?, to_mode(mode)?);
            Ok(WatchEntry { id, kind, signals, mode, events: body.read_u64()? })
        })
        .collect()
}
