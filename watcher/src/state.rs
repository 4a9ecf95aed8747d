//! The state word of a row: every race about a watch or a timer is decided by one change of it.
//!
//! ```text
//! 63          32 31    27 26        12 11       6 5          0
//! | generation  |  code  |   flags    |  wished  |  pending   |
//! ```
//!
//! Ready, Deadline, unwatch and Ended race for one word (contract C5): whoever changes it first wins, and the
//! others see that and do nothing. A watch of the back that has nothing undelivered is changed under its node's lock
//! alone, so there a plain store is enough; everything else is a compare-exchange.

use handle_watcher_wire::{Code, Mode, Signals};

use crate::outcome::{Delivery, Outcome, Taken};
use crate::sync::{AtomicU64, Ordering};

const PENDING_SHIFT: u32 = 0;
const WISHED_SHIFT: u32 = 6;
const CODE_SHIFT: u32 = 27;
const SIGNALS_MASK: u64 = 0x3f;
const CODE_MASK: u64 = 0x1f;
const GENERATION_SHIFT: u32 = 32;

/// Taken from the free list, known to one caller only. Cleared by that caller when it publishes the row.
const RESERVED: u64 = 1 << 12;
/// Published and not ended. Cleared by the end, whoever causes it.
const LIVE: u64 = 1 << 13;
/// May fire. Cleared when a Once watch fires, by a deadline, by pause and by the end.
const ARMED: u64 = 1 << 14;
/// Something is undelivered: the row is staged or stands in its port's queue. Cleared by whoever takes it out.
const QUEUED: u64 = 1 << 15;
/// A deadline is among what is undelivered. Never set without QUEUED.
const DEADLINE: u64 = 1 << 16;
/// Ended, and its last event is undelivered. Never set with LIVE. Cleared by the hand-out.
const ENDED: u64 = 1 << 17;
/// A Level row was handed out and its client has not come back for more. Cleared when it comes back.
const AWAY: u64 = 1 << 18;
/// A child process: handed out after data that was there before. Never changes.
const CHILD: u64 = 1 << 19;
const MODE_EDGE: u64 = 1 << 20;
const MODE_LEVEL: u64 = 1 << 21;
const KIND_TIMER: u64 = 1 << 22;
const KIND_WAKE: u64 = 1 << 23;
/// The port's front serves the row, not the back. Changed only under the lock of the descriptor's node.
const FRONT: u64 = 1 << 24;
/// A Level row was told of a hang-up or an error that nobody asked for, and stays silent until something asked for
/// comes, which clears it, as a change does.
const TOLD: u64 = 1 << 25;

/// Told whether asked for or not; nobody can consume them (contract C2, C6).
pub(crate) const ALWAYS_TOLD: Signals = Signals::PEER_CLOSED.union(Signals::ERROR);

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Watch,
    Timer,
    Wake,
}

/// One value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    /// A row that is free, with the generation its next owner will have.
    pub(crate) fn free(generation: u32) -> Self {
        Self(u64::from(generation) << GENERATION_SHIFT)
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }

    fn signals_at(self, shift: u32) -> Signals {
        let bits = u8::try_from(self.0 >> shift & SIGNALS_MASK).unwrap_or(0);
        Signals::from_bits_truncate(bits)
    }

    fn with_signals_at(self, shift: u32, signals: Signals) -> Self {
        Self(self.0 & !(SIGNALS_MASK << shift) | (u64::from(signals.bits()) & SIGNALS_MASK) << shift)
    }

    pub(crate) fn generation(self) -> u32 {
        u32::try_from(self.0 >> GENERATION_SHIFT).unwrap_or(0)
    }

    pub(crate) fn pending(self) -> Signals {
        self.signals_at(PENDING_SHIFT)
    }

    pub(crate) fn wished(self) -> Signals {
        self.signals_at(WISHED_SHIFT)
    }

    fn with_pending(self, signals: Signals) -> Self {
        self.with_signals_at(PENDING_SHIFT, signals)
    }

    /// What of `ready` this row is to be told, and the row after it. Nothing if it is not armed, if nothing of it was
    /// asked for or is always told, or if a Level row was told already of what nobody can consume (contract C6).
    fn hit(self, ready: Signals) -> Option<(Signals, Self)> {
        let hit = ready & (self.wished() | ALWAYS_TOLD);
        let is_level = self.mode() == Mode::Level;
        let is_asked = hit.intersects(self.wished());
        if !self.has(ARMED) || hit.is_empty() || (is_level && !is_asked && self.has(TOLD)) {
            return None;
        }
        let fired = match self.mode() {
            Mode::Once => self.without(ARMED),
            Mode::Edge => self,
            Mode::Level if is_asked => self.without(TOLD),
            Mode::Level => self.with(TOLD),
        };
        Some((hit, fired))
    }

    fn code(self) -> Code {
        let number = u8::try_from(self.0 >> CODE_SHIFT & CODE_MASK).unwrap_or(0);
        Code::from_number(number).unwrap_or(Code::Unknown)
    }

    pub(crate) fn mode(self) -> Mode {
        if self.has(MODE_EDGE) {
            Mode::Edge
        } else if self.has(MODE_LEVEL) {
            Mode::Level
        } else {
            Mode::Once
        }
    }

    pub(crate) fn kind(self) -> Kind {
        if self.has(KIND_TIMER) {
            Kind::Timer
        } else if self.has(KIND_WAKE) {
            Kind::Wake
        } else {
            Kind::Watch
        }
    }

    /// Over with its only event.
    pub(crate) fn is_one_shot_timer(self) -> bool {
        self.has(KIND_TIMER) && self.mode() == Mode::Once
    }

    pub(crate) fn is_reserved(self) -> bool {
        self.has(RESERVED)
    }

    pub(crate) fn is_live(self) -> bool {
        self.has(LIVE)
    }

    pub(crate) fn is_armed(self) -> bool {
        self.has(ARMED)
    }

    pub(crate) fn is_queued(self) -> bool {
        self.has(QUEUED)
    }

    pub(crate) fn is_in_front(self) -> bool {
        self.has(FRONT)
    }

    pub(crate) fn is_told(self) -> bool {
        self.has(TOLD)
    }

    pub(crate) fn is_child(self) -> bool {
        self.has(CHILD)
    }

    pub(crate) fn is_ended(self) -> bool {
        self.has(ENDED)
    }

    /// Nobody changes it but under its node's lock: a hand-out takes only what is queued, only who is away comes back,
    /// and only a front delivers without that lock.
    fn is_guarded(self) -> bool {
        self.kind() == Kind::Watch && self.0 & (QUEUED | AWAY | FRONT) == 0
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (RESERVED, "RESERVED"),
            (LIVE, "LIVE"),
            (ARMED, "ARMED"),
            (QUEUED, "QUEUED"),
            (DEADLINE, "DEADLINE"),
            (ENDED, "ENDED"),
            (AWAY, "AWAY"),
            (CHILD, "CHILD"),
            (FRONT, "FRONT"),
            (TOLD, "TOLD"),
        ];
        write!(formatter, "State(generation {}", self.generation())?;
        for (flag, name) in names {
            if self.has(flag) {
                write!(formatter, " {name}")?;
            }
        }
        write!(formatter, ", {:?} {:?}", self.kind(), self.mode())?;
        write!(formatter, ", wished {}, pending {})", self.wished(), self.pending())
    }
}

/// What a new row is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) wished: Signals,
    pub(crate) child: bool,
}

impl Role {
    fn flags(self) -> u64 {
        let mode = match self.mode {
            Mode::Once => 0,
            Mode::Edge => MODE_EDGE,
            Mode::Level => MODE_LEVEL,
        };
        let kind = match self.kind {
            Kind::Watch => 0,
            Kind::Timer => KIND_TIMER,
            Kind::Wake => KIND_WAKE,
        };
        mode | kind | if self.child { CHILD } else { 0 }
    }
}

/// The atomic state of one row. Safe from any thread; what changes a watch, except for `take`, `come_back` and `deliver`,
/// is called under the lock of its node.
#[derive(Debug)]
pub(crate) struct StateWord(AtomicU64);

impl StateWord {
    /// A free row whose first owner gets `generation`.
    pub(crate) fn new(generation: u32) -> Self {
        Self(AtomicU64::new(State::free(generation).0))
    }

    pub(crate) fn load(&self) -> State {
        State(self.0.load(Ordering::Acquire))
    }

    /// Reserves a free row for one caller, who is the only one to know it. Gives its generation.
    pub(crate) fn reserve(&self, role: Role) -> u32 {
        let generation = self.load().generation();
        let state = State(State::free(generation).0 | RESERVED | role.flags());
        self.0.store(state.with_signals_at(WISHED_SHIFT, role.wished).0, Ordering::Release);
        generation
    }

    /// Makes a reserved row live, and armed unless it wishes for nothing. False if it was abandoned meanwhile.
    pub(crate) fn publish(&self, generation: u32, in_front: bool) -> bool {
        self.update(generation, |state| {
            state.has(RESERVED).then(|| {
                let live = state.without(RESERVED).with(LIVE).with(if in_front { FRONT } else { 0 });
                if live.wished().is_empty() { live } else { live.with(ARMED) }
            })
        })
        .is_some()
    }

    /// Takes a reserved row away from the caller that reserved it: its `publish` will fail. A watch's under the lock of
    /// its node.
    pub(crate) fn abandon(&self, generation: u32) -> bool {
        self.update(generation, |state| state.has(RESERVED).then(|| state.without(RESERVED))).is_some()
    }

    /// Readiness came in. `ready` may hold more than was wished for.
    pub(crate) fn fire(&self, generation: u32, ready: Signals) -> Outcome {
        let mut outcome = Outcome::Ignored;
        self.update(generation, |state| {
            let Some((hit, fired)) = state.hit(ready) else {
                outcome = Outcome::Ignored;
                return None;
            };
            let waits = state.has(QUEUED) || state.has(AWAY);
            outcome = if waits { Outcome::Merged } else { Outcome::Queue };
            let pending = if waits { state.pending() | hit } else { hit };
            Some(fired.with_pending(pending).with(if state.has(AWAY) { 0 } else { QUEUED }))
        });
        outcome
    }

    /// Readiness came in at the front, whose own thread hands it out at once.
    pub(crate) fn deliver(&self, generation: u32, ready: Signals) -> Delivery {
        let mut delivery = Delivery::Nothing;
        self.update(generation, |state| {
            delivery = Delivery::Nothing;
            // Once it has moved away, others may change it without minding us.
            let (hit, fired) = state.hit(ready).filter(|_| state.has(FRONT))?;
            let turned = fired.has(TOLD) != state.has(TOLD);
            if state.has(QUEUED) {
                delivery = Delivery::Merged { turned };
                return Some(fired.with_pending(state.pending() | hit));
            }
            delivery = Delivery::Now { satisfied: hit, turned };
            Some(fired)
        });
        delivery
    }

    /// Moves a live row between back and front. Called under the lock of its node. What a Level row has undelivered is
    /// withdrawn when it comes to a front, which tells it again if it still holds; the caller has to take it out of the
    /// queue.
    pub(crate) fn set_in_front(&self, generation: u32, in_front: bool) {
        self.update(generation, |state| {
            let moved = state.without(FRONT | AWAY);
            let has_more = state.has(DEADLINE) || state.has(ENDED);
            Some(match (in_front, state.mode()) {
                (false, _) => moved,
                (true, Mode::Level) if !has_more => {
                    moved.without(QUEUED | TOLD).with_pending(Signals::empty()).with(FRONT)
                }
                (true, _) => moved.with(FRONT),
            })
        });
    }

    /// The deadline passed: disarms and tells.
    pub(crate) fn expire(&self, generation: u32) -> Outcome {
        let mut outcome = Outcome::Ignored;
        self.update(generation, |state| {
            if !state.has(ARMED) {
                outcome = Outcome::Ignored;
                return None;
            }
            outcome = if state.has(QUEUED) { Outcome::Merged } else { Outcome::Queue };
            let kept = if state.has(QUEUED) { state } else { state.with_pending(Signals::empty()) };
            Some(kept.without(ARMED | AWAY).with(DEADLINE | QUEUED))
        });
        outcome
    }

    /// Ends a live row; its Ended event will carry `code`.
    pub(crate) fn end(&self, generation: u32, code: Code) -> Outcome {
        let mut outcome = Outcome::Ignored;
        self.update(generation, |state| {
            if !state.has(LIVE) {
                outcome = Outcome::Ignored;
                return None;
            }
            outcome = if state.has(QUEUED) { Outcome::Merged } else { Outcome::Queue };
            let kept = if state.has(QUEUED) { state } else { state.with_pending(Signals::empty()) };
            let code = u64::from(code.number()) << CODE_SHIFT;
            Some(State(kept.without(LIVE | ARMED | AWAY).with(ENDED | QUEUED).0 | code))
        });
        outcome
    }

    /// The owner takes the row back: live, or ended with the Ended event undelivered. Nothing of it is delivered
    /// any more. Gives the state it had, or nothing if it is not the owner's (any more).
    pub(crate) fn detach(&self, generation: u32) -> Option<State> {
        self.update(generation, |state| {
            (state.has(LIVE) || state.has(ENDED)).then(|| State::free(state.generation()))
        })
    }

    /// Arms a live row that wishes for something; what nobody can consume is told once more. Gives the state it had.
    pub(crate) fn arm(&self, generation: u32) -> Option<State> {
        self.update(generation, |state| {
            (state.has(LIVE) && !state.wished().is_empty()).then(|| state.without(TOLD | AWAY).with(ARMED))
        })
    }

    /// Replaces the wishes, withdraws an undelivered Ready or Deadline, and arms what was armed or had fired
    /// undelivered. An empty set disarms. Gives the state it had.
    pub(crate) fn change(&self, generation: u32, wished: Signals) -> Option<State> {
        self.update(generation, |state| {
            state.has(LIVE).then(|| {
                let withdrawn =
                    state.without(QUEUED | DEADLINE | AWAY | ARMED | TOLD).with_pending(Signals::empty());
                let armed = state.has(ARMED) || state.has(QUEUED) || state.wished().is_empty();
                let changed = withdrawn.with_signals_at(WISHED_SHIFT, wished);
                if armed && !wished.is_empty() { changed.with(ARMED) } else { changed }
            })
        })
    }

    /// Takes what is undelivered, the Ready or Deadline first, the Ended after it. A one-shot timer is over with it:
    /// the row is the caller's to free.
    pub(crate) fn take(&self, generation: u32) -> Taken {
        let mut taken = Taken::Nothing;
        self.update(generation, |state| {
            if !state.has(QUEUED) {
                taken = Taken::Nothing;
                return None;
            }
            let (satisfied, ended) = (state.pending(), state.has(ENDED));
            if satisfied.is_empty() && !state.has(DEADLINE) {
                taken = Taken::Ended(state.code());
                return Some(State::free(state.generation()));
            }
            taken = if state.has(DEADLINE) {
                Taken::Deadline { satisfied, ended }
            } else {
                Taken::Ready { satisfied, ended }
            };
            if state.is_one_shot_timer() {
                return Some(State::free(state.generation()));
            }
            let away = state.mode() == Mode::Level && state.has(ARMED) && !state.has(FRONT);
            let rest = state.without(DEADLINE).with_pending(Signals::empty());
            Some(if ended { rest } else { rest.without(QUEUED).with(if away { AWAY } else { 0 }) })
        });
        taken
    }

    /// The client of a Level row came back for more. What came in while it was away is undelivered now: queue it. Gives
    /// `Ignored` if the row was not away.
    pub(crate) fn come_back(&self, generation: u32) -> Outcome {
        let mut outcome = Outcome::Ignored;
        self.update(generation, |state| {
            outcome = match (state.has(AWAY), state.pending().is_empty()) {
                (false, _) => Outcome::Ignored,
                (true, true) => Outcome::Merged,
                (true, false) => Outcome::Queue,
            };
            let queued = if outcome == Outcome::Queue { QUEUED } else { 0 };
            (outcome != Outcome::Ignored).then(|| state.without(AWAY).with(queued))
        });
        outcome
    }

    /// Gives the row to its next owner's generation. The caller owns the row alone.
    pub(crate) fn recycle(&self, generation: u32) {
        self.0.store(State::free(generation).0, Ordering::Release);
    }

    /// Applies `change` until it sticks or declines; gives the state before it. Another generation is another
    /// owner and declines at once.
    fn update(&self, generation: u32, mut change: impl FnMut(State) -> Option<State>) -> Option<State> {
        let mut current = self.load();
        loop {
            if current.generation() != generation {
                return None;
            }
            let next = change(current)?;
            if next == current {
                return Some(current);
            }
            if current.is_guarded() {
                self.0.store(next.0, Ordering::Release);
                return Some(current);
            }
            match self.0.compare_exchange_weak(current.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(current),
                Err(seen) => current = State(seen),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const READ: Signals = Signals::READABLE;

    fn live(mode: Mode, wished: Signals) -> (StateWord, u32) {
        let word = StateWord::new(9);
        let generation = word.reserve(Role { kind: Kind::Watch, mode, wished, child: false });
        assert!(word.publish(generation, false));
        (word, generation)
    }

    #[test]
    fn once_fires_once_per_arm() {
        let (word, generation) = live(Mode::Once, READ);
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
        assert_eq!(word.fire(generation, READ), Outcome::Ignored);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: READ, ended: false });
        assert_eq!(word.take(generation), Taken::Nothing);
        assert!(word.arm(generation).is_some());
        assert_eq!(word.fire(generation, READ | Signals::WRITABLE), Outcome::Queue);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: READ, ended: false });
    }

    #[test]
    fn re_arming_before_the_hand_out_merges() {
        let (word, generation) = live(Mode::Once, READ | Signals::WRITABLE);
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
        assert!(word.arm(generation).is_some());
        assert_eq!(word.fire(generation, Signals::WRITABLE), Outcome::Merged);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: READ | Signals::WRITABLE, ended: false });
    }

    #[test]
    fn a_hang_up_is_told_though_nobody_asked() {
        let (word, generation) = live(Mode::Edge, Signals::WRITABLE);
        assert_eq!(word.fire(generation, READ), Outcome::Ignored);
        assert_eq!(word.fire(generation, READ | Signals::PEER_CLOSED), Outcome::Queue);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: Signals::PEER_CLOSED, ended: false });
    }

    #[test]
    fn ready_then_ended_are_two_events_in_that_order() {
        let (word, generation) = live(Mode::Once, READ);
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
        assert_eq!(word.end(generation, Code::Aborted), Outcome::Merged);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: READ, ended: true });
        assert_eq!(word.take(generation), Taken::Ended(Code::Aborted));
        assert_eq!(word.take(generation), Taken::Nothing);
        assert_eq!(word.end(generation, Code::Cancelled), Outcome::Ignored, "a watch ends exactly once");
    }

    #[test]
    fn the_owner_can_take_back_an_undelivered_end_but_not_a_delivered_one() {
        let (word, generation) = live(Mode::Once, READ);
        assert_eq!(word.end(generation, Code::NotFound), Outcome::Queue);
        assert!(word.detach(generation).is_some());
        assert_eq!(word.take(generation), Taken::Nothing);
        assert!(word.detach(generation).is_none());
    }

    #[test]
    fn a_stale_generation_touches_nothing() {
        let (word, generation) = live(Mode::Once, READ);
        assert_eq!(word.fire(generation + 1, READ), Outcome::Ignored);
        assert!(word.detach(generation - 1).is_none());
        assert!(word.load().is_armed());
    }

    #[test]
    fn a_deadline_disarms_and_keeps_what_came_before_it() {
        let (word, generation) = live(Mode::Edge, READ);
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
        assert_eq!(word.expire(generation), Outcome::Merged);
        assert_eq!(word.fire(generation, READ), Outcome::Ignored);
        assert_eq!(word.take(generation), Taken::Deadline { satisfied: READ, ended: false });
        assert_eq!(word.expire(generation), Outcome::Ignored);
    }

    #[test]
    fn a_level_row_waits_for_its_client_to_come_back() {
        let (word, generation) = live(Mode::Level, READ);
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: READ, ended: false });
        assert_eq!(word.fire(generation, READ), Outcome::Merged, "noted, not queued");
        assert_eq!(word.come_back(generation), Outcome::Queue);
        assert_eq!(word.come_back(generation), Outcome::Ignored);
        assert_eq!(word.take(generation), Taken::Ready { satisfied: READ, ended: false });
        assert_eq!(word.come_back(generation), Outcome::Merged, "nothing came in while it was away");
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
    }

    #[test]
    fn change_replaces_withdraws_and_arms_again() {
        let (word, generation) = live(Mode::Once, READ);
        assert_eq!(word.fire(generation, READ), Outcome::Queue);
        assert!(word.change(generation, Signals::WRITABLE).is_some_and(State::is_queued));
        assert_eq!(word.take(generation), Taken::Nothing);
        assert_eq!(word.fire(generation, READ), Outcome::Ignored, "replaced, not joined");
        assert_eq!(word.fire(generation, Signals::WRITABLE), Outcome::Queue);
        assert!(word.change(generation, Signals::empty()).is_some());
        assert!(word.arm(generation).is_none(), "a paused watch is resumed by change, not by arm");
        assert!(word.change(generation, READ).is_some());
        assert!(word.load().is_armed());
    }

    #[test]
    fn an_abandoned_reservation_cannot_be_published() {
        let word = StateWord::new(1);
        let role = Role { kind: Kind::Timer, mode: Mode::Once, wished: READ, child: false };
        let generation = word.reserve(role);
        assert!(word.abandon(generation));
        assert!(!word.publish(generation, false));
    }
}
