//! Deadlines of timers and watches, earliest first; equal ones in the order they were set (contract C10).
//!
//! Owned by the watcher thread. A cancelled entry is not searched for: it no longer matches its row, is dropped when
//! it comes up, and all of them are swept out once they outnumber the live ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::rows::Reference;

/// Below this many dead entries no sweep is worth its pass.
const SWEEP_LEAST: usize = 4096;

/// One deadline of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) deadline_ns: u64,
    pub(crate) reference: Reference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    deadline_ns: u64,
    sequence: u64,
    slot: u32,
    generation: u32,
}

impl Key {
    fn entry(self) -> Entry {
        let reference = Reference { slot: self.slot, generation: self.generation };
        Entry { deadline_ns: self.deadline_ns, reference }
    }
}

/// Every deadline the watcher keeps.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Key>>,
    sequence: u64,
}

impl Timers {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn set(&mut self, entry: Entry) {
        self.sequence += 1;
        self.heap.push(Reverse(Key {
            deadline_ns: entry.deadline_ns,
            sequence: self.sequence,
            slot: entry.reference.slot,
            generation: entry.reference.generation,
        }));
    }

    /// The next deadline that is still meant, after dropping those in front of it that are not; with how many were
    /// dropped.
    pub(crate) fn next(&mut self, is_meant: impl Fn(Entry) -> bool) -> (Option<u64>, u64) {
        let mut dropped = 0;
        while let Some(&Reverse(key)) = self.heap.peek() {
            if is_meant(key.entry()) {
                return (Some(key.deadline_ns), dropped);
            }
            self.heap.pop();
            dropped += 1;
        }
        (None, dropped)
    }

    /// Takes the earliest entry that is due at `now_ns`. Due means at or before: a deadline of exactly now is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Entry> {
        let &Reverse(key) = self.heap.peek()?;
        if key.deadline_ns > now_ns {
            return None;
        }
        self.heap.pop();
        Some(key.entry())
    }

    /// Sweeps out every entry that is no longer meant, if `dead` of them are worth the pass. Gives how many went.
    pub(crate) fn sweep(&mut self, dead: u64, is_meant: impl Fn(Entry) -> bool) -> u64 {
        let dead = usize::try_from(dead).unwrap_or(usize::MAX);
        if dead < SWEEP_LEAST || dead < self.heap.len() / 2 {
            return 0;
        }
        let before = self.heap.len();
        self.heap.retain(|Reverse(key)| is_meant(key.entry()));
        self.heap.shrink_to(self.heap.len() * 2);
        (before - self.heap.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(deadline_ns: u64, slot: u32) -> Entry {
        Entry { deadline_ns, reference: Reference { slot, generation: 1 } }
    }

    fn drain(timers: &mut Timers, now_ns: u64) -> Vec<u32> {
        std::iter::from_fn(|| timers.pop_due(now_ns)).map(|entry| entry.reference.slot).collect()
    }

    #[test]
    fn equal_deadlines_keep_their_order_and_none_is_lost() {
        let mut timers = Timers::default();
        for slot in 1..=1000 {
            timers.set(entry(7, slot));
        }
        assert_eq!(drain(&mut timers, 6), []);
        assert_eq!(drain(&mut timers, 7), (1..=1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_next_deadline_skips_what_was_cancelled() {
        let mut timers = Timers::default();
        for slot in 1..=10 {
            timers.set(entry(u64::from(slot) * 10, slot));
        }
        assert_eq!(timers.next(|entry| entry.reference.slot >= 4), (Some(40), 3));
        assert_eq!(timers.len(), 7);
        assert_eq!(timers.next(|_| false), (None, 7));
    }

    #[test]
    fn order_agrees_with_a_sort_whatever_comes_in() {
        let mut timers = Timers::default();
        let mut expected = Vec::new();
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        for slot in 1..=20_000 {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let deadline_ns = number >> (number % 60);
            timers.set(entry(deadline_ns, slot));
            expected.push((deadline_ns, slot));
        }
        expected.sort_unstable();
        let expected: Vec<u32> = expected.into_iter().map(|(_, slot)| slot).collect();
        assert_eq!(drain(&mut timers, u64::MAX), expected);
    }

    #[test]
    fn a_sweep_gives_the_memory_back() {
        let mut timers = Timers::default();
        for slot in 1..=100_000 {
            timers.set(entry(u64::from(slot), slot));
        }
        assert_eq!(timers.sweep(10, |_| false), 0, "ten are not worth it");
        assert_eq!(timers.sweep(100_000, |entry| entry.reference.slot == 5), 99_999);
        assert!(timers.heap.capacity() < 100);
        assert_eq!(drain(&mut timers, u64::MAX), [5]);
    }
}
