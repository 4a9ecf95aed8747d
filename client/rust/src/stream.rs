//! A client as a stream of events, for any executor.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use handle_watcher::{Control, Event, Events, NotifiedPort, Notify, Result};

use crate::client::Client;

/// A client whose events are a `Stream`. Works under any executor, and needs none of its own threads: the watcher calls
/// the waker. The stream ends when the watcher has stopped. Level watches are refused; see
/// [`Client::into_stream`](crate::Client::into_stream).
#[derive(Debug)]
pub struct EventStream {
    client: Client<NotifiedPort>,
    /// Holds one: what is not given out yet can still be withdrawn by `unwatch`.
    events: Events,
    bell: Arc<WakerBell>,
}

/// The waker of the task that polled last.
#[derive(Debug, Default)]
struct WakerBell {
    waker: Mutex<Option<Waker>>,
}

impl WakerBell {
    fn leave(&self, waker: Waker) {
        let before = self.waker.lock().unwrap_or_else(PoisonError::into_inner).replace(waker);
        // Dropped after the lock was let go of: dropping a waker can run foreign code.
        drop(before);
    }
}

impl Notify for WakerBell {
    fn notify(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl EventStream {
    pub(crate) fn new(client: Client) -> Result<Self> {
        let bell = Arc::new(WakerBell::default());
        let client = client.into_notified(Arc::clone(&bell) as Arc<dyn Notify>)?;
        Ok(Self { client, events: Events::with_capacity(1), bell })
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self.get_mut();
        if this.client.control().check_process().is_err() {
            return Poll::Ready(None);
        }
        // The waker is left before the look, so that what comes after the look finds it.
        this.bell.leave(context.waker().clone());
        loop {
            let Ok(drained) = this.client.port_mut().drain(&mut this.events) else {
                return Poll::Ready(None);
            };
            if let Some(event) = this.events.as_slice().first() {
                return Poll::Ready(Some(*event));
            }
            if !drained.has_more {
                return Poll::Pending;
            }
        }
    }
}

impl std::ops::Deref for EventStream {
    type Target = Control;

    fn deref(&self) -> &Control {
        self.client.control()
    }
}
