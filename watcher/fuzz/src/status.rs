//! Bytes as the trailers of a status: nothing is refused, and no message is lost.

use handle_watcher_wire::status::{HttpStatus, decode_message, encode_message};
use handle_watcher_wire::{Code, Status};

/// The first byte says how many of the next are the code; the rest is the message.
pub(crate) fn feed(bytes: &[u8]) {
    let (length, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let (code, message) = rest.split_at(rest.len().min(usize::from(*length)));
    let status = Status::from_trailers(code, message);
    assert_eq!(status.to_string().chars().filter(|character| character.is_control()).count(), 0);
    assert!(Code::from_ascii(code).is_none_or(|known| known == status.code()));
    assert!(HttpStatus::parse(code).is_err() || code.len() == 3);

    let decoded = decode_message(message);
    assert_eq!(decoded.is_empty(), message.is_empty(), "a message is never lost");
    let encoded = encode_message(&decoded);
    assert!(encoded.bytes().all(|byte| (0x20..0x7E).contains(&byte)), "what is encoded is plain ASCII");
    assert_eq!(decode_message(encoded.as_bytes()), decoded);
    assert_eq!(
        Status::from_trailers(status.code().to_ascii().as_bytes(), encoded.as_bytes()).message(),
        decoded
    );
}
