//! `cargo run --release -p handle-watcher-examples --bin isolates`
//!
//! A thousand isolates: threads with a client each, all on one watcher. Each has a timer, an eventfd, and a pipe to its
//! neighbour; a token goes round the ring of pipes. `-- N` takes N isolates instead.
//!
//! It shows: one thread that waits for a thousand others, and what it did for them. A client that waits in the back
//! costs no descriptor and no thread of its own.

use std::error::Error;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use handle_watcher_client::{
    Client, ClientConfig, Config, Events, FrontPolicy, Mode, Signals, Token, WatchOptions, Watched, Watcher,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ISOLATES: u32 = 1000;
const LAPS: u64 = 20;
/// The timers of the isolates expire one after the other, from the first time on.
const FIRST_TIMER: Duration = Duration::from_millis(50);
const NEXT_TIMER: Duration = Duration::from_micros(100);
/// An isolate needs little, and a thousand of them shall not need much.
const STACK_BYTES: usize = 64 * 1024;
/// The two ends of a pipe, and an eventfd.
const DESCRIPTORS_EACH: u64 = 3;
/// What the program and the watcher need beside them.
const DESCRIPTORS_BESIDE: u64 = 32;
/// How long nothing may be heard of any isolate.
const PATIENCE: Duration = Duration::from_secs(30);

const PIPE: Token = 0;
const TIMER: Token = 1;
const STOP: Token = 2;

fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(ISOLATES), |count| count.parse())?;
    let count = u64::from(count);
    if count == 0 {
        return Err("a ring needs at least one isolate".into());
    }
    allow_descriptors(count)?;
    let before = open_descriptors()?;
    let watcher = Watcher::spawn(Config { client_limit: u32::try_from(count)?, ..Config::default() })?;
    let mut ring = Ring::new(&watcher, count)?;
    let time = ring.run()?;
    let used = open_descriptors()? - before;
    let stats = watcher.stats();
    let hops = ring.stop()?;
    if hops != count * LAPS {
        return Err(format!("{hops} hops came where {} were to come", count * LAPS).into());
    }

    println!("{count} isolates, each a thread with a client of its own, on one watcher thread");
    println!(
        "the token went round {LAPS} times: {hops} hops in {time:.1?}, {:.1?} each",
        time / u32::try_from(hops)?
    );
    println!("every isolate's timer came once: {} expired", stats.timers_fired);
    println!(
        "the watcher found {} ready descriptors in {} turns, and woke an isolate {} times",
        stats.readiness, stats.turns, stats.client_wakes
    );
    let own = count * DESCRIPTORS_EACH;
    println!("{used} descriptors: {own} of the isolates, {} of the watcher and all its clients", used - own);
    Ok(())
}

/// What an isolate tells the main thread.
enum Word {
    /// Its timer came.
    Timer,
    /// The token has gone round often enough.
    Token,
    Failed(String),
}

/// The isolates, and how to talk to them.
struct Ring {
    threads: Vec<JoinHandle<u64>>,
    first: PipeWriter,
    stops: Vec<Arc<OwnedFd>>,
    words: Receiver<Word>,
}

impl Ring {
    fn new(watcher: &Watcher, count: u64) -> Result<Self> {
        let pipes = (0..count).map(|_| io::pipe()).collect::<io::Result<Vec<_>>>()?;
        let (readers, mut writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let first = writers[0].try_clone()?;
        // Each writes to the pipe of the next, and the last one to that of the first.
        writers.rotate_left(1);
        let (says, words) = channel();
        let mut ring = Self { threads: Vec::new(), first, stops: Vec::new(), words };
        for (number, (reader, writer)) in (0..).zip(readers.into_iter().zip(writers)) {
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            ring.stops.push(Arc::clone(&stop));
            let isolate = Isolate::new(watcher, reader, writer, stop, says.clone())?;
            isolate.client.set_timer(FIRST_TIMER + NEXT_TIMER * number, TIMER)?;
            let name = format!("isolate-{number}");
            let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES);
            ring.threads.push(thread.spawn(move || isolate.run(count * LAPS))?);
        }
        Ok(ring)
    }

    /// Lets the token go round, and waits until it is back and every timer has come. Gives how long the token took.
    fn run(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.first.write_all(&0_u64.to_ne_bytes())?;
        let (mut timers, mut time) = (0, None);
        while timers < self.threads.len() || time.is_none() {
            match self.words.recv_timeout(PATIENCE)? {
                Word::Timer => timers += 1,
                Word::Token => time = Some(began.elapsed()),
                Word::Failed(why) => return Err(why.into()),
            }
        }
        time.ok_or_else(|| "the token was lost".into())
    }

    /// Stops every isolate through its eventfd. Gives how often they passed the token on, all together.
    fn stop(self) -> Result<u64> {
        for stop in &self.stops {
            rustix::io::write(stop, &1_u64.to_ne_bytes())?;
        }
        let hops = self.threads.into_iter().map(JoinHandle::join);
        Ok(hops.sum::<thread::Result<u64>>().map_err(|_| "an isolate panicked")?)
    }
}

/// One thread's own world. What is watched comes before the client, so that it is unwatched first.
struct Isolate {
    reader: Watched<PipeReader>,
    _stop: Watched<Arc<OwnedFd>>,
    writer: PipeWriter,
    client: Client,
    says: Sender<Word>,
}

impl Isolate {
    fn new(
        watcher: &Watcher,
        reader: PipeReader,
        writer: PipeWriter,
        stop: Arc<OwnedFd>,
        says: Sender<Word>,
    ) -> Result<Self> {
        // A front would take the watcher out of the way of those that are hot, for two descriptors each.
        let config = ClientConfig { front: FrontPolicy::Off, ..ClientConfig::default() };
        let client = Client::attach_with(watcher, config)?;
        let reader = client.watch_owned(reader, WatchOptions::new(Signals::READABLE, Mode::Once, PIPE))?;
        let stop = client.watch_owned(stop, WatchOptions::new(Signals::READABLE, Mode::Once, STOP))?;
        Ok(Self { reader, _stop: stop, writer, client, says })
    }

    /// Runs until it is stopped. Gives how often it passed the token on.
    fn run(mut self, last: u64) -> u64 {
        let mut hops = 0;
        if let Err(error) = self.pass_on(last, &mut hops) {
            self.say(Word::Failed(error.to_string()));
        }
        hops
    }

    fn pass_on(&mut self, last: u64, hops: &mut u64) -> Result<()> {
        let mut events = Events::with_capacity(4);
        loop {
            self.client.wait(&mut events, None)?;
            for event in &events {
                match event.token {
                    PIPE => {
                        let mut token = [0; 8];
                        self.reader.read_exact(&mut token)?;
                        self.reader.arm()?;
                        *hops += 1;
                        match u64::from_ne_bytes(token) + 1 {
                            token if token == last => self.say(Word::Token),
                            token => self.writer.write_all(&token.to_ne_bytes())?,
                        }
                    }
                    TIMER => self.say(Word::Timer),
                    _ => return Ok(()),
                }
            }
        }
    }

    fn say(&self, word: Word) {
        // Nobody listens any more only if the main thread has failed.
        let _: std::result::Result<(), _> = self.says.send(word);
    }
}

/// Raises this process's own limit of descriptors as far as it may and must.
fn allow_descriptors(isolates: u64) -> Result<()> {
    let needed = isolates * DESCRIPTORS_EACH + DESCRIPTORS_BESIDE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < needed) {
        let most = maximum.unwrap_or(0).saturating_sub(DESCRIPTORS_BESIDE) / DESCRIPTORS_EACH;
        return Err(format!(
            "{isolates} isolates need {needed} descriptors, which RLIMIT_NOFILE forbids; try {most}"
        )
        .into());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })?)
}

fn open_descriptors() -> Result<u64> {
    // The folder is open while it is being read.
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}
