//! What waits in a client's port: a queue of rows, built into events when they are handed out (contract C4, C9).
//!
//! The queue runs through the rows themselves, so posting allocates nothing and cannot fail, unwatch takes a row out
//! in constant time, and a client that does not drain costs no memory beyond its rows.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use handle_watcher_wire::{Code, Mode, Result, Signals, Status};

use crate::events::{Events, taken_event};
use crate::front::{Front, FrontPolicy, Seat};
use crate::list::List;
use crate::notify::Notify;
use crate::outcome::{Outcome, Taken};
use crate::rows::{FreeSlots, NO_DEADLINE, Reference, Row, Rows, Start};
use crate::state::{Kind, State};
use crate::stats::{ClientStats, Counter};
use crate::sys::clock::now_ns;
use crate::sys::futex;
use crate::timers::Entry;
use crate::wake::{Parked, Sleeper};

/// How long a child's exit is held back at most while data that may have been there before it is still being read.
const CHILD_HOLD_NS: u64 = 1_000_000_000;

/// How many rows of a client are looked at for data that was there before a child's exit.
pub(crate) const CHILD_SCAN_LIMIT: usize = 1024;

/// How many free slots a client keeps for itself.
const SPARE_LIMIT: u32 = 64;

/// Limits of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLimits {
    pub(crate) watches: u32,
    pub(crate) timers: u32,
}

#[derive(Debug, Default)]
struct Queue {
    /// Rows with something undelivered, oldest first.
    ready: List,
    /// Children that exited, handed out after the data that was there before.
    exits: List,
    /// Every row of the client.
    rows: List,
    /// Free slots this client used before: taken again without asking anybody else.
    spare: FreeSlots,
    watches: u32,
    timers: u32,
    /// When the exits that wait are handed out at the latest; 0 if none waits.
    held_until_ns: u64,
    /// Why no new row is taken any more.
    refusal: Option<&'static str>,
    /// The watcher has stopped: nothing more will come.
    stopped: bool,
    /// A foreign loop polls the port: the bell has to be rung exactly while something is queued.
    is_exposed: bool,
    /// The bell was rung and the queue has not been settled since.
    is_rung: bool,
}

impl Queue {
    fn undelivered(&self) -> u32 {
        self.ready.len() + self.exits.len()
    }

    /// Nothing more will come. After the stop another thread may still be about to post a watch that it ended, or to let
    /// go of one that it was adding; until then the client is not told that everything was.
    fn is_over(&self) -> bool {
        self.stopped && self.watches == 0
    }

    /// True if the exits that wait may be handed out.
    fn may_exit(&mut self, is_free: bool) -> bool {
        if self.exits.is_empty() {
            self.held_until_ns = 0;
            return false;
        }
        let now = now_ns();
        if self.held_until_ns == 0 {
            self.held_until_ns = now.saturating_add(CHILD_HOLD_NS);
        }
        let may = is_free || now >= self.held_until_ns;
        if may {
            self.held_until_ns = 0;
        }
        may
    }

    fn count_of(&mut self, kind: Kind) -> Option<&mut u32> {
        match kind {
            Kind::Watch => Some(&mut self.watches),
            Kind::Timer => Some(&mut self.timers),
            Kind::Wake => None,
        }
    }
}

/// The part of a client that the watcher and the control handles share.
#[derive(Debug)]
pub(crate) struct PortQueue {
    index: u32,
    limits: PortLimits,
    seat: Seat,
    notifier: OnceLock<Arc<dyn Notify>>,
    queue: Mutex<Queue>,
    parked: Parked,
    /// How many rows are queued, and one more once nothing more will come; may be read without the lock.
    waiting: AtomicU32,
    /// How many of them are children's exits.
    exits: AtomicU32,
    delivered: Counter,
    from_front: Counter,
    wakes: Counter,
    notifier_panics: Counter,
}

impl PortQueue {
    pub(crate) fn new(index: u32, limits: PortLimits, policy: FrontPolicy) -> Self {
        Self {
            index,
            limits,
            seat: Seat::new(policy),
            notifier: OnceLock::new(),
            queue: Mutex::default(),
            parked: Parked::new(),
            waiting: AtomicU32::new(0),
            exits: AtomicU32::new(0),
            delivered: Counter::default(),
            from_front: Counter::default(),
            wakes: Counter::default(),
            notifier_panics: Counter::default(),
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Where this client's watches may be served.
    pub(crate) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Has `notifier` called from now on, once armed. The seat was vacated before.
    pub(crate) fn set_notifier(&self, notifier: Arc<dyn Notify>) {
        self.notifier.get_or_init(|| notifier);
    }

    /// Has the notifier called when something is queued next; false if something is there already.
    pub(crate) fn arm_notifier(&self) -> bool {
        self.parked.raise_call();
        if self.looks_ready() {
            self.parked.lower();
            return false;
        }
        true
    }

    pub(crate) fn front(&self) -> Option<&Arc<Front>> {
        self.seat.front()
    }

    /// Gives the port a front, and makes its waiter sleep there from now on.
    pub(crate) fn set_front(&self, front: Arc<Front>) {
        self.seat.set_front(front);
        let queue = self.lock();
        let sleeper = self.parked.take();
        drop(queue);
        self.wake(sleeper);
    }

    /// A foreign loop polls the port from now on.
    pub(crate) fn expose(&self) {
        let mut queue = self.lock();
        queue.is_exposed = true;
        if let Some(front) = self.front() {
            // Rung for a sleep that ended by itself.
            front.hush();
        }
        self.publish_counts(&queue);
        self.settle_bell(&mut queue, true);
    }

    /// After a hand-out: the bell is rung exactly while something is queued. `was_heard`: the front's set has reported
    /// the bell since the last time, so that ring is used up.
    pub(crate) fn settle(&self, was_heard: bool) {
        let mut queue = self.lock();
        // Timers that fired just now are in the queue and not announced yet.
        self.publish_counts(&queue);
        self.settle_bell(&mut queue, was_heard);
    }

    fn settle_bell(&self, queue: &mut Queue, was_heard: bool) {
        let Some(front) = self.seat.front().filter(|_| queue.is_exposed) else { return };
        let has_some = queue.undelivered() > 0 || queue.is_over();
        if has_some && (was_heard || !queue.is_rung) {
            // An eventfd we made takes a write unless write(2) itself is forbidden; then nothing here could help.
            if front.ring().is_err() {
                tracing::error!(target: "handle_watcher::port", port = self.index, "the bell could not be rung");
            }
        } else if !has_some && queue.is_rung && !was_heard {
            front.hush();
        }
        queue.is_rung = has_some;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a row for this client.
    ///
    /// # Errors
    /// `UNAVAILABLE` after the port was closed or the watcher stopped; `RESOURCE_EXHAUSTED` at a limit.
    pub(crate) fn reserve(&self, rows: &Rows, start: &Start) -> Result<Reference> {
        let mut queue = self.lock();
        if let Some(refusal) = queue.refusal {
            return Err(Status::new(Code::Unavailable, refusal));
        }
        let kind = start.role.kind;
        let (limit, what, name) = match kind {
            Kind::Watch => (self.limits.watches, "watches", "watch_limit"),
            Kind::Timer => (self.limits.timers, "timers", "timer_limit"),
            Kind::Wake => (u32::MAX, "wake flags", "client_limit"),
        };
        if queue.count_of(kind).is_some_and(|count| *count >= limit) {
            return Err(Status::new(
                Code::ResourceExhausted,
                format!("this client has {limit} {what} already; end some, or raise Config::{name}"),
            ));
        }
        let slot = queue.spare.pop(rows).or_else(|| rows.take_slot()).ok_or_else(|| {
            Status::new(
                Code::ResourceExhausted,
                format!(
                    "all {} rows of this watcher are taken; end some watches or timers, or raise Config::row_limit",
                    rows.limit()
                ),
            )
        })?;
        let reference = rows.reserve(slot, start);
        queue.rows.push_back(rows, reference.slot, Row::client_links);
        if let Some(count) = queue.count_of(kind) {
            *count += 1;
        }
        Ok(reference)
    }

    /// Frees a row whose state the caller detached (it was `before`), and takes it out of the queue.
    pub(crate) fn release(&self, rows: &Rows, reference: Reference, before: State) {
        let mut queue = self.lock();
        dequeue(&mut queue, rows, reference.slot, before.is_child());
        free(&mut queue, rows, reference, before.kind());
        self.let_go(queue);
    }

    /// Frees a reserved row that was not published, or whose state is gone already.
    pub(crate) fn release_reserved(&self, rows: &Rows, reference: Reference, kind: Kind) {
        let mut queue = self.lock();
        free(&mut queue, rows, reference, kind);
        self.let_go(queue);
    }

    /// After a row was freed. The last one of a stopped watcher's client is news to whoever waits.
    fn let_go(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.is_over() {
            return self.announce(queue);
        }
        self.publish_counts(&queue);
        self.settle_bell(&mut queue, false);
    }

    /// Takes a row out of the queue if nothing of it is undelivered any more.
    pub(crate) fn withdraw(&self, rows: &Rows, reference: Reference) {
        let mut queue = self.lock();
        let state = rows.row(reference.slot).state.load();
        if state.generation() == reference.generation && !state.is_queued() {
            dequeue(&mut queue, rows, reference.slot, state.is_child());
            self.publish_counts(&queue);
            self.settle_bell(&mut queue, false);
        }
    }

    /// Puts rows into the queue that have become undelivered, and wakes the waiter if it is parked. References that
    /// mean nothing any more (unwatched since, or queued already) are dropped here.
    pub(crate) fn post(&self, rows: &Rows, references: &[Reference]) {
        let mut queue = self.lock();
        for reference in references {
            let state = rows.row(reference.slot).state.load();
            if state.generation() == reference.generation && state.is_queued() {
                enqueue(&mut queue, rows, reference.slot, state.is_child());
            }
        }
        self.announce(queue);
    }

    /// Puts rows back into the queue whose client came back for more. Called by the waiter, whom nobody has to wake.
    pub(crate) fn requeue(&self, rows: &Rows, references: &mut Vec<Reference>) {
        if references.is_empty() {
            return;
        }
        let mut queue = self.lock();
        for reference in references.drain(..) {
            let state = rows.row(reference.slot).state.load();
            if state.generation() == reference.generation && state.is_queued() {
                enqueue(&mut queue, rows, reference.slot, state.is_child());
            }
        }
        self.publish_counts(&queue);
    }

    /// A timer is due at `now_ns`: counts what is due and queues it. Gives when it is due next, if it is periodic.
    /// The waiter is woken by the next [`post`](Self::post), once for all timers of a turn.
    ///
    /// Under the lock, as everything that writes to a timer's row: a row is freed under it, so a row whose generation
    /// still matches here cannot be given to another owner meanwhile.
    pub(crate) fn expire_timer(&self, rows: &Rows, entry: Entry, now_ns: u64) -> Option<u64> {
        let mut queue = self.lock();
        let row = rows.row(entry.reference.slot);
        let state = row.state.load();
        if state.generation() != entry.reference.generation || !state.is_armed() {
            return None;
        }
        let period_ns = row.extra.load(Ordering::Relaxed);
        let missed = (now_ns - entry.deadline_ns).checked_div(period_ns).unwrap_or(0);
        // The next one counts from when this one was due, so that no period drifts.
        let periods = missed.saturating_add(1).saturating_mul(period_ns);
        let next_ns = (period_ns > 0).then(|| entry.deadline_ns.saturating_add(periods));
        row.deadline_ns.store(next_ns.unwrap_or(NO_DEADLINE), Ordering::Relaxed);
        let count = row.count().load(Ordering::Relaxed);
        let due = u32::try_from(missed.saturating_add(1)).unwrap_or(u32::MAX);
        row.count().store(count.saturating_add(due), Ordering::Relaxed);
        if row.state.fire(entry.reference.generation, Signals::READABLE) == Outcome::Queue {
            enqueue(&mut queue, rows, entry.reference.slot, false);
        }
        next_ns
    }

    /// Counts a wake and queues it. False if the client's wake row is gone.
    pub(crate) fn ring(&self, rows: &Rows, reference: Reference) -> bool {
        let mut queue = self.lock();
        let row = rows.row(reference.slot);
        let state = row.state.load();
        if state.generation() != reference.generation || !state.is_live() || queue.stopped {
            return false;
        }
        row.count().store(row.count().load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        if row.state.fire(reference.generation, Signals::READABLE) == Outcome::Queue {
            enqueue(&mut queue, rows, reference.slot, false);
        }
        self.announce(queue);
        true
    }

    /// Nothing more will come; a waiter returns.
    pub(crate) fn stop(&self) {
        let mut queue = self.lock();
        queue.stopped = true;
        self.announce(queue);
    }

    /// Refuses new rows from now on; `refusal` is what callers are told.
    pub(crate) fn refuse(&self, refusal: &'static str) {
        self.lock().refusal.get_or_insert(refusal);
    }

    /// Gives the slots back that were kept. Called when no new row is taken any more.
    pub(crate) fn give_spare_back(&self, rows: &Rows) {
        let mut queue = self.lock();
        while let Some(slot) = queue.spare.pop(rows) {
            rows.give_slot(slot);
        }
    }

    /// # Errors
    /// `UNAVAILABLE` once no new row is taken.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.lock().refusal {
            Some(refusal) => Err(Status::new(Code::Unavailable, refusal)),
            None => Ok(()),
        }
    }

    /// A row of this client, whichever comes first; for ending them all.
    pub(crate) fn first_row(&self) -> Option<u32> {
        let queue = self.lock();
        (!queue.rows.is_empty()).then(|| queue.rows.head())
    }

    /// Calls `visit` with the rows of this client until it says to stop.
    pub(crate) fn visit_rows(&self, rows: &Rows, mut visit: impl FnMut(u32, &Row) -> bool) {
        let queue = self.lock();
        let mut slot = queue.rows.head();
        while slot != crate::list::NIL {
            let row = rows.row(slot);
            if !visit(slot, row) {
                return;
            }
            slot = row.client_links.next();
        }
    }

    /// Hands out what is queued, as much as `events` has room for; children's exits only if `with_exits`, or once they
    /// were held back too long. True if nothing is left and nothing will come.
    pub(crate) fn take(
        &self,
        rows: &Rows,
        events: &mut Events,
        with_exits: bool,
        away: &mut Vec<Reference>,
    ) -> bool {
        let before = events.len();
        let mut queue = self.lock();
        // Nobody else can post meanwhile, and a row joins anew at most once, for its Ended event: this ends.
        while events.has_room() && !queue.ready.is_empty() {
            let slot = queue.ready.head();
            queue.ready.remove(rows, slot, Row::queue_links);
            hand_out(&mut queue, rows, slot, events, away);
        }
        if queue.may_exit(with_exits) {
            while events.has_room() && !queue.exits.is_empty() {
                let slot = queue.exits.head();
                queue.exits.remove(rows, slot, Row::queue_links);
                hand_out(&mut queue, rows, slot, events, away);
            }
        }
        self.publish_counts(&queue);
        self.delivered.add((events.len() - before) as u64);
        queue.is_over() && queue.undelivered() == 0
    }

    /// Counts events that the front handed out.
    pub(crate) fn count_from_front(&self, count: usize) {
        self.delivered.add(count as u64);
        self.from_front.add(count as u64);
    }

    /// Counts events that were taken back before they were handed out.
    pub(crate) fn count_taken_back(&self, count: usize) {
        self.delivered.set(self.delivered.get() - count as u64);
    }

    /// A child's exit is queued; may be out of date by the time it returns.
    pub(crate) fn has_exits(&self) -> bool {
        self.exits.load(Ordering::Acquire) > 0
    }

    /// There is something to hand out or to tell; may be out of date by the time it returns.
    pub(crate) fn looks_ready(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Parks until something is posted or the deadline passes. Returns at once if something is there, or if the port
    /// has got a front to sleep in.
    pub(crate) fn park(&self, deadline_ns: Option<u64>) {
        self.parked.raise();
        if !self.looks_ready() && (self.seat.front().is_none() || self.seat.is_lost()) {
            while self.parked.is_raised() && !futex::park(self.parked.word(), Parked::EXPECTED, deadline_ns) {
            }
        }
        self.parked.lower();
    }

    /// The waiter is about to sleep in the front; false if something is there. Afterwards it must call
    /// [`leave_front`](Self::leave_front).
    pub(crate) fn enter_front(&self) -> bool {
        self.parked.raise_in_front();
        if self.looks_ready() {
            self.parked.lower();
            return false;
        }
        true
    }

    pub(crate) fn leave_front(&self) {
        self.parked.lower();
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let queue = self.lock();
        ClientStats {
            watches: queue.watches.into(),
            timers: queue.timers.into(),
            handles: 0,
            undelivered: queue.undelivered().into(),
            delivered: self.delivered.get(),
            from_front: self.from_front.get(),
            wakes: self.wakes.get(),
            notifier_panics: self.notifier_panics.get(),
        }
    }

    /// Lets go of the queue and wakes whoever waits for it.
    fn announce(&self, mut queue: MutexGuard<'_, Queue>) {
        let has_some = self.publish_counts(&queue);
        let mut sleeper = if has_some { self.parked.take() } else { Sleeper::Nobody };
        if has_some && queue.is_exposed {
            // Under the lock: who settles must know of every ring.
            self.settle_bell(&mut queue, false);
            sleeper = if sleeper == Sleeper::InFront { Sleeper::Nobody } else { sleeper };
        }
        drop(queue);
        self.wake(sleeper);
    }

    /// Runs foreign code: outside every lock, and a panic of it harms nobody else.
    pub(crate) fn call_notifier(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        let call = std::panic::AssertUnwindSafe(|| notifier.notify());
        if std::panic::catch_unwind(call).is_err() {
            self.notifier_panics.add_shared(1);
            tracing::warn!(target: "handle_watcher::port", port = self.index, "a notifier panicked");
        }
    }

    /// Tells those who look without the lock how much there is; true if there is anything.
    fn publish_counts(&self, queue: &Queue) -> bool {
        let waiting = queue.undelivered() + u32::from(queue.is_over());
        // Written under the lock only, so reading it first is enough, and leaves the line alone where nothing changed.
        if self.waiting.load(Ordering::Relaxed) != waiting {
            self.waiting.store(waiting, Ordering::Release);
        }
        self.exits.store(queue.exits.len(), Ordering::Release);
        waiting > 0
    }

    fn wake(&self, sleeper: Sleeper) {
        match sleeper {
            Sleeper::Nobody => return,
            Sleeper::OnWord => futex::unpark(self.parked.word()),
            Sleeper::Called => self.call_notifier(),
            Sleeper::InFront => {
                if self.seat.front().is_some_and(|front| front.ring().is_err()) {
                    tracing::error!(target: "handle_watcher::port", port = self.index, "the bell could not be rung");
                }
            }
        }
        self.wakes.add_shared(1);
    }
}

/// Builds the event of a row that was just taken out of the queue.
fn hand_out(queue: &mut Queue, rows: &Rows, slot: u32, events: &mut Events, away: &mut Vec<Reference>) {
    let row = rows.row(slot);
    let state = row.state.load();
    let reference = Reference { slot, generation: state.generation() };
    let taken = row.state.take(reference.generation);
    match taken {
        Taken::Nothing => return,
        Taken::Ready { ended: true, .. } | Taken::Deadline { ended: true, .. } => {
            // The Ended event comes after everything that waits now.
            enqueue(queue, rows, slot, state.is_child());
        }
        // Also one that has moved to the front since it was queued: what passed meanwhile is not told.
        Taken::Ready { .. } if state.mode() == Mode::Level => away.push(reference),
        Taken::Ready { .. } | Taken::Deadline { .. } | Taken::Ended(_) => {}
    }
    if let Some(event) = taken_event(row, state.kind(), reference, taken) {
        events.push(event);
    }
    if matches!(taken, Taken::Ended(_)) || state.is_one_shot_timer() {
        free(queue, rows, reference, state.kind());
    }
}

fn free(queue: &mut Queue, rows: &Rows, reference: Reference, kind: Kind) {
    queue.rows.remove(rows, reference.slot, Row::client_links);
    if let Some(count) = queue.count_of(kind) {
        *count -= 1;
    }
    if let Some(slot) = rows.recycle(reference) {
        if queue.spare.len() < SPARE_LIMIT && queue.refusal.is_none() && !rows.is_scarce() {
            queue.spare.push(rows, slot);
        } else {
            rows.give_slot(slot);
        }
    }
}

fn enqueue(queue: &mut Queue, rows: &Rows, slot: u32, child: bool) {
    let queued = queue.ready.contains(rows, slot, Row::queue_links)
        || queue.exits.contains(rows, slot, Row::queue_links);
    if !queued {
        let list = if child { &mut queue.exits } else { &mut queue.ready };
        list.push_back(rows, slot, Row::queue_links);
    }
}

fn dequeue(queue: &mut Queue, rows: &Rows, slot: u32, child: bool) {
    let list = if child { &mut queue.exits } else { &mut queue.ready };
    if list.contains(rows, slot, Row::queue_links) {
        list.remove(rows, slot, Row::queue_links);
    }
}
