//! `cargo run --release -p handle-watcher-examples --bin supervise -- sh -c 'echo working; exit 1'`
//!
//! Runs a command and forwards its output line by line. A command that fails is run again after a delay:
//! `--restarts N` times (default 3), `--delay-ms T` later each time (default 500).
//!
//! It shows: a child's end as an event, which comes after the output that it left; and a timer beside both.

use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use handle_watcher_client::{
    ChildProcess, Client, Events, Mode, Signals, Token, WatchId, WatchOptions, Watched,
};

const USAGE: &str = "usage: supervise [--restarts N] [--delay-ms T] COMMAND [ARGUMENT...]";

/// The two outputs have their index as token.
const EXIT: Token = 2;
const RESTART: Token = 3;

/// What a pipe holds, so that one reading mostly empties it.
const READ_BYTES: usize = 64 * 1024;
/// A line that has not ended by then is forwarded in parts.
const LINE_BYTES_MOST: usize = 1024 * 1024;

struct Arguments {
    restarts: u32,
    delay: Duration,
    command: Vec<String>,
}

/// A command that runs, or has ended.
struct Run {
    child: Child,
    /// Lent to the watch on the command's end.
    _process: ChildProcess,
    exit: WatchId,
    outputs: [Output; 2],
}

/// One output of the command, and where it goes.
struct Output {
    /// None at its end.
    pipe: Option<Watched<File>>,
    target: Box<dyn Write>,
    /// The beginning of a line that has not ended yet.
    line: Vec<u8>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { mut restarts, delay, command } = Arguments::read()?;
    let mut client = Client::embedded()?;
    let mut events = Events::with_capacity(4);
    let mut run = Run::start(&client, &command)?;
    loop {
        client.wait(&mut events, None)?;
        for event in &events {
            match event.token {
                EXIT => {
                    let status = run.finish(&client)?;
                    eprintln!("supervise: {} ended, {status}", command[0]);
                    if status.success() {
                        return Ok(ExitCode::SUCCESS);
                    }
                    if restarts == 0 {
                        return Ok(ExitCode::FAILURE);
                    }
                    restarts -= 1;
                    client.set_timer(delay, RESTART)?;
                }
                RESTART => run = Run::start(&client, &command)?,
                output => run.outputs[usize::try_from(output)?].forward()?,
            }
        }
    }
}

impl Run {
    fn start(client: &Client, command: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be run: {error}", command[0]))?;
        let process = ChildProcess::of(&child)?;
        let stdout = child.stdout.take().ok_or("the child has no output")?.into();
        let stderr = child.stderr.take().ok_or("the child has no error output")?.into();
        let outputs = [
            Output::new(client, stdout, 0, Box::new(io::stdout()))?,
            Output::new(client, stderr, 1, Box::new(io::stderr()))?,
        ];
        let exit = client.watch_child(&process, EXIT)?;
        Ok(Self { child, _process: process, exit, outputs })
    }

    /// The command has ended, and what it left in its outputs was told before.
    fn finish(&mut self, client: &Client) -> Result<std::process::ExitStatus, Box<dyn Error>> {
        client.unwatch(self.exit)?;
        for output in &mut self.outputs {
            output.close()?;
        }
        Ok(self.child.wait()?)
    }
}

impl Output {
    fn new(
        client: &Client,
        pipe: OwnedFd,
        token: Token,
        target: Box<dyn Write>,
    ) -> Result<Self, Box<dyn Error>> {
        rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        let options = WatchOptions::new(Signals::READABLE, Mode::Level, token);
        let pipe = client.watch_owned(File::from(pipe), options)?;
        Ok(Self { pipe: Some(pipe), target, line: Vec::new() })
    }

    /// Reads once and forwards the lines that have ended. If there is more, it is told again.
    fn forward(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut buffer = [0; READ_BYTES];
        let has_ended = match pipe.read(&mut buffer) {
            Ok(length) => {
                self.line.extend_from_slice(&buffer[..length]);
                length == 0
            }
            // A Ready is a hint: there may be nothing any more.
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => return Err(error.into()),
        };
        let last_end = self.line.iter().rposition(|&byte| byte == b'\n');
        let is_too_long = self.line.len() > LINE_BYTES_MOST;
        let end = last_end.map_or(if is_too_long { self.line.len() } else { 0 }, |last| last + 1);
        if end > 0 {
            self.target.write_all(&self.line[..end])?;
            self.target.flush()?;
            self.line.drain(..end);
        }
        if has_ended { self.close() } else { Ok(()) }
    }

    /// Closes the pipe and forwards a last line without an end. Harmless when it is closed already.
    fn close(&mut self) -> Result<(), Box<dyn Error>> {
        self.pipe = None;
        if !self.line.is_empty() {
            self.line.push(b'\n');
            self.target.write_all(&self.line)?;
            self.target.flush()?;
            self.line.clear();
        }
        Ok(())
    }
}

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut arguments = Self { restarts: 3, delay: Duration::from_millis(500), command: Vec::new() };
        let mut words = std::env::args().skip(1).peekable();
        while let Some(option) = words.next_if(|word| word.starts_with("--")) {
            let value = words.next().ok_or(USAGE)?;
            match option.as_str() {
                "--restarts" => arguments.restarts = value.parse()?,
                "--delay-ms" => arguments.delay = Duration::from_millis(value.parse()?),
                _ => return Err(USAGE.into()),
            }
        }
        arguments.command = words.collect();
        if arguments.command.is_empty() { Err(USAGE.into()) } else { Ok(arguments) }
    }
}
