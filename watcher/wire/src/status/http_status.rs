//! What an HTTP status says about a call that brought no status of its own.

use super::{Code, Result, Status};

/// How much of a malformed `:status` is repeated in the message about it.
const SHOWN_BYTES_MOST: usize = 16;

/// The status of an HTTP response, 100 to 999. It counts only where `grpc-status` is absent: then a proxy or some other
/// server has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpStatus(u16);

impl HttpStatus {
    /// The status with this number; none outside 100 to 999.
    pub const fn new(number: u16) -> Option<Self> {
        if number >= 100 && number <= 999 { Some(Self(number)) } else { None }
    }

    /// Reads the value of `:status`.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` unless it is exactly three digits and at least 100.
    #[inline]
    pub fn parse(value: &[u8]) -> Result<Self> {
        match *value {
            [hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
                let place = |digit: u8| u16::from(digit - b'0');
                Ok(Self(place(hundreds) * 100 + place(tens) * 10 + place(ones)))
            }
            _ => Err(malformed(value)),
        }
    }

    /// The number, 100 to 999.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The code that stands for it. Never `OK`: a response that succeeds in HTTP alone has not answered the call.
    pub const fn to_code(self) -> Code {
        match self.0 {
            // A 1xx announces a response and is none, so whoever took it for one is at fault.
            100..=199 | 400 | 431 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

impl std::fmt::Display for HttpStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cold]
fn malformed(value: &[u8]) -> Status {
    let shown = &value[..value.len().min(SHOWN_BYTES_MOST)];
    let cut = if shown.len() < value.len() { "…" } else { "" };
    Status::new(
        Code::InvalidArgument,
        format!(
            ":status is three digits from 100 to 999 and not \"{}{cut}\"; drop the response",
            shown.escape_ascii()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_three_digits_is_a_status_and_no_other() {
        for number in 0..=2000_u16 {
            let parsed = HttpStatus::parse(number.to_string().as_bytes());
            assert_eq!(parsed.ok(), HttpStatus::new(number));
            assert_eq!(HttpStatus::new(number).is_some(), (100..=999).contains(&number));
        }
        assert_eq!(HttpStatus::new(404).map(|status| status.to_string()), Some("404".to_owned()));
    }

    #[test]
    fn no_http_status_is_a_success() {
        let statuses = (0..=u16::MAX).filter_map(HttpStatus::new);
        assert!(statuses.into_iter().all(|status| status.to_code() != Code::Ok));
    }

    #[test]
    fn a_malformed_status_is_quoted_without_letting_it_speak() {
        let refused = HttpStatus::parse(b"200\r\nforged: 1, and a long tail").expect_err("too long");
        assert_eq!(
            refused.to_string(),
            "INVALID_ARGUMENT: :status is three digits from 100 to 999 and not \"200\\r\\nforged: 1, …\"; drop the \
             response"
        );
    }
}
