//! Closes what clients passed, away from the watcher thread: closing a lingering socket can block for as long as whoever
//! passed it likes.
//!
//! What one session closes is closed in order, by one thread at a time, so a session that lingers holds up itself. There
//! are as many threads as sessions hold one up, and one more; at most [`THREADS_MOST`], of which half for one user.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use handle_watcher_wire::{Code, Result, Status};

use crate::notified_port::NotifiedPort;
use crate::service::lazy::Lazy;
use crate::service::users::Thing;
use crate::service::watches::Watches;
use crate::sys::eventfd::EventFd;

/// How many threads close at most.
const THREADS_MOST: usize = 16;
/// How many of them may be held up by one user.
const THREADS_OF_USER_MOST: usize = THREADS_MOST / 2;
/// How many threads stay when there is nothing to do.
const THREADS_KEPT: usize = 2;
/// How long the others stay.
const IDLE: Duration = Duration::from_secs(1);
/// How long the stop waits for what is being closed.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// What is to be closed, in this order: first the watches, then what they are about.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) port: Option<NotifiedPort>,
    pub(super) watches: Lazy<Watches>,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) descriptor: Option<OwnedFd>,
}

/// Something that is to be closed, and who is told when it is.
#[derive(Debug)]
pub(super) struct Job {
    /// The session's number.
    pub(super) session: u64,
    pub(super) user: u32,
    pub(super) load: Load,
    pub(super) receipt: Receipt,
}

/// What is said when a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) slot: u32,
    /// The call that waits for it; 0 for none.
    pub(super) call: u32,
    /// What the user has less of, and how many.
    pub(super) thing: Thing,
    pub(super) count: u32,
}

/// A job that is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) session: u64,
    pub(super) user: u32,
    pub(super) receipt: Receipt,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Whose jobs are being done, a thread each: session and user.
    busy: Vec<(u64, u32)>,
    threads: usize,
    idle: usize,
    done: Vec<Done>,
    is_stopping: bool,
}

impl State {
    /// The first job that may be done now.
    fn next(&mut self) -> Option<Job> {
        let of_user = |user: u32| self.busy.iter().filter(|busy| busy.1 == user).count();
        let at = self.jobs.iter().position(|job| {
            self.busy.iter().all(|busy| busy.0 != job.session) && of_user(job.user) < THREADS_OF_USER_MOST
        })?;
        self.jobs.remove(at)
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    /// Nothing is left to do.
    rest: Condvar,
    /// Rung when something is done.
    bell: Arc<EventFd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watcher thread's end.
#[derive(Debug)]
pub(super) struct Closer {
    shared: Arc<Shared>,
}

impl Closer {
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if no thread could be made.
    pub(super) fn spawn(bell: Arc<EventFd>) -> Result<Self> {
        let shared =
            Arc::new(Shared { state: Mutex::default(), work: Condvar::new(), rest: Condvar::new(), bell });
        shared.lock().threads = 1;
        spawn(&shared).map_err(|error| {
            Status::new(Code::ResourceExhausted, format!("the closer thread could not be spawned: {error}"))
        })?;
        Ok(Self { shared })
    }

    /// Never blocks.
    pub(super) fn close(&self, job: Job) {
        self.shared.lock().jobs.push_back(job);
        self.shared.work.notify_one();
    }

    /// What was done since the last time.
    pub(super) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.shared.lock().done)
    }

    /// The threads end when nothing is left. Waits for that for a moment.
    pub(super) fn stop(&self) {
        let until = Instant::now() + STOP_WAIT;
        let mut state = self.shared.lock();
        state.is_stopping = true;
        self.shared.work.notify_all();
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // What still lingers is closed when it is done lingering.
                return;
            }
            state = self.shared.rest.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.work.notify_all();
    }
}

fn spawn(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("handle-closer".to_owned());
    thread.spawn(move || run(&shared)).map(drop)
}

fn run(shared: &Arc<Shared>) {
    // None of the program's handlers runs here; where that is refused, nothing is lost by going on.
    let _: std::io::Result<()> = crate::sys::thread::block_all_signals();
    let mut state = shared.lock();
    loop {
        if let Some(job) = state.next() {
            state = do_job(shared, state, job);
            continue;
        }
        if state.is_stopping && state.jobs.is_empty() {
            break;
        }
        state.idle += 1;
        let (woken, timeout) = shared.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if timeout.timed_out() && state.threads > THREADS_KEPT && state.idle > 0 && state.jobs.is_empty() {
            break;
        }
    }
    state.threads -= 1;
    shared.rest.notify_all();
}

fn do_job<'a>(shared: &'a Arc<Shared>, mut state: MutexGuard<'a, State>, job: Job) -> MutexGuard<'a, State> {
    let who = (job.session, job.user);
    state.busy.push(who);
    // Before this one is held up, it sees to it that another stands by.
    if state.idle == 0 && state.threads < THREADS_MOST {
        state.threads += 1;
        if spawn(shared).is_err() {
            state.threads -= 1;
        }
    }
    drop(state);
    let Load { port, watches, descriptors, descriptor } = job.load;
    drop(port);
    drop(watches);
    drop(descriptors);
    drop(descriptor);
    let mut state = shared.lock();
    state.busy.retain(|busy| *busy != who);
    state.done.push(Done { session: job.session, user: job.user, receipt: job.receipt });
    if state.done.len() == 1 {
        // It is an eventfd of our own; where write(2) is forbidden, the watcher itself could not have been made.
        let _: Result<(), rustix::io::Errno> = shared.bell.raise();
    }
    // Another job of the same session or user may be done now.
    if !state.jobs.is_empty() {
        shared.work.notify_one();
    }
    state
}
