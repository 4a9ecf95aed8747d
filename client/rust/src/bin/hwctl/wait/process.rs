//! `pid:123`: the end of a process.

use std::os::fd::AsFd;

use handle_watcher_client::{
    ChildProcess, Code, Control, Deadline, Event, Result, Signals, Token, WaitEntry, wait_many,
};

use super::awaited::{Awaited, Step, check_end};

pub(crate) struct Process {
    id: u32,
    /// Kept while it is watched.
    process: Option<ChildProcess>,
}

impl Process {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, process: None }
    }
}

impl Awaited for Process {
    fn start(&mut self, control: &Control, token: Token) -> Result<Step> {
        let process = match ChildProcess::open(self.id) {
            Ok(process) => process,
            // A shell may have collected its child before it ran us: what was waited for has happened.
            Err(status) if status.code() == Code::NotFound => return Ok(Step::came("absent")),
            Err(status) => return Err(status),
        };
        let mut entries = [WaitEntry::new(process.as_fd(), Signals::READABLE)];
        if wait_many(&mut entries, Some(Deadline::at_ns(0)))?.is_some() {
            return Ok(Step::came("ended"));
        }
        control.watch_child(&process, token)?;
        self.process = Some(process);
        Ok(Step::Pending)
    }

    fn tell(&mut self, _control: &Control, event: &Event) -> Result<Step> {
        check_end(event, &format!("pid:{}", self.id))?;
        Ok(Step::came("ended"))
    }
}
