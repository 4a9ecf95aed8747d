//! The wait set: every row, and the kernel entries that serve it, in the back or in its port's front (contract C3,
//! C6, C7).
//!
//! In each kernel set several watches of one number share one entry. A report carries the number and the sequence of
//! the entry's last change; one that is out of date is dropped, so no event of an old registration reaches a new one.
//! Everything here happens under the lock of the number's node; what has to be told to ports is collected and posted
//! by the caller after it let go.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, RwLock};

use handle_watcher_wire::{Code, Mode, Result, Signals, Status};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::events::{Events, ready_event};
use crate::front::{Front, FrontPolicy};
use crate::heat::Heat;
use crate::list::NIL;
use crate::nodes::{MOST_NODES, Node, Nodes};
use crate::rows::{NO_DEADLINE, Reference, Row, Rows};
use crate::state::{Delivery, Outcome, State};
use crate::sys::descriptor;
use crate::sys::epoll::{Epoll, KernelEvent, WAKER_TOKEN};

const SEQUENCE_BITS: u32 = 40;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// Rows that something ended, and that the caller has to post to their ports after it let go of every lock.
pub(crate) type Ended = Vec<Reference>;

/// What was found behind one kernel event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    Waker,
    Stale,
    Rows,
}

/// What a watch is to wish for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    These(Signals),
    /// What it wished for before it was paused.
    Remembered,
}

/// One look at a front: where its events go.
#[derive(Debug)]
pub(crate) struct FrontPass<'a> {
    pub(crate) events: &'a mut Events,
    /// What had no room, and has to be posted to the port's queue.
    pub(crate) spilled: Vec<Reference>,
    /// Some entry was changed between silent and level-triggered, which makes the kernel report it once more.
    pub(crate) has_turned: bool,
    /// Only such repeated reports are wanted: what Level watches hold was told in the pass before.
    pub(crate) is_second: bool,
}

impl FrontPass<'_> {
    /// Gives true if the row's entry has to be turned.
    fn deliver(&mut self, row: &Row, reference: Reference, state: State, ready: Signals) -> bool {
        let is_level = state.mode() == Mode::Level;
        if self.is_second && is_level && !state.is_told() {
            return false;
        }
        if self.events.has_room() {
            if let Delivery::Now { satisfied, turned } = row.state.deliver(reference.generation, ready) {
                self.events.push(ready_event(row, reference, satisfied));
                return turned;
            }
        } else if !is_level && row.state.fire(reference.generation, ready) == Outcome::Queue {
            // The kernel reports a level-triggered entry again; any other would be lost.
            self.spilled.push(reference);
        }
        false
    }
}

/// Where a client's watches may be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home<'a> {
    pub(crate) policy: FrontPolicy,
    pub(crate) front: Option<&'a Front>,
}

impl<'a> Home<'a> {
    /// The front, if a watch of this mode belongs there from the start.
    fn front_from_start(self, mode: Mode) -> Option<&'a Front> {
        let front = self.front?;
        let belongs = match self.policy {
            FrontPolicy::Off => mode == Mode::Level && front.is_exposed(),
            FrontPolicy::Adaptive => mode == Mode::Level,
            FrontPolicy::Always => true,
        };
        belongs.then_some(front)
    }
}

#[derive(Debug)]
pub(crate) struct WaitSet {
    pub(crate) rows: Rows,
    nodes: Nodes,
    back: Epoll,
    /// By port index. Only for what concerns another client's front; a client knows its own.
    fronts: RwLock<Vec<Option<Arc<Front>>>>,
}

impl WaitSet {
    /// A wait set for descriptor numbers below `number_limit`.
    pub(crate) fn new(rows: Rows, number_limit: usize) -> std::io::Result<Self> {
        Ok(Self { rows, nodes: Nodes::new(number_limit), back: Epoll::new()?, fronts: RwLock::default() })
    }

    pub(crate) fn back(&self) -> &Epoll {
        &self.back
    }

    /// Makes a port's front known, or forgets it.
    pub(crate) fn set_front(&self, port: u32, front: Option<Arc<Front>>) {
        let mut fronts = self.fronts.write().unwrap_or_else(PoisonError::into_inner);
        let index = port as usize;
        if fronts.len() <= index {
            fronts.resize_with(index + 1, || None);
        }
        fronts[index] = front;
    }

    fn front_of(&self, row: &Row) -> Option<Arc<Front>> {
        let fronts = self.fronts.read().unwrap_or_else(PoisonError::into_inner);
        fronts.get(row.port.load(Ordering::Relaxed) as usize).cloned().flatten()
    }

    /// Publishes a reserved row and registers it with the kernel. On an error the row is the caller's to free.
    pub(crate) fn attach(&self, reference: Reference, home: Home<'_>, ended: &mut Ended) -> Result<()> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        if !node.rows.is_empty() {
            self.prove(number, &mut node, ended);
        }
        let state = row.state.load();
        // A child is told after data, which only the queue can do.
        let stays = state.wished().is_empty() || state.is_child();
        let front = home.front_from_start(state.mode()).filter(|_| !stays);
        let front = front.filter(|front| self.fits(&node, front, state.mode()));
        if !row.state.publish(reference.generation, front.is_some()) {
            return Err(Status::new(Code::Unavailable, "the client was closed while the watch was being added"));
        }
        node.rows.push(&self.rows, reference.slot, Row::node_links);
        let result = match front {
            Some(front) => self.register_front(number, &node, front),
            None => self.register_back(number, &mut node),
        };
        result.map_err(|errno| {
            node.rows.remove(&self.rows, reference.slot, Row::node_links);
            row.state.detach(reference.generation);
            refusal(errno, number)
        })
    }

    /// Arms a row: a condition that holds already is reported at once. Sets or clears its deadline, and gives the one
    /// it had. This is where a Once watch moves between back and front.
    ///
    /// # Errors
    /// `NOT_FOUND` if the row is not the caller's (any more) or its descriptor is gone, which ends it;
    /// `FAILED_PRECONDITION` if it is paused.
    pub(crate) fn arm(
        &self,
        reference: Reference,
        deadline_ns: u64,
        home: Home<'_>,
        ended: &mut Ended,
    ) -> Result<u64> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let Some(before) = row.state.arm(reference.generation) else {
            let state = row.state.load();
            let is_paused = state.generation() == reference.generation && state.is_live();
            return Err(if is_paused { paused() } else { gone(reference) });
        };
        let deadline_before = row.deadline_ns.swap(deadline_ns, Ordering::Relaxed);
        match self.wanted_front(row, before, home).filter(|front| self.fits(&node, front, before.mode())) {
            Some(front) if !before.is_in_front() => {
                self.move_to_front(number, &mut node, row, reference, front, ended);
            }
            None if before.is_in_front() && !before.is_armed() => {
                self.move_to_back(number, &mut node, row, reference, ended);
            }
            _ => self.apply(number, &mut node, row, ended),
        }
        if row.state.load().is_ended() {
            return Err(closed_behind(number));
        }
        Ok(deadline_before)
    }

    /// Replaces what a row wishes for; an undelivered event of it is withdrawn. Gives the state it had, and the deadline
    /// that a pause took away.
    pub(crate) fn change(
        &self,
        reference: Reference,
        wish: Wish,
        home: Home<'_>,
        ended: &mut Ended,
    ) -> Result<(State, u64)> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let state = row.state.load();
        if state.generation() != reference.generation || !state.is_live() {
            return Err(gone(reference));
        }
        let wished = match wish {
            Wish::These(signals) => signals,
            Wish::Remembered if !state.wished().is_empty() => return Ok((State::free(0), NO_DEADLINE)),
            Wish::Remembered if row.remembered().is_empty() => return Err(never_wished(reference)),
            Wish::Remembered => row.remembered(),
        };
        let before = row.state.change(reference.generation, wished).ok_or_else(|| gone(reference))?;
        let mut deadline_before = NO_DEADLINE;
        if wished.is_empty() {
            deadline_before = row.deadline_ns.swap(NO_DEADLINE, Ordering::Relaxed);
            if !before.wished().is_empty() {
                row.remember(before.wished());
            }
        }
        let front = home.front_from_start(before.mode()).filter(|_| !wished.is_empty() && !before.is_child());
        match front.filter(|front| self.fits(&node, front, before.mode())) {
            Some(front) if !before.is_in_front() => {
                self.move_to_front(number, &mut node, row, reference, front, ended);
            }
            // A paused watch waits in the back, where its entry is silent and still proves which file it is of.
            None if before.is_in_front() && wished.is_empty() => {
                self.move_to_back(number, &mut node, row, reference, ended);
            }
            _ => self.apply(number, &mut node, row, ended),
        }
        if row.state.load().is_ended() {
            return Err(closed_behind(number));
        }
        Ok((before, deadline_before))
    }

    /// Tells the kernel about an armed row once more: a condition that holds is reported again, and a number that is no
    /// longer our file ends its rows.
    pub(crate) fn refresh(&self, reference: Reference, ended: &mut Ended) {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let state = row.state.load();
        if state.generation() == reference.generation && state.is_armed() {
            self.apply(number, &mut node, row, ended);
        }
    }

    /// Takes a row away from its node and from the kernel. Gives the state it had.
    pub(crate) fn detach(&self, reference: Reference, ended: &mut Ended) -> Result<State> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let before = row.state.detach(reference.generation).ok_or_else(|| gone(reference))?;
        if before.is_live() {
            node.rows.remove(&self.rows, reference.slot, Row::node_links);
            self.forget(number, &mut node, row, before, ended);
        }
        Ok(before)
    }

    /// Ends one live row. False if it was not live (any more).
    pub(crate) fn end(&self, reference: Reference, code: Code, ended: &mut Ended) -> bool {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return false };
        let before = row.state.load();
        let outcome = row.state.end(reference.generation, code);
        if outcome == Outcome::Ignored {
            return false;
        }
        if outcome == Outcome::Queue {
            ended.push(reference);
        }
        node.rows.remove(&self.rows, reference.slot, Row::node_links);
        self.forget(number, &mut node, row, before, ended);
        true
    }

    /// Ends every row of a number that its owner is about to close, and takes it out of every kernel set.
    pub(crate) fn close(&self, number: RawFd, code: Code, ended: &mut Ended) {
        let Ok(mut node) = self.lock(number) else { return };
        self.visit(&node, |_, row| {
            if row.state.load().is_in_front()
                && let Some(front) = self.front_of(row)
            {
                // Several rows may share the entry; only the first finds it.
                let _: Result<(), Errno> = front.delete(number);
            }
        });
        self.unregister_back(number, &mut node);
        self.end_rows(&mut node, code, ended);
    }

    /// The deadline of a row came. Tells what to do with the row; nothing if it was armed anew meanwhile.
    pub(crate) fn expire(&self, reference: Reference, deadline_ns: u64, ended: &mut Ended) -> Outcome {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return Outcome::Ignored };
        if row.deadline_ns.load(Ordering::Relaxed) != deadline_ns {
            return Outcome::Ignored;
        }
        let outcome = row.state.expire(reference.generation);
        if outcome != Outcome::Ignored {
            row.deadline_ns.store(NO_DEADLINE, Ordering::Relaxed);
            if row.state.load().is_in_front() {
                // Disarmed rows do not sit in a front: its descriptor must not be readable for nothing.
                self.move_to_back(number, &mut node, row, reference, ended);
            } else {
                self.apply(number, &mut node, row, ended);
            }
        }
        outcome
    }

    /// Somebody saw with poll(2) that an armed row is readable: proves that the number still means its file, and fires
    /// it without waiting for the thread that serves it.
    pub(crate) fn fire_seen(&self, reference: Reference, seen: Signals, ended: &mut Ended) -> Outcome {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return Outcome::Ignored };
        let state = row.state.load();
        if state.generation() != reference.generation || !state.is_armed() {
            return Outcome::Ignored;
        }
        self.apply(number, &mut node, row, ended);
        row.state.fire(reference.generation, seen)
    }

    /// Fires the rows that an event of the back is about; `queue` gets those that have to be put into their port's
    /// queue.
    #[inline]
    pub(crate) fn collect_back(
        &self,
        event: KernelEvent,
        mut queue: impl FnMut(&Row, Reference),
        ended: &mut Ended,
    ) -> Collected {
        let token = event.token;
        if token == WAKER_TOKEN {
            return Collected::Waker;
        }
        let number = RawFd::try_from(token >> SEQUENCE_BITS).unwrap_or(-1);
        let Some(mut node) = self.nodes.lock(number) else { return Collected::Stale };
        if node.sequence != token & SEQUENCE_MASK || !node.is_registered {
            return Collected::Stale;
        }
        let mut rest = Signals::empty();
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = self.rows.row(slot);
            let state = row.state.load();
            if !state.is_in_front() {
                let reference = Reference { slot, generation: state.generation() };
                if row.state.fire(state.generation(), to_signals(event.flags, state.wished())) == Outcome::Queue {
                    queue(row, reference);
                }
                rest |= armed_wish(row.state.load());
            }
            slot = row.node_links.next();
        }
        if !node.is_persistent {
            // The kernel switched its one-shot entry off; what is still armed needs it on again.
            node.wished = Signals::empty();
            if !rest.is_empty() && is_gone(self.register_back(number, &mut node)) {
                self.end_rows(&mut node, Code::NotFound, ended);
            }
        }
        Collected::Rows
    }

    /// Delivers an event of a front to the rows it is about.
    #[inline]
    pub(crate) fn collect_front(&self, front: &Front, event: KernelEvent, pass: &mut FrontPass<'_>) -> Collected {
        let token = event.token;
        if token == WAKER_TOKEN {
            return Collected::Waker;
        }
        let (number, sequence) = Front::decode(token);
        let Some(node) = self.nodes.lock(number) else { return Collected::Stale };
        let (mut is_stale, mut has_turned) = (true, false);
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = self.rows.row(slot);
            let state = row.state.load();
            if is_served_by(row, state, front) && row.front_sequence() == sequence {
                is_stale = false;
                let reference = Reference { slot, generation: state.generation() };
                let ready = to_signals(event.flags, state.wished());
                has_turned |= pass.deliver(row, reference, state, ready);
            }
            slot = row.node_links.next();
        }
        pass.has_turned |= has_turned;
        if has_turned {
            // A failure shows again at the next operation on the number, which ends its rows.
            let _: Result<(), Errno> = self.register_front(number, &node, front);
        }
        if is_stale { Collected::Stale } else { Collected::Rows }
    }

    /// Moves an armed row of the back to its client's front, if it belongs there.
    pub(crate) fn rehome(&self, reference: Reference, home: Home<'_>, ended: &mut Ended) {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let state = row.state.load();
        let is_meant = state.generation() == reference.generation && state.is_armed() && !state.is_in_front();
        if let Some(front) = home.front_from_start(state.mode()).filter(|_| is_meant)
            && self.fits(&node, front, state.mode())
        {
            self.move_to_front(number, &mut node, row, reference, front, ended);
        }
    }

    /// Carries the entries of a front's rows over into its new, empty set.
    pub(crate) fn carry_over(&self, front: &Front, references: &[Reference], ended: &mut Ended) {
        for reference in references {
            let row = self.rows.row(reference.slot);
            let number = row.descriptor();
            let Ok(mut node) = self.lock(number) else { continue };
            let state = row.state.load();
            if state.generation() != reference.generation || !is_served_by(row, state, front) {
                continue;
            }
            if is_gone(self.register_front(number, &node, front)) {
                self.end_rows(&mut node, Code::NotFound, ended);
            }
        }
    }

    /// The front a Once watch should be in from this re-arm on, or any other watch at all.
    fn wanted_front<'a>(&self, row: &Row, before: State, home: Home<'a>) -> Option<&'a Front> {
        if before.is_child() {
            return None;
        }
        if before.mode() == Mode::Once && home.policy == FrontPolicy::Adaptive {
            let heat = row.heat().rearmed(Heat::tick());
            row.set_heat(heat);
            return home.front.filter(|_| heat.is_hot() || (before.is_in_front() && !heat.is_cold()));
        }
        home.front_from_start(before.mode())
    }

    /// One entry serves one mode in a front: a level entry would tell an Edge or Once watch too often.
    fn fits(&self, node: &Node, front: &Front, mode: Mode) -> bool {
        let mut fits = true;
        self.visit(node, |_, row| {
            let state = row.state.load();
            fits &= !is_served_by(row, state, front) || state.mode() == mode;
        });
        fits
    }

    /// Adds to the new set first, then takes it out of the old; that this succeeds proves that the number still means
    /// our file, so what was added was our file too. A failure undoes the move and ends the rows.
    fn move_to_front(
        &self,
        number: RawFd,
        node: &mut Node,
        row: &Row,
        reference: Reference,
        front: &Front,
        ended: &mut Ended,
    ) {
        row.state.set_in_front(reference.generation, true);
        let added = self.register_front(number, node, front);
        if let Err(errno) = added {
            row.state.set_in_front(reference.generation, false);
            row.set_front_sequence(0);
            if matches!(errno, Errno::NOENT | Errno::BADF) {
                self.end_rows(node, Code::NotFound, ended);
            } else {
                // The kernel has no room for a second entry: the back goes on serving it.
                self.apply(number, node, row, ended);
            }
            return;
        }
        if is_gone(self.leave_back(number, node)) {
            // Whatever was added is not ours; if the number is closed by now there is nothing to take out.
            let _: Result<(), Errno> = front.delete(number);
            self.end_rows(node, Code::NotFound, ended);
        }
    }

    fn move_to_back(
        &self,
        number: RawFd,
        node: &mut Node,
        row: &Row,
        reference: Reference,
        ended: &mut Ended,
    ) {
        let Some(front) = self.front_of(row) else { return };
        row.state.set_in_front(reference.generation, false);
        row.set_front_sequence(0);
        let added = self.register_back(number, node);
        if is_gone(added) || is_gone(self.register_front(number, node, &front)) {
            self.unregister_back(number, node);
            self.end_rows(node, Code::NotFound, ended);
        } else if added.is_err() {
            row.state.set_in_front(reference.generation, true);
            // It was served there a moment ago; a failure now shows at the next operation on the number.
            let _: Result<(), Errno> = self.register_front(number, node, &front);
        }
    }

    /// After a row was taken to the front: the back's entry shrinks to the others, or goes.
    fn leave_back(&self, number: RawFd, node: &mut Node) -> Result<(), Errno> {
        let mut is_needed = false;
        self.visit(node, |_, row| is_needed |= !row.state.load().is_in_front());
        if is_needed {
            return self.register_back(number, node);
        }
        if !node.is_registered {
            return Ok(());
        }
        node.is_registered = false;
        node.is_persistent = false;
        node.wished = Signals::empty();
        self.back.delete(number)
    }

    /// Tells the kernel what the row's entry has to ask for now; if the number is no longer the file we know, ends
    /// every row of it.
    fn apply(&self, number: RawFd, node: &mut Node, row: &Row, ended: &mut Ended) {
        let result = if row.state.load().is_in_front() {
            self.front_of(row).map_or(Ok(()), |front| self.register_front(number, node, &front))
        } else {
            self.register_back(number, node)
        };
        if let Err(errno) = result {
            let code = if matches!(errno, Errno::NOENT | Errno::BADF) { Code::NotFound } else { Code::Internal };
            self.unregister_back(number, node);
            self.end_rows(node, code, ended);
        }
    }

    /// Before a row joins others: asks the kernel whether the number is still the file they were added for. If not,
    /// it was closed behind our back: ends them.
    fn prove(&self, number: RawFd, node: &mut Node, ended: &mut Ended) {
        let result = if node.is_registered {
            self.register_back(number, node)
        } else {
            let front = self.front_of(self.rows.row(node.rows.head()));
            front.map_or(Ok(()), |front| self.register_front(number, node, &front))
        };
        if is_gone(result) {
            self.end_rows(node, Code::NotFound, ended);
        }
    }

    /// After a row left: its entry goes with the last one it served, or shrinks.
    fn forget(&self, number: RawFd, node: &mut Node, row: &Row, before: State, ended: &mut Ended) {
        let result = if before.is_in_front() {
            self.front_of(row).map_or(Ok(()), |front| self.register_front(number, node, &front))
        } else if node.rows.is_empty() {
            self.unregister_back(number, node);
            Ok(())
        } else {
            self.leave_back(number, node)
        };
        if is_gone(result) && !node.rows.is_empty() {
            self.unregister_back(number, node);
            self.end_rows(node, Code::NotFound, ended);
        }
    }

    /// Brings the back's entry in line with the rows the back serves. There must be one. The node keeps its old values
    /// on an error.
    fn register_back(&self, number: RawFd, node: &mut Node) -> Result<(), Errno> {
        let (mut union, mut is_persistent) = (Signals::empty(), false);
        self.visit(node, |_, row| {
            let state = row.state.load();
            if !state.is_in_front() {
                union |= armed_wish(state);
                is_persistent |= state.mode() != Mode::Once;
            }
        });
        let sequence = (node.sequence + 1) & SEQUENCE_MASK;
        let token = u64::from(number.cast_unsigned()) << SEQUENCE_BITS | sequence;
        let trigger = if is_persistent { EventFlags::ET } else { EventFlags::ONESHOT };
        let flags = to_flags(union) | trigger;
        if node.is_registered {
            self.back.modify(number, flags, token)?;
        } else {
            match self.back.add(number, flags, token) {
                // The same file was watched under this number, closed and duplicated back: its entry lived on.
                Err(Errno::EXIST) => self.back.modify(number, flags, token)?,
                other => other?,
            }
        }
        node.sequence = sequence;
        node.wished = union;
        node.is_persistent = is_persistent;
        node.is_registered = true;
        Ok(())
    }

    fn unregister_back(&self, number: RawFd, node: &mut Node) {
        if node.is_registered {
            // A failure means that the number was closed already, and the kernel's entry with it.
            let _: Result<(), Errno> = self.back.delete(number);
        }
        node.is_registered = false;
        node.is_persistent = false;
        node.wished = Signals::empty();
    }

    /// Brings a front's entry in line with the rows it serves; takes it out with the last of them.
    fn register_front(&self, number: RawFd, node: &Node, front: &Front) -> Result<(), Errno> {
        let (mut union, mut mode, mut is_new) = (Signals::empty(), None, true);
        let mut is_silent = true;
        self.visit(node, |_, row| {
            let state = row.state.load();
            if is_served_by(row, state, front) {
                union |= armed_wish(state);
                mode = Some(state.mode());
                is_new &= row.front_sequence() == 0;
                is_silent &= state.is_told();
            }
        });
        let trigger = match mode {
            None => return front.delete(number),
            Some(Mode::Once) => EventFlags::ONESHOT,
            Some(Mode::Level) if !is_silent => EventFlags::empty(),
            Some(Mode::Edge | Mode::Level) => EventFlags::ET,
        };
        let sequence = front.register(number, to_flags(union) | trigger, is_new)?;
        self.visit(node, |_, row| {
            if is_served_by(row, row.state.load(), front) {
                row.set_front_sequence(sequence);
            }
        });
        Ok(())
    }

    /// Ends every row of a node and leaves it empty. The kernel's entries are the caller's business.
    fn end_rows(&self, node: &mut Node, code: Code, ended: &mut Ended) {
        while node.rows.head() != NIL {
            let slot = node.rows.head();
            let row = self.rows.row(slot);
            node.rows.remove(&self.rows, slot, Row::node_links);
            let generation = row.state.load().generation();
            if row.state.end(generation, code) == Outcome::Queue {
                ended.push(Reference { slot, generation });
            }
        }
        node.is_registered = false;
        node.is_persistent = false;
        node.wished = Signals::empty();
    }

    fn visit<'a>(&'a self, node: &Node, mut visit: impl FnMut(u32, &'a Row)) {
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = self.rows.row(slot);
            visit(slot, row);
            slot = row.node_links.next();
        }
    }

    fn lock(&self, number: RawFd) -> Result<MutexGuard<'_, Node>> {
        self.nodes.lock(number).ok_or_else(|| {
            if !descriptor::is_open(number) {
                return refusal(Errno::BADF, number);
            }
            let limit = self.nodes.limit();
            Status::new(
                Code::ResourceExhausted,
                format!(
                    "descriptor {number} is not below {limit}, the hard RLIMIT_NOFILE when the watcher was spawned \
                     (at most {MOST_NODES}); raise the limit before spawning it"
                ),
            )
        })
    }
}

/// What an armed row wishes for; nothing for any other.
fn armed_wish(state: State) -> Signals {
    if state.is_armed() { state.wished() } else { Signals::empty() }
}

fn is_served_by(row: &Row, state: State, front: &Front) -> bool {
    state.is_in_front() && row.port.load(Ordering::Relaxed) == front.port()
}

/// The kernel flags that ask for `union`. Errors and full hang-ups come unasked.
///
/// An entry nobody is armed in asks for nothing: with its one-shot trigger the kernel then reports a hang-up at most
/// once, and the entry still proves that the number means our file.
fn to_flags(union: Signals) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, union.contains(Signals::READABLE));
    flags.set(EventFlags::OUT, union.contains(Signals::WRITABLE));
    flags.set(EventFlags::PRI, union.contains(Signals::PRIORITY));
    flags.set(EventFlags::RDHUP, union.intersects(Signals::READABLE | Signals::PEER_CLOSED));
    flags
}

/// What kernel flags mean to a row that wishes for `wished` (contract C2, the table).
#[inline]
fn to_signals(flags: EventFlags, wished: Signals) -> Signals {
    let mut signals = Signals::empty();
    signals.set(Signals::READABLE, flags.contains(EventFlags::IN));
    signals.set(Signals::WRITABLE, flags.contains(EventFlags::OUT));
    signals.set(Signals::PRIORITY, flags.contains(EventFlags::PRI));
    signals.set(Signals::ERROR, flags.contains(EventFlags::ERR));
    let half_close =
        flags.contains(EventFlags::RDHUP) && wished.intersects(Signals::READABLE | Signals::PEER_CLOSED);
    signals.set(Signals::PEER_CLOSED, half_close || flags.contains(EventFlags::HUP));
    signals
}

fn is_gone(result: Result<(), Errno>) -> bool {
    matches!(result, Err(Errno::NOENT | Errno::BADF))
}

fn gone(reference: Reference) -> Status {
    Status::new(
        Code::NotFound,
        format!(
            "watch {}.{} is not a live watch of this client; it has ended, or the id is another client's",
            reference.slot, reference.generation
        ),
    )
}

fn paused() -> Status {
    Status::new(Code::FailedPrecondition, "the watch is paused; resume it, or change its signals, first")
}

fn never_wished(reference: Reference) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "watch {}.{} was made without signals, so there is nothing to resume; give it some with change",
            reference.slot, reference.generation
        ),
    )
}

fn closed_behind(number: RawFd) -> Status {
    Status::new(
        Code::NotFound,
        format!("descriptor {number} was closed while it was watched; the watch has ended. Call unwatch before closing"),
    )
}

/// Why the kernel refused to watch a descriptor.
fn refusal(errno: Errno, number: RawFd) -> Status {
    match errno {
        Errno::BADF | Errno::NOENT => Status::new(
            Code::InvalidArgument,
            format!("descriptor {number} is not open; watch it while it is, and unwatch it before closing it"),
        ),
        Errno::PERM => Status::new(
            Code::FailedPrecondition,
            format!(
                "descriptor {number} is {}: it is always ready and cannot be waited on; read it directly, or watch \
                 its path for changes",
                descriptor::kind_in_words(number)
            ),
        ),
        Errno::NOSPC => Status::new(
            Code::ResourceExhausted,
            format!("the kernel's limit of watched descriptors is reached at {number}; raise fs.epoll.max_user_watches"),
        ),
        Errno::NOMEM => Status::new(
            Code::ResourceExhausted,
            format!("the kernel has no memory to watch descriptor {number}; watch fewer, or give it more"),
        ),
        Errno::LOOP | Errno::INVAL => Status::new(
            Code::InvalidArgument,
            format!("descriptor {number} is a poll set that contains this watcher, or is nested too deep; untangle them"),
        ),
        other => Status::new(Code::Internal, format!("the kernel refused to watch descriptor {number}: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_kernel_flags() {
        let wished = Signals::WRITABLE;
        assert_eq!(to_signals(EventFlags::HUP, wished), Signals::PEER_CLOSED, "a hang-up is always told");
        assert_eq!(to_signals(EventFlags::ERR, wished), Signals::ERROR, "an error is always told");
        assert_eq!(to_signals(EventFlags::RDHUP, wished), Signals::empty(), "a half-close only if asked for");
        assert_eq!(
            to_signals(EventFlags::RDHUP | EventFlags::IN, Signals::READABLE),
            Signals::READABLE | Signals::PEER_CLOSED
        );
        assert_eq!(to_signals(EventFlags::PRI, wished), Signals::PRIORITY);
    }

    #[test]
    fn a_watch_of_nothing_asks_for_nothing() {
        assert_eq!(to_flags(Signals::empty()), EventFlags::empty());
        assert!(to_flags(Signals::READABLE).contains(EventFlags::RDHUP));
    }
}
