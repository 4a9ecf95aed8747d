//! C13: waiting for a list of descriptors in one call. C9f: for as long as was asked for.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use util::*;

/// A wait that looks and does not wait.
fn look(entries: &mut [WaitEntry<'_>]) -> Option<usize> {
    wait_many(entries, Some(Deadline::after(Duration::ZERO))).unwrap()
}

fn states(entries: &[WaitEntry<'_>]) -> Vec<(Signals, Code)> {
    entries.iter().map(|entry| (entry.satisfied(), entry.status())).collect()
}

/// C13b: the index is the lowest satisfied one, and the state of every entry is given.
#[test]
fn the_lowest_satisfied_index_and_every_state() {
    let events: Vec<OwnedFd> = [0, 0, 1, 0, 1].into_iter().map(event_fd).collect();
    let mut entries: Vec<_> = events.iter().map(|event| WaitEntry::new(event.as_fd(), READABLE)).collect();
    assert_eq!(wait_many(&mut entries, None).unwrap(), Some(2));
    let expected = [NONE, NONE, READABLE, NONE, READABLE].map(|satisfied| (satisfied, Code::Ok));
    assert_eq!(states(&entries), expected);
    set_event(&events[0]);
    clear_event(&events[2]);
    assert_eq!(wait_many(&mut entries, None).unwrap(), Some(0), "the same list again, with new states");
    let expected = [READABLE, NONE, NONE, NONE, READABLE].map(|satisfied| (satisfied, Code::Ok));
    assert_eq!(states(&entries), expected);
    // Any of the signals of an entry is enough, and only what was asked for is given.
    let (one, other) = socket_pair();
    write_all(&other, b"x");
    for (asked, given) in [
        (READABLE, READABLE),
        (WRITABLE, WRITABLE),
        (READABLE | WRITABLE, READABLE | WRITABLE),
        (PRIORITY | WRITABLE, WRITABLE),
        (PRIORITY | PEER_CLOSED | ERROR, NONE),
        (NONE, NONE),
    ] {
        let mut entries = [WaitEntry::new(one.as_fd(), asked)];
        let index = look(&mut entries);
        assert_eq!((index, entries[0].satisfied()), ((!given.is_empty()).then_some(0), given), "{asked}");
    }
}

/// C13a, C2: half-close, hang-up and error mean the same as in an event.
#[test]
fn ends_are_told_as_in_events() {
    let (half, half_other) = socket_pair();
    rustix::net::shutdown(&half_other, rustix::net::Shutdown::Write).unwrap();
    let (hung_up, gone) = socket_pair();
    drop(gone);
    let (reader, writer) = pipe();
    write_all(&writer, b"rest");
    drop(writer);
    let (failed, gone) = {
        let (reader, writer) = pipe();
        (writer, reader)
    };
    fill(&failed);
    drop(gone);
    for (descriptor, asked, given) in [
        (&half, READABLE, READABLE | PEER_CLOSED),
        (&half, PEER_CLOSED, PEER_CLOSED),
        (&half, PRIORITY, NONE),
        (&hung_up, PRIORITY, PEER_CLOSED),
        (&hung_up, NONE, PEER_CLOSED),
        (&reader, READABLE, READABLE | PEER_CLOSED),
        (&failed, WRITABLE, ERROR),
        (&failed, ERROR, ERROR),
    ] {
        // A process that another test starts at this moment may hold the closed ends for a moment longer.
        let mut entries = [WaitEntry::new(descriptor.as_fd(), asked)];
        let expected = ((!given.is_empty()).then_some(0), given);
        until(&format!("{asked} gives {given}"), || (look(&mut entries), entries[0].satisfied()) == expected);
    }
    assert_eq!(read_all(&reader), 4);
    let mut entries = [WaitEntry::new(reader.as_fd(), READABLE)];
    until("the end alone", || (look(&mut entries), entries[0].satisfied()) == (Some(0), PEER_CLOSED));
}

/// C13c: bad entries say so themselves; the wait goes on for the others.
#[test]
fn bad_entries_fail_nothing() {
    let ready = event_fd(1);
    let idle = event_fd(0);
    let closed = PrivateNumber::new().number();
    let directory = std::fs::File::open("/").unwrap();
    let regular = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let entries = || {
        vec![
            WaitEntry::of_number(closed, READABLE),
            WaitEntry::of_number(-1, READABLE),
            WaitEntry::of_number(i32::MIN, WRITABLE),
            WaitEntry::of_number(i32::MAX, READABLE),
            WaitEntry::new(directory.as_fd(), READABLE),
            WaitEntry::new(regular.as_fd(), READABLE | WRITABLE),
            WaitEntry::new(idle.as_fd(), READABLE),
            WaitEntry::new(ready.as_fd(), READABLE),
        ]
    };
    let bad = [Code::InvalidArgument; 4].into_iter().chain([Code::FailedPrecondition; 2]);
    let bad: Vec<_> = bad.map(|code| (NONE, code)).collect();
    let mut all = entries();
    assert_eq!(wait_many(&mut all, None).unwrap(), Some(7));
    assert_eq!(states(&all)[..6], bad);
    assert_eq!(states(&all)[6..], [(NONE, Code::Ok), (READABLE, Code::Ok)]);

    // With an entry left that can still come, it waits for that.
    let mut some = entries();
    some.truncate(7);
    let twin = duplicate(&idle);
    let setting = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        set_event(&twin);
    });
    assert_eq!(wait_many(&mut some, None).unwrap(), Some(6));
    assert_eq!(states(&some)[..6], bad);
    setting.join().unwrap();

    // With none left it returns at once, whatever the deadline.
    let mut none = entries();
    none.truncate(6);
    assert_eq!(wait_many(&mut none, None).unwrap(), None);
    assert_eq!(states(&none), bad);
    assert_eq!(wait_many(&mut [], None).unwrap(), None);
}

/// C13c: a regular file is a bad entry whatever it is asked for.
#[test]
fn a_file_is_a_bad_entry_whatever_it_is_asked_for() {
    let directory = std::fs::File::open("/").unwrap();
    for asked in [READABLE, WRITABLE, PRIORITY, PEER_CLOSED, ERROR, NONE] {
        let mut entries = [WaitEntry::new(directory.as_fd(), asked)];
        let deadline = Deadline::after(Duration::from_millis(50));
        assert_eq!(wait_many(&mut entries, Some(deadline)).unwrap(), None);
        assert_eq!(entries[0].status(), Code::FailedPrecondition, "{asked}");
        assert!(
            !deadline.remaining().is_zero(),
            "{asked}: with no entry left that can come it returns at once"
        );
    }
}

/// C2a: a bit that is none of the five makes a bad entry.
#[test]
fn an_unknown_bit_is_refused() {
    let ready = event_fd(1);
    for bit in [32, 64, 128] {
        let mut entries = [WaitEntry::new(ready.as_fd(), Signals::from_bits_retain(bit | 1))];
        assert_eq!((look(&mut entries), entries[0].status()), (None, Code::InvalidArgument), "bit {bit}");
    }
}

/// A descriptor that is closed during the wait of its only entry ends no wait early and crashes nothing.
#[test]
fn a_descriptor_that_is_closed_meanwhile() {
    let number = PrivateNumber::new();
    let lent = number.take(event_fd(0));
    let other = event_fd(0);
    let twin = duplicate(&other);
    let closing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(10));
        drop(lent);
        thread::sleep(Duration::from_millis(10));
        set_event(&twin);
    });
    let mut entries =
        [WaitEntry::of_number(number.number(), READABLE), WaitEntry::new(other.as_fd(), READABLE)];
    assert_eq!(wait_many(&mut entries, Some(Deadline::after(PROMPT))).unwrap(), Some(1));
    closing.join().unwrap();
    assert_eq!(look(&mut entries), Some(1));
    assert_eq!(entries[0].status(), Code::InvalidArgument);
}

/// The same descriptor may stand in a list several times, with signals of its own each time.
#[test]
fn duplicates_are_entries_of_their_own() {
    let (one, other) = socket_pair();
    write_all(&other, b"x");
    let mut entries = [
        WaitEntry::new(one.as_fd(), PRIORITY),
        WaitEntry::new(one.as_fd(), READABLE),
        WaitEntry::new(one.as_fd(), WRITABLE),
        WaitEntry::new(one.as_fd(), READABLE | WRITABLE),
    ];
    assert_eq!(wait_many(&mut entries, None).unwrap(), Some(1));
    let satisfied: Vec<_> = entries.iter().map(WaitEntry::satisfied).collect();
    assert_eq!(satisfied, [NONE, READABLE, WRITABLE, READABLE | WRITABLE]);
}

/// C13d: without a satisfied entry it waits until the deadline, not less, and that is no error. State is looked at
/// before time.
#[test]
fn the_deadline_is_no_error() {
    let idle = event_fd(0);
    let ready = event_fd(1);
    for power in [0, 10, 20, 24] {
        let mut entries = [WaitEntry::new(idle.as_fd(), READABLE)];
        let deadline = Deadline::after(Duration::from_nanos(1 << power));
        assert_eq!(wait_many(&mut entries, Some(deadline)).unwrap(), None);
        assert_eq!(deadline.remaining(), Duration::ZERO, "early");
        assert_eq!(entries[0].status(), Code::Ok);
    }
    let mut entries = [WaitEntry::new(ready.as_fd(), READABLE)];
    assert_eq!(wait_many(&mut entries, Some(Deadline::at_ns(0))).unwrap(), Some(0));
    assert_eq!(wait_many(&mut entries, Some(Deadline::FARTHEST)).unwrap(), Some(0));
}

/// C9f: large deadlines are long waits.
#[test]
fn a_far_deadline_is_a_long_wait() {
    for power in 32..=64 {
        let idle = event_fd(0);
        let twin = duplicate(&idle);
        let setting = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            set_event(&twin);
        });
        let deadline = 1_u64.checked_shl(power).map_or(Deadline::after(Duration::MAX), Deadline::at_ns);
        let deadline = deadline.max(Deadline::after(Duration::from_secs(100)));
        let mut entries = [WaitEntry::new(idle.as_fd(), READABLE)];
        assert_eq!(wait_many(&mut entries, Some(deadline)).unwrap(), Some(0));
        setting.join().unwrap();
    }
}

/// C9f: a storm of signals neither ends nor prolongs a wait.
#[test]
fn signals_do_not_interrupt() {
    let idle = event_fd(0);
    let storm = Storm::over_this_thread();
    let started = Instant::now();
    let mut entries = [WaitEntry::new(idle.as_fd(), READABLE)];
    let deadline = Deadline::after(Duration::from_millis(150));
    assert_eq!(wait_many(&mut entries, Some(deadline)).unwrap(), None);
    assert!(started.elapsed() >= Duration::from_millis(149));
    assert!(storm.end() >= 20, "the storm was a breeze");
}

/// C13a: several threads may wait for the same descriptor; all are told.
#[test]
fn several_threads_may_wait_for_the_same() {
    let idle = event_fd(0);
    thread::scope(|scope| {
        let wait = || {
            let mut entries = [WaitEntry::new(idle.as_fd(), READABLE)];
            wait_many(&mut entries, Some(Deadline::after(PROMPT))).unwrap()
        };
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
        thread::sleep(Duration::from_millis(20));
        set_event(&idle);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Some(0));
        }
    });
}

/// C13: more entries than the system takes are an error that names the limit, and no crash.
#[test]
fn more_entries_than_the_system_takes() {
    alone!(more_entries_than_the_system_takes, {
        let limit = set_descriptor_limit(64);
        let ready = event_fd(1);
        let mut entries = vec![WaitEntry::new(ready.as_fd(), READABLE); 65];
        let refused = wait_many(&mut entries, None);
        let status = refused.expect_err("65 entries where 64 descriptors are allowed");
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("65") && status.message().contains("RLIMIT_NOFILE"), "{status}");
        set_descriptor_limit(limit);
        assert_eq!(wait_many(&mut entries, None).unwrap(), Some(0));
    });
}
