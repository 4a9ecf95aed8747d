//! The watcher: one thread, spawned once, stopped once.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use handle_watcher_wire::{Code, Result, Status};

use crate::config::{ClientConfig, Config};
use crate::control::Control;
use crate::port::Port;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::sys::thread;
use crate::turn::Turn;

/// One dedicated thread that waits, for any number of clients.
///
/// The thread ends when the watcher is stopped or dropped; every live watch is told `Ended(ABORTED)`. Safe to use from
/// any thread.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    end: Arc<End>,
}

/// Lets every caller of `stop` wait for the end of the thread, not only the one that joins it.
#[derive(Debug, Default)]
struct End {
    is_reached: Mutex<bool>,
    reached: Condvar,
}

impl End {
    fn reach(&self) {
        *self.is_reached.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.reached.notify_all();
    }

    fn wait(&self) {
        let mut is_reached = self.is_reached.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_reached {
            is_reached = self.reached.wait(is_reached).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Watcher {
    /// Spawns the watcher thread and returns when it is set up. The thread blocks every signal for itself; no other
    /// thread is changed.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a configuration that cannot work, naming the field; `RESOURCE_EXHAUSTED` when
    /// descriptors, threads or address space ran out; `UNIMPLEMENTED` when the kernel lacks a facility.
    pub fn spawn(config: Config) -> Result<Self> {
        let (shared, commands) = Shared::new(config, None)?;
        let shared = Arc::new(shared);
        shared.set_has_thread();
        let end = Arc::new(End::default());
        let (ready, is_ready) = crossbeam_channel::bounded::<Result<()>>(1);
        let (thread_shared, thread_end) = (Arc::clone(&shared), Arc::clone(&end));
        let thread = std::thread::Builder::new()
            .name(shared.config.thread_name.clone())
            .spawn(move || {
                let set_up = set_up(&thread_shared);
                let failed = set_up.is_err();
                // Nobody listens any more only if the spawning thread panicked; then there is nothing to watch for.
                let is_heard = ready.send(set_up).is_ok();
                if !failed && is_heard {
                    run(Turn::new(thread_shared, commands));
                }
                thread_end.reach();
            })
            .map_err(|error| {
                Status::new(
                    Code::ResourceExhausted,
                    format!("the watcher thread could not be spawned: {error}"),
                )
            })?;
        let watcher = Self { shared, thread: Mutex::new(Some(thread)), end };
        is_ready.recv().unwrap_or_else(|_| {
            Err(Status::new(Code::Internal, "the watcher thread ended while it was set up"))
        })?;
        tracing::info!(target: "handle_watcher::watcher", name = %watcher.shared.config.thread_name, "spawned");
        Ok(watcher)
    }

    /// Makes a client: a control handle, which can be cloned and sent to other threads, and a port.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` at a limit; `UNAVAILABLE` after the stop; `FAILED_PRECONDITION` after a fork.
    pub fn client(&self, config: ClientConfig) -> Result<(Control, Port)> {
        Port::open(&self.shared, config)
    }

    /// Stops the watcher: every live watch is told `Ended(ABORTED)`, waiters return, the thread is joined. Calling it
    /// again, or from several threads, is harmless; each call returns when the thread has ended. From the watcher
    /// thread itself it only marks the stop and returns.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` after a fork: the thread exists only in the parent. `INTERNAL` if the watcher could not be
    /// told, as in a sandbox that forbids write(2) on an eventfd; it is told by the next caller who may.
    pub fn stop(&self) -> Result<()> {
        self.shared.check_process()?;
        self.shared.request_stop()?;
        if self.shared.is_watcher_thread() {
            return Ok(());
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            Some(thread) => {
                if thread.join().is_err() {
                    tracing::error!(target: "handle_watcher::watcher", "the watcher thread had panicked");
                }
                tracing::info!(target: "handle_watcher::watcher", "stopped");
            }
            None => self.end.wait(),
        }
        Ok(())
    }

    /// What the watcher did so far. Usable from any thread, also after the stop.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.stop().is_err() {
            // In a forked child there is no thread to join; its handle is left alone.
            let slot = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(slot.take());
        }
    }
}

fn set_up(shared: &Shared) -> Result<()> {
    shared.set_watcher_thread(std::thread::current().id());
    thread::block_all_signals().map_err(|error| {
        Status::new(Code::Internal, format!("the watcher thread could not block its signals: {error}"))
    })?;
    if let Some(processors) = &shared.config.affinity {
        thread::set_affinity(processors).map_err(|errno| {
            Status::new(
                Code::InvalidArgument,
                format!("Config::affinity is {processors:?}: {errno}; name processors this process may use"),
            )
        })?;
    }
    if shared.config.batch_scheduling
        && let Err(error) = thread::use_batch_scheduling()
    {
        tracing::debug!(target: "handle_watcher::watcher", %error, "SCHED_BATCH was refused; going on without");
    }
    Ok(())
}

/// Runs the loop. A panic in it is a fault of ours; even then every watch is told and every waiter returns.
fn run(mut turn: Turn) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| turn.run()));
    if outcome.is_err() {
        tracing::error!(target: "handle_watcher::watcher", "the watcher thread panicked; its watches are ended");
        turn.finish(Code::Internal);
    }
}
