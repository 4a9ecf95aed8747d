//! hop: the time from a write to a watched descriptor until the client has run and read it. The client writes the
//! message to the other end itself, so there are two threads, the client and the one that watches, and never more
//! spinners than processors. The sample includes the write and the read; arming a watch again, where a subject has to,
//! happens between samples.

use crate::before::Before;
use crate::catalogue::{Bench, Entry, Measure};
use crate::pair::{self, Taken};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::waiter::Waiter;
use crate::waiter::ours::Ours;
use crate::{Result, ours};
use handle_watcher_client::{FrontPolicy, Mode};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![
        Entry::ours("back", back),
        Entry::ours("back-spin", back_spin).two_cores(),
        Entry::ours("front-wait", front_wait),
        Entry::peer("before", before),
    ];
    subjects.extend(peers());
    Bench {
        name: "hop",
        measure: Measure::Latency,
        slice: Duration::from_millis(50),
        seconds: Duration::from_secs(2),
        warm_up: true,
        subjects,
    }
}

fn back(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (writing, watched) = pair::pair()?;
    let waiter = Ours::new(ours::client(placement, FrontPolicy::Off)?, &watched, Mode::Edge)?;
    Ok(Box::new(Hop { waiter, writing, watched, _watcher: None }))
}

fn front_wait(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (writing, watched) = pair::pair()?;
    let waiter = Ours::new(ours::client(placement, FrontPolicy::Adaptive)?, &watched, Mode::Level)?;
    Ok(Box::new(Hop { waiter, writing, watched, _watcher: None }))
}

fn back_spin(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (writing, watched) = pair::pair()?;
    let waiter = Ours::new(ours::spinning_client(placement)?, &watched, Mode::Edge)?;
    Ok(Box::new(Hop { waiter, writing, watched, _watcher: None }))
}

fn before(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (writing, watched) = pair::pair()?;
    let watcher = Before::spawn(placement)?;
    let waiter = watcher.watch(&watched, 0)?;
    Ok(Box::new(Hop { waiter, writing, watched, _watcher: Some(watcher) }))
}

/// Both ends and the way to wait on one. Fields drop in order: the waiter first, its watcher last.
struct Hop<W> {
    waiter: W,
    writing: UnixStream,
    watched: UnixStream,
    _watcher: Option<Before>,
}

impl<W: Waiter> Subject for Hop<W> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let stretch = Stretch::begin()?;
        let mut count = 0;
        loop {
            let sent = Instant::now();
            if sent - stretch.began() >= length {
                return stretch.end(count);
            }
            pair::send(&self.writing)?;
            self.waiter.wait()?;
            while pair::take(&self.watched)? != Some(Taken::Message) {
                // A wake without a message: allowed, and part of the hop.
                self.waiter.arm()?;
                self.waiter.wait()?;
            }
            recorder.record(sent.elapsed());
            self.waiter.arm()?;
            count += 1;
        }
    }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![Entry::peer("async-io-thread", tasks::async_io_thread), Entry::peer("libuv", libuv)]
}

/// No thread in between, as in `front-wait`.
#[cfg(feature = "peers")]
fn libuv(_: &Placement) -> Result<Box<dyn Subject>> {
    let (writing, watched) = pair::pair()?;
    let waiter = crate::waiter::libuv::UvPoll::new(&watched)?;
    Ok(Box::new(Hop { waiter, writing, watched, _watcher: None }))
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

#[cfg(feature = "peers")]
mod tasks {
    use super::*;
    use async_io::Async;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    /// async-io's own thread polls; the client parks.
    pub(super) fn async_io_thread(placement: &Placement) -> Result<Box<dyn Subject>> {
        let (writing, watched) = pair::pair()?;
        placement.start_async_io()?;
        Ok(Box::new(AsyncIoHop { writing, watched: Async::new_nonblocking(watched)? }))
    }

    struct AsyncIoHop {
        writing: UnixStream,
        watched: Async<UnixStream>,
    }

    impl AsyncIoHop {
        /// A descriptor is watched when async-io was asked once, so that happens before the clock starts.
        async fn hop(&self) -> Result<Duration> {
            let mut readable = pin!(self.watched.readable());
            if poll_once(readable.as_mut()).await.is_some() {
                return Err("readable before anything was written".into());
            }
            let sent = Instant::now();
            pair::send(&self.writing)?;
            readable.await?;
            while pair::take(self.watched.get_ref())? != Some(Taken::Message) {
                self.watched.readable().await?;
            }
            Ok(sent.elapsed())
        }
    }

    impl Subject for AsyncIoHop {
        fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
            block_on(async {
                let stretch = Stretch::begin()?;
                let mut count = 0;
                while stretch.began().elapsed() < length {
                    recorder.record(self.hop().await?);
                    count += 1;
                }
                stretch.end(count)
            })
        }
    }
}
