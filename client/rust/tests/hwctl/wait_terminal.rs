//! The progress line of `hwctl wait` on a terminal.

use std::process::Stdio;

use crate::folder::{Folder, write};
use crate::program::command;
use crate::screen::Screen;

#[test]
fn a_terminal_shows_what_is_missing_and_is_left_clean() {
    let folder = Folder::new();
    let path = folder.source("path", "new");
    let mut command = command(&["wait", "--all", "timer:0s", &path, "fd:0"]);
    let mut screen = Screen::run(command.stdin(Stdio::piped()), 150, 5, true);
    screen.expect_text(&format!("1 of 3 came; waiting for {path} (not there), fd:0"));
    screen.expect("it is drawn again while nothing happens", |contents| {
        contents
            .split("s:")
            .next()
            .is_some_and(|seconds| seconds.parse().is_ok_and(|seconds: u32| seconds > 0))
    });
    write(&folder.path("new"), "");
    screen.expect_text("2 of 3 came; waiting for fd:0");
    screen.close_input();
    let (ended, contents) = screen.finish();
    let came: Vec<_> = ended.came().into_iter().map(|(_, what)| what).collect();
    assert_eq!((ended.code(), came), (0, vec!["expired", "exists", "peer-closed"]));
    assert_eq!(contents.trim(), "", "the line is taken away");
}

#[test]
fn the_line_makes_room_for_a_message() {
    let mut screen = Screen::run(&mut command(&["wait", "--timeout", "50ms", "timer:1h"]), 100, 5, true);
    screen.expect_text("still missing: timer:1h");
    let (ended, contents) = screen.finish();
    ended.expect_code(124);
    assert!(contents.starts_with("hwctl: nothing more came within"), "{contents}");
}

#[test]
fn a_long_line_is_cut_at_the_edge() {
    let long = format!("path:/nowhere/{}", "x".repeat(300));
    let mut command = command(&["wait", &long, "fd:0"]);
    let mut screen = Screen::run(command.stdin(Stdio::piped()), 30, 5, true);
    screen.expect("one line", |contents| {
        contents.contains("s: waiting for path:/") && contents.trim_end().ends_with('…')
    });
    assert_eq!(screen.contents().trim().lines().count(), 1);
    screen.close_input();
    let (ended, contents) = screen.finish();
    ended.expect_code(0);
    assert_eq!(contents.trim(), "", "the line is taken away");
}
