//! Descriptors by number. Each thread of the stress owns a range of numbers alone; only so can a number be closed behind
//! the library's back, and used again, without harming anybody else in the process.
#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of descriptors to the hard one, and gives that.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("the soft limit may be raised");
    maximum.unwrap_or(1 << 20)
}

/// Moves a descriptor to a number of the caller's own range. What was open there is closed in the same step.
pub(crate) fn put_at(descriptor: OwnedFd, number: RawFd) {
    // SAFETY: no pointers; the number belongs to the caller alone.
    let put = unsafe { libc::dup3(descriptor.as_raw_fd(), number, libc::O_CLOEXEC) };
    assert_eq!(put, number, "dup3: {}", Error::last_os_error());
    drop(descriptor);
}

/// Closes a number of the caller's own range.
pub(crate) fn close_at(number: RawFd) {
    // SAFETY: no pointers; the number belongs to the caller alone, and no owned descriptor names it.
    let closed = unsafe { libc::close(number) };
    assert_eq!(closed, 0, "close: {}", Error::last_os_error());
}

/// Makes an owned descriptor of an open number of the caller's own range.
pub(crate) fn take_at(number: RawFd) -> OwnedFd {
    // SAFETY: the number is open, belongs to the caller alone, and no other owned descriptor names it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Lends a number for one call.
fn lend(number: RawFd) -> BorrowedFd<'static> {
    assert!(number >= 0);
    // SAFETY: it is not -1, and the borrow ends with the system call it is made for.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Another descriptor of the same open file, at a low number.
pub(crate) fn duplicate(number: RawFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(lend(number), 0).expect("an open number")
}

/// What holds of a number now.
pub(crate) fn poll_now(number: RawFd) -> PollFlags {
    let flags = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
    let mut entries = [PollFd::from_borrowed_fd(lend(number), flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut entries, Some(&now))).expect("poll of one descriptor");
    entries[0].revents()
}

/// Waits until a number is readable, for at most `timeout`. True if it is.
pub(crate) fn wait_readable(number: RawFd, timeout: Duration) -> bool {
    let mut entries = [PollFd::from_borrowed_fd(lend(number), PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).expect("a short time");
    rustix::io::retry_on_intr(|| poll(&mut entries, Some(&timeout))).expect("poll of one descriptor") > 0
}

/// Reads once without blocking; nothing if nothing can be read.
pub(crate) fn read(number: RawFd, buffer: &mut [u8]) -> usize {
    rustix::io::read(lend(number), buffer).unwrap_or(0)
}

/// Writes once without blocking; nothing if nothing can be written.
pub(crate) fn write(number: RawFd, bytes: &[u8]) -> usize {
    rustix::io::write(lend(number), bytes).unwrap_or(0)
}

/// How many descriptors this process has open.
pub(crate) fn open_descriptors() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("procfs");
    // One of them is the folder that is being read.
    entries.count() - 1
}

/// The kernel's entries of a number in every poll set of this process.
pub(crate) fn kernel_entries(number: RawFd) -> Vec<String> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir("/proc/self/fdinfo").expect("procfs").flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let is_ours = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next() == Some("tfd:") && words.next() == Some(&number.to_string())
        };
        entries.extend(text.lines().filter(is_ours).map(str::to_owned));
    }
    entries
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).expect("a time after boot");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
