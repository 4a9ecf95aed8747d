//! C4e, C9a, C10b, C11d, C14c: isolates, by the thousand, on one watcher: nothing is lost and no descriptor is wasted.

mod program;

use program::{Outcome, Program};

const ISOLATES: &str = env!("CARGO_BIN_EXE_isolates");

/// The numbers of the line that starts so.
fn numbers(outcome: &Outcome, starting: &str) -> Vec<u64> {
    let line = outcome.output.lines().find(|line| line.starts_with(starting)).expect("such a line");
    let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
    words.filter_map(|word| word.parse().ok()).collect()
}

/// It ended well, and everything came once. Gives how many descriptors the watcher and its clients took.
#[track_caller]
fn assert_complete(outcome: &Outcome, isolates: u64) -> u64 {
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.errors, "");
    assert_eq!(numbers(outcome, "the token")[..2], [20, 20 * isolates]);
    assert_eq!(numbers(outcome, "every isolate's timer"), [isolates]);
    let found = numbers(outcome, "the watcher found")[0];
    assert!(found >= 20 * isolates, "each hop was told: {outcome:?}");
    let descriptors = outcome.output.lines().find(|line| line.contains(" descriptors: "));
    let descriptors = numbers(outcome, descriptors.expect("it tells its descriptors"));
    assert_eq!(descriptors[1], 3 * isolates);
    descriptors[2]
}

#[test]
fn a_thousand_share_one_watcher_at_no_descriptor_each() {
    let of_thousand = assert_complete(&Program::start(ISOLATES, &[]).wait(), 1000);
    let of_one = assert_complete(&Program::start(ISOLATES, &["1"]).wait(), 1);
    assert_eq!(of_thousand, of_one, "what the watcher and its clients take does not grow with them");
}

#[test]
fn a_low_limit_of_descriptors_is_raised_or_told() {
    let limited =
        |limit: &str| Program::start("sh", &["-c", &format!("ulimit {limit}; exec {ISOLATES} 200")]).wait();
    assert_complete(&limited("-S -n 128"), 200);
    let outcome = limited("-n 128");
    assert!(!outcome.status.success() && outcome.errors.contains("try 32"), "{outcome:?}");
}
