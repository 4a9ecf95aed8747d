//! A child process with output. Its last words must be told before its end.

use std::io::{ErrorKind, Read};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use handle_watcher_client::{Event, Mode, Watched};

use crate::Result;
use crate::helper::{EXIT_ITEM, Helper};
use crate::scene::Scene;
use crate::stage::{Stage, expect_ready, item_of};

pub(crate) const ROLE: &str = "child";
pub(crate) const LINES: [&str; 4] = ["hello", "I am working", "I am nearly done", "these are my last words"];
pub(crate) const EXIT_CODE: i32 = 7;
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

const OUTPUT_ITEM: u32 = 1;

struct Talker {
    /// None at the end of the output.
    output: Option<Watched<ChildStdout>>,
    child: Helper,
    text: String,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let mut child = Helper::start(stage, ROLE, "", Stdio::piped())?;
    let output = child.take_output()?;
    rustix::io::ioctl_fionbio(&output, true)?;
    let output = stage.watch(output, Mode::Level, OUTPUT_ITEM)?;
    stage.tell("a child runs; its output and its end are watched apart")?;
    Ok(Box::new(Talker { output: Some(output), child, text: String::new() }))
}

impl Scene for Talker {
    fn expected(&self) -> String {
        format!("{} lines, then exit status {EXIT_CODE}", LINES.len())
    }

    fn came(&self) -> String {
        let exit = self.child.status().map_or("no exit".to_owned(), |status| status.to_string());
        format!("{} lines, then {exit}", self.text.lines().count())
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        match item_of(event.token) {
            OUTPUT_ITEM => self.on_output(stage, event),
            EXIT_ITEM => self.on_exit(stage, event),
            item => Err(format!("nobody gave the item {item}").into()),
        }
    }

    fn is_over(&self) -> bool {
        self.output.is_none() && self.child.status().is_some()
    }
}

impl Talker {
    fn on_output(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        let output = self.output.as_mut().ok_or("there was output after the end of the output")?;
        expect_ready(output.id(), event)?;
        let mut bytes = Vec::new();
        // What was read before "would block" is in `bytes`.
        let has_ended = match output.read_to_end(&mut bytes) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => return Err(error.into()),
        };
        let words = String::from_utf8(bytes)?;
        for line in words.lines() {
            stage.tell(format_args!("it says: {line}"))?;
        }
        self.text.push_str(&words);
        if has_ended {
            self.output = None;
            stage.tell("its output has ended")?;
        }
        Ok(())
    }

    fn on_exit(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        let status = self.child.on_exit(event)?;
        stage.tell(format_args!("it has ended: {status}"))?;
        if status.code() != Some(EXIT_CODE) {
            return Err(format!("the child ended with {status}, not with {EXIT_CODE}").into());
        }
        if !self.text.lines().eq(LINES) {
            return Err(format!("the child's end was told after {:?} only", self.text).into());
        }
        Ok(())
    }
}
