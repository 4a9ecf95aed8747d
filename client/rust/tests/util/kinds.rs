//! Descriptors of every kind, and small things to do with them.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, poll};
use rustix::fs::{FileType, Mode as FileMode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::OptionalActions;
use rustix::time::{TimerfdClockId, TimerfdFlags};

use super::{PROMPT, place_at, raise_descriptor_limit};

/// A pipe, neither end of which blocks: reader, writer.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe")
}

/// A pair of connected sockets that do not block.
pub(crate) fn socket_pair() -> (OwnedFd, OwnedFd) {
    let (one, other) = UnixStream::pair().expect("a socket pair");
    one.set_nonblocking(true).expect("a flag");
    other.set_nonblocking(true).expect("a flag");
    (one.into(), other.into())
}

/// A pair of connected TCP sockets that do not block.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (other, _) = listener.accept().expect("the same connection");
    for stream in [&one, &other] {
        stream.set_nonblocking(true).expect("a flag");
        stream.set_nodelay(true).expect("a flag");
    }
    (one, other)
}

/// An eventfd that does not block.
pub(crate) fn event_fd(count: u32) -> OwnedFd {
    rustix::event::eventfd(count, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

pub(crate) fn set_event(event: &impl AsFd) {
    write_all(event, &1_u64.to_ne_bytes());
}

/// Takes an eventfd's count away, or a timerfd's.
pub(crate) fn clear_event(event: &impl AsFd) -> u64 {
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(event, &mut count), Ok(8), "a count");
    u64::from_ne_bytes(count)
}

/// A pseudo-terminal that passes bytes as they are: master, slave. Neither blocks.
pub(crate) fn pty() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).expect("a pseudo-terminal");
    rustix::pty::unlockpt(&master).expect("a slave");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("a name");
    let open = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, open, FileMode::empty()).expect("a slave");
    let mut settings = rustix::termios::tcgetattr(&slave).expect("settings");
    settings.make_raw();
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &settings).expect("settings");
    set_nonblocking(&master);
    set_nonblocking(&slave);
    (master, slave)
}

/// A FIFO at a path: reader, writer. Neither blocks.
pub(crate) fn fifo(path: &Path) -> (OwnedFd, OwnedFd) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, FileMode::RUSR | FileMode::WUSR, 0)
        .expect("a FIFO");
    let open =
        |access| rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, FileMode::empty());
    (open(OFlags::RDONLY).expect("a reader"), open(OFlags::WRONLY).expect("a writer"))
}

/// A timerfd that is not set.
pub(crate) fn timer_fd() -> OwnedFd {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).expect("a timerfd")
}

/// Lets a timerfd expire once, `after` from now.
pub(crate) fn set_timer_fd(timer: &impl AsFd, after: Duration) {
    let value = rustix::time::Timespec::try_from(after).expect("a short time");
    let setting = rustix::time::Itimerspec {
        it_interval: rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: value,
    };
    rustix::time::timerfd_settime(timer, rustix::time::TimerfdTimerFlags::empty(), &setting)
        .expect("a setting");
}

/// An empty epoll set.
pub(crate) fn poll_set() -> OwnedFd {
    epoll::create(epoll::CreateFlags::CLOEXEC).expect("a poll set")
}

pub(crate) fn add_to_poll_set(set: &impl AsFd, descriptor: &impl AsFd) {
    epoll::add(set, descriptor, epoll::EventData::new_u64(1), epoll::EventFlags::IN).expect("an entry");
}

/// A UDP socket, bound and connected to a port of this machine where nobody listens: what it sends comes back as an
/// error.
pub(crate) fn udp_to_nobody() -> std::net::UdpSocket {
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(gone).expect("an address");
    socket.set_nonblocking(true).expect("a flag");
    socket
}

pub(crate) fn set_nonblocking(descriptor: &impl AsFd) {
    rustix::io::ioctl_fionbio(descriptor, true).expect("a flag");
}

/// Status and descriptor flags, as fcntl(2) tells them.
pub(crate) fn flags_of(descriptor: &impl AsFd) -> (OFlags, rustix::io::FdFlags) {
    let status = rustix::fs::fcntl_getfl(descriptor).expect("flags");
    (status, rustix::io::fcntl_getfd(descriptor).expect("flags"))
}

/// Writes everything, or fails the test if there is no room.
#[track_caller]
pub(crate) fn write_all(descriptor: &impl AsFd, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(descriptor, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(errno) => panic!("write: {errno}"),
        }
    }
}

/// Writes until there is no room. Gives how many bytes that took.
pub(crate) fn fill(descriptor: &impl AsFd) -> usize {
    let mut written = 0;
    loop {
        match rustix::io::write(descriptor, &[b'f'; 4096]) {
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return written,
            Err(errno) => panic!("write: {errno}"),
        }
    }
}

/// One read of at most so many bytes. Nothing at an end; none if it would block.
#[track_caller]
pub(crate) fn read_some(descriptor: &impl AsFd, most: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; most];
    loop {
        match rustix::io::read(descriptor, &mut buffer[..]) {
            Ok(count) => {
                buffer.truncate(count);
                return Some(buffer);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return None,
            // A pseudo-terminal's master says so at the end.
            Err(Errno::IO) => return Some(Vec::new()),
            Err(errno) => panic!("read: {errno}"),
        }
    }
}

/// Reads until an end, or until it would block. Gives how many bytes that were.
#[track_caller]
pub(crate) fn read_all(descriptor: &impl AsFd) -> usize {
    let mut total = 0;
    loop {
        match read_some(descriptor, 65536) {
            None => return total,
            Some(bytes) if bytes.is_empty() => return total,
            Some(bytes) => total += bytes.len(),
        }
    }
}

/// True once reading gives an end: everybody has closed the other side.
pub(crate) fn is_at_end(descriptor: &impl AsFd) -> bool {
    read_some(descriptor, 1).is_some_and(|bytes| bytes.is_empty())
}

/// Asks poll(2) whether a descriptor becomes readable in time.
pub(crate) fn is_readable_within(descriptor: &impl AsFd, timeout: Duration) -> bool {
    let timeout = rustix::time::Timespec::try_from(timeout).expect("a short time");
    let mut entries = [PollFd::new(descriptor, PollFlags::IN)];
    let found = rustix::io::retry_on_intr(|| poll(&mut entries, Some(&timeout))).expect("poll");
    assert!(found == 0 || entries[0].revents() == PollFlags::IN, "readable and nothing else: {entries:?}");
    found > 0
}

/// Waits until a condition holds that nobody tells us of.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + PROMPT;
    while !holds() {
        assert!(Instant::now() < give_up, "this did not come true: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A descriptor number that no other test of this process gets, because no `open` reaches so high by itself. It can be
/// closed and used again as often as the test likes, and nobody else takes it in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrivateNumber(RawFd);

impl PrivateNumber {
    pub(crate) fn new() -> Self {
        // Descriptors that are opened get the lowest free numbers; no test program has 600 open at once.
        static NEXT: AtomicU32 = AtomicU32::new(600);
        static LIMIT: OnceLock<u64> = OnceLock::new();
        let limit = *LIMIT.get_or_init(raise_descriptor_limit);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(u64::from(number) < limit, "too many private numbers in one test program: {limit}");
        Self(number.cast_signed())
    }

    pub(crate) fn number(self) -> RawFd {
        self.0
    }

    /// Moves a descriptor to this number; what was there is closed.
    pub(crate) fn take(self, descriptor: OwnedFd) -> OwnedFd {
        let placed = place_at(&descriptor, self.0);
        drop(descriptor);
        placed
    }

    /// Puts a duplicate of a descriptor at this number; what was there is closed.
    pub(crate) fn take_duplicate(self, descriptor: &impl AsFd) -> OwnedFd {
        place_at(descriptor, self.0)
    }
}

pub(crate) fn duplicate(descriptor: &impl AsFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 0).expect("a duplicate")
}

/// A folder that is removed again.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("handle-watcher-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => {}
            // Left behind by an earlier process of the same number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                std::fs::remove_dir_all(&path).expect("an old folder");
                std::fs::create_dir(&path).expect("a folder");
            }
            Err(error) => panic!("a folder in {path:?}: {error}"),
        }
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{:?} stays behind: {error}", self.0);
        }
    }
}

/// The number behind a descriptor.
pub(crate) fn number_of(descriptor: &impl AsFd) -> RawFd {
    descriptor.as_fd().as_raw_fd()
}
