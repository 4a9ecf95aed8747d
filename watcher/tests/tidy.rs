//! The rules of the house, held by a test: who may import whom, where unsafe code lives and that it says why, how
//! long things may get, and that every test file names the clause of CONTRACT.md it stands for.
//!
//! Each rule is a function from one file to complaints (`tidy/rules.rs`). This file runs them over the house;
//! `tidy/samples.rs` runs them over small texts that break them, so that a rule that stopped looking is noticed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/samples.rs"]
mod samples;
#[path = "tidy/text.rs"]
mod text;

use rules::*;
use text::{Source, first_word};

/// The files of `watcher/src`, top first. A file may import only from rows above its own, never from its own row.
/// A folder counts as one file, under its name. `a+b` are two halves of one thing, which may import each other.
const LAYERS: &[&str] = &[
    "handle_watcher_wire",
    "sync sys",
    "state+outcome stats deadline wake heat front notify kernel_flags child_process file_changes",
    "config rows+list link",
    "command timers events nodes wait_many handle_table back",
    "refusal front_pass",
    "wait_set+registration",
    "port_queue",
    "scan",
    "shared",
    "arrivals",
    "control turn",
    "waiting_data",
    "port watched",
    "notified_port remote",
    "watcher model",
    "service",
    "lib",
    "bin",
];

/// The crates that users link: their functions stay short and their unsafe code stays in `sys/`.
const LIBRARIES: &[&str] = &["watcher/src", "watcher/wire/src", "client/rust/src"];

/// Where integration tests live.
const TEST_FOLDERS: &[&str] = &["watcher/tests", "watcher/wire/tests", "client/rust/tests"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every file below a folder for which `wanted` is true, sorted. Build results and hidden folders are left out.
fn files(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(top().join(&folder)) else { continue };
        for entry in entries {
            let entry = entry.expect("the folder was opened");
            let name = entry.file_name().into_string().expect("our own files have readable names");
            let path = folder.join(&name);
            if name == "target" || name.starts_with('.') {
                continue;
            }
            if entry.path().is_dir() {
                folders.push(path);
            } else if wanted(&name) {
                let text = fs::read_to_string(entry.path()).expect("our own files are text");
                found.push(Source { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn is_rust(name: &str) -> bool {
    name.ends_with(".rs")
}

/// The Rust files of the libraries.
fn library_files() -> Vec<Source> {
    let found: Vec<Source> = LIBRARIES.iter().flat_map(|folder| files(folder, is_rust)).collect();
    assert!(found.len() > 10, "the libraries are not where LIBRARIES says");
    found
}

/// The files that cargo makes test programs of; helpers in folders below are not among them.
fn test_files() -> Vec<Source> {
    let mut found = Vec::new();
    for folder in TEST_FOLDERS {
        found.extend(
            files(folder, is_rust).into_iter().filter(|file| !file.path[folder.len() + 1..].contains('/')),
        );
    }
    found
}

fn contract() -> String {
    fs::read_to_string(top().join("CONTRACT.md")).expect("CONTRACT.md stands at the top")
}

/// Which file of the table a file of `watcher/src` belongs to: its folder, or itself.
fn module_of(path: &str) -> &str {
    first_word(path.trim_start_matches("watcher/src/"))
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "the house is not tidy:\n{}\n", complaints.join("\n"));
}

fn all(files: &[Source], rule: impl Fn(&Source) -> Vec<String>) -> Vec<String> {
    files.iter().flat_map(rule).collect()
}

#[test]
fn files_import_only_from_above() {
    let files = files("watcher/src", is_rust);
    assert_none(&all(&files, |file| import_complaints(LAYERS, module_of(&file.path), file)));
}

#[test]
fn the_table_of_layers_names_only_files() {
    let files = files("watcher/src", is_rust);
    let modules: BTreeSet<&str> = files.iter().map(|file| module_of(&file.path)).collect();
    let names = LAYERS[1..].iter().flat_map(|row| row.split([' ', '+']));
    let stale: Vec<String> = names
        .filter(|name| !modules.contains(name))
        .map(|name| format!("LAYERS names `{name}`: take it out"))
        .collect();
    assert_none(&stale);
}

/// The table in ARCHITECTURE.md has a row for each target, and a word in the column of each level it is used with.
#[test]
fn the_table_of_tracing_names_every_target_and_level() {
    let architecture = fs::read_to_string(top().join("ARCHITECTURE.md")).expect("it stands at the top");
    let levels = ["error", "warn", "info", "debug", "trace"];
    for file in files("watcher/src", is_rust) {
        for (column, level) in levels.iter().enumerate() {
            let start = format!("tracing::{level}!(target: \"");
            for rest in file.text.split(&start).skip(1) {
                let target = rest.split('"').next().unwrap_or_default();
                let row = architecture.lines().find(|line| line.starts_with(&format!("| `{target}` |")));
                let cell = row.and_then(|row| row.split('|').nth(2 + column)).unwrap_or_default();
                assert!(!cell.trim().is_empty(), "{}: `{target}` at {level} is not in the table", file.path);
            }
        }
    }
}

#[test]
fn unsafe_code_lives_in_sys_and_says_why() {
    let files = library_files();
    assert_none(&all(&files, unsafe_place_complaints));
    assert_none(&all(&files, safety_complaints));
}

#[test]
fn functions_and_files_stay_short() {
    assert_none(&all(&library_files(), function_complaints));
    assert_none(&all(&files(".", is_rust), file_length_complaints));
}

#[test]
fn nobody_left_a_note_to_self() {
    let endings = [".rs", ".md", ".toml", ".sh", "Makefile"];
    let files = files(".", |name| endings.iter().any(|ending| name.ends_with(ending)));
    assert_none(&all(&files, note_complaints));
}

#[test]
fn test_files_cite_clauses_that_exist() {
    let known = clauses(&contract(), true);
    assert_none(&all(&test_files(), |file| citation_complaints(file, &known)));
}

#[test]
fn every_built_clause_has_a_test_file() {
    let files = test_files();
    let cited: BTreeSet<&str> = files
        .iter()
        .flat_map(|file| cited(&file.text))
        .map(|clause| clause.trim_end_matches(char::is_lowercase))
        .collect();
    let built = clauses(&contract(), false);
    assert!(built.contains("C1") && built.contains("C9a"), "CONTRACT.md is not read as it is written");
    let numbers = built.iter().filter(|clause| !clause.ends_with(char::is_lowercase));
    let untested: Vec<String> = numbers
        .filter(|clause| !cited.contains(clause.as_str()))
        .map(|clause| format!("no test file opens by citing {clause}"))
        .collect();
    assert_none(&untested);
}
