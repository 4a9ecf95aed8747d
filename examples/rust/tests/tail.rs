//! C1f, C1h, C10a: tail follows a real file that grows, is cut, moved and removed.

mod program;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use program::Program;

/// A file of this test alone, removed at its end.
struct OwnFile {
    path: PathBuf,
    file: File,
}

impl OwnFile {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("handle-watcher-tail-{}-{name}", std::process::id()));
        fs::write(&path, "before\n").expect("a file in the temporary folder");
        let file = OpenOptions::new().append(true).open(&path).expect("the file is there");
        Self { path, file }
    }

    fn append(&mut self, text: &str) {
        self.file.write_all(text.as_bytes()).expect("the file can be written");
    }

    /// Starts tail and waits until it follows.
    fn follow(&self, options: &[&str]) -> Program {
        let mut arguments = vec![self.path.to_str().expect("a readable path")];
        arguments.extend(options);
        let mut tail = Program::start(env!("CARGO_BIN_EXE_tail"), &arguments);
        assert!(tail.read_error().starts_with("following"));
        tail
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _: std::io::Result<()> = fs::remove_file(&self.path);
    }
}

#[test]
fn prints_what_is_appended_and_nothing_older() {
    let mut file = OwnFile::new("grows");
    let mut tail = file.follow(&["--lines", "4"]);
    file.append("one\n");
    assert_eq!(tail.read_line(), "one");
    file.append("two\nthr");
    assert_eq!(tail.read_line(), "two");
    file.append("ee\nfour\n");
    let outcome = tail.wait();
    assert!(outcome.status.success());
    assert_eq!(outcome.output, "three\nfour\n");
}

#[test]
fn loses_nothing_of_a_file_that_grows_fast() {
    const LINES: usize = 20_000;
    let mut file = OwnFile::new("fast");
    let tail = file.follow(&["--lines", &LINES.to_string()]);
    for line in 0..LINES {
        file.append(&format!("{line}\n"));
    }
    let outcome = tail.wait();
    assert!(outcome.status.success());
    assert!(outcome.output.lines().eq((0..LINES).map(|line| line.to_string())), "a line is missing or moved");
}

#[test]
fn starts_again_when_the_file_is_cut() {
    let mut file = OwnFile::new("cut");
    let mut tail = file.follow(&["--lines", "3"]);
    file.append("old\n");
    assert_eq!(tail.read_line(), "old");
    file.file.set_len(0).expect("the file can be cut");
    assert!(tail.read_error().contains("cut"));
    file.append("new\n");
    assert_eq!(tail.read_line(), "new");
    file.append("newer\n");
    let outcome = tail.wait();
    assert!(outcome.status.success());
    assert_eq!(outcome.output, "newer\n");
}

#[test]
fn ends_when_the_file_is_moved_or_removed() {
    let mut file = OwnFile::new("removed");
    let tail = file.follow(&[]);
    file.append("last words\n");
    fs::remove_file(&file.path).expect("the file can be removed");
    let outcome = tail.wait();
    assert!(!outcome.status.success() && outcome.errors.contains("removed"), "{outcome:?}");
    assert_eq!(outcome.output, "last words\n");

    let file = OwnFile::new("moved");
    let tail = file.follow(&[]);
    let elsewhere = file.path.with_extension("elsewhere");
    fs::rename(&file.path, &elsewhere).expect("the file can be moved");
    let outcome = tail.wait();
    fs::remove_file(elsewhere).expect("it was moved there");
    assert!(!outcome.status.success() && outcome.errors.contains("moved"), "{outcome:?}");
}

#[test]
fn ends_after_the_time_it_was_given_and_not_before() {
    let file = OwnFile::new("timed");
    let began = Instant::now();
    let outcome = file.follow(&["--for-ms", "150"]).wait();
    assert!(outcome.status.success());
    assert!(began.elapsed() >= Duration::from_millis(150));
    assert_eq!(outcome.output, "");
}

#[test]
fn says_what_is_wrong_with_its_arguments() {
    let outcome = Program::start(env!("CARGO_BIN_EXE_tail"), &["/no/such/file"]).wait();
    assert!(!outcome.status.success() && !outcome.errors.is_empty(), "{outcome:?}");
    let outcome = Program::start(env!("CARGO_BIN_EXE_tail"), &[]).wait();
    assert!(!outcome.status.success() && outcome.errors.contains("usage"), "{outcome:?}");
}
