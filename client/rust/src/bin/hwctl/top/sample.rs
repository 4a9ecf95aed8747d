//! What the service said at one moment.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use handle_watcher_client::{Code, Result};
use handle_watcher_wire::protocol::{SessionEntry, WatchEntry};

use crate::connection::Connection;

/// How many sessions are asked for their watches, the busiest first.
const SESSIONS_MOST: usize = 16;

/// How many watches each of them tells, the busiest first.
const WATCHES_MOST: u32 = 32;

/// A watch, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct SessionWatch {
    pub(crate) session: u64,
    pub(crate) watch: WatchEntry,
}

/// One look at the service.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) taken: Instant,
    /// How long a ping took.
    pub(crate) ping: Duration,
    pub(crate) stats: HashMap<String, u64>,
    pub(crate) sessions: Vec<SessionEntry>,
    pub(crate) watches: Vec<SessionWatch>,
}

impl Sample {
    /// Asks for everything.
    ///
    /// # Errors
    /// As the calls of [`Connection`].
    pub(crate) fn take(connection: &mut Connection) -> Result<Self> {
        let ping = connection.ping()?;
        let stats = connection.stats()?.into_iter().collect();
        let sessions = connection.sessions()?;
        let taken = Instant::now();
        let mut busiest: Vec<&SessionEntry> = sessions.iter().filter(|entry| entry.watches > 0).collect();
        busiest.sort_by_key(|entry| Reverse(entry.events));
        let mut watches = Vec::new();
        for entry in busiest.into_iter().take(SESSIONS_MOST) {
            match connection.watches(entry.session, WATCHES_MOST) {
                Ok(found) => {
                    let session = entry.session;
                    watches.extend(found.into_iter().map(|watch| SessionWatch { session, watch }));
                }
                // It has ended meanwhile, or is not ours to see.
                Err(status) if matches!(status.code(), Code::NotFound | Code::PermissionDenied) => {}
                Err(status) => return Err(status),
            }
        }
        Ok(Self { taken, ping, stats, sessions, watches })
    }

    /// A counter; 0 where the service has none of that name.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        self.stats.get(name).copied().unwrap_or(0)
    }
}
