//! CLOCK_MONOTONIC as one number of nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds of CLOCK_MONOTONIC now.
pub(crate) fn now_ns() -> u64 {
    nanoseconds_of(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of CLOCK_MONOTONIC at the kernel's last tick: cheaper, and up to some milliseconds behind.
pub(crate) fn coarse_ns() -> u64 {
    nanoseconds_of(clock_gettime(ClockId::MonotonicCoarse))
}

fn nanoseconds_of(now: Timespec) -> u64 {
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NANOSECONDS_PER_SECOND).saturating_add(nanoseconds)
}

/// A kernel time of `nanoseconds`. Every u64 fits: it is at most 584 years.
pub(crate) fn timespec(nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanoseconds / NANOSECONDS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanoseconds % NANOSECONDS_PER_SECOND).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_nanoseconds_becomes_a_legal_kernel_time() {
        for nanoseconds in [0, 1, 999_999_999, 1_000_000_000, u64::MAX] {
            let time = timespec(nanoseconds);
            assert!((0..1_000_000_000).contains(&time.tv_nsec) && time.tv_sec >= 0, "{nanoseconds}");
        }
        assert!(now_ns() > 0);
    }
}
