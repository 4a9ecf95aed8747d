//! A client that is told through a channel, for `select!` beside other channels.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use handle_watcher::{Control, Events, NotifiedPort, Notify, Result};

use crate::client::Client;

/// A client whose receiver gets one message when events wait, merged: it is there or not, however many events there
/// are. Use [`receiver`](Self::receiver) in `crossbeam_channel::select!` and call [`drain`](Self::drain) when it gives
/// something. Level watches are refused: nobody comes back to be told again.
///
/// # Example
/// ```
/// use crossbeam_channel::{select, unbounded};
/// use handle_watcher_client::{Client, Events, Mode, Signals};
/// use std::io::Write;
///
/// let (reader, mut writer) = std::io::pipe()?;
/// let (_jobs, more_jobs) = unbounded::<String>();
/// let mut client = Client::embedded()?.into_channel()?;
/// client.watch(&reader, Signals::READABLE, Mode::Once, 7)?;
/// writer.write_all(b"x")?;
/// let mut events = Events::with_capacity(16);
/// select! {
///     recv(client.receiver()) -> _ => assert_eq!(client.drain(&mut events)?, 1),
///     recv(more_jobs) -> _ => unreachable!("nobody sends a job"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ChannelClient {
    client: Client<NotifiedPort>,
    receiver: Receiver<()>,
    bell: Arc<ChannelBell>,
}

#[derive(Debug)]
struct ChannelBell {
    sender: Sender<()>,
}

impl Notify for ChannelBell {
    fn notify(&self) {
        match self.sender.try_send(()) {
            // Full: the message that is there stands for this one too. Disconnected: nobody listens any more.
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }
}

impl ChannelClient {
    pub(crate) fn new(client: Client) -> Result<Self> {
        let (sender, receiver) = bounded(1);
        let bell = Arc::new(ChannelBell { sender });
        let client = client.into_notified(Arc::clone(&bell) as Arc<dyn Notify>)?;
        Ok(Self { client, receiver, bell })
    }

    /// Gets one message when events wait. Clones of it get the same message once between them.
    pub fn receiver(&self) -> &Receiver<()> {
        &self.receiver
    }

    /// Hands out what is there, without blocking, at most what `events` has room for. If more waits, the receiver gets
    /// another message at once.
    ///
    /// # Errors
    /// As [`Port::drain`](handle_watcher::Port::drain).
    pub fn drain(&mut self, events: &mut Events) -> Result<usize> {
        // Taken back first: what came before this drain is handed out by it.
        while self.receiver.try_recv().is_ok() {}
        let drained = self.client.port_mut().drain(events)?;
        if drained.has_more {
            self.bell.notify();
        }
        Ok(drained.count)
    }
}

impl std::ops::Deref for ChannelClient {
    type Target = Control;

    fn deref(&self) -> &Control {
        self.client.control()
    }
}
