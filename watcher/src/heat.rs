//! How hot a Once watch is: how often in a row it was armed again soon after the last time.

use crate::sys::clock;

/// Re-arms in a row that make a watch hot. Below it the two or three microseconds of a move have not been earned.
const HOT: u32 = 4;
const MOST: u32 = 15;
/// A gap of at most this many ticks (of 2^20 ns, about a millisecond) is short. A watch that fires more often than a
/// hundred times a second saves more in the front than a move costs.
const SHORT_GAP_TICKS: u32 = 10;
/// A gap of more than this many ticks, about a second, is long: the watch goes back.
const LONG_GAP_TICKS: u32 = 1000;
const TICK_BITS: u32 = 20;
const TICK_MASK: u32 = (1 << TICK_BITS) - 1;

/// The heat of one watch: a count of short gaps and the tick of the last re-arm, in 24 bits. Belongs to one watch, never
/// to its descriptor: several watches of one number must not heat each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heat(u32);

impl Heat {
    pub(crate) const BITS: u32 = TICK_BITS + 4;

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The tick of now, from the coarse clock: a few nanoseconds to read, exact enough for milliseconds.
    pub(crate) fn tick() -> u32 {
        u32::try_from(clock::coarse_ns() >> 20 & u64::from(TICK_MASK)).unwrap_or(0)
    }

    /// The heat after a re-arm at `tick`. A middling gap halves what was gathered.
    pub(crate) fn rearmed(self, tick: u32) -> Self {
        let gap = tick.wrapping_sub(self.0) & TICK_MASK;
        let count = match gap {
            0..=SHORT_GAP_TICKS => (self.count() + 1).min(MOST),
            gap if gap > LONG_GAP_TICKS => 0,
            _ => self.count() / 2,
        };
        Self(count << TICK_BITS | tick & TICK_MASK)
    }

    pub(crate) fn is_hot(self) -> bool {
        self.count() >= HOT
    }

    /// The last gap was long.
    pub(crate) fn is_cold(self) -> bool {
        self.count() == 0
    }

    fn count(self) -> u32 {
        self.0 >> TICK_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_heat_a_middling_one_cools_and_a_long_one_forgets() {
        let mut heat = Heat::default();
        let mut tick = 5000;
        heat = heat.rearmed(tick);
        assert!(heat.is_cold(), "the first gap is unknown, and counts as long");
        for round in 1..=HOT {
            assert!(!heat.is_hot(), "round {round}");
            tick += 1;
            heat = heat.rearmed(tick);
        }
        assert!(heat.is_hot());
        heat = heat.rearmed(tick + 100);
        assert!(!heat.is_hot() && !heat.is_cold());
        heat = heat.rearmed(tick + 100 + LONG_GAP_TICKS + 1);
        assert!(heat.is_cold());
    }

    #[test]
    fn the_bits_keep_everything_and_the_tick_may_wrap() {
        let heat = Heat::default().rearmed(TICK_MASK).rearmed(1).rearmed(2);
        assert_eq!(heat.count(), 2);
        assert_eq!(Heat::from_bits(heat.bits()), heat);
    }
}
