//! `cargo run --release -p handle-watcher-examples --bin tour`
//!
//! The tour, which `make run` shows: one watcher over real sockets, children, files, timers and a terminal.
//! It prints each event as it comes, then what was expected and what came, then a table of round trips, and
//! ends with 0. A wrong event, a missing one, a lost byte or a wrong order makes it end with 1 and say which.
//!
//! Each scene is one file. Seven run at once, on one client of one watcher. Two have watchers of their own and run alone
//! after them: one measures, and one starts the service and is its client; that one is left out where the service's
//! program was not built.

mod back_and_front;
mod child;
mod connections;
mod daemon;
mod file;
mod helper;
mod number;
mod pattern;
mod ping_pong;
mod role;
mod round_trip;
mod scene;
mod service;
mod show;
mod stage;
mod summary;
mod terminal;
mod thread;
mod timers;
mod voice;

use std::io::stderr;
use std::process::ExitCode;

use handle_watcher_client::{Client, Config, Watcher};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use show::Show;
use voice::{Voice, has_colours};

/// What can go wrong has a sentence to print; nobody branches on it.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Which log lines go to standard error: `trace`, or `handle_watcher::turn=trace,info`.
const LOG_VARIABLE: &str = "HANDLE_WATCHER_LOG";

const HELP: &str = "\
Shows one Handle Watcher at work on real input, checks every event, and measures round trips.

Usage: tour [--help]

It takes some eight seconds and needs nothing but, for the last scene, handle-watcherd beside it. It ends with 0, or with 1 if any event was wrong or missing.

Environment:
  HANDLE_WATCHER_LOG  what the library logs to standard error, such as trace or handle_watcher::turn=trace
  NO_COLOR            if set, no colours
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] => tour(),
        ["--help" | "-h"] => Voice::new().line(HELP).map(|()| true),
        // The tour starts itself a few times more, as the other processes that it watches.
        [helper::ROLE_FLAG, role, rest @ ..] => role::play(role, rest).map(|()| true),
        _ => Err(format!("it takes no arguments but --help, and got {arguments:?}").into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tour: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole tour. True if all that came was right, and all that was expected came.
fn tour() -> Result<bool> {
    start_log()?;
    let voice = Voice::new();
    voice.line("One watcher thread, one client, seven scenes at once. Each line is told as it happens.\n")?;
    let watcher = Watcher::spawn(Config::default())?;
    let mut show = Show::begin(Client::attach(&watcher)?, &voice)?;
    show.run()?;
    // Before the client goes, and what it was told with it.
    let stats = watcher.stats();
    let mut report = show.end();
    watcher.stop()?;
    report.apart.push(back_and_front::show(&voice)?);
    report.apart.extend(service::show(&voice)?);
    summary::print(&voice, &report, &stats)?;
    if report.is_right() {
        round_trip::print(&voice)?;
    } else {
        voice.line("\nNo round trips are measured on a watcher that is wrong.")?;
    }
    Ok(report.is_right())
}

fn start_log() -> Result<()> {
    let Ok(wished) = std::env::var(LOG_VARIABLE) else { return Ok(()) };
    let targets: Targets =
        wished.parse().map_err(|error| format!("{LOG_VARIABLE} is {wished:?}: {error}; try `trace`"))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(has_colours(&stderr()));
    tracing_subscriber::registry().with(lines).with(targets).init();
    Ok(())
}
