//! What a session has sent and was not taken yet: the bytes of a frame that is not whole, and the descriptors.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use handle_watcher_wire::pickle::{HeaderSize, peek_next};

/// What was taken is thrown away once it is more than this, and more than what is left.
const KEPT_BYTES: usize = 4096;

/// Why a frame did not get its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// None came with it.
    NotSent,
    /// The kernel dropped it.
    Lost,
}

#[derive(Debug)]
enum Passed {
    Descriptor(OwnedFd),
    /// Descriptors were dropped here. They may have been those of any frame that begins before this position.
    Lost {
        until: u64,
    },
}

/// Positions count the bytes of the stream from its start.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// How many bytes of the stream were received.
    received: u64,
    /// How many of them were taken.
    taken: u64,
    /// None where nothing waits: most sessions are idle most of the time.
    rest: Option<Box<Rest>>,
}

#[derive(Debug, Default)]
struct Rest {
    bytes: Vec<u8>,
    /// Where the first byte that was not taken is in `bytes`.
    start: usize,
    passed: VecDeque<Passed>,
    descriptors: u32,
    /// The bytes that the dropped descriptors came with may go on in the next read.
    is_loss_open: bool,
}

impl Inbox {
    /// No bytes are left.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.start == rest.bytes.len())
    }

    /// How many descriptors wait for their frames.
    pub(super) fn descriptors(&self) -> u32 {
        self.rest.as_ref().map_or(0, |rest| rest.descriptors)
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    /// Gives memory back that nothing waits in.
    pub(super) fn shrink(&mut self) {
        self.rest.take_if(|rest| rest.bytes.is_empty() && rest.passed.is_empty() && !rest.is_loss_open);
    }

    /// The descriptors that wait for their frames.
    pub(super) fn waiting(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rest.iter().flat_map(|rest| &rest.passed).filter_map(|passed| match passed {
            Passed::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Passed::Lost { .. } => None,
        })
    }

    /// A descriptor came.
    pub(super) fn pass(&mut self, descriptor: OwnedFd) {
        let rest = self.rest();
        rest.passed.push_back(Passed::Descriptor(descriptor));
        rest.descriptors += 1;
    }

    /// A read brought `bytes`, and descriptors were dropped if `is_cut`. `is_full`: it filled its buffer, so what it was
    /// cut out of may go on.
    pub(super) fn count_read(&mut self, bytes: usize, is_cut: bool, is_full: bool) {
        self.received += bytes as u64;
        let until = self.received;
        if !is_cut && self.rest.is_none() {
            return;
        }
        let rest = self.rest();
        if is_cut {
            rest.passed.push_back(Passed::Lost { until });
        } else if rest.is_loss_open
            && let Some(Passed::Lost { until: open }) =
                rest.passed.iter_mut().rev().find(|passed| matches!(passed, Passed::Lost { .. }))
        {
            *open = until;
        }
        rest.is_loss_open = is_full && (is_cut || rest.is_loss_open);
    }

    /// Takes the descriptor of the frame that begins where the stream was taken to.
    pub(super) fn take_descriptor(&mut self) -> Result<OwnedFd, Absent> {
        let taken = self.taken;
        let rest = self.rest.as_mut().ok_or(Absent::NotSent)?;
        loop {
            match rest.passed.front() {
                None => return Err(Absent::NotSent),
                Some(&Passed::Lost { until }) if taken < until => return Err(Absent::Lost),
                Some(_) => {}
            }
            if let Some(Passed::Descriptor(descriptor)) = rest.passed.pop_front() {
                rest.descriptors -= 1;
                return Ok(descriptor);
            }
        }
    }

    /// Everything that was received was taken: descriptors that are left are nobody's, and what was lost is over.
    pub(super) fn take_orphans(&mut self) -> Vec<OwnedFd> {
        let orphans = self.take_descriptors();
        if let Some(rest) = &mut self.rest
            && !rest.is_loss_open
        {
            rest.passed.clear();
        }
        self.shrink();
        orphans
    }

    /// Every descriptor there is.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        let Some(rest) = &mut self.rest else { return Vec::new() };
        rest.descriptors = 0;
        let (mut taken, mut lost) = (Vec::new(), VecDeque::new());
        for passed in std::mem::take(&mut rest.passed) {
            match passed {
                Passed::Descriptor(descriptor) => taken.push(descriptor),
                lost_here @ Passed::Lost { .. } => lost.push_back(lost_here),
            }
        }
        rest.passed = lost;
        taken
    }

    /// Moves bytes here until the first frame is whole; gives how many. Nothing if nothing is here.
    pub(super) fn top_up(&mut self, more: &[u8], limit_bytes: usize) -> usize {
        if self.is_empty() {
            return 0;
        }
        let rest = self.rest();
        let mut moved = 0;
        let header_bytes = HeaderSize::PLAIN.bytes();
        let have = rest.bytes.len() - rest.start;
        if have < header_bytes {
            moved += rest.append(&more[..(header_bytes - have).min(more.len())]);
        }
        let have = rest.bytes.len() - rest.start;
        match peek_next(HeaderSize::PLAIN, &rest.bytes[rest.start..]) {
            // Whoever looks at it next finds that it is too long.
            Some(claimed) if claimed > limit_bytes as u64 => {}
            Some(claimed) => {
                let missing = usize::try_from(claimed).unwrap_or(limit_bytes).saturating_sub(have);
                moved += rest.append(&more[moved..][..missing.min(more.len() - moved)]);
            }
            None => {}
        }
        moved
    }

    /// Keeps bytes for later.
    pub(super) fn append(&mut self, more: &[u8]) {
        if !more.is_empty() {
            self.rest().append(more);
        }
    }

    /// Lends the bytes out; [`put_back`](Self::put_back) returns them.
    pub(super) fn lend(&mut self) -> (Vec<u8>, usize) {
        let rest = self.rest();
        (std::mem::take(&mut rest.bytes), std::mem::take(&mut rest.start))
    }

    /// Returns what [`lend`](Self::lend) gave, of which everything before `start` was taken.
    pub(super) fn put_back(&mut self, mut bytes: Vec<u8>, mut start: usize) {
        if start == bytes.len() {
            // An idle session holds no buffer.
            (bytes, start) = (Vec::new(), 0);
        } else if start > KEPT_BYTES && start > bytes.len() / 2 {
            bytes.drain(..start);
            start = 0;
        }
        let rest = self.rest();
        (rest.bytes, rest.start) = (bytes, start);
    }

    /// A frame of so many bytes was taken.
    pub(super) fn count_taken(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }
}

impl Rest {
    fn append(&mut self, more: &[u8]) -> usize {
        self.bytes.extend_from_slice(more);
        more.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::io::pipe().expect("a pipe").0.into()
    }

    #[test]
    fn a_loss_holds_for_what_began_before_the_end_of_its_read() {
        let mut inbox = Inbox::default();
        inbox.pass(descriptor());
        inbox.count_read(100, true, false);
        inbox.count_read(50, false, false);
        inbox.pass(descriptor());
        assert!(inbox.take_descriptor().is_ok());
        inbox.count_taken(60);
        assert_eq!(inbox.take_descriptor().err(), Some(Absent::Lost));
        assert_eq!(inbox.take_descriptor().err(), Some(Absent::Lost), "and for the next one as well");
        inbox.count_taken(40);
        assert!(inbox.take_descriptor().is_ok(), "what begins later passes the mark by");
        assert_eq!(inbox.take_descriptor().err(), Some(Absent::NotSent));
        assert_eq!(inbox.descriptors(), 0);
    }

    #[test]
    fn a_loss_goes_on_while_reads_are_full() {
        let mut inbox = Inbox::default();
        inbox.count_read(64, true, true);
        inbox.count_taken(64);
        inbox.count_read(64, false, true);
        assert_eq!(inbox.take_descriptor().err(), Some(Absent::Lost));
        inbox.count_taken(64);
        inbox.count_read(10, false, false);
        assert_eq!(inbox.take_descriptor().err(), Some(Absent::Lost));
        inbox.count_taken(10);
        inbox.count_read(10, false, false);
        inbox.pass(descriptor());
        assert!(inbox.take_descriptor().is_ok());
    }

    #[test]
    fn a_frame_is_topped_up_byte_by_byte_and_no_further() {
        let stream = [8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 99];
        for cut in 1..12 {
            let mut inbox = Inbox::default();
            inbox.append(&stream[..cut]);
            for byte in &stream[cut..12] {
                assert_eq!(inbox.top_up(std::slice::from_ref(byte), 100), 1);
            }
            assert_eq!(inbox.top_up(&stream[12..], 100), 0);
            assert_eq!(inbox.lend(), (stream[..12].to_vec(), 0));
            let mut inbox = Inbox::default();
            inbox.append(&stream[..cut]);
            assert_eq!(inbox.top_up(&stream[cut..], 100), 12 - cut);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_gathered() {
        let mut inbox = Inbox::default();
        inbox.append(&[255, 0]);
        assert_eq!(inbox.top_up(&[0, 0, 1, 2, 3], 100), 2);
    }
}
