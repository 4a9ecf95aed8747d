//! What a message there and back between two threads costs: with an epoll set of each thread's own, with the
//! watcher in between (the back), and with the port itself looking (the front).

use std::time::{Duration, Instant};

use handle_watcher_client::{Config, FrontPolicy, Mode, Watcher};

use crate::Result;
use crate::ping_pong::{BareEpoll, Ours, Pair, Waiter, percentile, pin_here};
use crate::voice::{Colour, Voice, grouped};

/// Subjects take turns, so that a disturbance of the machine meets all of them.
const SLICE: Duration = Duration::from_millis(40);
const SUBJECTS: u32 = 5;
const TURNS: u32 = 15;
const TOTAL: Duration = SLICE.saturating_mul(SUBJECTS * TURNS);
/// The ways through us.
const OURS: [(&str, Mode, FrontPolicy); SUBJECTS as usize - 1] = [
    ("back, Once", Mode::Once, FrontPolicy::Off),
    ("back, Edge", Mode::Edge, FrontPolicy::Off),
    ("front, Once", Mode::Once, FrontPolicy::Adaptive),
    ("front, Level", Mode::Level, FrontPolicy::Adaptive),
];
/// At the start of each slice, while caches and the scheduler settle and a Once watch moves to the front.
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
    let floor = subjects.first().map_or(0.0, |floor| percentile(&floor.times, 0.5));
    for Measured { name, times } in &subjects {
        voice.line(format_args!(
            "  {name:<24} {:>7.1} µs {:>7.1} µs {:>8.2} {:>12}",
            percentile(times, 0.5),
            percentile(times, 0.99),
            percentile(times, 0.5) / floor,
            grouped(times.len() as u64),
        ))?;
    }
    voice.line("  The ratio is p50 beside that of the bare pair, whose threads have an epoll set each.")
}

/// One way to wait, and how long its round trips took, sorted.
struct Measured {
    name: &'static str,
    times: Vec<Duration>,
}

fn measure() -> Result<(Option<usize>, Vec<Measured>)> {
    let processor = pin_here();
    let watcher = Watcher::spawn(Config { affinity: processor.map(|it| vec![it]), ..Config::default() })?;
    let mut subjects =
        vec![Subject::new("epoll, no watcher", |socket| Ok(Box::new(BareEpoll::new(socket)?)))?];
    for (name, mode, front) in OURS {
        subjects.push(Subject::new(name, |socket| Ok(Box::new(Ours::new(&watcher, socket, mode, front)?)))?);
    }
    for _ in 0..TURNS {
        for subject in &mut subjects {
            subject.run(SLICE)?;
        }
    }
    Ok((processor, subjects.into_iter().map(Subject::finish).collect::<Result<_>>()?))
}

/// One row of the table.
struct Subject {
    name: &'static str,
    pair: Pair<Box<dyn Waiter>>,
    times: Vec<Duration>,
}

impl Subject {
    fn new(
        name: &'static str,
        wait_on: impl Fn(&std::os::unix::net::UnixStream) -> Result<Box<dyn Waiter>>,
    ) -> Result<Self> {
        Ok(Self { name, pair: Pair::new(wait_on)?, times: Vec::new() })
    }

    fn run(&mut self, length: Duration) -> Result<()> {
        for _ in 0..WARM_UP {
            self.pair.round()?;
        }
        let began = Instant::now();
        while began.elapsed() < length {
            self.times.push(self.pair.round()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Measured> {
        self.pair.finish()?;
        self.times.sort_unstable();
        Ok(Measured { name: self.name, times: self.times })
    }
}
