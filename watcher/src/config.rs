//! How a watcher and a client are set up. Every default has its reason beside it.

use std::time::Duration;

use handle_watcher_wire::{Code, Result, Status};

use crate::front::FrontPolicy;

/// The most rows one watcher can be configured for: the address space of 256 million rows is 16 GiB.
const MOST_ROWS: u64 = 1 << 28;
/// The most clients: their wake rows and ports must stay small beside the watches.
const MOST_CLIENTS: u32 = 1 << 20;

/// The set-up of a watcher. Build it from the default: `Config { spin: …, ..Config::default() }`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the watcher thread, as debuggers and `top -H` show it; the kernel keeps 15 bytes.
    /// Default `handle-watcher`, so that a stray thread explains itself.
    pub thread_name: String,
    /// Processors the watcher thread may run on; `None` leaves it to the kernel.
    /// Default `None`: only the program knows which processor it can spare.
    pub affinity: Option<Vec<usize>>,
    /// Run the watcher thread under SCHED_BATCH, so that it does not preempt the writer that woke it. A refusal is
    /// ignored. Default true: on a shared core it saves more than one context switch a round trip.
    pub batch_scheduling: bool,
    /// How long the watcher thread polls without sleeping after it found something.
    /// Default zero: spinning takes a whole processor and pays only where one is idle.
    pub spin: Duration,
    /// How many ready descriptors one turn takes from the kernel, 1 to 65536.
    /// Default 512: enough that a full turn hides the price of the system call, small enough (8 KiB) to stay in cache.
    pub poll_batch: usize,
    /// How many timers one turn expires before it looks at descriptors and commands again, 1 to 65536.
    /// Default 1024: about a tenth of a millisecond of work.
    pub timer_batch: usize,
    /// How many clients there may be at once. Default 4096: a client is a port, and thousands of isolates have one.
    pub client_limit: u32,
    /// How many watches one client may have at once. Default 1 048 576: far above any descriptor limit, so that
    /// many watches may share a descriptor, and still a bound on a leak.
    pub watch_limit: u32,
    /// How many timers one client may have at once. Default 2 097 152: a million live ones and as many again while
    /// they are replaced.
    pub timer_limit: u32,
    /// How many watches, timers and wake flags all clients together may have at once. Only address space is
    /// reserved for it, 64 bytes each. Default 16 777 216 (1 GiB of addresses, no memory).
    pub row_limit: u32,
    /// How many commands may wait for the watcher thread before a caller waits for it. 1 to 1 048 576.
    /// Default 1024: a burst fits, what a turn takes at most stays far under a millisecond, and the queue itself costs
    /// 40 KiB.
    pub command_limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            thread_name: "handle-watcher".to_owned(),
            affinity: None,
            batch_scheduling: true,
            spin: Duration::ZERO,
            poll_batch: 512,
            timer_batch: 1024,
            client_limit: 4096,
            watch_limit: 1 << 20,
            timer_limit: 1 << 21,
            row_limit: 1 << 24,
            command_limit: 1024,
        }
    }
}

impl Config {
    /// Refuses what could not work, before anything was made.
    pub(crate) fn check(&self) -> Result<()> {
        let batches = [("poll_batch", self.poll_batch), ("timer_batch", self.timer_batch)];
        for (name, value) in batches {
            check_range(name, value as u64, 1, 1 << 16)?;
        }
        check_range("command_limit", self.command_limit as u64, 1, 1 << 20)?;
        check_range("client_limit", self.client_limit.into(), 1, MOST_CLIENTS.into())?;
        check_range("row_limit", self.row_limit.into(), 1, MOST_ROWS)?;
        if self.thread_name.contains('\0') {
            return Err(Status::new(
                Code::InvalidArgument,
                "Config::thread_name contains a NUL byte, which no thread name can; take it out",
            ));
        }
        Ok(())
    }
}

fn check_range(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Status::new(
        Code::InvalidArgument,
        format!("Config::{name} is {value}; it must be between {least} and {most}"),
    ))
}

/// The set-up of one client.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// How long a wait looks at its queue without sleeping before it parks. Default zero, for the reason given at
    /// [`Config::spin`]. Never have more spinning threads than processors.
    pub spin: Duration,
    /// Which watches the waiting thread serves itself, without a hop. Default [`FrontPolicy::Adaptive`]: hot watches
    /// cost no hop, cold ones no move.
    pub front: FrontPolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_legal_and_bad_values_are_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let bad = Config { poll_batch: 0, ..Config::default() };
        let status = bad.check().expect_err("zero is no batch");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("poll_batch is 0"), "{status}");
        assert!(Config { command_limit: usize::MAX, ..Config::default() }.check().is_err());
        assert!(Config { thread_name: "a\0b".to_owned(), ..Config::default() }.check().is_err());
    }
}
