//! Signals, their state, and how often a watch tells of them (contract C2, C3).

bitflags::bitflags! {
    /// A set of readiness conditions of a handle.
    ///
    /// As wishes of a watch: an event comes when any of them holds. [`ERROR`](Self::ERROR) and a full hang-up
    /// (told as [`PEER_CLOSED`](Self::PEER_CLOSED)) are told whether asked for or not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Signals: u8 {
        /// A read would not block: data, an end of file, a connection to accept, an exited child.
        const READABLE = 1;
        /// A write would not block.
        const WRITABLE = 2;
        /// The other side will send no more (half-close) or is gone (hang-up). Unread data stays readable.
        const PEER_CLOSED = 4;
        /// Priority data, such as TCP urgent data or a pseudo-terminal's packet mode.
        const PRIORITY = 8;
        /// An error is pending on the handle.
        const ERROR = 16;
    }
}

impl std::fmt::Display for Signals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return formatter.write_str("none");
        }
        bitflags::parser::to_writer(self, formatter)
    }
}

/// What is true of a handle now, and what can still become true.
///
/// `satisfied` is always a part of `satisfiable`. For descriptors `satisfiable` keeps `READABLE` and `WRITABLE`
/// for ever, because FIFOs, pseudo-terminals and unconnected sockets take a hang-up back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SignalsState {
    /// The conditions that hold.
    pub satisfied: Signals,
    /// The conditions that hold or can still come to hold.
    pub satisfiable: Signals,
}

/// How often a watch tells its client of a condition (contract C3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Told once, then silent until the client arms it again.
    Once,
    /// Told at each new readiness; stays armed.
    Edge,
    /// Told as long as the condition holds and the client comes back for more.
    Level,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_frozen_for_every_language() {
        let all = [
            (Signals::READABLE, 1),
            (Signals::WRITABLE, 2),
            (Signals::PEER_CLOSED, 4),
            (Signals::PRIORITY, 8),
            (Signals::ERROR, 16),
        ];
        for (signal, number) in all {
            assert_eq!(signal.bits(), number);
        }
        assert_eq!(Signals::from_bits(32), None, "an unknown bit is refused, not dropped");
    }

    #[test]
    fn a_set_prints_as_its_names() {
        assert_eq!((Signals::READABLE | Signals::ERROR).to_string(), "READABLE | ERROR");
        assert_eq!(Signals::empty().to_string(), "none");
    }
}
