//! What one client may be told of one watch, and what it must be told: the contract (C3–C7), followed step by step.

use handle_watcher_client::{Code, Event, EventKind, Mode, Signals};

use super::file::{self, ALWAYS};

/// Why a call or an event was wrong.
pub(crate) type Complaint = String;

/// A watch that its client's own thread made.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) token: u64,
    pub(crate) mode: Mode,
    /// Empty while it is paused.
    pub(crate) wished: Signals,
    /// What a pause set aside.
    remembered: Signals,
    pub(crate) number: i32,
    /// Which open file it is about; none for a number of another thread, of which nothing more is known.
    pub(crate) file: Option<u64>,
    /// Once: how many Readys may still come.
    credit: u32,
    /// It is armed, or what disarmed it is undelivered: what holds must be told.
    is_sure: bool,
    /// A Deadline was told and nobody armed it since.
    is_disarmed: bool,
    /// A new readiness that was not told yet.
    owed: Signals,
    deadline_ns: Option<u64>,
    /// A deadline passed before the last arm; its event may still wait.
    old_deadline: bool,
    /// The owner's step at which it was last made, armed, changed or resumed.
    since: u64,
    /// Its number was closed behind its back at some time, so that NOT_FOUND may end it.
    pub(crate) may_be_gone: bool,
    /// For a number of another thread: how often that had been closed when the watch was made; odd if it was being
    /// closed just then.
    pub(crate) closes: u64,
    /// For a number of another thread: how often that had been closed when it was last seen to be gone for certain.
    pub(crate) gone_at: Option<u64>,
    /// The step at which something was last told of it.
    pub(crate) told_at: u64,
    /// It has ended, and this must be told.
    pub(crate) ending: Option<Code>,
}

/// What the owner knows of the file of a watch when an event of it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// What holds now.
    pub(crate) holds: Signals,
    pub(crate) read_at: u64,
    pub(crate) written_at: u64,
    /// An error stays until the file is closed.
    pub(crate) keeps_errors: bool,
    /// The watcher is being stopped, which ends every watch.
    pub(crate) is_stopping: bool,
}

impl Watch {
    pub(crate) fn new(token: u64, mode: Mode, wished: Signals, number: i32, file: Option<u64>) -> Self {
        Self {
            token,
            mode,
            wished,
            remembered: Signals::empty(),
            number,
            file,
            credit: 0,
            is_sure: false,
            is_disarmed: false,
            owed: Signals::empty(),
            deadline_ns: None,
            old_deadline: false,
            since: 0,
            may_be_gone: false,
            closes: 0,
            gone_at: None,
            told_at: 0,
            ending: None,
        }
    }

    /// It is about a number of another thread.
    pub(crate) fn is_foreign(&self) -> bool {
        self.file.is_none()
    }

    /// From here on nothing is known of what holds for it.
    pub(crate) fn lose_sight(&mut self) {
        self.is_sure = false;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.wished.is_empty()
    }

    pub(crate) fn can_resume(&self) -> bool {
        !self.remembered.is_empty()
    }

    /// It was made, at `step`; `holds` is what held then.
    pub(crate) fn made(&mut self, step: u64, holds: Signals, deadline_ns: Option<u64>) {
        self.deadline_ns = deadline_ns;
        self.since = step;
        if !self.is_paused() {
            self.armed_anew(holds);
        }
    }

    fn armed_anew(&mut self, holds: Signals) {
        self.credit = 1;
        self.is_sure = true;
        self.is_disarmed = false;
        self.owed = holds;
    }

    /// `arm` or `arm_until` succeeded.
    pub(crate) fn armed(&mut self, step: u64, holds: Signals, deadline_ns: Option<u64>, now_ns: u64) {
        if self.is_disarmed || (self.mode == Mode::Once && self.credit == 0) {
            // Nothing of it is undelivered, so what is told from here on was seen from here on.
            self.since = step;
        }
        // One may be undelivered, and one more may come.
        self.credit = (self.credit + 1).min(2);
        self.old_deadline |= self.deadline_ns.is_some_and(|deadline| deadline <= now_ns);
        self.deadline_ns = deadline_ns;
        self.is_sure = true;
        self.is_disarmed = false;
        self.owed = holds;
    }

    /// `change` succeeded; `now_ns` is a time after it. `holds` is about the new wishes.
    pub(crate) fn changed(&mut self, step: u64, wished: Signals, holds: Signals, now_ns: u64) {
        let was_paused = self.is_paused();
        if wished.is_empty() {
            if !was_paused {
                self.remembered = self.wished;
            }
            self.deadline_ns = None;
            self.old_deadline = false;
        }
        self.wished = wished;
        if self.deadline_ns.is_some_and(|deadline| deadline <= now_ns) {
            // It may have been withdrawn, or may come yet.
            self.deadline_ns = None;
            self.old_deadline = true;
        }
        self.since = step;
        self.owed = Signals::empty();
        if wished.is_empty() {
            self.credit = 0;
            self.is_sure = false;
        } else if was_paused || self.is_sure {
            self.armed_anew(holds);
        } else {
            // What it had told was delivered, or it is armed: either way at most one more comes.
            self.credit = self.credit.min(1);
        }
    }

    /// `resume` succeeded.
    pub(crate) fn resumed(&mut self, step: u64) {
        if self.is_paused() {
            let holds = file::holds(self.number, self.remembered);
            self.changed(step, self.remembered, holds, 0);
        }
    }

    /// Its number was closed behind its back. Even if its file comes back there, what came to hold before may have been
    /// looked for in vain, in the file that was there meanwhile.
    pub(crate) fn lose_file(&mut self) {
        self.may_be_gone = true;
        self.is_sure = false;
        self.owed = Signals::empty();
    }

    /// Something new came to hold of its file.
    pub(crate) fn came_to_hold(&mut self, signals: Signals) {
        if !self.is_paused() && !self.is_disarmed {
            self.owed |= signals & (self.wished | ALWAYS);
        }
    }

    /// What no longer holds need not be told.
    pub(crate) fn still_holds(&mut self, signals: Signals) {
        self.owed &= signals;
    }

    /// Whether something must be told of it. `holds` is what holds of its file for its wishes.
    ///
    /// A Level watch that was told at `since` or later has been told enough.
    pub(crate) fn is_owed(&self, holds: Signals, as_of_ns: u64, since: u64) -> bool {
        if self.ending.is_some() {
            return true;
        }
        if self.is_paused() || !self.is_sure {
            return false;
        }
        if self.deadline_ns.is_some_and(|deadline| deadline <= as_of_ns) {
            return true;
        }
        match self.mode {
            Mode::Once => !holds.is_empty(),
            Mode::Edge => !self.owed.is_empty(),
            Mode::Level => !self.owed.is_empty() || (holds.intersects(self.wished) && self.told_at < since),
        }
    }

    /// An event of it came. `sight` is what is known of its file, if that is still the one at its number.
    pub(crate) fn told(&mut self, event: &Event, sight: Option<Sight>, now_ns: u64) -> Result<(), Complaint> {
        if event.token != self.token {
            return Err(format!("the token of another registration: {event:?}"));
        }
        if event.count != 1 || !event.satisfiable.contains(event.satisfied) {
            return Err(format!("a malformed event: {event:?}"));
        }
        match event.kind {
            EventKind::Ready => self.told_ready(event.satisfied),
            EventKind::Deadline => self.told_deadline(now_ns),
            EventKind::Ended => return self.check_end(event.status),
            other => return Err(format!("a watch cannot tell {other:?}")),
        }?;
        if event.status != Code::Ok {
            return Err(format!("{:?} with a status: {event:?}", event.kind));
        }
        // The last Ready of one that has ended is told as it was: its number may mean another file by now.
        let may_have_ended = self.may_be_gone || self.ending.is_some();
        let is_fresh = self.mode == Mode::Level && event.kind == EventKind::Ready && !may_have_ended;
        self.check_signals(event.satisfied, sight, is_fresh)
    }

    fn told_ready(&mut self, satisfied: Signals) -> Result<(), Complaint> {
        if satisfied.is_empty() {
            return Err("C4: Ready of nothing".to_owned());
        }
        if self.is_disarmed {
            return Err("C10g: Ready after a Deadline, without an arm between".to_owned());
        }
        if self.mode == Mode::Once {
            if self.credit == 0 {
                return Err("C3b: a Once watch told more often than it was armed".to_owned());
            }
            self.credit -= 1;
            self.is_sure = false;
        }
        self.owed -= satisfied;
        Ok(())
    }

    fn told_deadline(&mut self, now_ns: u64) -> Result<(), Complaint> {
        let is_due = self.deadline_ns.is_some_and(|deadline| deadline <= now_ns);
        if !is_due && !self.old_deadline {
            return Err(format!("a Deadline that was not set, is early, or was told before; now {now_ns}"));
        }
        self.is_sure = false;
        if self.old_deadline {
            // Which of the two it was cannot be told from outside.
            self.old_deadline = false;
        } else {
            self.deadline_ns = None;
            self.is_disarmed = true;
            self.credit = 0;
        }
        self.owed = Signals::empty();
        Ok(())
    }

    /// `is_fresh`: it was looked at just now (C3d), so whatever it was told of must hold.
    fn check_signals(
        &self,
        satisfied: Signals,
        sight: Option<Sight>,
        is_fresh: bool,
    ) -> Result<(), Complaint> {
        if self.is_paused() {
            return Err("C3h: an event of a paused watch".to_owned());
        }
        let unasked = satisfied - (self.wished | ALWAYS);
        if !unasked.is_empty() {
            return Err(format!("C2d, C3g: told {unasked}, which was not asked for"));
        }
        let Some(sight) = sight else { return Ok(()) };
        // Nothing took it away since the kernel was last asked, so it must still hold; else it was never true of this
        // file, and the event was another's.
        let mut lasting = Signals::PEER_CLOSED;
        lasting.set(Signals::READABLE, sight.read_at < self.since);
        lasting.set(Signals::WRITABLE, sight.written_at < self.since);
        lasting.set(Signals::ERROR, sight.keeps_errors);
        if is_fresh && !sight.is_stopping {
            lasting = Signals::all();
        }
        let untrue = (satisfied & lasting) - sight.holds;
        if !untrue.is_empty() {
            return Err(format!(
                "C3d, C7c: told {untrue}, which never held of its file since; holds {}",
                sight.holds
            ));
        }
        Ok(())
    }

    fn check_end(&self, status: Code) -> Result<(), Complaint> {
        let may_be_gone = status == Code::NotFound && self.may_be_gone;
        let may_be_closed = self.is_foreign() && matches!(status, Code::NotFound | Code::Cancelled);
        let is_expected = self.ending == Some(status) || status == Code::Aborted;
        let is_right = is_expected || may_be_gone || may_be_closed;
        if is_right { Ok(()) } else { Err(format!("C5c: ended with {status:?} without that cause")) }
    }

    /// Whether an operation that looks at the kernel's entry may succeed, given the file that is at its number now.
    pub(crate) fn is_stale(&self, file_now: Option<u64>) -> bool {
        self.file.is_some_and(|file| Some(file) != file_now)
    }

    /// What holds for it at its number.
    pub(crate) fn holds(&self) -> Signals {
        file::holds(self.number, self.wished)
    }
}

/// A timer.
#[derive(Clone, Debug)]
pub(crate) struct Timer {
    pub(crate) token: u64,
    pub(crate) first_ns: u64,
    /// None for a one-shot.
    pub(crate) period_ns: Option<u64>,
    /// How many periods were told.
    pub(crate) told: u64,
}

impl Timer {
    /// When it is due next.
    pub(crate) fn due_ns(&self) -> u64 {
        self.first_ns.saturating_add(self.told.saturating_mul(self.period_ns.unwrap_or(0)))
    }

    pub(crate) fn told(&mut self, event: &Event, now_ns: u64) -> Result<(), Complaint> {
        if event.token != self.token || event.count == 0 || event.status != Code::Ok {
            return Err(format!("a malformed event of a timer: {event:?}"));
        }
        if self.period_ns.is_none() && event.count != 1 {
            return Err(format!("C10a: a one-shot timer told {} times", event.count));
        }
        self.told += u64::from(event.count);
        let last_ns =
            self.first_ns.saturating_add((self.told - 1).saturating_mul(self.period_ns.unwrap_or(0)));
        if last_ns > now_ns {
            return Err(format!("C10b: early by {} ns", last_ns - now_ns));
        }
        Ok(())
    }
}
