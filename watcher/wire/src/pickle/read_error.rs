//! Why a value could not be read.

use crate::{Code, Status};
use std::fmt;

/// What a [`Reader`](super::Reader) was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueKind {
    /// A bool.
    Bool,
    /// A signed number of 32 bits.
    I32,
    /// An unsigned number of 32 bits.
    U32,
    /// An unsigned number of 16 bits.
    U16,
    /// A signed number of 64 bits.
    I64,
    /// An unsigned number of 64 bits.
    U64,
    /// A long: a signed number of 64 bits.
    Long,
    /// A floating point number of 32 bits.
    F32,
    /// A floating point number of 64 bits.
    F64,
    /// How many elements follow.
    Count,
    /// A string.
    Str,
    /// A string of 16-bit units.
    String16,
    /// Bytes with their length.
    Data,
    /// Bytes without a length.
    Bytes,
    /// Bytes to pass over.
    Skip,
    /// The index of an attachment.
    AttachmentIndex,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bool => "a bool",
            Self::I32 => "an i32",
            Self::U32 => "a u32",
            Self::U16 => "a u16",
            Self::I64 => "an i64",
            Self::U64 => "a u64",
            Self::Long => "a long",
            Self::F32 => "an f32",
            Self::F64 => "an f64",
            Self::Count => "a count with its elements",
            Self::Str => "a string",
            Self::String16 => "a string16",
            Self::Data => "data",
            Self::Bytes => "bytes",
            Self::Skip => "bytes to skip",
            Self::AttachmentIndex => "an attachment index",
        })
    }
}

/// What was wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadCause {
    /// The value needs more bytes than are left.
    Short {
        /// How many bytes it needs; for a value with a length, those behind the length.
        wanted_bytes: u64,
        /// How many bytes are left where they would stand.
        left_bytes: u32,
    },
    /// A length, count or index below zero.
    Negative {
        /// The number as it stands in the frame.
        number: i32,
    },
    /// A string whose bytes are no UTF-8. [`read_data`](super::Reader::read_data) takes any bytes.
    NotUtf8 {
        /// How many of its bytes are good.
        valid_bytes: u32,
    },
}

/// Why a value could not be read, which one, and where. Small, and made without an allocation: the words are only
/// found when it is displayed or turned into a [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadError {
    value: ValueKind,
    offset_bytes: u32,
    cause: ReadCause,
}

impl ReadError {
    #[cold]
    pub(super) fn new(value: ValueKind, offset: usize, cause: ReadCause) -> Self {
        Self { value, offset_bytes: saturated(offset), cause }
    }

    /// What was asked for.
    pub fn value(&self) -> ValueKind {
        self.value
    }

    /// Where the value starts, in bytes from the start of the payload. For a value with a length, where that stands.
    pub fn offset_bytes(&self) -> u32 {
        self.offset_bytes
    }

    /// What was wrong.
    pub fn cause(&self) -> ReadCause {
        self.cause
    }

    /// `OUT_OF_RANGE` for a value that is cut short, `INVALID_ARGUMENT` for one that no frame may hold.
    pub fn code(&self) -> Code {
        match self.cause {
            ReadCause::Short { .. } => Code::OutOfRange,
            ReadCause::Negative { .. } | ReadCause::NotUtf8 { .. } => Code::InvalidArgument,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot read {} at payload offset {}: ", self.value, self.offset_bytes)?;
        match self.cause {
            ReadCause::Short { wanted_bytes, left_bytes } => write!(
                formatter,
                "it needs {wanted_bytes} bytes and {left_bytes} are left; read in the order of writing, and drop \
                 the frame if you did"
            ),
            ReadCause::Negative { number } => {
                write!(formatter, "its length or number is {number}, which is below zero; drop the frame")
            }
            ReadCause::NotUtf8 { valid_bytes } => write!(
                formatter,
                "it is no UTF-8 after its first {valid_bytes} bytes; read it as data, or drop the frame"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<ReadError> for Status {
    #[cold]
    fn from(error: ReadError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// A size inside a payload, which its size word keeps below this bound anyway.
pub(super) fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_what_to_do() {
        let cause = ReadCause::Short { wanted_bytes: 40, left_bytes: 7 };
        let error = ReadError::new(ValueKind::Str, 12, cause);
        assert_eq!(
            Status::from(error).to_string(),
            "OUT_OF_RANGE: cannot read a string at payload offset 12: it needs 40 bytes and 7 are left; read in the \
             order of writing, and drop the frame if you did"
        );
        let error = ReadError::new(ValueKind::Data, 0, ReadCause::Negative { number: -2 });
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains("-2"), "{error}");
        let error = ReadError::new(ValueKind::Str, 4, ReadCause::NotUtf8 { valid_bytes: 3 });
        assert!(error.to_string().contains("first 3 bytes"), "{error}");
    }

    #[test]
    fn an_error_is_small() {
        assert!(
            size_of::<ReadError>() <= 32,
            "{} bytes travel with every failed read",
            size_of::<ReadError>()
        );
    }
}
