//! C11: order for each handle, a turn for everybody, data before a child's end, and bounds on what delays others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use util::*;

/// C11a: what happened to one handle is told in that order: ready, then its end.
fn events_of_one_handle_keep_their_order(setup: Setup) {
    let mut client = setup.client();
    for round in 0..100 {
        let mode = MODES[round % 2];
        let (one, other) = socket_pair();
        let handle = client.adopt(one).unwrap();
        let watch = client.watch_handle(handle, WatchOptions::new(READABLE, mode, 1)).unwrap();
        write_all(&other, b"x");
        client.until_undelivered(mode, 1);
        client.close(handle).unwrap();
        let kinds: Vec<_> = client.settle().iter().map(|event| (event.watch, event.kind)).collect();
        let (ready, ended) = ((watch, EventKind::Ready), (watch, EventKind::Ended));
        assert!(kinds == [ready, ended] || (setup.serves_in_front(mode) && kinds == [ended]), "{kinds:?}");
    }
}

/// C11a: a handle's own events arrive in the order in which they happened, for a long run of them.
fn a_run_of_changes_is_told_in_order(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    fill(&one);
    let watch = client.watch(&one, READABLE | WRITABLE, Mode::Edge, 1).unwrap();
    for round in 0..60 {
        if round % 2 == 0 {
            write_all(&other, b"x");
            client.expect_ready(watch, READABLE);
            assert_eq!(read_all(&one), 1);
        } else {
            read_all(&other);
            let event = client.expect_event();
            assert_eq!(event.satisfied, WRITABLE, "round {round}: the data before it is gone");
            fill(&one);
            client.settle();
        }
    }
}

/// C11b: one handle that never rests, and five hundred that become ready once: all of them are told, and until then the
/// hot one is told no oftener than once a hand-out.
fn a_hot_handle_starves_nobody(setup: Setup) {
    const COUNT: usize = 400;
    let mut client = setup.client();
    client.set_capacity(8);
    let (hot, feeder) = socket_pair();
    let hot_watch = client.watch(&hot, READABLE, Mode::Edge, u64::MAX).unwrap();
    let ready: Vec<_> = (0..COUNT).map(|_| event_fd(0)).collect();
    for (token, event) in (0..).zip(&ready) {
        client.watch(event, READABLE, Mode::Once, token).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (hot, is_over) = (&hot, &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                write_all(&feeder, b"x");
                read_all(hot);
            }
        });
        let _over = RaiseOnDrop(is_over);
        ready.iter().for_each(set_event);
        let mut seen = vec![false; COUNT];
        let mut left = COUNT;
        while left > 0 {
            let came = client.wait_for(PROMPT);
            assert!(!came.is_empty(), "{left} were not told");
            assert!(came.iter().filter(|event| event.watch == hot_watch).count() <= 1, "{came:?}");
            for event in came.iter().filter(|event| event.watch != hot_watch) {
                let index = usize::try_from(event.token).unwrap();
                assert!(!std::mem::replace(&mut seen[index], true), "told twice");
                left -= 1;
            }
        }
    });
}

/// C11d: threads that do nothing but set and cancel timers: another client is told all the same, and a turn takes no
/// more commands than the limit says.
fn a_flood_of_commands_delays_nobody(setup: Setup) {
    const LIMIT: usize = 32;
    let watcher = Watcher::spawn(Config { command_limit: LIMIT, ..setup.config() }).unwrap();
    let (flooding, mut working) = (setup.attach(&watcher), setup.attach(&watcher));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (control, is_over) = (flooding.control().clone(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let timer = control.set_timer(Deadline::at_ns(1), 1).unwrap();
                    control.cancel_timer(timer).unwrap();
                }
            });
        }
        let _over = RaiseOnDrop(&is_over);
        let (one, other) = socket_pair();
        let watch = working.watch(&one, READABLE, Mode::Once, 1).unwrap();
        for _ in 0..200 {
            write_all(&other, b"x");
            working.expect_ready(watch, READABLE);
            assert_eq!(read_all(&one), 1);
            working.arm(watch).unwrap();
            let timer = working.set_timer(Duration::ZERO, 2).unwrap();
            assert_eq!(working.expect_event().timer(), Some(timer));
        }
    });
    let stats = watcher.stats();
    // Class k counts sizes below 2^k.
    let above = (usize::BITS - LIMIT.leading_zeros()) as usize + 1;
    assert_eq!(stats.commands_per_turn[above..].iter().sum::<u64>(), 0, "{:?}", stats.commands_per_turn);
}

/// C11d: a turn takes no more ready descriptors than the batch says, and what is beyond comes with the next.
fn a_turn_is_bounded(setup: Setup) {
    let mut client = setup.client_with(|config| config.poll_batch = 4);
    let ready: Vec<_> = (0..100).map(|_| event_fd(1)).collect();
    for (token, event) in (0..).zip(&ready) {
        client.watch(event, READABLE, MODES[usize::try_from(token).unwrap() % 2], token).unwrap();
    }
    let mut tokens = Vec::new();
    while tokens.len() < ready.len() {
        tokens.extend(client.wait_for(PROMPT).iter().map(|event| event.token));
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), ready.len());
    assert_eq!(client.stats().ready_per_wait[4..].iter().sum::<u64>(), 0);
}

/// C11d: a client that never drains, with a hundred handles that never rest, does not keep another one waiting.
fn a_slow_client_delays_nobody(setup: Setup) {
    let [slow, mut quick] = setup.clients();
    let ready: Vec<_> = (0..100).map(|_| event_fd(1)).collect();
    for event in &ready {
        for mode in MODES {
            slow.watch(event, READABLE, mode, 1).unwrap();
        }
    }
    let (one, other) = socket_pair();
    let watch = quick.watch(&one, READABLE, Mode::Level, 2).unwrap();
    for round in 0..300 {
        set_event(&ready[round % ready.len()]);
        write_all(&other, b"x");
        quick.expect_ready(watch, READABLE);
        assert_eq!(read_all(&one), 1);
    }
    assert!(slow.client_stats().undelivered <= 300);
}

/// Reads a child's output until its end is told. Gives how many bytes had been read by then.
#[track_caller]
fn read_until_exit(
    client: &mut Fixture,
    output: &OwnedFd,
    child: &ChildProcess,
    mode: Mode,
    piece: usize,
) -> usize {
    const DATA: u64 = 1;
    const EXIT: u64 = 2;
    let data = client.watch(output, READABLE, mode, DATA).unwrap();
    let exit = client.watch_child(child, EXIT).unwrap();
    let mut read = 0;
    loop {
        let came = client.wait_for(PROMPT);
        assert!(!came.is_empty(), "neither data nor exit");
        for event in came {
            if event.token == EXIT {
                client.unwatch(exit).unwrap();
                client.unwatch(data).unwrap();
                return read;
            }
            assert_eq!(event.watch, data);
            read += read_some(output, piece).map_or(0, |bytes| bytes.len());
            if mode == Mode::Once && event.satisfied.contains(READABLE) {
                client.arm(data).unwrap();
            }
        }
    }
}

/// C11c: a child writes a line and exits, a thousand times: the line is always told before the exit.
fn data_is_told_before_the_exit(setup: Setup) {
    let rounds = if setup == Setup::Own || setup == Setup::Off { 400 } else { 60 };
    let mut client = setup.client();
    for round in 0..rounds {
        for mode in [Mode::Level, Mode::Once] {
            let mut child = Command::new("echo").arg("line").stdout(Stdio::piped()).spawn().unwrap();
            let process = ChildProcess::of(&child).unwrap();
            let output = OwnedFd::from(child.stdout.take().unwrap());
            set_nonblocking(&output);
            if round % 4 == 0 {
                // Everything has happened before it is watched.
                until("it has ended", || is_readable_within(&process.as_fd(), Duration::ZERO));
            }
            let read = read_until_exit(&mut client, &output, &process, mode, 4096);
            assert_eq!(read, 5, "round {round}, {mode:?}: the exit was told before the data");
            assert!(child.wait().unwrap().success());
        }
    }
}

/// C11c: a full pipe that a child leaves behind is told piece by piece before its exit.
fn a_full_pipe_is_told_before_the_exit(setup: Setup) {
    let mut client = setup.client();
    for round in 0..12 {
        for mode in [Mode::Level, Mode::Once] {
            let command = ["-c", "65536", "/dev/zero"];
            let mut child = Command::new("head").args(command).stdout(Stdio::piped()).spawn().unwrap();
            let process = ChildProcess::of(&child).unwrap();
            let output = OwnedFd::from(child.stdout.take().unwrap());
            set_nonblocking(&output);
            if round % 2 == 0 {
                until("it has ended", || is_readable_within(&process.as_fd(), Duration::ZERO));
            }
            let read = read_until_exit(&mut client, &output, &process, mode, 4096);
            assert_eq!(read, 65536, "round {round}, {mode:?}: the exit was told before the data");
            assert!(child.wait().unwrap().success());
        }
    }
}

/// C11c: the end is held back for no longer than a second: a handle that never rests, and is never read, does not hide it.
fn an_exit_is_not_held_back_for_ever(setup: Setup) {
    let mut client = setup.client();
    let ready = event_fd(1);
    client.watch(&ready, READABLE, Mode::Level, 1).unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let process = ChildProcess::of(&child).unwrap();
    let exit = client.watch_child(&process, 2).unwrap();
    until("it has ended", || is_readable_within(&process.as_fd(), Duration::ZERO));
    let give_up = Instant::now() + PROMPT;
    while !client.wait_for(PROMPT).iter().any(|event| event.watch == exit) {
        assert!(Instant::now() < give_up, "the exit is not told while a handle is ready");
    }
    assert!(child.wait().unwrap().success());
}

in_every_setup!(
    events_of_one_handle_keep_their_order,
    a_run_of_changes_is_told_in_order,
    a_hot_handle_starves_nobody,
    a_flood_of_commands_delays_nobody,
    a_turn_is_bounded,
    a_slow_client_delays_nobody,
    data_is_told_before_the_exit,
    a_full_pipe_is_told_before_the_exit,
    an_exit_is_not_held_back_for_ever,
);
