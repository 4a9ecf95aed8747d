//! The timers of one session.

use ahash::RandomState;
use handle_watcher_wire::{TimerId, Token};

use crate::service::index::Index;
use crate::service::lazy::Empty;
use crate::service::slab::Slab;

/// One timer.
#[derive(Debug)]
pub(super) struct TimerSlot {
    /// The client's number of it.
    pub(super) id: u64,
    pub(super) token: Token,
    /// The engine's id of it.
    pub(super) engine: TimerId,
    pub(super) is_periodic: bool,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    slots: Slab<TimerSlot>,
    by_id: Index,
}

impl Empty for Timers {
    fn empty() -> &'static Self {
        static EMPTY: Timers = Timers { slots: Slab::new(), by_id: Index::new() };
        &EMPTY
    }
}

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Where the next timer will be.
    pub(super) fn next_slot(&self) -> u32 {
        self.slots.next_index()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&TimerSlot> {
        self.slots.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut TimerSlot> {
        self.slots.get_mut(slot)
    }

    pub(super) fn find(&self, seed: &RandomState, id: u64) -> Option<u32> {
        self.by_id.find(seed, id, |slot| self.slots.get(slot).map_or(0, |timer| timer.id))
    }

    pub(super) fn insert(&mut self, seed: &RandomState, timer: TimerSlot) {
        let id = timer.id;
        let slot = self.slots.insert(timer);
        let slots = &self.slots;
        self.by_id.insert(seed, id, slot, |slot| slots.get(slot).map_or(0, |timer| timer.id));
    }

    pub(super) fn remove(&mut self, seed: &RandomState, slot: u32) -> Option<TimerSlot> {
        let id = self.slots.get(slot)?.id;
        let slots = &self.slots;
        self.by_id.remove(seed, id, |slot| slots.get(slot).map_or(0, |timer| timer.id));
        self.slots.remove(slot)
    }
}
