//! hot-pair: the round trip of one pair while 10 000 cold descriptors of the same watcher become ready at once, again
//! and again. A thread of its own writes to all of them, then waits with its own client until it has taken and read
//! every event, then writes again; it rests between slices. The cold watches are Edge watches, so that every write
//! makes work for the watcher thread and none is held back by a client that is slow to arm. A sample is one round trip
//! of the hot pair.
//!
//! With two cores the hot pair has the first, the watcher and the cold client the second, and the figure says how long
//! the pair waits for a busy watcher. With one core all four threads share it, and p99 is above all the kernel's time
//! slice, as the row `bare-epoll` shows.

use crate::catalogue::{Bench, Entry, Measure};
use crate::pin::Placement;
use crate::round_trip::blocking;
use crate::subject::{Recorder, Slice, Subject};
use crate::{Result, ours, pair};
use crossbeam_channel::{Receiver, Sender, bounded};
use handle_watcher_client::{Client, Events, FrontPolicy, Mode, Signals, Watcher};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Cold descriptors.
const COLD: usize = 10_000;
/// Events the cold client takes at once.
const BATCH: usize = 1024;

/// The bench and its subjects.
pub(crate) fn bench() -> Bench {
    Bench {
        name: "hot-pair",
        measure: Measure::Tail,
        slice: Duration::from_millis(250),
        seconds: Duration::from_secs(3),
        warm_up: true,
        subjects: vec![
            Entry::ours("front", |placement| of_ours(placement, Mode::Level, FrontPolicy::Adaptive))
                .against(&["back", "back-once"]),
            Entry::ours("front-once", |placement| of_ours(placement, Mode::Once, FrontPolicy::Adaptive))
                .against(&["back", "back-once"]),
            Entry::ours("back", |placement| of_ours(placement, Mode::Edge, FrontPolicy::Off)),
            Entry::ours("back-once", |placement| of_ours(placement, Mode::Once, FrontPolicy::Off)),
            Entry::peer("bare-epoll", bare_epoll),
        ],
    }
}

fn of_ours(placement: &Placement, mode: Mode, policy: FrontPolicy) -> Result<Box<dyn Subject>> {
    let watcher = ours::watcher(placement)?;
    let storm = Storm::open(&watcher, placement)?;
    let trip = blocking::ours_with(watcher, &placement.all_near(), mode, policy)?;
    Ok(Box::new(HotPair { storm, trip, _watcher: None }))
}

/// The floor: the pair on sets of its own, beside the same storm.
fn bare_epoll(placement: &Placement) -> Result<Box<dyn Subject>> {
    let watcher = ours::watcher(placement)?;
    let storm = Storm::open(&watcher, placement)?;
    let trip = blocking::bare_epoll(&placement.all_near())?;
    Ok(Box::new(HotPair { storm, trip, _watcher: Some(watcher) }))
}

/// Fields drop in order: the clients leave before the watcher stops.
struct HotPair {
    storm: Storm,
    trip: Box<dyn Subject>,
    _watcher: Option<Watcher>,
}

impl Subject for HotPair {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        self.storm.begin()?;
        let slice = self.trip.run(length, recorder);
        let events = self.storm.end()?;
        Ok(slice?.with_counter("cold_events", events))
    }
}

/// The thread that makes the cold descriptors ready and takes their events.
struct Storm {
    begins: Option<Sender<()>>,
    ends: Receiver<Result<u64>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    fn open(watcher: &Watcher, placement: &Placement) -> Result<Self> {
        let mut cold = Cold::open(watcher)?;
        let (begins, began) = bounded(1);
        let (ended, ends) = bounded(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let (placement, over) = (*placement, Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("storm".to_owned()).spawn(move || {
            for () in began {
                let events = placement.move_far().and_then(|()| cold.blow(&over));
                // Nobody listens any more: then the channel that begins is gone as well.
                ended.send(events).ok();
            }
        })?;
        Ok(Self { begins: Some(begins), ends, is_over, thread: Some(thread) })
    }

    fn begin(&self) -> Result<()> {
        self.is_over.store(false, Relaxed);
        let begins = self.begins.as_ref().ok_or("the storm is over")?;
        Ok(begins.send(())?)
    }

    /// Waits until everything was taken; gives the number of events.
    fn end(&self) -> Result<u64> {
        self.is_over.store(true, Relaxed);
        self.ends.recv()?
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        drop(self.begins.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("hw-bench: the storm's thread panicked");
        }
    }
}

/// The cold descriptors and their client. Fields drop in order: the watches end before their descriptors close.
struct Cold {
    client: Client,
    events: Events,
    descriptors: Vec<OwnedFd>,
}

impl Cold {
    fn open(watcher: &Watcher) -> Result<Self> {
        pair::require_descriptors(COLD)?;
        let client = ours::attach(watcher, FrontPolicy::Adaptive)?;
        let mut descriptors = Vec::with_capacity(COLD);
        for token in 0..COLD {
            let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            client.watch(&descriptor, Signals::READABLE, Mode::Edge, u64::try_from(token)?)?;
            descriptors.push(descriptor);
        }
        Ok(Self { client, events: Events::with_capacity(BATCH), descriptors })
    }

    /// Whole bursts, until the slice is over.
    fn blow(&mut self, is_over: &AtomicBool) -> Result<u64> {
        let mut events = 0;
        while !is_over.load(Relaxed) {
            for descriptor in &self.descriptors {
                rustix::io::write(descriptor, &1_u64.to_ne_bytes())?;
            }
            let mut left = COLD;
            while left > 0 {
                ours::wait(&mut self.client, &mut self.events)?;
                for event in &self.events {
                    let number = usize::try_from(event.token)?;
                    let descriptor = self.descriptors.get(number).ok_or("an event for nobody")?;
                    rustix::io::read(descriptor, &mut [0; 8])?;
                }
                left = left.checked_sub(self.events.len()).ok_or("more events than were due")?;
                events += u64::try_from(self.events.len())?;
            }
        }
        Ok(events)
    }
}
