//! One test for each way in which a frame can lie.

use handle_watcher_wire::pickle::{
    HeaderSize, ReadCause, ReadError, Reader, ValueKind, find_next, peek_next,
};
use handle_watcher_wire::{Code, Status};

/// A frame with this payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    let payload_bytes = u32::try_from(payload.len()).expect("a small payload");
    [&payload_bytes.to_le_bytes(), payload].concat()
}

/// What a read of this payload fails with. It has to spend the reader.
#[track_caller]
fn failed<'a, T: std::fmt::Debug>(
    frame: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, ReadError>,
) -> ReadError {
    let mut reader = Reader::new(frame).expect("the frame itself is right");
    let error = read(&mut reader).expect_err("the value lies");
    assert!(reader.is_at_end(), "a failed read spends the reader");
    assert_eq!(reader.remaining_bytes(), 0);
    assert!(reader.read_bool().is_err());
    assert_eq!(reader.read_bytes(0), Ok(&[][..]), "nothing can always be read");
    error
}

/// A refusal has to be an INVALID_ARGUMENT that names these values.
#[track_caller]
fn assert_refused(made: Result<Reader<'_>, Status>, values: &[&str]) {
    let refused = made.expect_err("the frame lies");
    assert_eq!(refused.code(), Code::InvalidArgument);
    for value in values {
        assert!(refused.message().contains(value), "{value} is not in: {refused}");
    }
}

#[test]
fn no_size_word() {
    assert_refused(Reader::new(&[]), &["4 bytes", "has 0 bytes"]);
    assert_refused(Reader::new(&[8, 0, 0]), &["has 3 bytes", "wait for more"]);
    assert_refused(Reader::with_header_size(HeaderSize::PLAIN, &[8, 0, 0]), &["has 3 bytes"]);
}

#[test]
fn a_payload_beyond_the_frame() {
    assert_refused(Reader::new(&[9, 0, 0, 0, 1, 2, 3, 4]), &["says 9 bytes", "has 8 bytes", "find_next"]);
    assert_refused(Reader::new(&[255; 8]), &["says 4294967295 bytes"]);
}

#[test]
fn a_payload_that_leaves_no_header() {
    assert_refused(Reader::new(&[8, 0, 0, 0, 1, 2, 3, 4]), &["leaves 0 for the header"]);
}

#[test]
fn a_header_of_broken_words() {
    assert_refused(Reader::new(&[2, 0, 0, 0, 1, 2, 3, 4]), &["8 bytes", "2 bytes of payload", "leaves 6"]);
}

#[test]
fn bytes_too_many_or_too_few_for_a_known_header() {
    let whole = frame(&[1, 0, 0, 0]);
    assert!(Reader::with_header_size(HeaderSize::PLAIN, &whole).is_ok());
    let longer = [&whole[..], &[0; 4]].concat();
    assert_refused(Reader::with_header_size(HeaderSize::PLAIN, &longer), &["header of 4", "12 bytes long"]);
    assert!(Reader::new(&longer).is_ok(), "without a known header they count as header");
    assert_refused(Reader::with_header_size(HeaderSize::PLAIN, &whole[..7]), &["7 bytes long"]);
}

#[test]
fn a_claim_of_4_gibibytes_is_told_and_not_believed() {
    let stream = [0xFF; 20];
    assert_eq!(peek_next(HeaderSize::PLAIN, &stream), Some(4_294_967_299));
    assert_eq!(find_next(HeaderSize::PLAIN, &stream), None);
}

#[test]
fn a_value_cut_short() {
    let frame = frame(&[1, 0, 0, 0, 7, 0, 0, 0]);
    let error = failed(&frame, |reader| {
        reader.read_i32()?;
        reader.read_i64()
    });
    assert_eq!((error.value(), error.offset_bytes()), (ValueKind::I64, 4));
    assert_eq!(error.cause(), ReadCause::Short { wanted_bytes: 8, left_bytes: 4 });
    let status = Status::from(error);
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(
        status
            .message()
            .starts_with("cannot read an i64 at payload offset 4: it needs 8 bytes and 4 are left")
    );
}

#[test]
fn a_length_beyond_the_payload() {
    let frame = frame(b"\x05\0\0\0abcd");
    let error = failed(&frame, Reader::read_str);
    assert_eq!((error.value(), error.offset_bytes()), (ValueKind::Str, 0));
    assert_eq!(error.cause(), ReadCause::Short { wanted_bytes: 5, left_bytes: 4 });
    assert_eq!(failed(&frame, Reader::read_data).value(), ValueKind::Data);
    assert_eq!(failed(&frame, |reader| reader.read_bytes(9)).value(), ValueKind::Bytes);
    assert_eq!(failed(&frame, |reader| reader.skip(usize::MAX)).value(), ValueKind::Skip);
}

#[test]
fn a_length_below_zero() {
    let frame = frame(&[0xFE, 0xFF, 0xFF, 0xFF, 7, 0, 0, 0]);
    for error in [
        failed(&frame, Reader::read_str),
        failed(&frame, Reader::read_data),
        failed(&frame, Reader::read_string16),
        failed(&frame, |reader| reader.read_count(0)),
        failed(&frame, Reader::read_attachment_index),
    ] {
        assert_eq!(error.cause(), ReadCause::Negative { number: -2 });
        assert_eq!((error.code(), error.offset_bytes()), (Code::InvalidArgument, 0));
    }
}

#[test]
fn units_that_would_fit_if_they_were_bytes() {
    let payload = [&100_000_i32.to_le_bytes()[..], &[b'A'; 100_000]].concat();
    let frame = frame(&payload);
    let error = failed(&frame, Reader::read_string16);
    assert_eq!(error.cause(), ReadCause::Short { wanted_bytes: 200_000, left_bytes: 100_000 });
}

#[test]
fn units_whose_bytes_wrap_round_in_32_bits() {
    for count in [1_i32 << 30, i32::MAX] {
        let payload = [count.to_le_bytes(), [5, 0, 0, 0]].concat();
        let frame = frame(&payload);
        let error = failed(&frame, Reader::read_string16);
        let wanted_bytes = u64::try_from(count).expect("positive") * 2;
        assert_eq!(error.cause(), ReadCause::Short { wanted_bytes, left_bytes: 4 });
    }
}

#[test]
fn more_elements_than_there_are_bytes() {
    let payload = [i32::MAX.to_le_bytes(), [0; 4]].concat();
    let frame = frame(&payload);
    for element_bytes in [1, 4, 8, usize::MAX] {
        let error = failed(&frame, |reader| reader.read_count(element_bytes));
        assert!(matches!(error.cause(), ReadCause::Short { left_bytes: 4, .. }), "{error}");
    }
}

#[test]
fn a_string_that_is_no_text() {
    let payload = b"\x04\0\0\0ab\xFFc\x07\0\0\0";
    let frame = frame(payload);
    let error = failed(&frame, Reader::read_str);
    assert_eq!(error.cause(), ReadCause::NotUtf8 { valid_bytes: 2 });
    assert_eq!(error.code(), Code::InvalidArgument);
    let mut reader = Reader::new(&frame).expect("a whole frame");
    assert_eq!(reader.read_data(), Ok(&b"ab\xFFc"[..]), "as data it can be read");
    assert_eq!(reader.read_i32(), Ok(7));
}

#[test]
fn a_payload_of_broken_words_is_read_as_far_as_it_goes() {
    let frame = frame(&[7, 0, 0, 0, 1]);
    let mut reader = Reader::new(&frame).expect("a whole frame");
    assert_eq!((reader.read_i32(), reader.read_bool()), (Ok(7), Ok(true)));
    assert!(reader.is_at_end());
}
