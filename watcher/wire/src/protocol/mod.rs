//! What travels between a client and the service: requests and replies on one socket, events on another.
//!
//! Every frame is a [pickle](crate::pickle) whose header is the size word alone. PROTOCOL.md, at the top of the project,
//! has every byte, the rules of who may send what, and what each malformed frame gets; the names here are its names.
//!
//! | frame | socket | from |
//! |---|---|---|
//! | [`Request`] | calls | client |
//! | [`Reply`] | calls | service |
//! | [`EventFrame`] | events | service |
//!
//! ```
//! use handle_watcher_wire::protocol::{Reply, Request};
//! use handle_watcher_wire::pickle::Writer;
//! use handle_watcher_wire::Status;
//!
//! let mut writer = Writer::new();
//! Request::Ping.write(7, 0, &mut writer);
//! let (head, request) = Request::read(writer.frame()?).expect("written just now");
//! assert_eq!((head.call, request), (7, Request::Ping));
//! # Ok::<(), Status>(())
//! ```

mod event_frame;
mod lists;
mod reply;
mod request;

pub use event_frame::EventFrame;
pub use lists::{
    SessionEntry, WatchEntry, read_sessions, read_stats, read_watches, write_sessions, write_stats,
    write_watches,
};
pub use reply::{Limits, Reply, Welcome};
pub use request::{Arm, Change, Head, Hello, Request, RequestError, SetTimer, Watch};

/// The first value of the first frame, so that whoever connects by mistake is told so.
pub const MAGIC: &str = "handle-watcher";

/// The lowest version of the protocol that this crate speaks.
pub const VERSION_LOWEST: u32 = 1;

/// The highest version of the protocol that this crate speaks.
pub const VERSION_HIGHEST: u32 = 1;

/// How many bytes a frame has at most, header included, before the Welcome names the session's own limit.
pub const FIRST_FRAME_LIMIT_BYTES: usize = 4096;

/// How many descriptors may travel with one system call: the kernel's SCM_MAX_FD, see unix(7).
pub const DESCRIPTORS_MOST: usize = 253;

/// The call number of a request that wants no reply, and of the reply that ends a session.
pub const NO_CALL: u32 = 0;
