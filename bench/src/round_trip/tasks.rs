//! Subjects whose threads run a future: async-io and tokio, each in every shape its users know.

use crate::Result;
use crate::pair::{self, MESSAGE, ROOM, Taken};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::sys::allocator;
use async_io::Async;
use std::future::Future;
use std::os::unix::net::UnixStream as Socket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// async-io's own thread polls; clients park and never drive the reactor.
pub(crate) fn async_io_thread(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (near, far) = async_io_ends(placement)?;
    let echo =
        spawn_echo(*placement, Placement::move_near, move || futures_lite::future::block_on(echo(far)))?;
    Ok(Box::new(AsyncIoThread(Trip { near: Some(near), echo: Some(echo) })))
}

/// async-io's own `block_on`: whichever thread waits drives the reactor.
pub(crate) fn async_io_block_on(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (near, far) = async_io_ends(placement)?;
    let echo = spawn_echo(*placement, Placement::move_far, move || async_io::block_on(echo(far)))?;
    Ok(Box::new(AsyncIoBlockOn(Trip { near: Some(near), echo: Some(echo) })))
}

/// One current-thread runtime for each thread.
pub(crate) fn tokio_current(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (near, far) = pair::pair()?;
    let echo = spawn_echo(*placement, Placement::move_far, move || {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let far = tokio_end(&runtime, far)?;
        runtime.block_on(echo(far))
    })?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let near = tokio_end(&runtime, near)?;
    Ok(Box::new(TokioCurrent { trip: Trip { near: Some(near), echo: Some(echo) }, runtime }))
}

/// Two threads outside a runtime with one worker, whose driver wakes them.
pub(crate) fn tokio_outside(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (near, far) = pair::pair()?;
    let runtime =
        placement.start_far(|| Ok(Builder::new_multi_thread().worker_threads(1).enable_io().build()?))?;
    let (near, far) = (tokio_end(&runtime, near)?, tokio_end(&runtime, far)?);
    let echo =
        spawn_echo(*placement, Placement::move_near, move || futures_lite::future::block_on(echo(far)))?;
    Ok(Box::new(TokioOutside { trip: Trip { near: Some(near), echo: Some(echo) }, _runtime: runtime }))
}

/// Two tasks of a runtime with two workers, one a processor if there are two.
pub(crate) fn tokio_multi(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (near, far) = pair::pair()?;
    let workers = std::sync::atomic::AtomicUsize::new(0);
    let places = *placement;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .on_thread_start(move || {
            let number = workers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let moved = if number.is_multiple_of(2) { places.move_near() } else { places.move_far() };
            if let Err(error) = moved {
                eprintln!("hw-bench: a tokio worker stays where it is: {error}");
            }
        })
        .build()?;
    let (near, far) = (tokio_end(&runtime, near)?, tokio_end(&runtime, far)?);
    // The runtime ends the echo's task when it is dropped.
    drop(runtime.spawn(echo(far)));
    Ok(Box::new(TokioMulti { trip: Trip { near: Some(near), echo: None }, runtime }))
}

fn async_io_ends(placement: &Placement) -> Result<(AsyncIoEnd, AsyncIoEnd)> {
    let (near, far) = pair::pair()?;
    placement.start_async_io()?;
    Ok((AsyncIoEnd(Async::new_nonblocking(near)?), AsyncIoEnd(Async::new_nonblocking(far)?)))
}

fn tokio_end(runtime: &Runtime, socket: Socket) -> Result<TokioEnd> {
    let _inside = runtime.enter();
    Ok(TokioEnd(UnixStream::from_std(socket)?))
}

/// One end of the pair.
trait End: Send + 'static {
    fn send(&mut self) -> impl Future<Output = Result<()>> + Send;
    fn receive(&mut self) -> impl Future<Output = Result<Taken>> + Send;
}

struct AsyncIoEnd(Async<Socket>);

impl End for AsyncIoEnd {
    async fn send(&mut self) -> Result<()> {
        Ok(pair::send(self.0.get_ref())?)
    }

    /// Waits first: reading first would find nothing and cost a system call.
    async fn receive(&mut self) -> Result<Taken> {
        loop {
            self.0.readable().await?;
            if let Some(taken) = pair::take(self.0.get_ref())? {
                return Ok(taken);
            }
        }
    }
}

struct TokioEnd(UnixStream);

impl End for TokioEnd {
    async fn send(&mut self) -> Result<()> {
        Ok(self.0.write_all(MESSAGE).await?)
    }

    /// `read` remembers that a short read emptied the socket and waits right away the next time; `try_read` does not.
    async fn receive(&mut self) -> Result<Taken> {
        Ok(pair::taken(self.0.read(&mut [0; ROOM]).await?)?)
    }
}

/// Sends everything back until the near end closes.
async fn echo<E: End>(mut end: E) -> Result<()> {
    while end.receive().await? == Taken::Message {
        end.send().await?;
    }
    Ok(())
}

/// The same loop as the blocking subjects run.
async fn ping<E: End>(end: &mut E, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
    let stretch = Stretch::begin()?;
    let (mut sent, mut count) = (stretch.began(), 0);
    while sent - stretch.began() < length {
        end.send().await?;
        if end.receive().await? == Taken::Hangup {
            return Err("the echo hung up".into());
        }
        let received = Instant::now();
        recorder.record(received - sent);
        sent = received;
        count += 1;
    }
    stretch.end(count)
}

fn spawn_echo(
    placement: Placement,
    place: fn(&Placement) -> Result<()>,
    run: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    let echo = std::thread::Builder::new().name("echo".to_owned());
    Ok(echo.spawn(move || {
        allocator::mark_client_thread();
        place(&placement)?;
        run()
    })?)
}

/// The near end and the echo's thread, if it has one.
struct Trip<E> {
    near: Option<E>,
    echo: Option<JoinHandle<Result<()>>>,
}

impl<E> Trip<E> {
    fn near(&mut self) -> Result<&mut E> {
        Ok(self.near.as_mut().ok_or("the near end is closed")?)
    }
}

impl<E> Drop for Trip<E> {
    fn drop(&mut self) {
        // The echo sees the hang-up and ends.
        drop(self.near.take());
        if let Some(Err(_)) = self.echo.take().map(JoinHandle::join) {
            eprintln!("hw-bench: the echo thread panicked");
        }
    }
}

struct AsyncIoThread(Trip<AsyncIoEnd>);

impl Subject for AsyncIoThread {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        futures_lite::future::block_on(ping(self.0.near()?, length, recorder))
    }
}

struct AsyncIoBlockOn(Trip<AsyncIoEnd>);

impl Subject for AsyncIoBlockOn {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        async_io::block_on(ping(self.0.near()?, length, recorder))
    }
}

/// In these, fields drop in order: the ends leave before their runtime does.
struct TokioCurrent {
    trip: Trip<TokioEnd>,
    runtime: Runtime,
}

impl Subject for TokioCurrent {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        self.runtime.block_on(ping(self.trip.near()?, length, recorder))
    }
}

struct TokioOutside {
    trip: Trip<TokioEnd>,
    _runtime: Runtime,
}

impl Subject for TokioOutside {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        futures_lite::future::block_on(ping(self.trip.near()?, length, recorder))
    }
}

struct TokioMulti {
    trip: Trip<TokioEnd>,
    runtime: Runtime,
}

impl Subject for TokioMulti {
    /// The task owns what it uses, and gives it back when it ends.
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let mut end = self.trip.near.take().ok_or("the near end is closed")?;
        let mut samples = std::mem::replace(recorder, Recorder::new());
        let task = self.runtime.spawn(async move {
            let slice = ping(&mut end, length, &mut samples).await;
            (slice, end, samples)
        });
        let (slice, end, samples) = self.runtime.block_on(task)?;
        self.trip.near = Some(end);
        *recorder = samples;
        slice
    }
}
