//! One test for each way in which a frame of the protocol can lie.

use super::*;

use handle_watcher_wire::protocol::RequestError;

/// A frame of these words.
fn frame(words: &[u32]) -> Vec<u8> {
    let mut writer = Writer::new();
    words.iter().for_each(|&word| writer.write_u32(word));
    writer.finish().expect("nothing was refused")
}

/// A frame whose payload is this one's without the last bytes, with a size word that fits.
fn shortened(frame: &[u8], payload_bytes: usize) -> Vec<u8> {
    let size_word = u32::try_from(payload_bytes).expect("a small payload").to_le_bytes();
    [&size_word, &frame[4..4 + payload_bytes]].concat()
}

#[track_caller]
fn malformed(frame: &[u8]) -> Status {
    match Request::read(frame) {
        Err(RequestError::Malformed(status)) => {
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            status
        }
        read => panic!("a frame that ends a session was read as {read:?}"),
    }
}

#[track_caller]
fn refused(frame: &[u8]) -> (Head, Status) {
    match Request::read(frame) {
        Err(RequestError::Refused(head, status)) => (head, status),
        read => panic!("a frame that gets a reply was read as {read:?}"),
    }
}

/// The vectors' bytes under this list, with how many of them their known values take.
fn frames(list: &str) -> Vec<(String, Vec<u8>)> {
    let vectors = vectors(VECTORS);
    cases(&vectors, list)
        .iter()
        .map(|case| (text(case, "name").to_owned(), bytes(text(case, "hex"))))
        .collect()
}

#[test]
fn a_request_cut_short_at_any_byte_is_malformed() {
    for (name, frame) in frames("requests") {
        for payload_bytes in 0..frame.len() - 4 {
            let cut = shortened(&frame, payload_bytes);
            match Request::read(&cut) {
                Err(RequestError::Malformed(status)) => {
                    assert_eq!(status.code(), Code::InvalidArgument, "{name} cut to {payload_bytes}");
                }
                // The padding of the last value may be missing.
                Ok(read) => assert_eq!(Ok(read), Request::read(&frame), "{name} cut to {payload_bytes}"),
                read => panic!("{name} cut to {payload_bytes} was read as {read:?}"),
            }
        }
    }
}

#[test]
fn a_reply_and_an_event_cut_short_at_any_byte_are_errors() {
    for (name, frame) in frames("replies") {
        // Kind, call, descriptors, and two strings that may be empty.
        for payload_bytes in 0..20 {
            assert!(Reply::read(&shortened(&frame, payload_bytes)).is_err(), "{name} cut to {payload_bytes}");
        }
    }
    for (name, frame) in frames("events") {
        for payload_bytes in 0..frame.len() - 8 {
            assert!(
                EventFrame::read(&shortened(&frame, payload_bytes)).is_err(),
                "{name} cut to {payload_bytes}"
            );
        }
    }
}

#[test]
fn a_body_cut_short_at_any_word_is_an_error() {
    let vectors = vectors(VECTORS);
    for case in cases(&vectors, "replies").iter().filter(|case| case["body"].is_string()) {
        let frame = bytes(text(case, "hex"));
        let body_bytes = Reply::read(&frame).expect("a reply").body.remaining_bytes();
        for missing_bytes in (4..=body_bytes).step_by(4) {
            let cut = shortened(&frame, frame.len() - 4 - missing_bytes);
            let mut body = Reply::read(&cut).expect("its head is whole").body;
            let error = match text(case, "body") {
                "welcome" => Welcome::read(&mut body).err(),
                "echo" => body.read_data().err().map(Status::from),
                "stats" => read_stats(&mut body).err(),
                "sessions" => read_sessions(&mut body).err(),
                _ => read_watches(&mut body).err(),
            };
            assert!(error.is_some(), "{} without its last {missing_bytes} bytes", text(case, "name"));
        }
    }
}

#[test]
fn a_size_word_that_is_not_the_frames() {
    let frame = frame(&[10, 1, 0]);
    for size in [0, 4, 11, 13, 16, u32::MAX] {
        let lie = [&size.to_le_bytes(), &frame[4..]].concat();
        malformed(&lie);
        assert_eq!(Reply::read(&lie).map(|_| ()).map_err(|status| status.code()), Err(Code::InvalidArgument));
        assert_eq!(EventFrame::read(&lie).map_err(|status| status.code()), Err(Code::InvalidArgument));
    }
    malformed(&[]);
    malformed(&frame[..3]);
}

#[test]
fn bytes_behind_the_known_values_are_passed_over() {
    for (name, frame) in frames("requests") {
        let mut longer = [&frame[..], &[0xFF; 12]].concat();
        let size_word = u32::try_from(longer.len() - 4).expect("a small payload").to_le_bytes();
        longer[..4].copy_from_slice(&size_word);
        assert_eq!(Request::read(&longer), Request::read(&frame), "{name}");
    }
    for (name, frame) in frames("events") {
        let mut longer = [&frame[..], &[0xFF; 3]].concat();
        let size_word = u32::try_from(longer.len() - 4).expect("a small payload").to_le_bytes();
        longer[..4].copy_from_slice(&size_word);
        assert_eq!(EventFrame::read(&longer), EventFrame::read(&frame), "{name}");
    }
}

#[test]
fn a_kind_that_does_not_exist_gets_a_reply() {
    for kind in [0, 17, 63, 64, 128, 255, 256, u32::MAX] {
        let (head, status) = refused(&frame(&[kind, 7, 3]));
        assert_eq!(head, Head { kind, call: 7, descriptors: 3 });
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains(&kind.to_string()), "{status}");
    }
}

#[test]
fn a_request_where_a_reply_or_an_event_is_expected() {
    let (request, reply, event) = (&frames("requests")[0].1, &frames("replies")[0].1, &frames("events")[0].1);
    for (made, kind) in [
        (Reply::read(request).map(|_| ()), "kind 1 "),
        (Reply::read(event).map(|_| ()), "kind 128 "),
        (EventFrame::read(request).map(|_| ()), "kind 1 "),
        (EventFrame::read(reply).map(|_| ()), "kind 64 "),
    ] {
        let status = made.expect_err("another kind");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(kind), "{status}");
    }
}

/// Where signals and mode stand: in a watch behind three numbers, in a change behind two.
fn wish(kind: u32, signals: u32, mode: u32) -> Vec<u8> {
    let numbers = if kind == 2 { 6 } else { 4 };
    let mut words = vec![kind, 9, 0];
    words.extend(vec![1; numbers]);
    words.extend([signals, mode, 0, 0]);
    frame(&words)
}

#[test]
fn signals_that_do_not_exist_get_a_reply() {
    for kind in [2, 3] {
        assert!(Request::read(&wish(kind, 31, 0)).is_ok());
        for signals in [32, 33, 256, 0x0100_0001, u32::MAX] {
            let (head, status) = refused(&wish(kind, signals, 0));
            assert_eq!((head.call, status.code()), (9, Code::InvalidArgument));
            assert!(status.message().contains(&format!("{signals:#x}")), "{status}");
        }
    }
}

#[test]
fn modes_that_do_not_exist_get_a_reply() {
    for kind in [2, 3] {
        for mode in [2, 3, 256, u32::MAX] {
            let (head, status) = refused(&wish(kind, 1, mode));
            assert_eq!((head.call, status.code()), (9, Code::InvalidArgument));
            assert!(status.message().contains(&mode.to_string()), "{status}");
        }
    }
}

#[test]
fn an_event_of_a_kind_or_with_signals_that_do_not_exist() {
    let good = [128, 1, 0, 0, 0, 0, 1, 3, 1, 0];
    assert!(EventFrame::read(&frame(&good)).is_ok());
    for (word, lie) in [(1, 0), (1, 8), (1, u32::MAX), (6, 32), (7, 32), (7, u32::MAX)] {
        let mut words = good;
        words[word] = lie;
        let status = EventFrame::read(&frame(&words)).expect_err("it does not exist");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}

#[test]
fn a_code_that_does_not_exist_is_unknown() {
    for digits in ["17", "-1", "007", "x", ""] {
        let mut writer = Writer::new();
        [128_u32, 7, 0, 0, 0, 0, 0, 0, 1].iter().for_each(|&word| writer.write_u32(word));
        writer.write_str(digits);
        let event = EventFrame::read(writer.frame().expect("short")).expect("an event");
        assert_eq!(event.status, Code::Unknown, "{digits:?}");

        writer.clear();
        [64_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
        writer.write_str(digits);
        writer.write_str("because%0A");
        let reply = Reply::read(writer.frame().expect("short")).expect("a reply");
        assert_eq!(reply.status, Status::new(Code::Unknown, "because\n"), "{digits:?}");
    }
}

#[test]
fn a_hello_that_is_for_somebody_else() {
    for magic in ["", "handle-watche", "handle-watcher\0", "HANDLE-WATCHER", "GET / HTTP/1.1"] {
        let mut writer = Writer::new();
        [1_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
        writer.write_str(magic);
        [1_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
        let status = malformed(writer.frame().expect("short"));
        assert!(status.message().contains("Handle Watcher"), "{status}");
    }
}

#[test]
fn a_name_that_is_no_text() {
    let mut writer = Writer::new();
    [1_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
    writer.write_str(MAGIC);
    [1_u32, 1].iter().for_each(|&word| writer.write_u32(word));
    writer.write_data(b"ab\xFFc");
    let status = malformed(writer.frame().expect("short"));
    assert!(status.message().contains("UTF-8"), "{status}");
}

#[test]
fn lengths_below_zero_and_beyond_the_frame() {
    for length in [5, 100, i32::MAX, -1, i32::MIN] {
        let mut writer = Writer::new();
        [11_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
        writer.write_i32(length);
        writer.write_bytes(b"four");
        malformed(writer.frame().expect("short"));

        writer.clear();
        [64_u32, 1, 0].iter().for_each(|&word| writer.write_u32(word));
        writer.write_str("0");
        writer.write_i32(length);
        writer.write_bytes(b"four");
        assert!(Reply::read(writer.frame().expect("short")).is_err());
    }
}

#[test]
fn counts_below_zero_and_absurd_counts_are_refused_before_anything_is_made_of_them() {
    for count in [1, 2, 1_000_000, i32::MAX, -1, i32::MIN] {
        let mut writer = Writer::new();
        writer.write_i32(count);
        writer.write_u32(0);
        let frame = writer.finish().expect("short");
        let body = || Reader::with_header_size(HeaderSize::PLAIN, &frame).expect("a whole frame");
        assert!(read_stats(&mut body()).is_err(), "{count} counters in 4 bytes");
        assert!(read_sessions(&mut body()).is_err(), "{count} sessions in 4 bytes");
        assert!(read_watches(&mut body()).is_err(), "{count} watches in 4 bytes");
    }
}

#[test]
fn text_in_a_list_that_is_no_text() {
    let mut writer = Writer::new();
    writer.write_count(1);
    writer.write_data(b"\xFF\xFE");
    writer.write_u64(1);
    let frame = writer.finish().expect("short");
    let mut body = Reader::with_header_size(HeaderSize::PLAIN, &frame).expect("a whole frame");
    assert_eq!(read_stats(&mut body).map_err(|status| status.code()), Err(Code::InvalidArgument));
}

#[test]
fn a_list_of_watches_with_signals_or_a_mode_that_do_not_exist() {
    for (signals, mode) in [(32, 0), (1, 2), (u32::MAX, u32::MAX)] {
        let mut writer = Writer::new();
        writer.write_count(1);
        writer.write_u64(1);
        writer.write_str("pipe");
        writer.write_u32(signals);
        writer.write_u32(mode);
        writer.write_u64(1);
        let frame = writer.finish().expect("short");
        let mut body = Reader::with_header_size(HeaderSize::PLAIN, &frame).expect("a whole frame");
        assert_eq!(read_watches(&mut body).map_err(|status| status.code()), Err(Code::InvalidArgument));
    }
}
