//! C9b: the port's descriptor is readable exactly while the next drain would return something.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod timers;
mod told;
#[path = "../util/mod.rs"]
mod util;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use util::*;

/// Who waits for it, and where its watches sit by default.
pub(crate) const SETUPS: [Setup; 3] = [Setup::Own, Setup::Off, Setup::Always];

/// A client whose descriptor is asked about in every way there is.
pub(crate) struct Watched {
    client: Fixture,
    /// A foreign loop of level trigger.
    by_level: OwnedFd,
    what: String,
}

impl Watched {
    fn new(setup: Setup, what: &str) -> Self {
        let mut client = setup.client();
        let by_level = poll_set();
        add_to_poll_set(&by_level, &client.descriptor().unwrap());
        Self { client, by_level, what: format!("{setup:?}, {what}") }
    }

    fn looks(&mut self) -> (bool, bool) {
        let by_poll = is_readable_within(&self.client.descriptor().unwrap(), Duration::ZERO);
        (by_poll, is_readable_within(&self.by_level, Duration::ZERO))
    }

    /// It becomes readable, and both ways to ask agree.
    #[track_caller]
    fn expect_readable(&mut self) {
        let descriptor = self.client.descriptor().unwrap();
        assert!(is_readable_within(&descriptor, PROMPT), "{}: not readable", self.what);
        assert_eq!(self.looks(), (true, true), "{}: not readable", self.what);
    }

    /// It is not readable now and not a little later, and a drain agrees.
    #[track_caller]
    fn expect_silent(&mut self) {
        assert_eq!(self.looks(), (false, false), "{}: readable for nothing", self.what);
        let descriptor = self.client.descriptor().unwrap();
        assert!(!is_readable_within(&descriptor, SILENCE), "{}: readable for nothing", self.what);
        assert_eq!(self.client.drained(), [], "{}: a drain has something", self.what);
        assert_eq!(self.looks(), (false, false), "{}: a drain of nothing made it readable", self.what);
    }

    /// Drains while it is readable, at most `most` times, each time for something; gives what came.
    #[track_caller]
    fn drain_while_readable(&mut self, most: usize) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..most {
            if self.looks() == (false, false) {
                return events;
            }
            let drained = self.client.drained();
            assert!(!drained.is_empty(), "{}: readable for nothing, after {events:#?}", self.what);
            events.extend(drained);
        }
        events
    }
}

#[test]
fn a_new_port_is_silent() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "new");
        port.expect_silent();
    }
}

#[test]
fn once_and_edge_are_readable_until_drained() {
    for setup in SETUPS {
        for mode in [Mode::Once, Mode::Edge] {
            let mut port = Watched::new(setup, &format!("{mode:?}"));
            let (reader, writer) = pipe();
            let watch = port.client.watch(&reader, READABLE, mode, 1).unwrap();
            port.expect_silent();
            for _ in 0..3 {
                write_all(&writer, b"x");
                port.expect_readable();
                assert_eq!(port.drain_while_readable(9).len(), 1);
                port.expect_silent();
                if mode == Mode::Once {
                    port.client.arm(watch).unwrap();
                    port.expect_readable();
                    assert_eq!(port.drain_while_readable(9).len(), 1);
                    read_all(&reader);
                    port.client.arm(watch).unwrap();
                    port.expect_silent();
                }
            }
        }
    }
}

#[test]
fn unread_level_data_keeps_it_readable() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "Level");
        let (reader, writer) = pipe();
        port.client.watch(&reader, READABLE, Mode::Level, 1).unwrap();
        port.expect_silent();
        for _ in 0..3 {
            write_all(&writer, b"x");
            for _ in 0..5 {
                port.expect_readable();
                assert_eq!(port.client.drained().len(), 1);
            }
            port.expect_readable();
            read_all(&reader);
            port.expect_silent();
        }
    }
}

/// Watches of the back become Level-correct when the descriptor is asked for.
#[test]
fn watches_older_than_the_descriptor_count() {
    for setup in SETUPS {
        for mode in MODES {
            for drained_before in [false, true] {
                let mut client = setup.client();
                let event = event_fd(1);
                client.watch(&event, READABLE, mode, 1).unwrap();
                client.wake().unwrap();
                if drained_before {
                    client.expect_events(2);
                }
                let by_level = poll_set();
                add_to_poll_set(&by_level, &client.descriptor().unwrap());
                let what = format!("{setup:?}, {mode:?} from before, drained: {drained_before}");
                let mut port = Watched { client, by_level, what };
                if mode == Mode::Level {
                    port.expect_readable();
                    assert!(!port.drain_while_readable(9).is_empty());
                    port.expect_readable();
                } else if !drained_before {
                    port.expect_readable();
                    let mut events = port.drain_while_readable(9);
                    events.extend(port.client.settle());
                    assert_eq!(events.len(), 2, "{}", port.what);
                }
                clear_event(&event);
                port.drain_while_readable(9);
                port.expect_silent();
            }
        }
    }
}

/// A Level watch that cannot sit in the front, because its number has a watch of another mode there, is Level too.
#[test]
fn level_beside_other_modes_on_one_number_stays_readable() {
    for setup in SETUPS {
        for other in [Mode::Once, Mode::Edge] {
            let mut port = Watched::new(setup, &format!("Level after {other:?} on one number"));
            let event = event_fd(0);
            port.client.watch(&event, READABLE, other, 1).unwrap();
            let level = port.client.watch(&event, READABLE, Mode::Level, 2).unwrap();
            set_event(&event);
            let (mut levels, mut others) = (0, 0);
            while levels < 4 {
                port.expect_readable();
                let events = port.client.drained();
                assert!(!events.is_empty(), "{}: readable for nothing", port.what);
                levels += events.iter().filter(|event| event.watch == level).count();
                others += events.iter().filter(|event| event.watch != level).count();
            }
            assert!(other == Mode::Edge || others <= 1, "{}: told {others} times", port.what);
            port.expect_readable();
            clear_event(&event);
            port.client.settle();
            port.expect_silent();
        }
    }
}

#[test]
fn a_partial_drain_leaves_it_readable() {
    for setup in SETUPS {
        for mode in MODES {
            for room in [1, 2, 3] {
                let mut port = Watched::new(setup, &format!("{mode:?}, room for {room}"));
                port.client.set_capacity(room);
                let events: Vec<OwnedFd> = (0..7).map(|_| event_fd(0)).collect();
                for (token, event) in events.iter().enumerate() {
                    port.client.watch(event, READABLE, mode, token as u64).unwrap();
                }
                events.iter().for_each(set_event);
                port.client.wake().unwrap();
                let mut seen = std::collections::BTreeSet::new();
                while seen.len() < 8 {
                    port.expect_readable();
                    let drained = port.client.drained();
                    assert!(!drained.is_empty(), "{}", port.what);
                    for event in drained {
                        let key = (event.kind == EventKind::Wake, event.token);
                        assert!(seen.insert(key) || mode == Mode::Level, "{}: {event:#?} twice", port.what);
                    }
                }
                for event in &events {
                    clear_event(event);
                }
                port.expect_silent();
            }
        }
    }
}

#[test]
fn queue_and_front_together() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "wake, timer, Once and Level");
        let (level, once) = (event_fd(0), event_fd(0));
        port.client.watch(&level, READABLE, Mode::Level, 1).unwrap();
        let once_watch = port.client.watch(&once, READABLE, Mode::Once, 2).unwrap();
        for bits in 0..16_u32 {
            let expected = bits.count_ones() as usize;
            if bits & 1 != 0 {
                set_event(&level);
            }
            if bits & 2 != 0 {
                set_event(&once);
            }
            if bits & 4 != 0 {
                port.client.wake().unwrap();
            }
            if bits & 8 != 0 {
                port.client.set_timer(Deadline::at_ns(1), 3).unwrap();
            }
            let mut kinds = std::collections::BTreeSet::new();
            let until = Instant::now() + PROMPT;
            while kinds.len() < expected {
                assert!(Instant::now() < until, "{}: {kinds:?} of {bits:b}", port.what);
                port.expect_readable();
                let drained = port.client.drained();
                kinds.extend(drained.iter().map(|event| (format!("{:?}", event.kind), event.token)));
            }
            if bits & 1 != 0 {
                port.expect_readable();
                clear_event(&level);
            }
            if bits & 2 != 0 {
                clear_event(&once);
                port.client.arm(once_watch).unwrap();
            }
            port.expect_silent();
        }
    }
}

#[test]
fn withdrawing_the_last_event_silences_it() {
    for setup in SETUPS {
        for mode in MODES {
            let mut port = Watched::new(setup, &format!("{mode:?} withdrawn"));
            let event = event_fd(1);
            let watch = port.client.watch(&event, READABLE, mode, 1).unwrap();
            port.expect_readable();
            port.client.pause(watch).unwrap();
            port.expect_silent();
            port.client.resume(watch).unwrap();
            port.expect_readable();
            port.client.change(watch, PRIORITY).unwrap();
            port.expect_silent();
            port.client.change(watch, READABLE).unwrap();
            port.expect_readable();
            port.client.unwatch(watch).unwrap();
            port.expect_silent();
            let timer = port.client.set_timer(Deadline::at_ns(1), 2).unwrap();
            port.expect_readable();
            port.client.cancel_timer(timer).unwrap();
            port.expect_silent();
        }
    }
}

#[test]
fn a_wake_and_a_timer_make_it_readable() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "wake and timers");
        let control = port.client.control().clone();
        for _ in 0..3 {
            let waker = control.clone();
            std::thread::spawn(move || waker.wake()).join().unwrap().unwrap();
            port.expect_readable();
            assert_eq!(port.drain_while_readable(2).len(), 1);
            port.expect_silent();
            control.set_timer(Duration::from_millis(2), 1).unwrap();
            port.expect_readable();
            assert_eq!(port.drain_while_readable(2)[0].kind, EventKind::Timer);
            port.expect_silent();
        }
    }
}

#[test]
fn a_hang_up_is_readable_once() {
    for setup in SETUPS {
        for mode in MODES {
            let mut port = Watched::new(setup, &format!("{mode:?} hung up"));
            let (reader, writer) = pipe();
            fill(&writer);
            let watch = port.client.watch(&writer, WRITABLE, mode, 1).unwrap();
            port.expect_silent();
            drop(reader);
            port.expect_readable();
            assert_eq!(port.drain_while_readable(5).len(), 1, "{}", port.what);
            port.expect_silent();
            // Its owner changes its mind; a Once watch stays disarmed and so tells nothing (C3g).
            port.client.change(watch, WRITABLE).unwrap();
            if mode == Mode::Once {
                port.expect_silent();
                port.client.arm(watch).unwrap();
            }
            port.expect_readable();
            assert_eq!(port.drain_while_readable(5).len(), 1, "{}", port.what);
            port.expect_silent();
            port.client.pause(watch).unwrap();
            port.expect_silent();
        }
    }
}

/// C6b: two watches of one number, and room for one event at a time.
#[test]
fn a_hang_up_without_room_is_readable_once_for_each() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "hung up, in small batches");
        port.client.set_capacity(1);
        let (reader, writer) = pipe();
        for token in 1..=2 {
            port.client.watch(&reader, PRIORITY, Mode::Level, token).unwrap();
        }
        drop(writer);
        port.expect_readable();
        let told: Vec<u64> = port.drain_while_readable(5).iter().map(|event| event.token).collect();
        assert_eq!(told.len(), 2, "{}: {told:?}", port.what);
        assert_ne!(told[0], told[1], "{}", port.what);
        port.expect_silent();
    }
}

/// C6c: it was queued by the back when the front took it over.
#[test]
fn a_hang_up_older_than_the_descriptor_is_readable_once() {
    for setup in SETUPS {
        for takes in 0..2 {
            let mut client = setup.client();
            let (reader, writer) = pipe();
            fill(&writer);
            drop(reader);
            client.watch(&writer, WRITABLE, Mode::Level, 1).unwrap();
            client.until_undelivered(Mode::Level, 1);
            let by_level = poll_set();
            add_to_poll_set(&by_level, &client.descriptor().unwrap());
            let mut port = Watched { client, by_level, what: format!("{setup:?}, hung up before, {takes}") };
            for _ in 0..takes {
                // Whose turn it is to come first, queue or front, depends on how many hand-outs there were.
                port.client.wake().unwrap();
                port.client.set_capacity(1);
                port.client.drained();
            }
            port.client.set_capacity(8);
            port.drain_while_readable(3);
            port.expect_silent();
        }
    }
}

/// A disarmed watch of a hung-up file stays silent while its neighbours on the number come and go.
#[test]
fn a_disarmed_watch_of_a_hung_up_file_is_silent() {
    for setup in SETUPS {
        let mut port = Watched::new(setup, "disarmed and hung up, with a neighbour");
        let (reader, writer) = pipe();
        let watch = port.client.watch(&reader, READABLE, Mode::Once, 1).unwrap();
        drop(writer);
        port.expect_readable();
        assert_eq!(port.drain_while_readable(3).len(), 1);
        port.expect_silent();
        let neighbour = port.client.watch(&reader, READABLE, Mode::Once, 2).unwrap();
        port.expect_readable();
        assert_eq!(port.drain_while_readable(3).len(), 1);
        port.expect_silent();
        port.client.unwatch(neighbour).unwrap();
        port.expect_silent();
        port.client.change(watch, READABLE | WRITABLE).unwrap();
        port.expect_silent();
        port.client.arm(watch).unwrap();
        port.expect_readable();
    }
}

#[test]
fn a_deadline_makes_it_readable_once() {
    for setup in SETUPS {
        for mode in MODES {
            let mut port = Watched::new(setup, &format!("{mode:?} with a deadline"));
            let (reader, writer) = pipe();
            let options =
                WatchOptions::new(READABLE, mode, 1).deadline(Deadline::after(Duration::from_millis(2)));
            port.client.watch_with(&reader, options).unwrap();
            port.expect_readable();
            assert_eq!(port.drain_while_readable(2)[0].kind, EventKind::Deadline);
            write_all(&writer, b"x");
            port.expect_silent();
            drop(writer);
            port.expect_silent();
        }
    }
}

#[test]
fn an_end_makes_it_readable_once_and_a_stop_for_ever() {
    for setup in SETUPS {
        for mode in MODES {
            let watcher = setup.watcher();
            let mut client = setup.attach(&watcher);
            let by_level = poll_set();
            add_to_poll_set(&by_level, &client.descriptor().unwrap());
            let mut port = Watched { client, by_level, what: format!("{setup:?}, {mode:?} ended") };
            let (reader, _writer) = pipe();
            let handle = port.client.adopt(reader).unwrap();
            port.client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
            let event = event_fd(1);
            port.client.watch(&event, READABLE, mode, 2).unwrap();
            port.expect_readable();
            port.client.drained();
            clear_event(&event);
            port.expect_silent();
            port.client.close(handle).unwrap();
            port.expect_readable();
            assert_eq!(port.drain_while_readable(3)[0].status, Code::Cancelled);
            port.expect_silent();
            watcher.stop().unwrap();
            port.expect_readable();
            assert_eq!(port.client.drained()[0].status, Code::Aborted);
            for _ in 0..3 {
                port.expect_readable();
                let status = port.client.drain(&mut Events::with_capacity(4)).unwrap_err();
                assert_eq!(status.code(), Code::Unavailable);
            }
        }
    }
}

/// An edge-triggered foreign loop that drains until there is nothing never misses what comes later.
#[test]
fn an_edge_triggered_loop_misses_nothing() {
    for setup in SETUPS {
        for mode in MODES {
            let mut client = setup.client();
            client.set_capacity(1);
            let by_edge = poll_set();
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&by_edge, client.descriptor().unwrap(), epoll::EventData::new_u64(0), edge).unwrap();
            let (reader, writer) = pipe();
            let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
            let control = client.control().clone();
            let sender = std::thread::spawn(move || {
                for round in 0..200_u32 {
                    write_all(&writer, b"x");
                    if round % 3 == 0 {
                        control.wake().unwrap();
                    }
                    if round % 7 == 0 {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                writer
            });
            let (mut read, mut wakes) = (0, 0);
            let mut room = Vec::with_capacity(4);
            let timeout = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
            while read < 200 || wakes < 67 {
                room.clear();
                epoll::wait(&by_edge, rustix::buffer::spare_capacity(&mut room), Some(&timeout)).unwrap();
                assert!(!room.is_empty(), "{setup:?} {mode:?}: lost, at {read} bytes and {wakes} wakes");
                loop {
                    let events = client.drained();
                    let Some(event) = events.first() else { break };
                    if event.kind == EventKind::Wake {
                        wakes += event.count;
                    } else {
                        read += read_all(&reader);
                        if mode == Mode::Once {
                            client.arm(watch).unwrap();
                        }
                    }
                }
            }
            drop(sender.join().unwrap());
        }
    }
}

/// What a foreign loop does when the port is readable.
struct Server {
    client: Fixture,
    reader: OwnedFd,
    mode: Mode,
    read: usize,
}

impl Server {
    fn new(setup: Setup, mode: Mode) -> (Self, OwnedFd) {
        let mut client = setup.client();
        client.set_capacity(2);
        let (reader, writer) = pipe();
        client.watch(&reader, READABLE, mode, 1).unwrap();
        (Self { client, reader, mode, read: 0 }, writer)
    }

    fn serve_one_batch(&mut self) -> usize {
        let events = self.client.drained();
        for event in &events {
            self.read += read_all(&self.reader);
            if self.mode == Mode::Once {
                self.client.arm(event.watch).unwrap();
            }
        }
        events.len()
    }
}

fn send_slowly(writer: OwnedFd, bytes: usize) -> std::thread::JoinHandle<OwnedFd> {
    std::thread::spawn(move || {
        for _ in 0..bytes {
            write_all(&writer, b"x");
            std::thread::sleep(Duration::from_micros(150));
        }
        writer
    })
}

#[test]
fn it_works_inside_calloop() {
    use calloop::generic::Generic;
    use calloop::{EventLoop, Interest, PostAction};
    for setup in SETUPS {
        for mode in MODES {
            let (mut server, writer) = Server::new(setup, mode);
            let descriptor = server.client.descriptor().unwrap().try_clone_to_owned().unwrap();
            let mut event_loop: EventLoop<'_, Server> = EventLoop::try_new().unwrap();
            let source = Generic::new(descriptor, Interest::READ, calloop::Mode::Level);
            let served = move |_: calloop::Readiness, _: &mut _, server: &mut Server| {
                assert!(server.serve_one_batch() > 0, "{setup:?} {mode:?}: called for nothing");
                Ok(PostAction::Continue)
            };
            event_loop.handle().insert_source(source, served).unwrap();
            let sender = send_slowly(writer, 30);
            let until = Instant::now() + PROMPT;
            while server.read < 30 {
                event_loop.dispatch(Some(PROMPT), &mut server).unwrap();
                assert!(Instant::now() < until, "{setup:?} {mode:?}: {} bytes", server.read);
            }
            drop(sender.join().unwrap());
        }
    }
}

#[test]
fn it_works_inside_mio() {
    for setup in SETUPS {
        for mode in MODES {
            let (mut server, writer) = Server::new(setup, mode);
            let number = server.client.descriptor().unwrap().as_raw_fd();
            let mut poll = mio::Poll::new().unwrap();
            let interest = mio::Interest::READABLE;
            poll.registry().register(&mut mio::unix::SourceFd(&number), mio::Token(1), interest).unwrap();
            let sender = send_slowly(writer, 30);
            let mut events = mio::Events::with_capacity(4);
            while server.read < 30 {
                poll.poll(&mut events, Some(PROMPT)).unwrap();
                assert!(!events.is_empty(), "{setup:?} {mode:?}: lost, at {} bytes", server.read);
                // mio reports edges: serve until there is nothing.
                while server.serve_one_batch() > 0 {}
            }
            drop(sender.join().unwrap());
        }
    }
}
