//! Reading a frame without copying it.

use super::frame::{HeaderSize, SIZE_WORD_BYTES, aligned, size_word};
use super::read_error::{ReadCause, ReadError, ValueKind, saturated};
use super::utf16::Utf16;
use crate::{Code, Result, Status};

/// From so many bytes on text is checked with vector instructions; below, the standard library is quicker.
const VECTOR_BYTES_LEAST: usize = 512;

/// Reads the values of one frame, in the order in which they were written. Strings and data are views into the frame.
///
/// **A failed read spends the reader**: what is left of the frame is passed over, and every later read of at least one
/// byte fails, too. So a caller may read a whole message and look at the errors afterwards. Clone the reader before a
/// read that may fail, if another attempt is to start from there.
///
/// What stands in the padding is not looked at, and padding may be missing at the end of the payload.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    header: &'a [u8],
    payload: &'a [u8],
    /// The part of the payload that is still to be read.
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads a frame with a header of unknown length: whatever the payload does not take is header.
    ///
    /// So bytes too many at the end shift the payload, and nothing notices. Cut frames exactly, with
    /// [`find_next`](super::find_next), and prefer [`with_header_size`](Self::with_header_size).
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if there is no size word, if it says more than there is, or if what is left for the header
    /// is nothing or no multiple of 4.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Result<Self> {
        let Some(payload_bytes) = size_word(frame) else { return Err(no_size_word(frame.len())) };
        match usize::try_from(payload_bytes).ok().and_then(|payload| frame.len().checked_sub(payload)) {
            None => Err(too_large(payload_bytes, frame.len())),
            Some(header_bytes) if header_bytes == 0 || !header_bytes.is_multiple_of(4) => {
                Err(crooked_header(header_bytes, payload_bytes, frame.len()))
            }
            Some(header_bytes) => Ok(Self::split(frame, header_bytes)),
        }
    }

    /// Reads a frame with a header of known length.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` unless the frame is exactly the header and as many bytes as its size word says.
    #[inline]
    pub fn with_header_size(header_size: HeaderSize, frame: &'a [u8]) -> Result<Self> {
        let Some(payload_bytes) = size_word(frame) else { return Err(no_size_word(frame.len())) };
        let expected_bytes = header_size.bytes() as u64 + u64::from(payload_bytes);
        if expected_bytes != frame.len() as u64 {
            return Err(another_length(header_size, payload_bytes, frame.len()));
        }
        Ok(Self::split(frame, header_size.bytes()))
    }

    #[inline]
    fn split(frame: &'a [u8], header_bytes: usize) -> Self {
        let (header, payload) = frame.split_at(header_bytes);
        Self { header, payload, rest: payload }
    }

    /// The header behind its size word. Empty for [`HeaderSize::PLAIN`].
    #[inline]
    pub fn header(&self) -> &'a [u8] {
        self.header.get(SIZE_WORD_BYTES..).unwrap_or_default()
    }

    /// The whole payload, whatever was read of it.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// How many bytes are left to read, padding included. Zero after a failed read.
    #[inline]
    pub fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Whether nothing is left to read. So a writer may add values that an older reader does not ask for, and a newer
    /// reader can tell that an older writer has not added them.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a bool. Only its first of four bytes counts: anything but zero is true.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] at the end of the payload.
    #[inline]
    pub fn read_bool(&mut self) -> Result<bool, ReadError> {
        self.fixed(ValueKind::Bool).map(|[byte]| byte != 0)
    }

    /// Reads an i32.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 4 bytes are left.
    #[inline]
    pub fn read_i32(&mut self) -> Result<i32, ReadError> {
        self.fixed(ValueKind::I32).map(i32::from_le_bytes)
    }

    /// Reads a u32.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 4 bytes are left.
    #[inline]
    pub fn read_u32(&mut self) -> Result<u32, ReadError> {
        self.fixed(ValueKind::U32).map(u32::from_le_bytes)
    }

    /// Reads a u16, which takes 4 bytes.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 2 bytes are left.
    #[inline]
    pub fn read_u16(&mut self) -> Result<u16, ReadError> {
        self.fixed(ValueKind::U16).map(u16::from_le_bytes)
    }

    /// Reads an i64.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 8 bytes are left.
    #[inline]
    pub fn read_i64(&mut self) -> Result<i64, ReadError> {
        self.fixed(ValueKind::I64).map(i64::from_le_bytes)
    }

    /// Reads a u64.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 8 bytes are left.
    #[inline]
    pub fn read_u64(&mut self) -> Result<u64, ReadError> {
        self.fixed(ValueKind::U64).map(u64::from_le_bytes)
    }

    /// Reads a long: 64 bits on every machine, the same as an i64.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 8 bytes are left.
    #[inline]
    pub fn read_long(&mut self) -> Result<i64, ReadError> {
        self.fixed(ValueKind::Long).map(i64::from_le_bytes)
    }

    /// Reads an f32, bit for bit: the payload of a NaN is kept.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 4 bytes are left.
    #[inline]
    pub fn read_f32(&mut self) -> Result<f32, ReadError> {
        self.fixed(ValueKind::F32).map(f32::from_le_bytes)
    }

    /// Reads an f64, bit for bit: the payload of a NaN is kept.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 8 bytes are left.
    #[inline]
    pub fn read_f64(&mut self) -> Result<f64, ReadError> {
        self.fixed(ValueKind::F64).map(f64::from_le_bytes)
    }

    /// Reads how many elements follow, where each takes at least this many bytes of the payload, padding included.
    ///
    /// A count that the rest of the payload cannot hold is refused, so it is safe to make room for that many elements.
    /// With zero bytes an element any count passes: then do not.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if the count or the elements are not there; [`ReadCause::Negative`] for one below zero.
    #[inline]
    pub fn read_count(&mut self, element_bytes: usize) -> Result<usize, ReadError> {
        let offset = self.offset();
        let count = self.length(ValueKind::Count)?;
        match count.checked_mul(element_bytes) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            product => Err(self.short(ValueKind::Count, offset, product.unwrap_or(usize::MAX))),
        }
    }

    /// Reads the index of an attachment: which of the handles that travel beside the frame is meant. Whether there is
    /// one with that index is for the caller to check.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer than 4 bytes are left; [`ReadCause::Negative`] for an index below zero.
    #[inline]
    pub fn read_attachment_index(&mut self) -> Result<usize, ReadError> {
        self.length(ValueKind::AttachmentIndex)
    }

    /// Reads a string, as a view of the frame. It may contain NUL.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if its length or its bytes are not there, [`ReadCause::Negative`] for a length below zero,
    /// [`ReadCause::NotUtf8`] for bytes that are no text.
    #[inline]
    pub fn read_str(&mut self) -> Result<&'a str, ReadError> {
        let offset = self.offset();
        let bytes = self.counted(ValueKind::Str, 1)?;
        let text = if bytes.len() < VECTOR_BYTES_LEAST {
            std::str::from_utf8(bytes).ok()
        } else {
            simdutf8::basic::from_utf8(bytes).ok()
        };
        text.ok_or_else(|| self.not_text(offset, bytes))
    }

    /// The quick check does not say where the text ends; the standard library's does.
    #[cold]
    fn not_text(&mut self, offset: usize, bytes: &[u8]) -> ReadError {
        let valid_bytes = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        self.spend(ValueKind::Str, offset, ReadCause::NotUtf8 { valid_bytes: saturated(valid_bytes) })
    }

    /// Reads a string of 16-bit units, as a view of the frame.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if its length or its units are not there; [`ReadCause::Negative`] for a length below zero.
    #[inline]
    pub fn read_string16(&mut self) -> Result<Utf16<'a>, ReadError> {
        self.counted(ValueKind::String16, 2).map(Utf16::new)
    }

    /// Reads bytes with their length, as a view of the frame. A string has the same form.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if the length or the bytes are not there; [`ReadCause::Negative`] for a length below zero.
    #[inline]
    pub fn read_data(&mut self) -> Result<&'a [u8], ReadError> {
        self.counted(ValueKind::Data, 1)
    }

    /// Reads this many bytes, which have no length of their own, as a view of the frame. None at all can always be
    /// read.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer are left.
    #[inline]
    pub fn read_bytes(&mut self, length_bytes: usize) -> Result<&'a [u8], ReadError> {
        let offset = self.offset();
        self.take(ValueKind::Bytes, offset, length_bytes)
    }

    /// Passes over this many bytes and their padding. None at all can always be passed over.
    ///
    /// # Errors
    ///
    /// [`ReadCause::Short`] if fewer are left.
    #[inline]
    pub fn skip(&mut self, length_bytes: usize) -> Result<(), ReadError> {
        let offset = self.offset();
        self.take(ValueKind::Skip, offset, length_bytes).map(|_| ())
    }

    /// Where the next value starts.
    #[inline]
    fn offset(&self) -> usize {
        self.payload.len() - self.rest.len()
    }

    /// The bytes of a value whose size its kind decides.
    #[inline]
    fn fixed<const BYTES: usize>(&mut self, value: ValueKind) -> Result<[u8; BYTES], ReadError> {
        match self.rest.first_chunk::<BYTES>() {
            Some(bytes) => {
                self.advance(BYTES);
                Ok(*bytes)
            }
            None => Err(self.short(value, self.offset(), BYTES)),
        }
    }

    /// A number that stands for a length, a count or an index.
    #[inline]
    fn length(&mut self, value: ValueKind) -> Result<usize, ReadError> {
        let offset = self.offset();
        let number = i32::from_le_bytes(self.fixed(value)?);
        usize::try_from(number).map_err(|_| self.spend(value, offset, ReadCause::Negative { number }))
    }

    /// The bytes of a value that begins with its length, counted in units of this size.
    #[inline]
    fn counted(&mut self, value: ValueKind, unit_bytes: usize) -> Result<&'a [u8], ReadError> {
        let offset = self.offset();
        let count = self.length(value)?;
        // Saturating is exact where a usize is larger than the length word, and beyond every payload where it is not.
        self.take(value, offset, count.saturating_mul(unit_bytes))
    }

    #[inline]
    fn take(&mut self, value: ValueKind, offset: usize, length_bytes: usize) -> Result<&'a [u8], ReadError> {
        match self.rest.get(..length_bytes) {
            Some(bytes) => {
                self.advance(length_bytes);
                Ok(bytes)
            }
            None => Err(self.short(value, offset, length_bytes)),
        }
    }

    /// Goes on behind a value and its padding, which may be missing at the end.
    #[inline]
    fn advance(&mut self, length_bytes: usize) {
        self.rest = self.rest.get(aligned(length_bytes)..).unwrap_or_default();
    }

    #[cold]
    fn short(&mut self, value: ValueKind, offset: usize, wanted_bytes: usize) -> ReadError {
        let left_bytes = saturated(self.rest.len());
        self.spend(value, offset, ReadCause::Short { wanted_bytes: wanted_bytes as u64, left_bytes })
    }

    #[cold]
    fn spend(&mut self, value: ValueKind, offset: usize, cause: ReadCause) -> ReadError {
        self.rest = &[];
        ReadError::new(value, offset, cause)
    }
}

#[cold]
fn no_size_word(frame_bytes: usize) -> Status {
    Status::new(
        Code::InvalidArgument,
        format!(
            "a frame begins with a size word of 4 bytes and this one has {frame_bytes} bytes; wait for more"
        ),
    )
}

#[cold]
fn too_large(payload_bytes: u32, frame_bytes: usize) -> Status {
    Status::new(
        Code::InvalidArgument,
        format!(
            "the size word says {payload_bytes} bytes of payload and the frame has {frame_bytes} bytes in all; wait \
             until find_next finds it whole"
        ),
    )
}

#[cold]
fn crooked_header(header_bytes: usize, payload_bytes: u32, frame_bytes: usize) -> Status {
    Status::new(
        Code::InvalidArgument,
        format!(
            "a frame of {frame_bytes} bytes with {payload_bytes} bytes of payload leaves {header_bytes} for the header, \
             which takes a multiple of 4 and at least 4; cut frames with find_next"
        ),
    )
}

#[cold]
fn another_length(header_size: HeaderSize, payload_bytes: u32, frame_bytes: usize) -> Status {
    let header_bytes = header_size.bytes();
    Status::new(
        Code::InvalidArgument,
        format!(
            "a frame with a header of {header_bytes} and a payload of {payload_bytes} bytes is not {frame_bytes} bytes \
             long; cut frames with find_next"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_live_as_long_as_the_frame_and_not_as_the_reader() {
        let frame = [8, 0, 0, 0, 2, 0, 0, 0, b'h', b'i', 0, 0];
        let text = Reader::new(&frame).expect("a whole frame").read_str().expect("a string");
        assert_eq!(text, "hi");
    }

    #[test]
    fn a_clone_reads_again_from_where_it_was_made() {
        let frame = [8, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0];
        let mut reader = Reader::new(&frame).expect("a whole frame");
        assert_eq!(reader.read_i32(), Ok(7));
        let mut before = reader.clone();
        assert!(reader.read_i64().is_err());
        assert!(reader.is_at_end(), "a failed read spends the reader");
        assert_eq!(before.read_i32(), Ok(9));
    }

    #[test]
    fn a_count_that_cannot_be_there_is_refused_before_anybody_makes_room_for_it() {
        let frame = [12, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        let reader = Reader::new(&frame).expect("a whole frame");
        assert_eq!(reader.clone().read_count(4), Ok(2));
        assert_eq!(reader.clone().read_count(0), Ok(2));
        let mut spent = reader.clone();
        let error = spent.read_count(8).expect_err("16 bytes cannot be there");
        assert_eq!(error.cause(), ReadCause::Short { wanted_bytes: 16, left_bytes: 8 });
        assert_eq!((error.value(), error.offset_bytes()), (ValueKind::Count, 0));
        assert!(spent.is_at_end());
        assert!(reader.clone().read_count(usize::MAX).is_err(), "the product does not wrap round");
    }
}
