//! tokio-util's `DelayQueue`: one timer wheel inside one task, keys and tokens included. It shares nothing with other
//! threads and its wheel turns in whole milliseconds; where that is enough, it is the cheapest way there is.

use super::Timers;
use crate::Result;
use std::future::{Future, poll_fn};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// An empty queue in a current-thread runtime.
pub(super) fn open() -> Result<impl Timers> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let queue = runtime.block_on(async { DelayQueue::new() });
    Ok(Queue { queue, keys: Vec::new(), runtime })
}

/// Fields drop in order: the queue leaves before its runtime does.
struct Queue {
    queue: DelayQueue<u64>,
    keys: Vec<Key>,
    runtime: Runtime,
}

impl Timers for Queue {
    fn set(&mut self, first: Instant, offsets: &[Duration]) -> Result<()> {
        self.keys.clear();
        let (queue, keys) = (&mut self.queue, &mut self.keys);
        let first = tokio::time::Instant::from_std(first);
        let inserted = (0..).zip(offsets).map(|(token, &offset)| queue.insert_at(token, first + offset));
        drive(&self.runtime, async { keys.extend(inserted) });
        Ok(())
    }

    fn cancel(&mut self) -> Result<()> {
        for key in self.keys.drain(..) {
            self.queue.remove(&key);
        }
        Ok(())
    }

    fn take_all(&mut self) -> Result<()> {
        let queue = &mut self.queue;
        drive(&self.runtime, async {
            while poll_fn(|context| queue.poll_expired(context)).await.is_some() {}
        });
        Ok(())
    }
}

/// Without tokio's budget, which would interrupt us after every 128 timers.
fn drive<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    runtime.block_on(tokio::task::unconstrained(future))
}
