//! What a message there and back between two threads costs: with an epoll set of each thread's own, with the
//! watcher in between (the back), and with the port itself looking (the front).

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handle_watcher_client::{
    Client, ClientConfig, Config, Events, FrontPolicy, Mode, Signals, WatchId, Watcher,
};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;
use crate::voice::{Colour, Voice, grouped};

const MESSAGE: &[u8; 12] = b"ping or pong";
/// Subjects take turns, so that a disturbance of the machine meets all of them.
const SLICE: Duration = Duration::from_millis(40);
const SUBJECTS: u32 = 5;
const ROUNDS: u32 = 15;
const TOTAL: Duration = SLICE.saturating_mul(SUBJECTS * ROUNDS);
/// The ways through us.
const OURS: [(&str, Mode, FrontPolicy); SUBJECTS as usize - 1] = [
    ("back, Once", Mode::Once, FrontPolicy::Off),
    ("back, Edge", Mode::Edge, FrontPolicy::Off),
    ("back, Level", Mode::Level, FrontPolicy::Off),
    ("front, Level", Mode::Level, FrontPolicy::Adaptive),
];
/// At the start of each slice, while caches and the scheduler settle.
const WARM_UP: u32 = 20;

/// Measures on a thread of its own, as it pins itself, and prints the table.
pub(crate) fn print(voice: &Voice) -> Result<()> {
    let measuring = std::thread::Builder::new().name("round-trip".to_owned()).spawn(|| {
        // Errors become words here: they are not for sending between threads.
        measure().map_err(|error| error.to_string())
    })?;
    let (processor, subjects) = measuring.join().map_err(|_| "the measuring thread panicked")??;
    let place = processor.map_or("wherever the kernel likes".to_owned(), |it| format!("on processor {it}"));
    let title =
        format!("\nOne message of 12 bytes there and back between two threads, {place}, {TOTAL:?} in turns");
    voice.line(voice.paint(Colour::STRONG, title))?;
    voice.line(format_args!(
        "  {:<24} {:>10} {:>10} {:>8} {:>12}",
        "", "p50", "p99", "ratio", "round trips"
    ))?;
    let floor = subjects.first().map_or(0.0, |floor| floor.percentile(0.5));
    for subject in &subjects {
        voice.line(format_args!(
            "  {:<24} {:>7.1} µs {:>7.1} µs {:>8.2} {:>12}",
            subject.name,
            subject.percentile(0.5),
            subject.percentile(0.99),
            subject.percentile(0.5) / floor,
            grouped(subject.nanoseconds.len() as u64),
        ))?;
    }
    voice.line("  The ratio is p50 beside that of the bare pair, whose threads have an epoll set each.")
}

/// One way to wait, and how long its round trips took, sorted.
struct Measured {
    name: &'static str,
    nanoseconds: Vec<u64>,
}

impl Measured {
    /// In microseconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
    fn percentile(&self, part: f64) -> f64 {
        let last = self.nanoseconds.len().saturating_sub(1);
        let nanoseconds = self.nanoseconds.get((last as f64 * part) as usize).copied().unwrap_or(0);
        nanoseconds as f64 / 1000.0
    }
}

fn measure() -> Result<(Option<usize>, Vec<Measured>)> {
    let processor = pin_here();
    let watcher = Watcher::spawn(Config { affinity: processor.map(|it| vec![it]), ..Config::default() })?;
    let mut subjects = vec![("epoll, no watcher", Subject::new(BareEpoll::new)?)];
    for (name, mode, front) in OURS {
        subjects.push((name, Subject::new(|socket| Ours::new(&watcher, socket, mode, front))?));
    }
    for _ in 0..ROUNDS {
        for (_, subject) in &mut subjects {
            subject.run(SLICE)?;
        }
    }
    let finished = subjects.into_iter().map(|(name, subject)| {
        let mut nanoseconds = subject.finish()?;
        nanoseconds.sort_unstable();
        Ok(Measured { name, nanoseconds })
    });
    Ok((processor, finished.collect::<Result<_>>()?))
}

/// Pins this thread, and those that it will spawn, to the first processor it may use. None if that is
/// refused.
fn pin_here() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let processor = (0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor))?;
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).ok()?;
    Some(processor)
}

/// A way to wait until one socket is readable.
trait Waiter: Send + 'static {
    fn wait(&mut self) -> Result<()>;

    /// Asks for the next readiness, where that must be said. Called when the socket is empty.
    fn arm(&mut self) -> Result<()> {
        Ok(())
    }
}

/// One end of the pair. The waiter is dropped first, so that nothing is watched when the socket closes.
struct End<W> {
    waiter: W,
    socket: UnixStream,
}

impl<W: Waiter> End<W> {
    fn send(&mut self) -> Result<()> {
        Ok(self.socket.write_all(MESSAGE)?)
    }

    /// Takes one message; false when the other end is closed. The room is larger than a message, so that a
    /// short reading proves that the socket is empty.
    fn receive(&mut self) -> Result<bool> {
        loop {
            self.waiter.wait()?;
            let mut room = [0; 64];
            match self.socket.read(&mut room) {
                Ok(0) => return Ok(false),
                Ok(length) if &room[..length] == MESSAGE => {
                    self.waiter.arm()?;
                    return Ok(true);
                }
                Ok(length) => return Err(format!("{:?} is not the message", &room[..length]).into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.waiter.arm()?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A pair of sockets, the near end here and the far end on a thread that sends everything back.
struct Subject {
    near: End<Box<dyn Waiter>>,
    echo: JoinHandle<std::result::Result<(), String>>,
    nanoseconds: Vec<u64>,
}

impl Subject {
    fn new<W: Waiter>(wait_on: impl Fn(&UnixStream) -> Result<W>) -> Result<Self> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        let near = End { waiter: Box::new(wait_on(&near)?) as Box<dyn Waiter>, socket: near };
        let mut far = End { waiter: wait_on(&far)?, socket: far };
        let echo = std::thread::Builder::new().name("echo".to_owned()).spawn(move || {
            let mut echo = || -> Result<()> {
                while far.receive()? {
                    far.send()?;
                }
                Ok(())
            };
            echo().map_err(|error| error.to_string())
        })?;
        Ok(Self { near, echo, nanoseconds: Vec::new() })
    }

    fn run(&mut self, length: Duration) -> Result<()> {
        for _ in 0..WARM_UP {
            self.round()?;
        }
        let began = Instant::now();
        let mut sent = began;
        while sent - began < length {
            self.round()?;
            let received = Instant::now();
            self.nanoseconds.push(u64::try_from((received - sent).as_nanos())?);
            sent = received;
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        self.near.send()?;
        if self.near.receive()? { Ok(()) } else { Err("the echo has ended".into()) }
    }

    /// Closes the near end, which ends the echo, and gives what was measured.
    fn finish(self) -> Result<Vec<u64>> {
        drop(self.near);
        self.echo.join().map_err(|_| "the echo panicked")??;
        Ok(self.nanoseconds)
    }
}

impl Waiter for Box<dyn Waiter> {
    fn wait(&mut self) -> Result<()> {
        (**self).wait()
    }

    fn arm(&mut self) -> Result<()> {
        (**self).arm()
    }
}

/// The floor: a level-triggered epoll set of one socket.
struct BareEpoll {
    set: OwnedFd,
}

impl BareEpoll {
    fn new(socket: &UnixStream) -> Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&set, socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { set })
    }
}

impl Waiter for BareEpoll {
    fn wait(&mut self) -> Result<()> {
        loop {
            match epoll::wait(&self.set, &mut [MaybeUninit::<epoll::Event>::uninit()], None) {
                Ok(([], _)) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A client of the watcher with one watch.
struct Ours {
    client: Client,
    watch: WatchId,
    mode: Mode,
    events: Events,
}

impl Ours {
    fn new(watcher: &Watcher, socket: &UnixStream, mode: Mode, front: FrontPolicy) -> Result<Self> {
        let client = Client::attach_with(watcher, ClientConfig { front, ..ClientConfig::default() })?;
        let watch = client.watch(socket, Signals::READABLE, mode, 0)?;
        Ok(Self { client, watch, mode, events: Events::with_capacity(1) })
    }
}

impl Waiter for Ours {
    fn wait(&mut self) -> Result<()> {
        self.client.wait(&mut self.events, None)?;
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        if self.mode == Mode::Once {
            self.client.arm(self.watch)?;
        }
        Ok(())
    }
}
