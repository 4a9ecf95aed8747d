//! One thread of the stress: it does random things with one client and the files of its own numbers, keeps the books, and
//! complains about everything that the books do not explain.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use handle_watcher_client::{
    Client, ClientConfig, Code, Event, EventKind, Events, FrontPolicy, HandleId, Signals, TimerId, WatchId,
};

use super::file::{self, File, Kind};
use super::ledger::{Complaint, Sight, Timer, Watch};
use super::random::Random;
use super::sys;
use super::world::{SEATS, World};

/// How many of the last steps a complaint tells of.
const LOG_STEPS: usize = 600;

/// What ends an action early.
pub(crate) enum Trouble {
    Complaint(Complaint),
    /// The watcher has stopped, and everything was handed out.
    Stopped,
}

impl From<Complaint> for Trouble {
    fn from(complaint: Complaint) -> Self {
        Self::Complaint(complaint)
    }
}

pub(crate) type Step<T = ()> = Result<T, Trouble>;

/// One of the thread's own numbers.
pub(crate) struct Seat {
    pub(crate) number: i32,
    pub(crate) file: Option<File>,
    /// The file was given to the client.
    pub(crate) handle: Option<HandleId>,
}

/// A file that was closed at its number and lives on in a duplicate.
pub(crate) struct Zombie {
    pub(crate) seat: usize,
    pub(crate) file: File,
    pub(crate) spare: std::os::fd::OwnedFd,
}

pub(crate) struct Actor {
    pub(crate) world: Arc<World>,
    pub(crate) me: usize,
    pub(crate) random: Random,
    pub(crate) step: u64,
    /// None only while it is replaced.
    pub(crate) client: Option<Client>,
    events: Events,
    pub(crate) seats: Vec<Seat>,
    pub(crate) zombies: Vec<Zombie>,
    pub(crate) files: u64,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
    pub(crate) timers: BTreeMap<TimerId, Timer>,
    pub(crate) dead_watches: VecDeque<WatchId>,
    pub(crate) dead_timers: VecDeque<TimerId>,
    /// Watches that this thread made on others' ports.
    pub(crate) given: Vec<(usize, WatchId)>,
    /// Watches that others made on this port, and that must be told.
    owed_gifts: BTreeSet<WatchId>,
    wakes_told: u64,
    /// A wake of this thread's own was not told yet.
    pub(crate) owes_wake: bool,
    /// The client is waited for as a foreign loop does, at its descriptor.
    pub(crate) is_polled: bool,
    /// How often it has rested.
    rests: usize,
    /// The stop may come at any time.
    is_last: bool,
    /// Nobody acts; what holds of other threads' numbers stays.
    pub(crate) is_resting: bool,
    /// The step from which on events are no longer written down.
    quiet_after: u64,
    log: VecDeque<(u64, String)>,
}

impl Actor {
    pub(crate) fn new(world: Arc<World>, me: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let seats = (0..SEATS).map(|seat| Seat { number: world.number(me, seat), file: None, handle: None });
        let seats = seats.collect();
        let events = Events::with_capacity(1 + random.index(16));
        Self {
            world,
            me,
            random,
            step: 1,
            client: None,
            events,
            seats,
            zombies: Vec::new(),
            files: 0,
            watches: BTreeMap::new(),
            timers: BTreeMap::new(),
            dead_watches: VecDeque::new(),
            dead_timers: VecDeque::new(),
            given: Vec::new(),
            owed_gifts: BTreeSet::new(),
            wakes_told: 0,
            owes_wake: false,
            is_polled: false,
            rests: 0,
            is_last: false,
            is_resting: false,
            quiet_after: u64::MAX,
            log: VecDeque::new(),
        }
    }

    /// Plays its part of one life: rounds of random steps with a rest after each, then random steps until the watcher
    /// is stopped under it. The first thing that is wrong becomes the failure of the world.
    pub(crate) fn run(mut self, rounds: u64, steps: u64) {
        let played = self.play(rounds, steps);
        let ended = match played {
            Err(Trouble::Stopped) => self.end(),
            other => other,
        };
        if let Err(Trouble::Complaint(complaint)) = ended {
            let log: Vec<String> = self.log.iter().map(|(step, what)| format!("{step} {what}")).collect();
            let watches: Vec<String> =
                self.watches.iter().map(|(id, watch)| format!("{id}: {watch:?}")).collect();
            self.world.failure.set(format!(
                "{complaint}\nthread {} at step {}; its last steps:\n  {}\nits watches:\n  {}",
                self.me,
                self.step,
                log.join("\n  "),
                watches.join("\n  ")
            ));
        }
        self.leave();
        self.world.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn play(&mut self, rounds: u64, steps: u64) -> Step {
        self.attach()?;
        for _ in 0..rounds {
            for _ in 0..steps {
                self.act_once()?;
            }
            self.rest()?;
        }
        self.world.progress[self.me].fetch_or(1 << 63, Ordering::SeqCst);
        self.is_last = true;
        while !self.world.has_stopped() {
            self.act_once()?;
        }
        // What was told is handed out, then that it is over.
        while self.take(Some(self.world.habits.patience))? > 0 {}
        Err("C14a: the stop has returned, and a wait goes on".to_owned().into())
    }

    pub(crate) fn act_once(&mut self) -> Step {
        if self.world.failure.is_set() {
            return Err(Trouble::Complaint("another thread has failed".to_owned()));
        }
        self.world.progress[self.me].fetch_add(1, Ordering::Relaxed);
        self.step += 1;
        // The stop is to meet somebody who is making a watch.
        if self.is_last && self.random.chance(50) { self.make_watch() } else { self.act() }
    }

    /// Everybody stops acting: what is owed must be told, and the watcher's count of watches is the sum of ours.
    fn rest(&mut self) -> Step {
        self.meet()?;
        self.is_resting = true;
        self.look_at_others()?;
        self.settle()?;
        self.compare_descriptor()?;
        let door = self.world.door(self.me);
        let (gifts, wakes) = (door.gifts.values().filter(|gift| gift.dead_at.is_none()).count(), door.wakes);
        drop(door);
        if wakes != self.wakes_told {
            return Err(format!("C9e: {wakes} wakes, {} told", self.wakes_told).into());
        }
        let own = self.watches.len() + gifts;
        self.world.watches[self.me].store(own as u64, Ordering::SeqCst);
        self.meet()?;
        if self.me == 0 {
            let ours: u64 = self.world.watches.iter().map(|count| count.load(Ordering::SeqCst)).sum();
            let theirs = self.world.watcher.stats().watches;
            if ours != theirs {
                return Err(format!("the watcher has {theirs} watches, the clients know of {ours}").into());
            }
        }
        self.meet()?;
        self.is_resting = false;
        for watch in self.watches.values_mut().filter(|watch| watch.is_foreign()) {
            watch.lose_sight();
        }
        self.rests += 1;
        if self.rests % self.world.doors.len() == self.me {
            self.act_alone()?;
        }
        self.meet()
    }

    fn meet(&self) -> Step {
        if self.world.meet() { Ok(()) } else { Err("another thread has failed".to_owned().into()) }
    }

    /// The watcher was stopped: every live watch has been told.
    fn end(&mut self) -> Step {
        if let Some(watch) = self.watches.values().next() {
            return Err(format!("C14a: not told of the stop: {watch:?}").into());
        }
        let door = self.world.door(self.me);
        match door.gifts.values().find(|gift| gift.dead_at.is_none()) {
            Some(gift) => Err(format!("C14a: not told of the stop: {gift:?}").into()),
            None => Ok(()),
        }
    }

    /// Closes everything.
    fn leave(&mut self) {
        self.world.door(self.me).control = None;
        for seat in &mut self.seats {
            self.world.count_close(seat.number);
            if seat.file.take().is_some() && seat.handle.is_none() {
                sys::close_at(seat.number);
            }
        }
        self.client = None;
        self.zombies.clear();
        for seat in &self.seats {
            self.world.count_close(seat.number);
        }
    }

    pub(crate) fn attach(&mut self) -> Step {
        let spin = Duration::from_micros(if self.random.chance(10) { 20 } else { 0 });
        let front = self.random.pick(&[FrontPolicy::Off, FrontPolicy::Adaptive, FrontPolicy::Always]);
        self.is_polled = self.random.chance(25);
        self.note(format!("attach, front {front:?}, spin {spin:?}, polled {}", self.is_polled));
        match Client::attach_with(&self.world.watcher, ClientConfig { spin, front }) {
            Ok(client) => {
                let mut door = self.world.door(self.me);
                door.control = Some(client.control().clone());
                door.wakes = 0;
                drop(door);
                self.client = Some(client);
                Ok(())
            }
            Err(status) if status.code() == Code::Unavailable && self.world.is_stopping() => {
                Err(Trouble::Stopped)
            }
            Err(status) => Err(format!("a client was refused: {status}").into()),
        }
    }

    /// Drops the client and makes a new one. What it was given is closed with it.
    pub(crate) fn replace_client(&mut self) -> Step {
        self.note("replace the client");
        let world = Arc::clone(&self.world);
        let mut door = world.door(self.me);
        let given: Vec<usize> = (0..SEATS).filter(|&seat| self.seats[seat].handle.is_some()).collect();
        for &seat in &given {
            world.count_close(self.seats[seat].number);
        }
        self.client = None;
        for &seat in &given {
            let seat = &mut self.seats[seat];
            (seat.file, seat.handle) = (None, None);
            world.count_close(seat.number);
        }
        self.dead_watches.extend(self.watches.keys());
        self.dead_timers.extend(self.timers.keys());
        self.watches.clear();
        self.timers.clear();
        self.wakes_told = 0;
        self.owes_wake = false;
        self.owed_gifts.clear();
        door.gifts.clear();
        door.control = None;
        drop(door);
        self.attach()
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("an actor that acts has a client")
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.log.len() == LOG_STEPS {
            self.log.pop_front();
        }
        self.log.push_back((self.step, what));
    }

    /// The value of a call, or nothing if it was refused for one of the reasons in `allowed`, or because of the stop.
    pub(crate) fn check<T>(
        &mut self,
        call: &str,
        result: handle_watcher_client::Result<T>,
        allowed: &[Code],
    ) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(status) => {
                self.note(format!("  {call} said {}", status.code()));
                let by_stop = matches!(status.code(), Code::Unavailable | Code::NotFound | Code::Aborted);
                if allowed.contains(&status.code()) || (by_stop && self.world.is_stopping()) {
                    Ok(None)
                } else {
                    Err(format!("{call} was refused: {status}").into())
                }
            }
        }
    }

    /// Takes events and looks at each. Gives how many there were.
    pub(crate) fn take(&mut self, timeout: Option<Duration>) -> Step<usize> {
        let drained_at = self.world.tick();
        let client = self.client.as_mut().expect("an actor that acts has a client");
        let taken = match timeout {
            None => client.drain(&mut self.events),
            Some(timeout) => client.wait(&mut self.events, Some(timeout)),
        };
        match taken {
            Ok(_) => {}
            Err(status) if status.code() == Code::Unavailable && self.world.is_stopping() => {
                return Err(Trouble::Stopped);
            }
            Err(status) => return Err(format!("a wait was refused: {status}").into()),
        }
        let events = self.events.clone();
        if self.step < self.quiet_after && !events.is_empty() {
            self.note(format!("  take {timeout:?}"));
        }
        for event in &events {
            // Level watches that hold come again and again while something else is waited for.
            if self.step < self.quiet_after {
                let Event { kind, satisfied, watch, status, .. } = event;
                self.note(format!("  told {kind:?} {satisfied} of {watch} ({status:?})"));
            }
            self.told(event, drained_at)?;
        }
        Ok(events.len())
    }

    fn told(&mut self, event: &Event, drained_at: u64) -> Step {
        let now_ns = sys::now_ns();
        if event.kind == EventKind::Wake {
            self.wakes_told += u64::from(event.count);
            self.owes_wake = false;
            let wakes = self.world.door(self.me).wakes;
            let is_true = event.count > 0 && self.wakes_told <= wakes;
            let complaint = || format!("C9e: {wakes} wakes, {} told: {event:?}", self.wakes_told);
            return if is_true { Ok(()) } else { Err(complaint().into()) };
        }
        if let Some(id) = event.timer() {
            let complaint = || format!("C10e: an event of a timer that is not set: {event:?}");
            let timer = self.timers.get_mut(&id).ok_or_else(complaint)?;
            timer.told(event, now_ns).map_err(|complaint| format!("{complaint}\nof {timer:?}"))?;
            if timer.period_ns.is_none() {
                self.timers.remove(&id);
                self.dead_timers.push_back(id);
            }
            return Ok(());
        }
        let Some(watch) = self.watches.get_mut(&event.watch) else {
            return self.told_of_gift(event, drained_at);
        };
        let seat = self.seats.iter().find(|seat| seat.number == watch.number);
        let file = seat.and_then(|seat| seat.file.as_ref()).filter(|file| Some(file.id) == watch.file);
        let sight = file.map(|file| Sight {
            holds: file::holds(watch.number, Signals::all()),
            read_at: file.read_at,
            written_at: file.written_at,
            keeps_errors: file.kind == Kind::PipeWriter,
            is_stopping: self.world.is_stopping(),
        });
        watch.told_at = self.step;
        watch.told(event, sight, now_ns).map_err(|complaint| format!("{complaint}\nof {watch:?}"))?;
        if event.kind == EventKind::Ended {
            if watch.is_foreign()
                && matches!(event.status, Code::NotFound | Code::Cancelled)
                && !self.world.may_be_gone(watch.number, watch.closes)
            {
                return Err(format!("C5c: its number was never closed: {event:?} of {watch:?}").into());
            }
            self.check_aborted(event)?;
            self.watches.remove(&event.watch);
            self.bury(event.watch);
        }
        Ok(())
    }

    fn check_aborted(&self, event: &Event) -> Step {
        if event.status == Code::Aborted && !self.world.is_stopping() {
            return Err(format!("C5c: aborted, and nobody stopped the watcher: {event:?}").into());
        }
        Ok(())
    }

    pub(crate) fn bury(&mut self, id: WatchId) {
        self.dead_watches.push_back(id);
        if self.dead_watches.len() > 64 {
            self.dead_watches.pop_front();
        }
    }

    fn told_of_gift(&mut self, event: &Event, drained_at: u64) -> Step {
        let world = Arc::clone(&self.world);
        let mut door = world.door(self.me);
        let Some(gift) = door.gifts.get_mut(&event.watch) else {
            let died = self.dead_watches.contains(&event.watch);
            let what =
                if died { "C5b: an event after the end" } else { "an event of no watch of this client" };
            return Err(format!("{what}: {event:?}").into());
        };
        if let Some(dead_at) = gift.dead_at {
            if dead_at < drained_at {
                return Err(format!("C5b: unwatch had returned before the drain began: {event:?}").into());
            }
            return Ok(());
        }
        if event.token != gift.token {
            return Err(format!("the token of another registration: {event:?} of {gift:?}").into());
        }
        self.owed_gifts.remove(&event.watch);
        match event.kind {
            EventKind::Ready => {
                let unasked = event.satisfied - (gift.wished | file::ALWAYS);
                let is_wrong = gift.wished.is_empty() || event.satisfied.is_empty() || !unasked.is_empty();
                if gift.changed_at < drained_at && is_wrong {
                    return Err(format!("C3g: not what was asked for: {event:?} of {gift:?}").into());
                }
                Ok(())
            }
            EventKind::Ended => {
                let was_closed = world.may_be_gone(gift.number, gift.closes);
                let is_right = match event.status {
                    Code::NotFound | Code::Cancelled => was_closed,
                    Code::Aborted => world.is_stopping(),
                    _ => false,
                };
                if !is_right {
                    return Err(format!("C5c: ended without that cause: {event:?} of {gift:?}").into());
                }
                door.gifts.remove(&event.watch);
                Ok(())
            }
            _ => Err(format!("it had no deadline: {event:?} of {gift:?}").into()),
        }
    }

    /// While everybody rests: arms what others may have changed the file of, so that what holds must be told.
    fn look_at_others(&mut self) -> Step {
        let foreign: Vec<WatchId> =
            self.watches.iter().filter(|(_, watch)| watch.is_foreign()).map(|(&id, _)| id).collect();
        for id in foreign {
            self.look_at(id);
            self.arm(id, None)?;
        }
        // What was unwatched before this can no longer be in an event that is still to be looked at.
        self.take(None)?;
        let world = Arc::clone(&self.world);
        let mut door = world.door(self.me);
        door.gifts.retain(|_, gift| gift.dead_at.is_none());
        for (&id, gift) in door.gifts.iter().filter(|(_, gift)| !gift.wished.is_empty()) {
            let armed = self.client().arm(id);
            let holds = !file::holds(gift.number, gift.wished).is_empty();
            let is_armed = self.check("arm", armed, &[Code::NotFound])?.is_some();
            if is_armed && world.is_gone(gift.number, gift.closes) {
                return Err(format!("C5d: arm of {id} succeeded, and its number was closed: {gift:?}").into());
            }
            if !is_armed || holds {
                self.owed_gifts.insert(id);
            }
        }
        Ok(())
    }

    /// Waits until everything that must be told has been told.
    pub(crate) fn settle(&mut self) -> Step {
        let (began, as_of_ns, since) = (Instant::now(), sys::now_ns(), self.step);
        self.note("settle");
        self.quiet_after = since + 50;
        loop {
            let Some(owed) = self.owed(as_of_ns, since) else {
                self.quiet_after = u64::MAX;
                return Ok(());
            };
            let waited = Instant::now();
            let patience = self.world.habits.patience;
            let taken = if self.is_polled { self.take_polled(patience) } else { self.take(Some(patience)) }?;
            if taken == 0 || waited.elapsed() >= self.world.habits.patience {
                let owed = self.autopsy(owed);
                return Err(format!("lost, or told only when the wait had timed out: {owed}").into());
            }
            if began.elapsed() >= self.world.habits.patience {
                let owed = self.autopsy(owed);
                return Err(format!("not told while other things were: {owed}").into());
            }
            self.step += 1;
        }
    }

    /// What can be found out about something that was not told.
    fn autopsy(&mut self, owed: String) -> String {
        let Some((&id, watch)) = self.watches.iter().find(|(id, _)| owed.starts_with(&format!("{id}:")))
        else {
            return owed;
        };
        let (number, flags) = (watch.number, sys::poll_now(watch.number));
        let entries = sys::kernel_entries(number).join(" | ");
        let armed = self.client().arm(id);
        std::thread::sleep(Duration::from_millis(100));
        let world = Arc::clone(&self.world);
        let log = self.log.len();
        self.quiet_after = u64::MAX;
        let taken = self.take(None).is_ok();
        let told: Vec<String> = self.log.iter().skip(log).map(|(_, what)| what.clone()).collect();
        let stats = world.watcher.stats();
        format!(
            "{owed}\n  holds {flags:?}; kernel entries: {entries}\n  armed again: {armed:?}, then {taken} {told:?}\n  {stats:?}"
        )
    }

    /// The first thing that must be told and was not.
    fn owed(&self, as_of_ns: u64, since: u64) -> Option<String> {
        let watch = self.watches.iter().find(|(_, watch)| {
            let file = self.file_at(watch.number);
            let holds = if watch.is_stale(file) { Signals::empty() } else { watch.holds() };
            watch.is_owed(holds, as_of_ns, since)
        });
        let timer = self.timers.iter().find(|(_, timer)| timer.due_ns() <= as_of_ns);
        let owes_wake =
            self.owes_wake || (self.is_resting && self.wakes_told < self.world.door(self.me).wakes);
        let wake = owes_wake.then(|| "a wake".to_owned());
        let gift = self.owed_gifts.first().map(|id| format!("{id}, made by another thread"));
        watch
            .map(|(id, watch)| format!("{id}: {watch:?}"))
            .or_else(|| timer.map(|(id, timer)| format!("{id}: {timer:?}")))
            .or(wake)
            .or(gift)
    }

    /// Which file is at a number of this thread.
    pub(crate) fn file_at(&self, number: i32) -> Option<u64> {
        let seat = self.seats.iter().find(|seat| seat.number == number);
        seat.and_then(|seat| seat.file.as_ref()).map(|file| file.id)
    }
}
