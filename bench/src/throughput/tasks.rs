//! Subjects with a task for each pair, all on the client's thread.

use crate::Result;
use crate::flock::{self, Flock};
use crate::meter::Meter;
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Subject};
use async_io::Async;
use futures_util::stream::{FuturesUnordered, Stream};
use std::future::{Future, poll_fn};
use std::os::unix::net::UnixStream as Socket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// async-io's own thread polls; the client parks.
pub(crate) fn async_io_thread(placement: &Placement) -> Result<Box<dyn Subject>> {
    let flock = Flock::open()?;
    flock.activate()?;
    let meter = Arc::new(Meter::new());
    let tasks = FuturesUnordered::new();
    placement.start_async_io()?;
    for (watched, writing) in flock.into_pairs() {
        tasks.push(serve_async_io(Async::new_nonblocking(watched)?, writing, Arc::clone(&meter)));
    }
    Ok(Box::new(AsyncIo { tasks, meter }))
}

/// A current-thread runtime with a spawned task for each pair.
pub(crate) fn tokio_current(_: &Placement) -> Result<Box<dyn Subject>> {
    let flock = Flock::open()?;
    flock.activate()?;
    let meter = Arc::new(Meter::new());
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut tasks = Vec::new();
    for (watched, writing) in flock.into_pairs() {
        let watched = UnixStream::from_std(watched)?;
        tasks.push(runtime.spawn(serve_tokio(watched, writing, Arc::clone(&meter))));
    }
    drop(inside);
    Ok(Box::new(Tokio { runtime, tasks, meter }))
}

async fn serve_async_io(watched: Async<Socket>, writing: Socket, meter: Arc<Meter>) -> Result<()> {
    loop {
        // Waits first: reading first would find nothing and cost a system call.
        watched.readable().await?;
        if flock::take(watched.get_ref())? {
            flock::give(&writing)?;
            meter.tick();
        }
    }
}

async fn serve_tokio(mut watched: UnixStream, writing: Socket, meter: Arc<Meter>) -> Result<()> {
    loop {
        // Room for two: a short read tells tokio that the socket is empty, so that it waits right away.
        if watched.read(&mut [0; 2]).await? == 0 {
            return Err("a pair hung up".into());
        }
        flock::give(&writing)?;
        meter.tick();
    }
}

struct AsyncIo<F> {
    tasks: FuturesUnordered<F>,
    meter: Arc<Meter>,
}

impl<F: Future<Output = Result<()>>> Subject for AsyncIo<F> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        self.meter.start(length)?;
        futures_lite::future::block_on(poll_fn(|context| {
            match Pin::new(&mut self.tasks).poll_next(context) {
                Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
                Poll::Ready(_) => Poll::Ready(Err("a task ended".into())),
                Poll::Pending if self.meter.is_over() => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            }
        }))?;
        self.meter.finish(recorder)
    }
}

struct Tokio {
    runtime: Runtime,
    tasks: Vec<JoinHandle<Result<()>>>,
    meter: Arc<Meter>,
}

impl Subject for Tokio {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        self.meter.start(length)?;
        self.runtime.block_on(poll_fn(|context| self.meter.poll_over(context)));
        if self.tasks.iter().any(JoinHandle::is_finished) {
            return Err("a task ended".into());
        }
        self.meter.finish(recorder)
    }
}
