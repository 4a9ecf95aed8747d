//! The message of a status as it travels: percent-encoded, so that any text fits a header.

use std::borrow::Cow;

/// How many bytes are looked at together: enough for one vector register, and less than a short message has.
const BLOCK_BYTES: usize = 16;

/// How an escaped byte is written, at three times its value.
const ESCAPES: &str = match std::str::from_utf8(&ESCAPE_BYTES) {
    Ok(text) => text,
    Err(_) => "",
};

static ESCAPE_BYTES: [u8; 768] = escape_bytes();

/// The value of each hexadecimal digit of either case, and [`NO_DIGIT`] for every other byte.
static DIGIT_VALUES: [u8; 256] = digit_values();

const NO_DIGIT: u8 = 0xFF;

/// The message in printable ASCII, as it travels in the trailer `grpc-message`. The same text if nothing in it has to
/// be escaped.
///
/// Escaped are the bytes of its UTF-8 below 0x20 and from 0x7E on, and `%`: as `%` and two capital hexadecimal digits.
/// A space stays a space.
///
/// ```
/// use handle_watcher_wire::status::encode_message;
///
/// assert_eq!(encode_message("50% of café\n"), "50%25 of caf%C3%A9%0A");
/// ```
pub fn encode_message(message: &str) -> Cow<'_, str> {
    match find(message.as_bytes(), must_be_escaped) {
        None => Cow::Borrowed(message),
        Some(first_at) => Cow::Owned(encode_from(message, first_at)),
    }
}

/// The message behind the bytes of a trailer `grpc-message`, whoever encoded them. The same bytes if there is nothing
/// to decode.
///
/// `%` and two hexadecimal digits of either case are one byte. Any other `%` is a percent sign, any other byte itself.
/// What is no UTF-8 after that becomes U+FFFD, so a message is never lost and never an error. It may contain control
/// characters; [`Status`](super::Status) displays them escaped.
///
/// ```
/// use handle_watcher_wire::status::decode_message;
///
/// assert_eq!(decode_message(b"50%25 of caf%c3%a9"), "50% of café");
/// assert_eq!(decode_message(b"50% of it"), "50% of it");
/// ```
pub fn decode_message(bytes: &[u8]) -> Cow<'_, str> {
    match next_escape(bytes, 0) {
        None => String::from_utf8_lossy(bytes),
        Some((at, byte)) => Cow::Owned(decode_from(bytes, at, byte)),
    }
}

/// Encodes a message whose first byte to escape is known.
fn encode_from(message: &str, first_at: usize) -> String {
    let bytes = message.as_bytes();
    let escaped = bytes[first_at..].iter().filter(|&&byte| must_be_escaped(byte)).count();
    let mut encoded = String::with_capacity(bytes.len() + 2 * escaped);
    let mut clean_from = 0;
    let mut next_at = Some(first_at);
    while let Some(at) = next_at {
        // Every byte that is not ASCII is escaped, so a stretch that is not empty is whole characters.
        if clean_from < at {
            encoded.push_str(&message[clean_from..at]);
        }
        encoded.push_str(escape(bytes[at]));
        clean_from = at + 1;
        next_at = find(&bytes[clean_from..], must_be_escaped).map(|length| clean_from + length);
    }
    encoded.push_str(&message[clean_from..]);
    encoded
}

/// Decodes bytes whose first escape is known.
fn decode_from(bytes: &[u8], first_at: usize, first: u8) -> String {
    let mut decoded = Vec::with_capacity(bytes.len() - 2);
    let mut clean_from = 0;
    let mut escape = Some((first_at, first));
    while let Some((at, byte)) = escape {
        decoded.extend_from_slice(&bytes[clean_from..at]);
        decoded.push(byte);
        clean_from = at + 3;
        escape = next_escape(bytes, clean_from);
    }
    decoded.extend_from_slice(&bytes[clean_from..]);
    String::from_utf8(decoded).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Where the next escape stands, and the byte it means.
fn next_escape(bytes: &[u8], from: usize) -> Option<(usize, u8)> {
    let mut at = from;
    loop {
        at += find(&bytes[at..], |byte| byte == b'%')?;
        if let Some(&[high, low]) = bytes[at + 1..].first_chunk() {
            let (high, low) = (DIGIT_VALUES[usize::from(high)], DIGIT_VALUES[usize::from(low)]);
            // A digit is below 16, so both are digits where neither has a high bit.
            if (high | low) < 16 {
                return Some((at, high << 4 | low));
            }
        }
        at += 1;
    }
}

#[inline]
fn must_be_escaped(byte: u8) -> bool {
    !(0x20..0x7E).contains(&byte) || byte == b'%'
}

fn escape(byte: u8) -> &'static str {
    let at = usize::from(byte) * 3;
    &ESCAPES[at..at + 3]
}

/// Where a byte of this sort stands for the first time.
///
/// Whole blocks are looked at first, without a way out of the middle: so a compiler makes one comparison of a block.
#[inline]
fn find(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let holds = |block: &[u8; BLOCK_BYTES]| block.iter().fold(false, |found, &byte| found | is_wanted(byte));
    let (blocks, tail) = bytes.as_chunks();
    let clean = blocks.iter().position(holds).unwrap_or(blocks.len()) * BLOCK_BYTES;
    // The tail reaches back over what is known to be clean, to be a block, too.
    if clean + tail.len() == bytes.len() && !bytes.last_chunk().is_none_or(holds) {
        return None;
    }
    bytes[clean..].iter().position(|&byte| is_wanted(byte)).map(|at| clean + at)
}

const fn escape_bytes() -> [u8; 768] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut escapes = [b'%'; 768];
    let mut byte = 0;
    while byte < 256 {
        escapes[byte * 3 + 1] = DIGITS[byte >> 4];
        escapes[byte * 3 + 2] = DIGITS[byte & 15];
        byte += 1;
    }
    escapes
}

const fn digit_values() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789ABCDEF"[value as usize] as usize] = value;
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_escape_is_not_copied() {
        assert!(matches!(encode_message("plain and simple"), Cow::Borrowed(_)));
        assert!(matches!(encode_message(""), Cow::Borrowed(_)));
        assert!(matches!(decode_message(b"100% sure of 5 %"), Cow::Borrowed(_)));
        assert!(matches!(decode_message("café".as_bytes()), Cow::Borrowed(_)));
    }

    #[test]
    fn an_encoded_message_fills_its_room_exactly() {
        let encoded = encode_message("\n%é and a tail").into_owned();
        assert_eq!(encoded.len(), encoded.capacity());
    }

    #[test]
    fn every_byte_has_its_escape_and_its_way_back() {
        for byte in 0..=u8::MAX {
            assert_eq!(escape(byte), format!("%{byte:02X}"));
            for text in [format!("%{byte:02X}"), format!("%{byte:02x}")] {
                assert_eq!(next_escape(text.as_bytes(), 0), Some((0, byte)));
            }
        }
    }

    #[test]
    fn a_byte_is_found_wherever_it_stands() {
        let is_percent = |byte| byte == b'%';
        for length in 0..50 {
            let mut bytes = vec![b'a'; length];
            assert_eq!(find(&bytes, is_percent), None);
            for at in (0..length).rev() {
                bytes[at] = b'%';
                assert_eq!(find(&bytes, is_percent), Some(at));
            }
        }
    }
}
