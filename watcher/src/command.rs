//! The command queue: what clients ask of the watcher thread, bounded, and waking it only when it must.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::stats::Counter;
use crate::wake::ParkedUntil;

/// Why a command was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The watcher has stopped.
    Stopped,
    /// The queue is full and the caller is the watcher thread, which must not wait for itself.
    Full,
    /// The command is queued, but the wake could not be written.
    Wake(std::io::ErrorKind),
}

/// The clients' end of the queue.
#[derive(Debug)]
pub(crate) struct CommandQueue<C> {
    sender: Sender<C>,
    parked_until: ParkedUntil,
    /// `None` only in a forked child, which has closed it.
    waker: Mutex<Option<mio::Waker>>,
    wakes: Counter,
    /// How many callers wait for room, or are about to.
    blocked: AtomicU32,
}

impl<C> CommandQueue<C> {
    /// A queue of `limit` commands whose receiver sleeps in a set that `waker` wakes.
    pub(crate) fn new(limit: usize, waker: mio::Waker) -> (Self, Receiver<C>) {
        let (sender, receiver) = bounded(limit);
        (
            Self {
                sender,
                parked_until: ParkedUntil::new(),
                waker: Mutex::new(Some(waker)),
                wakes: Counter::default(),
                blocked: AtomicU32::new(0),
            },
            receiver,
        )
    }

    pub(crate) fn parked_until(&self) -> &ParkedUntil {
        &self.parked_until
    }

    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.get()
    }

    /// Queues a command and wakes the watcher if it sleeps beyond `due_ns` (0: wake it if it sleeps at all;
    /// `u64::MAX`: do not wake it). Waits while the queue is full, unless `may_wait` is false. Never call this while
    /// holding a lock the watcher takes.
    pub(crate) fn send(&self, command: C, due_ns: u64, may_wait: bool) -> Result<(), SendError> {
        match self.sender.try_send(command) {
            // Whoever waits for room has spent its wake, and this one has taken the room it waited for.
            Ok(()) if self.blocked.load(Ordering::SeqCst) > 0 => self.wake(0),
            Ok(()) => self.wake(due_ns),
            Err(TrySendError::Disconnected(_)) => Err(SendError::Stopped),
            Err(TrySendError::Full(_)) if !may_wait => Err(SendError::Full),
            Err(TrySendError::Full(command)) => {
                self.blocked.fetch_add(1, Ordering::SeqCst);
                let sent =
                    self.wake(0).and_then(|()| self.sender.send(command).map_err(|_| SendError::Stopped));
                self.blocked.fetch_sub(1, Ordering::SeqCst);
                sent?;
                // Whatever this one is due: others may wait for room as well, and only the watcher makes it.
                self.wake(0)
            }
        }
    }

    /// Wakes the watcher if it sleeps beyond `due_ns`. One write, however many callers.
    pub(crate) fn wake(&self, due_ns: u64) -> Result<(), SendError> {
        if !self.parked_until.claim(due_ns) {
            return Ok(());
        }
        self.wake_always().map_err(|error| {
            // The claim is given back, so that the next caller tries again.
            self.parked_until.park(ParkedUntil::FOR_EVER);
            SendError::Wake(error.kind())
        })
    }

    /// Writes a wake, whether the watcher sleeps or not.
    pub(crate) fn wake_always(&self) -> std::io::Result<()> {
        self.wakes.add_shared(1);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        waker.as_ref().map_or(Ok(()), mio::Waker::wake)
    }

    /// Closes the waker in a forked child, unless a thread that is not there holds the lock.
    pub(crate) fn close_in_child(&self) {
        if let Ok(mut waker) = self.waker.try_lock() {
            drop(waker.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::epoll::Epoll;

    #[test]
    fn a_stopped_watcher_is_an_answer() {
        let epoll = Epoll::new().expect("a poll set");
        let (queue, receiver) = CommandQueue::new(1, epoll.waker().expect("a waker"));
        assert_eq!(queue.send(1, 0, true), Ok(()));
        assert_eq!(queue.send(2, 0, false), Err(SendError::Full));
        assert_eq!(receiver.try_recv(), Ok(1));
        drop(receiver);
        assert_eq!(queue.send(3, 0, true), Err(SendError::Stopped));
    }

    #[test]
    fn only_what_is_due_earlier_wakes() {
        let epoll = Epoll::new().expect("a poll set");
        let (queue, _receiver) = CommandQueue::new(8, epoll.waker().expect("a waker"));
        queue.parked_until().park(100);
        assert_eq!(queue.send((), 200, true), Ok(()));
        assert_eq!(queue.wakes(), 0);
        assert_eq!(queue.send((), 50, true), Ok(()));
        assert_eq!(queue.send((), 40, true), Ok(()), "merged: the watcher is awake already");
        assert_eq!(queue.wakes(), 1);
    }
}
