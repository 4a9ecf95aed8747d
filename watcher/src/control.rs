//! The control handle: what any thread of a client may ask for.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handle_watcher_wire::{Code, HandleId, Mode, Result, Signals, Status, TimerId, Token, WatchId};

use crate::arrivals;
use crate::child_process::ChildProcess;
use crate::deadline::Deadline;
use crate::front::FrontPolicy;
use crate::handle_table::{HandleTable, Refused};
use crate::outcome::Outcome;
use crate::port_queue::PortQueue;
use crate::rows::{NO_DEADLINE, Reference, Start};
use crate::shared::{Command, Shared};
use crate::state::{Kind, Role};
use crate::stats::{ClientStats, Stats};
use crate::sys::descriptor;
use crate::timers::Entry;
use crate::wait_set::{Ended, Wish};

/// How a watch is to behave.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    signals: Signals,
    mode: Mode,
    token: Token,
    deadline: Option<Deadline>,
}

impl WatchOptions {
    /// Any of `signals`, told as `mode` says, with `token` in every event. No signals at all makes a paused watch, which
    /// has no deadline.
    pub fn new(signals: Signals, mode: Mode, token: Token) -> Self {
        Self { signals, mode, token, deadline: None }
    }

    /// Tells `Deadline` and disarms if the watch is still armed then.
    #[must_use]
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: Some(deadline.into()), ..self }
    }
}

impl WatchOptions {
    /// As rows keep it. A watch that is made paused has none, as pausing takes one away.
    fn deadline_ns(self) -> u64 {
        if self.signals.is_empty() { NO_DEADLINE } else { to_deadline_ns(self.deadline) }
    }
}

/// One client's requests. Cheap to clone; every clone speaks for the same client. Safe to use from any thread; no call
/// waits for the watcher thread, except while its command queue is full.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
    port: Arc<PortQueue>,
    handles: Arc<HandleTable>,
    /// The row of the client's wake flag.
    wake: Reference,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, port: Arc<PortQueue>) -> Result<Self> {
        let role = Role { kind: Kind::Wake, mode: Mode::Edge, wished: Signals::READABLE, child: false };
        let wake = port.reserve(shared.rows(), &start(role, 0, port.index(), 0))?;
        shared.rows().row(wake.slot).state.publish(wake.generation, false);
        Ok(Self { shared, port, handles: Arc::default(), wake })
    }

    /// Watches a lent descriptor: the caller keeps it. We never read, write or close it and never change its flags.
    /// Unwatch it before closing it; if it is closed all the same, the watch ends as soon as that is noticed, and no
    /// event of it reaches whoever gets the number next.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the descriptor is not open, or for unknown signal bits; `FAILED_PRECONDITION` if it is a
    /// regular file or a directory, for [`Mode::Level`] at a port that is told by a call, or after a fork;
    /// `RESOURCE_EXHAUSTED` at a limit, ours or the kernel's; `UNAVAILABLE` after the watcher stopped or the client was
    /// dropped.
    pub fn watch(&self, handle: impl AsFd, signals: Signals, mode: Mode, token: Token) -> Result<WatchId> {
        self.watch_with(handle, WatchOptions::new(signals, mode, token))
    }

    /// [`watch`](Self::watch) with every option.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn watch_with(&self, handle: impl AsFd, options: WatchOptions) -> Result<WatchId> {
        self.watch_number(handle.as_fd().as_raw_fd(), options)
    }

    /// [`watch`](Self::watch) by descriptor number, for callers that have nothing else. Any number is safe to pass.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn watch_number(&self, number: RawFd, options: WatchOptions) -> Result<WatchId> {
        self.add(number, options, false)
    }

    /// Watches a child process: one `Ready` with `READABLE` when it has ended, handed out after the data it left in
    /// descriptors this client watches, for which it is held back for at most a second. Its exit status stays the
    /// caller's to collect.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn watch_child(&self, child: &ChildProcess, token: Token) -> Result<WatchId> {
        let options = WatchOptions::new(Signals::READABLE, Mode::Once, token);
        self.add(child.as_fd().as_raw_fd(), options, true)
    }

    /// Gives a descriptor to this client: it is closed by [`close`](Self::close), or with the client.
    ///
    /// # Errors
    /// The descriptor is given back with `FAILED_PRECONDITION` if it is a regular file or a directory, or after a
    /// fork; with `UNAVAILABLE` after the client was dropped or the watcher stopped.
    pub fn adopt(&self, descriptor: OwnedFd) -> Result<HandleId, Refused<OwnedFd>> {
        if let Err(status) = self.shared.check_process().and_then(|()| self.port.check_open()) {
            return Err(Refused { status, value: descriptor });
        }
        self.handles.adopt(descriptor)
    }

    /// Watches a given handle.
    ///
    /// # Errors
    /// `NOT_FOUND` if it is not this client's (any more); otherwise as [`watch`](Self::watch).
    pub fn watch_handle(&self, handle: HandleId, options: WatchOptions) -> Result<WatchId> {
        self.shared.check_process()?;
        // What can wait for the watcher or run foreign code comes after the table was let go of.
        let mut ended = Ended::new();
        let attached = self.handles.with(handle, |number| self.attach(number, options, false, &mut ended));
        self.shared.post_ended(&mut ended);
        self.start_deadline(attached?, options)
    }

    /// Closes a given handle: every watch on it, of this or another client, is told `Ended(CANCELLED)`, then it is
    /// closed on the calling thread, then the call returns. Closing a lingering socket can block for as long as the
    /// caller asked it to linger.
    ///
    /// # Errors
    /// `NOT_FOUND` if it is not this client's (any more); `FAILED_PRECONDITION` after a fork.
    pub fn close(&self, handle: HandleId) -> Result<()> {
        self.shared.check_process()?;
        let descriptor = self.handles.take(handle)?;
        self.end_number(descriptor.as_raw_fd());
        drop(descriptor);
        Ok(())
    }

    /// Arms a watch again: a Once watch that fired, or any watch its deadline disarmed. A condition that holds
    /// already fires at once. Takes an earlier deadline away.
    ///
    /// # Errors
    /// `NOT_FOUND` if the watch has ended or is not this client's, or if its descriptor turns out to have been
    /// closed, which ends it; `FAILED_PRECONDITION` if it is paused, or after a fork.
    pub fn arm(&self, watch: WatchId) -> Result<()> {
        self.arm_at(watch, NO_DEADLINE)
    }

    /// [`arm`](Self::arm) with a deadline: `Deadline` is told, and the watch disarmed, if it is still armed then.
    ///
    /// # Errors
    /// As [`arm`](Self::arm).
    pub fn arm_until(&self, watch: WatchId, deadline: impl Into<Deadline>) -> Result<()> {
        self.arm_at(watch, to_deadline_ns(Some(deadline.into())))
    }

    /// Replaces what a watch waits for; nothing is kept of what it waited for before. An undelivered event of it is
    /// withdrawn, and it is armed if it was, or had fired undelivered. No signals at all pause it.
    ///
    /// # Errors
    /// `NOT_FOUND` as [`arm`](Self::arm); `FAILED_PRECONDITION` after a fork.
    pub fn change(&self, watch: WatchId, signals: Signals) -> Result<()> {
        let reference = self.find_watch(watch)?;
        Self::check_signals(signals)?;
        self.change_found(reference, Wish::These(signals))
    }

    /// Pauses a watch: nothing is told until [`resume`](Self::resume). An undelivered event of it is withdrawn, and its
    /// deadline is taken away.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn pause(&self, watch: WatchId) -> Result<()> {
        let reference = self.find_watch(watch)?;
        self.change_found(reference, Wish::These(Signals::empty()))
    }

    /// Resumes a paused watch with the signals it had, armed: a condition that holds fires at once. A watch that is
    /// not paused is left as it is.
    ///
    /// # Errors
    /// As [`change`](Self::change); `FAILED_PRECONDITION` if it never had signals to go back to.
    pub fn resume(&self, watch: WatchId) -> Result<()> {
        let reference = self.find_watch(watch)?;
        self.change_found(reference, Wish::Remembered)
    }

    /// Ends a watch. When it returns, no event of it is delivered any more, not even one that was queued; and no
    /// reference to its open file is held.
    ///
    /// # Errors
    /// `NOT_FOUND` if it has ended and that was delivered, or if it is not this client's; `FAILED_PRECONDITION`
    /// after a fork.
    pub fn unwatch(&self, watch: WatchId) -> Result<()> {
        let reference = self.find_watch(watch)?;
        self.unwatch_found(reference)
    }

    /// Sets a one-shot timer. It fires at or after its deadline, never before; a deadline in the past fires at once.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` at the limit of timers; `UNAVAILABLE` after the watcher stopped or the client was
    /// dropped; `FAILED_PRECONDITION` after a fork.
    pub fn set_timer(&self, deadline: impl Into<Deadline>, token: Token) -> Result<TimerId> {
        self.start_timer(deadline.into(), 0, token)
    }

    /// Sets a periodic timer: first at `first`, then every `period` after that, without drift. Periods that passed
    /// before the event was handed out are merged into one event and counted.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a period of zero; otherwise as [`set_timer`](Self::set_timer).
    pub fn set_periodic(
        &self,
        first: impl Into<Deadline>,
        period: Duration,
        token: Token,
    ) -> Result<TimerId> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        if period_ns == 0 {
            return Err(Status::new(
                Code::InvalidArgument,
                "a periodic timer with a period of 0 ns would never rest; give it at least 1 ns",
            ));
        }
        self.start_timer(first.into(), period_ns, token)
    }

    /// Cancels a timer. When it returns `Ok`, no event of the timer is delivered any more.
    ///
    /// # Errors
    /// `NOT_FOUND` if it is a one-shot timer whose event was delivered, was cancelled before, or is not this
    /// client's; `FAILED_PRECONDITION` after a fork.
    pub fn cancel_timer(&self, timer: TimerId) -> Result<()> {
        let reference = self.find(timer.slot(), timer.generation(), Kind::Timer)?;
        let row = self.shared.rows().row(reference.slot);
        let before = row.state.detach(reference.generation).ok_or_else(|| unknown(reference, Kind::Timer))?;
        self.port.release(self.shared.rows(), reference, before);
        if before.is_armed() {
            self.shared.forget_deadline(reference);
        }
        arrivals::catch_up(&self.shared);
        Ok(())
    }

    /// Makes the current or the next wait return with one `Wake` event, whose token is 0 and means nothing. Calls
    /// before that event is handed out are merged into it and counted.
    ///
    /// # Errors
    /// `UNAVAILABLE` after the client was dropped or the watcher stopped; `FAILED_PRECONDITION` after a fork.
    pub fn wake(&self) -> Result<()> {
        self.shared.check_process()?;
        if self.port.ring(self.shared.rows(), self.wake) {
            return Ok(());
        }
        Err(Status::new(
            Code::Unavailable,
            "the client was dropped or the watcher has stopped, so there is nobody to wake; make a new one",
        ))
    }

    /// Whether calls can work at all; for callers that take locks of their own first.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` after a fork. One load, no system call.
    pub fn check_process(&self) -> Result<()> {
        self.shared.check_process()
    }

    /// What the watcher did so far, for all its clients; of a service's client, what the service's watcher did. All zeros
    /// after a fork, and when the service is lost.
    pub fn stats(&self) -> Stats {
        if self.shared.is_forked() {
            return Stats::default();
        }
        match self.shared.link() {
            Some(link) => arrivals::stats(link),
            None => self.shared.stats(),
        }
    }

    /// What this client has and had. All zeros after a fork.
    pub fn client_stats(&self) -> ClientStats {
        if self.shared.is_forked() {
            return ClientStats::default();
        }
        if let Some(link) = self.shared.link() {
            // What has arrived waits, whoever reads it.
            arrivals::absorb(&self.shared, link);
        }
        ClientStats { handles: self.handles.len() as u64, ..self.port.stats() }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn port(&self) -> &Arc<PortQueue> {
        &self.port
    }

    /// Ends everything this client has, and closes what it was given, on the calling thread.
    pub(crate) fn close_all(&self) {
        if self.shared.is_forked() {
            // The parent's kernel sets and locks are not ours to touch: only the descriptors are closed.
            self.handles.take_all_after_fork().into_iter().for_each(descriptor::close_in_child);
            if let Some(front) = self.port.front().filter(|_| self.shared.is_kept_in_child()) {
                front.close_in_child();
            }
            self.shared.close_in_child();
            return;
        }
        self.port.seat().close();
        self.port.refuse("the client was dropped; make a new one");
        if let Some(link) = self.shared.link() {
            // Its service lets go of everything at once.
            link.close();
        }
        self.port.give_spare_back(self.shared.rows());
        while let Some(slot) = self.port.first_row() {
            let state = self.shared.rows().row(slot).state.load();
            let reference = Reference { slot, generation: state.generation() };
            self.end_row(reference, state);
        }
        for descriptor in self.handles.take_all() {
            self.end_number(descriptor.as_raw_fd());
        }
        self.shared.close_port(&self.port);
    }

    fn end_row(&self, reference: Reference, state: crate::state::State) {
        let row = self.shared.rows().row(reference.slot);
        if state.kind() == Kind::Watch {
            // NOT_FOUND: it ended by itself just now, or is being added by another thread; the next pass sees it.
            if self.unwatch_found(reference).is_err() {
                self.shared.waits.abandon(reference);
                std::thread::yield_now();
            }
        } else if let Some(before) = row.state.detach(reference.generation) {
            self.port.release(self.shared.rows(), reference, before);
            if before.kind() == Kind::Timer && before.is_armed() {
                self.shared.forget_deadline(reference);
            }
        } else {
            std::thread::yield_now();
        }
    }

    fn add(&self, number: RawFd, options: WatchOptions, child: bool) -> Result<WatchId> {
        self.shared.check_process()?;
        let mut ended = Ended::new();
        let attached = self.attach(number, options, child, &mut ended);
        self.shared.post_ended(&mut ended);
        arrivals::catch_up(&self.shared);
        self.start_deadline(attached?, options)
    }

    /// A set that holds nothing but the five signals there are.
    fn check_signals(signals: Signals) -> Result<()> {
        let unknown = signals.bits() & !Signals::all().bits();
        if unknown == 0 {
            return Ok(());
        }
        Err(Status::new(
            Code::InvalidArgument,
            format!(
                "the signals have unknown bits, {unknown:#x}; use READABLE, WRITABLE, PEER_CLOSED, PRIORITY and ERROR"
            ),
        ))
    }

    fn attach(
        &self,
        number: RawFd,
        options: WatchOptions,
        child: bool,
        ended: &mut Ended,
    ) -> Result<Reference> {
        Self::check_signals(options.signals)?;
        let role = Role { kind: Kind::Watch, mode: options.mode, wished: options.signals, child };
        let deadline_ns = options.deadline_ns();
        let start =
            Start { descriptor: number, ..start(role, options.token, self.port.index(), deadline_ns) };
        let reference = self.port.reserve(self.shared.rows(), &start)?;
        if self.port.seat().belongs_in_front(options.mode) {
            self.shared.front(&self.port);
        }
        if let Err(status) = self.shared.waits.attach(reference, self.port.seat(), ended) {
            self.port.release_reserved(self.shared.rows(), reference, Kind::Watch);
            return Err(status);
        }
        tracing::trace!(target: "handle_watcher::control", number, ?reference, "watched");
        Ok(reference)
    }

    fn start_deadline(&self, reference: Reference, options: WatchOptions) -> Result<WatchId> {
        let deadline_ns = options.deadline_ns();
        if deadline_ns != NO_DEADLINE
            && let Err(status) = self.send_deadline(reference, deadline_ns)
        {
            // Only after the stop; the watch has ended or will at once. It is taken back, so that nothing is told twice.
            let _: Result<()> = self.unwatch_found(reference);
            return Err(status);
        }
        Ok(WatchId::new(reference.slot, reference.generation))
    }

    fn arm_at(&self, watch: WatchId, deadline_ns: u64) -> Result<()> {
        let reference = self.find_watch(watch)?;
        let mut ended = Ended::new();
        let armed = self.shared.waits.arm(reference, deadline_ns, self.port.seat(), &mut ended);
        self.shared.post_ended(&mut ended);
        if armed? != NO_DEADLINE {
            self.shared.forget_deadline(reference);
        }
        if self.shared.rows().row(reference.slot).state.load().mode() == Mode::Level {
            // It may have gone to the front.
            self.port.withdraw(self.shared.rows(), reference);
        }
        if self.port.front().is_none() && self.port.seat().policy() == FrontPolicy::Adaptive {
            let row = self.shared.rows().row(reference.slot);
            if row.heat().is_hot() {
                // From its next re-arm on it has somewhere to go.
                self.shared.front(&self.port);
            }
        }
        if deadline_ns != NO_DEADLINE {
            self.send_deadline(reference, deadline_ns)?;
        }
        arrivals::catch_up(&self.shared);
        Ok(())
    }

    fn change_found(&self, reference: Reference, wish: Wish) -> Result<()> {
        let mut ended = Ended::new();
        let changed = self.shared.waits.change(reference, wish, self.port.seat(), &mut ended);
        self.shared.post_ended(&mut ended);
        let (before, deadline_ns) = changed?;
        if before.is_queued() {
            self.port.withdraw(self.shared.rows(), reference);
        }
        if deadline_ns != NO_DEADLINE {
            self.shared.forget_deadline(reference);
        }
        arrivals::catch_up(&self.shared);
        Ok(())
    }

    /// Moves a watch of the front to the back.
    pub(crate) fn retreat(&self, reference: Reference) {
        let mut ended = Ended::new();
        self.shared.waits.retreat(reference, &mut ended);
        self.shared.post_ended(&mut ended);
    }

    /// Moves a watch of the back to the front, if it belongs there by now.
    pub(crate) fn rehome(&self, reference: Reference) {
        let mut ended = Ended::new();
        self.shared.waits.rehome(reference, self.port.seat(), &mut ended);
        self.shared.post_ended(&mut ended);
        self.port.withdraw(self.shared.rows(), reference);
    }

    /// Somebody saw that an armed watch is readable: fires it, if it is still ours to fire.
    pub(crate) fn fire_seen(&self, reference: Reference, seen: Signals) {
        let mut ended = Ended::new();
        let outcome = self.shared.waits.fire_seen(reference, seen, &mut ended);
        self.shared.post_ended(&mut ended);
        if outcome == Outcome::Queue {
            self.port.post(self.shared.rows(), &[reference]);
        }
    }

    /// Asks the kernel about an armed watch again: a condition that holds is reported once more.
    pub(crate) fn refresh(&self, reference: Reference) {
        let mut ended = Ended::new();
        self.shared.waits.refresh(reference, &mut ended);
        self.shared.post_ended(&mut ended);
    }

    fn unwatch_found(&self, reference: Reference) -> Result<()> {
        let mut ended = Ended::new();
        let deadline_ns = self.shared.rows().row(reference.slot).deadline_ns.load(Ordering::Relaxed);
        let detached = self.shared.waits.detach(reference, &mut ended);
        self.shared.post_ended(&mut ended);
        self.port.release(self.shared.rows(), reference, detached?);
        if deadline_ns != NO_DEADLINE {
            self.shared.forget_deadline(reference);
        }
        arrivals::catch_up(&self.shared);
        Ok(())
    }

    /// Ends every watch on a number that is about to be closed.
    pub(crate) fn end_number(&self, number: RawFd) {
        let mut ended = Ended::new();
        self.shared.waits.close(number, Code::Cancelled, &mut ended);
        self.shared.post_ended(&mut ended);
    }

    fn start_timer(&self, deadline: Deadline, period_ns: u64, token: Token) -> Result<TimerId> {
        self.shared.check_process()?;
        let mode = if period_ns == 0 { Mode::Once } else { Mode::Edge };
        let role = Role { kind: Kind::Timer, mode, wished: Signals::READABLE, child: false };
        let deadline_ns = to_deadline_ns(Some(deadline));
        let start = Start { extra: period_ns, ..start(role, token, self.port.index(), deadline_ns) };
        let reference = self.port.reserve(self.shared.rows(), &start)?;
        if !self.shared.rows().row(reference.slot).state.publish(reference.generation, false) {
            self.port.release_reserved(self.shared.rows(), reference, Kind::Timer);
            return Err(Status::new(
                Code::Unavailable,
                "the client was closed while the timer was being set",
            ));
        }
        let timer = TimerId::new(reference.slot, reference.generation);
        if let Err(status) = self.send_deadline(reference, deadline_ns) {
            // NOT_FOUND would mean that the client was closed meanwhile, which took the timer along.
            let _: Result<()> = self.cancel_timer(timer);
            return Err(status);
        }
        Ok(timer)
    }

    fn send_deadline(&self, reference: Reference, deadline_ns: u64) -> Result<()> {
        self.shared.send(Command::Deadline(Entry { deadline_ns, reference }), deadline_ns)
    }

    fn find_watch(&self, watch: WatchId) -> Result<Reference> {
        self.find(watch.slot(), watch.generation(), Kind::Watch)
    }

    /// The row an id names, if it is this client's and of that kind. Numbers are checked, not trusted.
    fn find(&self, slot: u32, generation: u32, kind: Kind) -> Result<Reference> {
        self.shared.check_process()?;
        let reference = Reference { slot, generation };
        let row = self.shared.rows().row(slot);
        let state = row.state.load();
        let is_ours = row.port.load(Ordering::Relaxed) == self.port.index() && !self.port.seat().is_closed();
        if state.generation() == generation && state.kind() == kind && is_ours && !state.is_reserved() {
            return Ok(reference);
        }
        Err(unknown(reference, kind))
    }
}

fn start(role: Role, token: Token, port: u32, deadline_ns: u64) -> Start {
    Start { role, token, port, descriptor: 0, deadline_ns, extra: 0 }
}

/// A deadline as rows keep it; zero, which means none there, becomes 1 ns after boot, which has passed as well.
fn to_deadline_ns(deadline: Option<Deadline>) -> u64 {
    deadline.map_or(NO_DEADLINE, |deadline| deadline.as_ns().max(1))
}

fn unknown(reference: Reference, kind: Kind) -> Status {
    let (name, end) = match kind {
        Kind::Timer => ("timer", "it has fired or was cancelled"),
        Kind::Watch | Kind::Wake => ("watch", "it has ended"),
    };
    Status::new(
        Code::NotFound,
        format!(
            "{name} {}.{} is not a live {name} of this client: {end}, or the id is another client's; make a new {name}, and forget this id",
            reference.slot, reference.generation
        ),
    )
}
