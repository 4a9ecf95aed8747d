//! The service as a child of the tour: its program, its private folder and socket, its stop in order.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use handle_watcher_client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::{LOG_VARIABLE, Result};

const NAME: &str = "handle-watcherd";

/// How long it may take until it listens, and until it has stopped.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// Where the service's program is: beside this one, as both are built into one folder.
pub(crate) fn program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(NAME))
}

/// A running service, whose socket nobody else can reach.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    has_ended: bool,
    folder: Folder,
}

impl Daemon {
    /// Starts it and waits until it listens.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let folder = Folder::new()?;
        let mut command = Command::new(program);
        // What the user has set is meant for a service of their own.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HANDLE_WATCHER_") {
                command.env_remove(name);
            }
        }
        let log = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| "warn".to_owned());
        let child = command
            .env_remove("NOTIFY_SOCKET")
            .arg("--socket")
            .arg(folder.socket())
            .args(["--log", &log])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
        let mut daemon = Self { child, has_ended: false, folder };
        daemon.wait_until_it_listens()?;
        Ok(daemon)
    }

    /// Where clients connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.socket()
    }

    /// The permissions of the socket's file.
    pub(crate) fn mode(&self) -> Result<u32> {
        Ok(std::fs::metadata(self.socket())?.permissions().mode() & 0o777)
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Waits for its end, which it was asked for. It leaves no socket behind.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                return Err(format!("the service did not stop within {PATIENCE:?}").into());
            }
            std::thread::sleep(PAUSE);
        };
        self.has_ended = true;
        if !status.success() {
            return Err(format!("the service ended with {status}").into());
        }
        if self.socket().exists() {
            return Err("the service left its socket behind".into());
        }
        Ok(())
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(status) = Client::connect(self.socket()) {
            if let Some(exit) = self.child.try_wait()? {
                self.has_ended = true;
                return Err(format!("the service ended at once: {exit}").into());
            }
            if Instant::now() > deadline {
                return Err(format!("the service does not answer after {PATIENCE:?}: {status}").into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.has_ended {
            // Something went wrong. It may have ended just now, which is as good.
            let _: std::io::Result<()> = self.child.kill();
            let _: std::io::Result<ExitStatus> = self.child.wait();
        }
    }
}

/// A folder that only this user can enter, removed in the end.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("handle-watcher-tour-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary things.
        let _: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}
