//! Status: one of 17 canonical codes and a message that says what was wrong, with what value, and what to do
//! (contract C15). The codes and their numbers are those of gRPC, so that any client can forward them.

use std::borrow::Cow;

/// Either a value or a [`Status`] that is not `OK`.
pub type Result<T, E = Status> = std::result::Result<T, E>;

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
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number, the same in every language.
    pub const fn number(self) -> u8 {
        self as u8
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

/// A code and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    code: Code,
    message: Cow<'static, str>,
}

impl Status {
    /// Makes a status. A message that is known beforehand costs no allocation.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What was wrong, with what value, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Status {}

impl From<Status> for std::io::Error {
    fn from(status: Status) -> Self {
        use std::io::ErrorKind;
        let kind = match status.code {
            Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => ErrorKind::InvalidInput,
            Code::DeadlineExceeded => ErrorKind::TimedOut,
            Code::NotFound => ErrorKind::NotFound,
            Code::AlreadyExists => ErrorKind::AlreadyExists,
            Code::PermissionDenied | Code::Unauthenticated => ErrorKind::PermissionDenied,
            Code::Unimplemented => ErrorKind::Unsupported,
            Code::Unavailable => ErrorKind::NotConnected,
            _ => ErrorKind::Other,
        };
        Self::new(kind, status)
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
        }
        assert_eq!(Code::from_number(17), None);
    }

    #[test]
    fn a_status_prints_its_code_and_message_and_survives_as_an_io_error() {
        let status = Status::new(Code::NotFound, "watch 7.1 has ended");
        assert_eq!(status.to_string(), "NOT_FOUND: watch 7.1 has ended");
        let error = std::io::Error::from(status.clone());
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert_eq!(error.into_inner().expect("carries the status").downcast_ref::<Status>(), Some(&status));
    }
}
