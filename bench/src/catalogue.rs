//! What a bench is, and all of them.

use crate::Result;
use crate::cli::BenchName;
use crate::pin::Placement;
use crate::subject::Subject;
use crate::{
    allocations, churn, hop, hot_pair, idle, many_handles, memory, round_trip, service, service_end,
    service_memory, startup, throughput, timers, unary,
};
use std::time::Duration;

/// One comparison.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// What the ratios compare.
    pub(crate) measure: Measure,
    /// How long a subject works before it is the next one's turn.
    pub(crate) slice: Duration,
    /// Measuring time of each subject unless the command line says otherwise.
    pub(crate) seconds: Duration,
    /// Whether the first slice is thrown away: caches, heaps and the adaptive parts of all subjects settle in it.
    pub(crate) warm_up: bool,
    pub(crate) subjects: Vec<Entry>,
}

/// What decides a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The median sample; lower is better.
    Latency,
    /// The 99th percentile of the samples; lower is better.
    Tail,
    /// Operations a second; higher is better.
    Rate,
    /// A named value of the row; lower is better.
    Value(&'static str),
}

/// One subject of a bench.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    /// What is compared: ratios are built between subjects of one part only.
    pub(crate) part: &'static str,
    /// Other subjects that it is compared with beyond the peers of its part.
    pub(crate) against: Vec<&'static str>,
    pub(crate) fit: Fit,
    /// Whether every slice needs a new process, because the subject can be started only once in one.
    pub(crate) fresh: bool,
    pub(crate) build: Build,
}

/// Makes a subject on the calling thread, which already runs on the clients' processor.
pub(crate) type Build = fn(&Placement) -> Result<Box<dyn Subject>>;

/// Whose figure a row is: ratios are ours over theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Peer,
}

/// The processors a subject needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Any,
    TwoCores,
}

impl Entry {
    /// A subject of ours.
    pub(crate) fn ours(name: &'static str, build: Build) -> Self {
        Self { name, side: Side::Ours, part: "", against: Vec::new(), fit: Fit::Any, fresh: false, build }
    }

    /// Somebody else's.
    pub(crate) fn peer(name: &'static str, build: Build) -> Self {
        Self { side: Side::Peer, ..Self::ours(name, build) }
    }

    /// The same, compared within `part` only.
    pub(crate) fn part(self, part: &'static str) -> Self {
        Self { part, ..self }
    }

    /// The same, compared with these subjects too.
    pub(crate) fn against(self, names: &[&'static str]) -> Self {
        Self { against: names.to_vec(), ..self }
    }

    /// The same, left out when there is only one processor.
    pub(crate) fn two_cores(self) -> Self {
        Self { fit: Fit::TwoCores, ..self }
    }

    /// The same, in a new process for each slice.
    #[cfg(feature = "peers")]
    pub(crate) fn fresh(self) -> Self {
        Self { fresh: true, ..self }
    }
}

/// The bench of that name.
pub(crate) fn bench(name: BenchName) -> Result<Bench> {
    Ok(match name {
        BenchName::RoundTrip => round_trip::bench(),
        BenchName::Hop => hop::bench(),
        BenchName::Throughput => throughput::bench(),
        BenchName::Churn => churn::bench(),
        BenchName::Timers => timers::bench(),
        BenchName::ManyHandles => many_handles::bench(),
        BenchName::HotPair => hot_pair::bench(),
        BenchName::Allocations => allocations::bench(),
        BenchName::Idle => idle::bench(),
        BenchName::Startup => startup::bench(),
        BenchName::Memory => memory::bench(),
        BenchName::Service => service::bench(),
        BenchName::ServiceMemory => service_memory::bench(),
        BenchName::ServiceEnd => service_end::bench(),
        BenchName::Unary => unary::bench(),
        BenchName::All => return Err("`all` is every bench, not one".into()),
    })
}
