//! `timer:5s`: time passes.

use std::time::Duration;

use handle_watcher_client::{Control, Event, Result, Token};

use super::awaited::{Awaited, Step};

pub(crate) struct Timer {
    timeout: Duration,
}

impl Timer {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout }
    }
}

impl Awaited for Timer {
    fn start(&mut self, control: &Control, token: Token) -> Result<Step> {
        if self.timeout.is_zero() {
            return Ok(Step::came("expired"));
        }
        control.set_timer(self.timeout, token)?;
        Ok(Step::Pending)
    }

    fn tell(&mut self, _control: &Control, _event: &Event) -> Result<Step> {
        Ok(Step::came("expired"))
    }
}
