//! Watches and timers as futures, for any executor.

use std::future::Future;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Waker};

use handle_watcher::{
    Control, Deadline, Event, EventKind, Events, Mode, NotifiedPort, Notify, Result, Signals, Status,
    TimerId, Token, WatchId,
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
    /// The last clone that goes drops the port, on the thread it goes on.
    _life: Arc<Life>,
}

/// Shared by every clone and, weakly, by the notifier.
///
/// Nothing foreign runs under `state`: no waker is woken or dropped, and no call is made that could post to a port. The
/// drainer may run other clients' notifiers, so nobody waits for its lock in a notifier: who finds it taken leaves word.
#[derive(Debug)]
struct Core {
    control: Control,
    drainer: Mutex<Drainer>,
    /// Somebody wants another look at the port.
    again: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Drainer {
    client: Option<Client<NotifiedPort>>,
    events: Events,
    /// Kept from call to call, so that no call allocates.
    woken: Vec<Waker>,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Why nothing more will come.
    end: Option<Status>,
}

/// What one watch or timer has come to. Its token is its place and its generation, which counts from 1, so no token that
/// a caller would choose is taken for one.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    told: Option<Event>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    index: u32,
    generation: u32,
}

impl Place {
    fn token(self) -> Token {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

#[derive(Debug, Default)]
struct Dispatcher {
    core: OnceLock<Weak<Core>>,
}

impl Notify for Dispatcher {
    fn notify(&self) {
        if let Some(core) = self.core.get().and_then(Weak::upgrade) {
            core.dispatch();
        }
    }
}

#[derive(Debug)]
struct Life {
    core: Arc<Core>,
}

impl Drop for Life {
    fn drop(&mut self) {
        let drainer = if self.core.control.check_process().is_ok() {
            self.core.drainer.lock().ok()
        } else {
            // After a fork the lock may be held by a thread that is not here.
            self.core.drainer.try_lock().ok()
        };
        let client = drainer.and_then(|mut drainer| drainer.client.take());
        drop(client);
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes every event to its slot and wakes who waits for it, holding no lock meanwhile.
    fn dispatch(&self) {
        loop {
            self.again.store(true, Ordering::SeqCst);
            let mut drainer = match self.drainer.try_lock() {
                Ok(drainer) => drainer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever has it looks once more when it let go.
                Err(TryLockError::WouldBlock) => return,
            };
            self.again.store(false, Ordering::SeqCst);
            let has_more = self.take_batch(&mut drainer);
            let mut woken = std::mem::take(&mut drainer.woken);
            drop(drainer);
            let panic = wake_all(&mut woken);
            if let Ok(mut drainer) = self.drainer.try_lock()
                && drainer.woken.capacity() == 0
            {
                drainer.woken = woken;
            }
            if let Some(panic) = panic {
                // Passed on when everybody was woken: the port counts it. What may be left is looked at first.
                if has_more || self.again.load(Ordering::SeqCst) {
                    self.dispatch();
                }
                resume_unwind(panic);
            }
            if !has_more && !self.again.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// True if more waits.
    fn take_batch(&self, drainer: &mut Drainer) -> bool {
        let Some(client) = &mut drainer.client else { return false };
        let drained = client.port_mut().drain(&mut drainer.events);
        let mut state = self.lock();
        match drained {
            Ok(drained) => {
                for event in &drainer.events {
                    drainer.woken.extend(state.tell(event));
                }
                drained.has_more
            }
            Err(status) => {
                state.end = Some(status);
                drainer.woken.extend(state.slots.iter_mut().filter_map(|slot| slot.waker.take()));
                false
            }
        }
    }

    fn take_slot(&self) -> Result<Place> {
        // Before the lock, which after a fork may be held by a thread that is not here.
        self.control.check_process()?;
        Ok(self.lock().take_slot())
    }

    fn free_slot(&self, place: Place) {
        let freed = self.lock().free_slot(place);
        drop(freed);
    }

    /// What the slot was told, or why nothing more comes; otherwise leaves the waker.
    fn poll_slot(&self, place: Place, context: &Context<'_>) -> Poll<Result<Event>> {
        self.control.check_process()?;
        let mut left = Some(context.waker().clone());
        let polled = {
            let mut state = self.lock();
            let end = state.end.clone();
            let slot = &mut state.slots[place.index as usize];
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

/// Wakes all of them, whatever one of them does. Gives the first panic.
fn wake_all(woken: &mut Vec<Waker>) -> Option<Box<dyn std::any::Any + Send>> {
    let mut panic = None;
    for waker in woken.drain(..) {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panic.get_or_insert(cause);
        }
    }
    panic
}

impl State {
    /// Gives the waker of who waits for it.
    fn tell(&mut self, event: &Event) -> Option<Waker> {
        let index = usize::try_from(event.token & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get_mut(index)?;
        if event.kind == EventKind::Wake || event.token >> 32 != u64::from(slot.generation) {
            return None;
        }
        // Ended is the last event of a watch and stands for whatever came before it.
        slot.told = Some(*event);
        slot.waker.take()
    }

    fn take_slot(&mut self) -> Place {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 1, ..Slot::default() });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        Place { index, generation: self.slots[index as usize].generation }
    }

    /// Gives what was in the slot, for the caller to drop after it let go of the lock.
    fn free_slot(&mut self, place: Place) -> Slot {
        let slot = &mut self.slots[place.index as usize];
        let next = Slot { generation: place.generation.wrapping_add(1).max(1), ..Slot::default() };
        self.free.push(place.index);
        std::mem::replace(slot, next)
    }
}

impl AsyncClient {
    pub(crate) fn new(client: Client) -> Result<Self> {
        let dispatcher = Arc::new(Dispatcher::default());
        let drainer = Drainer { client: None, events: Events::with_capacity(BATCH), woken: Vec::new() };
        let core = Arc::new(Core {
            control: client.control().clone(),
            drainer: Mutex::new(drainer),
            again: AtomicBool::new(false),
            state: Mutex::default(),
        });
        dispatcher.core.get_or_init(|| Arc::downgrade(&core));
        let client = client.into_notified(dispatcher)?;
        core.drainer.lock().unwrap_or_else(PoisonError::into_inner).client = Some(client);
        // The first look, since a notifier that was called before found no port to drain.
        core.dispatch();
        Ok(Self { _life: Arc::new(Life { core: Arc::clone(&core) }), core })
    }

    /// The control handle, for what is not awaited. Events of watches and timers made through it reach nobody, and a
    /// watch that it unwatches leaves its `ready` waiting; drop the [`AsyncWatch`] instead.
    pub fn control(&self) -> &Control {
        &self.core.control
    }

    /// Watches a lent descriptor; await [`AsyncWatch::ready`]. Dropping the watch ends it; drop it before the
    /// descriptor.
    ///
    /// # Errors
    /// As [`Control::watch`].
    pub fn watch(&self, handle: impl AsFd, signals: Signals) -> Result<AsyncWatch> {
        let place = self.core.take_slot()?;
        match self.core.control.watch(handle, signals, Mode::Once, place.token()) {
            Ok(watch) => Ok(AsyncWatch { client: self.clone(), watch, place, is_armed: true, end: None }),
            Err(status) => {
                self.core.free_slot(place);
                Err(status)
            }
        }
    }

    /// Completes at or after `deadline`, never before. Dropping it cancels the timer.
    ///
    /// # Errors
    /// As [`Control::set_timer`].
    pub fn timer(&self, deadline: impl Into<Deadline>) -> Result<AsyncTimer> {
        let place = self.core.take_slot()?;
        match self.core.control.set_timer(deadline, place.token()) {
            Ok(timer) => Ok(AsyncTimer { client: self.clone(), timer, place, is_done: false }),
            Err(status) => {
                self.core.free_slot(place);
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
    place: Place,
    is_armed: bool,
    end: Option<Status>,
}

impl AsyncWatch {
    /// Completes when a condition of the watch holds, or has held since the watch was made or the last `ready`
    /// completed: read until "would block", then await again. A call that is dropped before it completed loses nothing.
    ///
    /// # Errors
    /// Why the watch ended, if it did; `UNAVAILABLE` after the watcher stopped.
    pub fn ready(&mut self) -> Ready<'_> {
        Ready { watch: self }
    }

    /// Replaces what the watch waits for. What it was told before is forgotten.
    ///
    /// # Errors
    /// As [`Control::change`].
    pub fn change(&mut self, signals: Signals) -> Result<()> {
        self.client.core.control.change(self.watch, signals)?;
        let told = self.client.core.lock().slots[self.place.index as usize].told.take();
        if told.is_some() {
            self.is_armed = false;
        }
        Ok(())
    }

    /// The watch, to know it by.
    pub fn id(&self) -> WatchId {
        self.watch
    }

    fn poll_ready(&mut self, context: &Context<'_>) -> Poll<Result<Signals>> {
        if let Some(status) = &self.end {
            return Poll::Ready(Err(status.clone()));
        }
        if !self.is_armed {
            let armed = self.client.core.control.arm(self.watch);
            // NOT_FOUND: it has ended, and the slot was or will be told why.
            self.is_armed = true;
            if let Err(status) = armed
                && self.client.core.poll_slot(self.place, context).is_pending()
            {
                return Poll::Ready(Err(status));
            }
        }
        match self.client.core.poll_slot(self.place, context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(status)) => Poll::Ready(Err(status)),
            Poll::Ready(Ok(event)) => {
                self.is_armed = false;
                if event.kind == EventKind::Ended {
                    self.end = Some(event.to_status());
                    return Poll::Ready(Err(event.to_status()));
                }
                Poll::Ready(Ok(event.satisfied))
            }
        }
    }
}

impl Drop for AsyncWatch {
    fn drop(&mut self) {
        if self.client.core.control.check_process().is_err() {
            return;
        }
        // NOT_FOUND: it has ended, which is what is wanted.
        let _: Result<()> = self.client.core.control.unwatch(self.watch);
        self.client.core.free_slot(self.place);
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
    place: Place,
    is_done: bool,
}

impl Future for AsyncTimer {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if this.is_done {
            return Poll::Ready(Ok(()));
        }
        let polled = this.client.core.poll_slot(this.place, context);
        this.is_done = matches!(polled, Poll::Ready(Ok(_)));
        polled.map(|told| told.map(drop))
    }
}

impl Drop for AsyncTimer {
    fn drop(&mut self) {
        if self.client.core.control.check_process().is_err() {
            return;
        }
        // NOT_FOUND: it has fired.
        let _: Result<()> = self.client.core.control.cancel_timer(self.timer);
        self.client.core.free_slot(self.place);
    }
}
