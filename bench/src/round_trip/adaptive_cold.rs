//! How fast the adaptive front takes up a watch that becomes hot, and what that costs. A new Once watch is written to,
//! waited for, read and armed, by one thread, until an event of it comes from the front; then the next new watch. The
//! sample is the duration of the last `arm` before that event: the one that moved. Beside it stand the other `arm`s of
//! the same watches (`staying_arm_ns`, the mean) and `rounds_to_front`, the rounds that the back served.

use crate::pair::{self, Taken};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject, nanoseconds};
use crate::{Result, ours};
use handle_watcher_client::{Client, Events, FrontPolicy, Mode, Signals, WatchId};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A watch that is in the back after so many quick rounds is never going to move.
const PATIENCE: u64 = 1000;

pub(super) fn open(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (writing, watched) = pair::pair()?;
    let client = ours::client(placement, FrontPolicy::Adaptive)?;
    Ok(Box::new(AdaptiveCold { client, events: Events::with_capacity(16), writing, watched }))
}

/// Fields drop in order: the client leaves before its socket closes.
struct AdaptiveCold {
    client: Client,
    events: Events,
    writing: UnixStream,
    watched: UnixStream,
}

/// One watch on its way to the front.
struct Move {
    rounds: u64,
    /// The arm that moved it.
    moving: Duration,
    /// The arms before, together.
    staying: Duration,
}

impl AdaptiveCold {
    fn move_one(&mut self) -> Result<Move> {
        let watch = self.client.watch(&self.watched, Signals::READABLE, Mode::Once, 0)?;
        let (mut staying, mut last) = (Duration::ZERO, Duration::ZERO);
        for rounds in 0..PATIENCE {
            if self.round(watch)? {
                self.client.unwatch(watch)?;
                return Ok(Move { rounds, moving: last, staying });
            }
            staying += last;
            let began = Instant::now();
            self.client.arm(watch)?;
            last = began.elapsed();
        }
        Err(format!("a watch did not move to the front in {PATIENCE} rounds").into())
    }

    /// One message; true if the front told of it.
    fn round(&mut self, watch: WatchId) -> Result<bool> {
        let before = self.client.client_stats().from_front;
        pair::send(&self.writing)?;
        ours::wait(&mut self.client, &mut self.events)?;
        while pair::take(&self.watched)? != Some(Taken::Message) {
            self.client.arm(watch)?;
            ours::wait(&mut self.client, &mut self.events)?;
        }
        Ok(self.client.client_stats().from_front > before)
    }
}

impl Subject for AdaptiveCold {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let stretch = Stretch::begin()?;
        let (mut moves, mut rounds, mut staying) = (0, 0, Duration::ZERO);
        while stretch.began().elapsed() < length {
            let moved = self.move_one()?;
            recorder.record(moved.moving);
            (moves, rounds, staying) = (moves + 1, rounds + moved.rounds, staying + moved.staying);
        }
        let slice = stretch.end(moves)?;
        let share = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        let staying = share(nanoseconds(staying), rounds.saturating_sub(moves));
        Ok(slice.with_gauge("rounds_to_front", share(rounds, moves)).with_gauge("staying_arm_ns", staying))
    }
}
