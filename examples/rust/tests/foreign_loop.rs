//! C1g, C3d, C9b, C9c, C10b, C11c: foreign_loop takes our events out of somebody else's event loop, one at a time.

mod program;

use std::time::{Duration, Instant};

use program::Program;

#[test]
fn a_child_its_output_and_both_timers_come_through_one_loop() {
    let began = Instant::now();
    let outcome = Program::start(env!("CARGO_BIN_EXE_foreign_loop"), &[]).wait();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.errors, "");
    assert!(began.elapsed() >= Duration::from_millis(90), "the child takes that long: {outcome:?}");

    let (timer, child): (Vec<&str>, Vec<&str>) =
        outcome.output.lines().partition(|line| line.starts_with("a timer of ours"));
    assert_eq!(timer, ["a timer of ours after 50ms"]);
    assert_eq!(
        child[..4],
        [
            "the child says: one",
            "the child says: two",
            "the child says: three",
            "the child has ended: exit status: 7",
        ]
    );
    let frames = child[4].strip_prefix("the loop went on meanwhile: its own timer came ");
    let frames = frames.and_then(|rest| rest.strip_suffix(" times")).expect("the loop's own timer");
    assert!(frames.parse::<u32>().is_ok_and(|frames| frames > 0), "{outcome:?}");
}
