//! A port that nobody waits at: it calls instead. Wakers, channels and foreign runtimes are built on it.

use std::sync::Arc;

use handle_watcher_wire::{Code, Mode, Result, Status};

use crate::arrivals::Listener;
use crate::control::Control;
use crate::events::Events;
use crate::handle_table::Refused;
use crate::notify::Notify;
use crate::port::Port;
use crate::rows::Reference;
use crate::state::Kind;

/// What one [`NotifiedPort::drain`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many events it handed out.
    pub count: usize,
    /// More wait, or the news that the watcher has stopped: drain again. If false, the notifier will be called when the
    /// next one is queued.
    pub has_more: bool,
}

/// The events of one client that is told by a call. Every watch is served by the watcher thread; Level watches are
/// refused, because nobody comes back to be told again.
#[derive(Debug)]
pub struct NotifiedPort {
    port: Port,
    /// Of a service's client: who reads what the service tells.
    listener: Option<Listener>,
}

impl Port {
    /// Turns the port into one that calls `notifier` when events wait, at once if some do.
    ///
    /// # Errors
    /// The port is given back with `FAILED_PRECONDITION` if it has a Level watch or after a fork.
    #[expect(clippy::result_large_err, reason = "a port is given back by value, at most once in its life")]
    pub fn into_notified(self, notifier: Arc<dyn Notify>) -> Result<NotifiedPort, Refused<Self>> {
        let shared = Arc::clone(self.control().shared());
        let queue = Arc::clone(self.control().port());
        // Vacated first: from here on no Level watch can be added, and none can move to the front.
        queue.seat().set_vacant(true);
        let (mut has_level, mut watches) = (false, Vec::new());
        queue.visit_rows(shared.rows(), |slot, row| {
            let state = row.state.load();
            if state.kind() == Kind::Watch {
                has_level |= state.mode() == Mode::Level;
                watches.push(Reference { slot, generation: state.generation() });
            }
            true
        });
        let refusal = if has_level {
            Some(Status::new(
                Code::FailedPrecondition,
                "the port has a Level watch, which needs somebody who comes back for more; unwatch it first",
            ))
        } else {
            shared.check_process().err()
        };
        if let Some(status) = refusal {
            queue.seat().set_vacant(false);
            return Err(Refused { status, value: self });
        }
        queue.set_notifier(notifier);
        // Each one is looked at under its node's lock, after the seat was vacated: none can be left in the front.
        for reference in watches {
            self.control().retreat(reference);
        }
        if !queue.arm_notifier() {
            queue.call_notifier();
        }
        let listener = match shared.link().map(|link| Listener::spawn(&shared, link)).transpose() {
            Ok(listener) => listener,
            Err(status) => return Err(Refused { status, value: self }),
        };
        Ok(NotifiedPort { port: self, listener })
    }
}

impl NotifiedPort {
    /// The client's control handle.
    pub fn control(&self) -> &Control {
        self.port.control()
    }

    /// Hands out what is there, at most what `events` has room for. Never blocks. May be called at any time, by the
    /// notifier too if it owns the port.
    ///
    /// # Errors
    /// As [`Port::drain`].
    pub fn drain(&mut self, events: &mut Events) -> Result<Drained> {
        let count = self.port.drain(events)?;
        let has_more = !self.port.control().port().arm_notifier();
        Ok(Drained { count, has_more })
    }
}

impl Drop for NotifiedPort {
    fn drop(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        let shared = self.port.control().shared();
        if shared.is_forked() {
            return listener.leave();
        }
        if let Some(link) = shared.link() {
            link.close();
        }
        listener.join();
    }
}
