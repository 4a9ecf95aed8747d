//! The literal design of the ancestors (Mojo's and Dart's handle watchers): one thread calls `WaitMany` on persistent
//! parallel arrays of handles, signals and ports. `WaitMany` here is poll(2), whose entries are the first two arrays in
//! one. As there:
//!
//! - Place 0 is the control handle; clients put orders into a queue and write to it. It is looked at last.
//! - A position map says where in the arrays a watch is.
//! - Every ready handle of a wait is told, and is out of the arrays until its client adds it again.
//! - Frequently-ready handles are in the front segment of the arrays, so that the search for ready entries, which ends
//!   with the last one, finds them first. Dart shifted the arrays for it, O(n) a handle; here a hot handle is swapped
//!   to the segment's end, O(1). What is hot is decided by the same rule as in our own adaptive front.
//!
//! What the ancestors did not have, and ours has, it gets too, so that the arrays are what is compared: the wake only
//! when the thread sleeps, one wake a turn for a port, SCHED_BATCH.

use super::field::{Field, Load, Many, Watching};
use crate::Result;
use crate::pin::Placement;
use crate::subject::Subject;
use crate::sys::scheduling;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// No place: the watch is not in the arrays.
const NOWHERE: usize = usize::MAX;
/// The rule of our own adaptive front: so many short gaps between two orders make a handle hot, a long one cold.
const HOT: u32 = 4;
const SHORT_GAP: Duration = Duration::from_millis(10);
const LONG_GAP: Duration = Duration::from_secs(1);

/// The client's side.
pub(super) struct ArrayFront {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Kept from turn to turn, so that no turn allocates.
    told: Vec<usize>,
}

/// What client and thread share.
struct Shared {
    orders: Mutex<Orders>,
    /// Written to when the thread sleeps and has an order.
    control: OwnedFd,
    is_sleeping: AtomicBool,
    port: Port,
}

#[derive(Default)]
struct Orders {
    /// Watches to be added.
    adds: Vec<usize>,
    is_over: bool,
}

/// What one client was told and has not taken.
struct Port {
    told: Mutex<Vec<usize>>,
    client: Thread,
}

impl ArrayFront {
    pub(super) fn open(placement: &Placement, load: Load) -> Result<Box<dyn Subject>> {
        let field = Field::open(load)?;
        let shared = Arc::new(Shared {
            orders: Mutex::default(),
            control: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_sleeping: AtomicBool::new(false),
            port: Port { told: Mutex::default(), client: std::thread::current() },
        });
        let (theirs, descriptors) = (Arc::clone(&shared), Arc::clone(field.descriptors()));
        let placement = *placement;
        let thread = std::thread::Builder::new().name("array-front".to_owned()).spawn(move || {
            placement.move_far()?;
            scheduling::enter_batch();
            Arrays::new(&descriptors, &theirs.control).serve(&theirs)
        })?;
        let mut watching = Self { shared, thread: Some(thread), told: Vec::new() };
        for watch in 0..field.watches() {
            watching.add(watch)?;
        }
        Ok(Box::new(Many { watching, field }))
    }

    fn add(&mut self, watch: usize) -> Result<()> {
        lock(&self.shared.orders).adds.push(watch);
        self.shared.ring()
    }
}

impl Watching for ArrayFront {
    fn take_batch(&mut self, field: &mut Field) -> Result<usize> {
        self.told.clear();
        loop {
            std::mem::swap(&mut *lock(&self.shared.port.told), &mut self.told);
            if !self.told.is_empty() {
                break;
            }
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err("the array thread is gone".into());
            }
            std::thread::park();
        }
        let told = std::mem::take(&mut self.told);
        for &watch in &told {
            for watch in field.take(watch)? {
                self.add(watch)?;
            }
        }
        self.told = told;
        Ok(self.told.len())
    }
}

impl Drop for ArrayFront {
    fn drop(&mut self) {
        lock(&self.shared.orders).is_over = true;
        // It cannot be full: the thread reads it before it sleeps again.
        self.shared.ring().ok();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("hw-bench: the array thread panicked");
        }
    }
}

impl Shared {
    /// Wakes the thread if it sleeps.
    fn ring(&self) -> Result<()> {
        if self.is_sleeping.swap(false, SeqCst) {
            rustix::io::write(&self.control, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// The thread's side.
struct Arrays<'life> {
    descriptors: &'life [OwnedFd],
    // Parallel: one place is one entry in each. Handle and signals are one entry of poll(2).
    entries: Vec<PollFd<'life>>,
    watches: Vec<usize>,
    ports: Vec<usize>,
    /// The place of each watch.
    places: Vec<usize>,
    heats: Vec<Heat>,
    /// The front segment is places 1 to this one.
    front: usize,
    /// What a turn found, by port.
    staged: Vec<Vec<usize>>,
}

impl<'life> Arrays<'life> {
    fn new(descriptors: &'life [OwnedFd], control: &'life OwnedFd) -> Self {
        let (count, now) = (descriptors.len(), Instant::now());
        Self {
            descriptors,
            entries: vec![PollFd::new(control, PollFlags::IN)],
            watches: vec![NOWHERE],
            ports: vec![0],
            places: vec![NOWHERE; count],
            heats: vec![Heat { count: 0, last: now }; count],
            front: 0,
            staged: vec![Vec::new()],
        }
    }

    fn serve(mut self, shared: &Shared) -> Result<()> {
        let (mut adds, mut ready) = (Vec::new(), Vec::new());
        loop {
            let found = self.wait_many(shared)?;
            self.find(found, &mut ready);
            // From the last place to the first: what is swapped into a hole has been looked at.
            for place in ready.drain(..).rev() {
                self.staged[self.ports[place]].push(self.watches[place]);
                self.remove(place);
            }
            for staged in self.staged.iter_mut().filter(|staged| !staged.is_empty()) {
                lock(&shared.port.told).append(staged);
                shared.port.client.unpark();
            }
            {
                let mut orders = lock(&shared.orders);
                if orders.is_over {
                    return Ok(());
                }
                std::mem::swap(&mut orders.adds, &mut adds);
            }
            let now = Instant::now();
            adds.drain(..).for_each(|watch| self.add(watch, now));
        }
    }

    /// Waits until a handle is ready or there is an order; gives the number of ready entries.
    fn wait_many(&mut self, shared: &Shared) -> Result<usize> {
        shared.is_sleeping.store(true, SeqCst);
        let has_orders = {
            let orders = lock(&shared.orders);
            orders.is_over || !orders.adds.is_empty()
        };
        let timeout = has_orders.then(rustix::time::Timespec::default);
        let mut found = loop {
            match poll(&mut self.entries, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                outcome => break outcome?,
            }
        };
        shared.is_sleeping.store(false, SeqCst);
        if !self.entries[0].revents().is_empty() {
            found -= 1;
            rustix::io::read(&shared.control, &mut [0; 8])?;
        }
        Ok(found)
    }

    /// The places of `count` ready entries, searched from the front.
    fn find(&self, count: usize, ready: &mut Vec<usize>) {
        let places = (1..self.entries.len()).filter(|&place| !self.entries[place].revents().is_empty());
        ready.extend(places.take(count));
    }

    fn add(&mut self, watch: usize, now: Instant) {
        let place = self.entries.len();
        self.entries.push(PollFd::new(&self.descriptors[watch], PollFlags::IN));
        self.watches.push(watch);
        self.ports.push(0);
        self.places[watch] = place;
        if self.heats[watch].added(now) {
            self.front += 1;
            self.swap(place, self.front);
        }
    }

    fn remove(&mut self, place: usize) {
        self.places[self.watches[place]] = NOWHERE;
        let mut hole = place;
        if place <= self.front {
            self.swap(place, self.front);
            hole = self.front;
            self.front -= 1;
        }
        self.swap(hole, self.entries.len() - 1);
        self.entries.pop();
        self.watches.pop();
        self.ports.pop();
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.entries.swap(one, other);
        self.watches.swap(one, other);
        self.ports.swap(one, other);
        for place in [one, other] {
            let watch = self.watches[place];
            if self.places[watch] != NOWHERE {
                self.places[watch] = place;
            }
        }
    }
}

/// How often in a row a handle was added again soon after the last time.
#[derive(Clone, Copy, Debug)]
struct Heat {
    count: u32,
    last: Instant,
}

impl Heat {
    /// Counts an order; true if the handle is hot.
    fn added(&mut self, now: Instant) -> bool {
        self.count = match now - self.last {
            gap if gap <= SHORT_GAP => self.count.saturating_add(1),
            gap if gap > LONG_GAP => 0,
            _ => self.count / 2,
        };
        self.last = now;
        self.count >= HOT
    }
}

/// A panic elsewhere ends the run anyway; it must not hide behind a second one here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every watch that is in the arrays is where its place says, and the front segment holds the hot ones.
    #[test]
    fn places_follow_the_swaps() {
        let field = Field::open(Load::new(8, 8)).expect("eight eventfds");
        let control = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let mut arrays = Arrays::new(field.descriptors(), &control);
        let now = Instant::now();
        (0..8).for_each(|watch| arrays.add(watch, now + LONG_GAP * 2));
        for watch in [5, 2, 5, 2, 5, 2, 5, 2, 7, 5] {
            arrays.remove(arrays.places[watch]);
            assert_eq!(arrays.places[watch], NOWHERE);
            arrays.add(watch, now + LONG_GAP * 2);
            for (place, &watch) in arrays.watches.iter().enumerate().skip(1) {
                assert_eq!(arrays.places[watch], place);
            }
        }
        let mut hot = arrays.watches[1..=arrays.front].to_vec();
        hot.sort_unstable();
        assert_eq!((hot, arrays.entries.len()), (vec![2, 5], 9));
    }
}
