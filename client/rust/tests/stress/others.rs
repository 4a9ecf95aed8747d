//! The random steps that meet other threads: watches on their numbers, watches on their ports, wakes; and timers.

use std::sync::Arc;
use std::time::Duration;

use handle_watcher_client::{Code, Deadline, Signals, WatchOptions};

use super::actor::{Actor, Step};
use super::ledger::{Timer, Watch};
use super::sys;
use super::world::Gift;

const MOST_TIMERS: usize = 24;
const MOST_PERIODIC: usize = 3;
const MOST_GIFTS: usize = 8;
const MOST_FOREIGN: usize = 8;

impl Actor {
    fn any_other(&mut self) -> usize {
        let threads = self.world.doors.len();
        (self.me + 1 + self.random.index(threads - 1)) % threads
    }

    /// Watches a number of another thread, which may close or replace it at any time.
    pub(crate) fn watch_others_number(&mut self) -> Step {
        if self.watches.values().filter(|watch| watch.is_foreign()).count() >= MOST_FOREIGN {
            return Ok(());
        }
        let (other, seat) = (self.any_other(), self.any_seat());
        let number = self.world.number(other, seat);
        let (wished, mode, token) = (self.any_signals(), self.any_mode(), self.world.next_token());
        let closes = self.world.closes(number);
        self.note(format!("watch {number} of thread {other} for {wished}, {mode:?}, token {token}"));
        let made = self.client().watch_number(number, WatchOptions::new(wished, mode, token));
        let Some(id) = self.check("watch", made, &[Code::InvalidArgument])? else { return Ok(()) };
        let mut watch = Watch::new(token, mode, wished, number, None);
        watch.made(self.step, Signals::empty(), None);
        watch.lose_sight();
        // Closed meanwhile: which file it is of is not known.
        watch.closes = if self.world.closes(number) == closes { closes } else { closes | 1 };
        self.watches.insert(id, watch);
        self.note(format!("  made {id}"));
        Ok(())
    }

    /// Makes a watch about a number of this thread on the port of another.
    pub(crate) fn make_gift(&mut self) -> Step {
        if self.given.len() >= MOST_GIFTS {
            return self.use_gift();
        }
        let (other, seat) = (self.any_other(), self.any_seat());
        if self.seats[seat].file.is_none() {
            return Ok(());
        }
        let number = self.seats[seat].number;
        let (wished, mode, token) = (self.any_signals(), self.any_mode(), self.world.next_token());
        self.note(format!("watch {number} for thread {other}, {wished}, {mode:?}, token {token}"));
        let world = Arc::clone(&self.world);
        let mut door = world.door(other);
        let Some(control) = door.control.clone() else { return Ok(()) };
        let made = control.watch_number(number, WatchOptions::new(wished, mode, token));
        let has_come_back = self.seats[seat].file.as_ref().is_some_and(|file| file.has_come_back);
        let refusals: &[Code] = if has_come_back { &[Code::InvalidArgument] } else { &[] };
        if let Some(id) = self.check("watch", made, refusals)? {
            let gift = Gift {
                token,
                giver: self.me,
                wished,
                changed_at: 0,
                number,
                closes: world.closes(number),
                dead_at: None,
                is_ending: false,
            };
            door.gifts.insert(id, gift);
            self.given.push((other, id));
            self.note(format!("  made {id}"));
        }
        Ok(())
    }

    /// Does something to a watch on another's port, while that may be handing out an event of it.
    pub(crate) fn use_gift(&mut self) -> Step {
        if self.given.is_empty() {
            return Ok(());
        }
        let at = self.random.index(self.given.len());
        let (other, id) = self.given[at];
        let world = Arc::clone(&self.world);
        let mut door = world.door(other);
        let control = door.control.clone();
        let (Some(control), Some(gift)) = (control, door.gifts.get_mut(&id)) else {
            // It has ended, or its client was replaced.
            self.given.swap_remove(at);
            return Ok(());
        };
        if gift.giver != self.me {
            return Err(format!("C3i: {id} was given out twice: {gift:?}").into());
        }
        let choice = self.random.below(10);
        let may_be_gone = gift.is_ending || world.may_be_gone(gift.number, gift.closes);
        let wished = match choice {
            0..2 => Signals::empty(),
            _ => self.any_signals(),
        };
        let (call, result) = match choice {
            0..4 => ("change", control.change(id, wished)),
            4..7 => ("arm", control.arm(id)),
            _ => ("unwatch", control.unwatch(id)),
        };
        self.note(format!("{call} {id} of thread {other}, {wished}"));
        let refusals: &[Code] = match (gift.wished.is_empty(), may_be_gone) {
            (true, _) => &[Code::FailedPrecondition, Code::NotFound],
            (false, true) => &[Code::NotFound],
            (false, false) => &[],
        };
        let is_gone = result.as_ref().is_err_and(|status| status.code() == Code::NotFound);
        let is_done = self.check(call, result, refusals)?.is_some();
        gift.is_ending |= is_gone;
        if is_done && call == "change" {
            gift.wished = wished;
            gift.changed_at = world.tick();
        }
        if is_done && call == "unwatch" {
            gift.dead_at = Some(world.tick());
            self.given.swap_remove(at);
            let again = control.arm(id);
            if again.as_ref().map_or_else(handle_watcher_client::Status::code, |()| Code::Ok)
                != Code::NotFound
            {
                return Err(format!("C3i: arm of the dead {id} said {again:?}").into());
            }
        }
        Ok(())
    }

    pub(crate) fn wake(&mut self) -> Step {
        let target = if self.random.chance(50) { self.me } else { self.any_other() };
        self.note(format!("wake thread {target}"));
        let world = Arc::clone(&self.world);
        let mut door = world.door(target);
        let Some(control) = door.control.clone() else { return Ok(()) };
        door.wakes += 1;
        let woken = control.wake();
        if self.check("wake", woken, &[])?.is_none() {
            door.wakes -= 1;
        } else if target == self.me {
            self.owes_wake = true;
        }
        Ok(())
    }

    pub(crate) fn set_timer(&mut self) -> Step {
        if self.timers.len() >= MOST_TIMERS {
            return self.cancel_timer();
        }
        let token = self.world.next_token();
        let periodic = self.timers.values().filter(|timer| timer.period_ns.is_some()).count();
        let deadline = match self.random.below(10) {
            0 => Deadline::at_ns(self.random.below(1000)),
            1 => Deadline::FARTHEST,
            2 => Deadline::after(Duration::from_secs(3600)),
            _ => Deadline::after(Duration::from_micros(self.random.below(3000))),
        };
        let is_periodic =
            self.world.habits.has_periodic && periodic < MOST_PERIODIC && self.random.chance(20);
        let (period_ns, set) = if is_periodic {
            // From now on, so that a first one in the past does not bring along all that came since.
            let period = Duration::from_micros(200 + self.random.below(2000));
            let first = Deadline::after(Duration::from_micros(self.random.below(1000)));
            self.note(format!("set a timer at {first:?} every {period:?}, token {token}"));
            let set = self.client().set_periodic(first, period, token);
            (Some((first, period)), set)
        } else {
            self.note(format!("set a timer at {deadline:?}, token {token}"));
            (None, self.client().set_timer(deadline, token))
        };
        let Some(id) = self.check("set_timer", set, &[])? else { return Ok(()) };
        let timer = match period_ns {
            Some((first, period)) => Timer {
                token,
                first_ns: first.as_ns(),
                period_ns: u64::try_from(period.as_nanos()).ok(),
                told: 0,
            },
            None => Timer { token, first_ns: deadline.as_ns(), period_ns: None, told: 0 },
        };
        if self.timers.insert(id, timer).is_some() {
            return Err(format!("C3i: {id} was given out twice").into());
        }
        self.note(format!("  made {id}"));
        Ok(())
    }

    pub(crate) fn cancel_timer(&mut self) -> Step {
        if self.timers.is_empty() {
            return Ok(());
        }
        let at = self.random.index(self.timers.len());
        let id = *self.timers.keys().nth(at).expect("an index below the length");
        self.note(format!("cancel {id} at {}", sys::now_ns()));
        if let Err(status) = self.client().cancel_timer(id) {
            return Err(
                format!("C10e: cancel of {id} was refused: {status}\nof {:?}", self.timers[&id]).into()
            );
        }
        self.timers.remove(&id);
        self.dead_timers.push_back(id);
        if self.dead_timers.len() > 64 {
            self.dead_timers.pop_front();
        }
        let dead = self.dead_timers[self.random.index(self.dead_timers.len())];
        match self.client().cancel_timer(dead) {
            Err(status) if status.code() == Code::NotFound => Ok(()),
            other => Err(format!("C10e: cancel of the dead {dead} said {other:?}").into()),
        }
    }
}
