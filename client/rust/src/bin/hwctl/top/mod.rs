//! `hwctl top`: a live screen of what the service does.
//!
//! A thread of its own asks the service, since an answer may take long, and wakes the client of the screen. That client
//! is one port for everything the screen waits for: keys, signals and samples.

mod histogram;
mod sample;
mod sampler;
mod screen;
mod signals;
mod stage;
mod view;

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::time::Duration;

use handle_watcher_client::{Client, Code, Events, Mode, Result, Signals, Status};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::sampler::Sampler;
use self::signals::SignalPipes;
use self::stage::Stage;
use self::view::View;
use crate::connection::Connection;

/// How many events one wait takes. There are four sources.
const BATCH: usize = 8;

/// The shortest interval: more would measure ourselves.
const INTERVAL_LEAST: Duration = Duration::from_millis(50);

/// The tokens of the screen's watches.
const KEYS: u64 = 1;
const ENDING: u64 = 2;
const RESIZED: u64 = 3;

/// Shows the screen until it is told to end.
///
/// # Errors
/// `FAILED_PRECONDITION` without a terminal; as [`Connection::open`] if the service cannot be reached at the start;
/// later its loss is shown, and it is tried again.
pub(crate) fn run(socket: &OsStr, interval: Duration) -> Result<()> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Status::new(
            Code::FailedPrecondition,
            "top needs a terminal for its keys and its screen, and stdin or stdout is none; use `hwctl stats`",
        ));
    }
    let interval = interval.max(INTERVAL_LEAST);
    let connection = Connection::open(socket)?;
    let client = Client::embedded()?;
    let pipes = SignalPipes::new()?;
    client.watch(std::io::stdin(), Signals::READABLE, Mode::Level, KEYS)?;
    client.watch(&pipes.ending, Signals::READABLE, Mode::Once, ENDING)?;
    client.watch(&pipes.resized, Signals::READABLE, Mode::Level, RESIZED)?;
    let sampler = Sampler::start(connection, socket, interval, client.control().clone())?;
    let stage = Stage::open().map_err(|error| lost(&error))?;
    let view = View::new(socket, interval);
    // The terminal is given back before anything else is said.
    let ended = Screen { client, stage, sampler, pipes, view }.run();
    if let Ok(Some(signal)) = ended {
        SignalPipes::end_by(signal);
    }
    ended.map(|_| ())
}

struct Screen {
    // Dropped before what it watches.
    client: Client,
    stage: Stage,
    sampler: Sampler,
    pipes: SignalPipes,
    view: View,
}

impl Screen {
    /// Runs until a key or a signal ends it; gives the signal.
    fn run(&mut self) -> Result<Option<i32>> {
        let mut events = Events::with_capacity(BATCH);
        loop {
            while let Some(sample) = self.sampler.next() {
                self.view.take(sample);
            }
            let view = &self.view;
            self.stage.draw(|frame| screen::draw(frame, view)).map_err(|error| lost(&error))?;
            self.client.wait(&mut events, None)?;
            for event in &events {
                match event.token {
                    KEYS if event.satisfied.intersects(Signals::PEER_CLOSED | Signals::ERROR) => {
                        return Err(lost(&"it hung up"));
                    }
                    KEYS if is_told_to_end()? => return Ok(None),
                    ENDING => return Ok(Some(self.pipes.ending_signal())),
                    RESIZED => self.pipes.drain_resized(),
                    // Keys that mean nothing, or a sample, which is taken above.
                    _ => {}
                }
            }
        }
    }
}

/// Takes the keys that are there; true if one of them ends the screen.
fn is_told_to_end() -> Result<bool> {
    while event::poll(Duration::ZERO).map_err(|error| lost(&error))? {
        if let Event::Key(key) = event::read().map_err(|error| lost(&error))?
            && ends(&key)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ends(key: &KeyEvent) -> bool {
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let is_end = matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc);
    key.kind != KeyEventKind::Release && (is_end || is_control_c)
}

fn lost(error: &dyn std::fmt::Display) -> Status {
    Status::new(Code::Unknown, format!("the terminal cannot be used: {error}; use `hwctl stats`"))
}
