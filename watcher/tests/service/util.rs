//! What the tests of the service share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use handle_watcher::{Config, Service, ServiceConfig, Watcher};

/// How long something that has to come is waited for. Reached only by a failing test.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// How long something that must not come is waited for, after everything before it has come through.
pub(crate) const SILENCE: Duration = Duration::from_millis(8);

/// A folder of one test, gone with it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("hw-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("readable").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is the system's to clean up.
        let _: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}

/// A service with a watcher of its own.
#[derive(Debug)]
pub(crate) struct Stage {
    // Dropped in this order.
    pub(crate) service: Service,
    pub(crate) watcher: Watcher,
    pub(crate) path: String,
    pub(crate) folder: Folder,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(ServiceConfig::default())
    }

    pub(crate) fn with(config: ServiceConfig) -> Self {
        let watcher = Watcher::spawn(Config::default()).expect("a watcher");
        let folder = Folder::new();
        let path = folder.path("s");
        let service = Service::bind(&watcher, &path, config).expect("a service");
        Self { service, watcher, path, folder }
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PROMPT;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to pass: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
