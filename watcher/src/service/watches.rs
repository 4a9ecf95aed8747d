//! The watches of one session, and the handles they are about.
//!
//! The watches of one handle form a ring. Its head owns the descriptor, and is where the handle's number leads.

use std::os::fd::OwnedFd;

use ahash::RandomState;
use handle_watcher_wire::protocol::{Watch, WatchEntry};
use handle_watcher_wire::{Mode, Signals, Token, WatchId};

use crate::service::index::Index;
use crate::service::kinds::Kind;
use crate::service::lazy::Empty;
use crate::service::slab::{NOWHERE, Slab};

/// One watch.
#[derive(Debug)]
pub(super) struct WatchSlot {
    /// The client's number of it.
    pub(super) id: u64,
    /// The client's number of the handle.
    pub(super) handle: u64,
    pub(super) token: Token,
    /// The engine's id of it.
    pub(super) engine: WatchId,
    /// The handle's, if this is the head of its ring.
    descriptor: Option<OwnedFd>,
    next: u32,
    previous: u32,
    /// Events told of it; stays at the most there is.
    pub(super) events: u32,
    pub(super) signals: Signals,
    pub(super) mode: Mode,
    pub(super) kind: Kind,
    /// Its handle was closed: it waits for its last word to be told.
    is_orphan: bool,
}

/// 64 bytes of the engine's row come to these.
const _: () = assert!(size_of::<WatchSlot>() <= 56, "a watch of a session grew; say so in ARCHITECTURE.md");

impl WatchSlot {
    pub(super) fn new(watch: Watch, engine: WatchId) -> Self {
        Self {
            id: watch.id,
            handle: watch.handle,
            token: watch.token,
            engine,
            descriptor: None,
            next: NOWHERE,
            previous: NOWHERE,
            events: 0,
            signals: watch.signals,
            mode: watch.mode,
            kind: Kind::Socket,
            is_orphan: false,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    slots: Slab<WatchSlot>,
    by_id: Index,
    by_handle: Index,
}

impl Empty for Watches {
    fn empty() -> &'static Self {
        static EMPTY: Watches = Watches { slots: Slab::new(), by_id: Index::new(), by_handle: Index::new() };
        &EMPTY
    }
}

impl Watches {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Where the next watch will be.
    pub(super) fn next_slot(&self) -> u32 {
        self.slots.next_index()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&WatchSlot> {
        self.slots.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut WatchSlot> {
        self.slots.get_mut(slot)
    }

    pub(super) fn find(&self, seed: &RandomState, id: u64) -> Option<u32> {
        self.by_id.find(seed, id, |slot| self.slots.get(slot).map_or(0, |watch| watch.id))
    }

    /// The head of a handle's ring.
    pub(super) fn find_handle(&self, seed: &RandomState, handle: u64) -> Option<u32> {
        self.by_handle.find(seed, handle, |slot| self.slots.get(slot).map_or(0, |watch| watch.handle))
    }

    /// The handle's descriptor and its kind.
    pub(super) fn descriptor_of(&self, head: u32) -> Option<(&OwnedFd, Kind)> {
        let watch = self.slots.get(head)?;
        Some((watch.descriptor.as_ref()?, watch.kind))
    }

    /// Adds a watch of a new handle.
    pub(super) fn insert_head(
        &mut self,
        seed: &RandomState,
        mut watch: WatchSlot,
        descriptor: OwnedFd,
        kind: Kind,
    ) {
        let slot = self.slots.next_index();
        let handle = watch.handle;
        (watch.descriptor, watch.kind, watch.next, watch.previous) = (Some(descriptor), kind, slot, slot);
        self.insert(seed, watch);
        let slots = &self.slots;
        self.by_handle.insert(seed, handle, slot, |slot| slots.get(slot).map_or(0, |watch| watch.handle));
    }

    /// Adds a watch of the handle whose ring's head this is.
    pub(super) fn insert_beside(&mut self, seed: &RandomState, mut watch: WatchSlot, head: u32) {
        let slot = self.slots.next_index();
        let Some(first) = self.slots.get_mut(head) else { return };
        let next = std::mem::replace(&mut first.next, slot);
        (watch.kind, watch.next, watch.previous) = (first.kind, next, head);
        if let Some(next) = self.slots.get_mut(next) {
            next.previous = slot;
        }
        self.insert(seed, watch);
    }

    fn insert(&mut self, seed: &RandomState, watch: WatchSlot) {
        let id = watch.id;
        let slot = self.slots.insert(watch);
        let slots = &self.slots;
        self.by_id.insert(seed, id, slot, |slot| slots.get(slot).map_or(0, |watch| watch.id));
    }

    /// Takes a watch out. Gives the handle's descriptor if it was the handle's last.
    pub(super) fn remove(&mut self, seed: &RandomState, slot: u32) -> Option<OwnedFd> {
        let watch = self.slots.get_mut(slot)?;
        let (id, handle, next, previous) = (watch.id, watch.handle, watch.next, watch.previous);
        let is_orphan = watch.is_orphan;
        let descriptor = watch.descriptor.take();
        let slots = &mut self.slots;
        self.by_id.remove(seed, id, |slot| slots.get(slot).map_or(0, |watch| watch.id));
        let handle_at = |slots: &Slab<WatchSlot>, slot| slots.get(slot).map_or(0, |watch| watch.handle);
        let last = if is_orphan {
            None
        } else if next == slot {
            self.by_handle.remove(seed, handle, |slot| handle_at(slots, slot));
            descriptor
        } else {
            let is_head = descriptor.is_some();
            if let Some(next) = slots.get_mut(next) {
                next.previous = previous;
                next.descriptor = next.descriptor.take().or(descriptor);
            }
            if is_head {
                self.by_handle.replace(seed, handle, next, |slot| handle_at(slots, slot));
            }
            if let Some(previous) = slots.get_mut(previous) {
                previous.next = next;
            }
            None
        };
        slots.remove(slot);
        last
    }

    /// Forgets a handle, and gives its descriptor. Its watches stay until they are taken out, each by itself.
    pub(super) fn close_handle(&mut self, seed: &RandomState, handle: u64) -> Option<OwnedFd> {
        let head = self.find_handle(seed, handle)?;
        let slots = &self.slots;
        self.by_handle.remove(seed, handle, |slot| slots.get(slot).map_or(0, |watch| watch.handle));
        let mut slot = head;
        while let Some(watch) = self.slots.get_mut(slot).filter(|watch| !watch.is_orphan) {
            watch.is_orphan = true;
            slot = watch.next;
        }
        self.slots.get_mut(head)?.descriptor.take()
    }

    /// The busiest first, at most so many.
    pub(super) fn busiest(&self, most: usize) -> Vec<WatchEntry> {
        let mut slots: Vec<&WatchSlot> = self.slots.iter().map(|(_, watch)| watch).collect();
        slots.sort_unstable_by_key(|watch| (std::cmp::Reverse(watch.events), watch.id));
        let entry = |watch: &&WatchSlot| WatchEntry {
            id: watch.id,
            kind: watch.kind.name().to_owned(),
            signals: watch.signals,
            mode: watch.mode,
            events: watch.events.into(),
        };
        slots.iter().take(most).map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot_of(id: u64, handle: u64) -> WatchSlot {
        let watch =
            Watch { id, handle, token: id, signals: Signals::READABLE, mode: Mode::Once, deadline_ns: 0 };
        WatchSlot::new(watch, WatchId::new(0, 0))
    }

    #[test]
    fn the_last_watch_of_a_handle_gives_the_descriptor_whatever_the_order() {
        let seed = RandomState::new();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1]] {
            let mut watches = Watches::default();
            let (reader, _writer) = std::io::pipe().expect("a pipe");
            watches.insert_head(&seed, slot_of(10, 5), reader.into(), Kind::Pipe);
            for id in [11, 12] {
                let head = watches.find_handle(&seed, 5).expect("it is there");
                watches.insert_beside(&seed, slot_of(id, 5), head);
            }
            for (step, which) in order.into_iter().enumerate() {
                let head = watches.find_handle(&seed, 5).expect("it is there");
                assert_eq!(watches.descriptor_of(head).map(|(_, kind)| kind), Some(Kind::Pipe));
                let slot = watches.find(&seed, 10 + which).expect("it is there");
                let last = watches.remove(&seed, slot);
                assert_eq!(last.is_some(), step == 2, "{order:?}");
                assert_eq!(watches.find(&seed, 10 + which), None);
            }
            assert_eq!((watches.find_handle(&seed, 5), watches.len()), (None, 0));
        }
    }

    #[test]
    fn watches_outlive_their_closed_handle() {
        let seed = RandomState::new();
        let mut watches = Watches::default();
        for handle in [5, 5, 6] {
            let id = watches.len() as u64;
            match watches.find_handle(&seed, handle) {
                Some(head) => watches.insert_beside(&seed, slot_of(id, handle), head),
                None => {
                    let (reader, _writer) = std::io::pipe().expect("a pipe");
                    watches.insert_head(&seed, slot_of(id, handle), reader.into(), Kind::Pipe);
                }
            }
        }
        assert!(watches.close_handle(&seed, 5).is_some());
        assert!(watches.close_handle(&seed, 5).is_none());
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        watches.insert_head(&seed, slot_of(9, 5), reader.into(), Kind::Pipe);
        for (id, gives) in [(1, false), (9, true), (0, false), (2, true)] {
            let slot = watches.find(&seed, id).expect("it is there");
            assert_eq!(watches.remove(&seed, slot).is_some(), gives, "{id}");
        }
        assert_eq!(watches.len(), 0);
    }

    #[test]
    fn the_busiest_come_first() {
        let seed = RandomState::new();
        let mut watches = Watches::default();
        for id in 0..4 {
            let (reader, _writer) = std::io::pipe().expect("a pipe");
            let slot = watches.next_slot();
            watches.insert_head(&seed, slot_of(id, id), reader.into(), Kind::Pipe);
            watches.get_mut(slot).expect("just added").events = [2, 9, 1, 9][slot as usize];
        }
        let ids: Vec<u64> = watches.busiest(3).iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [1, 3, 0]);
    }
}
