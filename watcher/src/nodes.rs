//! Descriptor nodes: what one descriptor number is to this watcher.
//!
//! The kernel keys its entries by descriptor number and open file, while a program may watch one number several times
//! and may close it without telling us. So each number has a node with a small lock and a chain of its rows. Every
//! kernel entry of the number, in the back or in a front, is changed only under that lock.

use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use handle_watcher_wire::Signals;

use crate::list::Chain;

/// The highest descriptor number we watch, whatever the process may open: 4 million.
pub(crate) const MOST_NODES: usize = 1 << 22;
const NODES_PER_LEAF: usize = 256;
const LEAVES_PER_BRANCH: usize = 256;
const NODES_PER_BRANCH: usize = NODES_PER_LEAF * LEAVES_PER_BRANCH;

/// One descriptor number.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Every live row of the number, whichever set serves it.
    pub(crate) rows: Chain,
    /// How many of them the back serves.
    pub(crate) back_rows: u32,
    sequence_low: u32,
    sequence_high: u8,
    /// The union of the wishes of the armed rows that the back serves, as the kernel was last told.
    pub(crate) wished: Signals,
    pub(crate) marks: Marks,
}

bitflags::bitflags! {
    /// What else a node knows, in one byte.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Marks: u8 {
        /// The back's kernel set has an entry. Set exactly while the back serves a row of this number.
        const REGISTERED = 1;
        /// One of the back's rows is Edge or Level: the entry is edge-triggered. Otherwise it is one-shot.
        const PERSISTENT = 2;
        /// A row of this number has been in a front since it was watched first.
        const HAS_FRONT = 4;
        /// The number was closed behind our back once, so an entry of an older file may live on under it, and that the
        /// kernel has an entry proves nothing by itself any more. Never cleared.
        const SUSPECT = 8;
    }
}

impl Node {
    pub(crate) fn is_registered(&self) -> bool {
        self.marks.contains(Marks::REGISTERED)
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.marks.contains(Marks::PERSISTENT)
    }

    pub(crate) fn has_front(&self) -> bool {
        self.marks.contains(Marks::HAS_FRONT)
    }

    /// Of the back's kernel entry: grows with every change of it and never restarts.
    pub(crate) fn sequence(&self) -> u64 {
        u64::from(self.sequence_high) << 32 | u64::from(self.sequence_low)
    }

    pub(crate) fn set_sequence(&mut self, sequence: u64) {
        self.sequence_low = u32::try_from(sequence & u64::from(u32::MAX)).unwrap_or(0);
        self.sequence_high = u8::try_from(sequence >> 32 & 0xff).unwrap_or(0);
    }
}

type Leaf = Box<[Mutex<Node>]>;
type Branch = Box<[OnceLock<Leaf>]>;

/// Every node of a watcher, by descriptor number; a part that no number was ever watched in takes no memory.
#[derive(Debug)]
pub(crate) struct Nodes {
    branches: Box<[OnceLock<Branch>]>,
    limit: usize,
}

impl Nodes {
    /// For descriptor numbers below `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, MOST_NODES);
        Self { branches: (0..limit.div_ceil(NODES_PER_BRANCH)).map(|_| OnceLock::new()).collect(), limit }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The node of a number, locked. Nothing for a number beyond the limit, or a negative one.
    #[inline]
    pub(crate) fn lock(&self, number: RawFd) -> Option<MutexGuard<'_, Node>> {
        let index = usize::try_from(number).ok().filter(|&index| index < self.limit)?;
        let branch = self.branches.get(index / NODES_PER_BRANCH)?;
        let branch = branch.get_or_init(|| (0..LEAVES_PER_BRANCH).map(|_| OnceLock::new()).collect());
        let leaf = &branch[index % NODES_PER_BRANCH / NODES_PER_LEAF];
        let leaf = leaf.get_or_init(|| (0..NODES_PER_LEAF).map(|_| Mutex::default()).collect());
        Some(leaf[index % NODES_PER_LEAF].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const _: () = assert!(size_of::<Mutex<Node>>() <= 24, "a node is small: there is one per watched descriptor");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_has_forty_bits() {
        let mut node = Node::default();
        node.set_sequence((1 << 40) - 1);
        assert_eq!(node.sequence(), (1 << 40) - 1);
    }

    #[test]
    fn every_number_below_the_limit_has_one_node() {
        let nodes = Nodes::new(100_000);
        for number in [0, 1, 255, 256, 65_535, 65_536, 99_999] {
            nodes.lock(number).expect("below the limit").set_sequence(1 + u64::from(number.cast_unsigned()));
        }
        for number in [0, 1, 255, 256, 65_535, 65_536, 99_999] {
            assert_eq!(nodes.lock(number).expect("still").sequence(), 1 + u64::from(number.cast_unsigned()));
        }
        assert!(
            nodes.lock(-1).is_none() && nodes.lock(100_000).is_none() && nodes.lock(RawFd::MAX).is_none()
        );
    }
}
