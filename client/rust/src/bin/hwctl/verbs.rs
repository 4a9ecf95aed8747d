//! The verbs that ask the service once.

use std::ffi::OsStr;
use std::time::Duration;

use handle_watcher_client::Result;
use handle_watcher_wire::protocol::SessionEntry;
use serde_json::{Map, Value, json};

use crate::connection::Connection;
use crate::text::escape;
use crate::{output, span};

/// The heads of the list of sessions.
const SESSION_HEADS: [&str; 10] =
    ["SESSION", "PROCESS", "USER", "AGE", "WATCHES", "TIMERS", "UNDELIVERED", "EVENTS", "REQUESTS", "NAME"];

/// Asks for a sign of life.
///
/// # Errors
/// As [`Connection::open`].
pub(crate) fn ping(socket: &OsStr) -> Result<()> {
    let mut connection = Connection::open(socket)?;
    let took = connection.ping()?;
    let welcome = connection.welcome();
    output::print(&format!(
        "{} answers in {} us (protocol version {}, session {})\n",
        escape(&socket.to_string_lossy()),
        took.as_micros(),
        welcome.version,
        welcome.session
    ))
}

/// Prints every counter.
///
/// # Errors
/// As [`Connection::open`].
pub(crate) fn stats(socket: &OsStr, is_json: bool) -> Result<()> {
    let stats = Connection::open(socket)?.stats()?;
    if is_json {
        let object: Map<String, Value> =
            stats.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        return output::print_json(&Value::Object(object));
    }
    let rows = stats.into_iter().map(|(name, value)| [escape(&name), value.to_string()]);
    output::print(&to_table(&rows.collect::<Vec<_>>()))
}

/// Lists the sessions.
///
/// # Errors
/// As [`Connection::open`].
pub(crate) fn sessions(socket: &OsStr, is_json: bool) -> Result<()> {
    let sessions = Connection::open(socket)?.sessions()?;
    if is_json {
        return sessions.iter().try_for_each(|entry| output::print_json(&to_json(entry)));
    }
    let heads = SESSION_HEADS.map(str::to_owned);
    let rows = sessions.iter().map(|entry| {
        [
            entry.session.to_string(),
            entry.process.to_string(),
            entry.user.to_string(),
            span::show(Duration::from_nanos(entry.age_ns)),
            entry.watches.to_string(),
            entry.timers.to_string(),
            entry.undelivered.to_string(),
            entry.events.to_string(),
            entry.requests.to_string(),
            escape(&entry.name),
        ]
    });
    output::print(&to_table(&std::iter::once(heads).chain(rows).collect::<Vec<_>>()))
}

/// Ends a session.
///
/// # Errors
/// As [`Connection::kill`].
pub(crate) fn kill(socket: &OsStr, session: u64) -> Result<()> {
    Connection::open(socket)?.kill(session)
}

fn to_json(entry: &SessionEntry) -> Value {
    json!({
        "session": entry.session,
        "name": entry.name,
        "process": entry.process,
        "user": entry.user,
        "age_ns": entry.age_ns,
        "watches": entry.watches,
        "timers": entry.timers,
        "undelivered": entry.undelivered,
        "events": entry.events,
        "requests": entry.requests,
    })
}

/// Columns as wide as their widest entry, two spaces apart.
fn to_table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (entry, width) in row.iter().zip(widths) {
            line.push_str(&format!("{entry:<width$}  "));
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}
