//! Bytes as frames of the protocol: each is read as whatever it could be, and what can be read is written and read again.

use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next};
use handle_watcher_wire::protocol::{
    EventFrame, Reply, Request, RequestError, Welcome, read_sessions, read_stats, read_watches,
    write_sessions, write_stats, write_watches,
};

/// Reads every frame of a stream. What is behind the last whole one is read as a frame that lies about its size.
pub(crate) fn feed(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((frame, behind)) = find_next(HeaderSize::PLAIN, rest) {
        read(frame);
        rest = behind;
    }
    read(rest);
}

fn read(frame: &[u8]) {
    read_request(frame);
    read_event(frame);
    if let Ok(reply) = Reply::read(frame) {
        assert!(reply.status.message().len() <= frame.len() * 3, "a byte becomes one character at most");
        read_body(&reply.body);
    }
}

fn read_request(frame: &[u8]) {
    match Request::read(frame) {
        Ok((head, request)) => {
            let mut writer = Writer::new();
            request.write(head.call, head.descriptors, &mut writer);
            let written = writer.frame().expect("it is no longer than what was read");
            assert!(written.len() <= frame.len().next_multiple_of(4));
            assert_eq!(Request::read(written), Ok((head, request)));
        }
        Err(RequestError::Malformed(status) | RequestError::Refused(_, status)) => {
            assert!(!status.message().is_empty());
        }
    }
}

fn read_event(frame: &[u8]) {
    if let Ok(event) = EventFrame::read(frame) {
        let mut writer = Writer::new();
        event.write(&mut writer);
        assert_eq!(EventFrame::read(writer.frame().expect("an event is short")), Ok(event));
    }
}

/// Reads a body as each of those there are, and holds every list to what its bytes can hold.
fn read_body(body: &Reader<'_>) {
    let most = body.remaining_bytes();
    let mut again = Writer::new();
    if let Ok(welcome) = Welcome::read(&mut body.clone()) {
        welcome.write(&mut again);
        assert_eq!(Welcome::read(&mut reader(&mut again)), Ok(welcome));
    }
    if let Ok(stats) = read_stats(&mut body.clone()) {
        assert!(stats.len() * 12 <= most);
        again.clear();
        write_stats(&stats, &mut again);
        assert_eq!(read_stats(&mut reader(&mut again)).as_ref(), Ok(&stats));
    }
    if let Ok(sessions) = read_sessions(&mut body.clone()) {
        assert!(sessions.len() * 68 <= most);
        again.clear();
        write_sessions(&sessions, &mut again);
        assert_eq!(read_sessions(&mut reader(&mut again)).as_ref(), Ok(&sessions));
    }
    if let Ok(watches) = read_watches(&mut body.clone()) {
        assert!(watches.len() * 28 <= most);
        again.clear();
        write_watches(&watches, &mut again);
        assert_eq!(read_watches(&mut reader(&mut again)).as_ref(), Ok(&watches));
    }
}

fn reader(writer: &mut Writer) -> Reader<'_> {
    Reader::with_header_size(HeaderSize::PLAIN, writer.frame().expect("nothing was refused"))
        .expect("our own frame")
}
