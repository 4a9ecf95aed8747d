//! Deadlines of timers and watches, earliest first; equal ones in the order they were set (contract C10).
//!
//! Owned by the watcher thread. What is due up to a horizon is kept in a heap, small enough for the processor's caches;
//! what is due later lies unsorted in buckets by the highest bit in which it differs from the horizon, as in a radix
//! heap, and is looked at again only when its bucket is the next. So a million deadlines cost a few sequential moves
//! each, where one big heap costs a cache miss per level.
//!
//! A cancelled entry is not searched for: it no longer matches its row, is dropped when it comes up, and all of them
//! are swept out once they outnumber the live ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::rows::Reference;

/// Below this many dead entries no sweep is worth its pass.
const SWEEP_LEAST: usize = 4096;
/// A bucket of at most this many entries goes into the heap as it is: about as many as the first cache holds.
const POURED_MOST: usize = 1024;
/// A heap of fewer entries is left alone, however many there are.
const NEAR_LEAST: usize = 4 * POURED_MOST;
/// One for each bit of a deadline.
const BUCKETS: usize = u64::BITS as usize;

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
#[derive(Debug)]
pub(crate) struct Timers {
    /// What is due at the horizon or before.
    near: BinaryHeap<Reverse<Key>>,
    horizon_ns: u64,
    /// What is due after the horizon. All of one bucket is due before all of the next.
    far: [Vec<Key>; BUCKETS],
    far_count: usize,
    /// When the heap has so many entries, the horizon comes nearer.
    near_limit: usize,
    sequence: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            near: BinaryHeap::new(),
            horizon_ns: 0,
            far: [const { Vec::new() }; BUCKETS],
            far_count: 0,
            near_limit: NEAR_LEAST,
            sequence: 0,
        }
    }
}

impl Timers {
    pub(crate) fn len(&self) -> usize {
        self.near.len() + self.far_count
    }

    pub(crate) fn set(&mut self, entry: Entry) {
        self.sequence += 1;
        let key = Key {
            deadline_ns: entry.deadline_ns,
            sequence: self.sequence,
            slot: entry.reference.slot,
            generation: entry.reference.generation,
        };
        self.place(key);
        if self.near.len() > self.near_limit {
            self.retreat();
        }
    }

    /// The next deadline that is still meant, after dropping those in front of it that are not; with how many were
    /// dropped.
    pub(crate) fn next(&mut self, is_meant: impl Fn(Entry) -> bool) -> (Option<u64>, u64) {
        let mut dropped = 0;
        while let Some(key) = self.peek() {
            if is_meant(key.entry()) {
                return (Some(key.deadline_ns), dropped);
            }
            self.near.pop();
            dropped += 1;
        }
        (None, dropped)
    }

    /// Takes the earliest entry that is due at `now_ns`. Due means at or before: a deadline of exactly now is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Entry> {
        let key = self.peek()?;
        if key.deadline_ns > now_ns {
            return None;
        }
        self.near.pop();
        Some(key.entry())
    }

    /// Sweeps out every entry that is no longer meant, if `dead` of them are worth the pass. Gives how many went.
    pub(crate) fn sweep(&mut self, dead: u64, is_meant: impl Fn(Entry) -> bool) -> u64 {
        let dead = usize::try_from(dead).unwrap_or(usize::MAX);
        let before = self.len();
        if dead < SWEEP_LEAST || dead < before / 2 {
            return 0;
        }
        self.near.retain(|Reverse(key)| is_meant(key.entry()));
        self.near.shrink_to(self.near.len() * 2);
        for bucket in &mut self.far {
            bucket.retain(|key| is_meant(key.entry()));
            bucket.shrink_to(bucket.len() * 2);
        }
        self.far_count = self.far.iter().map(Vec::len).sum();
        (before - self.len()) as u64
    }

    /// The earliest of all.
    fn peek(&mut self) -> Option<Key> {
        while self.near.is_empty() && self.far_count > 0 {
            self.advance();
        }
        self.near.peek().map(|&Reverse(key)| key)
    }

    fn place(&mut self, key: Key) {
        if key.deadline_ns <= self.horizon_ns {
            self.near.push(Reverse(key));
        } else {
            self.far[bucket(key.deadline_ns, self.horizon_ns)].push(key);
            self.far_count += 1;
        }
    }

    /// Moves the horizon into the next bucket: to its end if it has few entries, else to its first one, which spreads
    /// the others over the buckets before it. The bits above a bucket's own are those of the horizon, so the buckets
    /// after it stay right.
    fn advance(&mut self) {
        let Some(next) = self.far.iter().position(|bucket| !bucket.is_empty()) else { return };
        let mut entries = std::mem::take(&mut self.far[next]);
        self.far_count -= entries.len();
        let first_ns = entries.iter().map(|key| key.deadline_ns).min().unwrap_or(self.horizon_ns);
        let end_ns = first_ns | ((1 << next) - 1);
        self.horizon_ns = if entries.len() > POURED_MOST { first_ns } else { end_ns };
        entries.drain(..).for_each(|key| self.place(key));
        // Nothing was put into its own bucket. Its memory serves the next ones, unless those days are long over.
        if entries.capacity() <= POURED_MOST.max(64 * self.len()) {
            self.far[next] = entries;
        }
        self.near_limit = NEAR_LEAST.max(2 * self.near.len());
    }

    /// Moves the horizon to the middle of a heap that has grown too big.
    fn retreat(&mut self) {
        let mut keys = std::mem::take(&mut self.near).into_vec();
        let middle = keys.len() / 2;
        let (_, Reverse(pivot), _) = keys.select_nth_unstable_by_key(middle, |&Reverse(key)| key);
        let before_ns = self.horizon_ns;
        self.horizon_ns = pivot.deadline_ns;
        if before_ns != self.horizon_ns {
            // What lay between the old horizon and the next power of two is beyond the new one's as well.
            let shared = bucket(before_ns, self.horizon_ns);
            let (lower, upper) = self.far.split_at_mut(shared);
            lower.iter_mut().for_each(|bucket| upper[0].append(bucket));
        }
        let mut place = middle + 1;
        while place < keys.len() {
            let Reverse(key) = keys[place];
            if key.deadline_ns > self.horizon_ns {
                keys.swap_remove(place);
                self.place(key);
            } else {
                place += 1;
            }
        }
        self.near = BinaryHeap::from(keys);
        self.near_limit = NEAR_LEAST.max(2 * self.near.len());
    }
}

/// The highest bit in which a deadline after the horizon differs from it.
fn bucket(deadline_ns: u64, horizon_ns: u64) -> usize {
    (deadline_ns ^ horizon_ns).ilog2() as usize
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
        assert!(timers.near.capacity() < 100 && timers.far.iter().map(Vec::capacity).sum::<usize>() < 100);
        assert_eq!(drain(&mut timers, u64::MAX), [5]);
    }

    /// Against a sorted list, with deadlines that come in while others are taken: near, far, equal and past.
    #[test]
    fn order_agrees_with_a_sort_while_time_goes_on() {
        for spread in [4_u64, 1 << 12, 1 << 30, 1 << 50] {
            let (mut timers, mut model) = (Timers::default(), std::collections::BTreeSet::new());
            let (mut number, mut now_ns) = (spread | 1, 0_u64);
            let mut random = || {
                number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                number >> 20
            };
            for step in 1..=60_000_u32 {
                let deadline_ns = now_ns.saturating_sub(3) + random() % spread;
                timers.set(entry(deadline_ns, step));
                model.insert((deadline_ns, step));
                if step % 5000 == 0 {
                    now_ns += random() % spread;
                    let expected: Vec<u32> = model.range(..=(now_ns, u32::MAX)).map(|key| key.1).collect();
                    model = model.split_off(&(now_ns, u32::MAX));
                    assert_eq!(drain(&mut timers, now_ns), expected, "spread {spread}, step {step}");
                    let next = model.first().map(|key| key.0);
                    assert_eq!(timers.next(|_| true), (next, 0));
                    assert_eq!(timers.len(), model.len());
                }
            }
        }
    }

    #[test]
    fn many_of_one_deadline_are_not_moved_again_and_again() {
        let mut timers = Timers::default();
        for slot in 1..=200_000 {
            timers.set(entry(1 << 40, slot));
            if slot == 1 {
                assert_eq!(timers.next(|_| true), (Some(1 << 40), 0));
            }
        }
        assert_eq!(drain(&mut timers, 1 << 40).len(), 200_000);
    }
}
