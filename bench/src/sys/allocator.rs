//! The system's allocator with counters. They count only after `start_counting`, so that no other bench pays for them.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The allocator of the program.
#[derive(Debug)]
pub(crate) struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static BY_CLIENTS: AtomicU64 = AtomicU64::new(0);
static BY_OTHERS: AtomicU64 = AtomicU64::new(0);
/// Bytes allocated since counting began; wraps around, because what was allocated before may be freed after.
static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Constant and without a destructor: reading it never allocates, so the allocator may.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// What was allocated since counting began, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocations {
    /// Calls from threads marked as clients.
    pub(crate) by_clients: u64,
    /// Calls from every other thread: watcher, reactor, workers.
    pub(crate) by_others: u64,
    /// Bytes allocated minus bytes freed.
    pub(crate) live_bytes: i64,
}

impl Allocations {
    /// What was allocated since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            by_clients: self.by_clients - earlier.by_clients,
            by_others: self.by_others - earlier.by_others,
            live_bytes: self.live_bytes - earlier.live_bytes,
        }
    }
}

/// Begins counting, in the whole process and for good.
pub(crate) fn start_counting() {
    ON.store(true, Relaxed);
}

/// Whether `start_counting` was called.
pub(crate) fn is_counting() -> bool {
    ON.load(Relaxed)
}

/// From now on the calling thread's allocations count as a client's.
pub(crate) fn mark_client_thread() {
    IS_CLIENT.set(true);
}

/// The counts so far.
pub(crate) fn allocations() -> Allocations {
    let live = ALLOCATED_BYTES.load(Relaxed).wrapping_sub(FREED_BYTES.load(Relaxed));
    Allocations {
        by_clients: BY_CLIENTS.load(Relaxed),
        by_others: BY_OTHERS.load(Relaxed),
        live_bytes: live.cast_signed(),
    }
}

fn count_allocation(bytes: usize) {
    if ON.load(Relaxed) {
        // A thread whose locals are gone already is ending; it is nobody's client any more.
        let by = if IS_CLIENT.try_with(Cell::get).unwrap_or(false) { &BY_CLIENTS } else { &BY_OTHERS };
        by.fetch_add(1, Relaxed);
        ALLOCATED_BYTES.fetch_add(bytes as u64, Relaxed);
    }
}

fn count_free(bytes: usize) {
    if ON.load(Relaxed) {
        FREED_BYTES.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: every method passes its arguments unchanged to `System` and returns what it returned; counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract, which is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count_free(layout.size());
        count_allocation(new_size);
        // SAFETY: `pointer` came from `System` through us, with this layout; the caller vouches for `new_size`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_free(layout.size());
        // SAFETY: `pointer` came from `System` through us, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
