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
    /// Grows with every change of the back's kernel entry and never restarts.
    pub(crate) sequence: u64,
    /// Every live row of the number, whichever set serves it.
    pub(crate) rows: Chain,
    /// The union of the wishes of the armed rows that the back serves, as the kernel was last told.
    pub(crate) wished: Signals,
    /// The back's kernel set has an entry. True exactly while the back serves a row of this number.
    pub(crate) is_registered: bool,
    /// One of the back's rows is Edge or Level: the entry is edge-triggered. Otherwise it is one-shot.
    pub(crate) is_persistent: bool,
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
    fn every_number_below_the_limit_has_one_node() {
        let nodes = Nodes::new(100_000);
        for number in [0, 1, 255, 256, 65_535, 65_536, 99_999] {
            nodes.lock(number).expect("below the limit").sequence = 1 + u64::from(number.cast_unsigned());
        }
        for number in [0, 1, 255, 256, 65_535, 65_536, 99_999] {
            assert_eq!(nodes.lock(number).expect("still").sequence, 1 + u64::from(number.cast_unsigned()));
        }
        assert!(
            nodes.lock(-1).is_none() && nodes.lock(100_000).is_none() && nodes.lock(RawFd::MAX).is_none()
        );
    }
}
