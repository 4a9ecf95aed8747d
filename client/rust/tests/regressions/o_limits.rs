//! C6c, C14e, C15c, C15d: group O, descriptors that ran out. Each test has a process of its own.
//!
//! - O1 and O2 are about a listener of a server: there is no service yet.
//! - O4 is about descriptors received over a socket: there is no service yet.
//! - O6 needs a limit of the whole machine. O7 is about select(2), which nobody here calls.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::*;
use crate::util::*;

/// From now on descriptor numbers from `limit` on cannot be had. The hard limit stays.
fn limit_numbers(limit: usize) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit as u64), maximum }).unwrap();
}

/// The numbers that are open, found without opening any.
fn open_numbers() -> Vec<i32> {
    (0..64).filter(|&number| is_open(number)).collect()
}

/// Closes what this process was started with beside the three standard streams, so that numbers can be counted on.
fn close_inherited() {
    open_numbers().into_iter().filter(|&number| number > 2).for_each(close_number);
}

type Maker = Box<dyn Fn() -> Result<()>>;

/// Everything of ours that makes descriptors: its name, how many it needs, and the call.
fn makers() -> Vec<(&'static str, usize, Maker)> {
    let config = || Setup::Own.config();
    let own = std::process::id();
    let mut makers: Vec<(&'static str, usize, Maker)> = vec![
        ("Watcher::spawn", 2, Box::new(move || Watcher::spawn(config()).map(drop))),
        ("Client::embedded", 2, Box::new(|| Client::embedded().map(drop))),
        ("FileChanges::new", 1, Box::new(|| FileChanges::new().map(drop))),
        ("ChildProcess::open", 1, Box::new(move || ChildProcess::open(own).map(drop))),
    ];
    for front in [FrontPolicy::Off, FrontPolicy::Adaptive, FrontPolicy::Always] {
        let make = move || {
            let client_config = ClientConfig { front, ..ClientConfig::default() };
            let mut client = Client::embedded_with(config(), client_config)?;
            client.descriptor().map(drop)
        };
        makers.push(("Client::descriptor", 5, Box::new(make)));
    }
    makers
}

/// Exactly one event comes, of this kind. (`settle` makes descriptors.)
#[track_caller]
fn expect_kind(client: &mut Fixture, kind: EventKind) {
    let event = client.expect_event();
    assert_eq!(event.kind, kind, "{event:#?}");
}

/// dart-lang/sdk#52865, servo/servo#36968: with no descriptor left every call that needs one is a clean error, and what
/// needs none works as ever, in every set-up.
#[test]
fn o3_dart_sdk_52865_without_descriptors_every_call_is_a_clean_error() {
    alone!(o3_dart_sdk_52865_without_descriptors_every_call_is_a_clean_error, {
        close_inherited();
        let (reader, writer) = pipe();
        let event = event_fd(0);
        for setup in [Setup::Own, Setup::Off, Setup::Always, Setup::Tight] {
            limit_numbers(64);
            let mut client = setup.client();
            // Eight, or what there is already.
            let limit = (open_numbers().len() + 1).max(8);
            limit_numbers(limit);
            let mut taken: Vec<OwnedFd> = Vec::new();
            while let Ok(duplicate) = rustix::io::fcntl_dupfd_cloexec(&event, 0) {
                taken.push(duplicate);
            }
            let before = open_numbers();
            assert_eq!(before.len(), limit, "all are taken");
            for (name, _, make) in makers() {
                for _ in 0..3 {
                    assert_eq!(code_of(make()), Code::ResourceExhausted, "{name}");
                    assert_eq!(open_numbers(), before, "{name}");
                }
            }
            assert_eq!(code_of(client.descriptor()), Code::ResourceExhausted);
            for mode in MODES {
                let watch = client.watch(&reader, READABLE, mode, 3).unwrap();
                write_all(&writer, b"x");
                expect_kind(&mut client, EventKind::Ready);
                read_all(&reader);
                client.arm(watch).unwrap();
                client.change(watch, READABLE | PRIORITY).unwrap();
                client.pause(watch).unwrap();
                client.resume(watch).unwrap();
                client.arm_until(watch, Duration::ZERO).unwrap();
                expect_kind(&mut client, EventKind::Deadline);
                // Hot enough to move, if there were a place to move to.
                for _ in 0..10 {
                    client.arm(watch).unwrap();
                    write_all(&writer, b"x");
                    expect_kind(&mut client, EventKind::Ready);
                    read_all(&reader);
                }
                client.unwatch(watch).unwrap();
            }
            client.set_timer(Duration::ZERO, 4).unwrap();
            expect_kind(&mut client, EventKind::Timer);
            client.wake().unwrap();
            expect_kind(&mut client, EventKind::Wake);
            let mut entries =
                [WaitEntry::new(reader.as_fd(), READABLE), WaitEntry::new(event.as_fd(), WRITABLE)];
            assert_eq!(wait_many(&mut entries, None), Ok(Some(1)));
            assert_eq!(open_numbers(), before, "{setup:?}: nothing was made or closed");
            let handle = client.adopt(taken.pop().unwrap()).unwrap();
            client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Once, 5)).unwrap();
            client.close(handle).unwrap();
            expect_kind(&mut client, EventKind::Ended);
            // As soon as there are descriptors again, what failed works.
            drop(taken);
            limit_numbers(64);
            client.descriptor().unwrap();
            makers().iter().for_each(|(name, _, make)| assert_eq!(make(), Ok(()), "{name}"));
            client.settle();
        }
    });
}

/// dart-lang/sdk#52865: more Level watches than there may be descriptors, on one number, make no call fail: the kernel
/// refuses to look at so many at once, and they are told of all the same.
#[test]
fn o3_dart_sdk_52865_more_watches_than_descriptors_are_told_of() {
    alone!(o3_dart_sdk_52865_more_watches_than_descriptors_are_told_of, {
        close_inherited();
        for setup in SETUPS {
            limit_numbers(64);
            let (reader, writer) = pipe();
            let mut client = setup.client();
            limit_numbers(8);
            for token in 0..32 {
                client.watch(&reader, READABLE, Mode::Level, token).unwrap();
            }
            for _ in 0..3 {
                write_all(&writer, b"x");
                let mut told = tokens(&client.expect_events(32));
                told.sort_unstable();
                assert_eq!(told, (0..32).collect::<Vec<u64>>(), "{setup:?}");
                read_all(&reader);
                assert!(client.wait_for(SILENCE).is_empty(), "what was read is not told of again");
            }
        }
    });
}

/// servo/servo#36968: a front that a closed number with a living duplicate has poisoned is replaced. Where no descriptor
/// is left to make the new one with, the client still waits without a spin, and is told of everything.
#[test]
fn o3_servo_36968_a_poisoned_front_without_descriptors_makes_nothing_spin() {
    alone!(o3_servo_36968_a_poisoned_front_without_descriptors_makes_nothing_spin, {
        close_inherited();
        for setup in SETUPS {
            for mode in MODES {
                limit_numbers(64);
                let mut client = setup.client();
                let (reader, writer) = pipe();
                let other = event_fd(0);
                let on_other = client.watch(&other, READABLE, mode, 1).unwrap();
                let watched = duplicate(&reader);
                let poison = client.watch(&watched, READABLE, Mode::Level, 2).unwrap();
                drop(watched);
                write_all(&writer, b"x");
                client.unwatch(poison).unwrap();
                limit_numbers(open_numbers().len());
                // What poisons it makes the port's descriptor readable for nothing, until it was noticed.
                client.expect_rivals();
                for _ in 0..3 {
                    assert!(client.wait_for(Duration::from_millis(1)).is_empty());
                }
                let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                assert!(client.wait_for(Duration::from_millis(100)).is_empty());
                let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                let nanoseconds = (now.tv_sec - used.tv_sec) * 1_000_000_000 + now.tv_nsec - used.tv_nsec;
                assert!(
                    nanoseconds < 30_000_000,
                    "{setup:?}, {mode:?}: a wait of 100 ms used {nanoseconds} ns"
                );
                set_event(&other);
                client.expect_ready(on_other, READABLE);
            }
        }
    });
}

/// tokio-rs/mio PR#1636: whichever descriptor cannot be made, the ones made before are closed again.
#[test]
fn o5_mio_pr_1636_a_set_up_that_fails_half_way_leaves_nothing_open() {
    alone!(o5_mio_pr_1636_a_set_up_that_fails_half_way_leaves_nothing_open, {
        close_inherited();
        let before = open_numbers();
        assert_eq!(before, [0, 1, 2]);
        for allowed in 0..10 {
            limit_numbers(before.len() + allowed);
            for (name, needed, make) in makers() {
                for _ in 0..3 {
                    let answer = make();
                    if allowed < needed {
                        assert_eq!(code_of(answer), Code::ResourceExhausted, "{name} with {allowed} more");
                    } else {
                        assert_eq!(answer, Ok(()), "{name} with {allowed} more");
                    }
                    assert_eq!(open_numbers(), before, "{name} with {allowed} more");
                }
            }
        }
    });
}
