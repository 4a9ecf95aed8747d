//! What holds for every frame: what was written is read, and whatever arrives is answered.

use handle_watcher_wire::pickle::{HeaderSize, ReadError, Reader, Writer, find_next};
use proptest::prelude::*;

use crate::util::fixed_cases;

/// One value of each kind.
#[derive(Clone, Debug)]
enum Item {
    Bool(bool),
    I32(i32),
    U32(u32),
    U16(u16),
    I64(i64),
    U64(u64),
    Long(i64),
    F32(u32),
    F64(u64),
    Count(usize),
    Attachment(usize),
    Str(String),
    Units(Vec<u16>),
    Text16(String),
    Data(Vec<u8>),
    Bytes(Vec<u8>),
    Claim(Vec<u8>),
}

fn an_item() -> impl Strategy<Value = Item> {
    let index = 0..=i32::MAX as usize;
    prop_oneof![
        any::<bool>().prop_map(Item::Bool),
        any::<i32>().prop_map(Item::I32),
        any::<u32>().prop_map(Item::U32),
        any::<u16>().prop_map(Item::U16),
        any::<i64>().prop_map(Item::I64),
        any::<u64>().prop_map(Item::U64),
        any::<i64>().prop_map(Item::Long),
        any::<u32>().prop_map(Item::F32),
        any::<u64>().prop_map(Item::F64),
        index.clone().prop_map(Item::Count),
        index.prop_map(Item::Attachment),
        any::<String>().prop_map(Item::Str),
        prop::collection::vec(any::<u16>(), 0..40).prop_map(Item::Units),
        any::<String>().prop_map(Item::Text16),
        some_bytes().prop_map(Item::Data),
        some_bytes().prop_map(Item::Bytes),
        some_bytes().prop_map(Item::Claim),
    ]
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..80)
}

fn a_header_size() -> impl Strategy<Value = HeaderSize> {
    (1..=16_usize).prop_map(|words| HeaderSize::new(words * 4).expect("a multiple of 4"))
}

fn write(writer: &mut Writer, item: &Item) {
    match item {
        Item::Bool(value) => writer.write_bool(*value),
        Item::I32(value) => writer.write_i32(*value),
        Item::U32(value) => writer.write_u32(*value),
        Item::U16(value) => writer.write_u16(*value),
        Item::I64(value) => writer.write_i64(*value),
        Item::U64(value) => writer.write_u64(*value),
        Item::Long(value) => writer.write_long(*value),
        Item::F32(bits) => writer.write_f32(f32::from_bits(*bits)),
        Item::F64(bits) => writer.write_f64(f64::from_bits(*bits)),
        Item::Count(count) => writer.write_count(*count),
        Item::Attachment(index) => writer.write_attachment_index(*index),
        Item::Str(value) => writer.write_str(value),
        Item::Units(value) => writer.write_string16(value),
        Item::Text16(value) => writer.write_str_as_string16(value),
        Item::Data(value) => writer.write_data(value),
        Item::Bytes(value) => writer.write_bytes(value),
        Item::Claim(value) => {
            let claim = writer.claim_bytes(value.len());
            // Growing must not move a claim.
            writer.reserve(1000);
            let claimed = writer.claimed_mut(claim).expect("it was granted");
            assert!(claimed.iter().all(|&byte| byte == 0));
            claimed.copy_from_slice(value);
        }
    }
}

/// Whether the next value is this one.
fn reads(reader: &mut Reader<'_>, item: &Item) -> Result<bool, ReadError> {
    Ok(match item {
        Item::Bool(value) => reader.read_bool()? == *value,
        Item::I32(value) => reader.read_i32()? == *value,
        Item::U32(value) => reader.read_u32()? == *value,
        Item::U16(value) => reader.read_u16()? == *value,
        Item::I64(value) => reader.read_i64()? == *value,
        Item::U64(value) => reader.read_u64()? == *value,
        Item::Long(value) => reader.read_long()? == *value,
        Item::F32(bits) => reader.read_f32()?.to_bits() == *bits,
        Item::F64(bits) => reader.read_f64()?.to_bits() == *bits,
        Item::Count(count) => reader.read_count(0)? == *count,
        Item::Attachment(index) => reader.read_attachment_index()? == *index,
        Item::Str(value) => reader.read_str()? == value,
        Item::Units(value) => reader.read_string16()?.units().eq(value.iter().copied()),
        Item::Text16(value) => reader.read_string16()?.to_string_strict().as_ref() == Ok(value),
        Item::Data(value) => reader.read_data()? == value,
        Item::Bytes(value) | Item::Claim(value) => reader.read_bytes(value.len())? == value,
    })
}

/// Asks for one value of the kind, whatever it is.
fn ask(reader: &mut Reader<'_>, item: &Item) -> Result<(), ReadError> {
    match item {
        Item::Count(element_bytes) => reader.read_count(element_bytes % 10).map(|_| ()),
        Item::Claim(value) => reader.skip(value.len()),
        Item::Text16(_) => reader.read_string16().map(|view| {
            assert_eq!(view.to_string_lossy(), view.to_string());
            assert!(view.to_string_strict().is_err() || view.to_string_strict() == Ok(view.to_string()));
        }),
        _ => reads(reader, item).map(|_| ()),
    }
}

/// The frames that these items make, one for each list.
fn frame(header_size: HeaderSize, items: &[Item]) -> Vec<u8> {
    let mut writer = Writer::with_header_size(header_size);
    writer.header_mut().fill(0xA5);
    items.iter().for_each(|item| write(&mut writer, item));
    assert!(writer.payload_bytes() <= writer.payload_capacity_bytes());
    writer.finish().expect("nothing was refused")
}

proptest! {
    #![proptest_config(fixed_cases(500))]

    #[test]
    fn what_was_written_is_read(header_size in a_header_size(), items in prop::collection::vec(an_item(), 0..20)) {
        let frame = frame(header_size, &items);
        prop_assert_eq!(frame.len() % 4, 0);
        let mut reader = Reader::with_header_size(header_size, &frame).expect("our own frame");
        prop_assert!(reader.header().iter().all(|&byte| byte == 0xA5));
        prop_assert_eq!(reader.header().len(), header_size.bytes() - 4);
        prop_assert_eq!(reader.payload(), Reader::new(&frame).expect("our own frame").payload());
        for item in &items {
            prop_assert_eq!(reads(&mut reader, item), Ok(true), "{:?}", item);
        }
        prop_assert!(reader.is_at_end());
    }

    #[test]
    fn a_cleared_writer_writes_as_a_new_one(
        items in prop::collection::vec(an_item(), 0..10),
        others in prop::collection::vec(an_item(), 0..10),
    ) {
        let mut writer = Writer::new();
        items.iter().for_each(|item| write(&mut writer, item));
        writer.clear();
        others.iter().for_each(|item| write(&mut writer, item));
        prop_assert_eq!(writer.frame().expect("nothing was refused"), frame(HeaderSize::PLAIN, &others));
    }

    #[test]
    fn arbitrary_bytes_are_answered(
        mut bytes in prop::collection::vec(prop_oneof![2 => any::<u8>(), 3 => 0..9_u8], 0..200),
        is_framed in any::<bool>(),
        items in prop::collection::vec(an_item(), 0..20),
    ) {
        if is_framed && let Some(payload_bytes) = bytes.len().checked_sub(4) {
            let size_word = u32::try_from(payload_bytes).expect("a small payload");
            bytes[..4].copy_from_slice(&size_word.to_le_bytes());
        }
        let made = Reader::new(&bytes);
        prop_assert!(made.is_ok() || !is_framed || bytes.len() < 4);
        let Ok(mut reader) = made else { return Ok(()) };
        for item in &items {
            let left = reader.remaining_bytes();
            match ask(&mut reader, item) {
                Ok(()) => prop_assert!(reader.remaining_bytes() <= left),
                Err(error) => {
                    prop_assert_eq!(reader.remaining_bytes(), 0);
                    prop_assert_eq!(error.offset_bytes() as usize, reader.payload().len() - left);
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }

    #[test]
    fn a_stream_falls_apart_into_its_frames(
        header_size in a_header_size(),
        messages in prop::collection::vec(prop::collection::vec(an_item(), 0..4), 0..5),
        cut_bytes in 1..60_usize,
    ) {
        let frames: Vec<Vec<u8>> = messages.iter().map(|items| frame(header_size, items)).collect();
        let stream = frames.concat();
        let mut rest = &stream[..stream.len().saturating_sub(cut_bytes)];
        let mut found = 0;
        while let Some((frame, behind)) = find_next(header_size, rest) {
            prop_assert_eq!(frame, &frames[found][..]);
            (found, rest) = (found + 1, behind);
        }
        let found_bytes = frames[..found].iter().map(Vec::len).sum::<usize>();
        prop_assert_eq!(found_bytes + rest.len() + cut_bytes.min(stream.len()), stream.len());
        prop_assert!(frames.get(found).is_none_or(|frame| rest.len() < frame.len()));
    }
}
