//! A process that a subject talks to: a service, a server, or a crowd of clients that is going to be killed.
//!
//! It says `ready` and how many nanoseconds it took, and lives until its input is closed.

use crate::cli::Cores;
use crate::pin::Placement;
use crate::proc::{self, Others};
use crate::subject::{Recorder, Slice, Subject, nanoseconds};
use crate::{Result, crowd, ours, pair};
use clap::ValueEnum;
use handle_watcher_client::{Service, ServiceConfig, Watcher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What such a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A service of ours, in its default configuration.
    Service,
    /// Clients of a service, each with many watches.
    Crowd,
    /// A server of tonic's.
    #[cfg(feature = "peers")]
    Tonic,
}

/// The subject's side of such a process.
pub(crate) struct Host {
    child: Child,
    input: Option<ChildStdin>,
    took: Duration,
}

impl Host {
    /// Starts one on the far processor, and waits until it is ready.
    pub(crate) fn start(kind: Kind, address: &str, placement: &Placement) -> Result<Self> {
        let kind = kind.to_possible_value().ok_or("a kind without a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["service", "--host", kind.get_name(), "--address", address]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = placement.start_far(|| Ok(command.spawn()?))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the host has no output")?;
        let mut host = Self { child, input, took: Duration::ZERO };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let took = line.trim().strip_prefix("ready ").ok_or("the host process ended before it was ready")?;
        host.took = Duration::from_nanos(took.parse()?);
        Ok(host)
    }

    /// A service at an address of its own, and that address.
    pub(crate) fn service(placement: &Placement) -> Result<(Self, String)> {
        let address = address();
        Ok((Self::start(Kind::Service, &address, placement)?, address))
    }

    /// How long it took to become what it is, once its process ran.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Kills it as hard as can be, and leaves it to the drop to wait for the end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// What its threads used so far.
    pub(crate) fn used(&self) -> Result<Others> {
        proc::process_used(self.child.id())
    }

    /// Bytes of it that are in memory.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        proc::resident_bytes_of(self.child.id())
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> Result<u64> {
        proc::descriptors_of(self.child.id())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.child.wait() {
            eprintln!("hw-bench: a host process was lost: {error}");
        }
    }
}

/// An abstract name that no other process uses.
pub(crate) fn address() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    format!("@hw-bench-{}-{number}", std::process::id())
}

/// A subject and the process it talks to, whose processor time and context switches count as well.
pub(crate) struct WithHost<S> {
    // Dropped in this order: the clients leave before the service stops.
    pub(crate) subject: S,
    pub(crate) host: Host,
}

impl<S: Subject> Subject for WithHost<S> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let before = self.host.used()?;
        let mut slice = self.subject.run(length, recorder)?;
        let after = self.host.used()?;
        slice.used.cpu += Duration::from_nanos(after.cpu_ns - before.cpu_ns);
        slice.used.context_switches += after.context_switches - before.context_switches;
        Ok(slice)
    }
}

/// Is such a process, until the input is closed.
pub(crate) fn serve(kind: Kind, address: &str) -> Result<()> {
    // It was started on the processor where it is to stay.
    let placement = Placement::new(Cores::One)?;
    pair::descriptor_budget()?;
    let began = Instant::now();
    match kind {
        Kind::Service => {
            let watcher = Watcher::spawn(ours::config(&placement))?;
            let _service = Service::bind(&watcher, address, ServiceConfig::default())?;
            stay(began)
        }
        Kind::Crowd => {
            let _crowd = crowd::gather(address)?;
            stay(began)
        }
        #[cfg(feature = "peers")]
        Kind::Tonic => crate::unary::tonic::serve(address, move || stay(began)),
    }
}

/// Says that it is ready, and returns when the subject has no more use for it.
fn stay(began: Instant) -> Result<()> {
    let mut output = io::stdout();
    writeln!(output, "ready {}", nanoseconds(began.elapsed()))?;
    output.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
