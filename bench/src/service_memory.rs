//! service-memory: resident memory of the service's process per idle session and per watch, counted page by page. What
//! the kernel keeps, the sockets themselves among it, is not in it.

use crate::calls::Calls;
use crate::catalogue::{Bench, Entry, Measure};
use crate::host::Host;
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use crate::{Result, pair};
use handle_watcher_wire::protocol::{Request, Watch};
use handle_watcher_wire::{Mode, Signals};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Sessions that do nothing.
const SESSIONS: usize = 500;
/// Watches that share handles.
const SHARED_WATCHES: u64 = 20_000;
/// The handles they share.
const SHARED_HANDLES: u64 = 1000;
/// Watches on a handle each: below the usual hard limit of 20 000 descriptors.
const DISTINCT_WATCHES: u64 = 18_000;

const SESSION: &str = "a session";
const WATCH: &str = "a watch";

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    Bench {
        name: "service-memory",
        measure: Measure::Value("bytes_each"),
        // Every subject fills up once; time does not matter.
        slice: Duration::from_secs(3600),
        seconds: Duration::from_secs(1),
        warm_up: false,
        subjects: vec![
            Entry::ours("session", |placement| Memory::open(placement, Filling::Sessions)).part(SESSION),
            Entry::ours("watch-shared", |placement| {
                let filling = Filling::Watches { watches: SHARED_WATCHES, handles: SHARED_HANDLES };
                Memory::open(placement, filling)
            })
            .part(WATCH),
            Entry::ours("watch-distinct", |placement| {
                let filling = Filling::Watches { watches: DISTINCT_WATCHES, handles: DISTINCT_WATCHES };
                Memory::open(placement, filling)
            })
            .part(WATCH),
        ],
    }
}

/// What the service is filled with.
#[derive(Clone, Copy)]
enum Filling {
    Sessions,
    /// Of one session; the handles are passed in turn.
    Watches {
        watches: u64,
        handles: u64,
    },
}

struct Memory {
    filling: Filling,
    socket: UnixStream,
    _other: UnixStream,
    first: Calls,
    more: Vec<Calls>,
    address: String,
    host: Host,
}

impl Memory {
    /// A service, and a session that has had a watch: what is made once for all of them exists then.
    fn open(placement: &Placement, filling: Filling) -> Result<Box<dyn Subject>> {
        pair::descriptor_budget()?;
        let (host, address) = Host::service(placement)?;
        let (socket, other) = pair::pair()?;
        let mut first = Calls::open(&address)?;
        first.pass(&watch(0, 0), socket.as_fd())?;
        first.call(&Request::Unwatch { id: 0 }, |_| Ok(()))?;
        drop(Calls::open(&address)?);
        first.call(&Request::Ping, |_| Ok(()))?;
        Ok(Box::new(Self { filling, socket, _other: other, first, more: Vec::new(), address, host }))
    }

    /// Fills the service; gives with how many of them.
    fn fill(&mut self) -> Result<u64> {
        match self.filling {
            Filling::Sessions => {
                for _ in 0..SESSIONS {
                    self.more.push(Calls::open(&self.address)?);
                }
                Ok(SESSIONS as u64)
            }
            Filling::Watches { watches, handles } => {
                for id in 1..=watches {
                    let request = watch(id, id % handles);
                    if id <= handles {
                        self.first.pass(&request, self.socket.as_fd())?;
                    } else {
                        self.first.call(&request, |_| Ok(()))?;
                    }
                }
                Ok(watches)
            }
        }
    }
}

impl Subject for Memory {
    fn run(&mut self, _: Duration, _: &mut Recorder) -> Result<Slice> {
        let before = self.host.resident_bytes()?;
        let count = self.fill()?;
        // Its reply is written when everything before it is done.
        self.first.call(&Request::Ping, |_| Ok(()))?;
        let after = self.host.resident_bytes()?;
        let bytes = (after as f64 - before as f64) / count as f64;
        let slice = Stretch::begin()?.end(0)?.with_gauge("bytes_each", bytes);
        Ok(slice.with_gauge("filled", count as f64).with_gauge("resident_bytes", after as f64))
    }
}

fn watch(id: u64, handle: u64) -> Request<'static> {
    Request::Watch(Watch {
        id,
        handle,
        token: id,
        signals: Signals::READABLE,
        mode: Mode::Edge,
        deadline_ns: 0,
    })
}
