//! The random steps: what is done to files, and which step comes next.

use std::time::Duration;

use handle_watcher_client::{Mode, Signals};

use super::actor::{Actor, Seat, Step, Zombie};
use super::file::{File, Kind, to_signals};
use super::sys;

const MOST_ZOMBIES: usize = 4;

impl Actor {
    /// One random step.
    pub(crate) fn act(&mut self) -> Step {
        match self.random.below(1000) {
            0..60 => self.open_file(),
            60..75 => self.close_behind(),
            75..95 => self.close_properly(),
            95..115 => self.put_back(),
            115..125 => self.give(),
            125..260 => self.make_watch(),
            260..320 => self.arm_one(),
            320..370 => self.change_one(),
            370..420 => self.pause_or_resume(),
            420..500 => self.unwatch_one(),
            500..515 => self.use_dead_ids(),
            515..700 => self.use_file(),
            700..715 => self.use_zombie(),
            715..745 => self.set_timer(),
            745..760 => self.cancel_timer(),
            760..775 => self.wake(),
            775..805 => self.watch_others_number(),
            805..830 => self.make_gift(),
            830..870 => self.use_gift(),
            870..872 => self.replace_client(),
            872..900 => self.settle(),
            900..930 => {
                let timeout = Duration::from_micros(self.random.below(1000));
                self.take(Some(timeout)).map(drop)
            }
            _ => self.take(None).map(drop),
        }
    }

    pub(crate) fn any_seat(&mut self) -> usize {
        self.random.index(self.world.habits.seats)
    }

    pub(crate) fn any_signals(&mut self) -> Signals {
        const READ: Signals = Signals::READABLE;
        const WRITE: Signals = Signals::WRITABLE;
        self.random.pick(&[
            READ,
            READ,
            READ,
            WRITE,
            READ | WRITE,
            READ | Signals::PEER_CLOSED,
            Signals::PEER_CLOSED,
            Signals::PRIORITY,
            Signals::ERROR,
        ])
    }

    pub(crate) fn any_mode(&mut self) -> Mode {
        if self.world.habits.is_once_only {
            return Mode::Once;
        }
        self.random.pick(&[Mode::Once, Mode::Once, Mode::Edge, Mode::Level])
    }

    /// Opens a file at one of the numbers. One that is open there is closed behind everybody's back in the same step.
    fn open_file(&mut self) -> Step {
        let seat = self.any_seat();
        if self.seats[seat].handle.is_some() {
            return self.close_handle(seat);
        }
        let kind = File::random_kind(&mut self.random);
        self.files += 1;
        let (file, watched) = File::open(self.files, kind);
        self.note(format!("open {kind:?} {} at {}", file.id, self.seats[seat].number));
        let before = self.vacate(seat);
        sys::put_at(watched, self.seats[seat].number);
        self.seats[seat].file = Some(file);
        self.world.set_come_back(self.seats[seat].number, false);
        self.world.count_close(self.seats[seat].number);
        drop(before);
        Ok(())
    }

    /// Closes a number although it may be watched.
    fn close_behind(&mut self) -> Step {
        let seat = self.any_seat();
        if self.seats[seat].file.is_none() || self.seats[seat].handle.is_some() {
            return Ok(());
        }
        self.note(format!("close {} behind all backs", self.seats[seat].number));
        let before = self.vacate(seat);
        sys::close_at(self.seats[seat].number);
        self.world.count_close(self.seats[seat].number);
        drop(before);
        Ok(())
    }

    /// Prepares a number for being closed, now and by the caller. Gives the file, unless it lives on as a zombie.
    fn vacate(&mut self, seat: usize) -> Option<File> {
        let number = self.seats[seat].number;
        self.world.count_close(number);
        let file = self.seats[seat].file.take()?;
        for watch in self.watches.values_mut().filter(|watch| watch.number == number) {
            watch.lose_file();
        }
        if self.zombies.len() < MOST_ZOMBIES && self.random.chance(30) {
            self.note(format!("  file {} lives on", file.id));
            self.zombies.push(Zombie { seat, file, spare: sys::duplicate(number) });
            return None;
        }
        Some(file)
    }

    /// Unwatches what this thread watches of a number, then closes it.
    fn close_properly(&mut self) -> Step {
        let seat = self.any_seat();
        if self.seats[seat].handle.is_some() {
            return self.close_handle(seat);
        }
        let number = self.seats[seat].number;
        let ids: Vec<_> =
            self.watches.iter().filter(|(_, watch)| watch.number == number).map(|(&id, _)| id).collect();
        for id in ids {
            self.unwatch(id)?;
        }
        self.close_seat(seat);
        Ok(())
    }

    fn close_seat(&mut self, seat: usize) {
        let Seat { number, .. } = self.seats[seat];
        if let Some(file) = self.seats[seat].file.take() {
            self.note(format!("close {number}, {:?} {}", file.kind, file.id));
            self.world.count_close(number);
            sys::close_at(number);
            self.world.count_close(number);
        }
    }

    /// Puts a file that lives on back at its number.
    ///
    /// The kernel's entry of it has lived on too, and takes the number back. Watches on what was there meanwhile cannot
    /// tell that they are stale, so this thread's are unwatched first. Others' stay, and when one of them notices, it may
    /// take the watches of the file that has come back along.
    fn put_back(&mut self) -> Step {
        let Some(zombie) = self.zombies.pop() else { return Ok(()) };
        let Zombie { seat, mut file, spare } = zombie;
        if self.seats[seat].handle.is_some() {
            self.zombies.push(Zombie { seat, file, spare });
            return Ok(());
        }
        let number = self.seats[seat].number;
        let meanwhile = self.watches.iter().filter(|(_, it)| it.number == number && it.file != Some(file.id));
        let meanwhile: Vec<_> = meanwhile.map(|(&id, _)| id).collect();
        for id in meanwhile {
            self.unwatch(id)?;
        }
        self.note(format!("put {:?} {} back at {number}", file.kind, file.id));
        file.has_come_back = true;
        let before = self.vacate(seat);
        sys::put_at(spare, number);
        self.seats[seat].file = Some(file);
        self.world.set_come_back(number, true);
        self.world.count_close(self.seats[seat].number);
        drop(before);
        Ok(())
    }

    /// Feeds, hangs up or drops a file that lives on.
    fn use_zombie(&mut self) -> Step {
        if self.zombies.is_empty() {
            return Ok(());
        }
        let at = self.random.index(self.zombies.len());
        match self.random.below(4) {
            0 => {
                let zombie = self.zombies.swap_remove(at);
                self.note(format!("file {} dies", zombie.file.id));
                drop(zombie);
            }
            1 => self.zombies[at].file.hang_up(),
            _ => {
                use std::os::fd::AsRawFd;
                let zombie = &self.zombies[at];
                zombie.file.feed(zombie.spare.as_raw_fd());
                let id = zombie.file.id;
                self.note(format!("feed file {id}, which lives on"));
            }
        }
        Ok(())
    }

    /// Makes something hold of a file, or makes it hold no longer.
    fn use_file(&mut self) -> Step {
        let seat = self.any_seat();
        let number = self.seats[seat].number;
        let choice = self.random.below(100);
        let step = self.step;
        let Some(file) = &mut self.seats[seat].file else { return Ok(()) };
        let before = sys::poll_now(number);
        let name = match choice {
            0..40 => {
                file.feed(number);
                "feed"
            }
            40..60 => {
                file.consume(number, step);
                "consume"
            }
            60..65 => {
                file.sip(number, step);
                "sip"
            }
            65..77 => {
                file.fill(number, step);
                "fill"
            }
            77..90 => {
                file.make_room();
                "make room"
            }
            90..95 => {
                file.hang_up();
                "hang up"
            }
            _ if file.kind == Kind::Socket => {
                file.half_close();
                "half-close"
            }
            _ => "leave alone",
        };
        let text = format!("{name} {:?} {} at {number}", file.kind, file.id);
        let id = file.id;
        let after = sys::poll_now(number);
        self.note(text);
        for watch in self.watches.values_mut().filter(|watch| watch.file == Some(id)) {
            if watch.number == number {
                let holds = to_signals(after, watch.wished);
                watch.came_to_hold(holds - to_signals(before, watch.wished));
                watch.still_holds(holds);
            }
        }
        Ok(())
    }
}
