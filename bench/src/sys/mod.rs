//! The unsafe code of this crate: what the standard library and rustix do not offer.

pub(crate) mod allocator;
#[cfg(feature = "peers")]
pub(crate) mod async_fd;
#[cfg(feature = "peers")]
pub(crate) mod poller;
pub(crate) mod scheduling;
pub(crate) mod usage;
#[cfg(feature = "peers")]
pub(crate) mod uv;
