//! What other programs rely on: `--json` prints one object with the promised fields, and mistakes end with a sentence.

use serde_json::Value;
use std::process::{Command, Output};

fn hw_bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hw-bench")).args(arguments).output().expect("hw-bench starts")
}

/// Runs a bench and parses what it printed, which must be one object and nothing else.
#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = hw_bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{errors}", output.status);
    serde_json::from_slice(&output.stdout).expect("standard output is one JSON object")
}

#[track_caller]
fn subjects(report: &Value) -> Vec<&str> {
    let rows = report["rows"].as_array().expect("rows is an array");
    rows.iter().map(|row| row["subject"].as_str().expect("a row names its subject")).collect()
}

#[test]
fn round_trip_has_rows_and_ratios() {
    let report =
        json(&["round-trip", "--json", "--seconds", "0.2", "--only", "back-wait,before,bare-epoll,mio"]);
    assert_eq!(report["bench"], "round-trip");
    assert_eq!(report["cores"], "one");
    assert_eq!(subjects(&report), ["back-wait", "before", "bare-epoll", "mio"]);
    for row in report["rows"].as_array().expect("rows is an array") {
        let value = |name: &str| row[name].as_f64().expect("a row has every figure");
        let in_order = ["min_ns", "p10_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"].map(value);
        assert!(in_order.is_sorted() && in_order[0] > 0.0, "{row}");
        assert!(value("count") > 0.0 && value("mean_ns") > 0.0 && value("cpu_ns") > 0.0, "{row}");
        assert!(value("sd_ns") >= 0.0 && value("context_switches_per_round") > 0.0, "{row}");
    }
    for ratio in ["back-wait/before", "back-wait/bare-epoll", "back-wait/mio"] {
        assert!(report["ratios"][ratio].as_f64().expect("a ratio for each peer") > 0.0, "{report}");
    }
}

/// The names are fixed: figures are followed over time by them.
#[test]
fn round_trip_lists_every_subject() {
    let report = json(&["round-trip", "--json", "--seconds", "0.01"]);
    let names = subjects(&report);
    let promised = [
        "front-wait",
        "front-wait-once",
        "front-outer",
        "back-wait",
        "back-wait-once",
        "back-wait-level",
        "back-waker",
        "back-receiver",
        "adaptive-cold",
        "before",
        "bare-epoll",
        "mio",
    ];
    for name in promised {
        assert!(names.contains(&name), "{name} is missing from {names:?}");
    }
}

/// A cold watch moves, and the row says after how many rounds.
#[test]
fn a_move_is_measured_apart_from_round_trips() {
    let report = json(&["round-trip", "--json", "--seconds", "0.05", "--only", "adaptive-cold,bare-epoll"]);
    assert!(report["rows"][0]["rounds_to_front"].as_f64().expect("the rounds") >= 1.0, "{report}");
    assert_eq!(report["ratios"].as_object().map(serde_json::Map::len), Some(0), "a move is no round trip");
}

#[test]
fn many_handles_compares_policies_and_the_older_design() {
    let only = "100-adaptive,100-off,100-always,100-array-front";
    let report = json(&["many-handles", "--json", "--seconds", "0.05", "--only", only]);
    assert_eq!(subjects(&report), ["100-adaptive", "100-off", "100-always", "100-array-front"]);
    for other in ["100-off", "100-always", "100-array-front"] {
        let ratio = &report["ratios"][format!("100-adaptive/{other}")];
        assert!(ratio.as_f64().expect("a ratio for each") > 0.0, "{report}");
    }
}

#[test]
fn a_hot_pair_is_compared_by_its_tail() {
    let report = json(&["hot-pair", "--json", "--seconds", "0.2", "--only", "front,back"]);
    let p99 = |row: usize| report["rows"][row]["p99_ns"].as_f64().expect("a tail");
    let ratio = report["ratios"]["front/back"].as_f64().expect("a ratio");
    assert!((ratio - p99(0) / p99(1)).abs() < 1e-9, "{report}");
    assert!(report["rows"][0]["cold_events"].as_f64().expect("the storm's events") >= 10_000.0, "{report}");
}

#[test]
fn rates_carry_per_second() {
    let report = json(&["churn", "--json", "--seconds", "0.1", "--only", "ours,bare-epoll"]);
    assert_eq!(subjects(&report), ["ours", "bare-epoll"]);
    for row in report["rows"].as_array().expect("rows is an array") {
        assert!(row["per_second"].as_f64().expect("a rate") > 0.0, "{row}");
    }
    assert!(report["ratios"]["ours/bare-epoll"].as_f64().expect("a ratio") > 0.0);
}

/// The names are fixed here, too, and what is compared with what.
#[test]
fn a_service_is_compared_with_an_embedded_watcher() {
    let report = json(&["service", "--json", "--seconds", "0.01"]);
    let names = subjects(&report);
    let promised =
        ["remote-edge", "remote-once", "remote-front", "embedded-back", "embedded-back-once", "bare-epoll"];
    for name in promised.iter().chain(&["sessions-1", "sessions-16", "sessions-256"]) {
        assert!(names.contains(name), "{name} is missing from {names:?}");
    }
    for ratio in ["remote-edge/embedded-back", "remote-once/embedded-back-once"] {
        assert!(report["ratios"][ratio].as_f64().expect("a ratio") > 0.0, "{report}");
    }
    let rows = report["rows"].as_array().expect("rows is an array");
    let many = rows.iter().find(|row| row["subject"] == "sessions-16").expect("a row");
    assert!(many["per_second"].as_f64().expect("a rate") > 0.0, "{many}");
}

#[test]
fn a_service_is_weighed_and_outlives_its_clients() {
    let memory = json(&["service-memory", "--json"]);
    assert_eq!(subjects(&memory), ["session", "watch-shared", "watch-distinct"]);
    for row in memory["rows"].as_array().expect("rows is an array") {
        assert!(row["bytes_each"].as_f64().expect("the bytes") > 0.0, "{row}");
    }
    let end = json(&["service-end", "--json", "--seconds", "0.01"]);
    let row = &end["rows"][0];
    assert!(row["p50_ns"].as_f64().expect("the time") > 0.0, "{row}");
    assert!(row["descriptors_closed"].as_f64().expect("the count") >= 15_000.0, "{row}");
}

#[test]
fn a_call_is_measured() {
    let report = json(&["unary", "--json", "--seconds", "0.05", "--only", "ours"]);
    assert!(report["rows"][0]["p50_ns"].as_f64().expect("the time") > 0.0, "{report}");
}

#[test]
fn mistakes_end_with_a_sentence() {
    for (arguments, word) in [
        (&["round-trip", "--only", "nobody"][..], "nobody"),
        (&["round-trip", "--seconds", "0"][..], "seconds"),
        (&["round-trip", "--seconds", "soon"][..], "soon"),
        (&["no-such-bench"][..], "no-such-bench"),
    ] {
        let output = hw_bench(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?} must fail");
        assert!(output.stdout.is_empty() && errors.contains(word), "{arguments:?} said: {errors}");
    }
}
