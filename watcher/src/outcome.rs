//! What a change of a row's state came to.

use handle_watcher_wire::{Code, Signals};

/// What the caller has to do after it changed a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing changed: not armed, not live, or another owner.
    Ignored,
    /// It joined what was undelivered already.
    Merged,
    /// It is the first undelivered thing of this row: put the row into its port's queue.
    Queue,
}

/// What an event in the front came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Nothing: not armed, not asked for, or another owner.
    Nothing,
    /// It joined what waits in the port's queue already.
    Merged { turned: bool },
    /// To be handed out now. `turned`: the kernel entry has to fall silent, or to speak again (contract C6).
    Now { satisfied: Signals, turned: bool },
}

/// What one hand-out took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing was undelivered.
    Nothing,
    /// A Ready, Timer or Wake with these signals; `ended` says that the Ended event is still to come.
    Ready { satisfied: Signals, ended: bool },
    /// A Deadline, with what had come in before it.
    Deadline { satisfied: Signals, ended: bool },
    /// The Ended event; the row is the caller's to free.
    Ended(Code),
}
