//! The tokens of the service's own watches and timers.

use crate::service::session::Session;

/// What a watch or a timer of the service itself is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Connections wait.
    Listener,
    /// Accepting is tried again.
    Pause,
    /// Somebody rang.
    Bell,
    /// A session's requests.
    Calls,
    /// Room for a session's replies.
    Replies,
    /// Room for a session's events.
    Events,
    /// A session's deadline.
    Deadline,
}

const ALL: [About; 7] = [
    About::Listener,
    About::Pause,
    About::Bell,
    About::Calls,
    About::Replies,
    About::Events,
    About::Deadline,
];

/// A slot is named by so many bits, a session's number by the 32 lowest.
const SLOT_BITS: u32 = 24;

/// How many sessions can be told apart.
pub(super) const SESSIONS_MOST: u32 = 1 << SLOT_BITS;

/// The token of something that is not about a session.
pub(super) fn token_of(about: About) -> u64 {
    (about as u64) << (32 + SLOT_BITS)
}

/// The token of something about a session. Whoever has its slot later has another number.
pub(super) fn session_token(about: About, session: &Session) -> u64 {
    token_of(about) | u64::from(session.slot) << 32 | (session.number & u64::from(u32::MAX))
}

/// What a token is about, the slot of its session, and the lower half of the session's number.
pub(super) fn read_token(token: u64) -> Option<(About, u32, u32)> {
    let about = ALL.get(usize::try_from(token >> (32 + SLOT_BITS)).ok()?)?;
    let slot = u32::try_from(token >> 32 & u64::from(SESSIONS_MOST - 1)).ok()?;
    Some((*about, slot, u32::try_from(token & u64::from(u32::MAX)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_names_what_it_is_about() {
        for about in ALL {
            assert_eq!(read_token(token_of(about)), Some((about, 0, 0)));
        }
        assert_eq!(read_token(u64::MAX), None);
    }
}
