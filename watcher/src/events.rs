//! The caller's buffer of events, and how a row becomes one.

use std::sync::atomic::Ordering;

use handle_watcher_wire::{Code, Event, EventKind, Signals, Token, WatchId};

use crate::outcome::Taken;
use crate::rows::{Reference, Row};
use crate::state::Kind;

/// For descriptors: what can become true again at any time (contract C2).
const DESCRIPTOR_SATISFIABLE: Signals = Signals::all();

/// The event of a row in its plainest form: a Ready that holds nothing.
pub(crate) fn event_of(token: Token, reference: Reference) -> Event {
    Event {
        watch: WatchId::new(reference.slot, reference.generation),
        token,
        kind: EventKind::Ready,
        satisfied: Signals::empty(),
        satisfiable: Signals::empty(),
        status: Code::Ok,
        count: 1,
    }
}

/// The Ready of a watch.
pub(crate) fn ready_event(token: Token, reference: Reference, satisfied: Signals) -> Event {
    Event { satisfied, satisfiable: DESCRIPTOR_SATISFIABLE, ..event_of(token, reference) }
}

/// The event of what was taken; none of a timer or wake that counted nothing.
pub(crate) fn taken_event(row: &Row, kind: Kind, reference: Reference, taken: Taken) -> Option<Event> {
    let token = row.token();
    let event = match taken {
        Taken::Nothing => return None,
        Taken::Ended(status) => Event { kind: EventKind::Ended, status, ..event_of(token, reference) },
        Taken::Deadline { satisfied, .. } => {
            Event { kind: EventKind::Deadline, ..ready_event(token, reference, satisfied) }
        }
        Taken::Ready { satisfied, .. } => match kind {
            Kind::Watch => ready_event(token, reference, satisfied),
            Kind::Timer => Event { kind: EventKind::Timer, ..event_of(token, reference) },
            Kind::Wake => Event { kind: EventKind::Wake, ..event_of(token, reference) },
        },
    };
    let count = if kind == Kind::Watch { 1 } else { row.count().swap(0, Ordering::Relaxed) };
    (count > 0).then_some(Event { count, ..event })
}

/// A buffer that `wait` and `drain` fill. Its capacity bounds how many events one call hands out; it never grows.
#[derive(Clone, Debug)]
pub struct Events {
    events: Vec<Event>,
    capacity: usize,
}

impl Events {
    /// A buffer for `capacity` events; at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { events: Vec::with_capacity(capacity), capacity }
    }

    /// How many events the last call handed out.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if the last call handed out nothing.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How many events fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The events, oldest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.events.iter()
    }

    /// The events as a slice, oldest first.
    pub fn as_slice(&self) -> &[Event] {
        &self.events
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.events.clear();
    }

    /// Takes back the events that `keep` does not want; gives how many.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&mut Event) -> bool) -> usize {
        let before = self.events.len();
        self.events.retain_mut(keep);
        before - self.events.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    pub(crate) fn room(&self) -> usize {
        self.capacity - self.events.len()
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
