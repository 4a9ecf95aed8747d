//! `hwctl ping`, `stats`, `sessions` and `kill`, and what they make of a service that misbehaves.

use crate::fake::{Fake, Manner, NASTY};
use crate::folder::Folder;
use crate::program::{Ended, Running, command, run};

/// Asks a service of some manner.
#[track_caller]
fn ask(manner: Manner, arguments: &[&str]) -> (Ended, Fake) {
    let folder = Folder::new();
    let path = folder.path("service");
    let fake = Fake::start(&path, manner);
    let mut arguments = arguments.to_vec();
    let socket = path.to_str().expect("text");
    arguments.extend(["--socket", socket]);
    let ended = run(&arguments);
    assert_eq!(fake.faults(), [""; 0]);
    // What is on a terminal must not be obeyed by it.
    assert!(!ended.output.chars().any(|character| character.is_control() && character != '\n'), "{ended:?}");
    assert!(!ended.errors.chars().any(|character| character.is_control() && character != '\n'), "{ended:?}");
    (ended, fake)
}

#[test]
fn a_ping_says_who_answered() {
    let (ended, fake) = ask(Manner::Good, &["ping"]);
    assert!(ended.code() == 0 && ended.output.contains(" answers in "), "{ended:?}");
    assert!(ended.output.contains("protocol version 1, session 9"), "{ended:?}");
    assert_eq!(fake.names(), ["hwctl"]);
    ask(Manner::Slow, &["ping"]).0.expect_code(0);
}

#[test]
fn counters_are_lines_or_one_object() {
    let ended = ask(Manner::Good, &["stats"]).0.expect_code(0);
    let find = |name: &str| {
        let mut lines = ended.output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words[0] == name).unwrap_or_else(|| panic!("{name}: {ended:?}"))[1].to_owned()
    };
    assert_eq!((find("turns"), find("ready_per_wait_3")), ("10".to_owned(), "7".to_owned()));
    let objects = ask(Manner::Good, &["stats", "--json"]).0.expect_code(0).objects();
    assert_eq!(objects.len(), 1);
    assert_eq!((&objects[0]["turns"], &objects[0][NASTY]), (&10.into(), &1.into()));
    assert_eq!(objects[0]["largest"], u64::MAX);
}

#[test]
fn sessions_are_a_table_or_an_object_each() {
    let ended = ask(Manner::Good, &["sessions"]).0.expect_code(0);
    let lines: Vec<&str> = ended.output.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("SESSION"), "{ended:?}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words, ["1", "4711", "1000", "1m30s", "2", "5", "0", "77", "8", "quiet"]);
    assert!(lines[2].ends_with("evil\\u{1b}[2J\\u{9b}2J\\n\\u{202e}name"), "{ended:?}");
    let objects = ask(Manner::Good, &["sessions", "--json"]).0.expect_code(0).objects();
    assert_eq!((&objects[0]["name"], &objects[1]["name"]), (&"quiet".into(), &NASTY.into()));
    assert_eq!(objects[0]["age_ns"], 90_000_000_000_u64);
}

#[test]
fn a_session_is_killed_and_a_missing_one_is_not_found() {
    let (ended, fake) = ask(Manner::Good, &["kill", "2"]);
    assert_eq!((ended.code(), ended.output.as_str(), fake.killed()), (0, "", vec![2]));
    let (ended, fake) = ask(Manner::Good, &["kill", "99"]);
    assert!(ended.code() == 1 && ended.errors.contains("NOT_FOUND: there is no session 99"), "{ended:?}");
    assert!(fake.killed().is_empty());
    ask(Manner::Good, &["kill", "x"]).0.expect_code(2);
}

#[test]
fn a_service_that_misbehaves_is_told_from_one_that_is_not_there() {
    for (manner, code, said) in [
        (Manner::Silent, 69, "does not answer within 5 s"),
        (Manner::Closing, 69, "it closed the connection"),
        (Manner::Refusing, 1, "RESOURCE_EXHAUSTED: too many sessions of user 0"),
        (Manner::WithoutEvents, 1, "no event socket"),
        (Manner::Boastful, 1, "4096 is the limit"),
        (Manner::Confused, 1, "was answered where"),
    ] {
        let ended = ask(manner, &["ping"]).0.expect_code(code);
        assert!(ended.errors.contains(said) && ended.output.is_empty(), "{manner:?}: {ended:?}");
    }
}

#[test]
fn nobody_listens() {
    let folder = Folder::new();
    let path = folder.path("nobody");
    let socket = path.to_str().expect("text");
    for verb in [&["ping"][..], &["stats"], &["sessions"], &["kill", "1"]] {
        let mut arguments = verb.to_vec();
        arguments.extend(["--socket", socket]);
        let ended = run(&arguments).expect_code(69);
        assert!(ended.errors.contains("UNAVAILABLE") && ended.errors.contains(socket), "{ended:?}");
        assert!(ended.errors.contains("nobody listens"), "{ended:?}");
    }
    // A socket whose service has died.
    drop(folder.listen("nobody"));
    run(&["ping", "--socket", socket]).expect_code(69);
    let long = "x".repeat(200);
    let ended = run(&["ping", "--socket", &long]).expect_code(1);
    assert!(ended.errors.contains("107 is the most"), "{ended:?}");
}

#[test]
fn the_socket_comes_from_the_option_then_from_the_environment() {
    let folder = Folder::new();
    let _fake = Fake::start(&folder.path("handle-watcher.sock"), Manner::Good);
    let path = folder.path("handle-watcher.sock");
    let ended = Running::start(command(&["ping"]).env("HANDLE_WATCHER_SOCKET", &path)).finish();
    ended.expect_code(0);
    let ended = Running::start(command(&["ping"]).env("XDG_RUNTIME_DIR", folder.path(""))).finish();
    ended.expect_code(0);
    let mut wrong = command(&["ping", "--socket", "@hwctl-nobody"]);
    let ended = Running::start(wrong.env("HANDLE_WATCHER_SOCKET", &path)).finish().expect_code(69);
    assert!(ended.errors.contains("@hwctl-nobody"), "{ended:?}");
    let ended = Running::start(&mut command(&["ping"])).finish();
    assert!(ended.errors.is_empty() || ended.errors.contains("/run/handle-watcher.sock"), "{ended:?}");
}
