//! C1g, C9f, C11c, C13d, C14f: group I, interrupted waits, signal masks and children.
//!
//! - I1, I2, I7, I9, I11 are about watching POSIX signals, which is not a goal.
//! - I5 is about bindings, which do not exist yet.
//! - I10, SIGPIPE: nothing in process writes to a pipe or a socket of ours.

use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::support::*;
use crate::util::*;

/// joyent/libuv#887: only what was asked for is looked at, and nothing is collected: the status of a child that is watched,
/// by one client or by two, and of one that is not, is there for its owner.
#[test]
fn i3_libuv_887_nobodys_child_is_collected() {
    in_each_setup(|setup| {
        let mut clients: [Fixture; 2] = setup.clients();
        let start = |code: &str| Command::new("sh").args(["-c", code]).spawn().unwrap();
        for round in 0..10 {
            let mut watched = start("exit 3");
            let mut unwatched = start("exit 4");
            let process = ChildProcess::of(&watched).unwrap();
            let watches = clients.each_ref().map(|client| client.watch_child(&process, round).unwrap());
            for (client, watch) in clients.iter_mut().zip(watches) {
                client.expect_ready(watch, READABLE);
                client.unwatch(watch).unwrap();
            }
            assert_eq!(unwatched.wait().unwrap().code(), Some(4));
            assert_eq!(watched.wait().unwrap().code(), Some(3));
        }
    });
}

/// smol-rs/polling PR#164: an interrupted wait goes on against the same deadline: never early, never an error, and not
/// put off by the interruptions.
#[test]
fn i4_polling_pr_164_interrupted_waits_go_on_to_their_deadline() {
    let mut client = Setup::Own.client();
    let event = event_fd(0);
    let storm = Storm::over_this_thread();
    for _ in 0..2 {
        let started = Instant::now();
        assert!(client.wait_for(Duration::from_millis(250)).is_empty());
        assert!(started.elapsed() >= Duration::from_millis(250));
        let started = Instant::now();
        let mut entries = [WaitEntry::new(event.as_fd(), READABLE)];
        let deadline = Deadline::after(Duration::from_millis(250));
        assert_eq!(wait_many(&mut entries, Some(deadline)), Ok(None));
        assert!(started.elapsed() >= Duration::from_millis(250));
        client.set_timer(Duration::from_millis(100), 4).unwrap();
        assert_eq!(client.expect_event().token, 4);
        expect_alive(&mut client);
    }
    assert!(storm.end() > 100, "it was a storm");
}

/// niri-wm/niri PR#2055, rust-lang/rust#39185: the watcher blocks signals for its own thread only. The thread that spawns
/// it, and the programs started afterwards, have the mask they always had.
#[test]
fn i6_niri_pr_2055_masks_of_users_and_their_children_are_left_alone() {
    let blocked_in_a_program = || {
        let output = Command::new("grep").args(["SigBlk", "/proc/self/status"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let blocked_here = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("SigBlk:")).unwrap().to_owned()
    };
    let before = (blocked_here(), blocked_in_a_program());
    let client = Setup::Own.client();
    assert_eq!((blocked_here(), blocked_in_a_program()), before);
    let blocked = u64::from_str_radix(&thread_status(thread_id(client.thread_name()), "SigBlk"), 16).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGPIPE, libc::SIGSEGV] {
        assert_ne!(blocked & (1 << (signal - 1)), 0, "the watcher's thread takes signal {signal}");
    }
}

/// A child whose output this process has, not blocking.
fn shell(script: &str) -> (Child, ChildStdout) {
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = child.stdout.take().unwrap();
    set_nonblocking(&output);
    (child, output)
}

/// libuv/libuv#610, systemd/systemd#18190: what a child wrote before it ended is told before its end.
#[test]
fn i8_systemd_18190_the_last_words_of_a_child_come_before_its_end() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        for round in 0..20 {
            client.set_capacity(if round % 2 == 0 { 1 } else { 64 });
            let (mut child, output) = shell("echo line");
            let data = client.watch(&output, READABLE, mode, 1).unwrap();
            let process = ChildProcess::of(&child).unwrap();
            let end = client.watch_child(&process, 2).unwrap();
            let mut told: Vec<Event> = Vec::new();
            while !told.iter().any(|event| event.watch == end) {
                let events = client.wait_for(PROMPT);
                assert!(!events.is_empty(), "the end was not told");
                told.extend(events);
                if mode == Mode::Level {
                    // Read, so that what comes after the last words is not kept waiting by them.
                    read_all(&output);
                }
            }
            let first = told.iter().position(|event| event.satisfied.contains(READABLE)).unwrap();
            assert_eq!(told[first].watch, data, "round {round}: {told:#?}");
            client.unwatch(data).unwrap();
            client.unwatch(end).unwrap();
            child.wait().unwrap();
        }
    });
}

/// The end of a child is queued, and its last words wait for a watch that is armed only then: gives the tokens in the
/// order in which they are handed out, the words' 1 and the end's 2, again and again.
fn late_data_and_a_queued_end(client: &mut Client, rounds: usize) -> Vec<[u64; 2]> {
    let mut events = Events::with_capacity(64);
    let mut dice = Dice::new(0x18);
    let (mut child, output) = shell("echo words");
    let process = ChildProcess::of(&child).unwrap();
    child.wait().unwrap();
    let data = client.watch(&output, READABLE, Mode::Once, 1).unwrap();
    assert_eq!(client.wait(&mut events, Some(PROMPT)), Ok(1));
    let end = client.watch_child(&process, 2).unwrap();
    let mut orders = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        while client.client_stats().undelivered != 1 {
            assert!(started.elapsed() < PROMPT, "the end is not queued");
            thread::yield_now();
        }
        client.arm(data).unwrap();
        // The watcher is somewhere between finding the data and queueing it.
        dice.spin_below(Duration::from_micros(60));
        let mut told = Vec::new();
        while told.len() < 2 {
            assert!(client.wait(&mut events, Some(PROMPT)).unwrap() > 0, "only {told:?}");
            told.extend(tokens(events.as_slice()));
        }
        orders.push(told.try_into().unwrap());
        client.arm(end).unwrap();
    }
    client.unwatch(data).unwrap();
    client.unwatch(end).unwrap();
    orders
}

/// systemd/systemd#18190: the same when the end is queued first, and the watch for the data is armed after that.
#[test]
fn i8_systemd_18190_data_of_a_watch_armed_late_comes_before_a_queued_end() {
    in_each_setup(|setup| {
        let orders = late_data_and_a_queued_end(&mut setup.client(), 1500);
        let wrong = orders.iter().filter(|order| **order != [1, 2]).count();
        assert_eq!(wrong, 0, "data, then the end: wrong so often of {}", orders.len());
    });
}

/// systemd/systemd#18190: and also when the client spins before it parks, on the one processor that the watcher needs to
/// find the data.
#[test]
fn i8_systemd_18190_a_client_that_spins_is_told_of_the_data_first_too() {
    let allowed = sched_getaffinity(None).unwrap();
    let processor = (0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor)).unwrap();
    let mut only = CpuSet::new();
    only.set(processor);
    let run = || {
        sched_setaffinity(None, &only).unwrap();
        for front in [FrontPolicy::Off, FrontPolicy::Adaptive, FrontPolicy::Always] {
            let config = Config { affinity: Some(vec![processor]), ..Setup::Own.config() };
            let spins = ClientConfig { spin: Duration::from_micros(500), front };
            let mut client = Client::embedded_with(config, spins).unwrap();
            let orders = late_data_and_a_queued_end(&mut client, 50);
            assert!(orders.iter().all(|order| *order == [1, 2]), "{front:?}: data, then the end: {orders:?}");
        }
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}
