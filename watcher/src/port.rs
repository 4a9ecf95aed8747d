//! The port: one client's one place to read events from.

use std::sync::Arc;
use std::time::Duration;

use handle_watcher_wire::{Mode, Result, Signals};
use rustix::event::{PollFd, PollFlags};

use crate::config::ClientConfig;
use crate::control::Control;
use crate::deadline::Deadline;
use crate::events::Events;
use crate::port_queue::CHILD_SCAN_LIMIT;
use crate::rows::Reference;
use crate::shared::{Shared, stopped};
use crate::state::{ALWAYS_TOLD, Kind};
use crate::sys::clock::now_ns;
use crate::sys::descriptor;
use crate::wait_many::to_flags;

/// How long a wait sleeps at most while it holds back a child's exit for data that is on its way.
const CHILD_HOLD_NS: u64 = 1_000_000;

/// The events of one client. One thread waits at a time, which `&mut` enforces; any thread may do so. Dropping the port
/// ends the client: every watch is taken back, and what was given is closed on the dropping thread.
#[derive(Debug)]
pub struct Port {
    control: Control,
    config: ClientConfig,
    /// Level rows that were handed out; the client comes back for more with the next call.
    away: Vec<Reference>,
    /// Kept from call to call, so that coming back allocates nothing.
    polled: Vec<(Reference, Signals)>,
    entries: Vec<PollFd<'static>>,
}

impl Port {
    pub(crate) fn open(shared: &Arc<Shared>, config: ClientConfig) -> Result<(Control, Self)> {
        shared.check_process()?;
        let port = shared.open_port()?;
        let control = Control::new(Arc::clone(shared), port)?;
        let port = Self {
            control: control.clone(),
            config,
            away: Vec::new(),
            polled: Vec::new(),
            entries: Vec::new(),
        };
        Ok((control, port))
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
            Some(timeout) => self.wait_until(events, Some(Deadline::after(timeout))),
            None => self.wait_until(events, None),
        }
    }

    /// [`wait`](Self::wait) until an absolute deadline.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub fn wait_until(&mut self, events: &mut Events, deadline: Option<Deadline>) -> Result<usize> {
        loop {
            if self.drain(events)? > 0 {
                return Ok(events.len());
            }
            if self.spin() {
                continue;
            }
            let holds_exits = self.control.port().has_only_exits();
            let until = if holds_exits {
                let hold = Deadline::at_ns(now_ns().saturating_add(CHILD_HOLD_NS));
                Some(deadline.map_or(hold, |deadline| deadline.min(hold)))
            } else {
                deadline
            };
            self.control.port().park(until.map(Deadline::as_ns), holds_exits);
            if deadline.is_some_and(|deadline| deadline.as_ns() <= now_ns()) {
                return self.drain(events);
            }
        }
    }

    fn take(&mut self, events: &mut Events) -> Result<usize> {
        events.clear();
        let with_exits = self.control.port().has_only_exits() && !self.data_is_on_its_way();
        let rows = &self.control.shared().rows;
        let is_finished = self.control.port().take(rows, events, with_exits, &mut self.away);
        if events.is_empty() && is_finished { Err(stopped()) } else { Ok(events.len()) }
    }

    /// Looks at the queue without sleeping, for as long as configured. True if something is there.
    fn spin(&self) -> bool {
        if self.config.spin == Duration::ZERO {
            return false;
        }
        let until = Deadline::after(self.config.spin).as_ns();
        loop {
            for _ in 0..32 {
                if self.control.port().looks_ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if now_ns() >= until {
                return false;
            }
        }
    }

    /// The client came back for more: Level watches it was told of are looked at with one poll(2). Those that still
    /// hold are armed with the kernel again, which reports them, and proves that the number still means our file.
    fn come_back(&mut self) {
        if self.away.is_empty() {
            return;
        }
        let rows = &self.control.shared().rows;
        self.polled.clear();
        self.entries.clear();
        for reference in self.away.drain(..) {
            let row = rows.row(reference.slot);
            let wished = row.state.load().wished();
            let Some(missed) = row.state.come_back(reference.generation) else { continue };
            if missed.intersects(ALWAYS_TOLD) {
                // A hang-up came while the client was away; poll(2) would not tell it from one it was told of.
                self.control.refresh(reference);
            } else if let Ok(entry) = descriptor::poll_entry(row.descriptor(), to_flags(wished)) {
                self.entries.push(entry);
                self.polled.push((reference, wished));
            }
        }
        let looked = descriptor::poll_now(&mut self.entries);
        for (entry, &(reference, wished)) in self.entries.iter().zip(&self.polled) {
            // What nobody asked for was told once and stays silent until something asked for appears.
            let asked = to_flags(wished) | PollFlags::NVAL;
            if looked.is_err() || entry.revents().intersects(asked) {
                self.control.refresh(reference);
            }
        }
    }

    /// A child exited: true while an armed watch of this client holds readable data that has not been handed out yet.
    /// Edge watches do not count, as nothing comes of them before new data does.
    fn data_is_on_its_way(&mut self) -> bool {
        let rows = &self.control.shared().rows;
        self.entries.clear();
        let entries = &mut self.entries;
        self.control.port().visit_rows(rows, |_, row| {
            let state = row.state.load();
            let counts = state.kind() == Kind::Watch
                && state.is_armed()
                && !state.is_child()
                && state.mode() != Mode::Edge
                && state.wished().contains(Signals::READABLE);
            if counts && let Ok(entry) = descriptor::poll_entry(row.descriptor(), PollFlags::IN) {
                entries.push(entry);
            }
            entries.len() < CHILD_SCAN_LIMIT
        });
        descriptor::poll_now(&mut self.entries).is_ok()
            && self.entries.iter().any(|entry| entry.revents().contains(PollFlags::IN))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.control.close_all();
    }
}
