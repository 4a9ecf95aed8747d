//! What the watcher thread and every client share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use crossbeam_channel::Receiver;
use handle_watcher_wire::protocol::{Request, SetTimer};
use handle_watcher_wire::{Code, Result, Status, TimerId};

use crate::command::{CommandQueue, SendError};
use crate::config::Config;
use crate::front::{Front, FrontPolicy};
use crate::link::Link;
use crate::port_queue::{PortLimits, PortQueue};
use crate::rows::{Reference, Rows};
use crate::state::Kind;
use crate::stats::{Counters, Stats};
use crate::sys::fork::Birth;
use crate::timers::Entry;
use crate::wait_set::{Ended, WaitSet};

/// Cancelled deadlines are worth a wake of a sleeping watcher, to sweep them, once this many have gathered.
const SWEEP_WAKE: u64 = 1 << 16;

/// What every call answers after the stop.
pub(crate) const STOPPED: &str = "the watcher has stopped; spawn a new one";

/// What clients ask of the watcher thread: only what it alone owns. Watches need no command at all.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client is there.
    Open(Arc<PortQueue>),
    /// A client is gone; its index may be given to another.
    Close(u32),
    /// A timer or a watch has a deadline.
    Deadline(Entry),
}

/// The clients, by index.
#[derive(Debug, Default)]
struct Registry {
    ports: Vec<Option<Arc<PortQueue>>>,
    free: Vec<u32>,
    count: u32,
    /// The watcher has stopped; a client made now would wait for ever.
    is_closed: bool,
    /// What clients that are gone had counted.
    gone_wakes: u64,
    gone_from_fronts: u64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) waits: WaitSet,
    pub(crate) counters: Counters,
    commands: CommandQueue<Command>,
    registry: Mutex<Registry>,
    birth: Birth,
    /// Room for the rows that a service has told of, kept from look to look.
    scratch: Mutex<Vec<Reference>>,
    /// A thread holds a share of this value, so it is never dropped in a child that was forked since.
    has_thread: AtomicBool,
    /// Set once, by the first stop.
    stopping: AtomicBool,
    watcher_thread: OnceLock<ThreadId>,
    /// Deadlines that were cancelled or replaced and not yet swept out.
    dead_deadlines: AtomicU64,
}

impl Shared {
    /// What a watcher and its clients share; or, with a link, what a service's client has instead of a watcher.
    pub(crate) fn new(config: Config, link: Option<Arc<Link>>) -> Result<(Self, Receiver<Command>)> {
        config.check()?;
        let birth = Birth::here().map_err(|error| unavailable("the fork marker", &error))?;
        let rows = Rows::reserve_space(config.row_limit as usize).map_err(|errno| {
            let limit = config.row_limit;
            Status::new(
                Code::ResourceExhausted,
                format!("no address space for {limit} rows ({errno}); lower Config::row_limit"),
            )
        })?;
        let numbers = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let numbers = numbers.and_then(|numbers| usize::try_from(numbers).ok()).unwrap_or(usize::MAX);
        let waits = WaitSet::new(rows, numbers, link).map_err(|error| unavailable("the poll set", &error))?;
        let waker = waits.back().set().waker().map_err(|error| unavailable("the waker", &error))?;
        let (commands, receiver) = CommandQueue::new(config.command_limit, waker);
        let shared = Self {
            config,
            waits,
            counters: Counters::default(),
            commands,
            registry: Mutex::default(),
            birth,
            scratch: Mutex::default(),
            has_thread: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            watcher_thread: OnceLock::new(),
            dead_deadlines: AtomicU64::new(0),
        };
        Ok((shared, receiver))
    }

    /// # Errors
    /// `FAILED_PRECONDITION` in a process that was forked since. One load.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.birth.is_elsewhere() {
            return Err(Status::new(
                Code::FailedPrecondition,
                "this client was made before a fork and does not work in the child; make a new watcher there",
            ));
        }
        Ok(())
    }

    /// A thread shares this value from now on.
    pub(crate) fn set_has_thread(&self) {
        self.has_thread.store(true, Ordering::SeqCst);
    }

    /// In a forked child: nobody drops this value there, so what it has open has to be closed by number.
    pub(crate) fn is_kept_in_child(&self) -> bool {
        self.has_thread.load(Ordering::SeqCst)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.birth.is_elsewhere()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Asks the watcher to stop; the first caller's request counts. The caller writes the wake.
    ///
    /// # Errors
    /// `INTERNAL` if the wake could not be written: the watcher stops when it next wakes by itself.
    pub(crate) fn request_stop(&self) -> Result<()> {
        self.stopping.store(true, Ordering::SeqCst);
        self.commands.wake_always().map_err(|error| {
            Status::new(
                Code::Internal,
                format!(
                    "the stop could not be written to the watcher ({error}); is write(2) on an eventfd forbidden \
                     here? Stop it from a thread that may"
                ),
            )
        })
    }

    /// Closes our descriptors in a child that was forked since; the watcher's own share of this value, on a thread that
    /// does not exist there, would keep them open for ever.
    pub(crate) fn close_in_child(&self) {
        if self.is_kept_in_child() && !self.stopping.swap(true, Ordering::SeqCst) {
            if let Some(link) = self.link() {
                link.close_in_child();
            }
            self.commands.close_in_child();
            self.waits.back().set().close_in_child();
        }
    }

    pub(crate) fn set_watcher_thread(&self, thread: ThreadId) {
        // Set once, by the thread itself, before anybody else knows of it.
        let _: std::result::Result<(), ThreadId> = self.watcher_thread.set(thread);
    }

    pub(crate) fn is_watcher_thread(&self) -> bool {
        self.watcher_thread.get() == Some(&std::thread::current().id())
    }

    pub(crate) fn commands(&self) -> &CommandQueue<Command> {
        &self.commands
    }

    /// Sends a command that is due at `due_ns`. Never call it while holding a lock.
    ///
    /// # Errors
    /// `UNAVAILABLE` after the stop; `RESOURCE_EXHAUSTED` on the watcher thread itself with a full queue.
    pub(crate) fn send(&self, command: Command, due_ns: u64) -> Result<()> {
        if let Some(link) = self.link() {
            return self.send_to_service(link, &command);
        }
        let may_wait = !self.is_watcher_thread();
        self.commands.send(command, due_ns, may_wait).map_err(|error| match error {
            SendError::Stopped => self.stopped(),
            SendError::Full => Status::new(
                Code::ResourceExhausted,
                format!(
                    "{} commands wait for the watcher thread, which cannot wait for itself; raise \
                     Config::command_limit",
                    self.config.command_limit
                ),
            ),
            SendError::Wake(kind) => Status::new(
                Code::Internal,
                format!("the watcher could not be woken ({kind}); is write(2) on an eventfd forbidden here?"),
            ),
        })
    }

    fn send_to_service(&self, link: &Link, command: &Command) -> Result<()> {
        // The service knows nothing of the one port there is here.
        let Command::Deadline(Entry { deadline_ns, reference }) = *command else { return Ok(()) };
        let row = self.rows().row(reference.slot);
        let is_timer = row.state.load().kind() == Kind::Timer;
        let period_ns = if is_timer { row.extra.load(Ordering::Relaxed) } else { 0 };
        let timer = SetTimer { id: timer_id(reference), token: deadline_ns, deadline_ns, period_ns };
        link.call(&Request::SetTimer(timer), None)
    }

    /// The session, of a client whose back is a service.
    #[inline]
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        self.waits.back().link()
    }

    /// Notes that a deadline no longer matters, so that it is swept out in time.
    pub(crate) fn forget_deadline(&self, reference: Reference) {
        if let Some(link) = self.link() {
            let request = Request::CancelTimer { id: timer_id(reference) };
            // NOT_FOUND: it has fired. UNAVAILABLE: there are no timers any more.
            let _: Result<()> = if link.is_exact() { link.call(&request, None) } else { link.tell(&request) };
            return;
        }
        let dead = self.dead_deadlines.fetch_add(1, Ordering::Relaxed) + 1;
        if dead.is_multiple_of(SWEEP_WAKE) && self.commands.wake(0).is_err() {
            tracing::warn!(target: "handle_watcher::watcher", "the watcher could not be woken to sweep its timers");
        }
    }

    pub(crate) fn dead_deadlines(&self) -> u64 {
        self.dead_deadlines.load(Ordering::Relaxed)
    }

    pub(crate) fn dead_deadlines_dropped(&self, count: u64) {
        let dropped = |dead: u64| Some(dead.saturating_sub(count));
        // The closure never declines, so the update always happens.
        let _: std::result::Result<u64, u64> =
            self.dead_deadlines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, dropped);
    }

    /// Makes a client's queue known.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` at the limit of clients; `UNAVAILABLE` after the stop.
    pub(crate) fn open_port(&self, policy: FrontPolicy) -> Result<Arc<PortQueue>> {
        let limits = PortLimits { watches: self.config.watch_limit, timers: self.config.timer_limit };
        let port = {
            let mut registry = self.registry();
            if registry.is_closed {
                return Err(self.stopped());
            }
            if registry.count >= self.config.client_limit {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    format!(
                        "this watcher has {} clients already; drop some, or raise Config::client_limit",
                        registry.count
                    ),
                ));
            }
            let index = match registry.free.pop() {
                Some(index) => index,
                None => {
                    registry.ports.push(None);
                    u32::try_from(registry.ports.len() - 1).unwrap_or(u32::MAX)
                }
            };
            let port = Arc::new(PortQueue::new(index, limits, policy));
            registry.ports[index as usize] = Some(Arc::clone(&port));
            registry.count += 1;
            port
        };
        // Not due by itself: whatever the client registers is looked at after the commands.
        if let Err(status) = self.send(Command::Open(Arc::clone(&port)), u64::MAX) {
            self.forget_port(port.index());
            return Err(status);
        }
        Ok(port)
    }

    /// Lets go of a client.
    pub(crate) fn close_port(&self, port: &PortQueue) {
        self.waits.set_front(port.index(), None);
        // Told first, so that the watcher hears of the end before it hears of whoever gets the index next. Without a
        // watcher there is nobody to tell.
        let _: Result<()> = self.send(Command::Close(port.index()), 0);
        self.forget_port(port.index());
    }

    /// Gives a client's index to the next one. Called when the watcher was told that the client is gone.
    pub(crate) fn forget_port(&self, index: u32) {
        let mut registry = self.registry();
        let place = registry.ports.get_mut(index as usize);
        if let Some(port) = place.and_then(Option::take) {
            let gone = port.stats();
            registry.gone_wakes += gone.wakes;
            registry.gone_from_fronts += gone.from_front;
            registry.count -= 1;
            registry.free.push(index);
        }
    }

    /// Refuses new clients from now on, and gives every port there is.
    pub(crate) fn close_registry(&self) -> Vec<Arc<PortQueue>> {
        self.registry().is_closed = true;
        self.ports()
    }

    /// Every port there is.
    pub(crate) fn ports(&self) -> Vec<Arc<PortQueue>> {
        self.registry().ports.iter().flatten().cloned().collect()
    }

    /// The one port that a service's client has.
    pub(crate) fn only_port(&self) -> Option<Arc<PortQueue>> {
        self.registry().ports.first().cloned().flatten()
    }

    /// Room for references; empty. Whoever else has it just now leaves the next one to allocate.
    pub(crate) fn take_scratch(&self) -> Vec<Reference> {
        std::mem::take(&mut *self.scratch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put_scratch(&self, mut references: Vec<Reference>) {
        references.clear();
        *self.scratch.lock().unwrap_or_else(PoisonError::into_inner) = references;
    }

    #[inline]
    pub(crate) fn rows(&self) -> &Rows {
        &self.waits.rows
    }

    /// The front of a port, made now if it has none. Nothing if descriptors ran out: the back serves everything as
    /// well, only slower.
    pub(crate) fn front(&self, port: &PortQueue) -> Option<Arc<Front>> {
        if let Some(front) = port.front() {
            return Some(Arc::clone(front));
        }
        // One thread at a time makes it, and the wait set knows it before any watch can be in it.
        let _making = self.registry();
        if let Some(front) = port.front() {
            return Some(Arc::clone(front));
        }
        match Front::new(port.index()) {
            Ok(front) => {
                let front = Arc::new(front);
                self.waits.set_front(port.index(), Some(Arc::clone(&front)));
                port.set_front(Arc::clone(&front));
                Some(front)
            }
            Err(error) => {
                tracing::warn!(target: "handle_watcher::port", port = port.index(), %error, "no front could be made");
                None
            }
        }
    }

    /// Posts rows that something ended, each to its own port. Call it without any lock.
    #[inline]
    pub(crate) fn post_ended(&self, ended: &mut Ended) {
        // Nearly always there are none.
        if !ended.is_empty() {
            ended.drain(..).for_each(|reference| self.post(reference));
        }
    }

    /// Posts one row to its port. Call it without any lock.
    pub(crate) fn post(&self, reference: Reference) {
        let index = self.rows().row(reference.slot).port.load(Ordering::Relaxed);
        let port = self.registry().ports.get(index as usize).cloned().flatten();
        if let Some(port) = port {
            port.post(self.rows(), &[reference]);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.counters.snapshot();
        stats.wakes = self.commands.wakes();
        {
            let registry = self.registry();
            stats.client_wakes = registry.gone_wakes;
            stats.from_fronts = registry.gone_from_fronts;
        }
        for port in self.ports() {
            let client = port.stats();
            stats.clients += 1;
            stats.watches += client.watches;
            stats.timers += client.timers;
            stats.undelivered += client.undelivered;
            stats.client_wakes += client.wakes;
            stats.from_fronts += client.from_front;
        }
        stats
    }

    /// What every call answers after the stop.
    pub(crate) fn stopped(&self) -> Status {
        let lost = self.link().and_then(|link| link.check().err());
        lost.unwrap_or_else(|| Status::new(Code::Unavailable, STOPPED))
    }

    /// Ends every watch and tells every waiter. After this the clients' calls answer UNAVAILABLE, with `refusal`.
    pub(crate) fn finish(&self, code: Code, refusal: &'static str) {
        let mut ended = Ended::new();
        for port in self.close_registry() {
            // From here on the port takes no new row, so the list can only shrink.
            port.refuse(refusal);
            let mut references = Vec::new();
            port.visit_rows(self.rows(), |slot, row| {
                let state = row.state.load();
                if state.kind() == Kind::Watch {
                    references.push(Reference { slot, generation: state.generation() });
                }
                true
            });
            for reference in references {
                self.waits.end(reference, code, &mut ended);
            }
            self.post_ended(&mut ended);
            port.stop();
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number a service knows the timer or the deadline of a row by.
fn timer_id(reference: Reference) -> u64 {
    TimerId::new(reference.slot, reference.generation).raw()
}

fn unavailable(what: &str, error: &std::io::Error) -> Status {
    let full = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM));
    let missing = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL) | None);
    let code = match (full, missing) {
        (true, _) => Code::ResourceExhausted,
        (_, true) => Code::Unimplemented,
        _ => Code::Internal,
    };
    Status::new(
        code,
        format!(
            "{what} could not be made: {error}; close descriptors or raise RLIMIT_NOFILE if they ran out"
        ),
    )
}
