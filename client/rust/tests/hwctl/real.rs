//! `hwctl` and the real service.

use std::path::PathBuf;
use std::time::Instant;

use handle_watcher::{Config, Service, ServiceConfig, Watcher};
use handle_watcher_client::Code;

use crate::PROMPT;
use crate::folder::Folder;
use crate::program::{Ended, command, run};
use crate::remote::{Remote, WATCH};
use crate::screen::Screen;

/// A service in this process. It goes before its watcher and its folder.
struct Real {
    service: Service,
    _watcher: Watcher,
    folder: Folder,
}

impl Real {
    fn start() -> Self {
        let folder = Folder::new();
        let watcher = Watcher::spawn(Config::default()).expect("a watcher");
        let path = folder.path("service");
        let service = Service::bind(&watcher, path.to_str().expect("text"), ServiceConfig::default());
        Self { service: service.expect("a service"), _watcher: watcher, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path("service")
    }

    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> Ended {
        let path = self.path();
        let mut arguments = arguments.to_vec();
        arguments.extend(["--socket", path.to_str().expect("text")]);
        run(&arguments)
    }

    /// The number of the session of that name.
    #[track_caller]
    fn find(&self, name: &str) -> Option<String> {
        let sessions = self.ask(&["sessions", "--json"]).expect_code(0).objects();
        let found = sessions.iter().find(|session| session["name"] == name)?;
        Some(found["session"].to_string())
    }
}

#[test]
fn it_answers_counts_and_lists() {
    let real = Real::start();
    real.ask(&["ping"]).expect_code(0);
    let remote = Remote::start(&real.path(), "busy");
    let stats = real.ask(&["stats", "--json"]).expect_code(0).objects().remove(0);
    let names =
        ["turns", "wakes", "readiness", "commands", "from_fronts", "undelivered", "watches", "timers"];
    for name in names.iter().chain(&["ready_per_wait_0", "ready_per_wait_15", "commands_per_turn_0"]) {
        assert!(stats[name].is_u64(), "{name}: {stats}");
    }
    assert_eq!(stats["service_sessions"], 2, "the busy one and hwctl itself");
    let sessions = real.ask(&["sessions"]).expect_code(0);
    let busy = sessions.output.lines().find(|line| line.ends_with("busy")).expect("a session");
    assert_eq!(busy.split_whitespace().nth(1), Some(std::process::id().to_string().as_str()));
    assert!(sessions.output.lines().any(|line| line.ends_with("hwctl")), "{sessions:?}");
    drop(remote);
}

#[test]
fn a_killed_session_is_told_and_gone() {
    let real = Real::start();
    let remote = Remote::start(&real.path(), "doomed");
    let session = real.find("doomed").expect("its session");
    real.ask(&["kill", &session]).expect_code(0);
    assert_eq!(remote.expect_last_word().code(), Code::Aborted);
    let until = Instant::now() + PROMPT;
    while real.find("doomed").is_some() {
        assert!(Instant::now() < until, "it is still listed");
    }
    let ended = real.ask(&["kill", &session]).expect_code(1);
    assert!(ended.errors.contains("NOT_FOUND"), "{ended:?}");
}

#[test]
fn the_screen_shows_a_busy_session_and_its_watch() {
    let real = Real::start();
    let remote = Remote::start(&real.path(), "busy");
    let path = real.path();
    let arguments = ["top", "--interval", "100ms", "--socket", path.to_str().expect("text")];
    let mut screen = Screen::run(&mut command(&arguments), 110, 30, false);
    screen.expect_text("sessions 2  watches 1");
    screen.expect("its rate, above that of this screen", |contents| {
        let line = contents.lines().find(|line| line.contains("  busy"));
        line.is_some_and(|line| rate(line, 3) > 0.0)
    });
    screen.expect("its watch", |contents| {
        let line =
            contents.lines().find(|line| line.contains(&format!(" {WATCH} ")) && line.contains("readable"));
        line.is_some_and(|line| line.contains(" pipe ") && rate(line, 3) > 0.0)
    });
    screen.expect("all from the back", |contents| contents.contains("(100%)"));
    screen.expect("both histograms", |contents| {
        contents.lines().filter(|line| line.contains('█')).count() >= 2
    });
    real.service.stop();
    screen.expect_text("UNAVAILABLE");
    screen.press("q");
    assert_eq!(screen.finish_restored().code(), Some(0));
    drop(remote);
}

/// A column of a table as a number.
fn rate(line: &str, column: usize) -> f64 {
    line.split_whitespace().nth(column).and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
