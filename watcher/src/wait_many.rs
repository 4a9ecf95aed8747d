//! Waiting for several descriptors in one call, without a port (contract C13).

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use handle_watcher_wire::{Code, Result, Signals, Status};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::kernel_flags::{from_poll_flags, to_poll_flags};
use crate::sys::clock::{now_ns, timespec};
use crate::sys::descriptor;

/// One descriptor to wait for, and afterwards what became of it.
#[derive(Clone, Copy, Debug)]
pub struct WaitEntry<'a> {
    number: RawFd,
    signals: Signals,
    satisfied: Signals,
    status: Code,
    _lent: std::marker::PhantomData<BorrowedFd<'a>>,
}

impl<'a> WaitEntry<'a> {
    /// Waits for any of `signals` on a descriptor. An error and a full hang-up are told whether asked for or not.
    pub fn new(descriptor: BorrowedFd<'a>, signals: Signals) -> Self {
        Self::of_number(descriptor.as_raw_fd(), signals)
    }

    /// The same by number, for callers that have nothing else; a bad number is reported in the entry.
    pub fn of_number(number: RawFd, signals: Signals) -> Self {
        let (satisfied, status) = (Signals::empty(), Code::Ok);
        Self { number, signals, satisfied, status, _lent: std::marker::PhantomData }
    }

    /// What held when the wait returned, of what was asked for and of what is always told.
    pub fn satisfied(&self) -> Signals {
        self.satisfied
    }

    /// `OK`; `INVALID_ARGUMENT` for a number that is not open or unknown signal bits; `FAILED_PRECONDITION` for a regular file or directory.
    pub fn status(&self) -> Code {
        self.status
    }
}

/// Waits until an entry is satisfied or turns out bad, or the deadline passes (`None`: for ever). Every entry's state
/// is filled in, whatever is returned. Gives the lowest satisfied index; `None` if there is none.
///
/// A bad entry reports itself in its `status` and fails nothing: the wait goes on if other entries can still come.
/// With no entry that can come (an empty list, or only bad ones) it returns at once with `None`. Interrupted waits
/// are resumed. Blocks the calling thread; needs no watcher.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` for more entries than RLIMIT_NOFILE allows, or without kernel memory.
pub fn wait_many(entries: &mut [WaitEntry<'_>], deadline: Option<Deadline>) -> Result<Option<usize>> {
    let mut set = WaitSet::of(entries);
    // A first look, without waiting, finds what is ready and what is bad.
    let mut wait_ns = Some(0);
    loop {
        set.look(wait_ns)?;
        let lowest = set.collect(entries);
        let is_over = deadline.is_some_and(|deadline| deadline.as_ns() <= now_ns());
        if lowest.is_some() || set.entries.is_empty() || is_over {
            return Ok(lowest);
        }
        wait_ns = deadline.map(|deadline| deadline.as_ns().saturating_sub(now_ns()));
    }
}

/// The entries that can still come, as poll(2) wants them.
#[derive(Debug)]
struct WaitSet {
    entries: Vec<PollFd<'static>>,
    /// The caller's index of each of them.
    indices: Vec<usize>,
}

impl WaitSet {
    fn of(entries: &mut [WaitEntry<'_>]) -> Self {
        let mut set =
            Self { entries: Vec::with_capacity(entries.len()), indices: Vec::with_capacity(entries.len()) };
        for (index, entry) in entries.iter_mut().enumerate() {
            (entry.satisfied, entry.status) = (Signals::empty(), Code::Ok);
            if let Some(code) = badness_of_wish(entry) {
                entry.status = code;
                continue;
            }
            match descriptor::poll_entry(entry.number, to_poll_flags(entry.signals)) {
                Ok(poll_entry) => {
                    set.entries.push(poll_entry);
                    set.indices.push(index);
                }
                Err(_) => entry.status = Code::InvalidArgument,
            }
        }
        set
    }

    fn look(&mut self, wait_ns: Option<u64>) -> Result<()> {
        match poll(&mut self.entries, wait_ns.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Status::new(
                Code::ResourceExhausted,
                format!(
                    "poll(2) refused {} entries: {errno}; wait for fewer, or raise RLIMIT_NOFILE",
                    self.entries.len()
                ),
            )),
        }
    }

    /// Fills in what was found, drops what turned out bad, and gives the lowest satisfied index.
    fn collect(&mut self, entries: &mut [WaitEntry<'_>]) -> Option<usize> {
        let mut lowest = None;
        for place in (0..self.entries.len()).rev() {
            let found = self.entries[place].revents();
            let index = self.indices[place];
            let entry = &mut entries[index];
            if let Some(code) = badness(entry.number, found) {
                entry.status = code;
                self.entries.remove(place);
                self.indices.remove(place);
                continue;
            }
            entry.satisfied = from_poll_flags(found, entry.signals);
            if !entry.satisfied.is_empty() {
                lowest = Some(index);
            }
        }
        lowest
    }
}

/// Why an entry is bad whatever poll(2) says: it asks for a signal there is not, or it is a file and asks for nothing that
/// would show that.
fn badness_of_wish(entry: &WaitEntry<'_>) -> Option<Code> {
    if entry.signals.bits() & !Signals::all().bits() != 0 {
        return Some(Code::InvalidArgument);
    }
    let shows = entry.signals.intersects(Signals::READABLE | Signals::WRITABLE);
    (!shows && descriptor::is_file_or_directory(entry.number)).then_some(Code::FailedPrecondition)
}

/// Why an entry can never be satisfied. Files are looked at only when poll(2) calls them ready, as it always does.
fn badness(number: RawFd, found: PollFlags) -> Option<Code> {
    if found.contains(PollFlags::NVAL) {
        return Some(Code::InvalidArgument);
    }
    let looks_ready = found.intersects(PollFlags::IN | PollFlags::OUT);
    (looks_ready && descriptor::is_file_or_directory(number)).then_some(Code::FailedPrecondition)
}
