//! What signals are to the kernel, and what its flags mean to a watch: the one table (contract C2).

use handle_watcher_wire::Signals;
use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;

/// The kernel flags that ask for `union`. Errors and full hang-ups come unasked.
///
/// An entry nobody is armed in asks for nothing: with its one-shot trigger the kernel then reports a hang-up at most
/// once, and the entry still proves that the number means our file.
pub(crate) fn to_flags(union: Signals) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, union.contains(Signals::READABLE));
    flags.set(EventFlags::OUT, union.contains(Signals::WRITABLE));
    flags.set(EventFlags::PRI, union.contains(Signals::PRIORITY));
    flags.set(EventFlags::RDHUP, union.intersects(Signals::READABLE | Signals::PEER_CLOSED));
    flags
}

/// What kernel flags mean to a row that wishes for `wished` (contract C2, the table).
#[inline]
pub(crate) fn to_signals(flags: EventFlags, wished: Signals) -> Signals {
    let mut signals = Signals::empty();
    signals.set(Signals::READABLE, flags.contains(EventFlags::IN));
    signals.set(Signals::WRITABLE, flags.contains(EventFlags::OUT));
    signals.set(Signals::PRIORITY, flags.contains(EventFlags::PRI));
    signals.set(Signals::ERROR, flags.contains(EventFlags::ERR));
    let half_close =
        flags.contains(EventFlags::RDHUP) && wished.intersects(Signals::READABLE | Signals::PEER_CLOSED);
    signals.set(Signals::PEER_CLOSED, half_close || flags.contains(EventFlags::HUP));
    signals
}

/// The poll(2) flags that ask for `signals`.
pub(crate) fn to_poll_flags(signals: Signals) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, signals.contains(Signals::READABLE));
    flags.set(PollFlags::OUT, signals.contains(Signals::WRITABLE));
    flags.set(PollFlags::PRI, signals.contains(Signals::PRIORITY));
    flags.set(PollFlags::RDHUP, signals.intersects(Signals::READABLE | Signals::PEER_CLOSED));
    flags
}

/// What poll(2) flags mean to who asked for `asked`: that, and what is always told.
pub(crate) fn from_poll_flags(found: PollFlags, asked: Signals) -> Signals {
    let mut signals = Signals::empty();
    signals.set(Signals::READABLE, found.contains(PollFlags::IN) && asked.contains(Signals::READABLE));
    signals.set(Signals::WRITABLE, found.contains(PollFlags::OUT) && asked.contains(Signals::WRITABLE));
    signals.set(Signals::PRIORITY, found.contains(PollFlags::PRI) && asked.contains(Signals::PRIORITY));
    signals.set(Signals::ERROR, found.contains(PollFlags::ERR));
    signals.set(Signals::PEER_CLOSED, found.intersects(PollFlags::HUP | PollFlags::RDHUP));
    signals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_kernel_flags() {
        let wished = Signals::WRITABLE;
        assert_eq!(to_signals(EventFlags::HUP, wished), Signals::PEER_CLOSED, "a hang-up is always told");
        assert_eq!(to_signals(EventFlags::ERR, wished), Signals::ERROR, "an error is always told");
        assert_eq!(to_signals(EventFlags::RDHUP, wished), Signals::empty(), "a half-close only if asked for");
        assert_eq!(
            to_signals(EventFlags::RDHUP | EventFlags::IN, Signals::READABLE),
            Signals::READABLE | Signals::PEER_CLOSED
        );
        assert_eq!(to_signals(EventFlags::PRI, wished), Signals::PRIORITY);
    }

    #[test]
    fn a_watch_of_nothing_asks_for_nothing() {
        assert_eq!(to_flags(Signals::empty()), EventFlags::empty());
        assert!(to_flags(Signals::READABLE).contains(EventFlags::RDHUP));
    }
}
