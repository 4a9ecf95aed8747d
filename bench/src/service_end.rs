//! service-end: a process with 150 sessions, each with 100 watches on descriptors of their own, is killed. A sample is the
//! time from there until the service has none of the sessions and descriptors any more. Another session calls all the
//! time; `bystander_longest_ns` is the longest call of it.

use crate::calls::Calls;
use crate::catalogue::{Bench, Entry, Measure};
use crate::crowd::{SESSIONS, WATCHES};
use crate::host::{Host, Kind};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject, nanoseconds};
use crate::{Result, pair};
use handle_watcher_wire::protocol::{Request, read_sessions};
use std::time::{Duration, Instant};

/// A service that takes longer than this has forgotten something.
const PATIENCE: Duration = Duration::from_secs(30);

/// The bench and its subject.
pub(crate) fn bench() -> Bench {
    Bench {
        name: "service-end",
        measure: Measure::Latency,
        // One crowd a slice, however long that takes.
        slice: Duration::from_millis(500),
        seconds: Duration::from_secs(5),
        warm_up: true,
        subjects: vec![Entry::ours("killed", Killed::open)],
    }
}

struct Killed {
    placement: Placement,
    bystander: Calls,
    address: String,
    /// What the service had in memory after the first crowd.
    resident_bytes: Option<u64>,
    host: Host,
}

impl Killed {
    fn open(placement: &Placement) -> Result<Box<dyn Subject>> {
        pair::require_descriptors(SESSIONS * (WATCHES + 8))?;
        let (host, address) = Host::service(placement)?;
        let bystander = Calls::open(&address)?;
        Ok(Box::new(Self { placement: *placement, bystander, address, resident_bytes: None, host }))
    }

    /// Calls until nothing is left; gives the longest call.
    fn outlive(&mut self, descriptors: u64, patience_ends: Instant) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        loop {
            let called = Instant::now();
            self.bystander.call(&Request::Ping, |_| Ok(()))?;
            longest = longest.max(called.elapsed());
            let left = self.host.descriptors()?;
            if left <= descriptors {
                return Ok(longest);
            }
            if called >= patience_ends {
                return Err(format!("{left} descriptors are left of {descriptors}").into());
            }
        }
    }
}

impl Subject for Killed {
    fn run(&mut self, _: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let descriptors = self.host.descriptors()?;
        let mut crowd = Host::start(Kind::Crowd, &self.address, &self.placement)?;
        let most = self.host.descriptors()?;
        let used = self.host.used()?;
        let stretch = Stretch::begin()?;
        crowd.kill()?;
        let longest = self.outlive(descriptors, stretch.began() + PATIENCE)?;
        recorder.record(stretch.began().elapsed());
        let slice = stretch.end(1)?;
        let service_cpu_ns = self.host.used()?.cpu_ns - used.cpu_ns;
        let sessions = self.bystander.call(&Request::Sessions, |body| Ok(read_sessions(body)?.len()))?;
        if sessions != 1 {
            return Err(format!("{sessions} sessions are left, not only the bystander's").into());
        }
        let resident = self.host.resident_bytes()?;
        let first = *self.resident_bytes.get_or_insert(resident);
        Ok(slice
            .with_gauge("register_ns", nanoseconds(crowd.took()) as f64)
            .with_gauge("bystander_longest_ns", nanoseconds(longest) as f64)
            .with_gauge("service_cpu_ns", service_cpu_ns as f64)
            .with_gauge("descriptors_closed", (most - descriptors) as f64)
            .with_gauge("resident_growth_bytes", resident as f64 - first as f64))
    }
}
