//! The descriptors a client gave us, by slot and generation (contract C1, C8).

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use handle_watcher_wire::{Code, HandleId, Result, Status};

use crate::sys::descriptor;

/// What was not taken, given back with the reason.
pub struct Refused<T> {
    /// Why.
    pub status: Status,
    /// What was offered.
    pub value: T,
}

impl<T> From<Refused<T>> for Status {
    fn from(refused: Refused<T>) -> Self {
        refused.status
    }
}

impl<T> std::fmt::Display for Refused<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.status.fmt(formatter)
    }
}

impl<T> std::fmt::Debug for Refused<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Refused").field("status", &self.status).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Refused<T> {}

#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    descriptor: Option<OwnedFd>,
}

/// The given handles of one client.
#[derive(Debug, Default)]
pub(crate) struct HandleTable {
    slots: Mutex<Slots>,
}

impl HandleTable {
    /// Takes a descriptor in.
    pub(crate) fn adopt(&self, value: OwnedFd) -> Result<HandleId, Refused<OwnedFd>> {
        let number = value.as_raw_fd();
        if descriptor::is_file_or_directory(number) {
            let kind = descriptor::kind_in_words(number);
            let status = Status::new(
                Code::FailedPrecondition,
                format!(
                    "descriptor {number} is {kind}: it is always ready and cannot be waited on; read it directly, or watch its path for \
                     changes"
                ),
            );
            return Err(Refused { status, value });
        }
        let mut slots = self.lock();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => match u32::try_from(slots.entries.len()).ok().filter(|&slot| slot < u32::MAX) {
                Some(slot) => {
                    slots.entries.push(Entry { generation: 1, descriptor: None });
                    slot
                }
                None => {
                    let status = Status::new(Code::ResourceExhausted, "4 billion handles were given already");
                    return Err(Refused { status, value });
                }
            },
        };
        let entry = &mut slots.entries[slot as usize];
        entry.descriptor = Some(value);
        Ok(HandleId::new(slot + 1, entry.generation))
    }

    /// Calls `use_number` with the handle's descriptor number, while nobody can close it through this table.
    pub(crate) fn with<R>(&self, handle: HandleId, use_number: impl FnOnce(RawFd) -> Result<R>) -> Result<R> {
        let slots = self.lock();
        let entry = slots.entries.get(index_of(handle));
        let descriptor = entry
            .filter(|entry| entry.generation == handle.generation())
            .and_then(|entry| entry.descriptor.as_ref())
            .ok_or_else(|| unknown(handle))?;
        use_number(descriptor.as_raw_fd())
    }

    /// Takes a descriptor out; its id is worth nothing from here on.
    pub(crate) fn take(&self, handle: HandleId) -> Result<OwnedFd> {
        let mut slots = self.lock();
        let entry = slots.entries.get_mut(index_of(handle));
        let entry =
            entry.filter(|entry| entry.generation == handle.generation()).ok_or_else(|| unknown(handle))?;
        let descriptor = entry.descriptor.take().ok_or_else(|| unknown(handle))?;
        entry.generation = entry.generation.wrapping_add(1);
        // A slot whose generation wrapped is retired.
        if entry.generation != 0 {
            slots.free.push(handle.slot() - 1);
        }
        Ok(descriptor)
    }

    /// Takes everything out.
    pub(crate) fn take_all(&self) -> Vec<OwnedFd> {
        let mut slots = self.lock();
        slots.free.clear();
        slots.entries.drain(..).filter_map(|entry| entry.descriptor).collect()
    }

    /// Takes everything out without waiting for the lock, which after a fork may be held by a thread that is gone.
    pub(crate) fn take_all_after_fork(&self) -> Vec<OwnedFd> {
        let mut slots = match self.slots.try_lock() {
            Ok(slots) => slots,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Vec::new(),
        };
        slots.entries.drain(..).filter_map(|entry| entry.descriptor).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().entries.iter().filter(|entry| entry.descriptor.is_some()).count()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slots count from 1: zero names no handle.
fn index_of(handle: HandleId) -> usize {
    (handle.slot() as usize).wrapping_sub(1)
}

fn unknown(handle: HandleId) -> Status {
    Status::new(
        Code::NotFound,
        format!(
            "handle {handle} is not one of this client's: it was closed, or it is another client's; use the id that adopt gave, \
             until close"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn pipe_end() -> OwnedFd {
        rustix::pipe::pipe().expect("a pipe").0
    }

    #[test]
    fn an_id_is_worth_nothing_after_its_handle_was_taken() {
        let table = HandleTable::default();
        let first = table.adopt(pipe_end()).expect("room");
        assert!(table.take(first).is_ok());
        assert_eq!(table.take(first).expect_err("taken").code(), Code::NotFound);
        let second = table.adopt(pipe_end()).expect("room");
        assert_eq!(first.slot(), second.slot());
        assert!(table.with(first, |_| Ok(())).is_err() && table.with(second, |_| Ok(())).is_ok());
    }

    #[test]
    fn what_cannot_be_waited_on_is_given_back() {
        let directory = std::fs::File::open("/").expect("a directory");
        let refused = HandleTable::default().adopt(directory.into()).expect_err("a directory");
        assert_eq!(refused.status.code(), Code::FailedPrecondition);
        assert!(refused.status.message().contains("a directory"), "{}", refused.status);
        assert!(refused.value.as_raw_fd() >= 0);
    }
}
