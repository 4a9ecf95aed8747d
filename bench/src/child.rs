//! The child's side of a run: builds one subject, runs the slices it is asked for, replies with what it saw.

use crate::Result;
use crate::catalogue;
use crate::cli::Arguments;
use crate::pin::Placement;
use crate::protocol::{Measured, Reply, Request};
use crate::subject::{Recorder, Subject};
use crate::sys::allocator;
use std::io::{self, BufRead, Write};
use std::time::Duration;

/// Runs slices of `name` until the parent closes our input.
pub(crate) fn serve(arguments: &Arguments, name: &str) -> Result<()> {
    let mut subject = build(arguments, name);
    let mut recorder = Recorder::new();
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let outcome = match &mut subject {
            Ok(subject) => run_slice(subject.as_mut(), Duration::from_nanos(request.slice_ns), &mut recorder),
            Err(error) => Err(error.to_string().into()),
        };
        let reply = outcome.map_or_else(|error| Reply::Failed(error.to_string()), Reply::Slice);
        let mut output = io::stdout().lock();
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// Threads inherit the processor of the thread that starts them, so we move before anything is built.
fn build(arguments: &Arguments, name: &str) -> Result<Box<dyn Subject>> {
    let bench = catalogue::bench(arguments.bench)?;
    let entry = bench.subjects.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| format!("bench {} has no subject {name:?}", bench.name))?;
    let placement = Placement::new(arguments.cores)?;
    placement.move_near()?;
    allocator::mark_client_thread();
    (entry.build)(&placement)
}

fn run_slice(subject: &mut dyn Subject, length: Duration, recorder: &mut Recorder) -> Result<Measured> {
    recorder.clear();
    let slice = subject.run(length, recorder)?;
    Measured::new(slice, recorder)
}
