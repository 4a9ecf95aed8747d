//! What was not taken by a socket yet. A frame that was half sent is finished before anything else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::sys::passing;

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

#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    start: usize,
    /// Goes with the first byte.
    descriptor: Option<OwnedFd>,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends a descriptor with the first byte there is next. Nothing may wait yet.
    pub(super) fn attach(&mut self, descriptor: OwnedFd) {
        self.descriptor = Some(descriptor);
    }

    /// Forgets what waits: nobody will read it.
    pub(super) fn give_up(&mut self) {
        *self = Self::default();
    }

    /// Sends what waits, then `more`. What is not taken is kept.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, more: &[u8]) -> Flushed {
        if self.is_empty() {
            return match Self::push(socket, more, &mut self.descriptor) {
                Ok(sent) => {
                    self.bytes.extend_from_slice(&more[sent..]);
                    if self.is_empty() { Flushed::All } else { Flushed::Some }
                }
                Err(errno) => Flushed::Lost(errno),
            };
        }
        self.bytes.extend_from_slice(more);
        match Self::push(socket, &self.bytes[self.start..], &mut self.descriptor) {
            Ok(sent) => self.forget(sent),
            Err(errno) => return Flushed::Lost(errno),
        }
        if self.is_empty() { Flushed::All } else { Flushed::Some }
    }

    fn forget(&mut self, sent: usize) {
        self.start += sent;
        if self.is_empty() {
            // An idle session holds no buffer.
            (self.bytes, self.start) = (Vec::new(), 0);
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Sends until the socket takes no more; gives how many bytes.
    fn push(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: &mut Option<OwnedFd>) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < bytes.len() {
            let beside = descriptor.as_ref().map(AsFd::as_fd);
            match passing::send(socket, &bytes[sent..], beside) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(outbox.bytes.capacity(), 0);
        drop(theirs);
        assert_eq!(outbox.send(ours.as_fd(), b"x"), Flushed::Lost(Errno::PIPE));
    }
}
