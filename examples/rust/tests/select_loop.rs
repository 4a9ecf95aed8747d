//! C3c, C4a, C9d, C10b: select_loop takes every job and every request once, in order, and its timer beside them.

mod program;

use std::time::{Duration, Instant};

use program::Program;

#[test]
fn jobs_requests_and_a_timer_come_through_one_select() {
    let began = Instant::now();
    let outcome = Program::start(env!("CARGO_BIN_EXE_select_loop"), &[]).wait();
    let elapsed = began.elapsed();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.errors, "");
    let starting =
        |word: &str| -> Vec<&str> { outcome.output.lines().filter(|line| line.starts_with(word)).collect() };
    let squares = (1..=5).map(|number| format!("job {number}: squared {}", number * number));
    assert!(squares.eq(starting("job")), "{outcome:?}");
    let cubes = (1..=5).map(|number| format!("request {number}: cubed {}", number * number * number));
    assert!(cubes.eq(starting("request")), "{outcome:?}");

    let last = outcome.output.lines().last().expect("it says how often its timer came");
    let ticks = last.strip_suffix(" ticks of 30ms meanwhile").expect("ticks");
    let ticks: u32 = ticks.parse().expect("a number");
    assert!(ticks > 0 && Duration::from_millis(30) * ticks <= elapsed, "{ticks} ticks in {elapsed:?}");
}
