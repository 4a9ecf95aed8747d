//! What one turn found, sorted by port, so that each port's lock is taken once and its waiter woken once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::port_queue::PortQueue;
use crate::rows::{Reference, Row, Rows};

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
        // A port the watcher has not been told of cannot be: a row is only published after its port was.
        let Some(lane) = self.ports.get_mut(index as usize) else { return };
        if lane.references.is_empty() {
            self.touched.push(index);
        }
        lane.references.push(reference);
    }

    /// Posts everything.
    pub(crate) fn post(&mut self, rows: &Rows) {
        for index in self.touched.drain(..) {
            let lane = &mut self.ports[index as usize];
            if let Some(port) = &lane.port {
                port.post(rows, &lane.references);
            }
            lane.references.clear();
        }
    }
}
