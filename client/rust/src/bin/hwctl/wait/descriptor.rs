//! `fd:0`: a descriptor of the caller.

use handle_watcher_client::{
    Code, Control, Deadline, Event, Mode, Result, Signals, Status, Token, WaitEntry, WatchOptions, wait_many,
};

use super::awaited::{Awaited, Step, check_end};
use crate::text::show_signals;

pub(crate) struct Descriptor {
    number: i32,
}

impl Descriptor {
    pub(crate) fn new(number: i32) -> Self {
        Self { number }
    }

    /// Whether the number is open. To be called before anything else is opened, which might get it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not.
    pub(crate) fn check(number: i32) -> Result<()> {
        if look(number)?.status() != Code::InvalidArgument {
            return Ok(());
        }
        Err(Status::new(
            Code::InvalidArgument,
            format!("fd:{number} is not open; redirect something to it, such as {number}< file-or-pipe"),
        ))
    }
}

impl Awaited for Descriptor {
    fn start(&mut self, control: &Control, token: Token) -> Result<Step> {
        let satisfied = look(self.number)?.satisfied();
        if !satisfied.is_empty() {
            return Ok(Step::Came(show_signals(satisfied)));
        }
        let options = WatchOptions::new(Signals::READABLE, Mode::Once, token);
        control.watch_number(self.number, options)?;
        Ok(Step::Pending)
    }

    fn tell(&mut self, _control: &Control, event: &Event) -> Result<Step> {
        check_end(event, &format!("fd:{}", self.number))?;
        Ok(Step::Came(show_signals(event.satisfied)))
    }
}

/// What holds now; opens nothing and waits for nothing.
fn look(number: i32) -> Result<WaitEntry<'static>> {
    let mut entries = [WaitEntry::of_number(number, Signals::READABLE)];
    wait_many(&mut entries, Some(Deadline::at_ns(0)))?;
    Ok(entries[0])
}
