//! C16: the service, driven by a raw client over its socket.
#![allow(dead_code, reason = "helpers are shared by all parts")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

#[path = "service/client.rs"]
mod client;
#[path = "service/descriptors.rs"]
mod descriptors;
#[path = "service/ends.rs"]
mod ends;
#[path = "service/lies.rs"]
mod lies;
#[path = "service/limits.rs"]
mod limits;
#[path = "service/pressure.rs"]
mod pressure;
#[path = "service/process.rs"]
mod process;
#[path = "service/regressions.rs"]
mod regressions;
#[path = "service/sessions.rs"]
mod sessions;
#[path = "service/sockets.rs"]
mod sockets;
#[path = "service/util.rs"]
mod util;
