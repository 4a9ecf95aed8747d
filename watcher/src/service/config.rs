//! How a service is set up. Every default has its reason beside it.

use std::time::Duration;

use handle_watcher_wire::protocol::{FIRST_FRAME_LIMIT_BYTES, Limits};
use handle_watcher_wire::{Code, Result, Status};

/// The longest frame that can be allowed: far above any use, far below what a pickle's lengths can say.
const FRAME_BYTES_MOST: u32 = 64 << 20;

/// The set-up of a service. Build it from the default: `ServiceConfig { mode: …, ..ServiceConfig::default() }`.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The permissions of the socket's file, which it has from birth. An abstract name has none. Default 0600: the
    /// service's own user.
    pub mode: u32,
    /// Users who may connect, beside root and the service's own. Default none.
    pub allow_uids: Vec<u32>,
    /// Groups whose members may connect. Default none.
    pub allow_gids: Vec<u32>,
    /// How many connections may wait to be accepted. Default 1024, which the kernel cuts to net.core.somaxconn.
    pub backlog: i32,
    /// How long a new connection has for its Hello. Default 5 s: a busy machine is slow, a forgotten connection is not.
    pub hello_timeout: Duration,
    /// The longest frame either side may send, header included, in bytes. Default 256 KiB: the longest lists fit.
    pub frame_bytes: u32,
    /// How many sessions there may be. Default 4000: just below the default of a watcher's clients.
    pub session_limit: u32,
    /// How many of them one user may have. Default 1024.
    pub sessions_per_user: u32,
    /// How many watches a session may have; a handle that is being closed counts as one. Default 65 536.
    pub watches_per_session: u32,
    /// How many watches all sessions of a user may have. Default 262 144.
    pub watches_per_user: u32,
    /// How many timers a session may have. Default 65 536.
    pub timers_per_session: u32,
    /// How many timers all sessions of a user may have. Default 262 144.
    pub timers_per_user: u32,
    /// How many descriptors of a session may wait for the rest of their frame, or to be closed. Default 1024: four full
    /// system calls.
    pub descriptors_per_session: u32,
    /// The same of all sessions of a user. Default 4096.
    pub descriptors_per_user: u32,
    /// How many bytes of replies a session may leave unread before it is not read any more, until it has read them.
    /// Default 64 KiB.
    pub reply_bytes: u32,
    /// How many requests of one session are carried out before another one has its turn. Default 128: well below a
    /// millisecond.
    pub requests_per_turn: u32,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            mode: 0o600,
            allow_uids: Vec::new(),
            allow_gids: Vec::new(),
            backlog: 1024,
            hello_timeout: Duration::from_secs(5),
            frame_bytes: 256 << 10,
            session_limit: 4000,
            sessions_per_user: 1024,
            watches_per_session: 1 << 16,
            watches_per_user: 1 << 18,
            timers_per_session: 1 << 16,
            timers_per_user: 1 << 18,
            descriptors_per_session: 1024,
            descriptors_per_user: 4096,
            reply_bytes: 64 << 10,
            requests_per_turn: 128,
        }
    }
}

impl ServiceConfig {
    /// What a session is told of its limits.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            frame_bytes: self.frame_bytes,
            watches: self.watches_per_session,
            timers: self.timers_per_session,
            descriptors: self.descriptors_per_session,
        }
    }

    /// Refuses what could not work, before anything was made.
    pub(super) fn check(&self) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "it is 4096")]
        let first = FIRST_FRAME_LIMIT_BYTES as u32;
        check_range("frame_bytes", self.frame_bytes, first, FRAME_BYTES_MOST)?;
        check_range("mode", self.mode, 0, 0o777)?;
        for (name, value) in [
            ("session_limit", self.session_limit),
            ("sessions_per_user", self.sessions_per_user),
            ("descriptors_per_session", self.descriptors_per_session),
            ("descriptors_per_user", self.descriptors_per_user),
            ("reply_bytes", self.reply_bytes),
            ("requests_per_turn", self.requests_per_turn),
        ] {
            check_range(name, value, 1, u32::MAX)?;
        }
        Ok(())
    }
}

fn check_range(name: &str, value: u32, least: u32, most: u32) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Status::new(
        Code::InvalidArgument,
        format!("ServiceConfig::{name} is {value}; it must be between {least} and {most}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_legal_and_bad_values_are_named() {
        assert_eq!(ServiceConfig::default().check(), Ok(()));
        let bad = [
            ServiceConfig { frame_bytes: 100, ..ServiceConfig::default() },
            ServiceConfig { mode: 0o1000, ..ServiceConfig::default() },
            ServiceConfig { requests_per_turn: 0, ..ServiceConfig::default() },
        ];
        for (config, name) in bad.iter().zip(["frame_bytes", "mode", "requests_per_turn"]) {
            let status = config.check().expect_err(name);
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(&format!("ServiceConfig::{name} is")), "{status}");
        }
    }
}
