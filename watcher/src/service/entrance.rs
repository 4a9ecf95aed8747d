//! The one way into a service: a lock that nobody waits for.
//!
//! Whoever comes leaves word of why. One of those who are there serves all of it: on the watcher thread, nearly always.
//! Others, such as a thread that stops the service, may serve as well; the watcher goes on then, and never waits for
//! them.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::notify::Notify;
use crate::service::server::Server;

/// Why somebody comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Something of the service's own waits in its port.
    Own,
    /// Events wait in the port of the session in this slot, if it still has this number.
    Events { slot: u32, number: u64 },
    /// The service is to stop.
    Stop,
}

#[derive(Debug)]
pub(super) struct Entrance {
    server: Mutex<Option<Server>>,
    errands: Mutex<Vec<Errand>>,
    /// How many errands wait; looked at without the lock.
    waiting: AtomicUsize,
    /// The service has stopped.
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Entrance {
    pub(super) fn new() -> Self {
        Self {
            server: Mutex::new(None),
            errands: Mutex::default(),
            waiting: AtomicUsize::new(0),
            is_over: Mutex::new(false),
            over: Condvar::new(),
        }
    }

    /// Lets the service begin. What came before it was there is done now.
    pub(super) fn open(&self, server: Server) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.serve_waiting();
    }

    /// Does an errand, or leaves it to whoever is inside.
    pub(super) fn enter(&self, errand: Errand) {
        match self.try_lock() {
            Some(server) => self.serve(server, &[errand]),
            None => {
                let mut errands = self.lock_errands();
                errands.push(errand);
                self.waiting.store(errands.len(), Ordering::SeqCst);
            }
        }
        self.serve_waiting();
    }

    /// Waits until the service has stopped.
    pub(super) fn wait_until_over(&self) {
        let mut is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_over {
            is_over = self.over.wait(is_over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever leaves an errand looks at the lock afterwards, and whoever lets go of the lock looks at the errands
    /// afterwards, so one of the two sees the other.
    fn serve_waiting(&self) {
        loop {
            fence(Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            let Some(server) = self.try_lock() else { return };
            if server.is_none() {
                return;
            }
            let errands = {
                let mut errands = self.lock_errands();
                self.waiting.store(0, Ordering::SeqCst);
                std::mem::take(&mut *errands)
            };
            self.serve(server, &errands);
        }
    }

    fn serve(&self, mut server: MutexGuard<'_, Option<Server>>, errands: &[Errand]) {
        let Some(service) = server.as_mut() else {
            if !self.is_over() {
                let mut waiting = self.lock_errands();
                waiting.extend_from_slice(errands);
                self.waiting.store(waiting.len(), Ordering::SeqCst);
            }
            return;
        };
        for errand in errands {
            match *errand {
                Errand::Own => service.turn(),
                Errand::Events { slot, number } => service.tell(slot, number),
                Errand::Stop => service.stop(),
            }
        }
        if service.is_stopped() {
            let service = server.take();
            drop(server);
            // Not under the lock: what ends here may call.
            drop(service);
            *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.over.notify_all();
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Server>>> {
        match self.server.try_lock() {
            Ok(server) => Some(server),
            // A panic inside is a fault of ours; the others are still served.
            Err(TryLockError::Poisoned(server)) => Some(server.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock_errands(&self) -> MutexGuard<'_, Vec<Errand>> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Comes with the same errand each time. Holds no service alive.
#[derive(Debug)]
pub(super) struct Messenger {
    entrance: Weak<Entrance>,
    errand: Errand,
}

impl Messenger {
    pub(super) fn new(entrance: &Arc<Entrance>, errand: Errand) -> Arc<Self> {
        Arc::new(Self { entrance: Arc::downgrade(entrance), errand })
    }
}

impl Notify for Messenger {
    fn notify(&self) {
        if let Some(entrance) = self.entrance.upgrade() {
            entrance.enter(self.errand);
        }
    }
}
