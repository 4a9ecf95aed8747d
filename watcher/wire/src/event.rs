//! Events: what a port hands out (contract C4).

use crate::{Code, Signals, SignalsState, Status, TimerId, Token, WatchId};

/// What an [`Event`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A condition of the watch holds; `satisfied` says which.
    Ready,
    /// No condition of the watch can hold any more. Never sent for descriptors.
    Unsatisfiable,
    /// The deadline of the watch passed; the watch is disarmed.
    Deadline,
    /// A timer expired, `count` times since the last event of it.
    Timer,
    /// Somebody called `wake`, `count` times since the last such event.
    Wake,
    /// An answer of a remote service.
    Reply,
    /// The last event of a watch; `status` says why it ended. Its id is worth nothing from here on.
    Ended,
}

/// One event of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The watch it is about; for a timer, the same number as the [`TimerId`] (see [`Event::timer`]).
    pub watch: WatchId,
    /// The caller's number of that watch or timer.
    pub token: Token,
    /// What happened.
    pub kind: EventKind,
    /// For `Ready`: the conditions that hold. For `Deadline`: those that came in before it, if any.
    pub satisfied: Signals,
    /// The conditions that hold or can still come to hold.
    pub satisfiable: Signals,
    /// For `Ended`: why. `OK` for every other kind.
    pub status: Code,
    /// For `Timer` and `Wake`: how many of them this event stands for. 1 for every other kind.
    pub count: u32,
}

impl Event {
    /// The timer this event is about, when it is about one.
    pub fn timer(&self) -> Option<TimerId> {
        (self.kind == EventKind::Timer).then(|| TimerId::from_raw(self.watch.raw()))
    }

    /// `satisfied` and `satisfiable` as one value.
    pub fn state(&self) -> SignalsState {
        SignalsState { satisfied: self.satisfied, satisfiable: self.satisfiable }
    }

    /// Why the watch ended, with a message that says what to do. `OK` unless the kind is [`EventKind::Ended`].
    pub fn to_status(&self) -> Status {
        match self.status {
            Code::Ok => Status::new(Code::Ok, ""),
            Code::Cancelled => Status::new(
                Code::Cancelled,
                "the watch ended because the handle it watched was closed through this library",
            ),
            Code::NotFound => Status::new(
                Code::NotFound,
                "the watch ended because its descriptor was closed while it was watched; call unwatch before closing",
            ),
            Code::Aborted => Status::new(Code::Aborted, "the watch ended because the watcher was stopped"),
            Code::Unavailable => Status::new(
                Code::Unavailable,
                "the watch ended because the session with the service is over; connect again",
            ),
            code => Status::new(
                code,
                "the watch ended because the kernel refused to go on watching its descriptor",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timer_event_names_a_timer() {
        let mut event = Event {
            watch: WatchId::new(3, 4),
            token: 0,
            kind: EventKind::Ready,
            satisfied: Signals::READABLE,
            satisfiable: Signals::READABLE,
            status: Code::Ok,
            count: 1,
        };
        assert_eq!(event.timer(), None);
        event.kind = EventKind::Timer;
        assert_eq!(event.timer(), Some(TimerId::new(3, 4)));
    }
}
