//! A view of text in 16-bit units.

use crate::{Code, Result, Status};
use std::fmt;

/// The units of a string16 in a frame. They need not be aligned, and need not be valid UTF-16: a surrogate may stand
/// alone, as it does in file names and in the strings of scripts.
///
/// Displays as text, with U+FFFD for each surrogate that stands alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Utf16<'a> {
    units: &'a [[u8; 2]],
}

impl<'a> Utf16<'a> {
    /// A view of whole units.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { units: bytes.as_chunks().0 }
    }

    /// How many units there are.
    pub fn len(self) -> usize {
        self.units.len()
    }

    /// Whether there is no unit.
    pub fn is_empty(self) -> bool {
        self.units.is_empty()
    }

    /// The units, in order.
    pub fn units(self) -> impl ExactSizeIterator<Item = u16> + DoubleEndedIterator + Clone + 'a {
        self.units.iter().map(|unit| u16::from_le_bytes(*unit))
    }

    /// The text, with U+FFFD for each surrogate that stands alone.
    pub fn to_string_lossy(self) -> String {
        self.characters().map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// The text, if it is valid UTF-16.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if a surrogate stands alone; the message says which and where.
    pub fn to_string_strict(self) -> Result<String> {
        let mut unit_index = 0;
        self.characters()
            .map(|character| match character {
                Ok(character) => {
                    unit_index += character.len_utf16();
                    Ok(character)
                }
                Err(surrogate) => Err(Status::new(
                    Code::InvalidArgument,
                    format!(
                        "unit {unit_index} of a string16 is {surrogate:#06x}, a surrogate that stands alone; take its \
                         units, or to_string_lossy"
                    ),
                )),
            })
            .collect()
    }

    /// The characters, or the surrogates where there is none.
    fn characters(self) -> impl Iterator<Item = std::result::Result<char, u16>> + 'a {
        char::decode_utf16(self.units())
            .map(|character| character.map_err(|error| error.unpaired_surrogate()))
    }
}

impl fmt::Display for Utf16<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.characters();
        characters.try_for_each(|character| {
            fmt::Write::write_char(formatter, character.unwrap_or(char::REPLACEMENT_CHARACTER))
        })
    }
}

impl fmt::Debug for Utf16<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(units: &[u16]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    #[test]
    fn text_comes_back_whatever_the_alignment() {
        let units: Vec<u16> = "Grüße 😀".encode_utf16().collect();
        let mut shifted = vec![0];
        shifted.extend(bytes(&units));
        let view = Utf16::new(&shifted[1..]);
        assert_eq!(view.len(), units.len());
        assert!(!view.is_empty());
        assert!(view.units().eq(units.iter().copied()));
        assert_eq!(view.to_string_strict().as_deref(), Ok("Grüße 😀"));
        assert_eq!(view.to_string_lossy(), "Grüße 😀");
        assert_eq!(view.to_string(), "Grüße 😀");
        assert_eq!(format!("{view:?}"), "\"Grüße 😀\"");
        assert!(Utf16::default().is_empty());
    }

    #[test]
    fn a_lone_surrogate_is_kept_replaced_or_refused() {
        let raw = bytes(&[0xD83D, 0xDE00, 0xD800, u16::from(b'x')]);
        let view = Utf16::new(&raw);
        assert_eq!(view.units().nth(2), Some(0xD800));
        assert_eq!(view.to_string_lossy(), "😀\u{FFFD}x");
        let refused = view.to_string_strict().expect_err("a surrogate stands alone");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with("unit 2 of a string16 is 0xd800"), "{refused}");
    }
}
