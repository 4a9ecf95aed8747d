//! C1, C3, C5, C7, C9a, C10, C11c, C16: the tour ends well, and notices each way in which its input goes wrong.

mod program;

use std::path::Path;

use program::{Outcome, Program};

const TOUR: &str = env!("CARGO_BIN_EXE_tour");

/// The tour with a helper that misbehaves.
fn misbehaving(scene: &str) -> Outcome {
    Program::start_with(TOUR, &[], &[("HANDLE_WATCHER_TOUR_MISBEHAVE", scene)]).wait()
}

/// It ended with 1 and said that this scene is wrong, why, and that the others are right.
#[track_caller]
fn assert_only_wrong(outcome: &Outcome, scene: &str, why: &str) {
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.output);
    let wrong: Vec<&str> = outcome.output.lines().filter(|line| line.trim_start().starts_with('✗')).collect();
    assert!(wrong.len() == 1 && wrong[0].contains(scene), "{wrong:?}\n{}", outcome.output);
    assert!(outcome.output.contains(why), "{}", outcome.output);
}

#[test]
fn all_is_well() {
    let outcome = Program::start(TOUR, &[]).wait();
    assert_eq!(outcome.status.code(), Some(0), "{}\n{}", outcome.output, outcome.errors);
    // `make test` builds the service's program, too; the examples' tests alone do not.
    let has_service = Path::new(TOUR).with_file_name("handle-watcherd").exists();
    assert_eq!(outcome.output.matches('✓').count(), if has_service { 9 } else { 8 }, "{}", outcome.output);
    assert_eq!(outcome.output.contains("ended with UNAVAILABLE"), has_service, "{}", outcome.output);
    assert_eq!(outcome.output.matches("from the front: it has moved").count(), 1, "{}", outcome.output);
    let (_, table) = outcome.output.split_once("One message").expect("a table of round trips");
    let rows = ["epoll, no watcher", "back, Once", "back, Edge", "front, Once", "front, Level"];
    assert!(rows.iter().all(|row| table.contains(row)), "{table}");
    assert_eq!(table.matches(" µs").count(), 2 * rows.len(), "{table}");
    assert!(!outcome.output.contains('\x1b'), "colours are for terminals");
    assert_eq!(outcome.errors, "");
}

#[test]
fn a_changed_byte_is_noticed() {
    let outcome = misbehaving("connections");
    // Byte 100 of message 3.
    assert_only_wrong(&outcome, "connections", "connection 42: byte 1636 is");
}

#[test]
fn a_lost_byte_is_noticed() {
    assert_only_wrong(&misbehaving("terminal"), "terminal", "65535 of 65536 bytes");
}

#[test]
fn something_nobody_expects_is_noticed() {
    assert_only_wrong(&misbehaving("file"), "file", "one line too many");
}

#[test]
fn a_missing_event_is_noticed() {
    assert_only_wrong(&misbehaving("child"), "child", "an event is missing");
}

#[test]
fn a_watch_that_never_moves_to_the_front_is_noticed() {
    assert_only_wrong(&misbehaving("front"), "front", "still in the back after 8 rounds");
}

#[test]
fn without_the_services_program_it_says_how_to_build_it() {
    // The same program in a folder where nothing is beside it.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tour-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let tour = folder.join("tour");
    std::fs::hard_link(TOUR, &tour).expect("a second name");
    let outcome = Program::start(tour.to_str().expect("a readable path"), &[]).wait();
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
    assert_eq!(outcome.status.code(), Some(0), "{}\n{}", outcome.output, outcome.errors);
    assert_eq!(outcome.output.matches('✓').count(), 8, "{}", outcome.output);
    assert!(outcome.output.contains("-p handle-watcher --features daemon"), "{}", outcome.output);
}

#[test]
fn a_wrong_word_through_the_service_is_noticed() {
    if Path::new(TOUR).with_file_name("handle-watcherd").exists() {
        assert_only_wrong(&misbehaving("service"), "service", "HELLO THROUGH A PIPE");
    }
}

#[test]
fn help_and_wrong_arguments() {
    let outcome = Program::start(TOUR, &["--help"]).wait();
    assert!(outcome.status.success() && outcome.output.contains("Usage: tour"), "{outcome:?}");
    let outcome = Program::start(TOUR, &["north"]).wait();
    assert!(outcome.status.code() == Some(1) && outcome.errors.contains("north"), "{outcome:?}");
}

#[test]
fn the_log_goes_to_the_error_output() {
    let variables =
        [("HANDLE_WATCHER_LOG", "handle_watcher=info"), ("HANDLE_WATCHER_TOUR_MISBEHAVE", "terminal")];
    let outcome = Program::start_with(TOUR, &[], &variables).wait();
    assert!(outcome.errors.contains("handle_watcher::watcher"), "{}", outcome.errors);
    assert!(!outcome.errors.contains('\x1b'), "colours are for terminals: {}", outcome.errors);
    assert!(!outcome.output.contains("handle_watcher::watcher"), "{}", outcome.output);
}
