//! What a bench measures: a subject runs slices and records samples.

use crate::Result;
use crate::sys::allocator::{self, Allocations};
use crate::sys::usage::{self, Usage};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Samples above one minute are recorded as one minute; nothing here is meant to take that long.
const LONGEST_SAMPLE_NS: u64 = 60_000_000_000;
/// Three digits: a bucket is never wider than a thousandth of the value.
const SIGNIFICANT_DIGITS: u8 = 3;

/// One contestant of a bench, alive in its own process.
pub(crate) trait Subject {
    /// Works for about `length`, records its samples and says how much it did.
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice>;
}

/// What one slice did.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Round trips, hops, events, pairs or timers: whatever the bench counts.
    pub(crate) operations: u64,
    /// The time those operations took.
    pub(crate) elapsed: Duration,
    /// What the kernel counted meanwhile.
    pub(crate) used: Usage,
    /// What the allocator counted meanwhile; nothing unless it was told to.
    pub(crate) allocations: Allocations,
    /// Counts that add up over slices.
    pub(crate) counters: BTreeMap<String, u64>,
    /// Values of which the median over slices is reported.
    pub(crate) gauges: BTreeMap<String, f64>,
}

impl Slice {
    /// Adds a count.
    pub(crate) fn with_counter(mut self, name: &str, value: u64) -> Self {
        self.counters.insert(name.to_owned(), value);
        self
    }

    /// Adds a value.
    pub(crate) fn with_gauge(mut self, name: &str, value: f64) -> Self {
        self.gauges.insert(name.to_owned(), value);
        self
    }
}

/// The measured part of a slice. What a subject prepares before it and sums up after it is not in the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    began: Instant,
    used: Usage,
    allocations: Allocations,
}

impl Stretch {
    /// Begins now.
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self { allocations: allocator::allocations(), used: usage::of_process()?, began: Instant::now() })
    }

    /// When it began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Ends now, after `operations`.
    pub(crate) fn end(self, operations: u64) -> Result<Slice> {
        let elapsed = self.began.elapsed();
        let used = usage::of_process()?.since(self.used);
        let allocations = allocator::allocations().since(self.allocations);
        Ok(Slice { operations, elapsed, used, allocations, ..Slice::default() })
    }
}

/// Collects the samples of one slice, in nanoseconds. Its memory is reserved at once: recording allocates nothing.
#[derive(Debug)]
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
}

impl Recorder {
    /// An empty recorder.
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_SAMPLE_NS, SIGNIFICANT_DIGITS)
            .expect("1 ns to 60 s with three digits is a legal range");
        Self { histogram }
    }

    /// Records one sample.
    pub(crate) fn record(&mut self, sample: Duration) {
        self.histogram.saturating_record(nanoseconds(sample).max(1));
    }

    /// Forgets all samples, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.histogram.reset();
    }

    /// The samples.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Adds another slice's samples.
    pub(crate) fn merge(&mut self, other: &Histogram<u64>) -> Result<()> {
        Ok(self.histogram.add(other)?)
    }
}

/// A duration as whole nanoseconds; 584 years are enough.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `elapsed` divided over `operations`; nothing divided by nothing is nothing.
pub(crate) fn share(elapsed: Duration, operations: u64) -> Duration {
    nanoseconds(elapsed).checked_div(operations).map_or(Duration::ZERO, Duration::from_nanos)
}
