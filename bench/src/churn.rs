//! churn: a watch on an idle descriptor and its end, over and over, round robin over 64 descriptors. A sample is the
//! mean time of one pair over one pass.

use crate::catalogue::{Bench, Entry, Measure};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject, share};
use crate::{Result, ours, pair};
use handle_watcher_client::{Client, FrontPolicy, Mode, Signals};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Descriptors in turn, so that no subject lives off one hot entry.
const DESCRIPTORS: usize = 64;

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    let mut subjects = vec![Entry::ours("ours", ours), Entry::peer("bare-epoll", bare_epoll)];
    subjects.extend(peers());
    Bench {
        name: "churn",
        measure: Measure::Rate,
        slice: Duration::from_millis(50),
        seconds: Duration::from_secs(2),
        warm_up: true,
        subjects,
    }
}

/// Idle sockets, and the other ends that keep them from hanging up.
struct Idle {
    watched: Vec<UnixStream>,
    _others: Vec<UnixStream>,
}

fn open() -> Result<Idle> {
    let mut idle = Idle { watched: Vec::new(), _others: Vec::new() };
    for _ in 0..DESCRIPTORS {
        let (watched, other) = pair::pair()?;
        idle.watched.push(watched);
        idle._others.push(other);
    }
    Ok(idle)
}

/// Repeats whole passes over the descriptors until time is up.
fn passes(length: Duration, recorder: &mut Recorder, mut pass: impl FnMut() -> Result<()>) -> Result<Slice> {
    let stretch = Stretch::begin()?;
    let (mut pass_began, mut pairs) = (stretch.began(), 0);
    while pass_began - stretch.began() < length {
        pass()?;
        let now = Instant::now();
        recorder.record(share(now - pass_began, DESCRIPTORS as u64));
        pass_began = now;
        pairs += DESCRIPTORS as u64;
    }
    stretch.end(pairs)
}

/// `watch` and `unwatch`.
fn ours(placement: &Placement) -> Result<Box<dyn Subject>> {
    Ok(Box::new(Ours { client: ours::client(placement, FrontPolicy::Off)?, idle: open()? }))
}

struct Ours {
    client: Client,
    idle: Idle,
}

impl Subject for Ours {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        passes(length, recorder, || {
            for (token, socket) in (0..).zip(&self.idle.watched) {
                let watch = self.client.watch(socket, Signals::READABLE, Mode::Edge, token)?;
                self.client.unwatch(watch)?;
            }
            Ok(())
        })
    }
}

/// EPOLL_CTL_ADD and EPOLL_CTL_DEL: what no watcher can do without.
fn bare_epoll(_: &Placement) -> Result<Box<dyn Subject>> {
    Ok(Box::new(BareEpoll { set: epoll::create(CreateFlags::CLOEXEC)?, idle: open()? }))
}

struct BareEpoll {
    set: OwnedFd,
    idle: Idle,
}

impl Subject for BareEpoll {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        passes(length, recorder, || {
            for (token, socket) in (0..).zip(&self.idle.watched) {
                epoll::add(&self.set, socket, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)?;
                epoll::delete(&self.set, socket)?;
            }
            Ok(())
        })
    }
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Entry> {
    vec![
        Entry::peer("async-io", tasks::async_io),
        Entry::peer("async-io-armed", tasks::async_io_armed),
        Entry::peer("tokio", tasks::tokio),
        Entry::peer("libuv", tasks::libuv),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Entry> {
    Vec::new()
}

#[cfg(feature = "peers")]
mod tasks {
    use super::*;
    use crate::sys::async_fd;
    use crate::sys::uv::{Kind, Turn, Uv};
    use ::tokio::runtime::{Builder, Runtime};
    use async_io::Async;
    use std::os::fd::AsFd;
    use std::task::{Context, Waker};

    /// `Async::new_nonblocking` and `into_inner`: registered, but waiting for nothing yet.
    pub(super) fn async_io(placement: &Placement) -> Result<Box<dyn Subject>> {
        let mut sockets = open()?;
        let watched = std::mem::take(&mut sockets.watched);
        placement.start_async_io()?;
        Ok(Box::new(AsyncIo {
            sockets: watched.into_iter().map(Some).collect(),
            _others: sockets,
            is_armed: false,
        }))
    }

    /// The same, and asked once for readability: what a watch of ours promises.
    pub(super) fn async_io_armed(placement: &Placement) -> Result<Box<dyn Subject>> {
        let mut sockets = open()?;
        let watched = std::mem::take(&mut sockets.watched);
        placement.start_async_io()?;
        Ok(Box::new(AsyncIo {
            sockets: watched.into_iter().map(Some).collect(),
            _others: sockets,
            is_armed: true,
        }))
    }

    struct AsyncIo {
        sockets: Vec<Option<UnixStream>>,
        _others: Idle,
        is_armed: bool,
    }

    impl Subject for AsyncIo {
        fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
            let mut context = Context::from_waker(Waker::noop());
            passes(length, recorder, || {
                for slot in &mut self.sockets {
                    let socket = slot.take().ok_or("a socket got lost")?;
                    let watched = Async::new_nonblocking(socket)?;
                    if self.is_armed && watched.poll_readable(&mut context).is_ready() {
                        return Err("an idle socket is readable".into());
                    }
                    *slot = Some(watched.into_inner()?);
                }
                Ok(())
            })
        }
    }

    /// `AsyncFd` and its drop. After each pass the runtime turns once, because it frees registrations only then.
    pub(super) fn tokio(_: &Placement) -> Result<Box<dyn Subject>> {
        Ok(Box::new(Tokio { runtime: Builder::new_current_thread().enable_io().build()?, idle: open()? }))
    }

    struct Tokio {
        runtime: Runtime,
        idle: Idle,
    }

    impl Subject for Tokio {
        fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
            passes(length, recorder, || {
                self.runtime.block_on(async {
                    for socket in &self.idle.watched {
                        drop(async_fd::register_borrowed(socket.as_fd())?);
                    }
                    ::tokio::task::yield_now().await;
                    Ok(())
                })
            })
        }
    }

    /// A poll handle opened and closed. libuv tells the kernel only when its loop turns, and frees a handle only then,
    /// so it turns once with all handles open and once with all closed.
    pub(super) fn libuv(_: &Placement) -> Result<Box<dyn Subject>> {
        Ok(Box::new(Libuv { uv: Uv::new(Kind::Poll, DESCRIPTORS)?, idle: open()? }))
    }

    struct Libuv {
        uv: Uv,
        idle: Idle,
    }

    impl Subject for Libuv {
        fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
            passes(length, recorder, || {
                for (number, socket) in self.idle.watched.iter().enumerate() {
                    self.uv.poll(number, socket.as_fd())?;
                }
                if !self.uv.run(Turn::Look).is_empty() {
                    return Err("an idle socket is readable".into());
                }
                for number in 0..DESCRIPTORS {
                    self.uv.close(number)?;
                }
                self.uv.run(Turn::Look);
                Ok(())
            })
        }
    }
}
