//! What one turn found, sorted by port, so that each port's lock is taken once and its waiter woken once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::port_queue::PortQueue;
use crate::rows::{Reference, Row, Rows};
use crate::timers::Entry;

/// The rows of one turn that have to be put into their ports' queues. Keeps its memory from turn to turn.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// By port index: the port, if the watcher knows it, and what is staged for it.
    ports: Vec<Lane>,
    touched: Vec<u32>,
}

#[derive(Debug, Default)]
struct Lane {
    port: Option<Arc<PortQueue>>,
    references: Vec<Reference>,
    is_touched: bool,
}

impl Staged {
    pub(crate) fn open(&mut self, port: Arc<PortQueue>) {
        let index = port.index() as usize;
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, Lane::default);
        }
        self.ports[index].port = Some(port);
    }

    pub(crate) fn close(&mut self, index: u32) {
        if let Some(lane) = self.ports.get_mut(index as usize) {
            lane.port = None;
        }
    }

    #[inline]
    pub(crate) fn stage(&mut self, row: &Row, reference: Reference) {
        let index = row.port.load(Ordering::Relaxed);
        if let Some(lane) = self.touch(index) {
            lane.references.push(reference);
        }
    }

    /// A timer is due: queues it at once; its port's waiter is woken with the others.
    pub(crate) fn expire_timer(&mut self, rows: &Rows, row: &Row, entry: Entry, now_ns: u64) -> Option<u64> {
        let lane = self.touch(row.port.load(Ordering::Relaxed))?;
        lane.port.as_ref()?.expire_timer(rows, entry, now_ns)
    }

    /// The lane of a port, noted for posting. A port the watcher has not been told of cannot be: a row is only
    /// published after its port was.
    fn touch(&mut self, index: u32) -> Option<&mut Lane> {
        let lane = self.ports.get_mut(index as usize)?;
        if !lane.is_touched {
            lane.is_touched = true;
            self.touched.push(index);
        }
        Some(lane)
    }

    /// Posts everything.
    pub(crate) fn post(&mut self, rows: &Rows) {
        for index in self.touched.drain(..) {
            let lane = &mut self.ports[index as usize];
            if let Some(port) = &lane.port {
                port.post(rows, &lane.references);
            }
            lane.references.clear();
            lane.is_touched = false;
        }
    }
}
