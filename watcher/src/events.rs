//! The caller's buffer of events.

use handle_watcher_wire::Event;

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

    pub(crate) fn has_room(&self) -> bool {
        self.events.len() < self.capacity
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
