//! Another thread, which counts in an eventfd and then wakes the client.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use handle_watcher_client::{Control, Event, EventKind, Mode, Watched};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::Result;
use crate::scene::Scene;
use crate::stage::{Stage, expect_ready, item_of};

const COUNTS: u64 = 8;
const PAUSE: Duration = Duration::from_millis(150);

/// Wake events have the token 0.
const WAKE_ITEM: u32 = 0;
const COUNTER_ITEM: u32 = 1;

struct Counter {
    counter: Watched<OwnedFd>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    total: u64,
    wakes: u32,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let writer = counter.try_clone()?;
    let counter = stage.watch(counter, Mode::Edge, COUNTER_ITEM)?;
    let control = stage.control.clone();
    let thread =
        std::thread::Builder::new().name("counter".to_owned()).spawn(move || count(&writer, &control))?;
    stage.tell(format_args!("a thread counts to {COUNTS} in an eventfd, then wakes us"))?;
    Ok(Box::new(Counter { counter, thread: Some(thread), total: 0, wakes: 0 }))
}

/// What the other thread does.
fn count(counter: &OwnedFd, control: &Control) -> std::io::Result<()> {
    for _ in 0..COUNTS {
        std::thread::sleep(PAUSE);
        rustix::io::write(counter, &1_u64.to_ne_bytes())?;
    }
    Ok(control.wake()?)
}

impl Scene for Counter {
    fn expected(&self) -> String {
        format!("a count of {COUNTS}, and 1 wake")
    }

    fn came(&self) -> String {
        format!("a count of {}, and {} wake", self.total, self.wakes)
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        match item_of(event.token) {
            WAKE_ITEM if event.kind == EventKind::Wake => {
                self.wakes += event.count;
                stage.tell("it woke us")?;
            }
            COUNTER_ITEM => {
                expect_ready(self.counter.id(), event)?;
                self.total += take_count(self.counter.as_fd())?;
                stage.tell(format_args!("it has counted to {}", self.total))?;
            }
            _ => return Err(format!("nobody asked for {event:?}").into()),
        }
        if self.total > COUNTS || self.wakes > 1 {
            return Err(
                format!("{} came, and no more than {} was expected", self.came(), self.expected()).into()
            );
        }
        if self.is_over()
            && let Some(thread) = self.thread.take()
        {
            thread.join().map_err(|_| "the thread panicked")??;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.total == COUNTS && self.wakes == 1
    }
}

/// The count since the last call. An Edge watch must be read to the end, which an eventfd is after one
/// reading.
fn take_count(counter: BorrowedFd<'_>) -> Result<u64> {
    let mut bytes = [0; 8];
    match rustix::io::read(counter, &mut bytes) {
        Ok(_) => Ok(u64::from_ne_bytes(bytes)),
        // A Ready is a hint: there may be nothing any more.
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
