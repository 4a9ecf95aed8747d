//! What a thread does and looks at while all others rest: nobody's noise hides a wake that was lost.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::actor::{Actor, Step};
use super::sys;

/// How many steps a thread does alone.
const STEPS: u64 = 40;
/// How often in a row a descriptor may be readable for nothing: numbers that were closed may make it so (C7e).
const MOST_IN_VAIN: u32 = 5;

impl Actor {
    /// One thread acts, and what it is owed is told after each step: only what it does itself can bring that.
    pub(crate) fn act_alone(&mut self) -> Step {
        for _ in 0..STEPS {
            match self.random.below(10) {
                0..3 => self.set_timer()?,
                3..5 => self.wake()?,
                _ => self.act_once()?,
            }
            self.settle()?;
        }
        // The timers are due by now.
        std::thread::sleep(Duration::from_millis(3));
        self.settle()
    }

    /// A wait as a foreign loop does it (C9b).
    pub(crate) fn take_polled(&mut self, timeout: Duration) -> Step<usize> {
        let number = self.descriptor()?;
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            let is_readable = sys::wait_readable(number, left);
            let taken = self.take(None)?;
            if taken > 0 || !is_readable {
                return Ok(taken);
            }
        }
    }

    fn descriptor(&mut self) -> Step<i32> {
        match self.client().descriptor() {
            Ok(descriptor) => Ok(descriptor.as_raw_fd()),
            Err(status) => Err(format!("C9b: no descriptor: {status}").into()),
        }
    }

    /// Nobody acts, so the descriptor is readable exactly while a drain returns something (C9b). Timers go on meanwhile:
    /// only what is so again and again is wrong.
    pub(crate) fn compare_descriptor(&mut self) -> Step {
        if !self.is_polled {
            return Ok(());
        }
        let number = self.descriptor()?;
        for _ in 0..MOST_IN_VAIN {
            let is_readable = sys::wait_readable(number, Duration::ZERO);
            let taken = self.take(None)?;
            if is_readable == (taken > 0) {
                return Ok(());
            }
            self.note(format!("  readable {is_readable}, and {taken} events"));
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("C9b: the descriptor is not readable exactly while a drain returns something".to_owned().into())
    }
}
