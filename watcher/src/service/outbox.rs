//! What was not taken by a socket yet. A frame that was half sent is finished before anything else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::sys::stream;

/// How far a socket took what there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Everything is sent.
    All,
    /// The socket is full: go on when it is writable.
    Some,
    /// Nobody will read it.
    Lost(Errno),
}

/// Holds no memory while nothing waits: most sockets are rarely full.
#[derive(Debug, Default)]
pub(super) struct Outbox(Option<Box<Unsent>>);

#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    start: usize,
    /// Goes with the first byte.
    descriptor: Option<OwnedFd>,
}

impl Outbox {
    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |unsent| unsent.bytes.len() - unsent.start)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends a descriptor with the first byte there is next. Nothing may wait yet.
    pub(super) fn attach(&mut self, descriptor: OwnedFd) {
        self.0.get_or_insert_default().descriptor = Some(descriptor);
    }

    /// Forgets what waits: nobody will read it.
    pub(super) fn give_up(&mut self) {
        self.0 = None;
    }

    /// Sends what waits, then `more`. What is not taken is kept.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, more: &[u8]) -> Flushed {
        let Some(unsent) = &mut self.0 else {
            return match push(socket, more, &mut None) {
                Ok(sent) if sent == more.len() => Flushed::All,
                Ok(sent) => {
                    self.0.get_or_insert_default().bytes.extend_from_slice(&more[sent..]);
                    Flushed::Some
                }
                Err(errno) => Flushed::Lost(errno),
            };
        };
        unsent.bytes.extend_from_slice(more);
        match push(socket, &unsent.bytes[unsent.start..], &mut unsent.descriptor) {
            Ok(sent) => unsent.start += sent,
            Err(errno) => return Flushed::Lost(errno),
        }
        if unsent.start == unsent.bytes.len() {
            if unsent.descriptor.is_none() {
                self.0 = None;
            }
            return Flushed::All;
        }
        if unsent.start > unsent.bytes.len() / 2 {
            unsent.bytes.drain(..unsent.start);
            unsent.start = 0;
        }
        Flushed::Some
    }
}

/// Sends until the socket takes no more; gives how many bytes.
fn push(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: &mut Option<OwnedFd>) -> Result<usize, Errno> {
    let mut sent = 0;
    while sent < bytes.len() {
        let beside = descriptor.as_ref().map(AsFd::as_fd);
        match stream::send_now(socket, &bytes[sent..], beside) {
            Ok(count) => {
                sent += count;
                *descriptor = None;
            }
            // NOBUFS is what a full system says where a full socket says AGAIN; both pass.
            Err(Errno::AGAIN | Errno::NOBUFS) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::passing;

    #[test]
    fn what_a_full_socket_does_not_take_is_kept_and_comes_in_order() {
        let (ours, theirs) = passing::pair().expect("a pair");
        let mut outbox = Outbox::default();
        let (mut sent, mut number) = (Vec::new(), 0_u32);
        while outbox.send(ours.as_fd(), &[]) == Flushed::All {
            let piece: Vec<u8> = (0..1000)
                .flat_map(|_| {
                    number += 1;
                    number.to_le_bytes()
                })
                .collect();
            outbox.send(ours.as_fd(), &piece);
            sent.extend(piece);
        }
        outbox.send(ours.as_fd(), b"last");
        sent.extend(b"last");
        assert!(outbox.len() > 4);
        let (mut came, mut buffer) = (Vec::new(), vec![0; 5000]);
        while came.len() < sent.len() {
            let mut space = passing::ControlSpace::new();
            let got = passing::receive(theirs.as_fd(), &mut buffer, &mut space, drop).expect("there is more");
            came.extend_from_slice(&buffer[..got.bytes]);
            assert!(!matches!(outbox.send(ours.as_fd(), &[]), Flushed::Lost(_)));
        }
        assert_eq!(came, sent);
        assert!(outbox.0.is_none(), "it holds no memory");
        drop(theirs);
        assert_eq!(outbox.send(ours.as_fd(), b"x"), Flushed::Lost(Errno::PIPE));
    }
}
