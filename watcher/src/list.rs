//! Doubly linked lists through the rows themselves: joining and leaving cost no allocation and no search.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::rows::{Row, Rows};

/// No row. Slots count from 1.
pub(crate) const NIL: u32 = 0;

/// The links of one row in one list. Changed only under the lock that guards the list.
#[derive(Debug, Default)]
pub(crate) struct Links {
    next: AtomicU32,
    previous: AtomicU32,
}

impl Links {
    /// The row after this one.
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// For lists that are only ever entered and left at the head.
    pub(crate) fn set_next(&self, slot: u32) {
        self.next.store(slot, Ordering::Relaxed);
    }
}

/// A chain that is entered at its head and left anywhere: four bytes, where a [`List`] has twelve.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Chain {
    head: u32,
}

impl Chain {
    pub(crate) fn head(self) -> u32 {
        self.head
    }

    pub(crate) fn is_empty(self) -> bool {
        self.head == NIL
    }

    pub(crate) fn push(&mut self, rows: &Rows, slot: u32, pick: Pick) {
        let links = pick(rows.row(slot));
        links.next.store(self.head, Ordering::Relaxed);
        links.previous.store(NIL, Ordering::Relaxed);
        if self.head != NIL {
            pick(rows.row(self.head)).previous.store(slot, Ordering::Relaxed);
        }
        self.head = slot;
    }

    /// Takes a row out that is in this chain.
    pub(crate) fn remove(&mut self, rows: &Rows, slot: u32, pick: Pick) {
        let links = pick(rows.row(slot));
        let next = links.next.swap(NIL, Ordering::Relaxed);
        let previous = links.previous.swap(NIL, Ordering::Relaxed);
        match previous {
            NIL => self.head = next,
            previous => pick(rows.row(previous)).next.store(next, Ordering::Relaxed),
        }
        if next != NIL {
            pick(rows.row(next)).previous.store(previous, Ordering::Relaxed);
        }
    }
}

/// One list; which of a row's links it runs through is given by `pick`, and must be the same at every call.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    length: u32,
}

type Pick = fn(&Row) -> &Links;

impl List {
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    pub(crate) fn len(&self) -> u32 {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    pub(crate) fn contains(&self, rows: &Rows, slot: u32, pick: Pick) -> bool {
        self.head == slot || pick(rows.row(slot)).previous.load(Ordering::Relaxed) != NIL
    }

    pub(crate) fn push_back(&mut self, rows: &Rows, slot: u32, pick: Pick) {
        let links = pick(rows.row(slot));
        links.next.store(NIL, Ordering::Relaxed);
        links.previous.store(self.tail, Ordering::Relaxed);
        match self.tail {
            NIL => self.head = slot,
            tail => pick(rows.row(tail)).next.store(slot, Ordering::Relaxed),
        }
        self.tail = slot;
        self.length += 1;
    }

    /// Takes a row out that is in this list.
    pub(crate) fn remove(&mut self, rows: &Rows, slot: u32, pick: Pick) {
        let links = pick(rows.row(slot));
        let next = links.next.swap(NIL, Ordering::Relaxed);
        let previous = links.previous.swap(NIL, Ordering::Relaxed);
        match previous {
            NIL => self.head = next,
            previous => pick(rows.row(previous)).next.store(next, Ordering::Relaxed),
        }
        match next {
            NIL => self.tail = previous,
            next => pick(rows.row(next)).previous.store(previous, Ordering::Relaxed),
        }
        self.length -= 1;
    }
}
