//! Timers: a periodic one, two with one deadline, and one that is cancelled and must not come.

use std::time::{Duration, Instant};

use handle_watcher_client::{Deadline, Event, EventKind, TimerId};

use crate::Result;
use crate::scene::Scene;
use crate::stage::{Stage, item_of};
use crate::voice::counted;

const PERIOD: Duration = Duration::from_millis(250);
const PERIODS: u32 = 6;
const ONE_SHOT: Duration = Duration::from_millis(400);
const CANCELLED: Duration = Duration::from_millis(600);

const _: () =
    assert!(CANCELLED.as_millis() < PERIOD.as_millis() * PERIODS as u128, "it would come before the end");

const PERIODIC_ITEM: u32 = 1;
const FIRST_ITEM: u32 = 2;
const SECOND_ITEM: u32 = 3;
const CANCELLED_ITEM: u32 = 4;

struct Timers {
    began: Instant,
    periodic: TimerId,
    periods: u32,
    one_shots: Vec<u32>,
    late_most: Duration,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let control = stage.control;
    let began = Instant::now();
    let periodic = control.set_periodic(PERIOD, PERIOD, stage.token(PERIODIC_ITEM))?;
    let deadline = Deadline::after(ONE_SHOT);
    control.set_timer(deadline, stage.token(FIRST_ITEM))?;
    control.set_timer(deadline, stage.token(SECOND_ITEM))?;
    let cancelled = control.set_timer(CANCELLED, stage.token(CANCELLED_ITEM))?;
    control.cancel_timer(cancelled)?;
    stage.tell(format_args!(
        "every {PERIOD:?}; two at once after {ONE_SHOT:?}; one at {CANCELLED:?}, cancelled"
    ))?;
    Ok(Box::new(Timers { began, periodic, periods: 0, one_shots: Vec::new(), late_most: Duration::ZERO }))
}

impl Scene for Timers {
    fn expected(&self) -> String {
        format!("{PERIODS} periods, two one-shots in their order, never early, not the cancelled one")
    }

    fn came(&self) -> String {
        let one_shots = counted(self.one_shots.len() as u64, "one-shot");
        format!(
            "{}, {one_shots}, at most {:.1?} late",
            counted(self.periods.into(), "period"),
            self.late_most
        )
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        if event.kind != EventKind::Timer {
            return Err(format!("{:?} came where Timer was expected", event.kind).into());
        }
        let elapsed = self.began.elapsed();
        let due = match item_of(event.token) {
            PERIODIC_ITEM => self.on_period(stage, event)?,
            item @ (FIRST_ITEM | SECOND_ITEM) => self.on_one_shot(stage, item)?,
            CANCELLED_ITEM => return Err("the cancelled timer came".into()),
            item => return Err(format!("nobody gave the item {item}").into()),
        };
        let late =
            elapsed.checked_sub(due).ok_or_else(|| format!("it came after {elapsed:?}, due at {due:?}"))?;
        self.late_most = self.late_most.max(late);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.periods >= PERIODS && self.one_shots.len() == 2
    }
}

impl Timers {
    /// Gives when the last of the periods was due.
    fn on_period(&mut self, stage: &Stage<'_>, event: &Event) -> Result<Duration> {
        if event.timer() != Some(self.periodic) {
            return Err(format!("the token of {} came with {:?}", self.periodic, event.timer()).into());
        }
        self.periods += event.count;
        let merged = if event.count > 1 { format!(", {} merged", event.count) } else { String::new() };
        stage.tell(format_args!("period {}{merged}", self.periods))?;
        if self.periods >= PERIODS {
            stage.control.cancel_timer(self.periodic)?;
        }
        Ok(PERIOD * self.periods)
    }

    fn on_one_shot(&mut self, stage: &Stage<'_>, item: u32) -> Result<Duration> {
        self.one_shots.push(item);
        if !self.one_shots.is_sorted() || self.one_shots.len() > 2 {
            return Err(format!("the one-shots came as {:?}", self.one_shots).into());
        }
        stage.tell(format_args!("one-shot {} of 2", self.one_shots.len()))?;
        Ok(ONE_SHOT)
    }
}
