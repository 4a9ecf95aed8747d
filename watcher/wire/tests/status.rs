//! The two trailers of a status (C15a, C15e): what other implementations send and read, and properties.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use handle_watcher_wire::status::{Code, HttpStatus, Status, decode_message, encode_message};
use proptest::prelude::*;
use util::{bytes, cases, fixed_cases, number, text, vectors};

const VECTORS: &str = include_str!("vectors/status.json");

#[test]
fn messages_are_encoded_as_expected_and_come_back() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "message_encode") {
        let message = text(case, "text");
        let encoded = encode_message(message);
        assert_eq!(encoded, text(case, "expect"), "{case}");
        assert_eq!(decode_message(encoded.as_bytes()), message, "{case}");
        let others = case["others"].as_object().into_iter().flatten();
        for (who, theirs) in others.filter_map(|(who, theirs)| Some((who, theirs.as_str()?))) {
            assert_eq!(decode_message(theirs.as_bytes()), message, "as {who} encodes it: {case}");
        }
    }
}

#[test]
fn messages_are_decoded_as_expected() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "message_decode") {
        let encoded = bytes(text(case, "hex"));
        assert_eq!(decode_message(&encoded), text(case, "expect"), "{case}");
        let status = Status::from_trailers(b"9", &encoded);
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, text(case, "expect")));
    }
}

#[test]
fn codes_are_decoded_as_expected() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "code_decode") {
        let digits = bytes(text(case, "hex"));
        let expected = &case["expect"];
        let status = Status::from_trailers(&digits, b"");
        assert_eq!(usize::from(status.code().number()), number(&expected["code"]), "{case}");
        assert_eq!(status.code().name(), text(expected, "name"), "{case}");
        assert_eq!(status.message(), expected["description"].as_str().unwrap_or_default(), "{case}");
        let known = expected["description"].is_null().then(|| status.code());
        assert_eq!(Code::from_ascii(&digits), known, "{case}");
    }
}

#[test]
fn codes_are_encoded_as_expected() {
    let vectors = vectors(VECTORS);
    let cases = cases(&vectors, "code_encode");
    assert_eq!(cases.len(), Code::ALL.len());
    for (case, code) in cases.iter().zip(Code::ALL) {
        assert_eq!(usize::from(code.number()), number(&case["code"]));
        assert_eq!(code.to_ascii(), text(case, "ascii"), "{case}");
    }
}

#[test]
fn an_http_status_is_read_strictly() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "http_status_parse") {
        let parsed = HttpStatus::parse(text(case, "bytes").as_bytes()).ok();
        let expected = case["expect"].as_u64();
        assert!(expected.is_some() || case["expect"] == "refuse", "{case}");
        assert_eq!(parsed.map(|status| u64::from(status.number())), expected, "{case}");
    }
}

#[test]
fn an_http_status_stands_for_the_expected_code() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "http_to_grpc") {
        let status =
            u16::try_from(number(&case["http"])).ok().and_then(HttpStatus::new).expect("three digits");
        assert_eq!(status.to_code().name(), text(case, "expect"), "{case}");
    }
}

/// The rule for encoding, one byte at a time.
fn encoded_slowly(message: &str) -> String {
    let escape = |byte: u8| match byte {
        b'%' | ..=0x1F | 0x7E.. => format!("%{byte:02X}"),
        _ => char::from(byte).to_string(),
    };
    message.bytes().map(escape).collect()
}

/// The rule for decoding, one byte at a time.
fn decoded_slowly(mut encoded: &[u8]) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::new();
    loop {
        (encoded, _) = match *encoded {
            [] => return String::from_utf8_lossy(&decoded).into_owned(),
            [b'%', high, low, ref rest @ ..] if digit(high).is_some() && digit(low).is_some() => {
                (rest, decoded.push(digit(high).unwrap() << 4 | digit(low).unwrap()))
            }
            [byte, ref rest @ ..] => (rest, decoded.push(byte)),
        };
    }
}

/// Bytes of which many are parts of escapes.
fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'%'),
        3 => prop::sample::select(b"0123456789abcdefABCDEF+- gG".to_vec()),
        2 => 0x20..0x7F_u8,
        1 => any::<u8>(),
    ];
    prop::collection::vec(byte, 0..100)
}

proptest! {
    #![proptest_config(fixed_cases(1000))]

    #[test]
    fn every_message_comes_back(message in any::<String>(), code in prop::sample::select(Code::ALL.to_vec())) {
        let encoded = encode_message(&message);
        prop_assert_eq!(&encoded, &encoded_slowly(&message));
        prop_assert!(encoded.bytes().all(|byte| (0x20..0x7E).contains(&byte)));
        let status = Status::from_trailers(code.to_ascii().as_bytes(), encoded.as_bytes());
        prop_assert_eq!(status, Status::new(code, message));
    }

    #[test]
    fn every_message_of_ascii_comes_back(message in "[ -~\n%]{0,80}") {
        let encoded = encode_message(&message);
        prop_assert_eq!(&encoded, &encoded_slowly(&message));
        prop_assert_eq!(decode_message(encoded.as_bytes()), &*message);
    }

    #[test]
    fn arbitrary_bytes_are_a_message(encoded in some_bytes()) {
        prop_assert_eq!(decode_message(&encoded), decoded_slowly(&encoded));
    }

    #[test]
    fn arbitrary_bytes_are_a_status_on_one_line(code in some_bytes(), message in some_bytes()) {
        let status = Status::from_trailers(&code, &message);
        prop_assert!(!status.to_string().contains(char::is_control));
        prop_assert!(!status.message().is_empty() || message.is_empty());
    }

    #[test]
    fn arbitrary_bytes_are_an_http_status_or_refused(value in some_bytes()) {
        match HttpStatus::parse(&value) {
            Ok(status) => prop_assert_eq!(status.to_string().into_bytes(), value),
            Err(refused) => prop_assert!(!refused.to_string().contains(char::is_control)),
        }
    }
}
