//! The front: a poll set that the port's own waiter waits on, so that a hot handle costs no hop.
//!
//! The set holds kernel entries of some of the client's watches and one bell, an eventfd that whoever posts to the
//! port's queue rings when the waiter sleeps in the set. A port that a foreign loop polls has an outer set around it,
//! whose descriptor stays the same when the inner set has to be rebuilt.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use handle_watcher_wire::Mode;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::sys::epoll::{ARRIVALS_TOKEN, Epoll, FormerSet, WAKER_TOKEN};
use crate::sys::eventfd::EventFd;

/// What an event's token carries besides its target: 31 bits of sequence, and above them whether the target is a row.
const SEQUENCE_MASK: u32 = u32::MAX >> 1;
const OF_ROW: u64 = 1 << 63;

/// Whose events an entry of a front reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One row alone, by its slot.
    Row(u32),
    /// Several rows of one descriptor number.
    Number(RawFd),
}

/// Which watches a waiting client's own thread serves. All policies keep the same contract; they differ in speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrontPolicy {
    /// None, except Level watches of a port whose descriptor was asked for, which only the kernel's own level trigger
    /// can serve exactly.
    Off,
    /// Level watches from the start; a Once watch while it is hot, decided at its own re-arm.
    #[default]
    Adaptive,
    /// Every watch.
    Always,
}

/// Where a client's watches may be served: its policy and its front, if it has one. Read under a node's lock, so that
/// whoever changes it and then takes each node's lock knows that nobody acts on what it was before.
#[derive(Debug)]
pub(crate) struct Seat {
    policy: FrontPolicy,
    /// Nobody waits at the port: whatever the policy, the back serves everything.
    is_vacant: AtomicBool,
    /// The client is gone; its index may be another's by now.
    is_closed: AtomicBool,
    front: OnceLock<Arc<Front>>,
}

impl Seat {
    pub(crate) fn new(policy: FrontPolicy) -> Self {
        Self {
            policy,
            is_vacant: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            front: OnceLock::new(),
        }
    }

    pub(crate) fn policy(&self) -> FrontPolicy {
        if self.is_vacant() || self.is_lost() { FrontPolicy::Off } else { self.policy }
    }

    pub(crate) fn front(&self) -> Option<&Arc<Front>> {
        self.front.get()
    }

    /// The front it has from now on: this one, unless it has one.
    pub(crate) fn set_front(&self, front: Arc<Front>) {
        self.front.get_or_init(|| front);
    }

    pub(crate) fn is_vacant(&self) -> bool {
        self.is_vacant.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.front.get().is_some_and(|front| front.is_lost())
    }

    pub(crate) fn set_vacant(&self, is_vacant: bool) {
        self.is_vacant.store(is_vacant, Ordering::SeqCst);
    }

    /// True if a watch of this mode belongs in the front from the start.
    pub(crate) fn belongs_in_front(&self, mode: Mode) -> bool {
        match self.policy() {
            FrontPolicy::Off => {
                let is_exposed = self.front.get().is_some_and(|front| front.is_exposed());
                mode == Mode::Level && is_exposed && !self.is_vacant() && !self.is_lost()
            }
            FrontPolicy::Adaptive => mode == Mode::Level,
            FrontPolicy::Always => true,
        }
    }

    /// The front, if a watch of this mode belongs there from the start.
    pub(crate) fn front_from_start(&self, mode: Mode) -> Option<&Front> {
        self.front.get().map(|front| &**front).filter(|_| self.belongs_in_front(mode))
    }
}

/// The front of one port.
#[derive(Debug)]
pub(crate) struct Front {
    port: u32,
    /// Its descriptor number stays; the set behind it is replaced only by the port's own thread, when closed numbers
    /// whose files live on have poisoned it.
    inner: Epoll,
    /// While that goes on, the set that was behind it before: an entry that was not carried over yet is in here, and
    /// only so proves which file its number meant.
    former: Mutex<Option<FormerSet>>,
    bell: EventFd,
    /// Grows with every change of a kernel entry; names the registration an event is of.
    sequence: AtomicU32,
    /// A service's event socket, which is kept open longer than this.
    arrivals: OnceLock<RawFd>,
    /// The set that foreign loops poll, once somebody asked for it.
    outer: OnceLock<Epoll>,
    /// It was poisoned when no descriptor was left to make another: the back serves everything.
    is_lost: AtomicBool,
}

impl Front {
    pub(crate) fn new(port: u32) -> std::io::Result<Self> {
        let bell = EventFd::new()?;
        let inner = Self::make_inner(&bell, None)?;
        Ok(Self {
            port,
            inner,
            former: Mutex::default(),
            bell,
            sequence: AtomicU32::new(0),
            arrivals: OnceLock::new(),
            outer: OnceLock::new(),
            is_lost: AtomicBool::new(false),
        })
    }

    fn make_inner(bell: &EventFd, arrivals: Option<RawFd>) -> std::io::Result<Epoll> {
        let inner = Epoll::new()?;
        inner.add(bell.number(), EventFlags::IN | EventFlags::ET, WAKER_TOKEN)?;
        if let Some(number) = arrivals {
            inner.add(number, EventFlags::IN, ARRIVALS_TOKEN)?;
        }
        Ok(inner)
    }

    /// Reports a service's events from now on, for as long as some wait in the socket.
    pub(crate) fn listen_to(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = *self.arrivals.get_or_init(|| socket.as_raw_fd());
        self.inner.add(number, EventFlags::IN, ARRIVALS_TOKEN)
    }

    /// The index of the port it belongs to.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Nothing is served here from now on. The caller takes out what is.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    /// The set to wait on.
    pub(crate) fn inner(&self) -> &Epoll {
        &self.inner
    }

    /// Adds (`is_new`) or modifies the entry of a number; gives the sequence its events will carry. Called under the
    /// number's node lock.
    pub(crate) fn register(
        &self,
        number: RawFd,
        flags: EventFlags,
        target: Target,
        is_new: bool,
    ) -> Result<u32, Errno> {
        let sequence = self.next_sequence();
        let token = Self::encode(target, sequence);
        let inner = &self.inner;
        let result = if is_new {
            match inner.add(number, flags, token) {
                // Watched here before under this number, closed and duplicated back: the entry lived on.
                Err(Errno::EXIST) => inner.modify(number, flags, token),
                other => other,
            }
        } else {
            inner.modify(number, flags, token)
        };
        match result {
            // The set is new and this entry has not been carried over yet.
            Err(Errno::NOENT) => self.carry_over(number, flags, token)?,
            other => other?,
        }
        Ok(sequence)
    }

    /// Adds an entry of the former set to the new one. Added first, left then: that it can be left proves that what was
    /// added is the same file.
    fn carry_over(&self, number: RawFd, flags: EventFlags, token: u64) -> Result<(), Errno> {
        let former = self.former();
        let former = former.as_ref().ok_or(Errno::NOENT)?;
        self.inner.add(number, flags, token)?;
        former.delete(number).inspect_err(|_| {
            // If the number is closed by now there is nothing to take out.
            let _: Result<(), Errno> = self.inner.delete(number);
        })
    }

    fn former(&self) -> MutexGuard<'_, Option<FormerSet>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the set, and the former one, while there is one, about an entry that was not carried over yet. No rebuild
    /// begins or ends meanwhile: what a proof adds it must find again in the same set, to take it out.
    fn ask(
        &self,
        inner: impl Fn(&Epoll) -> Result<(), Errno>,
        former: impl Fn(&FormerSet) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let kept = self.former();
        match (inner(&self.inner), &*kept) {
            (Err(Errno::NOENT), Some(kept)) => former(kept),
            (found, _) => found,
        }
    }

    /// Takes a number's entry out. An error means that the number no longer names the file that was added.
    pub(crate) fn delete(&self, number: RawFd) -> Result<(), Errno> {
        self.ask(|inner| inner.delete(number), |former| former.delete(number))
    }

    /// Whether the number is still the file of its entry.
    pub(crate) fn prove(&self, number: RawFd) -> Result<(), Errno> {
        self.ask(|inner| inner.prove(number), |former| former.prove(number))
    }

    /// Never 0, which rows have that never had an entry.
    fn next_sequence(&self) -> u32 {
        loop {
            let sequence = self.sequence.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & SEQUENCE_MASK;
            if sequence != 0 {
                return sequence;
            }
        }
    }

    fn encode(target: Target, sequence: u32) -> u64 {
        let (kind, value) = match target {
            Target::Row(slot) => (OF_ROW, slot),
            Target::Number(number) => (0, number.cast_unsigned()),
        };
        kind | u64::from(sequence) << 32 | u64::from(value)
    }

    /// The target and the sequence of an event's token.
    pub(crate) fn decode(token: u64) -> (Target, u32) {
        let value = u32::try_from(token & u64::from(u32::MAX)).unwrap_or(0);
        let sequence = u32::try_from(token >> 32).unwrap_or(0) & SEQUENCE_MASK;
        let target =
            if token & OF_ROW == 0 { Target::Number(value.cast_signed()) } else { Target::Row(value) };
        (target, sequence)
    }

    /// What a waiter sleeps at when the set is given up.
    pub(crate) fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Makes the sleeping waiter, or the foreign loop, come and look.
    pub(crate) fn ring(&self) -> Result<(), Errno> {
        self.bell.raise()
    }

    /// Takes back a ring that nobody heard.
    pub(crate) fn hush(&self) {
        self.bell.lower();
    }

    /// The stable descriptor that foreign loops poll. The first call makes it.
    pub(crate) fn expose(&self) -> std::io::Result<BorrowedFd<'_>> {
        if self.outer.get().is_none() {
            let outer = Epoll::new()?;
            outer.add_set(&self.inner, EventFlags::IN)?;
            // Only the port's own thread exposes it, so nobody was faster.
            let _: Result<(), Epoll> = self.outer.set(outer);
        }
        self.outer.get().map(AsFd::as_fd).ok_or_else(|| std::io::Error::other("the outer set was not kept"))
    }

    /// Closes what it has in a forked child.
    pub(crate) fn close_in_child(&self) {
        self.inner.close_in_child();
        self.bell.close_in_child();
        if let Some(outer) = self.outer.get() {
            outer.close_in_child();
        }
    }

    /// The set is poisoned and no descriptor is left to make another: the foreign loop polls the bell alone.
    pub(crate) fn give_up(&self) {
        // What was rung edge-triggered was never lowered; from here on it is level-triggered. The caller settles it.
        self.bell.lower();
        if let Some(outer) = self.outer.get() {
            // Neither can fail in a way that somebody could mend: both are ours and open.
            let _: Result<(), Errno> = outer.delete_set(&self.inner);
            let _: Result<(), Errno> = outer.add(self.bell.number(), EventFlags::IN, WAKER_TOKEN);
            if let Some(&number) = self.arrivals.get() {
                let _: Result<(), Errno> = outer.add(number, EventFlags::IN, ARRIVALS_TOKEN);
            }
        }
    }

    pub(crate) fn is_exposed(&self) -> bool {
        self.outer.get().is_some()
    }

    /// Puts an empty set in the place of a poisoned one. The caller carries the entries over, then calls
    /// [`rebuilt`](Self::rebuilt).
    pub(crate) fn rebuild(&self) -> std::io::Result<()> {
        // What was rung before is not reported again; the caller settles the bell afterwards.
        self.bell.lower();
        let fresh = Self::make_inner(&self.bell, self.arrivals.get().copied())?;
        // Held, so that nobody who looks for an entry finds the same set twice.
        let mut former = self.former();
        let kept = self.inner.keep()?;
        if let Some(outer) = self.outer.get() {
            // It is about to be closed anyway; an error would mean that it is out already.
            let _: Result<(), Errno> = outer.delete_set(&self.inner);
        }
        self.inner.replace(&fresh)?;
        *former = Some(kept);
        drop(former);
        if let Some(outer) = self.outer.get() {
            outer.add_set(&self.inner, EventFlags::IN)?;
        }
        Ok(())
    }

    pub(crate) fn rebuilt(&self) {
        *self.former() = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// An entry that was not carried over yet is proved as one that was: its number may mean another file by now.
    #[test]
    fn a_rebuild_knows_the_file_of_every_entry() {
        let front = Front::new(0).expect("a front");
        let file = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let (kept, mut replaced) = (file(), file());
        let register = |file: &OwnedFd, is_new| {
            let number = file.as_raw_fd();
            front.register(number, EventFlags::IN, Target::Number(number), is_new)
        };
        for file in [&kept, &replaced] {
            register(file, true).expect("an entry");
        }
        rustix::io::dup3(file(), &mut replaced, rustix::io::DupFlags::CLOEXEC).expect("another file");
        front.rebuild().expect("a fresh set");
        assert_eq!(front.prove(kept.as_raw_fd()), Ok(()));
        assert_eq!(front.prove(replaced.as_raw_fd()), Err(Errno::NOENT));
        assert!(register(&kept, false).is_ok(), "carried over");
        assert_eq!(register(&replaced, false), Err(Errno::NOENT));
        assert_eq!(front.delete(replaced.as_raw_fd()), Err(Errno::NOENT));
        front.rebuilt();
        assert_eq!(front.prove(kept.as_raw_fd()), Ok(()), "in the new set");
        assert_eq!(front.delete(kept.as_raw_fd()), Ok(()));
        assert_eq!(front.prove(kept.as_raw_fd()), Err(Errno::NOENT));
    }

    #[test]
    fn a_token_keeps_its_target_and_is_never_the_bells() {
        for target in [Target::Row(1), Target::Row(u32::MAX), Target::Number(0), Target::Number(RawFd::MAX)] {
            for sequence in [1, SEQUENCE_MASK] {
                let token = Front::encode(target, sequence);
                assert_eq!(Front::decode(token), (target, sequence));
            }
        }
        assert_ne!(Front::encode(Target::Row(u32::MAX - 1), SEQUENCE_MASK), WAKER_TOKEN);
    }
}
