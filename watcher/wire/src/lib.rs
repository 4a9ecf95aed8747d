//! The words of Handle Watcher and their bytes: ids, signals, modes, events, status codes and frames; no I/O and no
//! unsafe code.
//!
//! Every other crate, and later every other language, takes its words from here, so that one word means one
//! thing everywhere. Signals are readiness conditions of a handle; they have nothing to do with POSIX signals.
//!
//! What travels between processes has its bytes here, too: [`pickle`] writes and reads frames of values, [`status`] the
//! two trailers that tell how a call ended, [`protocol`] what a client and the service say to each other in frames.
//!
//! ```
//! use handle_watcher_wire::pickle::{Reader, Writer};
//! use handle_watcher_wire::{Code, Result, Status};
//!
//! fn answer(status: &Status) -> Result<Vec<u8>> {
//!     let mut writer = Writer::new();
//!     writer.write_u32(status.code().number().into());
//!     writer.write_str(status.message());
//!     writer.finish()
//! }
//!
//! # fn main() -> Result<()> {
//! let frame = answer(&Status::new(Code::NotFound, "watch 7.1 has ended"))?;
//! let mut reader = Reader::new(&frame)?;
//! assert_eq!(reader.read_u32()?, 5);
//! assert_eq!(reader.read_str()?, "watch 7.1 has ended"); // a view of the frame
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod event;
mod id;
pub mod pickle;
pub mod protocol;
mod signals;
pub mod status;

pub use event::{Event, EventKind};
pub use id::{HandleId, TimerId, Token, WatchId};
pub use signals::{Mode, Signals, SignalsState};
pub use status::{Code, Result, Status};
