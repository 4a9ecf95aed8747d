//! The rows of the wait set: one cache line per watch or timer, contiguous, never moved, never rebuilt per wait.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use handle_watcher_wire::Signals;

use crate::heat::Heat;
use crate::list::{Links, NIL};
use crate::state::{Role, StateWord};
use crate::sys::region::Region;

/// No deadline. Deadlines count from 1.
pub(crate) const NO_DEADLINE: u64 = 0;

/// One watch, timer or wake flag of one client.
///
/// The state word decides races. Everything else is written by the owner before it publishes the row, or under the
/// lock that is named at the field.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Row {
    pub(crate) state: StateWord,
    token: AtomicU64,
    /// Watch: its deadline, under its node's lock. Timer: when it is next due, written by the watcher.
    pub(crate) deadline_ns: AtomicU64,
    /// Timer: its period, 0 for a one-shot. Watch: what it wished for before it was paused, its heat, and the sequence
    /// of its entry in the front, under its node's lock.
    pub(crate) extra: AtomicU64,
    /// The port it belongs to.
    pub(crate) port: AtomicU32,
    /// Watch: the descriptor number. Timer and wake flag: how many are merged in the undelivered event.
    number: AtomicU32,
    /// In the port's queue, under the port's lock.
    pub(crate) queue_links: Links,
    /// In the node of its descriptor, under the node's lock.
    pub(crate) node_links: Links,
    /// In its client's list of rows, under the port's lock; in the free list, under that one's.
    pub(crate) client_links: Links,
}

impl Row {
    fn new() -> Self {
        Self {
            state: StateWord::new(1),
            token: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(NO_DEADLINE),
            extra: AtomicU64::new(0),
            port: AtomicU32::new(0),
            number: AtomicU32::new(0),
            queue_links: Links::default(),
            node_links: Links::default(),
            client_links: Links::default(),
        }
    }

    /// Its owner's token: the one that belongs to any state that is looked at after this call, because a row's next
    /// owner writes its own only after it changed the generation.
    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    /// The descriptor number of a watch.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.number.load(Ordering::Relaxed).cast_signed()
    }

    /// What timers and wake flags count.
    pub(crate) fn count(&self) -> &AtomicU32 {
        &self.number
    }

    /// Sets the deadline of a watch and gives the one it had. Under the node's lock.
    pub(crate) fn swap_deadline(&self, deadline_ns: u64) -> u64 {
        let before = self.deadline_ns.load(Ordering::Relaxed);
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        before
    }

    /// What a paused watch wished for.
    pub(crate) fn remembered(&self) -> Signals {
        Signals::from_bits_truncate(u8::try_from(self.extra.load(Ordering::Relaxed) & 0xff).unwrap_or(0))
    }

    pub(crate) fn remember(&self, wished: Signals) {
        let extra = self.extra.load(Ordering::Relaxed);
        self.extra.store(extra & !0xff | u64::from(wished.bits()), Ordering::Relaxed);
    }

    /// How hot a watch is.
    pub(crate) fn heat(&self) -> Heat {
        let low = u32::try_from(self.extra.load(Ordering::Relaxed) & u64::from(u32::MAX)).unwrap_or(0);
        Heat::from_bits(low >> 8)
    }

    pub(crate) fn set_heat(&self, heat: Heat) {
        let extra = self.extra.load(Ordering::Relaxed);
        let kept = extra & !(((1 << Heat::BITS) - 1) << 8);
        self.extra.store(kept | u64::from(heat.bits()) << 8, Ordering::Relaxed);
    }

    /// The sequence of a watch's entry in the front; 0 if it never had one.
    pub(crate) fn front_sequence(&self) -> u32 {
        u32::try_from(self.extra.load(Ordering::Relaxed) >> 32).unwrap_or(0)
    }

    pub(crate) fn set_front_sequence(&self, sequence: u32) {
        let low = self.extra.load(Ordering::Relaxed) & u64::from(u32::MAX);
        self.extra.store(low | u64::from(sequence) << 32, Ordering::Relaxed);
    }

    pub(crate) fn queue_links(&self) -> &Links {
        &self.queue_links
    }

    pub(crate) fn node_links(&self) -> &Links {
        &self.node_links
    }

    pub(crate) fn client_links(&self) -> &Links {
        &self.client_links
    }
}

/// A slot and the generation it had: names one owner of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What a new row starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) role: Role,
    pub(crate) token: u64,
    pub(crate) port: u32,
    pub(crate) descriptor: RawFd,
    pub(crate) deadline_ns: u64,
    pub(crate) extra: u64,
}

/// Every row of one watcher.
#[derive(Debug)]
pub(crate) struct Rows {
    region: Region<Row>,
    /// Stands in for slots that were never made, so that looking up a foreign number needs no branch at each use.
    nowhere: Row,
    free: Mutex<FreeSlots>,
}

impl Rows {
    /// Reserves address space for `limit` rows.
    pub(crate) fn reserve_space(limit: usize) -> Result<Self, rustix::io::Errno> {
        Ok(Self { region: Region::reserve(limit)?, nowhere: Row::new(), free: Mutex::default() })
    }

    /// Every row was made: what one client keeps for itself another may need.
    pub(crate) fn is_scarce(&self) -> bool {
        self.region.is_full()
    }

    /// How many rows there can be.
    pub(crate) fn limit(&self) -> usize {
        self.region.capacity()
    }

    /// The row in this slot. A slot that was never made gives a row that nobody owns, whose generation 1 is free.
    #[inline]
    pub(crate) fn row(&self, slot: u32) -> &Row {
        let index = (slot as usize).wrapping_sub(1);
        self.region.get(index).unwrap_or(&self.nowhere)
    }

    /// Fills a free row; the caller alone knows it until it publishes the state.
    pub(crate) fn reserve(&self, slot: u32, start: &Start) -> Reference {
        let row = self.row(slot);
        row.token.store(start.token, Ordering::Release);
        row.deadline_ns.store(start.deadline_ns, Ordering::Relaxed);
        row.extra.store(start.extra, Ordering::Relaxed);
        row.port.store(start.port, Ordering::Relaxed);
        row.number.store(start.descriptor.cast_unsigned(), Ordering::Relaxed);
        Reference { slot, generation: row.state.reserve(start.role) }
    }

    /// Makes a row free again that the caller owns alone and took out of every list. Gives its slot for the next owner;
    /// nothing if its generation would wrap, because no id of a slot may ever be given out twice.
    pub(crate) fn recycle(&self, reference: Reference) -> Option<u32> {
        let next = reference.generation.checked_add(1);
        self.row(reference.slot).state.recycle(next.unwrap_or(0));
        next.map(|_| reference.slot)
    }

    /// A free slot. Nothing when every row is taken.
    pub(crate) fn take_slot(&self) -> Option<u32> {
        {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = free.pop(self) {
                return Some(slot);
            }
        }
        let index = self.region.push(|_| Row::new())?;
        u32::try_from(index + 1).ok()
    }

    /// Gives a slot back that nobody uses.
    pub(crate) fn give_slot(&self, slot: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(self, slot);
    }
}

/// Slots that nobody uses, linked through the rows like a client's are. Changed only under the lock that guards it.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    head: u32,
    length: u32,
}

impl FreeSlots {
    pub(crate) fn len(&self) -> u32 {
        self.length
    }

    pub(crate) fn push(&mut self, rows: &Rows, slot: u32) {
        rows.row(slot).client_links.set_next(self.head);
        self.head = slot;
        self.length += 1;
    }

    pub(crate) fn pop(&mut self, rows: &Rows) -> Option<u32> {
        if self.head == NIL {
            return None;
        }
        let slot = self.head;
        let links = &rows.row(slot).client_links;
        self.head = links.next();
        links.set_next(NIL);
        self.length -= 1;
        Some(slot)
    }
}

const _: () = assert!(size_of::<Row>() == 64, "one cache line per row");

#[cfg(test)]
mod tests {
    use handle_watcher_wire::Mode;

    use super::*;
    use crate::state::Kind;

    fn start() -> Start {
        let role = Role { kind: Kind::Watch, mode: Mode::Once, wished: Signals::READABLE, child: false };
        Start { role, token: 5, port: 1, descriptor: 3, deadline_ns: NO_DEADLINE, extra: 0 }
    }

    #[test]
    fn a_slot_comes_back_with_another_generation() {
        let rows = Rows::reserve_space(2).expect("address space");
        let first = rows.reserve(rows.take_slot().expect("room"), &start());
        rows.give_slot(rows.recycle(first).expect("not wrapped"));
        let second = rows.reserve(rows.take_slot().expect("room"), &start());
        assert_eq!(first.slot, second.slot);
        assert_ne!(first.generation, second.generation);
        assert!(rows.take_slot().is_some());
        assert_eq!(rows.take_slot(), None, "the limit is an answer");
    }

    #[test]
    fn a_slot_whose_generation_would_wrap_is_retired() {
        let rows = Rows::reserve_space(1).expect("address space");
        let slot = rows.take_slot().expect("room");
        assert_eq!(rows.recycle(Reference { slot, generation: u32::MAX }), None);
        assert_eq!(rows.take_slot(), None);
    }

    #[test]
    fn a_slot_never_made_is_nobodys() {
        let rows = Rows::reserve_space(1).expect("address space");
        for slot in [0, 1, 99, u32::MAX] {
            assert!(!rows.row(slot).state.load().is_live(), "{slot}");
        }
    }
}
