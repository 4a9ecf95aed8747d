//! The thread that asks the service.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use handle_watcher_client::{Code, Control, Result, Status};

use super::sample::Sample;
use crate::connection::Connection;

/// Asks at each interval, and wakes the screen. Ends by itself after this value is dropped.
pub(crate) struct Sampler {
    samples: Receiver<Result<Sample>>,
    /// Dropped with the sampler, which ends the thread.
    _alive: Sender<()>,
}

impl Sampler {
    /// Starts it.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there can be no thread.
    pub(crate) fn start(
        connection: Connection,
        socket: &OsStr,
        interval: Duration,
        control: Control,
    ) -> Result<Self> {
        let (sender, samples) = channel();
        let (alive, ending) = channel();
        let mut asker = Asker { connection: Some(connection), socket: socket.to_owned() };
        let ask = move || {
            let mut next = Instant::now();
            // The screen has gone when nobody takes a sample or can be woken.
            while sender.send(asker.ask()).is_ok() && control.wake().is_ok() {
                // What took too long is not made up for.
                next = (next + interval).max(Instant::now());
                let rest = next.saturating_duration_since(Instant::now());
                if ending.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("hwctl-sample".to_owned()).spawn(ask);
        spawned.map(|_| Self { samples, _alive: alive }).map_err(|error| {
            Status::new(
                Code::ResourceExhausted,
                format!("no thread for asking the service: {error}; raise RLIMIT_NPROC"),
            )
        })
    }

    /// The next sample, if there is one.
    pub(crate) fn next(&self) -> Option<Result<Sample>> {
        self.samples.try_recv().ok()
    }
}

struct Asker {
    connection: Option<Connection>,
    socket: OsString,
}

impl Asker {
    /// A service that went away is looked for again each time.
    fn ask(&mut self) -> Result<Sample> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.socket)?,
        };
        let sample = Sample::take(&mut connection)?;
        self.connection = Some(connection);
        Ok(sample)
    }
}
