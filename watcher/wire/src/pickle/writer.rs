//! Writing a frame.

use super::capacity::{UNIT_BYTES, grown, reserved};
use super::frame::{HeaderSize, SIZE_WORD_BYTES, aligned};
use crate::{Code, Result, Status};

/// The largest payload that a size word can name and whose values are whole words.
const PAYLOAD_BYTES_MOST: usize = 0xFFFF_FFFC;

/// Writes the values of one frame, one behind the other.
///
/// Writing never fails by itself. A value that no frame can hold, or that takes the payload over the writer's limit,
/// is left out; then [`finish`](Self::finish) and [`frame`](Self::frame) say so instead of giving a frame. So there
/// is one place to look for an error, and no frame with a hole.
///
/// The payload's capacity grows by a fixed rule, see [`payload_capacity_bytes`](Self::payload_capacity_bytes). A writer
/// that is kept and cleared between frames stops allocating.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The header, and behind it the payload so far: always whole words.
    bytes: Vec<u8>,
    header_bytes: usize,
    payload_limit_bytes: usize,
    /// Why there will be no frame.
    refusal: Option<Status>,
}

/// Bytes of a payload that are to be filled in later, see [`Writer::claim_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    offset_bytes: usize,
    length_bytes: usize,
}

impl Writer {
    /// A writer of frames whose header is the size word alone.
    #[inline]
    pub fn new() -> Self {
        Self::with_header_size(HeaderSize::PLAIN)
    }

    /// A writer of frames with this header. What lies behind the size word is zero until
    /// [`header_mut`](Self::header_mut) changes it.
    #[inline]
    pub fn with_header_size(header_size: HeaderSize) -> Self {
        Self::with_capacity(header_size, UNIT_BYTES)
    }

    /// A writer of frames with this header that has room for so many bytes of payload from the start, in units of 64.
    /// For a writer that knows beforehand what it will hold: each value takes its size rounded up to 4, and 4 more if it
    /// has a length.
    #[inline]
    pub fn with_capacity(header_size: HeaderSize, payload_bytes: usize) -> Self {
        let header_bytes = header_size.bytes();
        let capacity =
            payload_bytes.clamp(UNIT_BYTES, PAYLOAD_BYTES_MOST - UNIT_BYTES).next_multiple_of(UNIT_BYTES);
        let mut bytes = Vec::with_capacity(header_bytes + capacity);
        bytes.resize(header_bytes, 0);
        Self { bytes, header_bytes, payload_limit_bytes: PAYLOAD_BYTES_MOST, refusal: None }
    }

    /// Takes no more than this many bytes of payload, rounded down to whole words. Without it the limit is what the
    /// size word can name. Meant for a writer that holds nothing yet.
    #[must_use]
    pub fn with_payload_limit(mut self, limit_bytes: usize) -> Self {
        self.payload_limit_bytes = limit_bytes.min(PAYLOAD_BYTES_MOST) & !3;
        self.bytes.shrink_to(self.header_bytes + self.payload_limit_bytes);
        self
    }

    /// Writes a bool, as an i32 of 0 or 1.
    #[inline]
    pub fn write_bool(&mut self, value: bool) {
        self.write_i32(i32::from(value));
    }

    /// Writes an i32.
    #[inline]
    pub fn write_i32(&mut self, value: i32) {
        self.words(value.to_le_bytes());
    }

    /// Writes a u32.
    #[inline]
    pub fn write_u32(&mut self, value: u32) {
        self.words(value.to_le_bytes());
    }

    /// Writes a u16 and two bytes of padding.
    #[inline]
    pub fn write_u16(&mut self, value: u16) {
        self.write_u32(u32::from(value));
    }

    /// Writes an i64.
    #[inline]
    pub fn write_i64(&mut self, value: i64) {
        self.words(value.to_le_bytes());
    }

    /// Writes a u64.
    #[inline]
    pub fn write_u64(&mut self, value: u64) {
        self.words(value.to_le_bytes());
    }

    /// Writes a long: 64 bits on every machine, the same as an i64.
    #[inline]
    pub fn write_long(&mut self, value: i64) {
        self.write_i64(value);
    }

    /// Writes an f32, bit for bit: the payload of a NaN is kept.
    #[inline]
    pub fn write_f32(&mut self, value: f32) {
        self.words(value.to_le_bytes());
    }

    /// Writes an f64, bit for bit: the payload of a NaN is kept.
    #[inline]
    pub fn write_f64(&mut self, value: f64) {
        self.words(value.to_le_bytes());
    }

    /// Writes how many elements follow. Refused beyond `i32::MAX`.
    #[inline]
    pub fn write_count(&mut self, count: usize) {
        self.length("count", count);
    }

    /// Writes the index of an attachment: which of the handles that travel beside the frame is meant. Refused beyond
    /// `i32::MAX`.
    #[inline]
    pub fn write_attachment_index(&mut self, index: usize) {
        self.length("attachment index", index);
    }

    /// Writes a string: its length in bytes, then its UTF-8. Refused beyond `i32::MAX` bytes.
    #[inline]
    pub fn write_str(&mut self, value: &str) {
        self.write_data(value.as_bytes());
    }

    /// Writes bytes and their length. Refused beyond `i32::MAX` bytes.
    #[inline]
    pub fn write_data(&mut self, value: &[u8]) {
        if self.length("length", value.len()) {
            self.write_bytes(value);
        }
    }

    /// Writes bytes without their length, which the reader has to know.
    #[inline]
    pub fn write_bytes(&mut self, value: &[u8]) {
        if self.make_room(value.len()) {
            self.bytes.extend_from_slice(value);
            if !value.len().is_multiple_of(4) {
                self.bytes.resize(aligned(self.bytes.len()), 0);
            }
        }
    }

    /// Writes units of 16 bits and their number. A surrogate may stand alone; it is kept. Refused beyond `i32::MAX`
    /// bytes.
    pub fn write_string16(&mut self, value: &[u16]) {
        self.units(value.len(), value.iter().copied());
    }

    /// Writes a text as units of 16 bits and their number. Refused beyond `i32::MAX` bytes.
    pub fn write_str_as_string16(&mut self, value: &str) {
        self.units(value.encode_utf16().count(), value.encode_utf16());
    }

    /// Leaves room for this many bytes, without a length, to be filled through [`claimed_mut`](Self::claimed_mut). They
    /// are zero until then. A claim is a place in the payload, so it stays good when the buffer grows.
    ///
    /// ```
    /// # fn main() -> handle_watcher_wire::Result<()> {
    /// let mut writer = handle_watcher_wire::pickle::Writer::new();
    /// let count = writer.claim_bytes(4);
    /// writer.write_str("one");
    /// writer.write_str("two");
    /// writer.claimed_mut(count).expect("it was granted").copy_from_slice(&2_u32.to_le_bytes());
    /// assert_eq!(writer.frame()?[4..8], [2, 0, 0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim_bytes(&mut self, length_bytes: usize) -> Claim {
        let claim = Claim { offset_bytes: self.payload_bytes(), length_bytes };
        if self.make_room(length_bytes) {
            self.bytes.resize(self.bytes.len() + aligned(length_bytes), 0);
        }
        claim
    }

    /// The bytes of a claim, without their padding. None if this writer holds nothing there, because it refused the
    /// claim or was cleared. A claim is for the frame that it was made in; in another it names whatever stands there.
    pub fn claimed_mut(&mut self, claim: Claim) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.header_bytes..)?.get_mut(claim.offset_bytes..)?.get_mut(..claim.length_bytes)
    }

    /// The header behind its size word. Empty for [`HeaderSize::PLAIN`].
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[SIZE_WORD_BYTES..self.header_bytes]
    }

    /// Makes room for this many more bytes of payload at once, counted as for
    /// [`with_capacity`](Self::with_capacity). Beyond the limit there is nothing to make room for, and nothing happens.
    pub fn reserve(&mut self, additional_bytes: usize) {
        let capacity = self.payload_capacity_bytes();
        if let Some(capacity) = reserved(capacity, self.payload_bytes(), additional_bytes)
            && self.payload_bytes().saturating_add(additional_bytes) <= self.payload_limit_bytes
        {
            self.set_capacity(capacity);
        }
    }

    /// How many bytes of payload there are, padding included.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len() - self.header_bytes
    }

    /// How many bytes of payload fit before the buffer grows.
    ///
    /// It starts at 64, then doubles, or becomes what is needed if that is more; always in units of 64, never more than
    /// the limit, and above a page of 4096 bytes one unit less than a multiple of it.
    #[inline]
    pub fn payload_capacity_bytes(&self) -> usize {
        self.bytes.capacity() - self.header_bytes
    }

    /// The frame so far. Further values may be written behind it.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` if a value was refused since the writer was made or cleared; the message says which.
    #[inline]
    pub fn frame(&mut self) -> Result<&[u8]> {
        self.seal()?;
        Ok(&self.bytes)
    }

    /// The frame.
    ///
    /// # Errors
    ///
    /// As for [`frame`](Self::frame).
    #[inline]
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.seal()?;
        Ok(self.bytes)
    }

    /// Begins another frame in the same buffer: no payload, a header of zeros, nothing refused.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.truncate(self.header_bytes);
        self.bytes.fill(0);
        self.refusal = None;
    }

    /// Puts the payload's size into the size word.
    #[inline]
    fn seal(&mut self) -> Result<()> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        // The capacity is within the limit, but an allocator may have given more than it was asked for.
        let within = self.payload_bytes() <= self.payload_limit_bytes;
        match u32::try_from(self.payload_bytes()) {
            Ok(payload_bytes) if within => {
                self.bytes[..SIZE_WORD_BYTES].copy_from_slice(&payload_bytes.to_le_bytes());
                Ok(())
            }
            _ => Err(beyond_limit(0, self.payload_bytes(), self.payload_limit_bytes)),
        }
    }

    /// Writes whole words. Apart from bytes of any length, so that it folds to a comparison and a store.
    #[inline]
    fn words<const BYTES: usize>(&mut self, value: [u8; BYTES]) {
        const { assert!(BYTES.is_multiple_of(4), "padding is for write_bytes") };
        if self.make_room(BYTES) {
            self.bytes.extend_from_slice(&value);
        }
    }

    /// Writes a number that stands for a length, a count or an index. False if it is none.
    #[inline]
    fn length(&mut self, what: &str, number: usize) -> bool {
        match i32::try_from(number) {
            Ok(number) => self.write_i32(number),
            Err(_) => {
                self.refuse_length(what, number);
                return false;
            }
        }
        true
    }

    /// Writes this many units. The bytes of all of them have to fit a length, not only their number.
    fn units(&mut self, count: usize, units: impl Iterator<Item = u16>) {
        let length_bytes = count.saturating_mul(2);
        if i32::try_from(length_bytes).is_err() {
            return self.refuse_length("length", length_bytes);
        }
        if self.length("length", count) {
            let start = self.bytes.len();
            self.claim_bytes(length_bytes);
            let places = self.bytes[start..].as_chunks_mut::<2>().0;
            places.iter_mut().zip(units).for_each(|(place, unit)| *place = unit.to_le_bytes());
        }
    }

    /// Whether this many bytes and their padding may be written now. They fit the buffer then.
    #[inline]
    fn make_room(&mut self, length_bytes: usize) -> bool {
        let room = self.bytes.capacity() - self.bytes.len();
        aligned(length_bytes) <= room || self.grow(length_bytes)
    }

    #[cold]
    fn grow(&mut self, length_bytes: usize) -> bool {
        let offset = self.payload_bytes();
        let needed = length_bytes.checked_next_multiple_of(4).and_then(|bytes| bytes.checked_add(offset));
        match needed {
            Some(needed) if needed <= self.payload_limit_bytes => {
                self.set_capacity(grown(self.payload_capacity_bytes(), needed));
                true
            }
            _ => {
                self.refuse(beyond_limit(offset, length_bytes, self.payload_limit_bytes));
                false
            }
        }
    }

    /// Sets the capacity, but never beyond the limit: so what fits the buffer is within it.
    fn set_capacity(&mut self, capacity: usize) {
        let capacity = capacity.min(self.payload_limit_bytes);
        self.bytes.reserve_exact(capacity.saturating_sub(self.payload_bytes()));
    }

    #[cold]
    fn refuse_length(&mut self, what: &str, number: usize) {
        let offset = self.payload_bytes();
        let most = i32::MAX;
        self.refuse(Status::new(
            Code::ResourceExhausted,
            format!("the {what} {number} at payload offset {offset} is more than {most}, the most that a frame can say; \
                     send it in parts"),
        ));
    }

    /// Remembers the first refusal: what comes after it may only be its consequence.
    #[cold]
    fn refuse(&mut self, refusal: Status) {
        self.refusal.get_or_insert(refusal);
    }
}

impl Default for Writer {
    /// The same as [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

#[cold]
fn beyond_limit(offset: usize, length_bytes: usize, limit_bytes: usize) -> Status {
    Status::new(
        Code::ResourceExhausted,
        format!(
            "{length_bytes} bytes at payload offset {offset} go beyond the limit of {limit_bytes} bytes of payload; \
             send them in parts"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_follows_its_rule_from_64_on() {
        let mut writer = Writer::new();
        let mut seen = vec![writer.payload_capacity_bytes()];
        while writer.payload_capacity_bytes() < 131_008 {
            writer.write_u32(0);
            if seen.last() != Some(&writer.payload_capacity_bytes()) {
                seen.push(writer.payload_capacity_bytes());
            }
        }
        assert_eq!(seen, [64, 128, 256, 512, 1024, 2048, 4096, 8128, 16320, 32704, 65472, 131_008]);
    }

    #[test]
    fn a_reservation_is_used_up_before_the_buffer_grows_again() {
        let mut writer = Writer::new();
        writer.reserve(1000);
        assert_eq!(writer.payload_capacity_bytes(), 1152, "twice 64 and 1000, in units of 64");
        writer.write_bytes(&[1; 1152]);
        assert_eq!(writer.payload_capacity_bytes(), 1152);
        writer.reserve(0);
        assert_eq!(writer.payload_capacity_bytes(), 1152);
    }

    #[test]
    fn a_capacity_from_the_start_is_in_units_of_64() {
        for (asked, given) in [(0, 64), (64, 64), (65, 128), (1000, 1024)] {
            assert_eq!(Writer::with_capacity(HeaderSize::PLAIN, asked).payload_capacity_bytes(), given);
        }
    }

    #[test]
    fn a_cleared_writer_keeps_its_room_and_nothing_else() {
        let mut writer = Writer::with_header_size(HeaderSize::new(8).expect("a multiple of 4"));
        writer.header_mut().fill(7);
        writer.write_bytes(&[1; 1000]);
        let capacity = writer.payload_capacity_bytes();
        writer.clear();
        assert_eq!(writer.payload_capacity_bytes(), capacity);
        assert_eq!(writer.frame(), Ok(&[0_u8; 8][..]));
    }

    #[test]
    fn a_limit_holds_to_the_byte_and_lets_go_with_a_clear() {
        for limit in [0, 4, 60, 64, 100, 5000] {
            let mut writer = Writer::new().with_payload_limit(limit + 3);
            writer.write_bytes(&vec![1; limit]);
            assert_eq!(writer.frame().map(<[u8]>::len), Ok(limit + 4));
            writer.write_bool(true);
            writer.write_bytes(&[]);
            let refused = writer.frame().expect_err("four bytes too many");
            assert_eq!(refused.code(), Code::ResourceExhausted);
            assert!(refused.message().contains(&format!("offset {limit} go beyond the limit of {limit} ")));
            writer.clear();
            assert!(writer.finish().is_ok());
        }
    }

    #[test]
    fn a_reservation_beyond_the_limit_takes_no_memory() {
        let mut writer = Writer::new().with_payload_limit(100);
        writer.reserve(usize::MAX);
        assert_eq!(writer.payload_capacity_bytes(), 64);
        writer.reserve(100);
        assert_eq!(writer.payload_capacity_bytes(), 100);
        assert!(writer.finish().is_ok(), "a reservation is no value");
    }

    #[test]
    fn a_refused_claim_is_never_anybody_elses_bytes() {
        let mut writer = Writer::new().with_payload_limit(64);
        let claim = writer.claim_bytes(65);
        writer.write_bytes(&[1; 64]);
        assert_eq!(writer.claimed_mut(claim), None);
        assert!(writer.finish().is_err());
    }

    #[test]
    fn what_has_no_length_word_is_refused_before_it_is_touched() {
        // Zeroed memory that nobody touches costs address space alone.
        let beyond = vec![0_u8; i32::MAX as usize + 1];
        let mut writer = Writer::new();
        writer.write_data(&beyond);
        assert_eq!(writer.payload_bytes(), 0);
        let refused = writer.finish().expect_err("no length says that");
        assert!(refused.message().starts_with("the length 2147483648 at payload offset 0"), "{refused}");

        let mut writer = Writer::new();
        writer.write_count(usize::MAX);
        writer.write_i32(5);
        assert!(writer.finish().is_err(), "the first refusal stays");
    }
}
