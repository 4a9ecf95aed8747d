//! Counts events of one thread, or of tasks that take turns on one, and samples their cost in blocks.

use crate::Result;
use crate::subject::{Recorder, Slice, Stretch, share};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
#[cfg(feature = "peers")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Reading the clock for each event would cost as much as a tenth of it.
const BLOCK: u64 = 256;

/// One slice's count. It can be shared because tokio's tasks must be `Send`; only one thread ever ticks.
#[derive(Debug)]
pub(crate) struct Meter {
    count: AtomicU64,
    is_over: AtomicBool,
    blocks: Mutex<Blocks>,
}

/// What is touched once a block.
#[derive(Debug)]
struct Blocks {
    stretch: Option<Stretch>,
    block_began: Instant,
    ends: Instant,
    samples: Recorder,
    /// Whom to wake when the slice is over.
    waiter: Option<Waker>,
}

impl Meter {
    /// A meter whose slice is over; `start` begins one.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let blocks =
            Blocks { stretch: None, block_began: now, ends: now, samples: Recorder::new(), waiter: None };
        Self { count: AtomicU64::new(0), is_over: AtomicBool::new(true), blocks: Mutex::new(blocks) }
    }

    /// Begins a slice of `length`.
    pub(crate) fn start(&self, length: Duration) -> Result<()> {
        let mut blocks = self.blocks();
        blocks.samples.clear();
        self.count.store(0, Relaxed);
        self.is_over.store(false, Relaxed);
        let stretch = Stretch::begin()?;
        blocks.block_began = stretch.began();
        blocks.ends = stretch.began() + length;
        blocks.stretch = Some(stretch);
        Ok(())
    }

    /// Counts one event. The slice can be over only after a whole block.
    pub(crate) fn tick(&self) {
        // A load and a store, because nobody else counts: half the price of an atomic addition.
        let count = self.count.load(Relaxed) + 1;
        self.count.store(count, Relaxed);
        if count.is_multiple_of(BLOCK) {
            self.end_block();
        }
    }

    /// Whether the slice's time is up.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// For a future that waits until the slice is over.
    #[cfg(feature = "peers")]
    pub(crate) fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        self.blocks().waiter = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the slice now and hands over what it counted.
    pub(crate) fn finish(&self, recorder: &mut Recorder) -> Result<Slice> {
        let mut blocks = self.blocks();
        let stretch = blocks.stretch.take().ok_or("a slice ended that never began")?;
        let slice = stretch.end(self.count.load(Relaxed))?;
        recorder.merge(blocks.samples.histogram())?;
        Ok(slice)
    }

    fn end_block(&self) {
        let now = Instant::now();
        let mut blocks = self.blocks();
        let block = now - std::mem::replace(&mut blocks.block_began, now);
        blocks.samples.record(share(block, BLOCK));
        if now >= blocks.ends {
            self.is_over.store(true, Relaxed);
            if let Some(waiter) = blocks.waiter.take() {
                waiter.wake();
            }
        }
    }

    /// A panic elsewhere ends the run anyway; it must not hide behind a second one here.
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
