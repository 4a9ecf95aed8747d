//! What data waits that a child may have left: it is told before the child's exit.

use handle_watcher_wire::{Mode, Signals};
use rustix::event::{PollFd, PollFlags};

use crate::control::Control;
use crate::port_queue::CHILD_SCAN_LIMIT;
use crate::rows::Reference;
use crate::state::Kind;
use crate::sys::descriptor;

/// A child exited: fires the armed watches of this client that hold readable data it has not been told of yet, so
/// that they are handed out before the exit. True if there are any. Edge watches are left out: nothing more is told
/// of them before new data comes. `entries` is room that is kept from call to call.
pub(crate) fn fire(control: &Control, entries: &mut Vec<PollFd<'static>>) -> bool {
    entries.clear();
    let mut references = Vec::new();
    let mut is_on_its_way = false;
    control.port().visit_rows(control.shared().rows(), |slot, row| {
        let state = row.state.load();
        // Fired, and not posted yet.
        is_on_its_way |= state.kind() == Kind::Watch && state.is_queued() && !state.is_child();
        let counts = state.kind() == Kind::Watch
            && state.is_armed()
            && !state.is_child()
            && state.mode() != Mode::Edge
            && state.wished().contains(Signals::READABLE);
        if counts && let Ok(entry) = descriptor::poll_entry(row.descriptor(), PollFlags::IN) {
            entries.push(entry);
            references.push(Reference { slot, generation: state.generation() });
        }
        entries.len() < CHILD_SCAN_LIMIT
    });
    if descriptor::poll_now(entries).is_err() {
        return is_on_its_way;
    }
    let mut has_fired = is_on_its_way;
    for (entry, &reference) in entries.iter().zip(&references) {
        if entry.revents().contains(PollFlags::IN) {
            has_fired = true;
            control.fire_seen(reference, Signals::READABLE);
        }
    }
    has_fired
}
