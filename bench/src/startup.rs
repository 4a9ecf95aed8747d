//! startup, in two parts. *start*: from nothing to the first event in the client's hands, on a descriptor that is
//! readable already. *drop*: dropping the client until its thread is joined.

use crate::before::Before;
use crate::catalogue::{Bench, Entry, Measure};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::waiter::Waiter;
use crate::{Result, ours, pair};
use handle_watcher_client::{Client, ClientConfig, Events, Mode, Signals};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const START: &str = "start";
const DROP: &str = "drop";

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![
        Entry::ours("ours", |placement| lives(placement, Phase::Start, ours_life)).part(START),
        Entry::ours("ours-drop", |placement| lives(placement, Phase::Drop, ours_life)).part(DROP),
        Entry::peer("before", |placement| lives(placement, Phase::Start, before_life)).part(START),
        Entry::peer("before-drop", |placement| lives(placement, Phase::Drop, before_life)).part(DROP),
    ];
    subjects.extend(peers());
    Bench {
        name: "startup",
        measure: Measure::Latency,
        slice: Duration::from_millis(50),
        seconds: Duration::from_secs(1),
        warm_up: true,
        subjects,
    }
}

/// How long one life took to its first event, and to end.
struct Life {
    start: Duration,
    drop: Duration,
}

/// Which of the two a subject reports.
#[derive(Clone, Copy)]
enum Phase {
    Start,
    Drop,
}

type Live = fn(&Placement, &UnixStream) -> Result<Life>;

/// Lives again and again, on one readable socket.
struct Lives {
    placement: Placement,
    phase: Phase,
    live: Live,
    readable: UnixStream,
    _other: UnixStream,
}

fn lives(placement: &Placement, phase: Phase, live: Live) -> Result<Box<dyn Subject>> {
    let (readable, other) = pair::pair()?;
    pair::send(&other)?;
    Ok(Box::new(Lives { placement: *placement, phase, live, readable, _other: other }))
}

impl Subject for Lives {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let stretch = Stretch::begin()?;
        let mut count = 0;
        while stretch.began().elapsed() < length {
            let life = (self.live)(&self.placement, &self.readable)?;
            recorder.record(match self.phase {
                Phase::Start => life.start,
                Phase::Drop => life.drop,
            });
            count += 1;
        }
        stretch.end(count)
    }
}

fn ours_life(placement: &Placement, readable: &UnixStream) -> Result<Life> {
    let began = Instant::now();
    let mut client = Client::embedded_with(ours::config(placement), ClientConfig::default())?;
    client.watch(readable, Signals::READABLE, Mode::Edge, 0)?;
    let mut events = Events::with_capacity(1);
    ours::wait(&mut client, &mut events)?;
    Ok(end(began, client))
}

fn before_life(placement: &Placement, readable: &UnixStream) -> Result<Life> {
    let began = Instant::now();
    let watcher = Before::spawn(placement)?;
    let mut client = watcher.watch(readable, 0)?;
    client.wait()?;
    drop(client);
    Ok(end(began, watcher))
}

/// The first event is here: drops `owner`, which joins its thread.
fn end<T>(began: Instant, owner: T) -> Life {
    let first_event = Instant::now();
    drop(owner);
    Life { start: first_event - began, drop: first_event.elapsed() }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![
        // async-io's thread starts once in a process and never ends.
        Entry::peer("async-io", tasks::async_io).part(START).fresh(),
        Entry::peer("tokio", |placement| lives(placement, Phase::Start, tasks::tokio_life)).part(START),
        Entry::peer("tokio-drop", |placement| lives(placement, Phase::Drop, tasks::tokio_life)).part(DROP),
        Entry::peer("libuv", |placement| lives(placement, Phase::Start, tasks::libuv_life)).part(START),
        Entry::peer("libuv-drop", |placement| lives(placement, Phase::Drop, tasks::libuv_life)).part(DROP),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

#[cfg(feature = "peers")]
mod tasks {
    use super::*;
    use async_io::Async;
    use tokio::net::UnixStream as Stream;
    use tokio::runtime::Builder;

    /// A runtime with one worker: the shape that has a thread to start and to join.
    pub(super) fn tokio_life(placement: &Placement, readable: &UnixStream) -> Result<Life> {
        let readable = readable.try_clone()?;
        let began = Instant::now();
        let places = *placement;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_io()
            .on_thread_start(move || drop(places.move_far()))
            .build()?;
        let inside = runtime.enter();
        let stream = Stream::from_std(readable)?;
        drop(inside);
        futures_lite::future::block_on(stream.readable())?;
        drop(stream);
        Ok(end(began, runtime))
    }

    /// A loop: no thread to start or to join.
    pub(super) fn libuv_life(_: &Placement, readable: &UnixStream) -> Result<Life> {
        let began = Instant::now();
        let mut waiter = crate::waiter::libuv::UvPoll::new(readable)?;
        waiter.wait()?;
        Ok(end(began, waiter))
    }

    /// The first use of async-io in this process: one sample.
    ///
    /// There is no way to place its thread without moving ours, which would cost more than the start itself, so it
    /// stays where the client is.
    pub(super) fn async_io(_: &Placement) -> Result<Box<dyn Subject>> {
        let (readable, other) = pair::pair()?;
        pair::send(&other)?;
        Ok(Box::new(First { readable: Some(readable), _other: other }))
    }

    struct First {
        readable: Option<UnixStream>,
        _other: UnixStream,
    }

    impl Subject for First {
        fn run(&mut self, _: Duration, recorder: &mut Recorder) -> Result<Slice> {
            let readable = self.readable.take().ok_or("async-io starts only once in a process")?;
            let stretch = Stretch::begin()?;
            let watched = Async::new_nonblocking(readable)?;
            futures_lite::future::block_on(watched.readable())?;
            recorder.record(stretch.began().elapsed());
            stretch.end(1)
        }
    }
}
