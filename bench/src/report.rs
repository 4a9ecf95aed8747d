//! A finished bench as a table for people or as JSON for programs.

use crate::Result;
use crate::catalogue::{Bench, Entry, Measure, Side};
use crate::cli::{BenchName, Cores};
use crate::proc;
use crate::row::{Row, Tally};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// Columns of every bench that takes samples; the rest follows in alphabetical order.
const SAMPLE_COLUMNS: [&str; 9] =
    ["min_ns", "p10_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns", "mean_ns", "sd_ns", "count"];
/// What one operation cost, beside its time.
const COST_COLUMNS: [&str; 2] = ["context_switches_per_round", "cpu_ns_per_round"];

/// All rows of one bench, and who beat whom.
#[derive(Debug)]
pub(crate) struct Report {
    bench: &'static str,
    cores: Cores,
    seconds: Duration,
    measure: Measure,
    rows: Vec<Row>,
    /// `ours/peer` and the ratio, in the order of the rows.
    ratios: Vec<(String, f64)>,
}

impl Report {
    pub(crate) fn new(
        bench: &Bench,
        cores: Cores,
        seconds: Duration,
        tallies: &[(&Entry, Tally)],
    ) -> Result<Self> {
        let measure = bench.measure;
        let rows: Vec<_> = tallies.iter().map(|(entry, tally)| Row::new(entry, measure, tally)).collect();
        let mut ratios = Vec::new();
        for (our_entry, ours) in entries_with_rows(tallies, &rows, Side::Ours) {
            for (peer_entry, peer) in entries_with_rows(tallies, &rows, Side::Peer) {
                if our_entry.part == peer_entry.part {
                    ratios.extend(ratio(measure, ours, peer));
                }
            }
            for other in rows.iter().filter(|row| our_entry.against.contains(&row.subject)) {
                ratios.extend(ratio(measure, ours, other));
            }
        }
        Ok(Self { bench: bench.name, cores, seconds, measure, rows, ratios })
    }

    /// The report as text, columns aligned.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "\n{} · cores {} · {:.1} s a subject · {}\n",
            self.bench,
            self.cores.text(),
            self.seconds.as_secs_f64(),
            proc::machine()
        );
        let columns = self.columns();
        let mut lines = vec![
            std::iter::once("subject".to_owned()).chain(columns.iter().map(|name| title(name))).collect(),
        ];
        lines.extend(self.rows.iter().map(|row| cells(row, &columns)));
        text.push_str(&align(&lines));
        text.push_str(&self.ratio_lines());
        text
    }

    /// The report as a JSON object.
    fn to_json(&self) -> Value {
        let ratios: Map<_, _> =
            self.ratios.iter().map(|(name, ratio)| (name.clone(), (*ratio).into())).collect();
        json!({
            "bench": self.bench,
            "cores": self.cores.text(),
            "seconds": self.seconds.as_secs_f64(),
            "machine": proc::machine(),
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "ratios": ratios,
        })
    }

    /// The columns at least one row has a value for.
    fn columns(&self) -> Vec<String> {
        let present: BTreeSet<&str> = self.rows.iter().flat_map(Row::names).collect();
        let mut columns: Vec<&str> = Vec::new();
        match self.measure {
            Measure::Latency | Measure::Tail => columns.extend(SAMPLE_COLUMNS.iter().chain(&COST_COLUMNS)),
            Measure::Rate => {
                columns.extend(["per_second"].iter().chain(&SAMPLE_COLUMNS).chain(&COST_COLUMNS))
            }
            // What decides stands first; times are not what such a bench is about.
            Measure::Value(name) => columns.extend([name, "count"]),
        }
        columns.retain(|name| present.contains(name));
        // A count that was shared out over the operations is shown as the share.
        let is_shared = |name: &str| present.contains(format!("{name}_per_round").as_str());
        let is_common = |name: &str| ["samples", "count", "cpu_ns", "context_switches"].contains(&name);
        let rest = present.iter().copied().filter(|name| {
            !SAMPLE_COLUMNS.contains(name)
                && !COST_COLUMNS.contains(name)
                && !is_shared(name)
                && !is_common(name)
        });
        let chosen: Vec<&str> = rest.filter(|name| !columns.contains(name)).collect();
        columns.extend(chosen);
        columns.into_iter().map(str::to_owned).collect()
    }

    fn ratio_lines(&self) -> String {
        let meaning = match self.measure {
            Measure::Latency => "ratios of p50, below 1 we are faster".to_owned(),
            Measure::Tail => "ratios of p99, below 1 we are faster".to_owned(),
            Measure::Rate => "ratios of per_second, above 1 we are faster".to_owned(),
            Measure::Value(name) => format!("ratios of {name}, below 1 we need less"),
        };
        let mut lines = String::new();
        for (name, ratio) in &self.ratios {
            if lines.is_empty() {
                lines.push_str(&format!("{meaning}\n"));
            }
            // Writing to a String cannot fail.
            writeln!(lines, "  {name:<44} {ratio:>7.3}").unwrap_or(());
        }
        lines
    }
}

/// One object for one bench; for several, one object that holds theirs.
pub(crate) fn to_json(name: BenchName, cores: Cores, reports: &[Report]) -> Value {
    match reports {
        [report] if name != BenchName::All => report.to_json(),
        reports => json!({
            "bench": name.text(),
            "cores": cores.text(),
            "benches": reports.iter().map(Report::to_json).collect::<Vec<_>>(),
        }),
    }
}

fn entries_with_rows<'run>(
    tallies: &'run [(&'run Entry, Tally)],
    rows: &'run [Row],
    side: Side,
) -> impl Iterator<Item = (&'run Entry, &'run Row)> {
    tallies.iter().map(|(entry, _)| *entry).zip(rows).filter(move |(entry, _)| entry.side == side)
}

/// Ours over theirs, and its name; nothing when theirs is zero or was not measured.
fn ratio(measure: Measure, ours: &Row, peer: &Row) -> Option<(String, f64)> {
    let figure = match measure {
        Measure::Latency => "p50_ns",
        Measure::Tail => "p99_ns",
        Measure::Rate => "per_second",
        Measure::Value(name) => name,
    };
    let name = format!("{}/{}", ours.subject, peer.subject);
    let (ours, peer) = (ours.value(figure)?, peer.value(figure)?);
    (peer > 0.0).then(|| (name, ours / peer))
}

/// A column's heading: nanoseconds are shown as microseconds.
fn title(name: &str) -> String {
    let short = match name {
        "context_switches_per_round" => return "switches/round".to_owned(),
        "cpu_ns_per_round" => return "cpu µs/round".to_owned(),
        name => name.replace("_per_round", "/round"),
    };
    short.strip_suffix("_ns").map_or(short.clone(), |stem| format!("{stem} µs"))
}

fn cells(row: &Row, columns: &[String]) -> Vec<String> {
    let name = match row.part {
        "" => row.subject.to_owned(),
        part => format!("{} ({part})", row.subject),
    };
    let values =
        columns.iter().map(|column| row.value(column).map_or("-".to_owned(), |value| cell(column, value)));
    std::iter::once(name).chain(values).collect()
}

fn cell(column: &str, value: f64) -> String {
    match column {
        "cpu_ns_per_round" => format!("{:.2}", value / 1e3),
        column if column.ends_with("_ns") => format!("{:.2}", value / 1e3),
        column if column.ends_with("_per_round") => format!("{value:.3}"),
        _ if value.fract() == 0.0 || value >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// Names to the left, figures to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            text.push_str(&if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") });
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_characters() {
        let lines = vec![vec!["a".into(), "µs".into()], vec!["bcd".into(), "1".into()]];
        assert_eq!(align(&lines), "a    µs\nbcd   1\n");
    }

    #[test]
    fn nanoseconds_are_shown_as_microseconds() {
        assert_eq!(title("p50_ns"), "p50 µs");
        assert_eq!(cell("p50_ns", 12_340.0), "12.34");
    }
}
