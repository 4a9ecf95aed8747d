//! Frames of values: a size word, then a payload in which every value starts at a multiple of four bytes.
//!
//! The format is that of Chromium's pickle, so frames can be exchanged with it and with its kin, and the headers of
//! `.asar` archives can be read:
//!
//! ```text
//! │ payload size │ more header │ value │ value │ …
//! │ u32          │ 0..60 bytes │ each padded with zeros to a multiple of 4
//! ```
//!
//! - Every number is little-endian, on every machine.
//! - There are no type tags. A reader asks for values in the order in which they were written.
//! - A string, a string16 and data begin with their length, an i32. A string counts bytes, a string16 its units of
//!   16 bits. Bytes have no length; reader and writer know it.
//! - There is no alignment to 8: an i64 may stand at an offset of 4.
//!
//! [`Writer`] makes a frame, [`Reader`] borrows one and hands out views into it. [`peek_next`] and [`find_next`] cut
//! frames out of a stream of bytes. Nothing here trusts a frame: a length is compared with the bytes that are there
//! before anything is made of it.
//!
//! ```
//! use handle_watcher_wire::pickle::{Reader, Writer};
//!
//! # fn main() -> handle_watcher_wire::Result<()> {
//! let mut writer = Writer::new();
//! writer.write_i64(1_000_000);
//! writer.write_i32(-1);
//! writer.write_str("hello");
//! let frame = writer.finish()?;
//! assert_eq!(frame.len(), 4 + 8 + 4 + 4 + 8);
//!
//! let mut reader = Reader::new(&frame)?;
//! assert_eq!(reader.read_i64()?, 1_000_000);
//! assert_eq!(reader.read_i32()?, -1);
//! assert_eq!(reader.read_str()?, "hello");
//! assert!(reader.is_at_end());
//!
//! // A failed read says what was asked for and where, and spends the reader.
//! let error = reader.read_u32().expect_err("nothing is left");
//! assert_eq!(error.offset_bytes(), 24);
//! # Ok(())
//! # }
//! ```

mod capacity;
mod frame;
mod read_error;
mod reader;
mod utf16;
mod writer;

pub use frame::{HeaderSize, find_next, peek_next};
pub use read_error::{ReadCause, ReadError, ValueKind};
pub use reader::Reader;
pub use utf16::Utf16;
pub use writer::{Claim, Writer};
