//! `hwctl wait`: one watcher, one client, any sources.
//!
//! A source is parsed into a [`Source`], and waits as an [`Awaited`]: it registers what it needs under the token it is
//! given, and says after each event of that token whether it came.

mod awaited;
mod connect;
mod descriptor;
mod file_system;
mod path;
mod process;
mod progress;
mod resolve;
mod source;
mod timer;
mod trail;

use std::time::{Duration, Instant};

use handle_watcher_client::{Client, Deadline, EventKind, Events, Result};
use serde_json::json;

use self::awaited::{Awaited, Step};
use self::progress::Progress;
pub(crate) use self::source::Source;
use crate::arguments::Wait;
use crate::text::escape;
use crate::{exit, output, span};

/// How many events one wait takes.
const BATCH: usize = 64;

/// How often the progress line is drawn anew.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Waits as the command line says; gives the exit status.
///
/// # Errors
/// What a source, the watcher or the output refused.
pub(crate) fn run(wait: Wait) -> Result<u8> {
    let started = Instant::now();
    let deadline = wait.timeout.map(|timeout| Deadline::after(timeout.duration()));
    // Before anything is opened, since a number that the caller left closed could be given to what we open.
    wait.sources.iter().try_for_each(Source::check)?;
    let entries = wait.sources.into_iter().map(|source| Entry {
        name: source.name(),
        awaited: source.awaited(),
        has_come: false,
    });
    let mut waiter = Waiter {
        client: Client::embedded()?,
        entries: entries.collect(),
        is_all: wait.all,
        is_json: wait.json,
        started,
        progress: Progress::on_terminal(),
    };
    waiter.start()?;
    waiter.wait(deadline)
}

/// One source of the command line.
struct Entry {
    name: String,
    awaited: Box<dyn Awaited>,
    has_come: bool,
}

struct Waiter {
    // Dropped before the entries, whose descriptors it watches.
    client: Client,
    entries: Vec<Entry>,
    is_all: bool,
    is_json: bool,
    started: Instant,
    progress: Option<Progress>,
}

impl Waiter {
    /// Every source begins, also when an earlier one has come already: what is wrong with one is told either way.
    fn start(&mut self) -> Result<()> {
        for index in 0..self.entries.len() {
            let step = self.entries[index].awaited.start(self.client.control(), index as u64)?;
            self.take(index, step)?;
        }
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Deadline>) -> Result<u8> {
        let mut events = Events::with_capacity(BATCH);
        loop {
            if self.is_over() {
                return Ok(exit::READY);
            }
            if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return self.time_out();
            }
            self.draw();
            let tick = self.progress.is_some().then(|| Deadline::after(PROGRESS_INTERVAL));
            match deadline.into_iter().chain(tick).min() {
                Some(until) => self.client.wait_until(&mut events, until)?,
                None => self.client.wait(&mut events, None)?,
            };
            for event in &events {
                if event.kind == EventKind::Wake {
                    self.look()?;
                    continue;
                }
                let index = usize::try_from(event.token).unwrap_or(usize::MAX);
                let Some(entry) = self.entries.get_mut(index).filter(|entry| !entry.has_come) else {
                    continue;
                };
                let step = entry.awaited.tell(self.client.control(), event)?;
                self.take(index, step)?;
            }
        }
    }

    /// A helper thread has something for one of them; it does not say for which.
    fn look(&mut self) -> Result<()> {
        for index in 0..self.entries.len() {
            if !self.entries[index].has_come {
                let step = self.entries[index].awaited.look(self.client.control())?;
                self.take(index, step)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, index: usize, step: Step) -> Result<()> {
        let Step::Came(what) = step else { return Ok(()) };
        let after = self.started.elapsed();
        let entry = &mut self.entries[index];
        entry.has_come = true;
        if let Some(progress) = &mut self.progress {
            progress.clear();
        }
        if self.is_json {
            let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            return output::print_json(&json!({ "source": entry.name, "what": what, "after_ns": after_ns }));
        }
        output::print(&format!("{}\t{what}\t{}\n", escape(&entry.name), span::show(after)))
    }

    fn is_over(&self) -> bool {
        let mut entries = self.entries.iter();
        if self.is_all { entries.all(|entry| entry.has_come) } else { entries.any(|entry| entry.has_come) }
    }

    fn time_out(&mut self) -> Result<u8> {
        if let Some(progress) = &mut self.progress {
            progress.clear();
        }
        output::complain(&format!(
            "hwctl: nothing more came within {}; still missing: {}",
            span::show(self.started.elapsed()),
            self.missing()
        ));
        Ok(exit::TIMEOUT)
    }

    /// Who is still waited for, and what is in the way.
    fn missing(&self) -> String {
        let missing = self.entries.iter().filter(|entry| !entry.has_come);
        let names = missing.map(|entry| match entry.awaited.obstacle() {
            Some(obstacle) => format!("{} ({})", escape(&entry.name), escape(&obstacle)),
            None => escape(&entry.name),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    fn draw(&mut self) {
        if self.progress.is_none() {
            return;
        }
        let come = self.entries.iter().filter(|entry| entry.has_come).count();
        let came =
            if self.is_all { format!(" {come} of {} came;", self.entries.len()) } else { String::new() };
        let line = format!("{}s:{came} waiting for {}", self.started.elapsed().as_secs(), self.missing());
        if let Some(progress) = &mut self.progress {
            progress.draw(&line);
        }
    }
}
