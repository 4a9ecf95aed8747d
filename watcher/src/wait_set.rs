//! The wait set: every row, and the kernel entries that serve it, in the back or in its port's front (contract C3,
//! C6, C7).
//!
//! In each kernel set several watches of one number share one entry. A report carries the number and the sequence of
//! the entry's last change; one that is out of date is dropped, so no event of an old registration reaches a new one.
//! Everything here happens under the lock of the number's node; what has to be told to ports is collected and posted
//! by the caller after it let go.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ahash::AHashMap;
use handle_watcher_wire::{Code, Mode, Result, Signals, Status};
use rustix::io::Errno;

use crate::back::Back;
use crate::front::{Front, Seat, Target};
use crate::front_pass::FrontPass;
use crate::kernel_flags::{from_poll_flags, to_poll_flags, to_signals};
use crate::link::Link;
use crate::list::NIL;
use crate::nodes::{Marks, Node, Nodes};
use crate::outcome::Outcome;
use crate::refusal::{beyond_limit, closed_behind, gone, never_wished, no_level, paused, refusal};
use crate::rows::{NO_DEADLINE, Reference, Row, Rows};
use crate::state::State;
use crate::sys::descriptor::{self, Identity};
use crate::sys::epoll::{ARRIVALS_TOKEN, KernelEvent, WAKER_TOKEN};

pub(crate) const SEQUENCE_BITS: u32 = 40;
pub(crate) const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// Rows that something ended, and that the caller has to post to their ports after it let go of every lock.
pub(crate) type Ended = Vec<Reference>;

/// What was found behind one kernel event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    Waker,
    Arrivals,
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

#[derive(Debug)]
pub(crate) struct WaitSet {
    pub(crate) rows: Rows,
    nodes: Nodes,
    pub(crate) back: Back,
    /// By port index. Only for what concerns another client's front; a client knows its own.
    fronts: RwLock<Vec<Option<Arc<Front>>>>,
    /// Of suspect numbers only: which file their rows are of.
    identities: Mutex<AHashMap<RawFd, Identity>>,
}

impl WaitSet {
    /// A wait set for descriptor numbers below `number_limit`, whose back is a service if there is a link to one.
    pub(crate) fn new(rows: Rows, number_limit: usize, link: Option<Arc<Link>>) -> std::io::Result<Self> {
        Ok(Self {
            rows,
            nodes: Nodes::new(number_limit),
            back: Back::new(link)?,
            fronts: RwLock::default(),
            identities: Mutex::default(),
        })
    }

    pub(crate) fn back(&self) -> &Back {
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

    pub(crate) fn front_of(&self, row: &Row) -> Option<Arc<Front>> {
        let fronts = self.fronts.read().unwrap_or_else(PoisonError::into_inner);
        fronts.get(row.port.load(Ordering::Relaxed) as usize).cloned().flatten()
    }

    /// Publishes a reserved row and registers it with the kernel. On an error the row is the caller's to free.
    pub(crate) fn attach(&self, reference: Reference, seat: &Seat, ended: &mut Ended) -> Result<()> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        if !node.rows.is_empty() {
            self.prove(number, &mut node, ended);
        }
        let state = row.state.load();
        if state.mode() == Mode::Level && seat.is_vacant() {
            return Err(no_level());
        }
        // A child is told after data, which only the queue can do.
        let stays = state.wished().is_empty() || state.is_child();
        let front = seat.front_from_start(state.mode()).filter(|_| !stays);
        let front = front.filter(|front| self.make_room(number, &mut node, front, state.mode(), ended));
        if !row.state.publish(reference.generation, front.is_some()) {
            return Err(Status::new(
                Code::Unavailable,
                "the client was closed while the watch was being added",
            ));
        }
        node.rows.push(&self.rows, reference.slot, Row::node_links);
        let is_suspect = node.marks.contains(Marks::SUSPECT);
        let identity = if is_suspect { descriptor::identity(number) } else { None };
        let result = self.register_joined(number, &mut node, row, front);
        if is_suspect {
            self.note_identity(number, identity);
        }
        match front {
            Some(_) => node.marks.set(Marks::HAS_FRONT, true),
            None => node.back_rows += 1,
        }
        result.map_err(|errno| {
            if front.is_none() {
                node.back_rows -= 1;
            }
            node.rows.remove(&self.rows, reference.slot, Row::node_links);
            row.state.detach(reference.generation);
            self.back.refusal(errno, number).unwrap_or_else(|| refusal(errno, number))
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
        seat: &Seat,
        ended: &mut Ended,
    ) -> Result<u64> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let Some(before) = row.state.arm(reference.generation) else {
            let state = row.state.load();
            let is_paused = state.generation() == reference.generation && state.is_live();
            return Err(if is_paused { paused(reference) } else { self.why_gone(reference) });
        };
        let deadline_before = row.swap_deadline(deadline_ns);
        let front = self.wanted_front(&node, row, before, seat);
        let front = front.filter(|front| self.make_room(number, &mut node, front, before.mode(), ended));
        match front {
            _ if row.state.load().is_ended() => {}
            Some(front) if !before.is_in_front() => {
                self.move_to_front(number, &mut node, row, reference, front, ended);
            }
            None if before.is_in_front() && !before.is_armed() => {
                self.move_to_back(number, &mut node, row, reference, ended);
            }
            _ => self.apply(number, &mut node, row, seat.front().map(|front| &**front), ended),
        }
        if row.state.load().is_ended() {
            return Err(self.why_ended(number));
        }
        Ok(deadline_before)
    }

    /// Replaces what a row wishes for; an undelivered event of it is withdrawn. Gives the state it had, and the deadline
    /// that a pause took away.
    pub(crate) fn change(
        &self,
        reference: Reference,
        wish: Wish,
        seat: &Seat,
        ended: &mut Ended,
    ) -> Result<(State, u64)> {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let state = row.state.load();
        if state.generation() != reference.generation || !state.is_live() {
            return Err(self.why_gone(reference));
        }
        let wished = match wish {
            Wish::These(signals) => signals,
            Wish::Remembered if !state.wished().is_empty() => {
                // It is not paused. The one thing to do is to look whether it is still there.
                self.prove(number, &mut node, ended);
                let is_ended = row.state.load().is_ended();
                return if is_ended {
                    Err(self.why_ended(number))
                } else {
                    Ok((State::free(0), NO_DEADLINE))
                };
            }
            Wish::Remembered if row.remembered().is_empty() => return Err(never_wished(reference)),
            Wish::Remembered => row.remembered(),
        };
        let before = row.state.change(reference.generation, wished).ok_or_else(|| gone(reference))?;
        let mut deadline_before = NO_DEADLINE;
        if wished.is_empty() {
            deadline_before = row.swap_deadline(NO_DEADLINE);
            if !before.wished().is_empty() {
                row.remember(before.wished());
            }
        }
        let is_armed = row.state.load().is_armed();
        let front = seat.front_from_start(before.mode()).filter(|_| is_armed && !before.is_child());
        let front = front.filter(|front| self.make_room(number, &mut node, front, before.mode(), ended));
        match front {
            _ if row.state.load().is_ended() => {}
            Some(front) if !before.is_in_front() => {
                self.move_to_front(number, &mut node, row, reference, front, ended);
            }
            // A paused watch waits in the back, where its entry is silent and still proves which file it is of.
            None if before.is_in_front() && !is_armed => {
                self.move_to_back(number, &mut node, row, reference, ended);
            }
            _ => self.apply_exactly(number, &mut node, row, ended),
        }
        if row.state.load().is_ended() {
            return Err(self.why_ended(number));
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
            self.apply(number, &mut node, row, None, ended);
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

    /// Ends a live row, or takes a reserved one away from who is about to publish it.
    pub(crate) fn end(&self, reference: Reference, code: Code, ended: &mut Ended) {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let before = row.state.load();
        if before.is_reserved() {
            row.state.abandon(reference.generation);
            return;
        }
        match row.state.end(reference.generation, code) {
            Outcome::Ignored => return,
            Outcome::Merged => {}
            Outcome::Queue => ended.push(reference),
        }
        node.rows.remove(&self.rows, reference.slot, Row::node_links);
        self.forget(number, &mut node, row, before, ended);
    }

    /// Takes a reserved row away from who is about to publish it.
    pub(crate) fn abandon(&self, reference: Reference) {
        let row = self.rows.row(reference.slot);
        // Without a node it cannot be published.
        let _node = self.lock(row.descriptor());
        row.state.abandon(reference.generation);
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
        self.end_rows(number, &mut node, code, ended);
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
                self.apply_exactly(number, &mut node, row, ended);
            }
        }
        outcome
    }

    /// Takes the deadline of a watch away that has fired and is disarmed by it. True if there was one.
    pub(crate) fn drop_deadline(&self, reference: Reference) -> bool {
        let row = self.rows.row(reference.slot);
        if row.deadline_ns.load(Ordering::Relaxed) == NO_DEADLINE {
            return false;
        }
        let Ok(_node) = self.lock(row.descriptor()) else { return false };
        let state = row.state.load();
        let is_over = state.generation() == reference.generation && state.is_live() && !state.is_armed();
        is_over && row.swap_deadline(NO_DEADLINE) != NO_DEADLINE
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
        self.apply(number, &mut node, row, None, ended);
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
        if node.sequence() != token & SEQUENCE_MASK || !node.is_registered() {
            return Collected::Stale;
        }
        if node.has_front() {
            self.send_home(number, &mut node, event.flags, ended);
        }
        let (mut rest, mut is_heard) = (Signals::empty(), false);
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = self.rows.row(slot);
            let state = row.state.load();
            if !state.is_in_front() {
                let reference = Reference { slot, generation: state.generation() };
                let outcome = row.state.fire(state.generation(), to_signals(event.flags, state.wished()));
                if outcome == Outcome::Queue {
                    queue(row, reference);
                }
                is_heard |= outcome != Outcome::Ignored;
                rest |= armed_wish(row.state.load());
            }
            slot = row.node_links.next();
        }
        if !node.is_persistent() {
            // The kernel switched its one-shot entry off; what is still armed needs it on again.
            node.wished = Signals::empty();
            if !rest.is_empty() && is_gone(self.register_back(number, &mut node)) {
                self.end_rows(number, &mut node, Code::NotFound, ended);
            }
        } else if !is_heard && rest != node.wished && is_gone(self.register_back(number, &mut node)) {
            // It asked for more than anybody wants since a row left; now it asks for what is left.
            self.end_rows(number, &mut node, Code::NotFound, ended);
        }
        Collected::Rows
    }

    /// Delivers an event of a front to the rows it is about.
    #[inline]
    pub(crate) fn collect_front(
        &self,
        front: &Front,
        event: KernelEvent,
        pass: &mut FrontPass<'_>,
    ) -> Collected {
        let token = event.token;
        if token == WAKER_TOKEN {
            return Collected::Waker;
        }
        if token == ARRIVALS_TOKEN {
            return Collected::Arrivals;
        }
        let (target, sequence) = Front::decode(token);
        let number = match target {
            Target::Number(number) => number,
            Target::Row(slot) if self.deliver_alone(front, slot, sequence, event, pass) => {
                return Collected::Rows;
            }
            Target::Row(slot) => self.rows.row(slot).descriptor(),
        };
        self.collect_shared(front, number, sequence, event, pass)
    }

    /// The same under the node's lock. Out of line: the usual case is short, and should stay so in the caches.
    #[inline(never)]
    fn collect_shared(
        &self,
        front: &Front,
        number: RawFd,
        sequence: u32,
        event: KernelEvent,
        pass: &mut FrontPass<'_>,
    ) -> Collected {
        let Some(mut node) = self.nodes.lock(number) else { return Collected::Stale };
        let (mut is_stale, mut has_turned) = (true, false);
        let mut rest = Signals::empty();
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = self.rows.row(slot);
            let state = row.state.load();
            if is_served_by(row, state, front) && row.front_sequence() == sequence {
                is_stale = false;
                let reference = Reference { slot, generation: state.generation() };
                let ready = to_signals(event.flags, state.wished());
                has_turned |= pass.deliver(row, reference, state, ready);
                if state.mode() == Mode::Once {
                    rest |= armed_wish(row.state.load());
                }
            }
            slot = row.node_links.next();
        }
        pass.has_turned |= has_turned;
        // The kernel switched a one-shot entry off; what is still armed needs it on again.
        if has_turned || !rest.is_empty() {
            self.renew_front(number, &mut node, front, pass.ended);
        }
        if is_stale { Collected::Stale } else { Collected::Rows }
    }

    /// The usual case, which needs no lock: an armed row that is alone in its entry, something it asked for, and room for
    /// the event. Whatever is not so, or is just being changed, is left to who looks under the lock.
    #[inline]
    fn deliver_alone(
        &self,
        front: &Front,
        slot: u32,
        sequence: u32,
        event: KernelEvent,
        pass: &mut FrontPass<'_>,
    ) -> bool {
        let row = self.rows.row(slot);
        let state = row.state.load();
        let ready = to_signals(event.flags, state.wished());
        let is_usual = pass.is_plain()
            && is_served_by(row, state, front)
            && row.front_sequence() == sequence
            && state.is_armed()
            && !state.is_told()
            && ready.intersects(state.wished());
        if is_usual {
            pass.deliver(row, Reference { slot, generation: state.generation() }, state, ready);
        }
        is_usual
    }

    /// Delivers a Level row of a front that was reported before, if poll(2) says that it still holds.
    pub(crate) fn deliver_left(&self, front: &Front, reference: Reference, pass: &mut FrontPass<'_>) {
        let row = self.rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let state = row.state.load();
        let is_meant = state.generation() == reference.generation && is_served_by(row, state, front);
        if !is_meant || !state.is_armed() || front.prove(number).is_err() {
            return;
        }
        let Ok(entry) = descriptor::poll_entry(number, to_poll_flags(state.wished())) else { return };
        let mut entries = [entry];
        if descriptor::poll_now(&mut entries).is_err() {
            return;
        }
        let ready = from_poll_flags(entries[0].revents(), state.wished());
        if pass.deliver(row, reference, state, ready) {
            pass.has_turned = true;
            self.renew_front(number, &mut node, front, pass.ended);
        }
    }

    /// Of a suspect number: keeps which file was registered. `before` is what it was just before that; if its owner made
    /// it another file meanwhile, nobody can say which one it was, and nothing is kept.
    fn note_identity(&self, number: RawFd, before: Option<Identity>) {
        let after = descriptor::identity(number);
        let mut identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        match before.filter(|_| before == after) {
            Some(identity) => identities.insert(number, identity),
            None => identities.remove(&number),
        };
    }

    /// Of a suspect number: whether it still means the file that its rows are of, as far as that can be seen from outside.
    pub(crate) fn is_other_file(&self, number: RawFd, node: &Node) -> bool {
        if !node.marks.contains(Marks::SUSPECT) || node.rows.is_empty() {
            return false;
        }
        let identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        identities.get(&number).is_some_and(|known| Some(*known) != descriptor::identity(number))
    }

    /// Ends every row of a node and leaves it empty. The kernel's entries are the caller's business.
    pub(crate) fn end_rows(&self, number: RawFd, node: &mut Node, code: Code, ended: &mut Ended) {
        if node.is_registered() {
            self.back.abandon(number);
        }
        while node.rows.head() != NIL {
            let slot = node.rows.head();
            let row = self.rows.row(slot);
            node.rows.remove(&self.rows, slot, Row::node_links);
            let generation = row.state.load().generation();
            if row.state.end(generation, code) == Outcome::Queue {
                ended.push(Reference { slot, generation });
            }
        }
        if code == Code::NotFound {
            node.marks.insert(Marks::SUSPECT);
        }
        node.back_rows = 0;
        node.marks.set(Marks::HAS_FRONT, false);
        node.marks.set(Marks::REGISTERED, false);
        node.marks.set(Marks::PERSISTENT, false);
        node.wished = Signals::empty();
    }

    fn why_ended(&self, number: RawFd) -> Status {
        self.lost().unwrap_or_else(|| closed_behind(number))
    }

    fn why_gone(&self, reference: Reference) -> Status {
        self.lost().unwrap_or_else(|| gone(reference))
    }

    /// Why the service that serves the back is lost, if it is.
    fn lost(&self) -> Option<Status> {
        self.back.link()?.check().err()
    }

    pub(crate) fn visit<'a>(&'a self, node: &Node, mut visit: impl FnMut(u32, &'a Row)) {
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = self.rows.row(slot);
            visit(slot, row);
            slot = row.node_links.next();
        }
    }

    pub(crate) fn lock(&self, number: RawFd) -> Result<MutexGuard<'_, Node>> {
        self.nodes.lock(number).ok_or_else(|| beyond_limit(number, self.nodes.limit()))
    }
}

/// What an armed row wishes for; nothing for any other.
pub(crate) fn armed_wish(state: State) -> Signals {
    if state.is_armed() { state.wished() } else { Signals::empty() }
}

/// A live row that this front serves. One that has ended keeps its mark, but is no longer in its node.
pub(crate) fn is_served_by(row: &Row, state: State, front: &Front) -> bool {
    state.is_live() && state.is_in_front() && row.port.load(Ordering::Relaxed) == front.port()
}

/// The number no longer means the file of our entry: it is closed, or another file's, of a kind that epoll takes or not.
pub(crate) fn is_gone(result: Result<(), Errno>) -> bool {
    matches!(result, Err(Errno::NOENT | Errno::BADF | Errno::PERM))
}
