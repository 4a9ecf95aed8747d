//! A descriptor that is closed behind the watcher's back, and whose number is another file's from then on.
//! The old file lives on in a duplicate and even gets data, which nobody may be told of.

use std::fs::File;
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use handle_watcher_client::{Code, Event, EventKind, Mode, Signals, WatchId, Watched};

use crate::Result;
use crate::scene::Scene;
use crate::stage::{Stage, expect_ready, item_of};

const OLD_ITEM: u32 = 1;
const NEW_ITEM: u32 = 2;

struct Number {
    old_watch: WatchId,
    new: Watched<File>,
    _old_file: OwnedFd,
    _writers: [PipeWriter; 2],
    old_has_ended: bool,
    new_has_come: bool,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let (old_reader, mut old_writer) = pipe()?;
    let (new_reader, mut new_writer) = pipe()?;
    let mut number = OwnedFd::from(old_reader);
    let old_file = number.try_clone()?;
    let old_watch = stage.control.watch(&number, Signals::READABLE, Mode::Edge, stage.token(OLD_ITEM))?;
    // Closes the number and gives it to the new file, in one step.
    rustix::io::dup2(&new_reader, &mut number)?;
    stage.tell(format_args!("descriptor {} was closed and is another file now", number.as_raw_fd()))?;
    let new = stage.watch(File::from(number), Mode::Edge, NEW_ITEM)?;
    old_writer.write_all(b"old")?;
    new_writer.write_all(b"new")?;
    Ok(Box::new(Number {
        old_watch,
        new,
        _old_file: old_file,
        _writers: [old_writer, new_writer],
        old_has_ended: false,
        new_has_come: false,
    }))
}

impl Scene for Number {
    fn expected(&self) -> String {
        "the old watch ends with NOT_FOUND, the new one works, no word of the old file".to_owned()
    }

    fn came(&self) -> String {
        let old = if self.old_has_ended { "the old watch ended" } else { "the old watch did not end" };
        let new = if self.new_has_come { "the new one worked" } else { "the new one did not work" };
        format!("{old}, {new}")
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        match item_of(event.token) {
            OLD_ITEM => self.on_old(stage, event),
            NEW_ITEM => self.on_new(stage, event),
            item => Err(format!("nobody gave the item {item}").into()),
        }
    }

    fn is_over(&self) -> bool {
        self.old_has_ended && self.new_has_come
    }
}

impl Number {
    fn on_old(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        let is_its_end =
            (event.kind, event.status, event.watch) == (EventKind::Ended, Code::NotFound, self.old_watch);
        if !is_its_end || self.old_has_ended {
            return Err(
                format!("the old watch was to end once with NOT_FOUND, and this came: {event:?}").into()
            );
        }
        self.old_has_ended = true;
        match stage.control.unwatch(self.old_watch) {
            Err(status) if status.code() == Code::NotFound => stage.tell(event.to_status()),
            other => Err(format!("the old id is still good for something: {other:?}").into()),
        }
    }

    fn on_new(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        expect_ready(self.new.id(), event)?;
        let mut bytes = [0; 8];
        let length = self.new.read(&mut bytes)?;
        if &bytes[..length] != b"new" {
            return Err(format!("the new watch led to {:?}", &bytes[..length]).into());
        }
        self.new_has_come = true;
        stage.tell(format_args!("the new file under number {} has data", self.new.as_fd().as_raw_fd()))
    }
}
