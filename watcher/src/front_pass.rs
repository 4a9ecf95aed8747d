//! One look at a front, and where what it found goes.

use std::collections::VecDeque;

use handle_watcher_wire::{Mode, Signals};

use crate::events::{Events, ready_event};
use crate::outcome::{Delivery, Outcome};
use crate::rows::{Reference, Row};
use crate::state::State;

/// One look at a front: where its events go.
#[derive(Debug)]
pub(crate) struct FrontPass<'a> {
    pub(crate) events: &'a mut Events,
    /// What had no room, and has to be posted to the port's queue.
    pub(crate) spilled: &'a mut Vec<Reference>,
    /// Level watches that hold and had no room: they come first the next time.
    pub(crate) left: &'a mut VecDeque<Reference>,
    /// Rows of any client that ended, because their number was found to be another file.
    pub(crate) ended: &'a mut Vec<Reference>,
    /// Some entry was changed between silent and level-triggered, which makes the kernel report it once more.
    pub(crate) has_turned: bool,
    /// The Level watches that were told, if somebody wants to know.
    pub(crate) levels: Option<&'a mut Vec<Reference>>,
    /// Only such repeated reports are wanted: what Level watches hold was told in the pass before.
    pub(crate) is_second: bool,
}

impl FrontPass<'_> {
    /// What a delivery without the node's lock may be part of.
    pub(crate) fn is_plain(&self) -> bool {
        self.events.has_room() && !self.is_second && self.levels.is_none()
    }

    /// Gives true if the row's entry has to be turned.
    pub(crate) fn deliver(&mut self, row: &Row, reference: Reference, state: State, ready: Signals) -> bool {
        let is_level = state.mode() == Mode::Level;
        if self.is_second && is_level && !state.is_told() {
            return false;
        }
        if self.events.has_room() {
            // Before the state is: see there.
            let token = row.token();
            match row.state.deliver(reference.generation, ready) {
                Delivery::Nothing => {}
                Delivery::Merged { turned } => return turned,
                Delivery::Now { satisfied, turned } => {
                    self.events.push(ready_event(token, reference, satisfied));
                    if is_level && let Some(levels) = &mut self.levels {
                        levels.push(reference);
                    }
                    return turned;
                }
            }
        } else if is_level {
            // The kernel reports it again, but behind others that were reported before it.
            self.left.push_back(reference);
        } else if row.state.fire(reference.generation, ready) == Outcome::Queue {
            // An entry that is not level-triggered is not reported again.
            self.spilled.push(reference);
        }
        false
    }
}
