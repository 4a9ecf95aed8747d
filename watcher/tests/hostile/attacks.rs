//! What hostile clients do.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use handle_watcher::{Mode, Signals};
use handle_watcher_wire::pickle::Writer;
use handle_watcher_wire::protocol::{Change, DESCRIPTORS_MOST, Request, SetTimer, Watch};

use super::raw_client::{connect, hello, send};
use super::session::Session;

/// How many connections an attacker leaves open at most.
const HELD_MOST: usize = 12;

/// One thread's worth of malice, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Attacker {
    address: String,
    state: u64,
    /// Connections that are left as they are for a while.
    held: Vec<UnixStream>,
}

impl Attacker {
    pub(crate) fn new(address: &str, seed: u64) -> Self {
        Self { address: address.to_owned(), state: seed, held: Vec::new() }
    }

    /// One attack. That the service hangs up, refuses, or takes no more is what it is for.
    pub(crate) fn attack(&mut self) {
        let _: Result<()> = match self.below(10) {
            0 => self.send_garbage(),
            1 => self.leave_half_a_frame(),
            2 => self.pass_wrong_descriptors(),
            3 => self.flood_and_never_read(),
            4 => self.storm(),
            5 => self.make_events_and_never_read(),
            6 => self.damage_good_frames(),
            7 => self.dribble(),
            8 => self.churn(),
            _ => self.play_a_script(),
        };
    }

    /// The next number of the seed's sequence (splitmix64).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// Leaves a connection open, and lets an older one go.
    fn hold(&mut self, connection: UnixStream) {
        if self.held.len() >= HELD_MOST {
            let chosen = self.below(HELD_MOST);
            self.held.swap_remove(chosen);
        }
        self.held.push(connection);
    }

    /// A connection that said Hello.
    fn greet(&mut self) -> Result<UnixStream> {
        let calls = connect(&self.address)?;
        send(calls.as_fd(), hello(&mut Writer::new()), &[])?;
        Ok(calls)
    }

    fn send_garbage(&mut self) -> Result<()> {
        let calls = if self.below(2) == 0 { connect(&self.address)? } else { self.greet()? };
        let garbage = self.bytes(9000);
        send(calls.as_fd(), &garbage, &[])?;
        Ok(())
    }

    fn leave_half_a_frame(&mut self) -> Result<()> {
        let calls = if self.below(2) == 0 { connect(&self.address)? } else { self.greet()? };
        let claimed = u32::try_from(self.below(300_000)).unwrap_or(0).to_le_bytes();
        let mut half = claimed.to_vec();
        half.extend(self.bytes(200));
        half.truncate(1 + self.below(half.len()));
        let (reader, _writer) = std::io::pipe()?;
        let passed = [reader.as_fd()];
        let count = self.below(2);
        send(calls.as_fd(), &half, &passed[..count])?;
        self.hold(calls);
        Ok(())
    }

    fn pass_wrong_descriptors(&mut self) -> Result<()> {
        let calls = self.greet()?;
        let (reader, writer) = std::io::pipe()?;
        let file = std::fs::File::open("/proc/self/stat")?;
        let null = std::fs::File::open("/dev/null")?;
        let all = [reader.as_fd(), writer.as_fd(), file.as_fd(), null.as_fd(), calls.as_fd()];
        let mut frame = Writer::new();
        for id in 0..20 {
            let said = u32::try_from(self.below(4)).unwrap_or(0);
            watch(id, id).write(2, said, &mut frame);
            let count = if self.below(20) == 0 { DESCRIPTORS_MOST } else { self.below(3) };
            let passed: Vec<BorrowedFd<'_>> = (0..count).map(|_| all[self.below(all.len())]).collect();
            send(calls.as_fd(), frame.frame().unwrap_or(&[]), &passed)?;
        }
        Ok(())
    }

    fn flood_and_never_read(&mut self) -> Result<()> {
        let calls = self.greet()?;
        let echo = vec![7; self.below(4000)];
        let mut frame = Writer::new();
        Request::Echo(&echo).write(3, 0, &mut frame);
        let frames = frame.frame().unwrap_or(&[]).repeat(1 + 16_000 / (echo.len() + 20));
        for _ in 0..self.below(60) {
            // What it takes of the last one ends in the middle of a frame.
            send(calls.as_fd(), &frames, &[])?;
        }
        self.hold(calls);
        Ok(())
    }

    fn storm(&mut self) -> Result<()> {
        for _ in 0..self.below(40) {
            let calls = connect(&self.address)?;
            if self.below(8) == 0 {
                self.hold(calls);
            }
        }
        Ok(())
    }

    /// Everything it watches is always ready, and its timers never rest.
    fn make_events_and_never_read(&mut self) -> Result<()> {
        let calls = self.greet()?;
        let mut frame = Writer::new();
        let mut ends: Vec<OwnedFd> = Vec::new();
        for id in 0..8 {
            let (one, other) = UnixStream::pair()?;
            watch(id, id).write(4, 1, &mut frame);
            send(calls.as_fd(), frame.frame().unwrap_or(&[]), &[one.as_fd()])?;
            let timer = SetTimer { id, token: id, deadline_ns: 1, period_ns: 1 + self.next() % 1_000_000 };
            Request::SetTimer(timer).write(5, 0, &mut frame);
            send(calls.as_fd(), frame.frame().unwrap_or(&[]), &[])?;
            ends.push(other.into());
        }
        for token in 0..200 {
            let id = self.next() % 8;
            let change = Change { id, token, signals: Signals::WRITABLE, mode: Mode::Edge };
            Request::Change(change).write(0, 0, &mut frame);
            send(calls.as_fd(), frame.frame().unwrap_or(&[]), &[])?;
        }
        self.hold(calls);
        Ok(())
    }

    fn damage_good_frames(&mut self) -> Result<()> {
        let calls = self.greet()?;
        let mut frame = Writer::new();
        for number in 0..40_u64 {
            let request = match self.below(8) {
                0 => Request::Ping,
                1 => Request::Stats,
                2 => Request::Watches { session: number, most: u32::MAX },
                3 => Request::Unwatch { id: number },
                4 => Request::Close { handle: number },
                5 => Request::CancelTimer { id: number },
                6 => Request::Sessions,
                _ => watch(number, number),
            };
            request.write(9, 0, &mut frame);
            let mut bytes = frame.frame().unwrap_or(&[]).to_vec();
            // The size word is damaged less often, so that more than one frame is looked at.
            let first = if self.below(8) == 0 { 0 } else { 4 };
            let at = first + self.below(bytes.len() - first);
            bytes[at] ^= 1 << self.below(8);
            send(calls.as_fd(), &bytes, &[])?;
        }
        Ok(())
    }

    /// Byte by byte.
    fn dribble(&mut self) -> Result<()> {
        let calls = connect(&self.address)?;
        let mut frame = Writer::new();
        let bytes = [hello(&mut frame).to_vec(), self.bytes(60)].concat();
        for byte in bytes {
            send(calls.as_fd(), &[byte], &[])?;
        }
        self.hold(calls);
        Ok(())
    }

    /// Watches come and go on one handle, with the same numbers again and again.
    fn churn(&mut self) -> Result<()> {
        let calls = self.greet()?;
        let (reader, _writer) = std::io::pipe()?;
        let mut frame = Writer::new();
        for _ in 0..100 {
            let (id, handle) = (self.next() % 4, self.next() % 2);
            let (request, passed) = match self.below(5) {
                0 | 1 => (watch(id, handle), 1),
                2 => (watch(id, handle), 0),
                3 => (Request::Unwatch { id }, 0),
                _ => (Request::Close { handle }, 0),
            };
            request.write(6, u32::from(passed == 1), &mut frame);
            send(calls.as_fd(), frame.frame().unwrap_or(&[]), &[reader.as_fd()][..passed])?;
        }
        Ok(())
    }

    fn play_a_script(&mut self) -> Result<()> {
        let mut script = vec![2];
        script.extend(self.bytes(400));
        Session::connect(&self.address)?.play(&script);
        Ok(())
    }
}

fn watch(id: u64, handle: u64) -> Request<'static> {
    let signals = Signals::READABLE | Signals::WRITABLE;
    Request::Watch(Watch { id, handle, token: id, signals, mode: Mode::Edge, deadline_ns: 0 })
}
