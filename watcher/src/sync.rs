//! Atomics, chosen once: the real ones, or loom's, which explore every interleaving.
//!
//! Only what is modelled in `tests/loom` (the state word and the two wake flags) goes through here.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
