//! What `tests/loom` models. Compiled only under `--cfg loom`, where atomics are loom's and every order of steps is
//! tried.
//!
//! The state word and the two wake flags are the real ones. loom knows no kernel, so what they meet there is modelled
//! here as plainly as possible: one poll set with one descriptor in it, a futex, a port's queue. The models follow
//! `wait_set`, `port_queue` and `turn` step by step; the steps themselves stand in the test, where wrong orders of
//! them are tried too.

use handle_watcher_wire::{Code, Mode, Signals};
use loom::sync::{Condvar, Mutex, MutexGuard};

use crate::outcome::{Delivery, Outcome, Taken};
use crate::state::{Kind, Role, StateWord};
use crate::sync::{AtomicU32, Ordering};
use crate::wake::{Parked, ParkedUntil, Sleeper};

/// What the caller of a change has to do: see `Outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Ignored,
    Merged,
    Queue,
}

impl From<Outcome> for Next {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ignored => Self::Ignored,
            Outcome::Merged => Self::Merged,
            Outcome::Queue => Self::Queue,
        }
    }
}

/// What a hand-out gave: see `Taken`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    Nothing,
    Ready,
    Deadline,
    Ended(Code),
}

/// A row: the real state word, and the lock of its node, under which all but a hand-out and a coming back change it.
#[derive(Debug)]
pub struct Row {
    state: StateWord,
    token: AtomicU32,
    node: Mutex<()>,
}

/// The generation of a row's first owner.
pub const FIRST: u32 = 1;

fn role(mode: Mode) -> Role {
    Role { kind: Kind::Watch, mode, wished: Signals::READABLE, child: false }
}

impl Row {
    /// A row that its first owner has reserved and not published.
    pub fn reserved(mode: Mode) -> Self {
        let word = StateWord::new(FIRST);
        word.reserve(role(mode));
        Self { state: word, token: AtomicU32::new(FIRST), node: Mutex::new(()) }
    }

    /// A live row of its first owner, waiting for READABLE.
    pub fn live(mode: Mode) -> Self {
        let row = Self::reserved(mode);
        row.state.publish(FIRST, false);
        row
    }

    /// A live row that its client's front serves.
    pub fn in_front(mode: Mode) -> Self {
        let row = Self::reserved(mode);
        row.state.publish(FIRST, true);
        row
    }

    /// The state word, to be changed under the node's lock.
    fn guarded<R>(&self, change: impl FnOnce(&StateWord) -> R) -> R {
        let _node = self.node.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&self.state)
    }

    pub fn is_reserved(&self) -> bool {
        self.state.load().is_reserved()
    }

    pub fn generation(&self) -> u32 {
        self.state.load().generation()
    }

    /// Something of this owner's is undelivered. One look at the word: two would see two owners.
    fn is_queued_by(&self, generation: u32) -> bool {
        let state = self.state.load();
        state.generation() == generation && state.is_queued()
    }

    pub fn publish(&self, generation: u32) -> bool {
        self.guarded(|state| state.publish(generation, false))
    }

    pub fn abandon(&self, generation: u32) -> bool {
        self.guarded(|state| state.abandon(generation))
    }

    pub fn fire(&self, generation: u32) -> Next {
        self.guarded(|state| state.fire(generation, Signals::READABLE)).into()
    }

    pub fn expire(&self, generation: u32) -> Next {
        self.guarded(|state| state.expire(generation)).into()
    }

    pub fn end(&self, generation: u32, code: Code) -> Next {
        self.guarded(|state| state.end(generation, code)).into()
    }

    /// The owner takes the row back. Whether it was live, if it was the owner's at all.
    pub fn detach(&self, generation: u32) -> Option<bool> {
        self.guarded(|state| state.detach(generation)).map(|before| before.is_live())
    }

    pub fn arm(&self, generation: u32) -> bool {
        self.guarded(|state| state.arm(generation)).is_some()
    }

    pub fn come_back(&self, generation: u32) -> Next {
        self.state.come_back(generation).into()
    }

    pub fn take(&self, generation: u32) -> Handed {
        match self.state.take(generation) {
            Taken::Nothing => Handed::Nothing,
            Taken::Ready { .. } => Handed::Ready,
            Taken::Deadline { .. } => Handed::Deadline,
            Taken::Ended(code) => Handed::Ended(code),
        }
    }

    /// The front's own thread delivers without the node's lock. Gives whose event it is, and the token it carries.
    pub fn deliver_alone(&self, order: TokenRead) -> Option<(u32, u32)> {
        let generation = self.generation();
        let before = self.token.load(Ordering::Acquire);
        let Delivery::Now { .. } = self.state.deliver(generation, Signals::READABLE) else { return None };
        let token = match order {
            TokenRead::BeforeTheState => before,
            TokenRead::AfterTheState => self.token.load(Ordering::Acquire),
        };
        Some((generation, token))
    }

    /// Gives a detached row to its next owner, who publishes it at once; gives the new generation, which is its token
    /// too.
    pub fn recycle(&self, generation: u32, mode: Mode) -> u32 {
        self.state.recycle(generation + 1);
        self.token.store(generation + 1, Ordering::Release);
        let next = self.state.reserve(role(mode));
        self.publish(next);
        next
    }
}

/// When the front reads a row's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRead {
    BeforeTheState,
    AfterTheState,
}

/// A descriptor number, and the file it means: one that its owner may close and open anew at any time.
#[derive(Debug)]
pub struct Number(AtomicU32);

/// The file that is watched.
pub const OURS: u32 = 1;
/// The file that gets its number next.
pub const FOREIGN: u32 = 2;

impl Default for Number {
    fn default() -> Self {
        Self(AtomicU32::new(OURS))
    }
}

impl Number {
    pub fn reuse(&self) {
        self.0.store(FOREIGN, Ordering::SeqCst);
    }

    fn file(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A kernel set as far as a move needs it: the kernel finds an entry by the file that the number means now.
#[derive(Debug, Default)]
pub struct Entries(Mutex<Vec<u32>>);

impl Entries {
    pub fn add(&self, number: &Number) {
        self.files().push(number.file());
    }

    /// False if the set has no entry of that file.
    pub fn delete(&self, number: &Number) -> bool {
        let mut files = self.files();
        let place = files.iter().position(|&file| file == number.file());
        place.map(|place| files.remove(place)).is_some()
    }

    pub fn has(&self, file: u32) -> bool {
        self.files().contains(&file)
    }

    fn files(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How the kernel's entry reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Off after one report, until it is modified.
    OneShot,
    /// At each new readiness.
    Edge,
}

/// What a wait in the kernel returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The descriptor is readable; the token its entry had.
    Ready(u64),
    /// Somebody wrote the wake.
    Woken,
}

#[derive(Debug)]
struct Entry {
    trigger: Trigger,
    token: u64,
    is_on: bool,
    /// In the kernel's list of what may be ready.
    is_listed: bool,
    /// Bytes that nobody has read.
    unread: u32,
    is_woken: bool,
    wakes: u32,
}

/// A poll set with one descriptor and a waker. One thread waits.
#[derive(Debug)]
pub struct Kernel {
    entry: Mutex<Entry>,
    changed: Condvar,
}

impl Kernel {
    /// A descriptor without data, registered under `token`.
    pub fn new(trigger: Trigger, token: u64) -> Self {
        let entry =
            Entry { trigger, token, is_on: true, is_listed: false, unread: 0, is_woken: false, wakes: 0 };
        Self { entry: Mutex::new(entry), changed: Condvar::new() }
    }

    fn entry(&self) -> MutexGuard<'_, Entry> {
        self.entry.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One more byte to read: a new edge.
    pub fn write(&self) {
        let mut entry = self.entry();
        entry.unread += 1;
        entry.is_listed |= entry.is_on;
        self.changed.notify_one();
    }

    /// Reads everything; how much that was.
    pub fn read(&self) -> u32 {
        std::mem::take(&mut self.entry().unread)
    }

    /// poll(2): whether there is something to read.
    pub fn poll(&self) -> bool {
        self.entry().unread > 0
    }

    /// `EPOLL_CTL_MOD`: on again, and listed again if the condition holds.
    pub fn modify(&self, token: u64) {
        let mut entry = self.entry();
        entry.token = token;
        entry.is_on = true;
        entry.is_listed |= entry.unread > 0;
        self.changed.notify_one();
    }

    /// The file is closed and another, without data, opened and registered under the same number.
    pub fn replace(&self, token: u64) {
        let mut entry = self.entry();
        entry.token = token;
        entry.is_on = true;
        entry.is_listed = false;
        entry.unread = 0;
    }

    /// Makes the current or the next wait return.
    pub fn wake(&self) {
        let mut entry = self.entry();
        entry.is_woken = true;
        entry.wakes += 1;
        self.changed.notify_one();
    }

    /// How often the wake was written.
    pub fn wakes(&self) -> u32 {
        self.entry().wakes
    }

    /// Waits for a report. What is listed is looked at once more, as the kernel does: what was consumed meanwhile is
    /// not reported.
    pub fn wait(&self) -> Report {
        let mut entry = self.entry();
        loop {
            if let Some(report) = harvest(&mut entry) {
                return report;
            }
            entry = self.changed.wait(entry).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

fn harvest(entry: &mut Entry) -> Option<Report> {
    if std::mem::take(&mut entry.is_woken) {
        return Some(Report::Woken);
    }
    if std::mem::take(&mut entry.is_listed) && entry.unread > 0 {
        entry.is_on = entry.trigger == Trigger::Edge;
        return Some(Report::Ready(entry.token));
    }
    None
}

/// The real word that says until when the watcher sleeps.
#[derive(Debug)]
pub struct Sleep(ParkedUntil);

impl Default for Sleep {
    fn default() -> Self {
        Self(ParkedUntil::new())
    }
}

impl Sleep {
    pub const FOR_EVER: u64 = ParkedUntil::FOR_EVER;

    pub fn park(&self, deadline_ns: u64) {
        self.0.park(deadline_ns);
    }

    pub fn unpark(&self) {
        self.0.unpark();
    }

    pub fn claim(&self, due_ns: u64) -> bool {
        self.0.claim(due_ns)
    }
}

/// What waits in a port: numbers of rows, oldest first.
pub type Queue = Vec<usize>;

/// A port: a queue under a lock, the count of what is in it, the real parked flag, and a futex to park on.
#[derive(Debug)]
pub struct Port {
    queue: Mutex<Queue>,
    waiting: AtomicU32,
    parked: Parked,
    bucket: Mutex<u32>,
    woken: Condvar,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            queue: Mutex::new(Queue::new()),
            waiting: AtomicU32::new(0),
            parked: Parked::new(),
            bucket: Mutex::new(0),
            woken: Condvar::new(),
        }
    }
}

impl Port {
    pub fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn raise(&self) {
        self.parked.raise();
    }

    pub fn lower(&self) {
        self.parked.lower();
    }

    pub fn take_flag(&self) -> bool {
        self.parked.take() != Sleeper::Nobody
    }

    /// As `PortQueue::looks_ready`: without the lock.
    pub fn looks_ready(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// As `PortQueue::publish_counts`: under the lock.
    pub fn publish_count(&self, queue: &Queue) {
        self.waiting.store(u32::try_from(queue.len()).unwrap_or(u32::MAX), Ordering::Release);
    }

    /// As `PortQueue::requeue`: the waiter puts a row back that it came back for.
    pub fn requeue(&self, number: usize) {
        let mut queue = self.lock();
        if !queue.contains(&number) {
            queue.push(number);
        }
        self.publish_count(&queue);
    }

    /// futex(2): sleeps while the flag is raised; the kernel compares and goes to sleep in one step.
    pub fn park(&self) {
        let mut bucket = self.bucket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while self.parked.is_raised() {
            bucket = self.woken.wait(bucket).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// futex(2): wakes whoever sleeps.
    pub fn unpark(&self) {
        *self.bucket.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
        self.woken.notify_one();
    }

    /// How often somebody was woken.
    pub fn wakes(&self) -> u32 {
        *self.bucket.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As `PortQueue::post`: puts the row into the queue if the reference still means something, and wakes once.
    pub fn post(&self, row: &Row, number: usize, generation: u32) {
        let mut queue = self.lock();
        if row.is_queued_by(generation) && !queue.contains(&number) {
            queue.push(number);
        }
        self.finish_post(queue);
    }

    /// The second half of `post`: writes the count and then takes the flag, under the lock; wakes after it.
    pub fn finish_post(&self, queue: MutexGuard<'_, Queue>) {
        self.publish_count(&queue);
        let wake = !queue.is_empty() && self.take_flag();
        drop(queue);
        if wake {
            self.unpark();
        }
    }

    /// As `PortQueue::take` for one row: hands out the oldest.
    pub fn hand_out(&self, rows: &[Row]) -> Handed {
        let mut queue = self.lock();
        while !queue.is_empty() {
            let number = queue.remove(0);
            let row = &rows[number];
            let generation = row.generation();
            let handed = row.take(generation);
            if row.is_queued_by(generation) {
                queue.push(number);
            }
            self.publish_count(&queue);
            if handed != Handed::Nothing {
                return handed;
            }
        }
        Handed::Nothing
    }

    /// As `Port::wait`: hands out one event, parking until there is one.
    pub fn wait(&self, rows: &[Row]) -> Handed {
        loop {
            let handed = self.hand_out(rows);
            if handed != Handed::Nothing {
                return handed;
            }
            self.parked.raise();
            if !self.looks_ready() {
                self.park();
            }
            self.parked.lower();
        }
    }

    /// As `PortQueue::release`: takes a row out of the queue.
    pub fn withdraw(&self, number: usize) {
        let mut queue = self.lock();
        queue.retain(|&queued| queued != number);
        self.publish_count(&queue);
    }
}
