//! The port: one client's one place to read events from.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use handle_watcher_wire::{Code, Mode, Result, Signals, Status, WatchId};
use rustix::event::{PollFd, PollFlags};

use crate::arrivals;
use crate::config::ClientConfig;
use crate::control::Control;
use crate::deadline::Deadline;
use crate::events::Events;
use crate::front::Front;
use crate::front_pass::FrontPass;
use crate::kernel_flags::{from_poll_flags, to_poll_flags};
use crate::outcome::Outcome;
use crate::rows::Reference;
use crate::shared::Shared;
use crate::state::{Kind, State};
use crate::sys::clock::now_ns;
use crate::sys::descriptor;
use crate::sys::epoll::KernelEvents;
use crate::wait_set::{Collected, Ended};
use crate::waiting_data;

/// How many events one look at the front takes from the kernel.
const FRONT_BATCH: usize = 256;
/// How many looks one hand-out takes while the kernel reports only what no longer means anything.
const FRONT_PASSES: usize = 4;
/// Each so many looks at the front, the Level watches that were told are proved to be still of their files: one whose
/// number was closed while its file lives on would be told for ever to a client that cannot consume it.
const PROOF_INTERVAL: u32 = 64;
/// So many meaningless reports in a row show that a closed number whose file lives on has poisoned the front.
const STALE_LIMIT: u32 = 3;

/// The events of one client. One thread waits at a time, which `&mut` enforces; any thread may do so. Dropping the port
/// ends the client: every watch is taken back, and what was given is closed on the dropping thread.
pub struct Port {
    control: Control,
    config: ClientConfig,
    /// Level rows that the queue handed out; the client comes back for more with the next call.
    away: Vec<Reference>,
    // Kept from call to call, so that no call allocates.
    polled: Vec<(Reference, Signals)>,
    returned: Vec<Reference>,
    spilled: Vec<Reference>,
    ended: Ended,
    entries: Vec<PollFd<'static>>,
    kernel_events: KernelEvents,
    /// The front, once there is one.
    front: Option<Arc<Front>>,
    /// Queue and front take turns in having the first places of a batch.
    is_front_first: bool,
    /// Level watches of the front that the kernel reported and that had no room in the last batch.
    left: VecDeque<Reference>,
    /// The front's set reported the bell since the queue was settled last.
    was_heard: bool,
    /// A service's event socket was reported, and not read since.
    has_arrivals: bool,
    /// Something was taken from the queue since then.
    has_taken: bool,
    stale: u32,
    front_looks: u32,
}

impl Port {
    pub(crate) fn open(shared: &Arc<Shared>, config: ClientConfig) -> Result<(Control, Self)> {
        shared.check_process()?;
        let port = shared.open_port(config.front)?;
        let control = Control::new(Arc::clone(shared), Arc::clone(&port)).inspect_err(|_| {
            shared.close_port(&port);
        })?;
        let port = Self {
            control: control.clone(),
            config,
            away: Vec::new(),
            polled: Vec::new(),
            returned: Vec::new(),
            spilled: Vec::new(),
            ended: Ended::new(),
            entries: Vec::new(),
            kernel_events: KernelEvents::default(),
            front: None,
            is_front_first: false,
            left: VecDeque::new(),
            was_heard: false,
            has_arrivals: false,
            has_taken: false,
            stale: 0,
            front_looks: 0,
        };
        Ok((control, port))
    }

    /// The client's control handle.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Hands out what is there, without blocking: at most what `events` has room for; what does not fit comes first
    /// the next time. Clears `events` before. Gives the number of events.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the watcher has stopped and every last event was handed out; `FAILED_PRECONDITION` after a
    /// fork.
    pub fn drain(&mut self, events: &mut Events) -> Result<usize> {
        self.control.shared().check_process()?;
        self.come_back();
        self.take(events)
    }

    /// Waits until something can be handed out, or until `timeout` passed (`None`: for ever). Gives the number of
    /// events, 0 only at the timeout. An interrupted wait is resumed; a timeout is rounded up, never down; no
    /// timeout is too large.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize> {
        match timeout {
            // No clock is read where none is needed.
            Some(Duration::ZERO) => self.drain(events),
            Some(timeout) => self.wait_for(events, Some(Deadline::after(timeout))),
            None => self.wait_for(events, None),
        }
    }

    /// [`wait`](Self::wait) until an absolute deadline.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub fn wait_until(&mut self, events: &mut Events, deadline: impl Into<Deadline>) -> Result<usize> {
        self.wait_for(events, Some(deadline.into()))
    }

    fn wait_for(&mut self, events: &mut Events, deadline: Option<Deadline>) -> Result<usize> {
        self.control.shared().check_process()?;
        events.clear();
        self.come_back();
        // A sleep looks at everything that is there when it begins, so an empty queue needs no look of its own.
        let mut has_looked = !self.control.port().looks_ready() && self.left.is_empty();
        loop {
            if !has_looked && self.take(events)? > 0 {
                return Ok(events.len());
            }
            has_looked = false;
            if self.spin() {
                continue;
            }
            if self.sleep(events, deadline) && !events.is_empty() {
                return Ok(events.len());
            }
            if deadline.is_some_and(|deadline| deadline.as_ns() <= now_ns()) {
                return self.take(events);
            }
        }
    }

    /// A descriptor for foreign event loops: readable exactly while the next [`drain`](Self::drain) would return
    /// something, an event or the news that the watcher has stopped. Watch it for readability only, level-triggered or
    /// not, and never read it. It stays the same for the life of the port. The first call makes it, and costs each
    /// hand-out from then on a little.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if descriptors ran out; `FAILED_PRECONDITION` after a fork.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>> {
        self.control.shared().check_process()?;
        let exhausted = |error: &dyn std::fmt::Display| {
            Status::new(
                Code::ResourceExhausted,
                format!(
                    "the port's descriptor could not be made: {error}; close some or raise RLIMIT_NOFILE"
                ),
            )
        };
        let front = self.control.shared().front(self.control.port());
        let front = front.ok_or_else(|| exhausted(&"no front"))?;
        if !front.is_exposed() {
            front.expose().map_err(|error| exhausted(&error))?;
            self.control.port().expose();
            if let Some(link) = self.control.shared().link() {
                link.be_exact();
            }
            self.come_back();
            self.move_levels();
        }
        let front = self.control.port().front().ok_or_else(|| exhausted(&"no front"))?;
        front.expose().map_err(|error| exhausted(&error))
    }

    /// Takes from the queue and from the front, turn by turn first, without waiting.
    fn take(&mut self, events: &mut Events) -> Result<usize> {
        events.clear();
        self.is_front_first = !self.is_front_first;
        let is_finished = if self.is_front_first {
            self.look_at_front(events);
            self.absorb();
            self.take_queue(events, false)
        } else {
            let is_finished = self.take_queue(events, false);
            self.look_at_front(events);
            is_finished
        };
        let is_finished = if self.absorb() { self.take_queue(events, false) } else { is_finished };
        if self.control.port().has_exits() && events.has_room() {
            // What data a child left is looked for, and told, before its exit is.
            let has_data = events.iter().any(|event| event.satisfied.contains(Signals::READABLE));
            let with_exits = !has_data && !waiting_data::fire(&self.control, &mut self.entries);
            self.take_queue(events, with_exits);
        }
        self.settle();
        if events.is_empty() && is_finished { Err(self.control.shared().stopped()) } else { Ok(events.len()) }
    }

    /// True if nothing is left and nothing will come.
    fn take_queue(&mut self, events: &mut Events, with_exits: bool) -> bool {
        if !self.control.port().looks_ready() {
            return false;
        }
        self.has_taken = true;
        let rows = self.control.shared().rows();
        let away_before = self.away.len();
        let is_finished = self.control.port().take(rows, events, with_exits, &mut self.away);
        if self.away.len() > away_before {
            self.take_back_passed(events, away_before);
        }
        is_finished
    }

    /// A condition that was consumed while its Level event was queued is not told: what the back handed out from
    /// `first` on is looked at with one poll(2), and what has passed is taken back.
    fn take_back_passed(&mut self, events: &mut Events, first: usize) {
        let rows = self.control.shared().rows();
        self.entries.clear();
        self.polled.clear();
        for &reference in &self.away[first..] {
            let row = rows.row(reference.slot);
            let wished = row.state.load().wished();
            match descriptor::poll_entry(row.descriptor(), to_poll_flags(wished)) {
                Ok(entry) => self.entries.push(entry),
                Err(_) => return,
            }
            self.polled.push((reference, wished));
        }
        if descriptor::poll_now(&mut self.entries).is_err() {
            return;
        }
        self.away.truncate(first);
        let (away, returned) = (&mut self.away, &mut self.returned);
        // Both are in the order of the hand-out.
        let mut looked = self.polled.iter().zip(&self.entries).peekable();
        let count = events.retain(|event| {
            let is_meant =
                |reference: Reference| event.watch == WatchId::new(reference.slot, reference.generation);
            let Some((&(reference, wished), entry)) =
                looked.next_if(|((reference, _), _)| is_meant(*reference))
            else {
                return true;
            };
            // A number that was closed meanwhile says nothing about what was told of it.
            if !entry.revents().contains(PollFlags::NVAL) {
                event.satisfied &= from_poll_flags(entry.revents(), wished);
            }
            let holds = !event.satisfied.is_empty();
            if holds {
                away.push(reference);
            } else if rows.row(reference.slot).state.come_back(reference.generation) == Outcome::Queue {
                returned.push(reference);
            }
            holds
        });
        self.control.port().count_taken_back(count);
        self.control.port().requeue(rows, &mut self.returned);
    }

    /// Reads what a service has told, if its socket was reported. True if it did.
    fn absorb(&mut self) -> bool {
        if !std::mem::take(&mut self.has_arrivals) {
            return false;
        }
        if let Some(link) = self.control.shared().link() {
            arrivals::absorb(self.control.shared(), link);
        }
        true
    }

    /// Sleeps until woken or until the deadline; true if it looked at the front meanwhile.
    fn sleep(&mut self, events: &mut Events, deadline: Option<Deadline>) -> bool {
        if !self.has_front() {
            arrivals::sleep_without_front(self.control.shared(), self.control.port(), deadline);
            return false;
        }
        if !self.control.port().enter_front() {
            return false;
        }
        let timeout_ns = deadline.map(|deadline| deadline.as_ns().saturating_sub(now_ns()));
        self.ask_front(events.room(), timeout_ns);
        self.control.port().leave_front();
        self.collect(events, false);
        self.absorb();
        if self.control.port().looks_ready() {
            self.take_queue(events, false);
        }
        self.settle();
        true
    }

    /// Looks at the front without waiting.
    fn look_at_front(&mut self, events: &mut Events) {
        if !self.has_front() {
            return;
        }
        self.take_left(events);
        for _ in 0..FRONT_PASSES {
            if !events.has_room() {
                return;
            }
            self.ask_front(events.room(), Some(0));
            let has_found = !self.kernel_events.is_empty();
            self.collect(events, false);
            if !has_found || !events.is_empty() {
                return;
            }
        }
    }

    /// What had no room in the last batch comes first in this one, if it still holds.
    fn take_left(&mut self, events: &mut Events) {
        let Some(front) = &self.front else { return };
        let (before, mut has_turned) = (events.len(), false);
        while events.has_room()
            && let Some(reference) = self.left.pop_front()
        {
            let mut pass = FrontPass {
                events,
                spilled: &mut self.spilled,
                left: &mut VecDeque::new(),
                ended: &mut self.ended,
                has_turned: false,
                levels: None,
                is_second: false,
            };
            self.control.shared().waits.deliver_left(front, reference, &mut pass);
            has_turned |= pass.has_turned;
        }
        self.note_ended();
        self.control.port().count_from_front(events.len() - before);
        if has_turned {
            self.look_again(events);
        }
    }

    /// Turning an entry silent makes the kernel report it once more; that report is taken now, so that the port's
    /// descriptor is not readable for nothing.
    fn look_again(&mut self, events: &mut Events) {
        self.ask_front(FRONT_BATCH, Some(0));
        self.collect(events, true);
    }

    /// Asks the kernel what is ready in the front, waiting for at most `timeout_ns`.
    fn ask_front(&mut self, most: usize, timeout_ns: Option<u64>) {
        let Some(front) = &self.front else { return };
        if let Err(errno) = front.inner().wait(&mut self.kernel_events, most.min(FRONT_BATCH), timeout_ns) {
            tracing::error!(target: "handle_watcher::port", %errno, "the front could not be waited for");
        }
    }

    /// Hands out what the kernel reported of the front.
    fn collect(&mut self, events: &mut Events, is_second: bool) {
        let Some(front) = &self.front else { return };
        let shared = self.control.shared();
        let before = events.len();
        self.front_looks = self.front_looks.wrapping_add(1);
        let is_proof_due = self.front_looks.is_multiple_of(PROOF_INTERVAL);
        let mut pass = FrontPass {
            events,
            spilled: &mut self.spilled,
            left: &mut self.left,
            ended: &mut self.ended,
            has_turned: false,
            levels: is_proof_due.then_some(&mut self.returned),
            is_second,
        };
        let mut stale = 0;
        for event in self.kernel_events.iter() {
            match shared.waits.collect_front(front, event, &mut pass) {
                Collected::Waker => self.was_heard = true,
                Collected::Arrivals => self.has_arrivals = true,
                Collected::Stale => stale += 1,
                Collected::Rows => {}
            }
        }
        let has_turned = pass.has_turned;
        self.control.port().count_from_front(events.len() - before);
        self.stale = if stale == 0 { 0 } else { self.stale + stale };
        let has_work = !self.returned.is_empty() || !self.spilled.is_empty() || !self.ended.is_empty();
        if has_turned || has_work || stale > 0 {
            self.follow_up(events, has_turned, is_second);
        }
    }

    /// What is left to do after a look, which is seldom anything.
    #[cold]
    fn follow_up(&mut self, events: &mut Events, has_turned: bool, is_second: bool) {
        let shared = self.control.shared();
        for reference in self.returned.drain(..) {
            shared.waits.refresh(reference, &mut self.ended);
        }
        if !self.spilled.is_empty() {
            self.control.port().post(shared.rows(), &self.spilled);
            self.spilled.clear();
        }
        self.note_ended();
        if has_turned && !is_second {
            self.look_again(events);
        }
        if self.stale >= STALE_LIMIT {
            self.stale = 0;
            self.rebuild();
        }
    }

    /// Posts the rows that a look at the front has ended, because their number is another file by now. No number can take
    /// out the entry that was reported, so no further sign is needed that it poisons the front.
    fn note_ended(&mut self) {
        if !self.ended.is_empty() {
            self.stale = STALE_LIMIT;
            self.control.shared().post_ended(&mut self.ended);
        }
    }

    /// Puts a fresh set in the place of a poisoned one and carries the live entries over.
    fn rebuild(&mut self) {
        let Some(front) = &self.front else { return };
        let shared = self.control.shared();
        let mut ended = Ended::new();
        let outcome = front.rebuild();
        // All of this client, not only those in front: one that another thread is just taking out of the front may be looked
        // for in the old set still, which is kept until the lock of its number was held.
        let references = self.rows_where(|state| state.kind() == Kind::Watch);
        if let Err(error) = outcome {
            tracing::warn!(target: "handle_watcher::port", %error, "a poisoned front is given up");
            front.lose();
            for &reference in &references {
                self.control.retreat(reference);
            }
            front.give_up();
        } else {
            shared.waits.carry_over(front, &references, &mut ended);
            tracing::debug!(target: "handle_watcher::port", watches = references.len(), "front rebuilt");
        }
        front.rebuilt();
        self.was_heard = true;
        shared.post_ended(&mut ended);
    }

    fn rows_where(&self, is_wanted: impl Fn(State) -> bool) -> Vec<Reference> {
        let mut references = Vec::new();
        self.control.port().visit_rows(self.control.shared().rows(), |slot, row| {
            let state = row.state.load();
            if is_wanted(state) {
                references.push(Reference { slot, generation: state.generation() });
            }
            true
        });
        references
    }

    /// True if the port has a front by now; it then waits there.
    fn has_front(&mut self) -> bool {
        if self.control.port().seat().is_lost() {
            return false;
        }
        if self.front.is_none()
            && let Some(front) = self.control.port().front()
        {
            self.front = Some(Arc::clone(front));
            self.kernel_events = KernelEvents::with_capacity(FRONT_BATCH);
        }
        self.front.is_some()
    }

    /// After a hand-out.
    fn settle(&mut self) {
        let was_heard = std::mem::take(&mut self.was_heard);
        let has_taken = std::mem::take(&mut self.has_taken);
        if !was_heard && !has_taken {
            return;
        }
        if self.front.as_ref().is_some_and(|front| front.is_exposed()) {
            self.control.port().settle(was_heard);
        }
    }

    /// Level watches that the back served so far go where the kernel's own level trigger serves them.
    fn move_levels(&mut self) {
        let references = self.rows_where(|state| state.kind() == Kind::Watch && state.mode() == Mode::Level);
        for reference in references {
            self.control.rehome(reference);
        }
    }

    /// Looks at the queue without sleeping, for as long as configured. True if something is there.
    fn spin(&mut self) -> bool {
        if self.config.spin == Duration::ZERO {
            return false;
        }
        self.has_front();
        let until = Deadline::after(self.config.spin).as_ns();
        loop {
            for _ in 0..32 {
                if self.control.port().looks_ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.front.as_ref().is_some_and(|front| front.inner().looks_ready()) {
                return true;
            }
            if now_ns() >= until {
                return false;
            }
        }
    }

    /// The client came back for more: Level watches of the back that it was told of are looked at with one poll(2).
    /// Those that still hold are told to the kernel again, which reports them, and proves that the number still means
    /// our file.
    fn come_back(&mut self) {
        if self.away.is_empty() {
            return;
        }
        let rows = self.control.shared().rows();
        self.polled.clear();
        self.entries.clear();
        for reference in self.away.drain(..) {
            let row = rows.row(reference.slot);
            let wished = row.state.load().wished();
            match row.state.come_back(reference.generation) {
                Outcome::Ignored => {}
                // The kernel has reported it meanwhile: no need to ask.
                Outcome::Queue => self.returned.push(reference),
                Outcome::Merged => {
                    if let Ok(entry) = descriptor::poll_entry(row.descriptor(), to_poll_flags(wished)) {
                        self.entries.push(entry);
                        self.polled.push((reference, wished));
                    }
                }
            }
        }
        self.control.port().requeue(rows, &mut self.returned);
        if self.entries.is_empty() {
            return;
        }
        let looked = descriptor::poll_now(&mut self.entries);
        for (entry, &(reference, wished)) in self.entries.iter().zip(&self.polled) {
            // What nobody asked for is told once and stays silent until something asked for appears.
            let is_told = rows.row(reference.slot).state.load().is_told();
            let asked = to_poll_flags(wished) | PollFlags::NVAL;
            let wanted = if is_told { asked } else { asked | PollFlags::HUP | PollFlags::ERR };
            if looked.is_err() || entry.revents().intersects(wanted) {
                self.control.refresh(reference);
            }
        }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Port").field("control", &self.control).finish_non_exhaustive()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.control.close_all();
    }
}
