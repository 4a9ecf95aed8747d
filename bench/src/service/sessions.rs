//! Many clients with one socket each, all of them ready at once, again and again.

use crate::host::{Host, WithHost};
use crate::pair::{self, Taken};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject, share};
use crate::waiter::Waiter;
use crate::waiter::ours::Ours;
use crate::{Result, ours};
use handle_watcher_client::{Client, FrontPolicy, Mode, Watcher};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What a client opens at most: its sockets, its poll sets, the socket it watches and that one's other end.
const DESCRIPTORS_EACH: usize = 8;

/// `COUNT` clients of a service in a process of its own.
pub(crate) fn remote<const COUNT: usize>(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (host, address) = Host::service(placement)?;
    let subject = Sessions::open(COUNT, None, |_| ours::connect(&address, FrontPolicy::Off))?;
    Ok(Box::new(WithHost { subject, host }))
}

/// `COUNT` clients of a watcher in this process.
pub(crate) fn embedded<const COUNT: usize>(placement: &Placement) -> Result<Box<dyn Subject>> {
    let watcher = ours::watcher(placement)?;
    let attach = |watcher: Option<&Watcher>| {
        ours::attach(watcher.ok_or("there is no watcher to attach to")?, FrontPolicy::Off)
    };
    Ok(Box::new(Sessions::open(COUNT, Some(watcher), attach)?))
}

struct Sessions {
    // Dropped in this order: the clients leave before their watcher stops.
    sessions: Vec<Session>,
    _watcher: Option<Watcher>,
}

struct Session {
    waiter: Ours,
    watched: UnixStream,
    other: UnixStream,
}

impl Sessions {
    fn open(
        count: usize,
        watcher: Option<Watcher>,
        open: impl Fn(Option<&Watcher>) -> Result<Client>,
    ) -> Result<Self> {
        pair::require_descriptors(count * DESCRIPTORS_EACH)?;
        let mut sessions = Vec::with_capacity(count);
        for _ in 0..count {
            let (watched, other) = pair::pair()?;
            let waiter = Ours::new(open(watcher.as_ref())?, &watched, Mode::Edge)?;
            sessions.push(Session { waiter, watched, other });
        }
        Ok(Self { sessions, _watcher: watcher })
    }

    fn pass(&mut self) -> Result<()> {
        for session in &self.sessions {
            pair::send(&session.other)?;
        }
        for session in &mut self.sessions {
            session.take()?;
        }
        Ok(())
    }
}

impl Session {
    fn take(&mut self) -> Result<()> {
        loop {
            self.waiter.wait()?;
            match pair::take(&self.watched)? {
                Some(Taken::Message) => return Ok(()),
                Some(Taken::Hangup) => return Err("the other end of a session's socket is gone".into()),
                None => {}
            }
        }
    }
}

impl Subject for Sessions {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let count = self.sessions.len() as u64;
        let stretch = Stretch::begin()?;
        let (mut began, mut events) = (stretch.began(), 0);
        while began - stretch.began() < length {
            self.pass()?;
            let ended = Instant::now();
            recorder.record(share(ended - began, count));
            began = ended;
            events += count;
        }
        let slice = stretch.end(events)?;
        let per_second = slice.operations as f64 / slice.elapsed.as_secs_f64();
        Ok(slice.with_gauge("per_second", per_second))
    }
}
