//! Keeping the kernel's entries in line with the rows: registering, moving between back and front, leaving.
//!
//! The other half of the wait set. Everything here happens under the lock of the number's node.

use std::os::fd::RawFd;

use handle_watcher_wire::{Code, Mode, Signals};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::back::Entry;
use crate::front::{Front, FrontPolicy, Seat, Target};
use crate::heat::Heat;
use crate::kernel_flags::{to_flags, to_signals};
use crate::list::NIL;
use crate::nodes::{Marks, Node};
use crate::rows::{Reference, Row};
use crate::state::State;
use crate::wait_set::{Ended, SEQUENCE_BITS, SEQUENCE_MASK, WaitSet, armed_wish, is_gone, is_served_by};

/// So many rows of one number at most may be in fronts because they are hot.
const SHARED_IN_FRONT: u32 = 4;

/// What a front's entry of one number has to be for the rows it serves there.
#[derive(Clone, Copy, Debug)]
struct FrontEntry {
    union: Signals,
    /// The one mode of its rows; nothing if there are none.
    mode: Option<Mode>,
    target: Target,
    /// None of its rows has been in an entry of this front.
    is_new: bool,
    /// Every row was told of what nobody can consume.
    is_silent: bool,
}

impl FrontEntry {
    fn is_told(self) -> bool {
        self.mode == Some(Mode::Level) && self.is_silent
    }
}

impl WaitSet {
    /// The front a Once watch should be in from this re-arm on, or any other watch at all.
    pub(crate) fn wanted_front<'a>(
        &self,
        node: &Node,
        row: &Row,
        before: State,
        seat: &'a Seat,
    ) -> Option<&'a Front> {
        if before.is_child() {
            return None;
        }
        if before.mode() == Mode::Once && seat.policy() == FrontPolicy::Adaptive {
            if !before.is_in_front() && !self.has_few_rows(node) {
                return None;
            }
            let heat = row.heat().rearmed(Heat::tick());
            row.set_heat(heat);
            let stays = heat.is_hot() || (before.is_in_front() && !heat.is_cold());
            return seat.front().map(|front| &**front).filter(|_| stays);
        }
        seat.front_from_start(before.mode())
    }

    /// An entry in a front is made of all its rows at each arm, so a number that many watch is better off in the back.
    fn has_few_rows(&self, node: &Node) -> bool {
        if node.back_rows > SHARED_IN_FRONT {
            return false;
        }
        let mut slot = node.rows.head();
        for _ in 0..SHARED_IN_FRONT {
            if slot == NIL {
                return true;
            }
            slot = self.rows.row(slot).node_links.next();
        }
        slot == NIL
    }

    /// One entry serves one mode in a front: a level entry would tell an Edge or Once watch too often. A Level watch,
    /// which only the front serves exactly, has others make room for it; any other yields. True if there is room.
    pub(crate) fn make_room(
        &self,
        number: RawFd,
        node: &mut Node,
        front: &Front,
        mode: Mode,
        ended: &mut Ended,
    ) -> bool {
        if !node.has_front() {
            return true;
        }
        if mode == Mode::Level {
            if is_gone(self.evict(number, node, front, |state| state.mode() != Mode::Level)) {
                self.unregister_back(number, node);
                self.end_rows(number, node, Code::NotFound, ended);
            }
            return true;
        }
        let mut has_room = true;
        self.visit(node, |_, row| {
            let state = row.state.load();
            has_room &= !is_served_by(row, state, front) || state.mode() == mode;
        });
        has_room
    }

    /// Moves an armed row of the back to its client's front, if it belongs there.
    pub(crate) fn rehome(&self, reference: Reference, seat: &Seat, ended: &mut Ended) {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let state = row.state.load();
        let is_meant = state.generation() == reference.generation
            && state.is_armed()
            && !state.is_in_front()
            && !state.is_told();
        if let Some(front) = seat.front_from_start(state.mode()).filter(|_| is_meant)
            && self.make_room(number, &mut node, front, state.mode(), ended)
            && !row.state.load().is_ended()
        {
            self.move_to_front(number, &mut node, row, reference, front, ended);
        }
    }

    /// Level rows that went to the back when they had nothing to tell, and have now, go back to their fronts, which tell
    /// them for as long as they hold.
    pub(crate) fn send_home(&self, number: RawFd, node: &mut Node, reported: EventFlags, ended: &mut Ended) {
        let mut homing = Vec::new();
        self.visit(node, |slot, row| {
            let state = row.state.load();
            let has_something = to_signals(reported, state.wished()).intersects(armed_wish(state));
            // One that the kernel had no room for in the front is queued by now, and is not tried again at once.
            let is_waiting = state.is_queued() || state.is_away();
            if state.mode() == Mode::Level && !state.is_in_front() && !is_waiting && has_something {
                homing.push(Reference { slot, generation: state.generation() });
            }
        });
        for reference in homing {
            let row = self.rows.row(reference.slot);
            let Some(front) = self.front_of(row).filter(|front| !front.is_lost()) else { continue };
            if self.make_room(number, node, &front, Mode::Level, ended) && row.state.load().is_live() {
                self.move_to_front(number, node, row, reference, &front, ended);
            }
        }
    }

    /// Moves a row of a front to the back.
    pub(crate) fn retreat(&self, reference: Reference, ended: &mut Ended) {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let state = row.state.load();
        if state.generation() == reference.generation && state.is_live() && state.is_in_front() {
            self.move_to_back(number, &mut node, row, reference, ended);
        }
    }

    /// Adds to the new set first, then takes it out of the old; that this succeeds proves that the number still means
    /// our file, so what was added was our file too. A failure undoes the move and ends the rows.
    pub(crate) fn move_to_front(
        &self,
        number: RawFd,
        node: &mut Node,
        row: &Row,
        reference: Reference,
        front: &Front,
        ended: &mut Ended,
    ) {
        row.state.set_in_front(reference.generation, true);
        node.back_rows -= 1;
        node.marks.set(Marks::HAS_FRONT, true);
        let added = self.register_front(number, node, front);
        if let Err(errno) = added {
            row.state.set_in_front(reference.generation, false);
            row.set_front_sequence(0);
            node.back_rows += 1;
            if is_gone(Err(errno)) {
                self.end_rows(number, node, Code::NotFound, ended);
            } else {
                // The kernel has no room for a second entry: the back goes on serving it.
                self.apply(number, node, row, None, ended);
            }
            return;
        }
        if is_gone(self.leave_back(number, node)) {
            // Whatever was added is not ours; if the number is closed by now there is nothing to take out.
            let _: Result<(), Errno> = front.delete(number);
            self.end_rows(number, node, Code::NotFound, ended);
        }
    }

    pub(crate) fn move_to_back(
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
        node.back_rows += 1;
        let added = self.register_back(number, node);
        if is_gone(added) || is_gone(self.register_front(number, node, &front)) {
            self.unregister_back(number, node);
            self.end_rows(number, node, Code::NotFound, ended);
        } else if added.is_err() {
            row.state.set_in_front(reference.generation, true);
            node.back_rows -= 1;
            // It was served there a moment ago; a failure now shows at the next operation on the number.
            let _: Result<(), Errno> = self.register_front(number, node, &front);
        }
    }

    /// After a row left the back: its entry goes with the last one. With others there it stays as it is, and the number
    /// is proved; it shrinks when it next reports something that nobody asked for.
    pub(crate) fn leave_back(&self, number: RawFd, node: &mut Node) -> Result<(), Errno> {
        if node.back_rows > 0 {
            return self.back.prove(number);
        }
        if !node.is_registered() {
            return Ok(());
        }
        node.marks.set(Marks::REGISTERED, false);
        node.marks.set(Marks::PERSISTENT, false);
        node.wished = Signals::empty();
        self.back.delete(number)
    }

    /// Tells the kernel what the row's entry has to ask for now; if the number is no longer the file we know, ends
    /// every row of it.
    ///
    /// `own` is the caller's front, which a row in front is served by if the caller owns it.
    pub(crate) fn apply(
        &self,
        number: RawFd,
        node: &mut Node,
        row: &Row,
        own: Option<&Front>,
        ended: &mut Ended,
    ) {
        if self.is_other_file(number, node) {
            return self.lose(Errno::NOENT, number, node, ended);
        }
        let result = if row.state.load().is_in_front() {
            match own {
                Some(front) => self.register_front(number, node, front),
                None => self.front_of(row).map_or(Ok(()), |front| self.register_front(number, node, &front)),
            }
        } else {
            self.widen_back(number, node, row.state.load())
        };
        if let Err(errno) = result {
            self.lose(errno, number, node, ended);
        }
    }

    /// The same after a row came to wish for less: the back's entry is made of what all its rows wish for now.
    pub(crate) fn apply_exactly(&self, number: RawFd, node: &mut Node, row: &Row, ended: &mut Ended) {
        if row.state.load().is_in_front() {
            return self.apply(number, node, row, None, ended);
        }
        if self.is_other_file(number, node) {
            return self.lose(Errno::NOENT, number, node, ended);
        }
        if let Err(errno) = self.register_back(number, node) {
            self.lose(errno, number, node, ended);
        }
    }

    /// What served the back's entry with this token gave it up: ends the rows it had.
    pub(crate) fn end_entry(&self, token: u64, code: Code, ended: &mut Ended) {
        let number = RawFd::try_from(token >> SEQUENCE_BITS).unwrap_or(-1);
        let Ok(mut node) = self.lock(number) else { return };
        if node.is_registered() && node.sequence() == token & SEQUENCE_MASK {
            self.unregister_back(number, &mut node);
            self.end_rows(number, &mut node, code, ended);
        }
    }

    /// The kernel refused a change: ends every row of the number.
    fn lose(&self, errno: Errno, number: RawFd, node: &mut Node, ended: &mut Ended) {
        let code = if is_gone(Err(errno)) { Code::NotFound } else { self.back.end_code(errno, number) };
        self.unregister_back(number, node);
        self.end_rows(number, node, code, ended);
    }

    /// Before a row joins others: asks the kernel whether the number is still the file they were added for. If not,
    /// it was closed behind our back: ends them.
    pub(crate) fn prove(&self, number: RawFd, node: &mut Node, ended: &mut Ended) {
        let result = self.proof(number, node.is_registered(), node.rows.head());
        if is_gone(result) || self.is_other_file(number, node) {
            self.end_rows(number, node, Code::NotFound, ended);
        }
    }

    /// Whether the number is still the file of its entry: the back's, or else that of the row's front.
    fn proof(&self, number: RawFd, has_back: bool, slot: u32) -> Result<(), Errno> {
        if has_back {
            return self.back.prove(number);
        }
        self.front_of(self.rows.row(slot)).map_or(Ok(()), |front| front.prove(number))
    }

    /// Registers a row that has just joined the others of its node. If another set serves them, that set has the last
    /// word: the number may have become another file since it was proved, and is then refused.
    pub(crate) fn register_joined(
        &self,
        number: RawFd,
        node: &mut Node,
        row: &Row,
        front: Option<&Front>,
    ) -> Result<(), Errno> {
        let (had_back, other) = (node.is_registered(), row.node_links.next());
        let Some(front) = front else {
            self.widen_back(number, node, row.state.load())?;
            if had_back || other == NIL {
                return Ok(());
            }
            return self.proof(number, false, other).inspect_err(|_| self.unregister_back(number, node));
        };
        self.register_front(number, node, front)?;
        if other == NIL {
            return Ok(());
        }
        self.proof(number, had_back, other).inspect_err(|_| {
            // If the number is closed by now there is nothing to take out.
            let _: Result<(), Errno> = front.delete(number);
        })
    }

    /// After a row left: the entry that served it goes with the last one, or serves the others.
    pub(crate) fn forget(&self, number: RawFd, node: &mut Node, row: &Row, before: State, ended: &mut Ended) {
        let result = if before.is_in_front() {
            self.front_of(row).map_or(Ok(()), |front| self.register_front(number, node, &front))
        } else {
            node.back_rows -= 1;
            self.leave_back(number, node)
        };
        if is_gone(result) && !node.rows.is_empty() {
            self.unregister_back(number, node);
            self.end_rows(number, node, Code::NotFound, ended);
        }
    }

    /// Brings the back's entry exactly in line with the rows the back serves. There must be one. The node keeps its old
    /// values on an error.
    pub(crate) fn register_back(&self, number: RawFd, node: &mut Node) -> Result<(), Errno> {
        let (mut union, mut is_persistent) = (Signals::empty(), false);
        self.visit(node, |_, row| {
            let state = row.state.load();
            if !state.is_in_front() {
                union |= armed_wish(state);
                is_persistent |= state.mode() != Mode::Once;
            }
        });
        self.register_back_as(number, node, union, is_persistent)
    }

    /// Adds what a row of the back wishes for to the back's entry, without looking at the others.
    pub(crate) fn widen_back(&self, number: RawFd, node: &mut Node, state: State) -> Result<(), Errno> {
        let union = node.wished | armed_wish(state);
        let is_persistent = node.is_persistent() | (state.mode() != Mode::Once);
        self.register_back_as(number, node, union, is_persistent)
    }

    fn register_back_as(
        &self,
        number: RawFd,
        node: &mut Node,
        union: Signals,
        is_persistent: bool,
    ) -> Result<(), Errno> {
        let sequence = (node.sequence() + 1) & SEQUENCE_MASK;
        let token = u64::from(number.cast_unsigned()) << SEQUENCE_BITS | sequence;
        let entry = Entry { union, is_persistent };
        if node.is_registered() {
            self.back.modify(number, entry, token)?;
        } else {
            self.back.add(number, entry, token)?;
        }
        node.set_sequence(sequence);
        node.wished = union;
        node.marks.set(Marks::PERSISTENT, is_persistent);
        node.marks.set(Marks::REGISTERED, true);
        Ok(())
    }

    pub(crate) fn unregister_back(&self, number: RawFd, node: &mut Node) {
        if node.is_registered() {
            // A failure means that the number was closed already, and the kernel's entry with it.
            let _: Result<(), Errno> = self.back.delete(number);
        }
        node.marks.set(Marks::REGISTERED, false);
        node.marks.set(Marks::PERSISTENT, false);
        node.wished = Signals::empty();
    }

    /// Moves rows of a front to the back: those of other modes when a Level watch comes, which only the front serves
    /// exactly; and those that are all disarmed, whose entry would report a hang-up to nobody.
    pub(crate) fn evict(
        &self,
        number: RawFd,
        node: &mut Node,
        front: &Front,
        leaves: impl Fn(State) -> bool,
    ) -> Result<(), Errno> {
        let (mut left, mut is_new) = (0, true);
        self.visit(node, |_, row| {
            let state = row.state.load();
            if is_served_by(row, state, front) && leaves(state) {
                is_new &= row.front_sequence() == 0;
                row.state.set_in_front(state.generation(), false);
                row.set_front_sequence(0);
                left += 1;
            }
        });
        node.back_rows += left;
        if left == 0 {
            return Ok(());
        }
        self.register_back(number, node)?;
        if is_new { Ok(()) } else { self.register_front(number, node, front) }
    }

    /// Brings a front's entry in line with the rows it serves; takes it out with the last of them.
    ///
    /// Rows that would be told nothing of what holds now go to the back: whatever is changed here the kernel reports once
    /// more, and the port's descriptor would be readable for nothing.
    pub(crate) fn register_front(&self, number: RawFd, node: &mut Node, front: &Front) -> Result<(), Errno> {
        let entry = self.entry_of(number, node, front);
        if entry.is_told() {
            return self.evict(number, node, front, |_| true);
        }
        self.put_entry(number, node, front, entry)
    }

    /// The same for the front's own thread after a delivery, which takes that report at once.
    pub(crate) fn turn_front(&self, number: RawFd, node: &mut Node, front: &Front) -> Result<(), Errno> {
        let entry = self.entry_of(number, node, front);
        self.put_entry(number, node, front, entry)
    }

    fn entry_of(&self, number: RawFd, node: &Node, front: &Front) -> FrontEntry {
        let mut entry = FrontEntry {
            union: Signals::empty(),
            mode: None,
            target: Target::Number(number),
            is_new: true,
            is_silent: true,
        };
        self.visit(node, |slot, row| {
            let state = row.state.load();
            if is_served_by(row, state, front) {
                entry.target = if entry.mode.is_none() { Target::Row(slot) } else { Target::Number(number) };
                entry.mode = Some(state.mode());
                entry.union |= armed_wish(state);
                entry.is_new &= row.front_sequence() == 0;
                entry.is_silent &= state.is_told();
            }
        });
        entry
    }

    fn put_entry(
        &self,
        number: RawFd,
        node: &mut Node,
        front: &Front,
        entry: FrontEntry,
    ) -> Result<(), Errno> {
        let trigger = match entry.mode {
            None => return front.delete(number),
            Some(_) if entry.union.is_empty() => return self.evict(number, node, front, |_| true),
            Some(Mode::Once) => EventFlags::ONESHOT,
            Some(Mode::Edge) => EventFlags::ET,
            Some(Mode::Level) if entry.is_silent => EventFlags::ET,
            Some(Mode::Level) => EventFlags::empty(),
        };
        let flags = to_flags(entry.union) | trigger;
        let sequence = front.register(number, flags, entry.target, entry.is_new)?;
        self.visit(node, |_, row| {
            if is_served_by(row, row.state.load(), front) {
                row.set_front_sequence(sequence);
            }
        });
        Ok(())
    }

    /// Tells the kernel a front's entry anew after a delivery.
    pub(crate) fn renew_front(&self, number: RawFd, node: &mut Node, front: &Front, ended: &mut Ended) {
        let turned = self.turn_front(number, node, front);
        self.end_refused(turned, number, node, ended);
    }

    /// If the number is no longer the file of its entry, its rows end: what cannot be changed cannot be silenced either,
    /// and may be reported for ever.
    fn end_refused(&self, result: Result<(), Errno>, number: RawFd, node: &mut Node, ended: &mut Ended) {
        if is_gone(result) {
            self.unregister_back(number, node);
            self.end_rows(number, node, Code::NotFound, ended);
        }
    }

    /// Carries the entries of a front's rows over into its new, empty set. Rows whose number means another file by now
    /// end.
    pub(crate) fn carry_over(&self, front: &Front, references: &[Reference], ended: &mut Ended) {
        for reference in references {
            let row = self.rows.row(reference.slot);
            let number = row.descriptor();
            let Ok(mut node) = self.lock(number) else { continue };
            let state = row.state.load();
            if state.generation() != reference.generation || !is_served_by(row, state, front) {
                continue;
            }
            let carried = self.register_front(number, &mut node, front);
            self.end_refused(carried, number, &mut node, ended);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{DupFlags, dup3};

    use super::*;
    use crate::rows::{NO_DEADLINE, Rows, Start};
    use crate::state::{Kind, Role};

    /// Publishes a row about a number and registers it, in a front or in the back.
    fn join(waits: &WaitSet, number: RawFd, front: Option<&Front>) -> Result<(), Errno> {
        let mut node = waits.lock(number).expect("a low number");
        let role = Role { kind: Kind::Watch, mode: Mode::Once, wished: Signals::READABLE, child: false };
        let start = Start { role, token: 0, port: 0, descriptor: number, deadline_ns: NO_DEADLINE, extra: 0 };
        let reference = waits.rows.reserve(waits.rows.take_slot().expect("room"), &start);
        let row = waits.rows.row(reference.slot);
        assert!(row.state.publish(reference.generation, front.is_some()));
        node.rows.push(&waits.rows, reference.slot, Row::node_links);
        waits.register_joined(number, &mut node, row, front)
    }

    /// C7c, C7d: what is at the number by now is not watched beside what was there before.
    #[test]
    fn a_number_that_becomes_another_file_while_a_row_joins_is_refused() {
        let waits = WaitSet::new(Rows::reserve_space(8).expect("address space"), 1024, None).expect("a set");
        let front = Arc::new(Front::new(0).expect("a front"));
        waits.set_front(0, Some(Arc::clone(&front)));
        let file = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let sets = [(None, Some(&*front)), (Some(&*front), None)];
        // Both are open from the start: a number that is used again would have the rows of the first.
        for ((first, second), mut watched) in sets.into_iter().zip([file(), file()]) {
            let number = watched.as_raw_fd();
            assert_eq!(join(&waits, number, first), Ok(()));
            dup3(file(), &mut watched, DupFlags::CLOEXEC).expect("another file");
            assert_eq!(join(&waits, number, second), Err(Errno::NOENT));
            assert_eq!(waits.back.prove(number), Err(Errno::NOENT), "nothing is left of it in the back");
            assert_eq!(front.prove(number), Err(Errno::NOENT), "nor in the front");
        }
    }
}
