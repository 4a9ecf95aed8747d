//! `hwctl` as a child of the test.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{LOOK, PROMPT};

/// A command that runs `hwctl`, without the variables of whoever runs the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hwctl"));
    command.args(arguments).env_remove("HANDLE_WATCHER_SOCKET").env_remove("XDG_RUNTIME_DIR");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `hwctl` to its end.
#[track_caller]
pub(crate) fn run(arguments: &[&str]) -> Ended {
    Running::start(&mut command(arguments)).finish()
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
    /// From its start until it was seen to have ended.
    pub(crate) took: Duration,
}

impl Ended {
    /// Its exit status; a signal is none.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("it was ended by a signal: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        self
    }

    /// The first two columns of each line: the source, and what came.
    #[track_caller]
    pub(crate) fn came(&self) -> Vec<(&str, &str)> {
        let columns = self.output.lines().map(|line| {
            let mut columns = line.split('\t');
            let came = (columns.next().expect("a source"), columns.next().expect("what came"));
            let after = columns.next().expect("a time");
            assert!(after.ends_with(['s', 'm', 'h']) && columns.next().is_none(), "{line:?}");
            came
        });
        columns.collect()
    }

    /// Each line as a JSON object.
    #[track_caller]
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        self.output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// `hwctl` while it runs. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    started: Instant,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let started = Instant::now();
        Self { child: command.spawn().expect("hwctl runs"), started }
    }

    /// Its standard input, which was asked for as a pipe.
    #[track_caller]
    pub(crate) fn write(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        input.write_all(text.as_bytes()).expect("it listens");
    }

    pub(crate) fn close_input(&mut self) {
        self.child.stdin.take();
    }

    /// Nobody reads what it prints from here on.
    pub(crate) fn close_output(&mut self) {
        self.child.stdout.take();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it was not waited for");
    }

    /// Waits for its end, in which its output is small enough for a pipe.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Ended {
        let status = self.wait();
        let took = self.started.elapsed();
        Ended { status, output: text(self.child.stdout.take()), errors: text(self.child.stderr.take()), took }
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        // It may wait for a service itself, for 5 seconds.
        let until = Instant::now() + 2 * PROMPT;
        loop {
            if let Some(status) = self.poll() {
                return status;
            }
            assert!(Instant::now() < until, "hwctl does not end: {self:?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Its exit status, if it has ended.
    pub(crate) fn poll(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our child")
    }

    /// Fails if it has ended.
    #[track_caller]
    pub(crate) fn expect_running(&mut self) {
        let status = self.poll();
        assert!(status.is_none(), "hwctl has ended: {status:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless the test fails.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
    }
}

fn text(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_string(&mut text).expect("text");
    }
    text
}

/// Which signal ended it.
pub(crate) fn ended_by(status: ExitStatus) -> Option<i32> {
    status.signal()
}
