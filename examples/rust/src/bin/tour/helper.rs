//! Another process of the tour: the same program, started again in a role.

use std::process::{Child, Command, ExitStatus, Stdio};

use handle_watcher_client::{ChildProcess, Control, Event, WatchId};

use crate::Result;
use crate::stage::{Stage, expect_ready};

/// The argument that makes the program play a role instead of giving the tour. Not for users.
pub(crate) const ROLE_FLAG: &str = "--play";

/// The item of a helper's end in its scene's tokens.
pub(crate) const EXIT_ITEM: u32 = u32::MAX;

/// A running helper and the watch on its end.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    status: Option<ExitStatus>,
    control: Control,
    exit: WatchId,
    /// Lent to the watch.
    _process: ChildProcess,
}

impl Helper {
    /// Starts this program in `role` and watches for its end.
    pub(crate) fn start(stage: &Stage<'_>, role: &str, argument: &str, output: Stdio) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE_FLAG, role, argument])
            .stdin(Stdio::null())
            .stdout(output)
            .spawn()?;
        let watched = ChildProcess::of(&child).and_then(|process| {
            let exit = stage.control.watch_child(&process, stage.token(EXIT_ITEM))?;
            Ok((process, exit))
        });
        match watched {
            Ok((process, exit)) => {
                let control = stage.control.clone();
                Ok(Self { child, status: None, control, exit, _process: process })
            }
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.into())
            }
        }
    }

    /// What the child writes, if it was started with a pipe.
    pub(crate) fn take_output(&mut self) -> Result<std::process::ChildStdout> {
        Ok(self.child.stdout.take().ok_or("the child has no pipe")?)
    }

    /// Takes the event that says the child has ended, and collects its status, which nobody may have stolen.
    pub(crate) fn on_exit(&mut self, event: &Event) -> Result<ExitStatus> {
        expect_ready(self.exit, event)?;
        if self.status.is_some() {
            return Err("the child's end was told twice".into());
        }
        let status = self.child.try_wait()?.ok_or("the child's end was told while it was running")?;
        self.status = Some(status);
        Ok(status)
    }

    /// The status, once the end was told.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.status
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // NOT_FOUND means that it has ended, which is as good.
        let _: handle_watcher_client::Result<()> = self.control.unwatch(self.exit);
        if self.status.is_none() {
            // It may have ended just now, which is as good.
            let _: std::io::Result<()> = self.child.kill();
            let _: std::io::Result<ExitStatus> = self.child.wait();
        }
    }
}
