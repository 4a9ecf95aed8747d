//! The way to a path: every folder and link that the kernel passes, and what has to be learned of each.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use handle_watcher_client::{Changes, Code, Result, Status};

/// As many links as the kernel follows; see path_resolution(7).
const LINKS_MOST: u32 = 40;

/// An entry that comes or goes.
const ENTRIES: Changes = Changes::CREATED.union(Changes::REMOVED);

/// What the way looks like at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trail {
    /// The folders of the way, without links in their names, and what would change the way there.
    pub(crate) folders: BTreeMap<PathBuf, Changes>,
    /// Where the path leads, without links, as soon as the folder is there that it is in.
    pub(crate) target: Option<PathBuf>,
}

impl Trail {
    /// Follows a path as far as it goes.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if a folder may not be searched; `UNKNOWN` with the system's word for anything else.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let mut trail = Self { folders: BTreeMap::new(), target: None };
        let mut folder = PathBuf::from("/");
        let mut left = VecDeque::new();
        if path.is_relative() {
            let here = std::env::current_dir().map_err(|error| refusal(path, &error))?;
            push_front(&mut left, &here);
        }
        left.extend(names(path));
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                folder.pop();
                continue;
            }
            let next = folder.join(&name);
            trail.learn(&folder, Changes::GONE);
            let found = match std::fs::symlink_metadata(&next) {
                Ok(found) => found,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    trail.learn(&folder, ENTRIES);
                    trail.target = left.is_empty().then_some(next);
                    return Ok(trail);
                }
                Err(error) => return Err(refusal(path, &error)),
            };
            if found.is_symlink() {
                trail.learn(&folder, ENTRIES);
                links += 1;
                let Some(end) = (links <= LINKS_MOST).then(|| std::fs::read_link(&next).ok()).flatten()
                else {
                    // A circle, or a link that has gone just now: as good as nothing, until the folder changes.
                    return Ok(trail);
                };
                if end.is_absolute() {
                    folder = PathBuf::from("/");
                }
                push_front(&mut left, &end);
            } else {
                folder = next;
            }
        }
        trail.target = Some(folder);
        Ok(trail)
    }

    fn learn(&mut self, folder: &Path, changes: Changes) {
        *self.folders.entry(folder.to_owned()).or_default() |= changes;
    }
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
}

fn push_front(left: &mut VecDeque<OsString>, path: &Path) {
    names(path).rev().for_each(|name| left.push_front(name));
}

fn refusal(path: &Path, error: &std::io::Error) -> Status {
    let (code, remedy) = match error.kind() {
        ErrorKind::PermissionDenied => (Code::PermissionDenied, "every folder on the way must be searchable"),
        _ => (Code::Unknown, "it must be a path that could exist"),
    };
    Status::new(code, format!("{path:?} cannot be followed ({error}); {remedy}"))
}
