//! The two wake flags: whether the watcher has to be woken, and whether a port's waiter has to be.
//!
//! Both follow one rule (clear the flag first, then look; never after): who goes to sleep raises its flag and looks
//! once more; who brings something brings it first and then reads the flag.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

const AWAKE: u64 = 0;

/// Until when the watcher sleeps. It is woken only for what is due earlier.
#[derive(Debug)]
pub(crate) struct ParkedUntil(AtomicU64);

impl ParkedUntil {
    /// A sleep that only a wake ends.
    pub(crate) const FOR_EVER: u64 = u64::MAX;

    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(AWAKE))
    }

    /// The watcher is about to sleep until `deadline_ns`; after this it must look at its commands once more.
    pub(crate) fn park(&self, deadline_ns: u64) {
        self.0.store(deadline_ns.max(1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The watcher is awake and will look at its commands before it sleeps.
    pub(crate) fn unpark(&self) {
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    /// After a command was queued that is due at `due_ns` (0: now): true if this caller has to write the wake.
    pub(crate) fn claim(&self, due_ns: u64) -> bool {
        fence(Ordering::SeqCst);
        let mut until = self.0.load(Ordering::SeqCst);
        while due_ns < until {
            match self.0.compare_exchange(until, AWAKE, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(seen) => until = seen,
            }
        }
        false
    }
}

const RUNNING: u32 = 0;
const PARKED: u32 = 1;
const IN_FRONT: u32 = 2;

/// Where the waiter of a port sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// Nowhere.
    Nobody,
    /// On the word itself.
    OnWord,
    /// In the port's front, which only its bell wakes.
    InFront,
}

/// Whether the waiter of a port is parked. Changed under the lock of the port's queue only; the word itself is what
/// the waiter parks on.
#[derive(Debug)]
pub(crate) struct Parked(AtomicU32);

impl Parked {
    pub(crate) const EXPECTED: u32 = PARKED;

    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(RUNNING))
    }

    /// The waiter found nothing, still holds the lock, and will park after it let go.
    pub(crate) fn raise(&self) {
        self.0.store(PARKED, Ordering::Relaxed);
    }

    /// The same for a waiter that will sleep in the front.
    pub(crate) fn raise_in_front(&self) {
        self.0.store(IN_FRONT, Ordering::Relaxed);
    }

    /// Somebody queued something and still holds the lock: says whom to wake after it let go. Merges: until the waiter
    /// sleeps again, nobody else has to. The waiter itself lowers its flag with this when it is back.
    pub(crate) fn take(&self) -> Sleeper {
        match self.0.swap(RUNNING, Ordering::Release) {
            PARKED => Sleeper::OnWord,
            IN_FRONT => Sleeper::InFront,
            _ => Sleeper::Nobody,
        }
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) == PARKED
    }

    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}
