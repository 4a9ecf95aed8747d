//! A kernel poll set and its descriptor nodes: several watches share one kernel entry, and no event of an old
//! registration ever reaches a new one (contract C3, C6, C7).
//!
//! The kernel keys its entries by descriptor number and open file, while a program may watch one number several times
//! and may close it without telling us. So each number has a node with a small lock, the first of its rows, the union
//! of their wishes and a sequence that grows with every change of the kernel entry and never restarts. A kernel token
//! is number and sequence: a report whose sequence is not the node's is stale and dropped.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use handle_watcher_wire::{Code, Mode, Result, Signals, Status};
use rustix::event::epoll::{Event, EventFlags};
use rustix::io::Errno;

use crate::list::{Chain, NIL};
use crate::rows::{NO_DEADLINE, Reference, Row, Rows};
use crate::state::{Outcome, State};
use crate::sys::descriptor;
use crate::sys::epoll::{Epoll, WAKER_TOKEN};

const NODES_PER_CHUNK: usize = 1024;
/// The highest descriptor number we watch, whatever the process may open: 4 million.
const MOST_NODES: usize = 1 << 22;
const SEQUENCE_BITS: u32 = 40;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// What one descriptor number is to one poll set.
#[derive(Debug, Default)]
struct Node {
    sequence: u64,
    rows: Chain,
    /// The union of what its armed rows wish for, as the kernel was last told.
    wished: Signals,
    /// The kernel has an entry. True exactly while there are rows.
    registered: bool,
    /// One of the rows is Edge or Level: the entry is edge-triggered. Otherwise it is one-shot.
    persistent: bool,
}

/// Rows that something ended, and that the caller has to post to their ports after it let go of every lock.
pub(crate) type Ended = Vec<Reference>;

/// What the watcher found behind one kernel event.
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

type Chunk = Box<[Mutex<Node>]>;

#[derive(Debug)]
pub(crate) struct PollSet {
    epoll: Epoll,
    chunks: Box<[OnceLock<Chunk>]>,
}

impl PollSet {
    /// Makes a poll set for descriptor numbers below `number_limit`.
    pub(crate) fn new(number_limit: usize) -> std::io::Result<Self> {
        let chunks = number_limit.clamp(1, MOST_NODES).div_ceil(NODES_PER_CHUNK);
        Ok(Self { epoll: Epoll::new()?, chunks: (0..chunks).map(|_| OnceLock::new()).collect() })
    }

    pub(crate) fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    /// Publishes a reserved row and registers it with the kernel. On an error the row is the caller's to free.
    pub(crate) fn attach(&self, rows: &Rows, reference: Reference, ended: &mut Ended) -> Result<()> {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        if !row.state.publish(reference.generation) {
            return Err(Status::new(
                Code::Unavailable,
                "the client was closed while the watch was being added",
            ));
        }
        let state = row.state.load();
        let (union, persistent) = (node.wished | armed_wish(state), node.persistent | is_persistent(state));
        let mut result = self.register(number, &mut node, union, persistent);
        if is_gone(result) && !node.rows.is_empty() {
            end_rows(rows, &mut node, Code::NotFound, ended);
            result = self.register(number, &mut node, armed_wish(state), is_persistent(state));
        }
        match result {
            Ok(()) => {
                node.rows.push(rows, reference.slot, Row::node_links);
                Ok(())
            }
            Err(errno) => {
                row.state.detach(reference.generation);
                Err(refusal(errno, number))
            }
        }
    }

    /// Arms a row: a condition that holds already is reported at once. Sets or clears its deadline.
    ///
    /// # Errors
    /// `NOT_FOUND` if the row is not the caller's (any more) or its descriptor is gone, which ends it;
    /// `FAILED_PRECONDITION` if it is paused.
    pub(crate) fn arm(
        &self,
        rows: &Rows,
        reference: Reference,
        deadline_ns: u64,
        ended: &mut Ended,
    ) -> Result<u64> {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let Some(before) = row.state.arm(reference.generation) else {
            let state = row.state.load();
            return Err(if state.generation() == reference.generation && state.is_live() {
                Status::new(
                    Code::FailedPrecondition,
                    "the watch is paused; resume it, or change its signals, first",
                )
            } else {
                gone(reference)
            });
        };
        let deadline_before = row.deadline_ns.swap(deadline_ns, Ordering::Relaxed);
        let (union, persistent) = (node.wished | before.wished(), node.persistent);
        self.apply(rows, number, &mut node, union, persistent, ended);
        if row.state.load().is_ended() {
            return Err(closed_behind(number));
        }
        Ok(deadline_before)
    }

    /// Replaces what a row wishes for; an undelivered event of it is withdrawn. Gives the state it had, and the deadline
    /// that a pause took away.
    pub(crate) fn change(
        &self,
        rows: &Rows,
        reference: Reference,
        wish: Wish,
        ended: &mut Ended,
    ) -> Result<(State, u64)> {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let state = row.state.load();
        let wished = match wish {
            Wish::These(signals) => signals,
            Wish::Remembered if state.wished().is_empty() => row.remembered(),
            // It is not paused: nothing to do, if it is the caller's at all.
            Wish::Remembered if state.generation() == reference.generation && state.is_live() => {
                return Ok((State::free(reference.generation), NO_DEADLINE));
            }
            Wish::Remembered => return Err(gone(reference)),
        };
        if wished.is_empty() && matches!(wish, Wish::Remembered) {
            return Err(never_wished(reference));
        }
        let before = row.state.change(reference.generation, wished).ok_or_else(|| gone(reference))?;
        let mut deadline_before = NO_DEADLINE;
        if wished.is_empty() {
            deadline_before = row.deadline_ns.swap(NO_DEADLINE, Ordering::Relaxed);
            if !before.wished().is_empty() {
                row.remember(before.wished());
            }
        }
        let (union, persistent) = survey(rows, &node);
        self.apply(rows, number, &mut node, union, persistent, ended);
        if row.state.load().is_ended() {
            return Err(closed_behind(number));
        }
        Ok((before, deadline_before))
    }

    /// Tells the kernel about an armed row once more: a condition that holds is reported again, and a number that is no
    /// longer our file ends its rows.
    pub(crate) fn refresh(&self, rows: &Rows, reference: Reference, ended: &mut Ended) {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return };
        let state = row.state.load();
        if state.generation() == reference.generation && state.is_armed() {
            let (union, persistent) = survey(rows, &node);
            self.apply(rows, number, &mut node, union, persistent, ended);
        }
    }

    /// Takes a row away from its node and from the kernel. Gives the state it had.
    pub(crate) fn detach(&self, rows: &Rows, reference: Reference, ended: &mut Ended) -> Result<State> {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let mut node = self.lock(number)?;
        let before = row.state.detach(reference.generation).ok_or_else(|| gone(reference))?;
        if before.is_live() {
            node.rows.remove(rows, reference.slot, Row::node_links);
            self.forget(rows, number, &mut node, ended);
        }
        Ok(before)
    }

    /// Ends one live row. False if it was not live (any more).
    pub(crate) fn end(&self, rows: &Rows, reference: Reference, code: Code, ended: &mut Ended) -> bool {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return false };
        let outcome = row.state.end(reference.generation, code);
        if outcome == Outcome::Ignored {
            return false;
        }
        if outcome == Outcome::Queue {
            ended.push(reference);
        }
        node.rows.remove(rows, reference.slot, Row::node_links);
        self.forget(rows, number, &mut node, ended);
        true
    }

    /// Ends every row of a number that its owner is about to close, and takes it out of the kernel set.
    pub(crate) fn close(&self, rows: &Rows, number: RawFd, code: Code, ended: &mut Ended) {
        let Ok(mut node) = self.lock(number) else { return };
        end_rows(rows, &mut node, code, ended);
        self.unregister(number, &mut node);
    }

    /// The deadline of a row came. Tells what to do with the row; nothing if it was armed anew meanwhile.
    pub(crate) fn expire(
        &self,
        rows: &Rows,
        reference: Reference,
        deadline_ns: u64,
        ended: &mut Ended,
    ) -> Outcome {
        let row = rows.row(reference.slot);
        let number = row.descriptor();
        let Ok(mut node) = self.lock(number) else { return Outcome::Ignored };
        if row.deadline_ns.load(Ordering::Relaxed) != deadline_ns {
            return Outcome::Ignored;
        }
        let outcome = row.state.expire(reference.generation);
        if outcome != Outcome::Ignored {
            row.deadline_ns.store(NO_DEADLINE, Ordering::Relaxed);
            let (union, persistent) = survey(rows, &node);
            self.apply(rows, number, &mut node, union, persistent, ended);
        }
        outcome
    }

    /// Fires the rows a kernel event is about; `queue` gets those that have to be put into their port's queue.
    #[inline]
    pub(crate) fn collect(
        &self,
        rows: &Rows,
        event: Event,
        mut queue: impl FnMut(&Row, Reference),
        ended: &mut Ended,
    ) -> Collected {
        let token = event.data.u64();
        if token == WAKER_TOKEN {
            return Collected::Waker;
        }
        let number = RawFd::try_from(token >> SEQUENCE_BITS).unwrap_or(-1);
        let Ok(mut node) = self.lock(number) else { return Collected::Stale };
        if node.sequence != token & SEQUENCE_MASK || !node.registered {
            return Collected::Stale;
        }
        let mut rest = Signals::empty();
        let mut slot = node.rows.head();
        while slot != NIL {
            let row = rows.row(slot);
            let next = row.node_links.next();
            let generation = row.state.load().generation();
            let ready = to_signals(event.flags, row.state.load().wished());
            if row.state.fire(generation, ready) == Outcome::Queue {
                queue(row, Reference { slot, generation });
            }
            rest |= armed_wish(row.state.load());
            slot = next;
        }
        if !node.persistent {
            // The kernel switched its one-shot entry off; what is still armed needs it on again.
            node.wished = Signals::empty();
            if !rest.is_empty() {
                self.apply(rows, number, &mut node, rest, false, ended);
            }
        }
        Collected::Rows
    }

    /// After a row left: the last one takes the kernel entry along, others may need less than before.
    fn forget(&self, rows: &Rows, number: RawFd, node: &mut Node, ended: &mut Ended) {
        if node.rows.is_empty() {
            self.unregister(number, node);
            return;
        }
        let (union, persistent) = survey(rows, node);
        if union != node.wished || persistent != node.persistent {
            self.apply(rows, number, node, union, persistent, ended);
        }
    }

    /// Tells the kernel; if the number is no longer the file we know, ends every row of the node.
    fn apply(
        &self,
        rows: &Rows,
        number: RawFd,
        node: &mut Node,
        union: Signals,
        persistent: bool,
        ended: &mut Ended,
    ) {
        if let Err(errno) = self.register(number, node, union, persistent) {
            let code =
                if matches!(errno, Errno::NOENT | Errno::BADF) { Code::NotFound } else { Code::Internal };
            end_rows(rows, node, code, ended);
            self.unregister(number, node);
        }
    }

    /// Adds or modifies the kernel entry under a new sequence. The node keeps its old values on an error.
    fn register(
        &self,
        number: RawFd,
        node: &mut Node,
        union: Signals,
        persistent: bool,
    ) -> Result<(), Errno> {
        let sequence = (node.sequence + 1) & SEQUENCE_MASK;
        let token = u64::from(number.cast_unsigned()) << SEQUENCE_BITS | sequence;
        let flags = to_flags(union, persistent);
        if node.registered {
            self.epoll.modify(number, flags, token)?;
        } else {
            match self.epoll.add(number, flags, token) {
                // The same file was watched under this number, closed and duplicated back: its entry lived on.
                Err(Errno::EXIST) => self.epoll.modify(number, flags, token)?,
                other => other?,
            }
        }
        node.sequence = sequence;
        node.wished = union;
        node.persistent = persistent;
        node.registered = true;
        Ok(())
    }

    fn unregister(&self, number: RawFd, node: &mut Node) {
        if node.registered {
            // A failure means that the number was closed already, and the kernel's entry with it.
            let _: Result<(), Errno> = self.epoll.delete(number);
        }
        node.registered = false;
        node.persistent = false;
        node.wished = Signals::empty();
    }

    fn lock(&self, number: RawFd) -> Result<MutexGuard<'_, Node>> {
        let index = usize::try_from(number).map_err(|_| refusal(Errno::BADF, number))?;
        let chunk = self.chunks.get(index / NODES_PER_CHUNK).ok_or_else(|| self.out_of_range(number))?;
        let nodes = chunk.get_or_init(|| (0..NODES_PER_CHUNK).map(|_| Mutex::default()).collect());
        Ok(nodes[index % NODES_PER_CHUNK].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn out_of_range(&self, number: RawFd) -> Status {
        if !descriptor::is_open(number) {
            return refusal(Errno::BADF, number);
        }
        let limit = self.chunks.len() * NODES_PER_CHUNK;
        Status::new(
            Code::ResourceExhausted,
            format!(
                "descriptor {number} is beyond {limit}, the hard RLIMIT_NOFILE when the watcher was spawned (at most \
                 {MOST_NODES}); raise the limit before spawning it"
            ),
        )
    }
}

/// What an armed row wishes for; nothing for any other.
fn armed_wish(state: State) -> Signals {
    if state.is_armed() { state.wished() } else { Signals::empty() }
}

fn is_persistent(state: State) -> bool {
    state.mode() != Mode::Once
}

/// The union of the armed rows' wishes, and whether any row needs an edge-triggered entry.
fn survey(rows: &Rows, node: &Node) -> (Signals, bool) {
    let (mut union, mut persistent) = (Signals::empty(), false);
    let mut slot = node.rows.head();
    while slot != NIL {
        let row = rows.row(slot);
        let state = row.state.load();
        union |= armed_wish(state);
        persistent |= is_persistent(state);
        slot = row.node_links.next();
    }
    (union, persistent)
}

/// Ends every row of a node and leaves it empty. The kernel's entry is the caller's business.
fn end_rows(rows: &Rows, node: &mut Node, code: Code, ended: &mut Ended) {
    while node.rows.head() != NIL {
        let slot = node.rows.head();
        let row = rows.row(slot);
        node.rows.remove(rows, slot, Row::node_links);
        let generation = row.state.load().generation();
        if row.state.end(generation, code) == Outcome::Queue {
            ended.push(Reference { slot, generation });
        }
    }
    node.registered = false;
    node.wished = Signals::empty();
    node.persistent = false;
}

/// The kernel flags to ask for. Errors and full hang-ups come unasked.
///
/// An entry nobody is armed in asks for nothing, one-shot: the kernel then reports a hang-up at most once, and the
/// entry still proves that the number means our file.
fn to_flags(union: Signals, persistent: bool) -> EventFlags {
    let mut flags = if persistent { EventFlags::ET } else { EventFlags::ONESHOT };
    if union.contains(Signals::READABLE) {
        flags |= EventFlags::IN | EventFlags::RDHUP;
    }
    if union.contains(Signals::WRITABLE) {
        flags |= EventFlags::OUT;
    }
    if union.contains(Signals::PEER_CLOSED) {
        flags |= EventFlags::RDHUP;
    }
    if union.contains(Signals::PRIORITY) {
        flags |= EventFlags::PRI;
    }
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
        format!(
            "descriptor {number} was closed while it was watched; the watch has ended. Call unwatch before closing"
        ),
    )
}

/// Why the kernel refused to watch a descriptor.
fn refusal(errno: Errno, number: RawFd) -> Status {
    match errno {
        Errno::BADF | Errno::NOENT => Status::new(
            Code::InvalidArgument,
            format!(
                "descriptor {number} is not open; watch it while it is, and unwatch it before closing it"
            ),
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
            format!(
                "the kernel's limit of watched descriptors is reached at {number}; raise fs.epoll.max_user_watches"
            ),
        ),
        Errno::NOMEM => Status::new(
            Code::ResourceExhausted,
            format!("the kernel has no memory to watch descriptor {number}; watch fewer, or give it more"),
        ),
        Errno::LOOP | Errno::INVAL => Status::new(
            Code::InvalidArgument,
            format!(
                "descriptor {number} is a poll set that contains this watcher, or is nested too deep; untangle them"
            ),
        ),
        other => {
            Status::new(Code::Internal, format!("the kernel refused to watch descriptor {number}: {other}"))
        }
    }
}

const _: () = assert!(size_of::<Mutex<Node>>() <= 24, "a node is small: there is one per watched descriptor");

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
    fn a_watch_of_nothing_asks_for_nothing_and_only_once() {
        assert_eq!(to_flags(Signals::empty(), false), EventFlags::ONESHOT);
        assert!(to_flags(Signals::READABLE, true).contains(EventFlags::ET | EventFlags::RDHUP));
    }
}
