//! Where frames begin and end in a stream of bytes.

use crate::{Code, Result, Status};

/// The size word: the part of the header that every frame has.
pub(super) const SIZE_WORD_BYTES: usize = 4;

/// Every value starts at a multiple of this.
const ALIGNMENT_BYTES: usize = 4;

/// How long the header of a frame is: the size word, and what a protocol puts behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeaderSize(u8);

impl HeaderSize {
    /// The size word alone: 4 bytes.
    pub const PLAIN: Self = Self(4);

    /// The longest header: 64 bytes.
    pub const MOST: Self = Self(64);

    /// A header of this many bytes, the size word included.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` unless it is a multiple of 4 from 4 to 64.
    pub fn new(bytes: usize) -> Result<Self> {
        match u8::try_from(bytes) {
            Ok(small @ 4..=64) if bytes.is_multiple_of(ALIGNMENT_BYTES) => Ok(Self(small)),
            _ => Err(Status::new(
                Code::InvalidArgument,
                format!("a frame's header cannot have {bytes} bytes; take a multiple of 4 from 4 to 64"),
            )),
        }
    }

    /// The bytes of the header, the size word included.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl Default for HeaderSize {
    /// [`PLAIN`](Self::PLAIN).
    fn default() -> Self {
        Self::PLAIN
    }
}

/// How many bytes the next frame has, header and payload, as soon as its header is there. None before that.
///
/// The frame itself need not be there yet, and the answer can be more than 4 GiB: it is only what the frame claims.
/// Compare it with a limit of your own before you make room for it.
///
/// ```
/// use handle_watcher_wire::pickle::{HeaderSize, peek_next};
///
/// assert_eq!(peek_next(HeaderSize::PLAIN, &[8, 0, 0]), None);
/// assert_eq!(peek_next(HeaderSize::PLAIN, &[8, 0, 0, 0]), Some(12));
/// ```
#[inline]
pub fn peek_next(header_size: HeaderSize, bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..header_size.bytes())?;
    Some(header.len() as u64 + u64::from(size_word(header)?))
}

/// The next frame and the bytes behind it, once the frame is whole. None before that: read more, and ask again.
///
/// The frame is cut exactly, as [`Reader::with_header_size`](super::Reader::with_header_size) wants it.
///
/// ```
/// use handle_watcher_wire::pickle::{HeaderSize, find_next};
///
/// let stream = [4, 0, 0, 0, 42, 0, 0, 0, 8, 0];
/// assert_eq!(find_next(HeaderSize::PLAIN, &stream), Some((&stream[..8], &stream[8..])));
/// assert_eq!(find_next(HeaderSize::PLAIN, &stream[8..]), None);
/// ```
#[inline]
pub fn find_next(header_size: HeaderSize, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let frame_bytes = usize::try_from(peek_next(header_size, bytes)?).ok()?;
    bytes.split_at_checked(frame_bytes)
}

/// What the first four bytes say about the payload's size.
#[inline]
pub(super) fn size_word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// The next multiple of four. The last one there is, for the three numbers that have none.
#[inline]
pub(super) fn aligned(bytes: usize) -> usize {
    bytes.saturating_add(ALIGNMENT_BYTES - 1) & !(ALIGNMENT_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_multiple_of_four_from_4_to_64() {
        let good: Vec<usize> = (0..=70).filter(|&bytes| HeaderSize::new(bytes).is_ok()).collect();
        assert_eq!(good, (1..=16).map(|words| words * 4).collect::<Vec<_>>());
        assert_eq!(HeaderSize::new(64), Ok(HeaderSize::MOST));
        assert_eq!(HeaderSize::new(4), Ok(HeaderSize::default()));
        let refused = HeaderSize::new(usize::MAX).expect_err("no header is so long");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(&usize::MAX.to_string()), "{refused}");
    }

    #[test]
    fn a_frame_is_seen_with_its_header_and_found_when_it_is_whole() {
        let header_size = HeaderSize::new(20).expect("a multiple of 4");
        let mut stream = vec![0; 20];
        stream[0] = 4;
        assert_eq!(peek_next(header_size, &stream[..19]), None);
        assert_eq!(peek_next(header_size, &stream), Some(24));
        stream.extend([1, 2, 3]);
        assert_eq!(find_next(header_size, &stream), None);
        stream.extend([4, 5]);
        assert_eq!(find_next(header_size, &stream), Some((&stream[..24], &[5][..])));
    }

    #[test]
    fn aligning_never_overflows() {
        let pairs =
            [(0, 0), (1, 4), (4, 4), (5, 8), (usize::MAX, usize::MAX - 3), (usize::MAX - 3, usize::MAX - 3)];
        for (bytes, expected) in pairs {
            assert_eq!(aligned(bytes), expected);
        }
    }
}
