//! One row of a report: everything one subject measured.

use crate::Result;
use crate::catalogue::{Entry, Measure};
use crate::protocol::Measured;
use crate::subject::Recorder;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a subject's slices add up to while the bench runs.
#[derive(Debug)]
pub(crate) struct Tally {
    samples: Recorder,
    operations: u64,
    cpu_ns: u64,
    context_switches: u64,
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, Vec<f64>>,
    /// Operations a second, slice by slice.
    rates: Vec<f64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            samples: Recorder::new(),
            operations: 0,
            cpu_ns: 0,
            context_switches: 0,
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            rates: Vec::new(),
        }
    }

    /// Adds one slice.
    pub(crate) fn add(&mut self, slice: &Measured) -> Result<()> {
        self.samples.merge(&slice.samples()?)?;
        self.operations += slice.operations;
        self.cpu_ns += slice.cpu_ns;
        self.context_switches += slice.context_switches;
        for (name, count) in &slice.counters {
            *self.counters.entry(name.clone()).or_default() += count;
        }
        for (name, value) in &slice.gauges {
            self.gauges.entry(name.clone()).or_default().push(*value);
        }
        if slice.operations > 0 && slice.elapsed_ns > 0 {
            self.rates.push(slice.operations as f64 * 1e9 / slice.elapsed_ns as f64);
        }
        Ok(())
    }
}

/// The finished figures of a subject, by the names they have in JSON. What was not measured is not there.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) subject: &'static str,
    pub(crate) part: &'static str,
    values: BTreeMap<String, f64>,
}

impl Row {
    pub(crate) fn new(entry: &Entry, measure: Measure, tally: &Tally) -> Self {
        let mut row = Self { subject: entry.name, part: entry.part, values: BTreeMap::new() };
        row.set_samples(tally);
        if measure == Measure::Rate {
            row.set("per_second", median(&tally.rates));
        }
        row.set("cpu_ns", Some(tally.cpu_ns as f64));
        row.set("context_switches", Some(tally.context_switches as f64));
        for (name, &count) in &tally.counters {
            row.set(name, Some(count as f64));
        }
        for (name, values) in &tally.gauges {
            row.set(name, median(values));
        }
        row.set_shares(tally);
        row.set_turns();
        row
    }

    /// A figure by name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// The names of all figures.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// The row as a JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("subject".to_owned(), self.subject.into());
        if !self.part.is_empty() {
            object.insert("part".to_owned(), self.part.into());
        }
        object.extend(self.values.iter().map(|(name, value)| (name.clone(), number(*value))));
        Value::Object(object)
    }

    fn set_samples(&mut self, tally: &Tally) {
        let samples = tally.samples.histogram();
        if samples.is_empty() {
            return;
        }
        self.set("min_ns", Some(samples.min() as f64));
        for (name, quantile) in [("p10_ns", 0.10), ("p50_ns", 0.50), ("p90_ns", 0.90), ("p99_ns", 0.99)] {
            self.set(name, Some(samples.value_at_quantile(quantile) as f64));
        }
        self.set("max_ns", Some(samples.max() as f64));
        self.set("mean_ns", Some(samples.mean()));
        self.set("sd_ns", Some(samples.stdev()));
        self.set("samples", Some(samples.len() as f64));
    }

    /// What one operation cost; the bench says what an operation is.
    fn set_shares(&mut self, tally: &Tally) {
        if tally.operations == 0 {
            return;
        }
        let operations = tally.operations as f64;
        self.set("count", Some(operations));
        self.set("cpu_ns_per_round", Some(tally.cpu_ns as f64 / operations));
        self.set("context_switches_per_round", Some(tally.context_switches as f64 / operations));
        for (name, &count) in &tally.counters {
            self.set(&format!("{name}_per_round"), Some(count as f64 / operations));
        }
    }

    /// What the watcher's side allocated per turn of the watcher, where both are known.
    fn set_turns(&mut self) {
        let turns = self.value("turns").filter(|&turns| turns > 0.0);
        let allocations = self.value("other_allocations").zip(turns).map(|(count, turns)| count / turns);
        self.set("other_allocations_per_turn", allocations);
    }

    fn set(&mut self, name: &str, value: Option<f64>) {
        self.values.extend(value.map(|value| (name.to_owned(), value)));
    }
}

/// Counts are printed as whole numbers, so that a reader need not wonder about `40210.0`.
fn number(value: f64) -> Value {
    match format!("{value:.0}").parse::<i64>() {
        Ok(whole) if value.fract() == 0.0 => whole.into(),
        _ => value.into(),
    }
}

/// The middle value; a slice that a noisy neighbour spoiled does not move it.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => sorted.get(middle).copied(),
        _ => Some((sorted.get(middle - 1)? + sorted.get(middle)?) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_takes_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(number(40_210.0).to_string(), "40210");
        assert_eq!(number(0.25).to_string(), "0.25");
    }
}
