//! A copy of the sources where they may be changed, built and run.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::rules::Mutation;

/// What cargo needs of the workspace.
const PARTS: &[&str] = &["Cargo.toml", "Cargo.lock", "watcher", "client", "bench", "examples", "README.md"];

pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn source_of(mutation: &Mutation, top: &Path) -> PathBuf {
    top.join("watcher/src").join(mutation.file)
}

/// What came of one run of the stress.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) passes: bool,
    pub(crate) took: Duration,
    /// What it complained of, and why it thinks so.
    pub(crate) text: String,
}

impl Outcome {
    /// The first line of what it complained of.
    pub(crate) fn complaint(&self) -> &str {
        let mut lines = self.text.lines().filter(|line| !line.is_empty() && !line.contains("panicked at"));
        lines.next().unwrap_or("it died without a word")
    }
}

#[derive(Debug)]
pub(crate) struct Workshop {
    source: PathBuf,
    build: PathBuf,
}

impl Workshop {
    /// Below the folder that cargo builds this program in, so that `cargo clean` takes it along.
    pub(crate) fn open() -> Self {
        let program = std::env::current_exe().expect("a path to this program");
        // It is in `debug/deps`.
        let target = program.ancestors().nth(3).expect("a folder that cargo builds in").join("mutations");
        let shop = Self { source: target.join("source"), build: target.join("build") };
        fs::create_dir_all(&shop.source).expect("the target folder is ours");
        for part in PARTS {
            copy(&top().join(part), &shop.source.join(part));
        }
        shop
    }

    /// The stress, built from the sources as they are here now.
    pub(crate) fn build_stress(&self) -> PathBuf {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["test", "--offline", "--locked", "-p", "handle-watcher-client", "--test", "stress"])
            .args(["--no-run", "--message-format=json"])
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", &self.build)
            .output()
            .expect("cargo can be run");
        let errors = String::from_utf8_lossy(&built.stderr);
        let text = String::from_utf8_lossy(&built.stdout);
        assert!(built.status.success(), "the copy does not build:\n{errors}{text}");
        let path = text.split("\"executable\":\"").nth(1).and_then(|rest| rest.split('"').next());
        PathBuf::from(path.expect("cargo names the program it built"))
    }

    /// Builds and runs the stress with a rule left out.
    pub(crate) fn try_without(&self, mutation: &Mutation, time: Duration) -> Outcome {
        let path = source_of(mutation, &self.source);
        let text = fs::read_to_string(&path).expect("a source file");
        fs::write(&path, text.replacen(mutation.text, mutation.instead, 1)).expect("the copy is ours");
        let program = self.build_stress();
        fs::write(&path, text).expect("the copy is ours");
        self.run_stress(&program, time)
    }

    /// A run that does not end in time hangs, which is a complaint too.
    pub(crate) fn run_stress(&self, program: &Path, time: Duration) -> Outcome {
        let limit = time + Duration::from_secs(20);
        let began = Instant::now();
        let mut child = Command::new(program)
            .args(["--nocapture", "--test-threads=1"])
            .current_dir(&self.source)
            .env("HANDLE_WATCHER_STRESS_SECONDS", time.as_secs().to_string())
            .env("HANDLE_WATCHER_STRESS_PATIENCE_MS", "2000")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the stress can be run");
        let mut errors = child.stderr.take().expect("it was piped");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before an error is told all the same.
            let _: std::io::Result<usize> = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child of ours") {
                break Some(status);
            }
            if began.elapsed() > limit {
                child.kill().expect("a child of ours");
                child.wait().expect("a child of ours");
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let took = began.elapsed();
        let text = reader.join().expect("a reader");
        let text = if status.is_none() { format!("it hangs\n{text}") } else { text };
        Outcome { passes: status.is_some_and(|status| status.success()), took, text }
    }
}

/// Makes `to` the same as `from`. What is the same already is left alone, so that cargo builds only what has changed.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        let wanted = fs::read(from).expect("a file of the workspace");
        if fs::read(to).ok().as_ref() != Some(&wanted) {
            fs::write(to, wanted).expect("the copy is ours");
        }
        return;
    }
    fs::create_dir_all(to).expect("the copy is ours");
    for entry in fs::read_dir(to).expect("the copy is ours") {
        let old = entry.expect("the folder was opened").path();
        if !from.join(old.file_name().expect("a name")).exists() {
            remove(&old);
        }
    }
    for entry in fs::read_dir(from).expect("a folder of the workspace") {
        let name = entry.expect("the folder was opened").file_name();
        if name != "target" && !name.as_encoded_bytes().starts_with(b".") {
            copy(&from.join(&name), &to.join(&name));
        }
    }
}

fn remove(old: &Path) {
    let removed = if old.is_dir() { fs::remove_dir_all(old) } else { fs::remove_file(old) };
    removed.expect("the copy is ours");
}
