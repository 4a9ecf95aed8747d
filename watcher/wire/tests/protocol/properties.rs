//! What holds for every frame of the protocol: what was written is read, and whatever arrives is answered, with no more
//! memory than it is long.

use super::*;

use proptest::prelude::*;

use crate::util::fixed_cases;

/// What a request owns while it is made up.
#[derive(Clone, Debug)]
struct Words {
    kind: u32,
    numbers: [u64; 4],
    small: [u32; 2],
    signals: Signals,
    mode: Mode,
    name: String,
    data: Vec<u8>,
}

fn some_words() -> impl Strategy<Value = Words> {
    (
        1..=16_u32,
        any::<[u64; 4]>(),
        any::<[u32; 2]>(),
        some_signals(),
        some_mode(),
        any::<String>(),
        prop::collection::vec(any::<u8>(), 0..100),
    )
        .prop_map(|(kind, numbers, small, signals, mode, name, data)| Words {
            kind,
            numbers,
            small,
            signals,
            mode,
            name,
            data,
        })
}

fn some_signals() -> impl Strategy<Value = Signals> {
    (0..32_u8).prop_map(|bits| Signals::from_bits(bits).expect("five signals"))
}

fn some_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Once), Just(Mode::Edge)]
}

fn some_code() -> impl Strategy<Value = Code> {
    (0..=16_u8).prop_map(|number| Code::from_number(number).expect("17 codes"))
}

fn some_kind() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        Just(EventKind::Ready),
        Just(EventKind::Unsatisfiable),
        Just(EventKind::Deadline),
        Just(EventKind::Timer),
        Just(EventKind::Wake),
        Just(EventKind::Reply),
        Just(EventKind::Ended),
    ]
}

fn request_of(words: &Words) -> Request<'_> {
    let [id, handle, token, deadline_ns] = words.numbers;
    let [low, high] = words.small;
    let (signals, mode) = (words.signals, words.mode);
    match words.kind {
        1 => Request::Hello(Hello { version_lowest: low, version_highest: high, name: &words.name }),
        2 => Request::Watch(Watch { id, handle, token, signals, mode, deadline_ns }),
        3 => Request::Change(Change { id, token, signals, mode }),
        4 => Request::Arm(Arm { id, token, deadline_ns }),
        5 => Request::Pause { id },
        6 => Request::Unwatch { id },
        7 => Request::Close { handle },
        8 => Request::SetTimer(SetTimer { id, token, deadline_ns, period_ns: handle }),
        9 => Request::CancelTimer { id },
        10 => Request::Ping,
        11 => Request::Echo(&words.data),
        12 => Request::Stats,
        13 => Request::Sessions,
        14 => Request::Watches { session: id, most: low },
        15 => Request::Kill { session: id },
        _ => Request::Bye,
    }
}

fn some_sessions() -> impl Strategy<Value = Vec<SessionEntry>> {
    let entry = (any::<[u64; 7]>(), any::<[u32; 2]>(), any::<String>()).prop_map(|(numbers, small, name)| {
        let [session, age_ns, watches, timers, undelivered, events, requests] = numbers;
        let [process, user] = small;
        SessionEntry { session, name, process, user, age_ns, watches, timers, undelivered, events, requests }
    });
    prop::collection::vec(entry, 0..8)
}

fn some_watches() -> impl Strategy<Value = Vec<WatchEntry>> {
    let entry = (any::<[u64; 2]>(), any::<String>(), some_signals(), some_mode())
        .prop_map(|([id, events], kind, signals, mode)| WatchEntry { id, kind, signals, mode, events });
    prop::collection::vec(entry, 0..8)
}

/// What a writer has written, to be read.
fn body(writer: &mut Writer) -> Reader<'_> {
    Reader::with_header_size(HeaderSize::PLAIN, writer.frame().expect("nothing was refused"))
        .expect("our own frame")
}

/// A list has no more room than twice what its bytes can hold; the first four are the least room a list is given.
fn is_bounded<T>(list: &Vec<T>, frame_bytes: usize, entry_bytes_least: usize) -> bool {
    list.len() * entry_bytes_least <= frame_bytes
        && list.capacity() <= (2 * frame_bytes / entry_bytes_least).max(4)
}

proptest! {
    #![proptest_config(fixed_cases(500))]

    #[test]
    fn a_written_request_is_read(words in some_words(), call in any::<u32>(), descriptors in any::<u32>()) {
        let request = request_of(&words);
        let mut writer = Writer::new();
        request.write(call, descriptors, &mut writer);
        let head = Head { kind: words.kind, call, descriptors };
        prop_assert_eq!(Request::read(writer.frame().expect("short")), Ok((head, request)));
    }

    #[test]
    fn a_written_reply_is_read(
        call in any::<u32>(),
        descriptors in any::<u32>(),
        code in some_code(),
        message in any::<String>(),
        behind in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let status = Status::new(code, message);
        let mut writer = Writer::new();
        Reply::write(call, descriptors, &status, &mut writer);
        writer.write_data(&behind);
        let mut reply = Reply::read(writer.frame().expect("short")).expect("our own reply");
        prop_assert_eq!((reply.call, reply.descriptors, reply.status), (call, descriptors, status));
        prop_assert_eq!(reply.body.read_data(), Ok(&behind[..]));
    }

    #[test]
    fn a_written_event_is_read(
        kind in some_kind(),
        numbers in any::<[u64; 2]>(),
        satisfied in some_signals(),
        satisfiable in some_signals(),
        count in any::<u32>(),
        status in some_code(),
    ) {
        let [id, token] = numbers;
        let event = EventFrame { kind, id, token, satisfied, satisfiable, count, status };
        let mut writer = Writer::new();
        event.write(&mut writer);
        prop_assert_eq!(EventFrame::read(writer.frame().expect("short")), Ok(event));
    }

    #[test]
    fn written_lists_are_read(
        stats in prop::collection::vec((any::<String>(), any::<u64>()), 0..8),
        sessions in some_sessions(),
        watches in some_watches(),
    ) {
        let stats: Vec<(&str, u64)> = stats.iter().map(|(name, value)| (&**name, *value)).collect();
        let mut writer = Writer::new();
        write_stats(&stats, &mut writer);
        write_sessions(&sessions, &mut writer);
        write_watches(&watches, &mut writer);
        let mut body = body(&mut writer);
        prop_assert_eq!(read_stats(&mut body), Ok(stats));
        prop_assert_eq!(read_sessions(&mut body), Ok(sessions));
        prop_assert_eq!(read_watches(&mut body), Ok(watches));
        prop_assert!(body.is_at_end());
    }

    #[test]
    fn arbitrary_frames_are_answered_with_no_more_memory_than_they_are_long(
        kind in prop_oneof![0..20_u32, Just(64), Just(128), any::<u32>()],
        payload in prop::collection::vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..300),
    ) {
        let mut writer = Writer::new();
        writer.write_u32(kind);
        writer.write_bytes(&payload);
        let frame = writer.finish().expect("short");
        let read = Request::read(&frame);
        if let Ok((head, request)) = read {
            let mut again = Writer::new();
            request.write(head.call, head.descriptors, &mut again);
            prop_assert!(again.payload_bytes() <= frame.len());
        }
        if let Ok(event) = EventFrame::read(&frame) {
            prop_assert_eq!(kind, 128, "{:?}", event);
        }
        if let Ok(reply) = Reply::read(&frame) {
            prop_assert!(reply.status.message().len() <= 3 * frame.len() + 32);
        }
        let body = Reader::with_header_size(HeaderSize::PLAIN, &frame).expect("our own frame");
        if let Ok(stats) = read_stats(&mut body.clone()) {
            prop_assert!(is_bounded(&stats, frame.len(), 12));
        }
        if let Ok(sessions) = read_sessions(&mut body.clone()) {
            prop_assert!(is_bounded(&sessions, frame.len(), 68));
        }
        if let Ok(watches) = read_watches(&mut body.clone()) {
            prop_assert!(is_bounded(&watches, frame.len(), 28));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let is_request = Request::read(&bytes).is_ok();
        let is_whole = find_next(HeaderSize::PLAIN, &bytes).is_some_and(|(_, behind)| behind.is_empty());
        prop_assert!(is_whole || !is_request);
        prop_assert!(is_whole || (Reply::read(&bytes).is_err() && EventFrame::read(&bytes).is_err()));
    }
}
