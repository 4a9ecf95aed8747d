//! How often something is said.

use std::time::Duration;

use crate::sys::clock::coarse_ns;

/// The time in which at most [`LINES_MOST`] lines are said.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many lines are said in an interval.
const LINES_MOST: u32 = 8;
/// How much of a client's words is said.
const WORDS_MOST: usize = 64;

/// Lets a few lines a second pass, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    interval: u64,
    said: u32,
    unsaid: u64,
}

impl Throttle {
    /// Whether a line may be said; if so, how many were not said since the last one.
    pub(super) fn pass(&mut self) -> Option<u64> {
        self.pass_at(coarse_ns())
    }

    fn pass_at(&mut self, now_ns: u64) -> Option<u64> {
        let interval = now_ns / u64::try_from(INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        if interval != self.interval {
            self.interval = interval;
            self.said = 0;
        }
        if self.said == LINES_MOST {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// A client's words as they may stand in a log: on one line, and not too many.
pub(super) fn words_of(words: &str) -> String {
    let mut clean: String = words.chars().take(WORDS_MOST).flat_map(char::escape_debug).collect();
    if words.chars().nth(WORDS_MOST).is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_a_few_lines_and_a_count() {
        let mut throttle = Throttle::default();
        let passed: Vec<_> = (0..100).filter_map(|_| throttle.pass_at(5_000_000_000)).collect();
        assert_eq!(passed, [0; 8]);
        assert_eq!(throttle.pass_at(6_000_000_000), Some(92));
        assert_eq!(throttle.pass_at(6_000_000_000), Some(0));
    }

    #[test]
    fn words_stay_on_their_line() {
        assert_eq!(words_of("a\nERROR b\u{1b}[2J"), r"a\nERROR b\u{1b}[2J");
        assert_eq!(words_of(&"x".repeat(65)), format!("{}…", "x".repeat(64)));
    }
}
