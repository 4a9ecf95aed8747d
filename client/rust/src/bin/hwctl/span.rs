//! Spans of time as people write them: `500ms`, `30s`, `1.5h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The units, longest name first, with their nanoseconds.
const UNITS: [(&str, u64); 4] =
    [("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];

/// A part of a nanosecond is more than anybody means.
const FRACTION_DIGITS_MOST: usize = 9;

/// A span of time of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(Duration);

impl Span {
    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

/// Why a text is no span: names the text and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanError(String);

impl fmt::Display for SpanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for SpanError {}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let refused = |why: &str| {
            SpanError(format!("{text:?} {why}; write a number and ms, s, m or h, such as 500ms, 1.5s or 2h"))
        };
        let Some((number, unit_ns)) =
            UNITS.iter().find_map(|(name, unit_ns)| Some((text.strip_suffix(name)?, *unit_ns)))
        else {
            return Err(refused("is no span of time: its unit is missing"));
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return Err(refused("is no span of time"));
        }
        if fraction.len() > FRACTION_DIGITS_MOST {
            return Err(refused("is finer than a nanosecond"));
        }
        let whole_ns = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit_ns));
        let scale = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX));
        // Both factors are below 2^42, so this fits into 128 bits with room to spare; rounded up, as waits are.
        let fraction_ns = fraction.parse::<u128>().unwrap_or(0) * u128::from(unit_ns);
        let fraction_ns = u64::try_from(fraction_ns.div_ceil(u128::from(scale))).unwrap_or(u64::MAX);
        let span_ns = whole_ns.and_then(|whole_ns| whole_ns.checked_add(fraction_ns));
        span_ns.map(|span_ns| Self(Duration::from_nanos(span_ns))).ok_or_else(|| refused("is over 500 years"))
    }
}

/// A duration for people: three digits behind the point below a minute, whole seconds above.
pub(crate) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}.{:03}s", duration.subsec_millis()),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_and_fractions_are_read() {
        let spans = [
            ("500ms", 500_000_000),
            ("0s", 0),
            ("30s", 30_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001s", 1),
            ("0.0000001ms", 1),
            ("5m", 300_000_000_000),
            ("1h", 3_600_000_000_000),
            ("2562047h", 9_223_369_200_000_000_000),
        ];
        for (text, span_ns) in spans {
            assert_eq!(text.parse(), Ok(Span(Duration::from_nanos(span_ns))), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused_by_name() {
        let bad = [
            "",
            "5",
            "s",
            "-1s",
            "+1s",
            "1,5s",
            "1.s",
            ".5s",
            "1e3s",
            "1 s",
            "1d",
            "5S",
            "١s",
            "1.2.3s",
            "99999999h",
            "999999999999999999999s",
            "0.0000000001s",
        ];
        for text in bad {
            let error = text.parse::<Span>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("500ms"), "{error}");
        }
    }

    #[test]
    fn durations_are_shown_short() {
        let shown = |seconds| show(Duration::from_secs(seconds));
        assert_eq!(show(Duration::from_micros(1_204_500)), "1.204s");
        assert_eq!([shown(61), shown(3660), shown(90_000)], ["1m01s", "1h01m", "1d01h"]);
    }
}
