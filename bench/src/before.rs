//! The design people write first, and which Handle Watcher replaces: one thread around `mio::Poll`, a channel of events
//! for each client, and a command plus a wake for everything a client wants, re-arming included.

use crate::Result;
use crate::pin::Placement;
use crate::waiter::Waiter;
use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

const WAKE: Token = Token(usize::MAX);
const BATCH: usize = 1024;

/// What clients ask for.
enum Command {
    /// Watch this descriptor and report to this channel.
    Watch(RawFd, Sender<()>),
    /// Report the watch of that number once more.
    Arm(usize),
    Stop,
}

/// The naive watcher: a thread, and the way to it.
pub(crate) struct Before {
    door: Door,
    thread: Option<JoinHandle<Result<()>>>,
}

/// How a client reaches the thread.
#[derive(Clone)]
struct Door {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl Before {
    /// Starts the thread on the far processor.
    pub(crate) fn spawn(placement: &Placement) -> Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (commands, inbox) = unbounded();
        let placement = *placement;
        let thread = std::thread::Builder::new().name("before".to_owned()).spawn(move || {
            placement.move_far()?;
            run(poll, &inbox)
        })?;
        Ok(Self { door: Door { commands, waker }, thread: Some(thread) })
    }

    /// Watches `socket`; the `number`-th watch of this watcher, counted from zero.
    pub(crate) fn watch(&self, socket: &UnixStream, number: usize) -> Result<BeforeClient> {
        let (sender, events) = unbounded();
        self.door.order(Command::Watch(socket.as_raw_fd(), sender))?;
        Ok(BeforeClient { door: self.door.clone(), number, events })
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        // The thread can be gone already only because it failed, which its clients have reported.
        self.door.order(Command::Stop).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Door {
    fn order(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| "the naive watcher's thread is gone")?;
        Ok(self.waker.wake()?)
    }
}

/// One watch and its channel.
pub(crate) struct BeforeClient {
    door: Door,
    number: usize,
    events: Receiver<()>,
}

impl Waiter for BeforeClient {
    fn wait(&mut self) -> Result<()> {
        Ok(self.events.recv()?)
    }

    fn arm(&mut self) -> Result<()> {
        self.door.order(Command::Arm(self.number))
    }
}

/// One watch as the thread sees it.
struct Watch {
    descriptor: RawFd,
    events: Sender<()>,
    is_armed: bool,
}

fn run(mut poll: Poll, inbox: &Receiver<Command>) -> Result<()> {
    let mut events = Events::with_capacity(BATCH);
    let mut watches: Vec<Watch> = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        for event in &events {
            if let Some(watch) = watches.get_mut(event.token().0) {
                report(watch);
            }
        }
        for command in inbox.try_iter() {
            match command {
                Command::Watch(descriptor, events) => {
                    let token = Token(watches.len());
                    poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
                    watches.push(Watch { descriptor, events, is_armed: true });
                }
                Command::Arm(number) => rearm(&poll, &mut watches, number)?,
                Command::Stop => return Ok(()),
            }
        }
    }
}

/// mio has no one-shot mode, so the armed flag is kept here.
fn report(watch: &mut Watch) {
    if std::mem::take(&mut watch.is_armed) {
        // A client that left does not want to know.
        watch.events.send(()).ok();
    }
}

/// Registering again makes the edge-triggered set report what is ready already.
fn rearm(poll: &Poll, watches: &mut [Watch], number: usize) -> Result<()> {
    let watch = watches.get_mut(number).ok_or("armed a watch that does not exist")?;
    watch.is_armed = true;
    Ok(poll.registry().reregister(&mut SourceFd(&watch.descriptor), Token(number), Interest::READABLE)?)
}
