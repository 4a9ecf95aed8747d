//! `hwctl top` in a real terminal.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::fake::{Fake, Manner};
use crate::folder::Folder;
use crate::program::{Running, command};
use crate::screen::Screen;

struct Top {
    folder: Folder,
    fake: Option<Fake>,
}

impl Top {
    fn new() -> Self {
        let folder = Folder::new();
        let fake = Fake::start(&folder.path("service"), Manner::Good);
        Self { folder, fake: Some(fake) }
    }

    #[track_caller]
    fn show(&self, columns: u16, lines: u16) -> Screen {
        let path = self.folder.path("service");
        let arguments = ["top", "--interval", "60ms", "--socket", path.to_str().expect("text")];
        Screen::run(&mut command(&arguments), columns, lines, false)
    }
}

/// Part of every screen that is wide enough.
const QUITS: &str = "q quits";

#[test]
fn the_screen_shows_sessions_watches_rates_and_histograms() {
    let top = Top::new();
    let mut screen = top.show(80, 24);
    screen.expect_text("sessions 2  watches 12  timers 10");
    // 3000 events of a session for each 1000 of fronts.
    screen.expect("three quarters from the back", |contents| {
        contents.contains("(25%)  back") && contents.contains("(75%)")
    });
    let has_rates = |contents: &str| {
        let rate = contents.lines().find_map(|line| line.strip_prefix("events ")?.split("/s").next());
        rate.is_some_and(|rate| !rate.is_empty() && rate != "0.0")
    };
    screen.expect("a rate of events", has_rates);
    screen.expect("the busiest session first", |contents| {
        let place = |text: &str| contents.find(text);
        matches!((place("4712"), place("4711")), (Some(busy), Some(quiet)) if busy < quiet)
    });
    screen.expect("the busiest watch first", |contents| {
        let kinds = ["pipe", "socket", "eventfd"].map(|kind| contents.find(&format!("  {kind}")));
        kinds.iter().all(Option::is_some) && kinds.is_sorted()
    });
    screen.expect("how many were ready: class 3", |contents| {
        let line = contents.lines().find(|line| line.contains(" 4-7 "));
        line.is_some_and(|line| line.contains('█'))
    });
    screen.expect("how long answers took", |contents| {
        let after = contents.split("round trip, us").nth(1);
        after.is_some_and(|after| after.contains('█'))
    });
    screen.press("q");
    assert_eq!(screen.finish_restored().code(), Some(0));
    assert_eq!(top.fake.as_ref().expect("it runs").faults(), [""; 0]);
}

#[test]
fn names_cannot_reach_the_terminal() {
    let top = Top::new();
    let mut screen = top.show(120, 30);
    screen.expect_text("evil\\u{1b}[2J\\u{9b}2J\\n\\u{202e}name");
    screen.press("q");
    screen.finish_restored();
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let top = Top::new();
    let mut screen = top.show(80, 24);
    screen.expect_text("ready per wait");
    screen.resize(50, 20);
    screen.expect("no side", |contents| !contents.contains("ready per wait") && contents.contains(QUITS));
    screen.resize(120, 40);
    screen.expect("a wide screen", |contents| {
        let lines: Vec<&str> = contents.lines().collect();
        contents.contains("ready per wait") && lines.get(39).is_some_and(|line| line.starts_with(QUITS))
    });
    screen.resize(20, 5);
    screen.expect("a small screen", |contents| {
        contents.lines().nth(4).is_some_and(|line| line.starts_with(QUITS))
    });
    screen.resize(1, 1);
    screen.resize(80, 24);
    screen.expect_text("ready per wait");
    screen.press("\u{1b}");
    assert_eq!(screen.finish_restored().code(), Some(0));
}

#[test]
fn it_starts_in_a_tiny_terminal() {
    let top = Top::new();
    let mut screen = top.show(20, 5);
    screen.expect_text(QUITS);
    screen.press("x");
    screen.press("\u{3}");
    assert_eq!(screen.finish_restored().code(), Some(0), "Control and C end it");
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_restored() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let top = Top::new();
        let mut screen = top.show(80, 24);
        screen.expect_text(QUITS);
        screen.signal(signal);
        assert_eq!(screen.finish_restored().signal(), Some(signal.as_raw()));
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let top = Top::new();
    let mut screen = top.show(80, 24);
    screen.expect_text(QUITS);
    let status = screen.hang_up();
    // The signal and the failure to draw race.
    assert!(status.signal() == Some(Signal::HUP.as_raw()) || status.code() == Some(1), "{status:?}");
}

#[test]
fn a_service_that_goes_is_missed_and_found_again() {
    let mut top = Top::new();
    let mut screen = top.show(100, 24);
    screen.expect_text("sessions 2");
    top.fake = None;
    screen.expect_text("UNAVAILABLE");
    // What was seen last stays.
    screen.expect_text("sessions 2");
    top.fake = Some(Fake::start(&top.folder.path("service"), Manner::Good));
    screen.expect("found again", |contents| contents.contains(QUITS) && !contents.contains("UNAVAILABLE"));
    screen.press("q");
    assert_eq!(screen.finish_restored().code(), Some(0));
}

#[test]
fn without_a_terminal_or_a_service_it_says_so() {
    let top = Top::new();
    let path = top.folder.path("service");
    let ended = Running::start(&mut command(&["top", "--socket", path.to_str().expect("text")])).finish();
    assert!(ended.code() == 1 && ended.errors.contains("hwctl stats"), "{ended:?}");
    let mut screen = Screen::run(&mut command(&["top", "--socket", "@hwctl-nobody"]), 150, 24, false);
    screen.expect_text("UNAVAILABLE");
    assert_eq!(screen.finish_restored().code(), Some(69));
}
