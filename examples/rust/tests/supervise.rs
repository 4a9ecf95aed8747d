//! C1g, C10b, C11c: supervise runs real commands that succeed, crash, and have last words.

mod program;

use std::time::{Duration, Instant};

use program::{Outcome, Program};

/// Runs a shell command under supervision, its outputs merged as they were written.
fn supervise(options: &[&str], script: &str) -> Outcome {
    let mut arguments = options.to_vec();
    arguments.extend(["sh", "-c", script]);
    Program::start_merged(env!("CARGO_BIN_EXE_supervise"), &arguments).wait()
}

#[test]
fn a_command_that_succeeds_runs_once() {
    let outcome = supervise(&[], "echo one; echo two >&2; sleep 0.05; printf 'no end of line'");
    assert!(outcome.status.success());
    let mut lines: Vec<&str> = outcome.output.lines().collect();
    assert_eq!(lines.pop(), Some("supervise: sh ended, exit status: 0"));
    lines.sort_unstable();
    assert_eq!(lines, ["no end of line", "one", "two"]);
}

#[test]
fn a_command_that_crashes_runs_again_after_the_delay_and_not_for_ever() {
    let began = Instant::now();
    let outcome = supervise(&["--restarts", "2", "--delay-ms", "80"], "echo working; exit 3");
    assert!(began.elapsed() >= Duration::from_millis(160), "two delays");
    assert_eq!(outcome.status.code(), Some(1));
    assert_eq!(outcome.output, "working\nsupervise: sh ended, exit status: 3\n".repeat(3));
}

#[test]
fn a_command_that_recovers_is_left_alone() {
    let marker = std::env::temp_dir().join(format!("handle-watcher-supervise-{}", std::process::id()));
    let path = marker.to_str().expect("a readable path");
    let script = format!("if [ -e {path} ]; then echo well; else : > {path}; echo ill; kill -9 $$; fi");
    let outcome = supervise(&["--delay-ms", "1"], &script);
    std::fs::remove_file(&marker).expect("the first run made it");
    assert!(outcome.status.success());
    let lines: Vec<&str> = outcome.output.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!((lines[0], lines[2]), ("ill", "well"));
    assert!(lines[1].contains("signal: 9"), "{lines:?}");
}

#[test]
fn the_end_is_told_after_the_last_of_much_output() {
    let outcome = supervise(&["--restarts", "0"], "seq 1 30000; exit 1");
    let mut lines: Vec<&str> = outcome.output.lines().collect();
    assert_eq!(lines.pop(), Some("supervise: sh ended, exit status: 1"));
    assert!(
        lines.iter().copied().eq((1..=30_000).map(|line| line.to_string())),
        "a line is missing or moved"
    );
}

#[test]
fn a_line_that_does_not_end_is_forwarded_all_the_same() {
    let outcome = supervise(&["--restarts", "0"], "head -c 3000000 /dev/zero | tr '\\0' x");
    assert!(outcome.status.success());
    let (line, rest) = outcome.output.split_once('\n').expect("a line");
    assert!(line.len() == 3_000_000 && line.bytes().all(|byte| byte == b'x'), "{} bytes came", line.len());
    assert_eq!(rest, "supervise: sh ended, exit status: 0\n");
}

#[test]
fn somebody_who_keeps_the_output_open_does_not_hide_the_end() {
    let began = Instant::now();
    let outcome = supervise(&["--restarts", "0"], "sleep 20 & echo gone; exit 1");
    assert_eq!(outcome.output, "gone\nsupervise: sh ended, exit status: 1\n");
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for the background process");
}

#[test]
fn a_command_that_does_not_exist_is_told() {
    let supervise = env!("CARGO_BIN_EXE_supervise");
    let outcome = Program::start(supervise, &["handle-watcher-no-such-command"]).wait();
    assert!(!outcome.status.success() && outcome.errors.contains("cannot be run"), "{outcome:?}");
    let outcome = Program::start(supervise, &["--restarts", "1"]).wait();
    assert!(!outcome.status.success() && outcome.errors.contains("usage"), "{outcome:?}");
}
