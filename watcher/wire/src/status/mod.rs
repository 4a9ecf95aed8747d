//! Status: one of 17 canonical codes and a message that says what was wrong, with what value, and what to do
//! (contract C15). The codes and their numbers are those of gRPC, so that any client can forward them.
//!
//! As two trailers, `grpc-status` and `grpc-message`, a status is [`Code::to_ascii`] and [`encode_message`].
//! [`Status::from_trailers`] reads it back, whoever wrote it. A peer that is no gRPC server at all answers with an
//! [`HttpStatus`] alone.
//!
//! ```
//! use handle_watcher_wire::status::{self, Code, Status};
//!
//! let status = Status::new(Code::NotFound, "no such row: 50%\n");
//! assert_eq!(status.code().to_ascii(), "5");
//! assert_eq!(status::encode_message(status.message()), "no such row: 50%25%0A");
//! assert_eq!(Status::from_trailers(b"5", b"no such row: 50%25%0A"), status);
//! ```

mod code;
mod http_status;
mod message;

pub use code::Code;
pub use http_status::HttpStatus;
pub use message::{decode_message, encode_message};

use std::borrow::Cow;

/// How much of a code that nobody knows is repeated in the message about it.
const UNKNOWN_CODE_BYTES_MOST: usize = 32;

/// Either a value or a [`Status`] that is not `OK`.
pub type Result<T, E = Status> = std::result::Result<T, E>;

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

    /// The status that these two trailers tell, `grpc-status` and `grpc-message`; the message is empty where it is
    /// absent. Never fails, and keeps the message in any case.
    ///
    /// A code that is none becomes `UNKNOWN`. Without a message of the peer's own the message says which it was; what
    /// is not printable ASCII in it is U+FFFD.
    pub fn from_trailers(code: &[u8], message: &[u8]) -> Self {
        let known = Code::from_ascii(code);
        let message = match known {
            None if message.is_empty() => unknown_code(code),
            _ => decode_message(message).into_owned(),
        };
        Self::new(known.unwrap_or(Code::Unknown), message)
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

/// The code's name and the message, on one line: control characters are printed as escapes, so that a message with a
/// peer's words in it cannot begin a line of its own in a log (contract C15e).
impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: ", self.code)?;
        for piece in self.message.split_inclusive(char::is_control) {
            let clean = piece.trim_end_matches(char::is_control);
            formatter.write_str(clean)?;
            piece[clean.len()..]
                .chars()
                .try_for_each(|control| write!(formatter, "{}", control.escape_default()))?;
        }
        Ok(())
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

fn unknown_code(code: &[u8]) -> String {
    let mut message = "Unknown code ".to_owned();
    let shown = &code[..code.len().min(UNKNOWN_CODE_BYTES_MOST)];
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    message.extend(
        shown.iter().map(
            |&byte| {
                if printable(byte) { char::from(byte) } else { char::REPLACEMENT_CHARACTER }
            },
        ),
    );
    if shown.len() < code.len() {
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_prints_its_code_and_message_and_survives_as_an_io_error() {
        let status = Status::new(Code::NotFound, "watch 7.1 has ended");
        assert_eq!(status.to_string(), "NOT_FOUND: watch 7.1 has ended");
        let error = std::io::Error::from(status.clone());
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert_eq!(error.into_inner().expect("carries the status").downcast_ref::<Status>(), Some(&status));
    }

    #[test]
    fn a_message_cannot_begin_a_line_of_its_own() {
        let status = Status::from_trailers(b"13", b"one%0Atwo\x1b[1m\r\n");
        assert_eq!(status.message(), "one\ntwo\u{1b}[1m\r\n");
        assert_eq!(status.to_string(), "INTERNAL: one\\ntwo\\u{1b}[1m\\r\\n");
    }

    #[test]
    fn an_unknown_code_keeps_the_message_or_names_the_code() {
        let status = |code: &[u8], message: &[u8]| Status::from_trailers(code, message);
        assert_eq!(status(b"99", b"busy"), Status::new(Code::Unknown, "busy"));
        assert_eq!(status(b"99", b""), Status::new(Code::Unknown, "Unknown code 99"));
        assert_eq!(status(b"", b""), Status::new(Code::Unknown, "Unknown code "));
        assert_eq!(status(b"1\n2", b"").message(), "Unknown code 1\u{FFFD}2");
        let long = status(&[b'7'; 1000], b"");
        assert_eq!(long.message(), format!("Unknown code {}…", "7".repeat(UNKNOWN_CODE_BYTES_MOST)));
    }
}
