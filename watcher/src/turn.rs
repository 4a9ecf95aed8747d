//! The watcher thread's loop: wait, take commands, fire what is ready, expire what is due, post, again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::Receiver;
use handle_watcher_wire::{Code, Result};

use crate::outcome::Outcome;
use crate::rows::{NO_DEADLINE, Row};
use crate::scan::Staged;
use crate::shared::{Command, STOPPED, Shared};
use crate::state::Kind;
use crate::sys::clock::now_ns;
use crate::sys::epoll::KernelEvents;
use crate::timers::{Entry, Timers};
use crate::wait_set::{Collected, Ended};
use crate::wake::ParkedUntil;

/// Everything the watcher thread owns alone. Made on that thread: kernel events are not for sending.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    timers: Timers,
    staged: Staged,
    ended: Ended,
    events: KernelEvents,
    /// The previous turn left work behind: do not sleep.
    is_behind: bool,
    /// Spin until then.
    spin_until_ns: u64,
}

impl Turn {
    pub(crate) fn new(shared: Arc<Shared>, commands: Receiver<Command>) -> Self {
        let events = KernelEvents::with_capacity(shared.config.poll_batch);
        Self {
            shared,
            commands,
            timers: Timers::default(),
            staged: Staged::default(),
            ended: Ended::default(),
            events,
            is_behind: false,
            spin_until_ns: 0,
        }
    }

    /// Turns until somebody asks for the stop, then tells every watch.
    pub(crate) fn run(&mut self) {
        while !self.shared.is_stopping() {
            self.turn();
        }
        self.finish(Code::Aborted);
    }

    /// One pass. The order is a rule: commands before events, and exactly as many as are queued when the wait
    /// returns, so that whoever registered something is known before its first event is looked at.
    fn turn(&mut self) {
        self.wait();
        let commands = self.take_commands();
        let found = !self.events.is_empty();
        self.fire_ready();
        self.expire_due();
        self.sweep();
        self.post();
        if (found || commands > 0) && self.shared.config.spin > Duration::ZERO {
            let spin_ns = u64::try_from(self.shared.config.spin.as_nanos()).unwrap_or(u64::MAX);
            self.spin_until_ns = now_ns().saturating_add(spin_ns);
        }
        self.shared.counters.turns.add(1);
    }

    fn wait(&mut self) {
        let timeout_ns = self.park();
        let waited = self.shared.waits.back().set().wait(&mut self.events, usize::MAX, timeout_ns);
        self.shared.commands().parked_until().unpark();
        if let Err(errno) = waited {
            // Nothing can be waited for without the set; a spin would only hide it.
            tracing::error!(target: "handle_watcher::watcher", %errno, "the poll set failed; the watcher stops");
            // This very thread looks at the request next; it needs no wake.
            let _: Result<()> = self.shared.request_stop();
        }
        self.shared.counters.readiness.add(self.events.len() as u64);
        self.shared.counters.ready_per_wait.record(self.events.len());
    }

    /// Decides how long to sleep, says so to the clients, and looks at the commands once more.
    fn park(&mut self) -> Option<u64> {
        if self.is_behind {
            return Some(0);
        }
        let (next, dropped) = self.timers.next(|entry| is_meant(&self.shared, entry));
        if dropped > 0 {
            self.shared.dead_deadlines_dropped(dropped);
        }
        let spins = self.spin_until_ns > 0 && now_ns() < self.spin_until_ns;
        if spins {
            std::hint::spin_loop();
            return Some(0);
        }
        self.spin_until_ns = 0;
        self.shared.commands().parked_until().park(next.unwrap_or(ParkedUntil::FOR_EVER));
        if !self.commands.is_empty() || self.shared.is_stopping() {
            return Some(0);
        }
        next.map(|deadline_ns| deadline_ns.saturating_sub(now_ns()))
    }

    fn take_commands(&mut self) -> usize {
        let count = self.commands.len();
        for command in self.commands.try_iter().take(count) {
            match command {
                Command::Open(port) => self.staged.open(port),
                Command::Close(index) => self.staged.close(index),
                Command::Deadline(entry) => {
                    self.timers.set(entry);
                    self.shared.counters.timers_set.add(1);
                }
            }
        }
        self.shared.counters.commands.add(count as u64);
        self.shared.counters.commands_per_turn.record(count);
        count
    }

    fn fire_ready(&mut self) {
        let (shared, staged) = (&self.shared, &mut self.staged);
        for event in self.events.iter() {
            let queue = |row: &Row, reference| staged.stage(row, reference);
            let collected = shared.waits.collect_back(event, queue, &mut self.ended);
            if collected == Collected::Stale {
                shared.counters.stale_events.add(1);
                tracing::trace!(target: "handle_watcher::turn", token = event.token, "stale event dropped");
            }
        }
        self.is_behind = self.events.is_full();
    }

    fn expire_due(&mut self) {
        if self.timers.len() == 0 {
            return;
        }
        let now = now_ns();
        let mut left = self.shared.config.timer_batch;
        while left > 0 {
            let Some(entry) = self.timers.pop_due(now) else { break };
            self.expire(entry, now);
            left -= 1;
        }
        self.is_behind |= left == 0;
        self.shared.counters.timers_kept.set(self.timers.len() as u64);
    }

    fn expire(&mut self, entry: Entry, now: u64) {
        let shared = &self.shared;
        if !is_meant(shared, entry) {
            shared.dead_deadlines_dropped(1);
            return;
        }
        shared.counters.timers_fired.add(1);
        let row = shared.rows().row(entry.reference.slot);
        if row.state.load().kind() == Kind::Timer {
            let next_ns = self.staged.expire_timer(shared.rows(), row, entry, now);
            if let Some(deadline_ns) = next_ns {
                self.timers.set(Entry { deadline_ns, ..entry });
            }
        } else if shared.waits.expire(entry.reference, entry.deadline_ns, &mut self.ended) == Outcome::Queue {
            self.staged.stage(row, entry.reference);
        }
    }

    /// Throws cancelled deadlines out once they are many.
    fn sweep(&mut self) {
        let dead = self.shared.dead_deadlines();
        if dead > 0 {
            let swept = self.timers.sweep(dead, |entry| is_meant(&self.shared, entry));
            if swept > 0 {
                self.shared.dead_deadlines_dropped(swept);
            }
        }
        self.shared.counters.timers_kept.set(self.timers.len() as u64);
    }

    fn post(&mut self) {
        self.staged.post(self.shared.rows());
        if !self.ended.is_empty() {
            self.shared.post_ended(&mut self.ended);
        }
    }

    /// Ends every watch and tells every waiter. After this the clients' calls answer UNAVAILABLE.
    pub(crate) fn finish(&mut self, code: Code) {
        self.take_commands();
        self.shared.finish(code, STOPPED);
    }
}

/// A deadline still matters: its row has the same owner, and was given no other deadline. One that fired and was not
/// told of yet may be armed again by a change, so it does not have to be armed now.
fn is_meant(shared: &Shared, entry: Entry) -> bool {
    let row = shared.rows().row(entry.reference.slot);
    let state = row.state.load();
    let is_there =
        state.generation() == entry.reference.generation && (state.is_live() || state.is_reserved());
    is_there
        && entry.deadline_ns != NO_DEADLINE
        && row.deadline_ns.load(Ordering::Relaxed) == entry.deadline_ns
}
