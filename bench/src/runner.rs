//! The parent's side of a run: one child process a subject, short slices round robin, samples merged.
//!
//! Subjects in one process disturb each other's thread placement, and a machine's speed drifts over seconds;
//! separate processes and interleaved slices take both out of the comparison.

use crate::Result;
use crate::catalogue::{self, Bench, Entry, Fit};
use crate::cli::{Arguments, BenchName, Cores};
use crate::protocol::{Measured, Reply, Request};
use crate::report::{self, Report};
use crate::row::Tally;
use crate::subject::nanoseconds;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take to tear its subject down before it is killed; its figures are in by then.
const TEARDOWN_PATIENCE: Duration = Duration::from_secs(5);
/// How often we look whether it has finished.
const TEARDOWN_STEP: Duration = Duration::from_millis(2);

/// Runs what the command line asks for and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let names: &[BenchName] = match &arguments.bench {
        BenchName::All => &BenchName::MEASURING,
        name => std::slice::from_ref(name),
    };
    if !cfg!(feature = "peers") {
        eprintln!(
            "hw-bench: built without the feature `peers`: tokio, tonic, async-io, polling and libuv are absent"
        );
    }
    let mut reports = Vec::new();
    for &name in names {
        let report = run_bench(arguments, name)?;
        if !arguments.json {
            print!("{}", report.table());
        }
        reports.push(report);
    }
    if arguments.json {
        println!("{}", report::to_json(arguments.bench, arguments.cores, &reports));
    }
    Ok(())
}

fn run_bench(arguments: &Arguments, name: BenchName) -> Result<Report> {
    let bench = catalogue::bench(name)?;
    let entries = chosen(&bench, arguments)?;
    let seconds = arguments.seconds.unwrap_or(bench.seconds);
    let slice = bench.slice.min(seconds);
    let rounds = nanoseconds(seconds).div_ceil(nanoseconds(slice));

    let mut contestants = Vec::new();
    for entry in entries {
        contestants.push(Contestant::start(entry, arguments, name)?);
    }
    if bench.warm_up {
        for contestant in &mut contestants {
            contestant.slice(slice)?;
            contestant.renew(arguments, name)?;
        }
    }
    for _ in 0..rounds {
        for contestant in &mut contestants {
            let measured = contestant.slice(slice)?;
            contestant.tally.add(&measured)?;
            contestant.renew(arguments, name)?;
        }
    }
    let mut tallies = Vec::new();
    for contestant in contestants {
        contestant.process.finish(contestant.entry.name)?;
        tallies.push((contestant.entry, contestant.tally));
    }
    Report::new(&bench, arguments.cores, seconds, &tallies)
}

/// The subjects that fit the processors and the command line.
fn chosen<'bench>(bench: &'bench Bench, arguments: &Arguments) -> Result<Vec<&'bench Entry>> {
    let only = &arguments.only;
    if let Some(unknown) = only.iter().find(|name| bench.subjects.iter().all(|entry| entry.name != **name)) {
        let known: Vec<_> = bench.subjects.iter().map(|entry| entry.name).collect();
        return Err(format!("{} has no subject {unknown:?}; it has {}", bench.name, known.join(", ")).into());
    }
    let mut entries = Vec::new();
    for entry in &bench.subjects {
        if !only.is_empty() && !only.iter().any(|name| name == entry.name) {
            continue;
        }
        // Two spinning threads on one processor measure the scheduler's time slice, not the subject.
        if entry.fit == Fit::TwoCores && arguments.cores == Cores::One {
            eprintln!("hw-bench: {} needs --cores two", entry.name);
            continue;
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// A subject, its process and what it has measured so far.
struct Contestant<'bench> {
    entry: &'bench Entry,
    process: Process,
    tally: Tally,
}

impl<'bench> Contestant<'bench> {
    fn start(entry: &'bench Entry, arguments: &Arguments, name: BenchName) -> Result<Self> {
        Ok(Self { entry, process: Process::spawn(entry, arguments, name)?, tally: Tally::new() })
    }

    fn slice(&mut self, length: Duration) -> Result<Measured> {
        let outcome = self.process.slice(length);
        outcome.map_err(|error| format!("{}: {error}", self.entry.name).into())
    }

    /// What can be measured only once in a process gets a new process for each slice.
    fn renew(&mut self, arguments: &Arguments, name: BenchName) -> Result<()> {
        if !self.entry.fresh {
            return Ok(());
        }
        let next = Process::spawn(self.entry, arguments, name)?;
        std::mem::replace(&mut self.process, next).finish(self.entry.name)
    }
}

/// A child of ours, and the two pipes to it.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn spawn(entry: &Entry, arguments: &Arguments, name: BenchName) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([name.text(), "--cores", arguments.cores.text(), "--subject", entry.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("the child has no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        Ok(Self { child, input, output })
    }

    fn slice(&mut self, length: Duration) -> Result<Measured> {
        let mut line = serde_json::to_string(&Request { slice_ns: nanoseconds(length) })?;
        line.push('\n');
        self.input.write_all(line.as_bytes())?;
        let mut answer = String::new();
        if self.output.read_line(&mut answer)? == 0 {
            return Err(format!("its process ended early: {}", self.child.wait()?).into());
        }
        match serde_json::from_str(&answer)? {
            Reply::Slice(measured) => Ok(measured),
            Reply::Failed(reason) => Err(reason.into()),
        }
    }

    /// Lets the subject tear itself down; one that hangs is killed, and said so.
    fn finish(self, name: &str) -> Result<()> {
        let Self { mut child, input, output } = self;
        drop((input, output));
        let patience_ends = Instant::now() + TEARDOWN_PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() >= patience_ends {
                eprintln!("hw-bench: {name} did not end within {TEARDOWN_PATIENCE:?} and was killed");
                child.kill()?;
                child.wait()?;
                return Ok(());
            }
            std::thread::sleep(TEARDOWN_STEP);
        }
        Ok(())
    }
}
