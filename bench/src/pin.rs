//! Which thread runs on which processor. Nothing is left to the scheduler: a hop between two halted processors of a
//! virtual machine costs ten times one on a shared processor, and the scheduler changes its mind.

use crate::Result;
use crate::cli::Cores;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    near: usize,
    far: usize,
}

impl Placement {
    /// Takes the first one or two processors this process may use.
    pub(crate) fn new(cores: Cores) -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let near = processors.next().ok_or("this process may use no processor")?;
        let far = match cores {
            Cores::One => near,
            Cores::Two => {
                processors.next().ok_or("--cores two needs two processors, this process may use one")?
            }
        };
        Ok(Self { near, far })
    }

    /// Where the thread between them runs (watcher, reactor, worker), or the other end of a direct pair.
    pub(crate) fn far(&self) -> usize {
        self.far
    }

    /// The same with nothing on the far processor, so that somebody else can have it.
    pub(crate) fn all_near(&self) -> Self {
        Self { near: self.near, far: self.near }
    }

    /// Moves the calling thread to the clients' processor.
    pub(crate) fn move_near(&self) -> Result<()> {
        move_to(self.near)
    }

    /// Moves the calling thread to the other processor.
    pub(crate) fn move_far(&self) -> Result<()> {
        move_to(self.far)
    }

    /// Runs `start` on the far processor, so that the threads of a library and the processes that it starts stay there.
    pub(crate) fn start_far<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        self.move_far()?;
        let outcome = start();
        self.move_near()?;
        outcome
    }

    /// Starts async-io's thread there. It starts with the first use and lives as long as the process.
    #[cfg(feature = "peers")]
    pub(crate) fn start_async_io(&self) -> Result<()> {
        let (socket, _other) = crate::pair::pair()?;
        let first_use = self.start_far(|| Ok(async_io::Async::new_nonblocking(socket)?))?;
        drop(first_use);
        Ok(())
    }
}

fn move_to(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}
