//! Timers that are futures. `FuturesUnordered` holds them: one allocation a timer, each wakes only itself and brings
//! its token, and nothing is polled that has not fired. Both libraries run on the client's thread alone, their fastest
//! shape.

use super::Timers;
use crate::Result;
use async_io::Timer;
use futures_util::stream::{FuturesUnordered, Stream};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// async-io's timers, its reactor driven by the thread that waits.
pub(super) fn async_io() -> impl Timers {
    async fn sleep(deadline: Instant, token: u64) -> u64 {
        Timer::at(deadline).await;
        token
    }
    Held::new(AsyncIo, sleep)
}

/// tokio's timers in a current-thread runtime.
pub(super) fn tokio() -> Result<impl Timers> {
    async fn sleep(deadline: Instant, token: u64) -> u64 {
        tokio::time::sleep_until(deadline.into()).await;
        token
    }
    let runtime = Builder::new_current_thread().enable_time().build()?;
    Ok(Held::new(runtime, sleep))
}

/// A library's way to wait for its own timers.
trait Driver {
    fn drive<F: Future>(&self, future: F) -> F::Output;
}

struct AsyncIo;

impl Driver for AsyncIo {
    fn drive<F: Future>(&self, future: F) -> F::Output {
        async_io::block_on(future)
    }
}

impl Driver for Runtime {
    /// Without tokio's budget, which would interrupt us after every 128 timers.
    fn drive<F: Future>(&self, future: F) -> F::Output {
        self.block_on(tokio::task::unconstrained(future))
    }
}

/// Timers of one library.
struct Held<D, F> {
    driver: D,
    sleep: fn(Instant, u64) -> F,
    sleeping: FuturesUnordered<F>,
}

impl<D: Driver, F: Future<Output = u64>> Held<D, F> {
    fn new(driver: D, sleep: fn(Instant, u64) -> F) -> Self {
        Self { driver, sleep, sleeping: FuturesUnordered::new() }
    }
}

impl<D: Driver, F: Future<Output = u64>> Timers for Held<D, F> {
    fn set(&mut self, first: Instant, offsets: &[Duration]) -> Result<()> {
        for (token, &offset) in (0..).zip(offsets) {
            self.sleeping.push((self.sleep)(first + offset, token));
        }
        // The first poll of a timer sets it, and one pass of `FuturesUnordered` polls every new one.
        let sleeping = &mut self.sleeping;
        self.driver.drive(poll_fn(|context| {
            let _are_left = poll_fired(sleeping, context);
            Poll::Ready(())
        }));
        Ok(())
    }

    fn cancel(&mut self) -> Result<()> {
        self.sleeping.clear();
        Ok(())
    }

    fn take_all(&mut self) -> Result<()> {
        let sleeping = &mut self.sleeping;
        self.driver.drive(poll_fn(|context| poll_fired(sleeping, context)));
        Ok(())
    }
}

/// Polls what is new or has fired and lets go of what has fired; ready when nothing is left.
fn poll_fired<F: Future<Output = u64>>(
    sleeping: &mut FuturesUnordered<F>,
    context: &mut Context<'_>,
) -> Poll<()> {
    while let Poll::Ready(fired) = Pin::new(&mut *sleeping).poll_next(context) {
        if std::hint::black_box(fired).is_none() {
            return Poll::Ready(());
        }
    }
    Poll::Pending
}
