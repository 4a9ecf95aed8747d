//! Parking on one word until an absolute time (futex(2)).

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex;

use super::clock::timespec;

const ANY_WAKER: NonZeroU32 = NonZeroU32::MAX;

/// Parks while `word` is `expected`, until woken, until `deadline_ns` of CLOCK_MONOTONIC, or by chance; the caller
/// looks again. True if the deadline passed.
pub(crate) fn park(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> bool {
    let deadline = deadline_ns.map(timespec);
    let parked = futex::wait_bitset(word, futex::Flags::PRIVATE, expected, deadline.as_ref(), ANY_WAKER);
    parked == Err(Errno::TIMEDOUT)
}

/// Wakes the one thread that is parked on `word`.
pub(crate) fn unpark(word: &AtomicU32) {
    // A futex wake of a mapped word cannot fail; the count of woken threads says nothing a caller could use.
    let _: Result<usize, Errno> = futex::wake(word, futex::Flags::PRIVATE, 1);
}
