//! C3b, C5c, C9d, C10b, C14a: async_tasks awaits sockets, timers and a stream of events, to their ends.

mod program;

use std::time::{Duration, Instant};

use program::Program;

#[test]
fn every_task_gets_what_it_waits_for() {
    let began = Instant::now();
    let outcome = Program::start(env!("CARGO_BIN_EXE_async_tasks"), &[]).wait();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.errors, "");
    assert!(began.elapsed() >= Duration::from_millis(80), "three ticks, then a timer: {outcome:?}");

    let mut lines: Vec<&str> = outcome.output.lines().collect();
    let stream = lines.split_off(lines.len().saturating_sub(4));
    assert_eq!(
        stream,
        [
            "the stream gave a timer",
            "the stream gave a pipe that is READABLE",
            "the stream gave an end: ABORTED: the watch ended because the watcher was stopped",
            "the stream has ended",
        ]
    );
    // The tasks run side by side; each has its own order.
    let (clock, echo): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("tick"));
    assert_eq!(clock, ["tick 1", "tick 2", "tick 3"]);
    assert_eq!(
        echo[..4],
        [
            "the echo says: hello",
            "the echo says: is there anybody",
            "the echo says: good bye",
            "the echo has ended after 29 bytes",
        ]
    );
    assert!(echo.len() == 5 && echo[4].starts_with("the clock has ended after"), "{outcome:?}");
}
