//! The handles, and the turns in which some of them become ready.

use super::MOST;
use crate::subject::{Recorder, Slice, Stretch, Subject, share};
use crate::{Result, pair};
use rustix::event::{EventfdFlags, eventfd};
use std::iter::StepBy;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much there is, and how much of it is active.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    watches: usize,
    active: usize,
}

impl Load {
    /// `watches` watches, `active` of their descriptors active. More than `MOST` watches share descriptors.
    pub(super) fn new(watches: usize, active: usize) -> Self {
        Self { watches, active }
    }
}

/// The eventfds, and what was told of them in this turn.
pub(super) struct Field {
    descriptors: Arc<Vec<OwnedFd>>,
    watches: usize,
    active: Vec<usize>,
    /// For each descriptor, the events that are still to come in this turn.
    untold: Vec<usize>,
    /// Events of one turn.
    due: usize,
}

impl Field {
    pub(super) fn open(load: Load) -> Result<Self> {
        let count = load.watches.min(MOST).min(pair::descriptor_budget()?);
        // No more watches on one descriptor than there would be, and no more descriptors active than there are.
        let watches = if load.watches > MOST { load.watches } else { count };
        let active_count = load.active.min(count);
        let mut descriptors = Vec::with_capacity(count);
        for _ in 0..count {
            descriptors.push(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        }
        // Spread over all of them.
        let active: Vec<_> = (0..active_count).map(|number| number * count / active_count).collect();
        let mut field =
            Self { descriptors: Arc::new(descriptors), watches, active, untold: vec![0; count], due: 0 };
        field.due = field.active.iter().map(|&number| field.watches_of(number).count()).sum();
        Ok(field)
    }

    /// The descriptors; watch `n` is on descriptor `n` modulo their number.
    pub(super) fn descriptors(&self) -> &Arc<Vec<OwnedFd>> {
        &self.descriptors
    }

    pub(super) fn watches(&self) -> usize {
        self.watches
    }

    /// The watches on a descriptor.
    fn watches_of(&self, number: usize) -> StepBy<Range<usize>> {
        (number..self.watches).step_by(self.descriptors.len())
    }

    /// Makes every active descriptor ready.
    fn stir(&mut self) -> Result<()> {
        for &number in &self.active {
            self.untold[number] = self.watches_of(number).count();
            rustix::io::write(&self.descriptors[number], &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    /// An event of a watch. The last one of a descriptor reads it, and gives the watches to arm: before, a watch could
    /// be told twice or not at all, because armed watches are told what is there, and only that.
    pub(super) fn take(&mut self, watch: usize) -> Result<StepBy<Range<usize>>> {
        let number = watch % self.descriptors.len();
        let untold = self.untold[number].checked_sub(1).ok_or("more events than were due")?;
        self.untold[number] = untold;
        if untold > 0 {
            return Ok(self.watches_of(self.watches));
        }
        rustix::io::read(&self.descriptors[number], &mut [0; 8])?;
        Ok(self.watches_of(number))
    }
}

/// A way to watch a field.
pub(super) trait Watching {
    /// Waits for events, takes each and arms the watches that are given back. Gives the number of events.
    fn take_batch(&mut self, field: &mut Field) -> Result<usize>;

    /// What else there is to say of a slice.
    fn note(&mut self, slice: Slice) -> Result<Slice> {
        Ok(slice)
    }
}

/// Fields drop in order: the watches end before their descriptors close.
pub(super) struct Many<W> {
    pub(super) watching: W,
    pub(super) field: Field,
}

impl<W: Watching> Subject for Many<W> {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let stretch = Stretch::begin()?;
        let (mut turn_began, mut events) = (stretch.began(), 0);
        while turn_began - stretch.began() < length {
            self.field.stir()?;
            let mut left = self.field.due;
            while left > 0 {
                let taken = self.watching.take_batch(&mut self.field)?;
                left = left.checked_sub(taken).ok_or("more events than were due")?;
            }
            let now = Instant::now();
            let due = u64::try_from(self.field.due)?;
            recorder.record(share(now - turn_began, due));
            (turn_began, events) = (now, events + due);
        }
        let slice = stretch.end(events)?;
        let slice = slice.with_gauge("descriptors", self.field.descriptors.len() as f64);
        self.watching.note(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watch_of_an_active_descriptor_is_due() {
        let field = Field::open(Load { watches: 100, active: 10 }).expect("a hundred eventfds");
        assert_eq!((field.due, field.active.len(), field.active[9]), (10, 10, 90));
        let mut field =
            Field::open(Load { watches: 2 * MOST, active: 1 }).expect("as many as the limit allows");
        assert!(field.due >= 2, "a shared descriptor has an event for each watch");
        field.stir().expect("written");
        let mut armed = Vec::new();
        for watch in field.watches_of(0) {
            assert!(armed.is_empty(), "only the last event gives watches back");
            armed.extend(field.take(watch).expect("due"));
        }
        assert_eq!(armed.len(), field.due);
        assert!(field.take(0).is_err());
    }
}
