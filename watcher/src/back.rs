//! The back: what serves the watches that no front does. A poll set that the watcher thread waits on, or a service that
//! has one.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use handle_watcher_wire::protocol::{Arm, Change, Request, Watch};
use handle_watcher_wire::{Code, Mode, Result as Answer, Signals, Status};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::kernel_flags::to_flags;
use crate::link::Link;
use crate::sys::descriptor::borrow;
use crate::sys::epoll::Epoll;

/// The service refused; [`Back::refusal`] knows why.
const REFUSED: Errno = Errno::REMOTEIO;

/// What an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) union: Signals,
    /// Reported at each new readiness; otherwise once, and off then.
    pub(crate) is_persistent: bool,
}

/// Where the kernel entries are that the fronts do not have. Called under the lock of the number's node.
///
/// Of a service's entries the local set has a silent one of each number: nobody waits on it, and it proves which file
/// the number means.
#[derive(Debug)]
pub(crate) struct Back {
    set: Epoll,
    remote: Option<Remote>,
}

#[derive(Debug)]
struct Remote {
    link: Arc<Link>,
    numbers: Mutex<AHashMap<RawFd, Number>>,
}

/// What the service knows of one number.
#[derive(Debug)]
enum Number {
    Told(Entry),
    Refused(Status),
}

impl Back {
    pub(crate) fn new(link: Option<Arc<Link>>) -> std::io::Result<Self> {
        let remote = link.map(|link| Remote { link, numbers: Mutex::default() });
        Ok(Self { set: Epoll::new()?, remote })
    }

    /// The local set.
    pub(crate) fn set(&self) -> &Epoll {
        &self.set
    }

    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        self.remote.as_ref().map(|remote| &remote.link)
    }

    /// Adds an entry whose reports carry `token`. There is none of this number, but the local set may have kept that of
    /// the same file, closed under this number and duplicated back.
    pub(crate) fn add(&self, number: RawFd, entry: Entry, token: u64) -> Result<(), Errno> {
        let Some(remote) = &self.remote else {
            return match self.set.add(number, flags(entry), token) {
                Err(Errno::EXIST) => self.set.modify(number, flags(entry), token),
                other => other,
            };
        };
        match self.set.add(number, EventFlags::ONESHOT, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        // What was passed is what was added, if it still is there afterwards.
        remote.watch(number, entry, token).and_then(|()| self.set.prove(number)).inspect_err(|_| {
            remote.forget(number);
            // If the number is closed by now there is nothing to take out.
            let _: Result<(), Errno> = self.set.delete(number);
        })
    }

    pub(crate) fn modify(&self, number: RawFd, entry: Entry, token: u64) -> Result<(), Errno> {
        let Some(remote) = &self.remote else { return self.set.modify(number, flags(entry), token) };
        self.set.prove(number)?;
        remote.change(number, entry, token)
    }

    /// Takes an entry out; afterwards nobody holds a reference to its file.
    pub(crate) fn delete(&self, number: RawFd) -> Result<(), Errno> {
        if let Some(remote) = &self.remote {
            remote.unwatch(number);
        }
        self.set.delete(number)
    }

    /// Whether the number is still the file of its entry.
    pub(crate) fn prove(&self, number: RawFd) -> Result<(), Errno> {
        self.set.prove(number)
    }

    /// The entry's number is another file's by now: the kernel has forgotten it, but a service would not.
    pub(crate) fn abandon(&self, number: RawFd) {
        if let Some(remote) = &self.remote {
            remote.forget(number);
        }
    }

    /// Why the service refused a number, if it did.
    pub(crate) fn refusal(&self, errno: Errno, number: RawFd) -> Option<Status> {
        if errno != REFUSED {
            return None;
        }
        match self.remote.as_ref()?.numbers().remove(&number) {
            Some(Number::Refused(status)) => Some(status),
            _ => None,
        }
    }

    /// What a row ends with whose entry could not be changed.
    pub(crate) fn end_code(&self, errno: Errno, number: RawFd) -> Code {
        self.refusal(errno, number).map_or(Code::Internal, |status| status.code())
    }
}

impl Remote {
    fn numbers(&self) -> MutexGuard<'_, AHashMap<RawFd, Number>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, number: RawFd, entry: Entry, token: u64) -> Result<(), Errno> {
        let id = id_of(number);
        let mode = mode_of(entry);
        let watch = Watch { id, handle: id, token, signals: entry.union, mode, deadline_ns: 0 };
        let answer = self.link.call(&Request::Watch(watch), Some(borrow(number)?));
        self.note(number, entry, answer)
    }

    fn change(&self, number: RawFd, entry: Entry, token: u64) -> Result<(), Errno> {
        let id = id_of(number);
        let is_same = matches!(self.numbers().get(&number), Some(Number::Told(told)) if *told == entry);
        let request = if is_same && !entry.union.is_empty() {
            Request::Arm(Arm { id, token, deadline_ns: 0 })
        } else {
            Request::Change(Change { id, token, signals: entry.union, mode: mode_of(entry) })
        };
        let answer = self.ask(&request);
        self.note(number, entry, answer)
    }

    fn unwatch(&self, number: RawFd) {
        self.numbers().remove(&number);
        // NOT_FOUND: the service has ended it already. UNAVAILABLE: it has ended everything.
        let _: Answer<()> = self.link.call(&Request::Unwatch { id: id_of(number) }, None);
    }

    fn forget(&self, number: RawFd) {
        let known = self.numbers().get(&number).map(|known| matches!(known, Number::Told(_)));
        if known == Some(true) {
            self.numbers().remove(&number);
            let _: Answer<()> = self.ask(&Request::Unwatch { id: id_of(number) });
        }
    }

    /// Waits for the reply only if what was told before it must not come afterwards.
    fn ask(&self, request: &Request<'_>) -> Answer<()> {
        if self.link.is_exact() { self.link.call(request, None) } else { self.link.tell(request) }
    }

    fn note(&self, number: RawFd, entry: Entry, answer: Answer<()>) -> Result<(), Errno> {
        let (known, result) = match answer {
            Ok(()) => (Number::Told(entry), Ok(())),
            Err(status) => (Number::Refused(status), Err(REFUSED)),
        };
        self.numbers().insert(number, known);
        result
    }
}

fn flags(entry: Entry) -> EventFlags {
    to_flags(entry.union) | if entry.is_persistent { EventFlags::ET } else { EventFlags::ONESHOT }
}

fn mode_of(entry: Entry) -> Mode {
    if entry.is_persistent { Mode::Edge } else { Mode::Once }
}

/// The number is the id: at any time there is at most one entry of it.
fn id_of(number: RawFd) -> u64 {
    u64::from(number.cast_unsigned())
}
