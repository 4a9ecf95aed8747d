//! Frames (C12a, C16c): the bytes of other implementations, one test for each way in which a frame can lie, and
//! properties.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

#[path = "pickle/lies.rs"]
mod lies;
#[path = "pickle/properties.rs"]
mod properties;
mod util;

use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next, peek_next};
use serde_json::Value;
use util::{bytes, cases, number, text, vectors};

const VECTORS: &str = include_str!("vectors/pickle.json");

/// A 64-bit number, written as decimal text.
fn wide<T: std::str::FromStr>(value: &Value) -> T {
    value.as_str().and_then(|text| text.parse().ok()).expect("a number as text")
}

/// The bits of a floating point number, written in hexadecimal.
fn bits(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x")).expect("bits as text");
    u64::from_str_radix(digits, 16).expect("hexadecimal digits")
}

fn units(value: &Value) -> Vec<u16> {
    let unit = |value: &Value| u16::try_from(number(value)).expect("a unit of 16 bits");
    value.as_array().expect("a list of units").iter().map(unit).collect()
}

fn small<T: TryFrom<i64>>(value: &Value) -> T {
    value.as_i64().and_then(|number| number.try_into().ok()).expect("a number in range")
}

/// Writes one value of a vector.
fn write(writer: &mut Writer, kind: &str, value: &Value) {
    match kind {
        "bool" => writer.write_bool(value.as_bool().unwrap()),
        "int" => writer.write_i32(small(value)),
        "uint16" => writer.write_u16(small(value)),
        "uint32" => writer.write_u32(small(value)),
        "int64" => writer.write_i64(wide(value)),
        "uint64" => writer.write_u64(wide(value)),
        "long" => writer.write_long(wide(value)),
        "float" => writer.write_f32(f32::from_bits(u32::try_from(bits(value)).unwrap())),
        "double" => writer.write_f64(f64::from_bits(bits(value))),
        "string" => writer.write_str(value.as_str().unwrap()),
        "string16" => writer.write_string16(&units(value)),
        "data" => writer.write_data(&bytes(value.as_str().unwrap())),
        _ => panic!("no such kind: {kind}"),
    }
}

/// Whether the next value is of this kind and is this one. None where it cannot be read.
fn reads(reader: &mut Reader<'_>, kind: &str, value: &Value) -> Option<bool> {
    Some(match kind {
        "bool" => Some(reader.read_bool().ok()?) == value.as_bool(),
        "int" => Some(i64::from(reader.read_i32().ok()?)) == value.as_i64(),
        "uint16" => Some(u64::from(reader.read_u16().ok()?)) == value.as_u64(),
        "uint32" => Some(u64::from(reader.read_u32().ok()?)) == value.as_u64(),
        "int64" => Some(reader.read_i64().ok()?.to_string().as_str()) == value.as_str(),
        "uint64" => Some(reader.read_u64().ok()?.to_string().as_str()) == value.as_str(),
        "long" => Some(reader.read_long().ok()?.to_string().as_str()) == value.as_str(),
        "float" => u64::from(reader.read_f32().ok()?.to_bits()) == bits(value),
        "double" => reader.read_f64().ok()?.to_bits() == bits(value),
        "string" => {
            let read = reader.read_str().ok()?;
            value.as_str() == Some(read)
                || value["hex"].as_str().map(bytes).as_deref() == Some(read.as_bytes())
        }
        "string16" => {
            let read = reader.read_string16().ok()?;
            value.is_array() && read.units().eq(units(value))
        }
        "data" => {
            let read = reader.read_data().ok()?;
            value.as_str().map(bytes).as_deref() == Some(read)
        }
        _ => panic!("no such kind: {kind}"),
    })
}

#[test]
fn every_frame_is_written_byte_for_byte_as_others_write_it_and_read_back() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "valid") {
        let name = text(case, "name");
        let header_size = HeaderSize::new(number(&case["header_size"])).expect("a header");
        let values: Vec<(&str, &Value)> =
            cases(case, "ops").iter().map(|value| (value[0].as_str().unwrap(), &value[1])).collect();

        let mut writer = Writer::with_header_size(header_size);
        values.iter().for_each(|(kind, value)| write(&mut writer, kind, value));
        let frame = writer.finish().expect("nothing was refused");
        assert_eq!(frame, bytes(text(case, "hex")), "{name}");

        for mut reader in
            [Reader::new(&frame), Reader::with_header_size(header_size, &frame)].map(Result::unwrap)
        {
            for (kind, value) in &values {
                assert_eq!(reads(&mut reader, kind, value), Some(true), "{name}: {kind} {value}");
            }
            assert!(reader.is_at_end(), "{name}");
        }
    }
}

/// One question of a vector to a reader, and whether the answer is the expected one. A buffer that was refused has no
/// reader; then every read fails.
fn answers(reader: Option<&mut Reader<'_>>, question: &Value, expected: &Value) -> bool {
    let must_fail = expected == "fail";
    match question.as_str() {
        Some("at_end") => Some(reader.is_none_or(|reader| reader.is_at_end())) == expected.as_bool(),
        Some("remaining") => reader.map_or(0, |reader| reader.remaining_bytes()) == number(expected),
        None => {
            assert_eq!(
                (&question[0], must_fail),
                (&Value::from("bytes"), true),
                "the vectors ask for no others"
            );
            reader.is_none_or(|reader| reader.read_bytes(number(&question[1])).is_err())
        }
        Some(kind) => match reader.and_then(|reader| reads(reader, kind, expected)) {
            Some(is_expected) => is_expected,
            None => must_fail,
        },
    }
}

#[test]
fn malformed_and_odd_frames_are_answered_as_others_answer_them() {
    let vectors = vectors(VECTORS);
    let odd = cases(&vectors, "odd_but_accepted");
    for case in cases(&vectors, "malformed").iter().chain(odd) {
        let frame = bytes(text(case, "hex"));
        let expected = &case["expect"];
        let mut reader = Reader::new(&frame).ok();
        let payload_bytes = reader.as_ref().map_or(0, |reader| reader.payload().len());
        assert_eq!(payload_bytes, number(&expected["payload_size"]), "{case}");
        for read in cases(expected, "reads") {
            assert!(answers(reader.as_mut(), &read[0], &read[1]), "{read} of {case}");
        }
    }
}

#[test]
fn frames_are_cut_out_of_a_stream_where_others_cut_them() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "framing") {
        let stream = bytes(text(case, "hex"));
        let header_size = HeaderSize::new(number(&case["header_size"])).expect("a header");
        assert_eq!(peek_next(header_size, &stream), case["peek"].as_u64(), "{case}");
        let found = find_next(header_size, &stream).map(|(frame, _)| frame.len() as u64);
        assert_eq!(found, case["find_next"].as_u64(), "{case}");
    }
}

#[test]
fn the_buffer_grows_in_the_steps_of_others() {
    let vectors = vectors(VECTORS);
    let mut writer = Writer::new();
    for step in cases(&vectors["growth"], "steps") {
        let what = step[0].as_str().unwrap();
        if let Some(length) = what.strip_prefix("data ") {
            writer.write_data(&vec![0; length.parse().unwrap()]);
        }
        let seen = (writer.payload_bytes(), writer.payload_capacity_bytes());
        assert_eq!(seen, (number(&step[1]), number(&step[2])), "after {what}");
    }

    let mut writer = Writer::new();
    let mut seen = vec![writer.payload_capacity_bytes()];
    let expected = cases(&vectors["growth"], "capacities_when_appending_uint32");
    while seen.len() < expected.len() {
        writer.write_u32(1);
        if seen.last() != Some(&writer.payload_capacity_bytes()) {
            seen.push(writer.payload_capacity_bytes());
        }
    }
    assert_eq!(seen, expected.iter().map(number).collect::<Vec<_>>());
}

/// An archive begins with a frame that holds the size of the second frame, which holds a text.
#[test]
fn the_headers_of_real_archives_are_read_and_written() {
    let vectors = vectors(VECTORS);
    let mut whole = 0;
    for file in cases(&vectors["real_files"], "files") {
        let first = bytes(text(file, "first_pickle_hex"));
        let second_bytes = number(&file["second_pickle_bytes"]);
        assert_eq!(find_next(HeaderSize::PLAIN, &first), Some((&first[..], &[][..])));
        let said = Reader::new(&first).and_then(|mut reader| Ok(reader.read_u32()?));
        assert_eq!(said.map(|said| said as usize), Ok(second_bytes), "{file}");
        let payload_bytes = number(&file["second_pickle_payload"]);
        let string_bytes = number(&file["second_pickle_string_bytes"]);
        assert_eq!(second_bytes, 4 + payload_bytes);
        assert_eq!(payload_bytes, (4 + string_bytes).next_multiple_of(4));

        let Some(second) = file["second_pickle_hex"].as_str().map(bytes) else { continue };
        whole += 1;
        assert_eq!(peek_next(HeaderSize::PLAIN, &second), Some(second_bytes as u64));
        let mut reader = Reader::with_header_size(HeaderSize::PLAIN, &second).expect("a whole frame");
        let directory = reader.read_str().expect("a text");
        assert!(reader.is_at_end());
        assert_eq!(directory.len(), string_bytes);
        assert!(
            serde_json::from_str::<Value>(directory).expect("JSON")["files"]["emptyfile.txt"].is_object()
        );

        let mut writer = Writer::new();
        writer.write_str(directory);
        assert_eq!(writer.finish(), Ok(second.clone()));
    }
    assert_eq!(whole, 1, "one header is in the vectors whole");
}
