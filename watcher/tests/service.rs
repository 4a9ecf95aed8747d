//! C16: the service, driven by a raw client over its socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

#[path = "service/client.rs"]
mod client;
#[path = "service/sessions.rs"]
mod sessions;
#[path = "service/util.rs"]
mod util;
