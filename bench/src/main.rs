//! `hw-bench`: every number of Handle Watcher beside its peers' numbers, measured in one run.
//!
//! The road of a run: `cli` → `runner` (one child process a subject, short slices in turn) → `child` →
//! a `Subject` → `report`. Each bench is one module that lists its subjects in `catalogue`.

mod allocations;
mod before;
mod calls;
mod catalogue;
mod child;
mod churn;
mod cli;
mod crowd;
mod flock;
mod hop;
mod host;
mod hot_pair;
mod idle;
mod many_handles;
mod memory;
mod meter;
mod ours;
mod pair;
mod pin;
mod proc;
mod protocol;
mod random;
mod report;
mod round_trip;
mod row;
mod runner;
mod served;
mod service;
mod service_end;
mod service_memory;
mod startup;
mod subject;
mod sys;
mod throughput;
mod timers;
mod unary;
mod waiter;

use clap::Parser;
use std::process::ExitCode;

/// What every fallible step here returns: a bench has nothing to repair, it only has to say what failed.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[global_allocator]
static ALLOCATOR: sys::allocator::Counting = sys::allocator::Counting;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    let outcome = match (&arguments.host, &arguments.subject) {
        (Some(kind), _) => host::serve(*kind, &arguments.address),
        (None, Some(subject)) => child::serve(&arguments, subject),
        (None, None) => runner::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hw-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
