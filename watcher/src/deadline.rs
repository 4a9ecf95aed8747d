//! Deadlines: absolute, of CLOCK_MONOTONIC, in nanoseconds. Only deadlines are stored; timeouts live at the edge.

use std::time::{Duration, Instant};

use crate::sys::clock::now_ns;

/// A point in time of CLOCK_MONOTONIC. Far ones saturate at [`Deadline::FARTHEST`], some 584 years after boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// The farthest deadline there is. It is an ordinary one; it just never comes.
    pub const FARTHEST: Self = Self(u64::MAX);

    /// The deadline `timeout` from now. Any duration is legal.
    pub fn after(timeout: Duration) -> Self {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self(now_ns().saturating_add(timeout_ns))
    }

    /// The deadline at `nanoseconds` of CLOCK_MONOTONIC.
    pub const fn at_ns(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds of CLOCK_MONOTONIC.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// How long until it comes; zero when it has.
    pub fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now_ns()))
    }
}

impl From<Duration> for Deadline {
    fn from(timeout: Duration) -> Self {
        Self::after(timeout)
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        // Now is read after the instant's own clock reading, so the result is never earlier than the instant.
        let now = Instant::now();
        match instant.checked_duration_since(now) {
            Some(timeout) => Self::after(timeout),
            None => Self(now_ns().saturating_sub(
                u64::try_from(now.saturating_duration_since(instant).as_nanos()).unwrap_or(u64::MAX),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_legal_and_none_is_early() {
        let mut durations: Vec<Duration> = (0..64).map(|power| Duration::from_nanos(1 << power)).collect();
        durations.push(Duration::MAX);
        let mut last = Deadline::at_ns(0);
        for duration in durations {
            let before = now_ns();
            let deadline = Deadline::after(duration);
            let least = before.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
            assert!(deadline.as_ns() >= least, "{duration:?}");
            assert!(deadline >= last, "order is kept");
            last = deadline;
        }
        assert_eq!(Deadline::after(Duration::MAX), Deadline::FARTHEST);
    }

    #[test]
    fn an_instant_becomes_the_same_point_in_time() {
        let instant = Instant::now() + Duration::from_secs(5);
        let deadline = Deadline::from(instant);
        assert!(
            deadline.remaining() > Duration::from_secs(4) && deadline.remaining() <= Duration::from_secs(5)
        );
        assert_eq!(Deadline::from(Instant::now()).remaining(), Duration::ZERO);
    }
}
