//! Seeded garbage, half frames, wrong descriptors and floods, while a well-behaved client stays prompt and nothing grows.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use handle_watcher::{Mode, Signals};
use handle_watcher_wire::protocol::{Arm, Change, Hello, Request, SetTimer};

use crate::client::*;
use crate::process::*;
use crate::util::*;

/// How long the sessions of garbage go on.
const DURATION: Duration = Duration::from_secs(3);

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn request(random: &mut Random) -> Request<'static> {
    let id = random.below(6);
    let signals = Signals::from_bits_truncate(random.below(32) as u8);
    let mode = if random.below(2) == 0 { Mode::Once } else { Mode::Edge };
    let deadline_ns = [0, 1, u64::MAX][random.below(3) as usize];
    match random.below(15) {
        0..4 => watch_of(id, signals, mode),
        4 => Request::Change(Change { id, token: id, signals, mode }),
        5 => Request::Arm(Arm { id, token: id, deadline_ns }),
        6 => Request::Pause { id },
        7 => Request::Unwatch { id },
        8 => Request::Close { handle: id },
        9 => Request::SetTimer(SetTimer { id, token: id, deadline_ns, period_ns: random.below(2) * 1000 }),
        10 => Request::CancelTimer { id },
        11 => Request::Echo(&[9; 3000]),
        12 => Request::Watches { session: random.below(100), most: u32::MAX },
        13 => Request::Stats,
        _ => Request::Ping,
    }
}

/// One session of it. Whatever the service says is read now and then, or never.
fn misbehave(path: &str, random: &mut Random, pool: &[BorrowedFd<'_>]) {
    let mut raw = Raw::connect(path);
    raw.socket.set_write_timeout(Some(Duration::from_millis(20))).expect("ours");
    raw.socket.set_read_timeout(Some(Duration::from_millis(1))).expect("ours");
    if random.below(10) > 0 {
        let hello = Request::Hello(Hello { version_lowest: 1, version_highest: 1, name: "hostile" });
        if raw.send_bytes(&frame_of(&hello, 1, &[]), &[]).is_err() {
            return;
        }
    }
    for _ in 0..random.below(40) {
        let mut bytes = Vec::new();
        let mut descriptors = Vec::new();
        for _ in 0..=random.below(12) {
            let count = usize::try_from(random.below(8).saturating_sub(5)).expect("few");
            let claimed: Vec<BorrowedFd<'_>> =
                (0..count).map(|_| pool[random.below(pool.len() as u64) as usize]).collect();
            bytes.extend(frame_of(&request(random), random.below(4) as u32 + u32::from(count > 0), &claimed));
            // Mostly as many as it claims.
            descriptors.extend_from_slice(&claimed[..claimed.len().min(random.below(9) as usize)]);
        }
        match random.below(12) {
            0 => {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            1 => bytes.truncate(random.below(bytes.len() as u64) as usize + 1),
            _ => {}
        }
        if raw.send_bytes(&bytes, &descriptors).is_err() {
            return;
        }
        if random.below(3) == 0 {
            let mut buffer = [0; 4096];
            let _: std::io::Result<usize> = std::io::Read::read(&mut raw.socket, &mut buffer);
        }
    }
}

#[test]
fn a_well_behaved_client_notices_nothing() {
    alone!(a_well_behaved_client_notices_nothing, {
        raise_descriptor_limit();
        let stage = Stage::new();
        let mut witness = Client::connect(&stage.path);
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        witness.watch(1, &reader, Signals::READABLE, Mode::Edge);
        witness.ok(&Request::Ping);
        let before = descriptor_count();
        let until_then = Instant::now() + DURATION;
        let threads: Vec<_> = (1..4_u64)
            .map(|seed| {
                let path = stage.path.clone();
                std::thread::spawn(move || {
                    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                    let (pipe, pipe_writer) = std::io::pipe().expect("a pipe");
                    let (stream, peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
                    let file = std::fs::File::open("/dev/null").expect("it is everywhere");
                    let event = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).expect("one");
                    let pool = [
                        pipe.as_fd(),
                        pipe_writer.as_fd(),
                        stream.as_fd(),
                        peer.as_fd(),
                        file.as_fd(),
                        event.as_fd(),
                    ];
                    let mut sessions = 0;
                    while Instant::now() < until_then {
                        misbehave(&path, &mut random, &pool);
                        sessions += 1;
                    }
                    sessions
                })
            })
            .collect();
        let mut rounds = 0;
        let mut memory = None;
        while threads.iter().any(|thread| !thread.is_finished()) {
            let asked = Instant::now();
            writer.write_all(b"x").expect("room");
            witness.expect_ready(1, Signals::READABLE);
            assert!(asked.elapsed() < PROMPT, "it was not prompt");
            rustix::io::read(&reader, &mut [0; 8]).expect("what was written");
            rounds += 1;
            if Instant::now() + DURATION / 2 > until_then {
                memory.get_or_insert_with(resident_kib);
            }
        }
        let sessions: u64 = threads.into_iter().map(|thread| thread.join().expect("it ends")).sum();
        assert!(sessions > 20 && rounds > 20, "{sessions} sessions, {rounds} rounds");
        until("all are gone", || witness.stat("service_sessions") == 1);
        expect_descriptors(before);
        let grown = resident_kib().saturating_sub(memory.expect("it was looked at"));
        assert!(grown < 16 << 10, "memory grew by {grown} KiB");
        assert_eq!(witness.stat("session_watches"), 1);
        assert_eq!(witness.stat("session_timers"), 0);
    });
}
