//! libuv's timers: a heap in the loop, whole milliseconds. The handles are made once and set again for each run, as a
//! program with many timers would do; it shares nothing with other threads.

use super::Timers;
use crate::Result;
use crate::subject::nanoseconds;
use crate::sys::uv::{Kind, Turn, Uv};
use std::time::{Duration, Instant};

/// A loop with `count` timers, none of them set.
pub(super) fn open(count: usize) -> Result<impl Timers> {
    Ok(Libuv { uv: Uv::new(Kind::Timer, count)?, left: 0 })
}

struct Libuv {
    uv: Uv,
    /// Timers that have not fired yet.
    left: usize,
}

impl Timers for Libuv {
    fn set(&mut self, first: Instant, offsets: &[Duration]) -> Result<()> {
        self.uv.update_time();
        // Timeouts count from the loop's time in whole milliseconds: rounded up, as no timer may be early.
        let first_ns = nanoseconds(first.saturating_duration_since(Instant::now()));
        for (number, &offset) in offsets.iter().enumerate() {
            self.uv.set_timer(number, (first_ns + nanoseconds(offset)).div_ceil(1_000_000) + 1)?;
        }
        self.left = offsets.len();
        Ok(())
    }

    fn cancel(&mut self) -> Result<()> {
        for number in 0..self.left {
            self.uv.cancel_timer(number)?;
        }
        self.left = 0;
        Ok(())
    }

    fn take_all(&mut self) -> Result<()> {
        while self.left > 0 {
            let fired = self.uv.run(Turn::Wait).len();
            self.left = self.left.checked_sub(fired).ok_or("more timers fired than were set")?;
        }
        Ok(())
    }
}
