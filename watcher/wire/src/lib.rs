//! The words of Handle Watcher: ids, signals, modes, events and status codes; no I/O and no unsafe code.
//!
//! Every other crate, and later every other language, takes its words from here, so that one word means one
//! thing everywhere. Signals are readiness conditions of a handle; they have nothing to do with POSIX signals.
//!
//! [`status`] has the bytes of a status, too: the two trailers that tell how a call ended.

#![forbid(unsafe_code)]

mod event;
mod id;
mod signals;
pub mod status;

pub use event::{Event, EventKind};
pub use id::{HandleId, TimerId, Token, WatchId};
pub use signals::{Mode, Signals, SignalsState};
pub use status::{Code, Result, Status};
