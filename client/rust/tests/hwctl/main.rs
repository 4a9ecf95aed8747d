//! C1, C3, C8, C9, C10, C15, C16: `hwctl` as its users see it. `wait` runs against real processes, ports, files and
//! pipes; the other verbs against a service that is made here and says what the test wants; `top` in a real terminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod fake;
mod folder;
mod program;
mod real;
mod remote;
mod screen;
mod service;
mod sys;
mod top;
mod wait;
mod wait_connections;
mod wait_paths;
mod wait_terminal;

use std::time::Duration;

/// How long something that has to come is waited for. Reached only by a failing test.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// How often a condition that nobody tells of is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(5);
