//! The random steps: watches of this thread's own client.

use std::os::fd::IntoRawFd;
use std::time::Duration;

use handle_watcher_client::{Code, Deadline, Signals, WatchId, WatchOptions};

use super::actor::{Actor, Step};
use super::file;
use super::ledger::Watch;
use super::sys;

const MOST_WATCHES: usize = 48;

impl Actor {
    fn any_watch(&mut self) -> Option<WatchId> {
        if self.watches.is_empty() {
            return None;
        }
        let at = self.random.index(self.watches.len());
        let id = *self.watches.keys().nth(at).expect("an index below the length");
        self.look_at(id);
        Some(id)
    }

    /// Before something is done to a watch of another's number: notes whether that number is for certain no longer what
    /// it was.
    pub(crate) fn look_at(&mut self, id: WatchId) {
        let watch = self.watches.get_mut(&id).expect("a watch of this client");
        let closes = self.world.closes(watch.number);
        let is_gone = watch.is_foreign() && self.world.is_gone(watch.number, watch.closes);
        watch.gone_at = is_gone.then_some(closes);
    }

    fn any_deadline(&mut self, percent: u64) -> Option<Deadline> {
        self.random.chance(percent).then(|| Deadline::after(Duration::from_micros(self.random.below(3000))))
    }

    /// A number was watched anew: what was watched there before, and is there no longer, has ended.
    fn found_out(&mut self, number: i32) {
        let file = self.file_at(number);
        for watch in self.watches.values_mut().filter(|watch| watch.number == number) {
            if watch.is_stale(file) {
                watch.ending.get_or_insert(Code::NotFound);
            }
        }
    }

    pub(crate) fn make_watch(&mut self) -> Step {
        if self.watches.len() >= MOST_WATCHES {
            return self.unwatch_one();
        }
        let seat = self.any_seat();
        let number = self.seats[seat].number;
        let file = self.seats[seat].file.as_ref().map(|file| file.id);
        let has_come_back = self.seats[seat].file.as_ref().is_some_and(|file| file.has_come_back);
        let wished = if self.random.chance(5) { Signals::empty() } else { self.any_signals() };
        let (mode, token) = (self.any_mode(), self.world.next_token());
        let deadline = self.any_deadline(15);
        let mut options = WatchOptions::new(wished, mode, token);
        if let Some(deadline) = deadline {
            options = options.deadline(deadline);
        }
        self.note(format!("watch {number} for {wished}, {mode:?}, token {token}, {deadline:?}"));
        let handle = self.seats[seat].handle.filter(|_| self.random.chance(70));
        let made = match handle {
            Some(handle) => self.client().watch_handle(handle, options),
            None => self.client().watch_number(number, options),
        };
        // A number whose file has come back is refused if others' stale watches are still there.
        let is_refused = file.is_none() || has_come_back;
        let refusals: &[Code] = if is_refused { &[Code::InvalidArgument] } else { &[] };
        let made = self.check("watch", made, refusals)?;
        if !self.world.is_stopping() {
            // C7b: at the latest now the old watches on this number have ended.
            self.found_out(number);
        }
        let Some(id) = made else { return Ok(()) };
        let Some(file) = file else {
            return Err(format!("{number} is not open and can be watched as {id}").into());
        };
        let mut watch = Watch::new(token, mode, wished, number, Some(file));
        watch.may_be_gone = has_come_back;
        // A watch that is made paused has no deadline, as one that is paused later.
        let deadline_ns = deadline.map(Deadline::as_ns).filter(|_| !wished.is_empty());
        watch.made(self.step, file::holds(number, wished), deadline_ns);
        if self.watches.insert(id, watch).is_some() || self.dead_watches.contains(&id) {
            return Err(format!("C3i: {id} was given out twice").into());
        }
        self.note(format!("  made {id}"));
        Ok(())
    }

    pub(crate) fn arm_one(&mut self) -> Step {
        let Some(id) = self.any_watch() else { return Ok(()) };
        let deadline = self.any_deadline(25);
        self.arm(id, deadline)
    }

    pub(crate) fn arm(&mut self, id: WatchId, deadline: Option<Deadline>) -> Step {
        self.note(format!("arm {id} {deadline:?}"));
        let armed = match deadline {
            None => self.client().arm(id),
            Some(deadline) => self.client().arm_until(id, deadline),
        };
        let is_paused = self.watches[&id].is_paused();
        let refusals: &[Code] = if is_paused { &[Code::FailedPrecondition] } else { &[] };
        let armed = self.done(id, "arm", armed, refusals)?;
        let (step, is_resting) = (self.step, self.is_resting);
        let is_stopping = self.world.is_stopping();
        let watch = self.watches.get_mut(&id).expect("it was there before");
        // While the watcher is being stopped, a call may fail after it has armed the watch.
        if armed || (is_stopping && !is_paused) {
            if is_paused {
                return Err(format!("C3j: a paused watch was armed: {watch:?}").into());
            }
            watch.armed(step, watch.holds(), deadline.map(Deadline::as_ns), sys::now_ns());
            if watch.is_foreign() && !is_resting {
                watch.lose_sight();
            }
        }
        Ok(())
    }

    /// What came of an operation on a watch: true if it succeeded. NOT_FOUND is right only when the watch has ended, or
    /// when its number is no longer its file; then it has ended now.
    fn done(
        &mut self,
        id: WatchId,
        call: &str,
        result: handle_watcher_client::Result<()>,
        refusals: &[Code],
    ) -> Step<bool> {
        let watch = &self.watches[&id];
        let file = self.file_at(watch.number);
        let is_gone = watch.gone_at == Some(self.world.closes(watch.number));
        let is_stale = watch.is_stale(file) || is_gone;
        let may_have_ended = watch.ending.is_some() || watch.may_be_gone || watch.is_foreign();
        let mut allowed = refusals.to_vec();
        if is_stale || may_have_ended {
            allowed.push(Code::NotFound);
        }
        let said_gone = result.as_ref().is_err_and(|status| status.code() == Code::NotFound);
        let is_done = self.check(call, result, &allowed)?.is_some();
        let watch = self.watches.get_mut(&id).expect("it was there before");
        if said_gone && !self.world.is_stopping() {
            watch.ending.get_or_insert(Code::NotFound);
        } else if is_done && (is_stale || watch.ending.is_some()) {
            return Err(
                format!("C5d: {call} succeeded on a watch whose descriptor is gone: {watch:?}").into()
            );
        }
        Ok(is_done)
    }

    pub(crate) fn change_one(&mut self) -> Step {
        let Some(id) = self.any_watch() else { return Ok(()) };
        let wished = if self.random.chance(10) { Signals::empty() } else { self.any_signals() };
        self.note(format!("change {id} to {wished}"));
        let changed = self.client().change(id, wished);
        self.changed(id, "change", wished, changed)
    }

    fn changed(
        &mut self,
        id: WatchId,
        call: &str,
        wished: Signals,
        changed: handle_watcher_client::Result<()>,
    ) -> Step {
        if self.done(id, call, changed, &[])? {
            let step = self.step;
            let watch = self.watches.get_mut(&id).expect("it was there before");
            watch.changed(step, wished, file::holds(watch.number, wished), sys::now_ns());
            if watch.is_foreign() {
                watch.lose_sight();
            }
        }
        Ok(())
    }

    pub(crate) fn pause_or_resume(&mut self) -> Step {
        let Some(id) = self.any_watch() else { return Ok(()) };
        if self.random.chance(40) {
            self.note(format!("pause {id}"));
            let paused = self.client().pause(id);
            return self.changed(id, "pause", Signals::empty(), paused);
        }
        self.note(format!("resume {id}"));
        let resumed = self.client().resume(id);
        let watch = &self.watches[&id];
        if !watch.is_paused() {
            // It is left as it is, but the kernel is asked whether it is there still.
            return self.done(id, "resume", resumed, &[]).map(drop);
        }
        let never = !watch.can_resume();
        let refusals: &[Code] = if never { &[Code::FailedPrecondition] } else { &[] };
        if self.done(id, "resume", resumed, refusals)? {
            let step = self.step;
            let watch = self.watches.get_mut(&id).expect("it was there before");
            if never {
                return Err(format!("C15c: there was nothing to resume: {watch:?}").into());
            }
            watch.resumed(step);
            if watch.is_foreign() {
                watch.lose_sight();
            }
        }
        Ok(())
    }

    pub(crate) fn unwatch_one(&mut self) -> Step {
        match self.any_watch() {
            Some(id) => self.unwatch(id),
            None => Ok(()),
        }
    }

    /// Ends a watch whose Ended was not delivered: that succeeds, whatever else has ended it meanwhile.
    pub(crate) fn unwatch(&mut self, id: WatchId) -> Step {
        self.note(format!("unwatch {id}"));
        if let Err(status) = self.client().unwatch(id) {
            let watch = &self.watches[&id];
            return Err(format!("C5f: unwatch of {id} was refused: {status}\nof {watch:?}").into());
        }
        self.watches.remove(&id);
        self.bury(id);
        Ok(())
    }

    /// C3i: an id that has ended is answered with NOT_FOUND and touches nothing.
    pub(crate) fn use_dead_ids(&mut self) -> Step {
        if self.dead_watches.is_empty() {
            return Ok(());
        }
        let at = self.random.index(self.dead_watches.len());
        let id = self.dead_watches[at];
        self.note(format!("use the dead {id}"));
        let client = self.client();
        let results = [
            ("unwatch", client.unwatch(id)),
            ("arm", client.arm(id)),
            ("change", client.change(id, Signals::READABLE)),
            ("pause", client.pause(id)),
            ("resume", client.resume(id)),
        ];
        for (call, result) in results {
            let code = result.as_ref().map_or_else(handle_watcher_client::Status::code, |()| Code::Ok);
            if code != Code::NotFound && !self.world.is_stopping() {
                return Err(format!("C3i: {call} of the dead {id} said {code}").into());
            }
        }
        Ok(())
    }

    /// Gives the file at a number to the client.
    pub(crate) fn give(&mut self) -> Step {
        let seat = self.any_seat();
        if self.seats[seat].file.is_none() || self.seats[seat].handle.is_some() {
            return Ok(());
        }
        let number = self.seats[seat].number;
        self.note(format!("give {number}"));
        match self.client().adopt(sys::take_at(number)) {
            Ok(handle) => self.seats[seat].handle = Some(handle),
            Err(refused) => {
                // It is ours still.
                let number = refused.value.into_raw_fd();
                self.check::<()>("adopt", Err(refused.status), &[])?;
                self.note(format!("  kept {number}"));
            }
        }
        Ok(())
    }

    /// C8: the watches on a given handle are told, then it is closed.
    pub(crate) fn close_handle(&mut self, seat: usize) -> Step {
        let number = self.seats[seat].number;
        let Some(handle) = self.seats[seat].handle.take() else { return Ok(()) };
        self.note(format!("close handle {handle}, {number}"));
        self.world.count_close(number);
        let closed = self.client().close(handle);
        let again = self.client().close(handle);
        self.seats[seat].file = None;
        self.world.count_close(number);
        if let Err(status) = closed {
            return Err(format!("C8: close was refused: {status}").into());
        }
        if again.is_ok() {
            return Err("C8e: a handle was closed twice".to_owned().into());
        }
        for watch in self.watches.values_mut().filter(|watch| watch.number == number) {
            watch.ending.get_or_insert(Code::Cancelled);
        }
        Ok(())
    }
}
