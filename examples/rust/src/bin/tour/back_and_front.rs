//! Back and front: the same ping-pong twice, round by round. One client forbids the front, the other lets a watch that is
//! hot move there, which takes the watcher out of its way. The move is told as it happens.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use handle_watcher_client::{Config, FrontPolicy, Mode, Watcher};

use crate::Result;
use crate::ping_pong::{Ours, Pair, microseconds, percentile, pin_here};
use crate::role::misbehaves;
use crate::show::SceneResult;
use crate::voice::{Colour, Voice, grouped};

const NUMBER: u32 = 7;
const TITLE: &str = "front";

/// A hot watch has moved after so many rounds in a row.
const ROUNDS_MOST: u32 = 8;
/// Rounds that are told one by one, at least.
const ROUNDS_TOLD: u32 = 10;
/// A watch cools while the machine is busy elsewhere for longer than this, and the count of rounds begins anew.
const UNDISTURBED: Duration = Duration::from_millis(5);
/// How long the medians are measured.
const MEASURED: Duration = Duration::from_millis(600);

/// One round of each ping-pong.
struct Round {
    number: u32,
    back: Duration,
    adaptive: Duration,
    /// The second one came from the front.
    is_front: bool,
}

/// How it went, and the times after the rounds that were told, sorted.
struct Outcome {
    moved_at: u32,
    back: Vec<Duration>,
    adaptive: Vec<Duration>,
    events: u64,
    from_front: u64,
}

/// Plays on a thread of its own, as it pins itself, and tells each round here, so that telling disturbs no round.
pub(crate) fn show(voice: &Voice) -> Result<SceneResult> {
    voice.line("")?;
    let tell = |words: String| voice.tell(NUMBER, TITLE, words);
    tell("two ping-pongs take turns: one stays in the back, one may move to the front".to_owned())?;
    let (sender, rounds) = channel();
    let playing = std::thread::Builder::new()
        .name("ping-pong".to_owned())
        // Errors become words here: they are not for sending between threads.
        .spawn(move || play(&sender).map_err(|error| error.to_string()))?;
    let mut was_front = false;
    for Round { number, back, adaptive, is_front } in rounds {
        let place = match (was_front, is_front) {
            (false, true) => voice.paint(Colour::GOOD, "from the front: it has moved"),
            (_, true) => "from the front".to_owned(),
            (_, false) => "from the back".to_owned(),
        };
        was_front = is_front;
        let (back, adaptive) = (microseconds(back), microseconds(adaptive));
        tell(format!("round {number:2}   kept back {back:6.1} µs   adaptive {adaptive:6.1} µs, {place}"))?;
    }
    let outcome = playing.join().map_err(|_| "the ping-pong panicked")?;
    let mut result = SceneResult {
        number: NUMBER,
        title: TITLE,
        expected: format!("one stays in the back, one is in the front within {ROUNDS_MOST} rounds"),
        ..SceneResult::default()
    };
    match outcome {
        Ok(outcome) => {
            result.events = outcome.events;
            result.came = outcome.to_string();
            tell("over".to_owned())?;
        }
        Err(fault) => {
            tell(voice.paint(Colour::BAD, format_args!("WRONG: {fault}")))?;
            result.came = "no move".to_owned();
            result.fault = Some(fault);
        }
    }
    Ok(result)
}

fn play(rounds: &Sender<Round>) -> Result<Outcome> {
    let processor = pin_here();
    let watcher = Watcher::spawn(Config { affinity: processor.map(|it| vec![it]), ..Config::default() })?;
    let policy = if misbehaves(TITLE) { FrontPolicy::Off } else { FrontPolicy::Adaptive };
    let mut back = Pair::new(|socket| Ours::new(&watcher, socket, Mode::Once, FrontPolicy::Off))?;
    let mut adaptive = Pair::new(|socket| Ours::new(&watcher, socket, Mode::Once, policy))?;
    let moved_at = watch_it_move(&mut back, &mut adaptive, rounds)?;
    let mut outcome = Outcome { moved_at, back: Vec::new(), adaptive: Vec::new(), events: 0, from_front: 0 };
    let before = adaptive.waiter().stats();
    let began = Instant::now();
    while began.elapsed() < MEASURED {
        outcome.back.push(back.round()?);
        outcome.adaptive.push(adaptive.round()?);
    }
    outcome.back.sort_unstable();
    outcome.adaptive.sort_unstable();
    let after = adaptive.waiter().stats();
    outcome.from_front = after.from_front - before.from_front;
    outcome.events = back.waiter().stats().delivered + after.delivered;
    back.finish()?;
    adaptive.finish()?;
    Ok(outcome)
}

/// Plays until the second one has moved, and at least [`ROUNDS_TOLD`] rounds. Gives the first round from the front.
fn watch_it_move(back: &mut Pair<Ours>, adaptive: &mut Pair<Ours>, rounds: &Sender<Round>) -> Result<u32> {
    let (mut moved_at, mut in_a_row) = (None, 0);
    let mut last = Instant::now();
    for number in 1.. {
        let from_front = adaptive.waiter().stats().from_front;
        let (back_time, adaptive_time) = (back.round()?, adaptive.round()?);
        let is_front = adaptive.waiter().stats().from_front > from_front;
        rounds.send(Round { number, back: back_time, adaptive: adaptive_time, is_front })?;
        if back.waiter().stats().from_front > 0 {
            return Err(format!("round {number} came from the front, which was forbidden").into());
        }
        in_a_row = if last.elapsed() > UNDISTURBED { 0 } else { in_a_row + 1 };
        last = Instant::now();
        if is_front {
            moved_at.get_or_insert(number);
        }
        match moved_at {
            None if in_a_row >= ROUNDS_MOST => {
                return Err(format!("it is still in the back after {number} rounds").into());
            }
            Some(moved_at) if number >= ROUNDS_TOLD => return Ok(moved_at),
            _ => {}
        }
    }
    Err("the rounds have run out".into())
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (back, adaptive) = (percentile(&self.back, 0.5), percentile(&self.adaptive, 0.5));
        write!(
            formatter,
            "in the front at round {}; p50 then {back:.1} and {adaptive:.1} µs, {:.2} ×; {} of {} rounds from the front",
            self.moved_at,
            adaptive / back,
            grouped(self.from_front),
            grouped(self.adaptive.len() as u64)
        )
    }
}
