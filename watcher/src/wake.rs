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
        self.0.store(deadline_ns.max(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The watcher is awake and will look at its commands before it sleeps. A caller that sees this late writes a wake
    /// too many, never one too few.
    pub(crate) fn unpark(&self) {
        self.0.store(AWAKE, Ordering::Release);
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
const CALLED: u32 = 3;

/// Where the waiter of a port sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// Nowhere.
    Nobody,
    /// On the word itself.
    OnWord,
    /// In the port's front, which only its bell wakes.
    InFront,
    /// Nowhere: it wants to be called.
    Called,
}

/// Whether the waiter of a port is parked; the word itself is what it parks on.
///
/// The waiter raises it and then looks at the count of what is queued once more; who posts writes the count and then
/// takes the flag. A fence stands between the two steps on both sides, so one of the two sees the other.
#[derive(Debug)]
pub(crate) struct Parked(AtomicU32);

impl Parked {
    pub(crate) const EXPECTED: u32 = PARKED;

    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(RUNNING))
    }

    /// The waiter is about to park on the word; it must look at the count once more.
    pub(crate) fn raise(&self) {
        self.raise_as(PARKED);
    }

    /// The waiter is about to sleep in the front; it must look at the count once more.
    pub(crate) fn raise_in_front(&self) {
        self.raise_as(IN_FRONT);
    }

    /// Nobody waits; the next thing that is queued calls a notifier. The caller must look at the count once more.
    pub(crate) fn raise_call(&self) {
        self.raise_as(CALLED);
    }

    /// The waiter is back, or does not sleep after all.
    pub(crate) fn lower(&self) {
        self.0.store(RUNNING, Ordering::Release);
    }

    /// Somebody queued something: says whom to wake. Merges: until the waiter sleeps again, nobody else has to.
    pub(crate) fn take(&self) -> Sleeper {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) == RUNNING {
            return Sleeper::Nobody;
        }
        match self.0.swap(RUNNING, Ordering::AcqRel) {
            PARKED => Sleeper::OnWord,
            IN_FRONT => Sleeper::InFront,
            CALLED => Sleeper::Called,
            _ => Sleeper::Nobody,
        }
    }

    fn raise_as(&self, flag: u32) {
        self.0.store(flag, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) == PARKED
    }

    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}
