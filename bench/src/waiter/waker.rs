//! Handle Watcher as a future, under the smallest executor there is: poll, park the thread, poll again.

use crate::waiter::{OfOurs, Waiter};
use crate::{Result, ours};
use handle_watcher_client::{AsyncClient, AsyncWatch, Control, FrontPolicy, Signals, Watcher};
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A watch to await, and the waker of the thread that does.
pub(crate) struct Awaited {
    watch: AsyncWatch,
    client: AsyncClient,
    /// Made by the first wait, because it belongs to the thread that waits; kept, as every executor keeps it.
    waker: Option<Waker>,
}

impl Awaited {
    /// Watches `socket`.
    pub(crate) fn new(watcher: &Watcher, socket: &UnixStream) -> Result<Self> {
        let client = ours::attach(watcher, FrontPolicy::default())?.into_async()?;
        Ok(Self { watch: client.watch(socket, Signals::READABLE)?, client, waker: None })
    }
}

impl Waiter for Awaited {
    /// Awaiting arms the watch again, so there is nothing to do in `arm`.
    fn wait(&mut self) -> Result<()> {
        let waker = self.waker.get_or_insert_with(|| Arc::new(Unpark(thread::current())).into());
        let mut context = Context::from_waker(waker);
        let mut ready = pin!(self.watch.ready());
        loop {
            match ready.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return Ok(outcome.map(drop)?),
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl OfOurs for Awaited {
    fn control(&self) -> &Control {
        self.client.control()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
