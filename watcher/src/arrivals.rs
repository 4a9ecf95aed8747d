//! What a service has told its client: read from the event socket and brought to the rows, as the watcher thread does with
//! what its poll set reports.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use handle_watcher_wire::protocol::{EventFrame, Request, read_stats};
use handle_watcher_wire::{Code, EventKind, Result, Signals, Status, TimerId};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};

use crate::deadline::Deadline;
use crate::link::{Arrived, Link};
use crate::outcome::Outcome;
use crate::port_queue::PortQueue;
use crate::rows::Reference;
use crate::shared::Shared;
use crate::state::Kind;
use crate::stats::Stats;
use crate::sys::clock::{now_ns, timespec};
use crate::sys::descriptor;
use crate::sys::epoll::KernelEvent;
use crate::timers::Entry;
use crate::wait_set::{Ended, SEQUENCE_BITS};

/// What calls are told when the service is gone and nobody knows why.
const GONE: &str = "the session with the service is over; connect again";

/// Brings what the service has told to the rows, and posts them. Any thread may call it; never while holding a lock.
pub(crate) fn absorb(shared: &Shared, link: &Link) -> Arrived {
    let mut found = Found { shared, queued: shared.take_scratch(), ended: Ended::new() };
    let arrived = link.arrive(|event| found.take(event));
    if !found.queued.is_empty()
        && let Some(port) = shared.only_port()
    {
        port.post(shared.rows(), &found.queued);
    }
    shared.put_scratch(found.queued);
    shared.post_ended(&mut found.ended);
    if arrived == Arrived::Lost && link.lose_once() {
        tracing::info!(target: "handle_watcher::link", "the session is over");
        shared.finish(Code::Unavailable, GONE);
    }
    arrived
}

/// What the service's watcher counts; zeros if the service cannot be asked.
pub(crate) fn stats(link: &Link) -> Stats {
    let asked = link.call_for(&Request::Stats, None, |body| Ok(Stats::from_named(read_stats(body)?)));
    asked.unwrap_or_default()
}

/// The port's descriptor is polled: what a call has taken back must not be in the event socket any more.
pub(crate) fn catch_up(shared: &Shared) {
    if let Some(link) = shared.link().filter(|link| link.is_exact()) {
        while absorb(shared, link) == Arrived::Some {}
    }
}

struct Found<'a> {
    shared: &'a Shared,
    queued: Vec<Reference>,
    ended: Ended,
}

impl Found<'_> {
    fn take(&mut self, event: &EventFrame) {
        let Found { shared, queued, ended } = self;
        match event.kind {
            EventKind::Ready => {
                let number = number_of(event.token);
                let report = KernelEvent { flags: to_flags(event.satisfied, number), token: event.token };
                shared.counters.readiness.add_shared(1);
                let before = queued.len();
                shared.waits.collect_back(report, |_, reference| queued.push(reference), ended);
                for &reference in &queued[before..] {
                    // Its deadline would be told of by the service, to nobody.
                    if shared.waits.drop_deadline(reference) {
                        shared.forget_deadline(reference);
                    }
                }
            }
            EventKind::Timer => self.expire(event),
            EventKind::Ended => shared.waits.end_entry(event.token, event.status, ended),
            // Nothing that this client asks for leads to another kind.
            EventKind::Unsatisfiable | EventKind::Deadline | EventKind::Wake | EventKind::Reply => {}
        }
    }

    fn expire(&mut self, event: &EventFrame) {
        let Found { shared, queued, ended } = self;
        let timer = TimerId::from_raw(event.id);
        let reference = Reference { slot: timer.slot(), generation: timer.generation() };
        if reference.slot == 0 || reference.slot as usize > shared.rows().limit() {
            return;
        }
        let row = shared.rows().row(reference.slot);
        let state = row.state.load();
        if state.generation() != reference.generation {
            return;
        }
        shared.counters.timers_fired.add_shared(1);
        if state.kind() != Kind::Timer {
            if shared.waits.expire(reference, event.token, ended) == Outcome::Queue {
                queued.push(reference);
            }
            return;
        }
        // What the service has counted is counted here: as if it were looked at when the last of them was due.
        let (deadline_ns, period_ns) =
            (row.deadline_ns.load(Ordering::Relaxed), row.extra.load(Ordering::Relaxed));
        let since = period_ns.saturating_mul(u64::from(event.count.max(1)) - 1);
        let now_ns = deadline_ns.saturating_add(since);
        if let Some(port) = shared.only_port() {
            port.expire_timer(shared.rows(), Entry { deadline_ns, reference }, now_ns);
        }
        queued.push(reference);
    }
}

fn number_of(token: u64) -> RawFd {
    RawFd::try_from(token >> SEQUENCE_BITS).unwrap_or(-1)
}

/// What the kernel would have reported here. A service says in one word that the other side is gone or only sends no more;
/// which of them is asked of the kernel, in the seldom case.
fn to_flags(satisfied: Signals, number: RawFd) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, satisfied.contains(Signals::READABLE));
    flags.set(EventFlags::OUT, satisfied.contains(Signals::WRITABLE));
    flags.set(EventFlags::PRI, satisfied.contains(Signals::PRIORITY));
    flags.set(EventFlags::ERR, satisfied.contains(Signals::ERROR));
    if satisfied.contains(Signals::PEER_CLOSED) {
        flags |= EventFlags::RDHUP;
        let is_half = descriptor::poll_entry(number, PollFlags::empty()).is_ok_and(|entry| {
            let mut entries = [entry];
            descriptor::poll_now(&mut entries).is_ok() && entries[0].revents().is_empty()
        });
        flags.set(EventFlags::HUP, !is_half);
    }
    flags
}

/// Sleeps on the port's word, or, where a service's events may come and the set that reported them was given up, at their
/// socket.
pub(crate) fn sleep_without_front(shared: &Shared, port: &PortQueue, deadline: Option<Deadline>) {
    let (Some(link), Some(front)) = (shared.link(), port.front()) else {
        return port.park(deadline.map(Deadline::as_ns));
    };
    if port.enter_front() {
        let (socket, bell) = (link.events_socket(), front.bell());
        let mut entries = [PollFd::new(&socket, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        let timeout = deadline.map(|deadline| timespec(deadline.as_ns().saturating_sub(now_ns())));
        // An interruption: the caller looks at the time and comes again.
        let _: rustix::io::Result<usize> = poll(&mut entries, timeout.as_ref());
        port.leave_front();
        if !front.is_exposed() {
            bell.lower();
        }
    }
    absorb(shared, link);
}

/// Reads the event socket for a port that nobody waits at.
#[derive(Debug)]
pub(crate) struct Listener {
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if no thread can be had.
    pub(crate) fn spawn(shared: &Arc<Shared>, link: &Arc<Link>) -> Result<Self> {
        let (listening, link) = (Arc::clone(shared), Arc::clone(link));
        shared.set_has_thread();
        let thread = std::thread::Builder::new().name(shared.config.thread_name.clone()).spawn(move || {
            // Signals are for the threads of the user's program. Without the mask it works as well.
            let _: std::io::Result<()> = crate::sys::thread::block_all_signals();
            listen(&listening, &link);
        });
        let thread = thread.map_err(|error| {
            Status::new(
                Code::ResourceExhausted,
                format!("the thread that listens to the service could not be spawned: {error}"),
            )
        })?;
        Ok(Self { thread: Some(thread) })
    }

    /// Waits until the thread has ended, which the end of the session makes it do. Harmless on that thread itself.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!(target: "handle_watcher::link", "the thread that listened to the service had panicked");
        }
    }

    /// In a forked child there is no thread to join.
    pub(crate) fn leave(&mut self) {
        std::mem::forget(self.thread.take());
    }
}

fn listen(shared: &Shared, link: &Link) {
    loop {
        let socket = link.events_socket();
        let mut entries = [PollFd::new(&socket, PollFlags::IN)];
        // An interruption or a want of memory: the next look decides.
        let _: rustix::io::Result<usize> = poll(&mut entries, None);
        if absorb(shared, link) == Arrived::Lost {
            return;
        }
    }
}
