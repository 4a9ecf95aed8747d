//! Signals as descriptors, so that the screen waits for them as for everything else.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use handle_watcher_client::{Code, Result, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::{flag, low_level};

/// Two pipes, readable once a signal has come.
pub(crate) struct SignalPipes {
    /// One that ends the program has come.
    pub(crate) ending: UnixStream,
    /// The terminal has another size.
    pub(crate) resized: UnixStream,
    signal: Arc<AtomicUsize>,
}

impl SignalPipes {
    /// From here on these signals end nothing by themselves.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there can be no pipes.
    pub(crate) fn new() -> Result<Self> {
        Self::open().map_err(|error| {
            Status::new(
                Code::ResourceExhausted,
                format!("signals cannot be waited for: {error}; close descriptors or raise RLIMIT_NOFILE"),
            )
        })
    }

    fn open() -> std::io::Result<Self> {
        let (ending, ending_writer) = UnixStream::pair()?;
        let (resized, resized_writer) = UnixStream::pair()?;
        resized.set_nonblocking(true)?;
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            // Which one it was is there before the pipe tells.
            flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(0))?;
            low_level::pipe::register(number, ending_writer.try_clone()?)?;
        }
        low_level::pipe::register(SIGWINCH, resized_writer)?;
        Ok(Self { ending, resized, signal })
    }

    /// The signal that has come.
    pub(crate) fn ending_signal(&self) -> i32 {
        i32::try_from(self.signal.load(Ordering::SeqCst)).unwrap_or(SIGTERM)
    }

    /// Forgets the changes of size so far.
    pub(crate) fn drain_resized(&mut self) {
        let mut buffer = [0; 64];
        while matches!(self.resized.read(&mut buffer), Ok(count) if count > 0) {}
    }

    /// Ends the program as if the signal had never been caught.
    pub(crate) fn end_by(signal: i32) {
        // It does not come back for a signal that ends programs.
        let _: std::io::Result<()> = low_level::emulate_default_handler(signal);
    }
}
