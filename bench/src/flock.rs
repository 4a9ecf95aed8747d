//! Many socket pairs, some of them active: what `throughput` works on.

use crate::{Result, pair};
use rustix::io::Errno;
use std::os::unix::net::UnixStream;

/// Socket pairs in all.
pub(crate) const PAIRS: usize = 1000;
/// Pairs with a byte on its way.
pub(crate) const ACTIVE: usize = 256;
/// Events a subject takes at once: enough for all that can be ready.
pub(crate) const BATCH: usize = 1024;

/// The pairs. An active one always has exactly one byte on its way, so one read empties it and every subject, level or
/// edge, reads once an event.
pub(crate) struct Flock {
    watched: Vec<UnixStream>,
    writing: Vec<UnixStream>,
}

impl Flock {
    /// Opens every pair; nothing is active yet.
    pub(crate) fn open() -> Result<Self> {
        pair::require_descriptors(2 * PAIRS)?;
        let mut flock = Self { watched: Vec::new(), writing: Vec::new() };
        for _ in 0..PAIRS {
            let (watched, writing) = pair::pair()?;
            flock.watched.push(watched);
            flock.writing.push(writing);
        }
        Ok(flock)
    }

    /// The ends to watch, in order.
    pub(crate) fn watched(&self) -> &[UnixStream] {
        &self.watched
    }

    /// Sends the first bytes, spread over all pairs.
    pub(crate) fn activate(&self) -> Result<()> {
        for number in 0..ACTIVE {
            self.give(number * PAIRS / ACTIVE)?;
        }
        Ok(())
    }

    /// Reads the byte of a pair; false when there was none.
    pub(crate) fn take(&self, number: usize) -> Result<bool> {
        take(self.watched.get(number).ok_or("an event for a pair that does not exist")?)
    }

    /// Makes a pair active again.
    pub(crate) fn give(&self, number: usize) -> Result<()> {
        give(self.writing.get(number).ok_or("an event for a pair that does not exist")?)
    }

    /// The pairs one by one, for subjects with a task each.
    #[cfg(feature = "peers")]
    pub(crate) fn into_pairs(self) -> impl Iterator<Item = (UnixStream, UnixStream)> {
        self.watched.into_iter().zip(self.writing)
    }
}

/// Reads one byte; false when there is none.
///
/// By the bare system call, here as in `pair`: the C library's own costs a process that has a second thread two atomic
/// operations more, and only some subjects have one.
pub(crate) fn take(socket: &UnixStream) -> Result<bool> {
    match rustix::io::read(socket, &mut [0]) {
        Ok(1) => Ok(true),
        Ok(_) => Err("a pair hung up".into()),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Writes one byte.
pub(crate) fn give(socket: &UnixStream) -> Result<()> {
    match rustix::io::write(socket, b"x")? {
        1 => Ok(()),
        _ => Err("a pair is full".into()),
    }
}
