//! The command line.

use crate::host::Kind;
use clap::{Parser, ValueEnum};
use std::time::Duration;

/// Compares Handle Watcher with its peers: every subject in its own process, short slices in turn.
#[derive(Debug, Parser)]
#[command(name = "hw-bench", version)]
pub(crate) struct Arguments {
    /// What to measure.
    #[arg(value_enum)]
    pub(crate) bench: BenchName,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Seconds of measuring for each subject; every bench has its own default.
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) seconds: Option<Duration>,

    /// Pin everything to one processor, or clients and watcher thread to two.
    #[arg(long, value_enum, default_value_t = Cores::One)]
    pub(crate) cores: Cores,

    /// Measure only these subjects (comma separated).
    #[arg(long, value_delimiter = ',', value_name = "SUBJECTS")]
    pub(crate) only: Vec<String>,

    /// Be the child process that runs this subject.
    #[arg(long, hide = true)]
    pub(crate) subject: Option<String>,

    /// Be the process that a subject talks to.
    #[arg(long, hide = true, value_enum)]
    pub(crate) host: Option<Kind>,

    /// Where that process listens, or connects to.
    #[arg(long, hide = true, default_value = "")]
    pub(crate) address: String,
}

/// The benches by name; `catalogue` says what each one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchName {
    /// A 12-byte message there and back between two threads, each waiting through the subject.
    RoundTrip,
    /// From a write to a watched descriptor until the client has run and read it.
    Hop,
    /// Events a second with 256 active of 1000 socket pairs.
    Throughput,
    /// Watch and unwatch pairs a second.
    Churn,
    /// One million timers: set and fire, set and cancel.
    Timers,
    /// Cost of an event with 1 to 1 000 000 watches, under each front policy and in the ancestors' design.
    ManyHandles,
    /// Round trip of a hot pair while 10 000 cold descriptors become ready at once, repeatedly.
    HotPair,
    /// Heap allocations per event in steady state, clients' and other threads apart.
    Allocations,
    /// What 10 000 watches cost while nothing happens.
    Idle,
    /// Spawn to first event, and drop to joined.
    Startup,
    /// User memory per watch.
    Memory,
    /// A 12-byte message there and back between two clients of a service in another process, and its events a second.
    Service,
    /// The service's memory per idle session and per watch.
    ServiceMemory,
    /// How long until nothing is left in the service of a process that was killed: 150 sessions with 100 watches each.
    ServiceEnd,
    /// One call and its reply, 1024 bytes each way, over a Unix socket.
    Unary,
    /// Every bench, one after the other.
    All,
}

impl BenchName {
    /// Every bench that measures something, in the order `all` runs them.
    pub(crate) const MEASURING: [Self; 15] = [
        Self::RoundTrip,
        Self::Hop,
        Self::Throughput,
        Self::Churn,
        Self::Timers,
        Self::ManyHandles,
        Self::HotPair,
        Self::Allocations,
        Self::Idle,
        Self::Startup,
        Self::Memory,
        Self::Service,
        Self::ServiceMemory,
        Self::ServiceEnd,
        Self::Unary,
    ];

    /// The name as it is typed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::RoundTrip => "round-trip",
            Self::Hop => "hop",
            Self::Throughput => "throughput",
            Self::Churn => "churn",
            Self::Timers => "timers",
            Self::ManyHandles => "many-handles",
            Self::HotPair => "hot-pair",
            Self::Allocations => "allocations",
            Self::Idle => "idle",
            Self::Startup => "startup",
            Self::Memory => "memory",
            Self::Service => "service",
            Self::ServiceMemory => "service-memory",
            Self::ServiceEnd => "service-end",
            Self::Unary => "unary",
            Self::All => "all",
        }
    }
}

/// How many processors a subject may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cores {
    /// Every thread on the first processor.
    One,
    /// Clients on the first, the watcher or reactor thread on the second.
    Two,
}

impl Cores {
    /// The value as it is typed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
        }
    }
}

/// Zero, negative and endless measurements are refused here, so that nobody divides by them later.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(length) if !length.is_zero() && length <= Duration::from_secs(3600) => Ok(length),
        _ => Err(format!("{text} is not between 0 and 3600 seconds")),
    }
}
