//! What the tour says, and in which colour.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

use crate::Result;

/// Colours of a terminal, by their number in an escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(u8);

impl Colour {
    pub(crate) const GOOD: Self = Self(32);
    pub(crate) const BAD: Self = Self(31);
    pub(crate) const FAINT: Self = Self(2);
    pub(crate) const STRONG: Self = Self(1);

    /// One for each scene, so that lines of one scene are seen to belong together.
    pub(crate) fn of_scene(number: u32) -> Self {
        const COLOURS: [u8; 8] = [36, 33, 35, 34, 96, 95, 93, 94];
        Self(COLOURS[number as usize % COLOURS.len()])
    }
}

/// Colours are for terminals, unless the user set NO_COLOR.
pub(crate) fn has_colours(output: &impl IsTerminal) -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    output.is_terminal() && !is_refused
}

/// Standard output, with the time since the start.
#[derive(Debug)]
pub(crate) struct Voice {
    began: Instant,
    has_colours: bool,
}

impl Voice {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), has_colours: has_colours(&stdout()) }
    }

    /// One line, as it is.
    pub(crate) fn line(&self, words: impl Display) -> Result<()> {
        Ok(writeln!(stdout(), "{words}")?)
    }

    /// One thing that happened in a scene.
    pub(crate) fn tell(&self, number: u32, title: &str, words: impl Display) -> Result<()> {
        let time = self.paint(Colour::FAINT, format!("{:6.3} s", self.began.elapsed().as_secs_f64()));
        let title = self.paint(Colour::of_scene(number), format!("{title:<11}"));
        self.line(format_args!("{time}  {title}  {words}"))
    }

    pub(crate) fn paint(&self, colour: Colour, words: impl Display) -> String {
        if self.has_colours { format!("\x1b[{}m{words}\x1b[0m", colour.0) } else { words.to_string() }
    }
}

/// A number with its thousands apart: `409 600`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number and its noun: `1 event`, `2 events`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let samples =
            [(0, "0"), (999, "999"), (1000, "1 000"), (409_600, "409 600"), (1_234_567, "1 234 567")];
        for (number, words) in samples {
            assert_eq!(grouped(number), words);
        }
        assert_eq!((counted(1, "turn"), counted(2, "turn")), ("1 turn".to_owned(), "2 turns".to_owned()));
    }
}
