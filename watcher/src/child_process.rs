//! A child process as a handle: a pidfd, which becomes readable when the process has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use handle_watcher_wire::{Code, Result, Status};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process to wait for. Nothing is ever waited for in the sense of waitpid(2): the exit status stays the caller's.
#[derive(Debug)]
pub struct ChildProcess {
    descriptor: OwnedFd,
}

impl ChildProcess {
    /// Opens the process with this id. Call it before the exit status is collected, so that the id cannot have been
    /// given to another process.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an id that no process can have; `NOT_FOUND` if there is no such process;
    /// `RESOURCE_EXHAUSTED` if descriptors ran out; `INTERNAL` with the kernel's word for anything else.
    pub fn open(id: u32) -> Result<Self> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| {
            Status::new(Code::InvalidArgument, format!("{id} is no process id; pass the id of a child"))
        })?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
            Errno::SRCH => Status::new(
                Code::NotFound,
                format!("there is no process {id}; open a child before its exit status is collected"),
            ),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::new(
                Code::ResourceExhausted,
                format!(
                    "process {id} could not be opened: {errno}; close descriptors or raise RLIMIT_NOFILE"
                ),
            ),
            other => Status::new(Code::Internal, format!("process {id} could not be opened: {other}")),
        })?;
        Ok(Self { descriptor })
    }

    /// Opens a child that the standard library spawned.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of(child: &std::process::Child) -> Result<Self> {
        Self::open(child.id())
    }
}

impl AsFd for ChildProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<ChildProcess> for OwnedFd {
    fn from(child: ChildProcess) -> Self {
        child.descriptor
    }
}
