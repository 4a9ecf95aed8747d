//! Who served a slice: the front or the back. The name of a row says it, and the client's own count has to prove it; a
//! row that measured something else than its name says would be worse than none.

use crate::Result;
use crate::subject::Slice;
use handle_watcher_client::{ClientStats, Control};

/// Fewer events than this prove nothing: an adaptive watch is in the back for its first few.
const ENOUGH: u64 = 1000;
/// The share of its events that a row's server has to have served.
const MOST: f64 = 0.9;

/// Who hands events to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The watcher thread.
    Back,
    /// The waiting thread itself.
    Front,
    /// Whoever the policy finds better.
    Either,
}

impl Server {
    /// Adds what served the client since `before` to its slice; an error if that is not who should have.
    pub(crate) fn check(self, before: &ClientStats, control: &Control, slice: Slice) -> Result<Slice> {
        let after = control.client_stats();
        let delivered = after.delivered - before.delivered;
        if delivered == 0 {
            return Ok(slice);
        }
        let share = (after.from_front - before.from_front) as f64 / delivered as f64;
        let has_served = match self {
            Self::Back => share == 0.0,
            Self::Front => share >= MOST,
            Self::Either => true,
        };
        if delivered >= ENOUGH && !has_served {
            let percent = share * 100.0;
            return Err(format!(
                "{self:?} should have served this row, but {percent:.0} % came from the front"
            )
            .into());
        }
        Ok(slice.with_gauge("front_share", share))
    }
}
