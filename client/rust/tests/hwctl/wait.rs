//! `hwctl wait` for descriptors, processes and timers; its options, its output and its exit status.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::folder::{Folder, write};
use crate::program::{Running, command, ended_by, run};

/// Waits for its pipe on stdin, and for a connection that says that everything before it is being waited for.
struct Piped {
    folder: Folder,
}

impl Piped {
    fn new() -> Self {
        Self { folder: Folder::new() }
    }

    /// Starts `wait --all SOURCES… unix:…` and returns once every source before the last is being waited for.
    #[track_caller]
    fn start(&self, arguments: &[&str]) -> Running {
        let listener = self.folder.listen("begun");
        let begun = self.folder.source("unix", "begun");
        let mut all = vec!["wait", "--all"];
        all.extend(arguments);
        all.push(&begun);
        let running = Running::start(command(&all).stdin(Stdio::piped()));
        listener.accept().expect("it connects when it has begun");
        running
    }
}

#[test]
fn a_timer_is_never_early_and_says_what_came() {
    let ended = run(&["wait", "timer:60ms"]).expect_code(0);
    assert_eq!(ended.came(), [("timer:60ms", "expired")]);
    assert!(ended.took >= Duration::from_millis(60), "{ended:?}");
    assert_eq!(ended.errors, "");
}

#[test]
fn json_is_an_object_for_each_line() {
    let ended = run(&["wait", "--json", "--all", "timer:20ms", "timer:0s"]).expect_code(0);
    let objects = ended.objects();
    assert_eq!(objects.len(), 2, "{ended:?}");
    assert_eq!((&objects[0]["source"], &objects[0]["what"]), (&"timer:0s".into(), &"expired".into()));
    assert_eq!(objects[1]["source"], "timer:20ms");
    assert!(objects[1]["after_ns"].as_u64().expect("a number") >= 20_000_000, "{ended:?}");
}

#[test]
fn data_in_a_pipe_and_its_end_are_told() {
    let piped = Piped::new();
    let mut running = piped.start(&["fd:0"]);
    running.write("x");
    let ended = running.finish().expect_code(0);
    assert_eq!(ended.came()[1], ("fd:0", "readable"));
    let piped = Piped::new();
    let mut running = piped.start(&["fd:0"]);
    running.close_input();
    assert_eq!(running.finish().expect_code(0).came()[1], ("fd:0", "peer-closed"));
}

#[test]
fn nothing_is_read_from_the_pipe() {
    // The shell reads after hwctl what was there before it.
    let script = format!("printf abc | {{ {} wait fd:0 >&2; cat; }}", env!("CARGO_BIN_EXE_hwctl"));
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    assert_eq!(output.stdout, b"abc");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("fd:0\treadable"), "{output:?}");
}

#[test]
fn what_holds_already_comes_with_no_time_at_all() {
    let mut running = Running::start(command(&["wait", "--timeout", "0s", "fd:0"]).stdin(Stdio::piped()));
    running.close_input();
    // The end may come after the look, which then has to say so.
    let ended = running.finish();
    assert!(matches!((ended.code(), ended.output.is_empty()), (0, false) | (124, true)), "{ended:?}");
    run(&["wait", "--timeout", "0s", "timer:0s"]).expect_code(0);
    run(&["wait", "--timeout", "0s", "timer:1h"]).expect_code(124);
}

#[test]
fn a_file_and_a_number_that_is_not_open_are_refused() {
    let folder = Folder::new();
    write(&folder.path("file"), "text");
    let file = File::open(folder.path("file")).expect("a file");
    let ended = Running::start(command(&["wait", "fd:0"]).stdin(file)).finish().expect_code(1);
    assert!(
        ended.errors.contains("FAILED_PRECONDITION") && ended.errors.contains("regular file"),
        "{ended:?}"
    );
    // Numbers that hwctl itself opens later, too. The shell closes what the runner of the tests may have left open.
    for number in 3..=7 {
        let script =
            format!("exec {number}>&-; exec {} wait --timeout 1s fd:{number}", env!("CARGO_BIN_EXE_hwctl"));
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(&format!("fd:{number} is not open")), "{errors}");
    }
}

#[test]
fn the_end_of_a_process_is_told() {
    let piped = Piped::new();
    let mut child = Command::new("sleep").arg("1000").spawn().expect("a child");
    let source = format!("pid:{}", child.id());
    let mut running = piped.start(&[&source]);
    running.expect_running();
    child.kill().expect("our child");
    // Before its exit status is collected, and without taking it away.
    assert_eq!(running.finish().expect_code(0).came()[1], (source.as_str(), "ended"));
    assert_eq!(ended_by(child.wait().expect("its exit status is still ours")), Some(9));
    assert_eq!(run(&["wait", &source]).expect_code(0).came(), [(source.as_str(), "absent")]);
}

#[test]
fn a_process_that_has_ended_and_was_not_collected_has_ended() {
    let mut child = Command::new("true").spawn().expect("a child");
    let source = format!("pid:{}", child.id());
    assert_eq!(run(&["wait", &source]).expect_code(0).came(), [(source.as_str(), "ended")]);
    child.wait().expect("our child");
}

#[test]
fn any_ends_with_the_first_and_all_with_the_last() {
    for any in [&["wait"][..], &["wait", "--any"]] {
        let mut arguments = any.to_vec();
        arguments.extend(["timer:1h", "timer:20ms", "path:/nowhere/at/all"]);
        assert_eq!(run(&arguments).expect_code(0).came(), [("timer:20ms", "expired")]);
    }
    let ended = run(&["wait", "--all", "timer:40ms", "timer:10ms", "timer:40ms"]).expect_code(0);
    let sources = ended.came().into_iter().map(|(source, _)| source).collect::<Vec<_>>();
    assert_eq!(sources, ["timer:10ms", "timer:40ms", "timer:40ms"]);
    run(&["wait", "--all", "--any", "timer:0s"]).expect_code(2);
}

#[test]
fn a_timeout_has_its_own_status_and_names_what_is_missing() {
    let ended = run(&["wait", "--timeout", "50ms", "--all", "timer:1ms", "path:/nowhere/\u{1b}[2J"]);
    let ended = ended.expect_code(124);
    assert!(ended.took >= Duration::from_millis(50), "{ended:?}");
    assert_eq!(ended.came(), [("timer:1ms", "expired")]);
    assert!(ended.errors.contains("path:/nowhere/\\u{1b}[2J (not there)"), "{ended:?}");
}

#[test]
fn bad_words_are_refused_by_name() {
    for (arguments, named) in [
        (&["wait", "timer:5"][..], "\"timer:5\""),
        (&["wait", "--timeout", "1,5s", "timer:1s"], "\"1,5s\""),
        (&["wait", "file:/x"], "\"file:/x\""),
        (&["wait"], "<SOURCE>"),
        (&["sleep"], "sleep"),
    ] {
        let ended = run(arguments).expect_code(2);
        assert!(ended.errors.contains(named), "{ended:?}");
    }
}

#[test]
fn signals_end_it_as_they_end_any_program() {
    for signal in [Signal::INT, Signal::TERM] {
        let running = Piped::new().start(&["timer:1h"]);
        running.signal(signal);
        assert_eq!(ended_by(running.finish().status), Some(signal.as_raw()));
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let mut running = Running::start(command(&["wait", "--all", "timer:1ms", "fd:0"]).stdin(Stdio::piped()));
    running.close_output();
    running.write("x");
    let ended = running.finish().expect_code(0);
    assert_eq!(ended.errors, "");
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let ended = Running::start(command(&["wait", "timer:1ms"]).stdout(full)).finish().expect_code(1);
    assert!(ended.errors.contains("No space left"), "{ended:?}");
}

#[test]
fn help_and_version_are_complete() {
    let help = run(&["--help"]).expect_code(0).output;
    for verb in ["ping", "stats", "sessions", "kill", "top", "wait"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{help}");
        let help = run(&[verb, "--help"]).expect_code(0).output;
        assert!(help.contains("Exit status:") && help.contains("124"), "{help}");
        assert!(verb == "wait" || help.contains("HANDLE_WATCHER_SOCKET"), "{help}");
    }
    let help = run(&["wait", "--help"]).expect_code(0).output;
    for word in ["fd:0", "pid:123", "path:/x", "tcp:host:port", "unix:path", "timer:5s", "--any", "--all"] {
        assert!(help.contains(word), "{help}");
    }
    assert_eq!(run(&["--version"]).output, concat!("hwctl ", env!("CARGO_PKG_VERSION"), "\n"));
}
