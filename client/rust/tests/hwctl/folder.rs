//! A folder of a test's own.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty folder, removed with what is in it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hwctl-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new folder");
        // Without links, so that what is printed can be compared.
        Self(path.canonicalize().expect("it is there"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A path below the folder as a source of `hwctl wait`.
    pub(crate) fn source(&self, kind: &str, name: &str) -> String {
        format!("{kind}:{}", self.path(name).display())
    }

    pub(crate) fn listen(&self, name: &str) -> UnixListener {
        UnixListener::bind(self.path(name)).expect("a free name")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("it can be written");
}
