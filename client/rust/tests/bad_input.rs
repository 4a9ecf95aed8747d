//! C15, C3i: whatever is passed, limits that are reached, and descriptors that run out: an answer, never a panic, a leak
//! or harm to anybody else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use util::*;

/// Numbers that no open descriptor has.
fn impossible_numbers() -> Vec<i32> {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(1 << 20);
    let hard = i32::try_from(hard).unwrap_or(i32::MAX - 65_536);
    let mut numbers = vec![-1, -2, i32::MIN, i32::MAX, i32::MAX - 1, PrivateNumber::new().number()];
    numbers.extend([hard, hard - 1, hard + 1, hard + 65_536, 1 << 22, (1 << 22) - 1]);
    numbers.retain(|number| !is_open(*number));
    numbers
}

/// Every number is answered in every mode, with any signals, and costs nothing.
fn impossible_descriptors(setup: Setup) {
    let mut client = setup.client();
    for number in impossible_numbers() {
        for mode in MODES {
            for signals in [NONE, READABLE, Signals::all()] {
                let options = WatchOptions::new(signals, mode, 1).deadline(Deadline::at_ns(1));
                let code = client.watch_number(number, options).unwrap_err().code();
                assert_eq!(code, Code::InvalidArgument, "{number}");
            }
        }
        let mut entries = [WaitEntry::of_number(number, READABLE)];
        assert_eq!(wait_many(&mut entries, None).unwrap(), None);
        assert_eq!(entries[0].status(), Code::InvalidArgument, "{number}");
    }
    assert_eq!(client.client_stats().watches, 0);
    client.expect_nothing();
}

/// No signals, all signals, and single ones, on something where nothing and on something where everything holds.
fn every_set_of_signals(setup: Setup) {
    let mut client = setup.client();
    let (idle, _other) = socket_pair();
    fill(&idle);
    for bits in 0..32 {
        let signals = Signals::from_bits_truncate(bits);
        for mode in MODES {
            let watch = client.watch(&idle, signals, mode, 1).unwrap();
            client.change(watch, signals).unwrap();
            client.pause(watch).unwrap();
            let resumed = client.resume(watch).map_err(|status| status.code());
            assert_eq!(resumed, if signals.is_empty() { Err(Code::FailedPrecondition) } else { Ok(()) });
            client.unwatch(watch).unwrap();
        }
    }
    client.expect_nothing();
    for bits in 32..=255 {
        let unknown = Signals::from_bits_retain(bits);
        assert_eq!(
            client.watch(&idle, unknown, Mode::Once, 1).unwrap_err().code(),
            Code::InvalidArgument,
            "{bits}"
        );
    }
    assert_eq!(client.client_stats().watches, 0);
}

/// Every call with ids that are stale, foreign, neighbouring and random, many thousand times: NOT_FOUND, and live
/// watches, timers and handles of both clients go on as if nothing had happened.
fn random_ids(setup: Setup) {
    let [mut mine, mut others] = setup.clients();
    let (one, other) = socket_pair();
    let watch = mine.watch(&one, READABLE, Mode::Once, 1).unwrap();
    let foreign = others.watch(&one, READABLE, Mode::Once, 2).unwrap();
    let timer = mine.set_timer(Deadline::FARTHEST, 3).unwrap();
    let foreign_timer = others.set_timer(Deadline::FARTHEST, 4).unwrap();
    let handle = mine.adopt(event_fd(0)).unwrap();
    let stale = mine.watch(&one, READABLE, Mode::Once, 5).unwrap();
    mine.unwatch(stale).unwrap();
    let known = [watch.raw(), foreign.raw(), timer.raw(), foreign_timer.raw(), handle.raw(), stale.raw()];
    let mut random = Random::new(99);
    for _ in 0..20_000 {
        let near = known[usize::try_from(random.below(6)).unwrap()];
        let raw = match random.below(4) {
            0 => random.next(),
            1 => near,
            2 => near ^ (1 << random.below(64)),
            _ => near.wrapping_add(random.below(5) << 32).wrapping_sub(random.below(3)),
        };
        let id = WatchId::from_raw(raw);
        let result = match random.below(9) {
            0 => mine.arm(if id == watch { stale } else { id }),
            1 => mine.arm_until(if id == watch { stale } else { id }, Duration::from_nanos(random.next())),
            2 => mine.change(if id == watch { stale } else { id }, Signals::WRITABLE),
            3 => mine.pause(if id == watch { stale } else { id }),
            4 => mine.resume(if id == watch { stale } else { id }),
            5 => mine.unwatch(if id == watch { stale } else { id }),
            6 => mine.cancel_timer(TimerId::from_raw(if raw == timer.raw() { stale.raw() } else { raw })),
            7 => mine.close(HandleId::from_raw(if raw == handle.raw() { u64::MAX } else { raw })),
            _ => {
                let raw = if raw == handle.raw() { u64::MAX } else { raw };
                let options = WatchOptions::new(READABLE, Mode::Edge, 6);
                mine.watch_handle(HandleId::from_raw(raw), options).map(drop)
            }
        };
        assert_eq!(result.map_err(|status| status.code()), Err(Code::NotFound), "{raw:#x}");
    }
    mine.expect_nothing();
    write_all(&other, b"x");
    mine.expect_ready(watch, READABLE);
    others.expect_ready(foreign, READABLE);
    mine.cancel_timer(timer).unwrap();
    others.cancel_timer(foreign_timer).unwrap();
    mine.close(handle).unwrap();
    let stats = mine.client_stats();
    assert_eq!((stats.watches, stats.timers, stats.handles), (1, 0, 0));
}

/// A limit is an answer at the moment it is reached, and gone when something ended.
fn limits_are_reached_and_left(setup: Setup) {
    let config = Config { watch_limit: 3, timer_limit: 2, ..setup.config() };
    let watcher = Watcher::spawn(config).unwrap();
    let (mut client, mut other) = (setup.attach(&watcher), setup.attach(&watcher));
    let idle = event_fd(0);
    let watch = |client: &Client| client.watch(&idle, READABLE, Mode::Once, 1);
    for _ in 0..50 {
        let watches: Vec<WatchId> = (0..3).map(|_| watch(&client).unwrap()).collect();
        assert_eq!(watch(&client).unwrap_err().code(), Code::ResourceExhausted);
        client.unwatch(watches[1]).unwrap();
        let again = watch(&client).unwrap();
        assert_eq!(watch(&client).unwrap_err().code(), Code::ResourceExhausted);
        for watch in [watches[0], watches[2], again] {
            client.unwatch(watch).unwrap();
        }
        let timer = client.set_timer(Duration::from_secs(100), 1).unwrap();
        client.set_timer(Deadline::at_ns(1), 2).unwrap();
        assert_eq!(client.set_timer(Deadline::at_ns(1), 3).unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(client.expect_event().token, 2);
        client.set_timer(Deadline::at_ns(1), 4).unwrap();
        assert_eq!(client.expect_event().token, 4);
        client.cancel_timer(timer).unwrap();
    }
    // A refused watch takes no place, and another client has limits of its own.
    let directory = std::fs::File::open("/").unwrap();
    for _ in 0..10 {
        assert!(client.watch(&directory, READABLE, Mode::Once, 1).is_err());
    }
    for _ in 0..3 {
        watch(&client).unwrap();
        watch(&other).unwrap();
    }
    assert_eq!((client.client_stats().watches, other.client_stats().watches), (3, 3));
    other.drained();
}

/// Clients: the limit, and that a client that is gone makes room at once.
fn the_limit_of_clients(setup: Setup) {
    let watcher = Watcher::spawn(Config { client_limit: 2, ..setup.config() }).unwrap();
    for round in 0..30 {
        let first = setup.attach(&watcher);
        let mut second = setup.attach(&watcher);
        let refused = Client::attach(&watcher).map(drop).map_err(|status| status.code());
        assert_eq!(refused, Err(Code::ResourceExhausted), "round {round}");
        drop(first);
        let third = Client::attach(&watcher);
        assert!(third.is_ok(), "round {round}: a dropped client makes room: {third:?}");
        second.expect_nothing();
    }
    assert_eq!(watcher.stats().clients, 0);
}

/// Rows: every refusal leaves nothing behind, and a client that got no row does not count as a client.
fn the_limit_of_rows(setup: Setup) {
    let config = Config { row_limit: 3, client_limit: 2, ..setup.config() };
    let watcher = Watcher::spawn(config).unwrap();
    let client = setup.attach(&watcher);
    let idle = event_fd(0);
    let watch = client.watch(&idle, READABLE, Mode::Once, 1).unwrap();
    let timer = client.set_timer(Duration::from_secs(100), 1).unwrap();
    for _ in 0..10 {
        for result in [
            client.watch(&idle, READABLE, Mode::Once, 1).map(drop),
            client.set_timer(Duration::ZERO, 1).map(drop),
            Client::attach(&watcher).map(drop),
        ] {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(status.message().contains("row_limit"), "{status}");
        }
    }
    assert_eq!(watcher.stats().clients, 1, "a client that was refused is none");
    client.cancel_timer(timer).unwrap();
    let other = setup.attach(&watcher);
    assert_eq!(other.watch(&idle, READABLE, Mode::Once, 1).unwrap_err().code(), Code::ResourceExhausted);
    client.unwatch(watch).unwrap();
    other.watch(&idle, READABLE, Mode::Once, 1).unwrap();
}

/// With room for a single command many threads set timers, attach and leave: nobody waits for ever.
fn room_for_one_command(setup: Setup) {
    within_time(move || {
        let watcher = Watcher::spawn(Config { command_limit: 1, ..setup.config() }).unwrap();
        thread::scope(|scope| {
            for number in 0..4_u64 {
                let watcher = &watcher;
                scope.spawn(move || {
                    for round in 0..40 {
                        let mut client = setup.attach(watcher);
                        let far = client.set_timer(Duration::from_secs(1000 + round), number).unwrap();
                        client.set_timer(Deadline::at_ns(1), number).unwrap();
                        assert_eq!(client.expect_event().token, number);
                        client.cancel_timer(far).unwrap();
                    }
                });
            }
        });
    });
}

/// The same with commands that need not wake the watcher, all at the same moment, while it sleeps.
fn a_full_queue_wakes_a_sleeping_watcher(setup: Setup) {
    const THREADS: usize = 4;
    within_time(move || {
        let watcher = Watcher::spawn(Config { command_limit: 1, ..setup.config() }).unwrap();
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        start.wait();
                        let client = setup.attach(&watcher);
                        client.set_timer(Duration::from_secs(1000), 1).unwrap();
                        start.wait();
                        drop(client);
                    }
                });
            }
        });
    });
}

/// What needs descriptors of its own, in the order in which a program would make it.
fn make_everything(setup: Setup) -> Result<()> {
    let mut client = Client::embedded_with(setup.config(), setup.client_config())?;
    client.descriptor()?;
    let process = ChildProcess::open(std::process::id())?;
    let changes = FileChanges::new()?;
    let mut events = Events::with_capacity(8);
    for mode in MODES {
        client.watch(&process, READABLE, mode, 1)?;
        client.watch(&changes, READABLE, mode, 2)?;
    }
    client.wake()?;
    while client.wait(&mut events, Some(PROMPT))? == 0 {}
    assert_eq!(events.as_slice()[0].kind, EventKind::Wake);
    Ok(())
}

/// RLIMIT_NOFILE at 8, and every creation of a descriptor failing in turn: RESOURCE_EXHAUSTED, no leak, and it works
/// again when there are descriptors.
fn descriptors_run_out(setup: Setup) {
    make_everything(setup).unwrap();
    let before = descriptor_count();
    let mut outcomes = Vec::new();
    for left in 0..=12 {
        // Takes the free numbers below the limit, so that exactly `left` are left.
        let limit = set_descriptor_limit(64);
        let mut taken: Vec<OwnedFd> = Vec::new();
        while let Ok(descriptor) = rustix::io::fcntl_dupfd_cloexec(std::io::stdout().as_fd(), 0) {
            taken.push(descriptor);
        }
        taken.truncate(taken.len() - left);
        outcomes.push(make_everything(setup).map_err(|status| status.code()));
        drop(taken);
        set_descriptor_limit(limit);
        assert_eq!(descriptor_count(), before, "a leak with {left} descriptors left");
        make_everything(setup).unwrap();
    }
    assert_eq!(outcomes.first(), Some(&Err(Code::ResourceExhausted)));
    assert_eq!(outcomes.last(), Some(&Ok(())), "twelve are enough: {outcomes:?}");
    assert!(outcomes.iter().all(|it| matches!(it, Ok(()) | Err(Code::ResourceExhausted))), "{outcomes:?}");
    let first = outcomes.iter().position(|it| it.is_ok()).unwrap();
    assert!(outcomes[first..].iter().all(|it| it.is_ok()), "more descriptors are never worse: {outcomes:?}");

    let limit = set_descriptor_limit(8);
    let made = make_everything(setup).map_err(|status| status.code());
    assert!(matches!(made, Ok(()) | Err(Code::ResourceExhausted)), "{made:?}");
    set_descriptor_limit(limit);
    assert_eq!(descriptor_count(), before);
    make_everything(setup).unwrap();
}

/// A client that works goes on working while the process has no descriptor left, in every mode.
fn a_client_works_without_free_descriptors(setup: Setup) {
    let mut client = setup.client();
    let pairs: Vec<_> = MODES.iter().map(|_| socket_pair()).collect();
    let limit = set_descriptor_limit(64);
    let mut taken: Vec<OwnedFd> = Vec::new();
    while let Ok(descriptor) = rustix::io::fcntl_dupfd_cloexec(std::io::stdout().as_fd(), 0) {
        taken.push(descriptor);
    }
    for (mode, (one, other)) in MODES.into_iter().zip(&pairs) {
        let watch = client.watch(one, READABLE, mode, 1).unwrap();
        for _ in 0..20 {
            write_all(other, b"x");
            client.expect_ready(watch, READABLE);
            assert_eq!(read_all(one), 1);
            if mode == Mode::Once {
                client.arm(watch).unwrap();
            }
        }
        client.set_timer(Duration::ZERO, 2).unwrap();
        assert_eq!(client.expect_event().token, 2);
        client.unwatch(watch).unwrap();
    }
    drop(taken);
    set_descriptor_limit(limit);
    client.expect_nothing();
}

/// Sizes that a caller may ask for: a buffer of nothing holds one event, and an unused one costs nothing.
#[test]
fn odd_buffers() {
    let mut client = Setup::Own.client();
    let ready = event_fd(1);
    for token in 0..3 {
        client.watch(&ready, READABLE, Mode::Once, token).unwrap();
    }
    let mut least = Events::with_capacity(0);
    for _ in 0..3 {
        assert_eq!(client.wait(&mut least, Some(PROMPT)).unwrap(), 1);
    }
    assert_eq!(client.drain(&mut least).unwrap(), 0);
    least.clear();
    assert_eq!((least.len(), least.iter().count(), (&least).into_iter().count()), (0, 0, 0));
}

in_every_setup!(impossible_descriptors, every_set_of_signals, random_ids,);

in_every_embedded_setup!(
    limits_are_reached_and_left,
    the_limit_of_clients,
    the_limit_of_rows,
    room_for_one_command,
    a_full_queue_wakes_a_sleeping_watcher,
);

in_every_embedded_setup_alone!(a_client_works_without_free_descriptors, descriptors_run_out,);
