//! Changes of files as a handle: inotify(7), which becomes readable when something changed.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ahash::AHashMap;
use handle_watcher_wire::{Code, Result, Status};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Room for at least sixteen changes with the longest file names, so that one read takes a burst.
const BUFFER_BYTES: usize = 8192;

bitflags::bitflags! {
    /// What can happen to a file or in a directory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Changes: u32 {
        /// Its content changed: appended to, overwritten or cut.
        const CONTENT = 1;
        /// Its mode, owner, times or links changed.
        const ATTRIBUTES = 2;
        /// A file that was open for writing was closed.
        const WRITTEN = 4;
        /// In a directory: an entry came, by creation or by a move.
        const CREATED = 8;
        /// In a directory: an entry went, by removal or by a move.
        const REMOVED = 16;
        /// The file or directory itself was moved or removed, or its file system was unmounted. Always told; for a
        /// file that was removed while somebody holds it open only when that one closes it, as the kernel has it.
        /// Until then its link count has fallen to zero, which [`ATTRIBUTES`](Self::ATTRIBUTES) tells.
        const GONE = 32;
        /// The kernel's queue ran over and changes were lost: look at everything again. Always told.
        const LOST = 64;
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path as it was given to [`FileChanges::watch_path`]; empty when changes were lost.
    pub path: PathBuf,
    /// In a directory: the name of the entry it happened to.
    pub name: Option<OsString>,
    /// What happened.
    pub changes: Changes,
}

/// Files and directories to learn changes of. Lend it to `watch` for `READABLE`, then [`read`](Self::read).
#[derive(Debug)]
pub struct FileChanges {
    descriptor: OwnedFd,
    paths: AHashMap<i32, PathBuf>,
}

impl FileChanges {
    /// Opens an empty one.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if descriptors or fs.inotify.max_user_instances ran out.
    pub fn new() -> Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let descriptor = inotify::init(flags).map_err(|errno| {
            Status::new(
                Code::ResourceExhausted,
                format!("inotify could not be opened: {errno}; raise RLIMIT_NOFILE or fs.inotify.max_user_instances"),
            )
        })?;
        Ok(Self { descriptor, paths: AHashMap::new() })
    }

    /// Learns of `changes` of a file or in a directory from now on. A path given before has its changes replaced.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such path; `PERMISSION_DENIED` if it may not be read; `RESOURCE_EXHAUSTED` at
    /// fs.inotify.max_user_watches; `INVALID_ARGUMENT` for no changes at all or a path that names nothing legal.
    pub fn watch_path(&mut self, path: impl AsRef<Path>, changes: Changes) -> Result<()> {
        let path = path.as_ref();
        let flags = to_flags(changes);
        if flags.is_empty() {
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "no changes were asked for of {path:?}; ask for at least one of CONTENT, ATTRIBUTES, WRITTEN, CREATED, REMOVED; GONE and LOST come with it"
                ),
            ));
        }
        let id = inotify::add_watch(&self.descriptor, path, flags).map_err(|errno| refusal(errno, path))?;
        self.paths.insert(id, path.to_owned());
        Ok(())
    }

    /// What happened since the last call, oldest first; nothing if nothing did. Never blocks.
    ///
    /// # Errors
    /// `INTERNAL` with the kernel's word if the descriptor cannot be read.
    pub fn read(&mut self) -> Result<Vec<Change>> {
        let mut found = Vec::new();
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&self.descriptor, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(found),
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    return Err(Status::new(Code::Internal, format!("inotify could not be read: {errno}")));
                }
            };
            let changes = to_changes(event.events());
            let path = self.paths.get(&event.wd()).cloned().unwrap_or_default();
            if event.events().contains(ReadFlags::IGNORED) {
                self.paths.remove(&event.wd());
            }
            if !changes.is_empty() {
                let name =
                    event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned());
                found.push(Change { path, name, changes });
            }
        }
    }
}

impl AsFd for FileChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn to_flags(changes: Changes) -> WatchFlags {
    let table = [
        (Changes::CONTENT, WatchFlags::MODIFY),
        (Changes::ATTRIBUTES, WatchFlags::ATTRIB),
        (Changes::WRITTEN, WatchFlags::CLOSE_WRITE),
        (Changes::CREATED, WatchFlags::CREATE | WatchFlags::MOVED_TO),
        (Changes::REMOVED, WatchFlags::DELETE | WatchFlags::MOVED_FROM),
        (Changes::GONE, WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF),
    ];
    let asked = table.iter().filter(|(change, _)| changes.contains(*change));
    let flags = asked.fold(WatchFlags::empty(), |flags, (_, flag)| flags | *flag);
    if flags.is_empty() { flags } else { flags | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF }
}

fn to_changes(flags: ReadFlags) -> Changes {
    let table = [
        (ReadFlags::MODIFY, Changes::CONTENT),
        (ReadFlags::ATTRIB, Changes::ATTRIBUTES),
        (ReadFlags::CLOSE_WRITE, Changes::WRITTEN),
        (ReadFlags::CREATE | ReadFlags::MOVED_TO, Changes::CREATED),
        (ReadFlags::DELETE | ReadFlags::MOVED_FROM, Changes::REMOVED),
        (ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT, Changes::GONE),
        (ReadFlags::QUEUE_OVERFLOW, Changes::LOST),
    ];
    let held = table.iter().filter(|(flag, _)| flags.intersects(*flag));
    held.fold(Changes::empty(), |changes, (_, change)| changes | *change)
}

fn refusal(errno: Errno, path: &Path) -> Status {
    let (code, remedy) = match errno {
        Errno::NOENT | Errno::NOTDIR => (Code::NotFound, "create it first, or watch its directory"),
        Errno::ACCESS => (Code::PermissionDenied, "it must be readable"),
        Errno::NOSPC => (Code::ResourceExhausted, "raise fs.inotify.max_user_watches"),
        Errno::NOMEM => (Code::ResourceExhausted, "the kernel has no memory for it"),
        _ => (Code::InvalidArgument, "pass a path that names a file or a directory"),
    };
    Status::new(code, format!("{path:?} cannot be watched for changes ({errno}); {remedy}"))
}
