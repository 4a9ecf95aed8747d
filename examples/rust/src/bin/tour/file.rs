//! A file that another process appends to. The file itself cannot be waited for; its changes can.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use handle_watcher_client::{Changes, Event, FileChanges, Mode, Watched};

use crate::Result;
use crate::helper::{EXIT_ITEM, Helper};
use crate::scene::Scene;
use crate::stage::{Stage, expect_ready, item_of};
use crate::voice::counted;

pub(crate) const ROLE: &str = "file";
pub(crate) const LINES: [&str; 5] =
    ["the first line", "the second", "the third", "the fourth", "the last line"];
pub(crate) const PAUSE: Duration = Duration::from_millis(220);

const CHANGES_ITEM: u32 = 1;

/// A file of our own, removed at the end.
struct OwnFile {
    path: PathBuf,
    file: File,
}

impl OwnFile {
    fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("handle-watcher-tour-{}", std::process::id()));
        let file = File::options().create_new(true).read(true).append(true).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Nothing is left to do about a file that somebody else removed.
        let _: std::io::Result<()> = std::fs::remove_file(&self.path);
    }
}

struct Appended {
    changes: Watched<FileChanges>,
    file: OwnFile,
    writer: Helper,
    told: u64,
    text: String,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let file = OwnFile::create()?;
    let mut changes = FileChanges::new()?;
    changes.watch_path(&file.path, Changes::CONTENT)?;
    let changes = stage.watch(changes, Mode::Level, CHANGES_ITEM)?;
    let path = file.path.to_str().ok_or("the temporary folder has no readable name")?;
    let writer = Helper::start(stage, ROLE, path, Stdio::null())?;
    stage.tell("a file is watched for changes, and a process appends to it")?;
    Ok(Box::new(Appended { changes, file, writer, told: 0, text: String::new() }))
}

impl Scene for Appended {
    fn expected(&self) -> String {
        format!("{} lines, each told by a change, all before the writer's end", LINES.len())
    }

    fn came(&self) -> String {
        let exit = self.writer.status().map_or("no end", |_| "then the writer's end");
        format!(
            "{} by {}, {exit}",
            counted(self.text.lines().count() as u64, "line"),
            counted(self.told, "change")
        )
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        match item_of(event.token) {
            CHANGES_ITEM => self.on_change(stage, event),
            EXIT_ITEM => self.on_exit(event),
            item => Err(format!("nobody gave the item {item}").into()),
        }
    }

    fn is_over(&self) -> bool {
        self.writer.status().is_some()
    }
}

impl Appended {
    fn on_change(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        expect_ready(self.changes.id(), event)?;
        let changes = self.changes.read()?;
        for change in &changes {
            if change.path != self.file.path || change.changes != Changes::CONTENT {
                return Err(format!("an unexpected change: {change:?}").into());
            }
        }
        self.told += changes.len() as u64;
        let mut appended = String::new();
        self.file.file.read_to_string(&mut appended)?;
        for line in appended.lines() {
            stage.tell(format_args!("it was appended to: {line}"))?;
        }
        self.text.push_str(&appended);
        Ok(())
    }

    fn on_exit(&mut self, event: &Event) -> Result<()> {
        let status = self.writer.on_exit(event)?;
        if !status.success() {
            return Err(format!("the writer failed: {status}").into());
        }
        if !self.text.lines().eq(LINES) {
            return Err(format!("at the writer's end {:?} had been told", self.text).into());
        }
        Ok(())
    }
}
