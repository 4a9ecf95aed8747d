//! Watches and timers as futures, for any executor.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use handle_watcher::{
    Code, Control, Deadline, Event, EventKind, Events, Mode, NotifiedPort, Notify, Result, Signals, Status,
    TimerId, WatchId,
};

use crate::client::Client;

/// How many events one look at the port takes.
const BATCH: usize = 64;

/// A client whose watches and timers are awaited. Cheap to clone; clones are the same client. Works under any executor,
/// or none: the watcher thread calls the wakers, outside every lock, and a panic of one is caught and counted.
///
/// # Example
/// ```
/// use handle_watcher_client::{AsyncClient, Client, Signals};
/// use std::io::Write;
///
/// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// #     }
/// #     let mut future = std::pin::pin!(future);
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     loop {
/// #         let polled = future.as_mut().poll(&mut std::task::Context::from_waker(&waker));
/// #         if let std::task::Poll::Ready(output) = polled { return output }
/// #         std::thread::park();
/// #     }
/// # }
/// let client: AsyncClient = Client::embedded()?.into_async()?;
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut watch = client.watch(&reader, Signals::READABLE)?;
/// writer.write_all(b"x")?;
/// let satisfied = block_on(watch.ready())?;
/// assert!(satisfied.contains(Signals::READABLE));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AsyncClient {
    core: Arc<Core>,
}

/// Shared by every clone. While the lock is held nothing foreign runs: no waker is woken or dropped, and no call is made
/// that could post to the port and so come back here.
#[derive(Debug)]
struct Core {
    control: Control,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` only while the client is being made.
    client: Option<Client<NotifiedPort>>,
    events: Events,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Kept from call to call, so that no call allocates.
    woken: Vec<Waker>,
    /// Why nothing more will come.
    end: Option<Status>,
}

/// What one watch or timer has come to. Its index is the token. An event can only be its present owner's: a slot is
/// freed after its watch or timer was taken back, and from then on nothing of that is handed out.
#[derive(Debug, Default)]
struct Slot {
    told: Option<Event>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Dispatcher {
    core: std::sync::OnceLock<std::sync::Weak<Core>>,
}

impl Notify for Dispatcher {
    fn notify(&self) {
        if let Some(core) = self.core.get().and_then(std::sync::Weak::upgrade) {
            core.dispatch();
        }
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes every event to its slot and wakes who waits for it, after the lock was let go of.
    fn dispatch(&self) {
        let mut woken = {
            let mut state = self.lock();
            while state.take_batch() {}
            std::mem::take(&mut state.woken)
        };
        for waker in woken.drain(..) {
            waker.wake();
        }
        let mut state = self.lock();
        if state.woken.capacity() < woken.capacity() && state.woken.is_empty() {
            state.woken = woken;
        }
    }
}

impl State {
    /// True if more waits.
    fn take_batch(&mut self) -> bool {
        let Some(client) = &mut self.client else { return false };
        let drained = match client.port_mut().drain(&mut self.events) {
            Ok(drained) => drained,
            Err(status) => {
                self.end = Some(status);
                self.woken.extend(self.slots.iter_mut().filter_map(|slot| slot.waker.take()));
                return false;
            }
        };
        for event in self.events.iter() {
            let index = usize::try_from(event.token).unwrap_or(usize::MAX);
            let Some(slot) = self.slots.get_mut(index) else { continue };
            // Ended is the last event of a watch and stands for whatever came before it.
            slot.told = Some(*event);
            self.woken.extend(slot.waker.take());
        }
        drained.has_more
    }

    fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        })
    }

    /// Gives what was in the slot, for the caller to drop after it let go of the lock.
    fn free_slot(&mut self, index: usize) -> Slot {
        self.free.push(index);
        std::mem::take(&mut self.slots[index])
    }
}

impl Core {
    fn take_slot(&self) -> usize {
        self.lock().take_slot()
    }

    fn free_slot(&self, index: usize) {
        let freed = self.lock().free_slot(index);
        drop(freed);
    }

    /// What the slot was told, or why nothing more comes; otherwise leaves the waker.
    fn poll_slot(&self, index: usize, context: &Context<'_>) -> Poll<Result<Event>> {
        let mut left = Some(context.waker().clone());
        let polled = {
            let mut state = self.lock();
            let end = state.end.clone();
            let slot = &mut state.slots[index];
            match (slot.told.take(), end) {
                (Some(event), _) => Poll::Ready(Ok(event)),
                (None, Some(status)) => Poll::Ready(Err(status)),
                (None, None) => {
                    // The waker that was left before goes the other way.
                    std::mem::swap(&mut slot.waker, &mut left);
                    Poll::Pending
                }
            }
        };
        drop(left);
        polled
    }
}

impl AsyncClient {
    pub(crate) fn new(client: Client) -> Result<Self> {
        let dispatcher = Arc::new(Dispatcher { core: std::sync::OnceLock::new() });
        let control = client.control().clone();
        let state = State {
            client: None,
            events: Events::with_capacity(BATCH),
            slots: Vec::new(),
            free: Vec::new(),
            woken: Vec::new(),
            end: None,
        };
        let core = Arc::new(Core { control, state: Mutex::new(state) });
        dispatcher.core.get_or_init(|| Arc::downgrade(&core));
        let client = client.into_notified(dispatcher)?;
        core.lock().client = Some(client);
        // The first look; the notifier is called from here on.
        core.dispatch();
        Ok(Self { core })
    }

    /// The control handle, for what is not awaited.
    pub fn control(&self) -> &Control {
        &self.core.control
    }

    /// Watches a lent descriptor; await [`AsyncWatch::ready`]. Dropping the watch ends it.
    ///
    /// # Errors
    /// As [`Control::watch`].
    pub fn watch(&self, handle: impl AsFd, signals: Signals) -> Result<AsyncWatch> {
        let slot = self.core.take_slot();
        match self.core.control.watch(handle, signals, Mode::Once, slot as u64) {
            Ok(watch) => Ok(AsyncWatch { client: self.clone(), watch, slot, is_armed: true }),
            Err(status) => {
                self.core.free_slot(slot);
                Err(status)
            }
        }
    }

    /// Completes at or after `deadline`, never before. Dropping it cancels the timer.
    ///
    /// # Errors
    /// As [`Control::set_timer`].
    pub fn timer(&self, deadline: impl Into<Deadline>) -> Result<AsyncTimer> {
        let slot = self.core.take_slot();
        match self.core.control.set_timer(deadline, slot as u64) {
            Ok(timer) => Ok(AsyncTimer { client: self.clone(), timer, slot }),
            Err(status) => {
                self.core.free_slot(slot);
                Err(status)
            }
        }
    }
}

/// One awaited watch of an [`AsyncClient`].
#[derive(Debug)]
pub struct AsyncWatch {
    client: AsyncClient,
    watch: WatchId,
    slot: usize,
    is_armed: bool,
}

impl AsyncWatch {
    /// Completes when a condition of the watch holds, at once if one holds already. Each call waits anew; a call that
    /// is dropped before it completed loses nothing.
    ///
    /// # Errors
    /// Why the watch ended, if it did; `UNAVAILABLE` after the watcher stopped.
    pub fn ready(&mut self) -> Ready<'_> {
        Ready { watch: self }
    }

    /// The watch, for [`Control::change`] and the like.
    pub fn id(&self) -> WatchId {
        self.watch
    }

    fn poll_ready(&mut self, context: &Context<'_>) -> Poll<Result<Signals>> {
        if !self.is_armed {
            if let Err(status) = self.client.core.control.arm(self.watch) {
                return Poll::Ready(Err(self.cause_of_end().unwrap_or(status)));
            }
            self.is_armed = true;
        }
        match self.client.core.poll_slot(self.slot, context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(status)) => Poll::Ready(Err(status)),
            Poll::Ready(Ok(event)) => {
                self.is_armed = false;
                Poll::Ready(match event.kind {
                    EventKind::Ended => Err(event.to_status()),
                    _ => Ok(event.satisfied),
                })
            }
        }
    }

    /// The watch could not be armed: its last event says why, if it has come already.
    fn cause_of_end(&self) -> Option<Status> {
        let mut state = self.client.core.lock();
        let told = state.slots[self.slot].told.take()?;
        (told.kind == EventKind::Ended && told.status != Code::Ok).then(|| told.to_status())
    }
}

impl Drop for AsyncWatch {
    fn drop(&mut self) {
        // NOT_FOUND: it has ended, which is what is wanted.
        let _: Result<()> = self.client.core.control.unwatch(self.watch);
        self.client.core.free_slot(self.slot);
    }
}

/// The future of [`AsyncWatch::ready`].
#[derive(Debug)]
#[must_use = "a future does nothing before it is awaited"]
pub struct Ready<'a> {
    watch: &'a mut AsyncWatch,
}

impl Future for Ready<'_> {
    type Output = Result<Signals>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Signals>> {
        self.get_mut().watch.poll_ready(context)
    }
}

/// A timer of an [`AsyncClient`]; awaiting it gives nothing but the time.
#[derive(Debug)]
#[must_use = "a future does nothing before it is awaited"]
pub struct AsyncTimer {
    client: AsyncClient,
    timer: TimerId,
    slot: usize,
}

impl Future for AsyncTimer {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.client.core.poll_slot(self.slot, context).map(|told| told.map(drop))
    }
}

impl Drop for AsyncTimer {
    fn drop(&mut self) {
        // NOT_FOUND: it has fired.
        let _: Result<()> = self.client.core.control.cancel_timer(self.timer);
        self.client.core.free_slot(self.slot);
    }
}
