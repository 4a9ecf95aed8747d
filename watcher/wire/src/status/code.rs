//! The codes: what failed in general, as a number, a name and the digits that travel.

/// The 17 canonical codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// No error.
    Ok = 0,
    /// Ended because its handle was closed in order.
    Cancelled = 1,
    /// An error nobody can name.
    Unknown = 2,
    /// An argument no state of the program could make right.
    InvalidArgument = 3,
    /// Time ran out before the thing happened.
    DeadlineExceeded = 4,
    /// The id or the descriptor names nothing that exists.
    NotFound = 5,
    /// What was to be created exists.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// A limit is reached; the message names it.
    ResourceExhausted = 8,
    /// Right in itself, but not in the state things are in.
    FailedPrecondition = 9,
    /// Ended because the watcher was stopped.
    Aborted = 10,
    /// Beyond the end of something.
    OutOfRange = 11,
    /// Not built, or not on this kernel.
    Unimplemented = 12,
    /// A fault of ours.
    Internal = 13,
    /// The watcher is not there (any more).
    Unavailable = 14,
    /// Bytes were lost or damaged.
    DataLoss = 15,
    /// The caller did not say who it is.
    Unauthenticated = 16,
}

impl Code {
    /// Every code, by number.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with this number; none of more than 16.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number, the same in every language.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code that these digits name, as in the trailer `grpc-status`: one or two of them, at most 16.
    ///
    /// A leading zero is allowed where two digits are. None for anything else: no digits, three, a sign, a space, a
    /// letter, more than 16. [`Status::from_trailers`](super::Status::from_trailers) makes `UNKNOWN` of those.
    ///
    /// ```
    /// use handle_watcher_wire::Code;
    ///
    /// assert_eq!(Code::from_ascii(b"7"), Some(Code::PermissionDenied));
    /// assert_eq!(Code::from_ascii(b"07"), Some(Code::PermissionDenied));
    /// assert_eq!(Code::from_ascii(b"17"), None);
    /// ```
    #[inline]
    pub fn from_ascii(digits: &[u8]) -> Option<Self> {
        match *digits {
            // Nearly every call ends well.
            [b'0'] => Some(Self::Ok),
            [ones @ b'0'..=b'9'] | [b'0', ones @ b'0'..=b'9'] => Some(Self::ALL[usize::from(ones - b'0')]),
            [b'1', ones @ b'0'..=b'6'] => Some(Self::ALL[usize::from(ones - b'0') + 10]),
            _ => None,
        }
    }

    /// The number in decimal digits without a leading zero, as it travels in the trailer `grpc-status`. Its bytes are
    /// static, so nothing is made or copied.
    #[inline]
    pub const fn to_ascii(self) -> &'static str {
        const DIGITS: [&str; 17] =
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
        DIGITS[self as usize]
    }

    /// The canonical name, in capitals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_canonical_ones() {
        for (number, code) in (0_u8..).zip(Code::ALL) {
            assert_eq!(code.number(), number);
            assert_eq!(Code::from_number(number), Some(code));
            assert_eq!(code.to_ascii(), number.to_string());
            assert_eq!(Code::from_ascii(code.to_ascii().as_bytes()), Some(code));
        }
        assert_eq!(Code::from_number(17), None);
    }

    #[test]
    fn of_all_short_texts_only_numbers_up_to_16_are_codes() {
        let pairs = (0..=u16::MAX).map(u16::to_be_bytes);
        assert_eq!(pairs.filter(|pair| Code::from_ascii(pair).is_some()).count(), 17);
        let singles = (0..=u8::MAX).map(|byte| [byte]);
        assert_eq!(singles.filter(|single| Code::from_ascii(single).is_some()).count(), 10);
    }
}
