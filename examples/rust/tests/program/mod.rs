//! Runs one of the programs, with its two outputs in one pipe each, and never longer than [`PATIENCE`].

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader, PipeReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a program may take to do anything. Only a test that fails waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running program. It is killed when the test ends before it does.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Program {
    /// Starts a program.
    pub(crate) fn start(path: &str, arguments: &[&str]) -> Self {
        Self::start_with(path, arguments, &[])
    }

    /// Starts a program with variables.
    pub(crate) fn start_with(path: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(path)
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let lines = lines_of(child.stdout.take().expect("it was piped"));
        let errors = lines_of(child.stderr.take().expect("it was piped"));
        Self { child, lines, errors }
    }

    /// Starts a program whose two outputs are one, so that their order is seen. All of it is output.
    pub(crate) fn start_merged(path: &str, arguments: &[&str]) -> Self {
        let (reader, writer): (PipeReader, _) = std::io::pipe().expect("a pipe");
        let child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().expect("a duplicate"))
            .stderr(writer)
            .spawn()
            .expect("the program was built");
        Self { child, lines: lines_of(reader), errors: channel().1 }
    }

    /// The next line of output.
    pub(crate) fn read_line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line of output")
    }

    /// The next line of error output.
    pub(crate) fn read_error(&mut self) -> String {
        self.errors.recv_timeout(PATIENCE).expect("another line of error output")
    }

    /// Waits for its end. Gives the output that was not read before.
    pub(crate) fn wait(mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < deadline, "the program did not end within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        let rest = |lines: &Receiver<String>| lines.iter().map(|line| line + "\n").collect();
        Outcome { status, output: rest(&self.lines), errors: rest(&self.errors) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, or is ended here.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
    }
}

/// Reads lines on a thread, so that no program ever waits for room in a pipe.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            if line.map(|line| sender.send(line)).is_err() {
                return;
            }
        }
    });
    receiver
}
