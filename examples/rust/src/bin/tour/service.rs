//! The service: two clients in another process than their watcher. The same watches, timers and order come through a
//! socket; then the service is stopped, and every watch learns of it.

use std::io::{PipeReader, PipeWriter, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use handle_watcher_client::{
    ChildProcess, Client, ClientConfig, Code, Config, ConnectConfig, Event, EventKind, Events, FrontPolicy,
    Mode, Signals, Token, WatchId, Watcher,
};

use crate::Result;
use crate::daemon::{self, Daemon};
use crate::helper::ROLE_FLAG;
use crate::ping_pong::{Ours, Pair, percentile, pin_here};
use crate::show::SceneResult;
use crate::voice::{Colour, Voice};

pub(crate) const ROLE: &str = "service";
pub(crate) const WORDS: &str = "hello through a pipe";
pub(crate) const EXIT_CODE: i32 = 5;

const NUMBER: u32 = 8;
const TITLE: &str = "service";

const PIPE: Token = 1;
const EXIT: Token = 2;
const TIMER: Token = 3;
const IDLE: Token = 4;

const DELAY: Duration = Duration::from_millis(100);
/// How long an event may take.
const PATIENCE: Duration = Duration::from_secs(8);
/// The ping-pongs take turns of so many rounds, for so long.
const TURN_ROUNDS: u32 = 100;
const MEASURED: Duration = Duration::from_millis(900);
const TABLE_TITLE: &str = "\nA message of 12 bytes there and back between two clients, p50";

/// What came, and the table's row.
struct Outcome {
    events: u64,
    row: String,
}

/// Plays on a thread of its own, as it pins itself and with it the service. None if the service's program was not built.
pub(crate) fn show(voice: &Voice) -> Result<Option<SceneResult>> {
    voice.line("")?;
    let program = daemon::program()?;
    if !program.exists() {
        let line = "left out, for handle-watcherd is not beside this program; build it: \
                    cargo build --release -p handle-watcher --features daemon";
        voice.tell(NUMBER, TITLE, line)?;
        return Ok(None);
    }
    let (sender, lines) = channel();
    let playing = std::thread::Builder::new()
        .name("service".to_owned())
        // Errors become words here: they are not for sending between threads.
        .spawn(move || play(&program, &sender).map_err(|error| error.to_string()))?;
    for line in lines {
        voice.tell(NUMBER, TITLE, line)?;
    }
    let mut result = SceneResult {
        number: NUMBER,
        title: TITLE,
        expected: "a pipe, a timer, a child after its words; UNAVAILABLE after the service's stop".to_owned(),
        ..SceneResult::default()
    };
    match playing.join().map_err(|_| "the scene panicked")? {
        Ok(outcome) => {
            result.events = outcome.events;
            result.came = "all of it, and in that order".to_owned();
            voice.tell(NUMBER, TITLE, "over")?;
            voice.line(voice.paint(Colour::STRONG, TABLE_TITLE))?;
            voice.line(format_args!(
                "  {:<24} {:>12} {:>12} {:>8} {:>14}",
                "", "embedded", "service", "ratio", "own front"
            ))?;
            voice.line(outcome.row)?;
        }
        Err(fault) => {
            voice.tell(NUMBER, TITLE, voice.paint(Colour::BAD, format_args!("WRONG: {fault}")))?;
            result.came = "not that".to_owned();
            result.fault = Some(fault);
        }
    }
    Ok(Some(result))
}

fn play(program: &std::path::Path, lines: &Sender<String>) -> Result<Outcome> {
    let processor = pin_here();
    let began = Instant::now();
    let mut daemon = Daemon::start(program)?;
    let took = began.elapsed();
    let mode = daemon.mode()?;
    if mode != 0o600 {
        return Err(format!("the socket has the mode {mode:o}, not 600").into());
    }
    lines.send(format!(
        "process {} serves {} (mode {mode:o}), {took:.1?} after its start",
        daemon.process_id(),
        daemon.socket().display()
    ))?;
    let mut first = Remote::connect(&daemon)?;
    let mut second = Remote::connect(&daemon)?;
    lines.send(
        "two clients are connected: one watches a pipe and a child, one an idle pipe and a timer".to_owned(),
    )?;
    let mut talker = Talker::start()?;
    let (idle, _kept) = std::io::pipe()?;
    let pipe = first.client.watch(&talker.output, Signals::READABLE, Mode::Once, PIPE)?;
    let exit = first.client.watch_child(&talker.process, EXIT)?;
    let idle_watch = second.client.watch(&idle, Signals::READABLE, Mode::Once, IDLE)?;
    second.expect_timer(lines)?;
    first.expect_words(&mut talker, exit, lines)?;
    let row = measure(&daemon, processor)?;
    daemon.terminate()?;
    lines.send("the service is told to stop (SIGTERM)".to_owned())?;
    first.expect_lost(pipe, "the pipe", lines)?;
    second.expect_lost(idle_watch, "the idle pipe", lines)?;
    daemon.wait()?;
    lines.send("the service has ended well, and its socket is gone".to_owned())?;
    Ok(Outcome { events: first.delivered() + second.delivered(), row })
}

/// The child whose words and end are watched.
struct Talker {
    child: Child,
    process: ChildProcess,
    output: PipeReader,
}

impl Talker {
    fn start() -> Result<Self> {
        let (output, input): (PipeReader, PipeWriter) = std::io::pipe()?;
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE_FLAG, ROLE, ""])
            .stdin(Stdio::null())
            .stdout(input)
            .spawn()?;
        match ChildProcess::of(&child) {
            Ok(process) => Ok(Self { child, process, output }),
            Err(status) => {
                child.kill()?;
                child.wait()?;
                Err(status.into())
            }
        }
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        // It ends by itself, and soon.
        let _: std::io::Result<std::process::ExitStatus> = self.child.wait();
    }
}

/// One client of the service, and what it was told.
struct Remote {
    client: Client,
    events: Events,
}

impl Remote {
    fn connect(daemon: &Daemon) -> Result<Self> {
        // One event at a time: each is looked at before the next.
        Ok(Self { client: Client::connect(daemon.socket())?, events: Events::with_capacity(1) })
    }

    fn next(&mut self) -> Result<Event> {
        self.client.wait(&mut self.events, Some(PATIENCE))?;
        Ok(*self.events.as_slice().first().ok_or_else(|| format!("no event came within {PATIENCE:?}"))?)
    }

    fn expect(&mut self, kind: EventKind, token: Token) -> Result<Event> {
        let event = self.next()?;
        if (event.kind, event.token) == (kind, token) {
            Ok(event)
        } else {
            Err(format!("not expected: {event:?}").into())
        }
    }

    fn expect_timer(&mut self, lines: &Sender<String>) -> Result<()> {
        let began = Instant::now();
        self.client.set_timer(DELAY, TIMER)?;
        self.expect(EventKind::Timer, TIMER)?;
        let took = began.elapsed();
        if took < DELAY {
            return Err(format!("the timer of {DELAY:?} came after {took:?}").into());
        }
        Ok(lines.send(format!("second client: the timer came, {:.1?} late", took.saturating_sub(DELAY)))?)
    }

    /// The child's words, and its end after them, which takes its watch away.
    fn expect_words(&mut self, talker: &mut Talker, exit: WatchId, lines: &Sender<String>) -> Result<()> {
        self.expect(EventKind::Ready, PIPE)?;
        let mut words = String::new();
        talker.output.read_to_string(&mut words)?;
        if words != WORDS {
            return Err(format!("the pipe said {words:?}, not {WORDS:?}").into());
        }
        lines.send(format!("first client: the pipe says: {words}"))?;
        self.expect(EventKind::Ready, EXIT)?;
        self.client.unwatch(exit)?;
        let status = talker.child.wait()?;
        if status.code() != Some(EXIT_CODE) {
            return Err(format!("the child ended with {status}, not with {EXIT_CODE}").into());
        }
        lines.send(format!("first client: the child has ended: {status}"))?;
        Ok(())
    }

    fn expect_lost(&mut self, watch: WatchId, what: &str, lines: &Sender<String>) -> Result<()> {
        let event = self.next()?;
        if (event.watch, event.kind, event.status) != (watch, EventKind::Ended, Code::Unavailable) {
            return Err(format!("Ended(UNAVAILABLE) was expected: {event:?}").into());
        }
        match self.client.set_timer(DELAY, TIMER) {
            Err(status) if status.code() == Code::Unavailable => {}
            other => return Err(format!("a call to a service that is gone gave {other:?}").into()),
        }
        Ok(lines.send(format!("the watch of {what} has ended with UNAVAILABLE, and so does every call"))?)
    }

    fn delivered(&self) -> u64 {
        self.client.client_stats().delivered
    }
}

/// Ping-pongs in turns: clients of a watcher in this process, of the service, and of the service with their own front.
fn measure(daemon: &Daemon, processor: Option<usize>) -> Result<String> {
    let watcher = Watcher::spawn(Config { affinity: processor.map(|it| vec![it]), ..Config::default() })?;
    let socket = daemon.socket();
    let remote = |front| {
        let config = ClientConfig { front, ..ClientConfig::default() };
        Client::connect_with(&socket, &ConnectConfig::default(), config)
    };
    let mut pairs = [
        Pair::new(|end| Ours::new(&watcher, end, Mode::Once, FrontPolicy::Off))?,
        Pair::new(|end| Ours::of(remote(FrontPolicy::Off)?, end, Mode::Once))?,
        Pair::new(|end| Ours::of(remote(FrontPolicy::Adaptive)?, end, Mode::Once))?,
    ];
    let mut times = [const { Vec::new() }; 3];
    let began = Instant::now();
    while began.elapsed() < MEASURED {
        for (pair, times) in pairs.iter_mut().zip(&mut times) {
            for _ in 0..TURN_ROUNDS {
                times.push(pair.round()?);
            }
        }
    }
    let [embedded, service, front] = times.map(|mut times| {
        times.sort_unstable();
        percentile(&times, 0.5)
    });
    pairs.into_iter().try_for_each(Pair::finish)?;
    watcher.stop()?;
    Ok(format!(
        "  {:<24} {embedded:>9.1} µs {service:>9.1} µs {:>8.2} {front:>11.1} µs",
        "round trip",
        service / embedded
    ))
}
