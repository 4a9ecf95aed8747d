//! A pseudo-terminal whose child writes much and ends at once. The hang-up must not hide what is left to
//! read.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use handle_watcher_client::{Event, EventKind, Mode, Signals, Watched};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::helper::{EXIT_ITEM, Helper};
use crate::scene::Scene;
use crate::stage::{Stage, expect_ready, item_of};
use crate::voice::grouped;
use crate::{Result, pattern};

pub(crate) const ROLE: &str = "terminal";
pub(crate) const BYTES: usize = 64 * 1024;

const TERMINAL_ITEM: u32 = 1;
const READ_BYTES: usize = 1024;
const TELL_EVERY_BYTES: usize = 16 * 1024;
/// The last part is read slowly, so that the child ends while there is something left.
const SLOW_BYTES: usize = 8 * 1024;
/// How long the hang-up is waited for before one more part is read, which may be what the child waits for.
const SLOW_WAIT: Duration = Duration::from_millis(10);

struct Terminal {
    /// None after the hang-up, when all was read.
    terminal: Option<Watched<OwnedFd>>,
    child: Helper,
    received: usize,
    /// How much had been read when the hang-up was told.
    hung_up_at: Option<usize>,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    rustix::io::ioctl_fionbio(&terminal, true)?;
    let childs_side = ioctl_tiocgptpeer(&terminal, flags)?;
    let terminal = stage.watch(terminal, Mode::Once, TERMINAL_ITEM)?;
    // Only the child has its side from here on, so that its end hangs up.
    let child = Helper::start(stage, ROLE, "", Stdio::from(childs_side))?;
    stage.tell(format_args!("a child writes {} bytes into a terminal and ends", grouped(BYTES as u64)))?;
    Ok(Box::new(Terminal { terminal: Some(terminal), child, received: 0, hung_up_at: None }))
}

impl Scene for Terminal {
    fn expected(&self) -> String {
        format!("{} bytes as written, a hang-up, exit 0", grouped(BYTES as u64))
    }

    fn came(&self) -> String {
        let left = self.hung_up_at.map(|at| grouped((self.received - at) as u64));
        let hang_up =
            left.map_or("no hang-up".to_owned(), |left| format!("a hang-up before the last {left}"));
        let exit = self.child.status().map_or("no exit".to_owned(), |status| status.to_string());
        format!("{} bytes, {hang_up}, {exit}", grouped(self.received as u64))
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        match item_of(event.token) {
            TERMINAL_ITEM => self.on_output(stage, event)?,
            EXIT_ITEM => {
                let status = self.child.on_exit(event)?;
                stage.tell(format_args!("the child has ended: {status}"))?;
                if !status.success() {
                    return Err(format!("the child failed: {status}").into());
                }
            }
            item => return Err(format!("nobody gave the item {item}").into()),
        }
        if self.terminal.is_none() && self.received != BYTES {
            return Err(format!("{} of {BYTES} bytes came before the end", self.received).into());
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.terminal.is_none() && self.child.status().is_some()
    }
}

impl Terminal {
    fn on_output(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        let terminal = self.terminal.as_ref().ok_or("an event came after the end of the terminal")?;
        if event.kind != EventKind::Deadline || !self.is_slow() {
            expect_ready(terminal.id(), event)?;
        }
        if event.satisfied.contains(Signals::PEER_CLOSED) && self.hung_up_at.is_none() {
            self.hung_up_at = Some(self.received);
            let left = BYTES.saturating_sub(self.received);
            stage.tell(format_args!("hung up, and {} bytes are not read yet", grouped(left as u64)))?;
        }
        if self.read()? {
            self.terminal = None;
            return stage.tell(format_args!("empty after {} bytes", grouped(self.received as u64)));
        }
        if self.received.is_multiple_of(TELL_EVERY_BYTES) {
            stage.tell(format_args!("{} bytes", grouped(self.received as u64)))?;
        }
        self.arm(stage)
    }

    /// Reads a part of what is there. True if there is nothing, and never will be.
    fn read(&mut self) -> Result<bool> {
        let Some(terminal) = &self.terminal else { return Ok(true) };
        let mut buffer = [0; READ_BYTES];
        match rustix::io::read(terminal.as_fd(), &mut buffer) {
            // This is how a terminal says that it has hung up and is empty.
            Ok(0) | Err(Errno::IO) => Ok(true),
            Ok(length) => self.check(&buffer[..length]).map(|()| false),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks for more; what holds already is told at once. Near the end it asks for the hang-up alone, for a
    /// while.
    fn arm(&self, stage: &Stage<'_>) -> Result<()> {
        let Some(terminal) = &self.terminal else { return Ok(()) };
        if self.is_slow() {
            stage.control.change(terminal.id(), Signals::PEER_CLOSED)?;
            stage.control.arm_until(terminal.id(), SLOW_WAIT)?;
        } else {
            stage.control.change(terminal.id(), Signals::READABLE)?;
            terminal.arm()?;
        }
        Ok(())
    }

    /// The hang-up has not come, and little is left.
    fn is_slow(&self) -> bool {
        self.hung_up_at.is_none() && self.received + SLOW_BYTES >= BYTES
    }

    fn check(&mut self, bytes: &[u8]) -> Result<()> {
        for &byte in bytes {
            if byte != pattern::letter(self.received) {
                return Err(format!("byte {} is {:?}", self.received, char::from(byte)).into());
            }
            self.received += 1;
        }
        Ok(())
    }
}
