//! Bytes that both ends know beforehand, so that a lost, changed or foreign one is noticed.

/// The byte at `at` of stream `stream`. The first one names the stream.
pub(crate) fn byte(stream: u8, at: usize) -> u8 {
    if at == 0 {
        return stream;
    }
    // 251 is prime: a block that is shifted by any power of two differs.
    let mixed = (usize::from(stream) * 31 + at) % 251;
    u8::try_from(mixed).unwrap_or_default()
}

/// The letter at `at` of what goes through a terminal, which would change a line's end and act on a control
/// character.
pub(crate) fn letter(at: usize) -> u8 {
    b'a' + byte(1, at) % 26
}

/// The part of a stream that starts at `from`.
pub(crate) fn bytes(stream: u8, from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| byte(stream, at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_places_differ() {
        assert_eq!(byte(42, 0), 42);
        assert_ne!(bytes(1, 512, 64), bytes(1, 1024, 64), "a block in a wrong place");
        assert_ne!(bytes(1, 512, 64), bytes(2, 512, 64), "a block of another stream");
        assert!((0..1000).all(|at| letter(at).is_ascii_lowercase()));
    }
}
