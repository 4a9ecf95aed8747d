//! `path:/x`: a path comes into being, or changes.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use handle_watcher_client::{
    Change, Changes, Code, Control, Event, EventKind, FileChanges, Mode, Result, Signals, TimerId, Token,
    WatchId,
};

use super::awaited::{Awaited, Step, check_end};
use super::file_system::is_telling;
use super::trail::Trail;

/// How often in a row the way may change while it is being watched, before it is left alone for a while.
const ROUNDS_MOST: u32 = 16;

/// How long it is left alone then.
const REST: Duration = Duration::from_millis(20);

/// How often a path is looked at on a file system that may change without telling.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct PathChange {
    path: PathBuf,
    token: Token,
    /// What was there at the start.
    before: Option<Fingerprint>,
    watched: Option<Watched>,
    /// When it is looked at again, whether something is told or not.
    timer: Option<TimerId>,
}

/// The folders of one way, being watched.
struct Watched {
    trail: Trail,
    changes: FileChanges,
    watch: WatchId,
    /// Something may change without being told.
    must_look: bool,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    is_folder: bool,
}

impl PathChange {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, token: 0, before: None, watched: None, timer: None }
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        let found = std::fs::metadata(&self.path).ok()?;
        Some(Fingerprint {
            device: found.dev(),
            inode: found.ino(),
            size_bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            is_folder: found.is_dir(),
        })
    }

    /// How the path differs from what it was at the start.
    fn difference(&self) -> Option<&'static str> {
        match (self.before, self.fingerprint()) {
            (None, None) => None,
            (None, Some(_)) => Some("exists"),
            (Some(_), None) => Some("removed"),
            (Some(before), Some(now)) => (before != now).then_some("changed"),
        }
    }

    /// Watches the way as it is now, and looks once more, so that nothing is missed between a look and its watch.
    fn follow(&mut self, control: &Control) -> Result<Step> {
        for _ in 0..ROUNDS_MOST {
            let trail = Trail::of(&self.path)?;
            let is_watched = self.watched.as_ref().is_some_and(|watched| watched.trail == trail);
            let is_watched = is_watched || self.watch(control, trail.clone())?;
            if let Some(what) = self.difference() {
                return Ok(Step::came(what));
            }
            if is_watched && Trail::of(&self.path)? == trail {
                let must_look = self.watched.as_ref().is_some_and(|watched| watched.must_look);
                return if must_look { self.rest(control, LOOK_INTERVAL) } else { Ok(Step::Pending) };
            }
        }
        self.rest(control, REST)
    }

    /// Looks again after a while.
    fn rest(&mut self, control: &Control, rest: Duration) -> Result<Step> {
        if self.timer.is_none() {
            self.timer = Some(control.set_timer(rest, self.token)?);
        }
        Ok(Step::Pending)
    }

    /// Watches a way in place of the last one. False if it has changed already.
    fn watch(&mut self, control: &Control, trail: Trail) -> Result<bool> {
        let mut wishes = trail.folders.clone();
        if let (Some(before), Some(target)) = (self.before, &trail.target) {
            let entries = Changes::CREATED | Changes::REMOVED;
            let content = if before.is_folder { entries } else { Changes::CONTENT };
            *wishes.entry(target.clone()).or_default() |= content | Changes::ATTRIBUTES;
        }
        let mut changes = FileChanges::new()?;
        for (path, wish) in &wishes {
            match changes.watch_path(path, *wish) {
                Ok(()) => {}
                Err(status) if status.code() == Code::NotFound => return Ok(false),
                // A folder that may be searched and not read: that it is moved away is all that we would miss.
                Err(status) if status.code() == Code::PermissionDenied && *wish == Changes::GONE => {}
                Err(status) => return Err(status),
            }
        }
        self.unwatch(control)?;
        let watch = control.watch(&changes, Signals::READABLE, Mode::Once, self.token)?;
        let must_look = !wishes.keys().all(|path| is_telling(path));
        self.watched = Some(Watched { trail, changes, watch, must_look });
        Ok(true)
    }

    fn unwatch(&mut self, control: &Control) -> Result<()> {
        self.watched.take().map_or(Ok(()), |watched| control.unwatch(watched.watch))
    }
}

impl Awaited for PathChange {
    fn start(&mut self, control: &Control, token: Token) -> Result<Step> {
        self.token = token;
        self.before = self.fingerprint();
        self.follow(control)
    }

    fn tell(&mut self, control: &Control, event: &Event) -> Result<Step> {
        check_end(event, &format!("path:{:?}", self.path))?;
        if event.kind == EventKind::Timer {
            self.timer = None;
        }
        if let (Some(watched), EventKind::Ready) = (&mut self.watched, event.kind) {
            let happened = watched.changes.read()?;
            if happened.iter().any(|change| watched.is_of_target(change, self.before)) {
                // What came and has gone again since has come all the same.
                let usual = if self.before.is_some() { "changed" } else { "exists" };
                return Ok(Step::came(self.difference().unwrap_or(usual)));
            }
            if happened.iter().any(|change| change.changes.intersects(Changes::GONE | Changes::LOST)) {
                // A folder of the same name may be another one.
                self.unwatch(control)?;
            } else {
                control.arm(watched.watch)?;
            }
        }
        self.follow(control)
    }

    fn obstacle(&self) -> Option<String> {
        Some(if self.before.is_some() { "unchanged" } else { "not there" }.to_owned())
    }
}

impl Watched {
    /// True if it is the path itself that something happened to, and not the way to it.
    fn is_of_target(&self, change: &Change, before: Option<Fingerprint>) -> bool {
        let Some(target) = &self.trail.target else { return false };
        let is_entry = change.changes.intersects(Changes::CREATED | Changes::REMOVED);
        match (before, &change.name) {
            (None, Some(name)) => {
                change.changes.contains(Changes::CREATED) && change.path.join(name) == *target
            }
            (None, None) => false,
            // What happens to a file in a folder does not happen to the folder, unless it comes or goes.
            (Some(_), name) => change.path == *target && (name.is_none() || is_entry),
        }
    }
}
