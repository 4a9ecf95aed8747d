//! `cargo run --release -p handle-watcher-examples --bin foreign_loop`
//!
//! A port inside an event loop that is not ours: calloop, which many desktop programs run. The loop has a timer of its
//! own; our client brings it a child process, its output and a timer.
//!
//! It shows: the port's descriptor, one for all watches. It is readable exactly while there is something to drain, so
//! a loop that polls it level-triggered may take as much or as little as it likes each time.

use std::error::Error;
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use calloop::generic::Generic;
use calloop::timer::{TimeoutAction, Timer};
use calloop::{EventLoop, Interest, PostAction};
use handle_watcher_client::{
    ChildProcess, Client, Event, Events, Mode, Signals, Token, WatchOptions, Watched,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SCRIPT: &str = "for word in one two three; do sleep 0.03; echo $word; done; exit 7";
const FRAME: Duration = Duration::from_millis(16);
const REMINDER: Duration = Duration::from_millis(50);

const OUTPUT: Token = 0;
const EXIT: Token = 1;
const REMIND: Token = 2;

/// What the loop's callbacks work on.
struct Program {
    client: Client,
    child: Child,
    /// None at its end.
    output: Option<Watched<ChildStdout>>,
    has_ended: bool,
    was_reminded: bool,
    frames: u32,
}

fn main() -> Result<()> {
    let mut event_loop = EventLoop::try_new()?;
    let mut child = Command::new("sh").args(["-c", SCRIPT]).stdout(Stdio::piped()).spawn()?;
    let mut client = Client::embedded()?;

    // The loop keeps a duplicate, because draining needs the client.
    let descriptor = client.descriptor()?.try_clone_to_owned()?;
    let port = Generic::new(descriptor, Interest::READ, calloop::Mode::Level);
    event_loop.handle().insert_source(port, |_, _, program: &mut Program| {
        program.drain().map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(PostAction::Continue)
    })?;
    event_loop.handle().insert_source(Timer::from_duration(FRAME), |_, (), program| {
        program.frames += 1;
        TimeoutAction::ToDuration(FRAME)
    })?;

    let process = ChildProcess::of(&child)?;
    client.watch_child(&process, EXIT)?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    rustix::io::ioctl_fionbio(&output, true)?;
    let output = client.watch_owned(output, WatchOptions::new(Signals::READABLE, Mode::Level, OUTPUT))?;
    client.set_timer(REMINDER, REMIND)?;

    let mut program =
        Program { client, child, output: Some(output), has_ended: false, was_reminded: false, frames: 0 };
    let signal = event_loop.get_signal();
    event_loop.run(None, &mut program, |program| {
        if program.has_ended && program.was_reminded {
            signal.stop();
        }
    })?;
    if program.frames == 0 {
        return Err("the loop's own timer did not come".into());
    }
    println!("the loop went on meanwhile: its own timer came {} times", program.frames);
    Ok(())
}

impl Program {
    /// One event at a time: what is left keeps the descriptor readable, and the loop calls again.
    fn drain(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1);
        self.client.drain(&mut events)?;
        events.iter().try_for_each(|event| self.on_event(event))
    }

    fn on_event(&mut self, event: &Event) -> Result<()> {
        match event.token {
            OUTPUT => self.read(),
            REMIND => {
                println!("a timer of ours after {REMINDER:?}");
                self.was_reminded = true;
                Ok(())
            }
            EXIT => {
                println!("the child has ended: {}", self.child.wait()?);
                self.has_ended = true;
                Ok(())
            }
            token => Err(format!("nobody gave the token {token}").into()),
        }
    }

    fn read(&mut self) -> Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let mut room = [0; 512];
        match output.read(&mut room)? {
            0 => self.output = None,
            length => print!("the child says: {}", std::str::from_utf8(&room[..length])?),
        }
        Ok(())
    }
}
