//! Bytes as the script of a whole session against a real service: what is sent, in which pieces, with which descriptors,
//! and what is read. The service has to survive it, to forget it, and to go on serving another session.

use std::io::{Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use handle_watcher::{Config, Service, ServiceConfig, Watcher};
use handle_watcher_wire::pickle::Writer;
use rustix::net::RecvFlags;

use super::raw_client::{GoodClient, PATIENCE, connect, hello, receive, send};

/// What is there for as long as the process lives.
#[derive(Debug)]
struct Place {
    neighbour: GoodClient,
    _service: Service,
    _watcher: Watcher,
}

/// Plays a script to a service of this process, and looks after its neighbour.
pub(crate) fn feed(script: &[u8]) {
    static PLACE: OnceLock<Mutex<Place>> = OnceLock::new();
    let address = format!("@handle-watcher-session-{}", std::process::id());
    let place = PLACE.get_or_init(|| Mutex::new(open(&address)));
    // A panic of an earlier script was told already.
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(mut session) = Session::connect(&address) {
        session.play(script);
    }
    let start = Instant::now();
    while sessions(&mut place.neighbour, &address) > 1 {
        assert!(start.elapsed() < PATIENCE, "a session whose client is gone is still there");
        std::thread::yield_now();
    }
}

/// How many sessions there are, as a neighbour learns it who is served meanwhile. A script may kill the neighbour: then
/// there is another.
fn sessions(neighbour: &mut GoodClient, address: &str) -> u64 {
    let ask = |neighbour: &mut GoodClient| {
        neighbour.round_trip().and_then(|_| neighbour.counter("service_sessions"))
    };
    match ask(neighbour) {
        Ok(sessions) => sessions,
        Err(failure) => {
            assert!(neighbour.was_killed(&failure), "another session is not served: {failure}");
            *neighbour = GoodClient::start(address).expect("a session");
            ask(neighbour).expect("another session is served")
        }
    }
}

/// A service whose limits a short script can reach.
fn open(address: &str) -> Place {
    let config = ServiceConfig {
        frame_bytes: 8192,
        watches_per_session: 16,
        timers_per_session: 8,
        descriptors_per_session: 16,
        reply_bytes: 4096,
        requests_per_turn: 8,
        ..ServiceConfig::default()
    };
    let watcher = Watcher::spawn(Config::default()).expect("a watcher");
    let service = Service::bind(&watcher, address, config).expect("a service");
    let neighbour = GoodClient::start(address).expect("a session");
    Place { neighbour, _service: service, _watcher: watcher }
}

/// One session that plays a script.
#[derive(Debug)]
pub(crate) struct Session {
    calls: UnixStream,
    /// What the service passed.
    passed: Vec<OwnedFd>,
    /// The other ends of what we passed. Of a pipe both, because a write to one that nobody reads is a signal.
    ends: Vec<(OwnedFd, Option<OwnedFd>)>,
}

/// The rest of a script.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number in a byte: mostly small ones, some from the far end.
    fn number(&mut self) -> u64 {
        match self.byte().unwrap_or(0) {
            byte @ 0..0xF0 => byte.into(),
            byte => u64::MAX - u64::from(byte - 0xF0),
        }
    }
}

impl Session {
    /// # Errors
    /// Whatever connect(2) says.
    pub(crate) fn connect(address: &str) -> Result<Self> {
        Ok(Self { calls: connect(address)?, passed: Vec::new(), ends: Vec::new() })
    }

    /// Plays a whole script. A service that hangs up is none of its business.
    pub(crate) fn play(&mut self, script: &[u8]) {
        let mut script = Script(script);
        while let Some(step) = script.byte() {
            let _: Result<()> = self.step(step, &mut script);
        }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) -> Result<()> {
        let mut writer = Writer::new();
        match step % 8 {
            0 => {
                let count = usize::from(script.byte().unwrap_or(0));
                send(self.calls.as_fd(), script.bytes(count), &[])?;
            }
            1 => {
                let count = usize::from(script.byte().unwrap_or(0));
                let descriptors = self.descriptors(script)?;
                let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
                send(self.calls.as_fd(), script.bytes(count), &borrowed)?;
            }
            2 => {
                send(self.calls.as_fd(), hello(&mut writer), &[])?;
            }
            3 | 4 => {
                let descriptors = if step % 8 == 4 { self.descriptors(script)? } else { Vec::new() };
                write_request(script, u32::try_from(descriptors.len()).unwrap_or(0), &mut writer);
                let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
                send(self.calls.as_fd(), writer.frame().unwrap_or(&[]), &borrowed)?;
            }
            5 => self.read()?,
            6 => {
                let chosen = usize::from(script.byte().unwrap_or(0)) % self.ends.len().max(1);
                match self.ends.get(chosen) {
                    Some((writer, Some(_))) => drop(rustix::io::write(writer, b"12345678")?),
                    Some((socket, None)) => drop(send(socket.as_fd(), b"12345678", &[])?),
                    None => {}
                }
            }
            _ => {
                let chosen = usize::from(script.byte().unwrap_or(0)) % self.ends.len().max(1);
                if chosen < self.ends.len() {
                    self.ends.swap_remove(chosen);
                }
            }
        }
        Ok(())
    }

    /// Up to three descriptors, or a few more than fit a session.
    fn descriptors(&mut self, script: &mut Script<'_>) -> Result<Vec<OwnedFd>> {
        let count = script.byte().unwrap_or(0);
        let count = if count >= 0xF8 { 20 } else { count % 4 };
        (0..count).map(|_| self.descriptor(script.byte().unwrap_or(0))).collect()
    }

    /// A descriptor of any kind, good ones and bad.
    fn descriptor(&mut self, kind: u8) -> Result<OwnedFd> {
        use rustix::event::{EventfdFlags, eventfd};
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        Ok(match kind % 12 {
            0 => {
                let (reader, writer) = std::io::pipe()?;
                self.ends.push((writer.into(), Some(reader.try_clone()?.into())));
                reader.into()
            }
            1 => {
                let (reader, writer) = std::io::pipe()?;
                self.ends.push((reader.into(), None));
                writer.into()
            }
            2 => {
                let (one, other) = UnixStream::pair()?;
                other.set_nonblocking(true)?;
                self.ends.push((other.into(), None));
                one.into()
            }
            3 => eventfd(u32::from(kind), EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            4 => timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            5 => {
                let process = rustix::process::getpid();
                rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())?
            }
            6 => rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC)?,
            7 => std::fs::File::open("/dev/null")?.into(),
            8 => rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?,
            9 => std::fs::File::open("/proc/self/stat")?.into(),
            10 => self.calls.try_clone()?.into(),
            _ => match self.passed.first() {
                Some(events) => events.try_clone()?,
                None => {
                    let (one, other) = UnixStream::pair()?;
                    // A descriptor that is under way in a descriptor that is under way. Not our call socket: the service
                    // would hold it, and cannot know that nobody else does.
                    send(other.as_fd(), b"x", &[one.as_fd()])?;
                    (&other).write_all(b"y")?;
                    one.into()
                }
            },
        })
    }

    /// Reads what there is.
    fn read(&mut self) -> Result<()> {
        let mut bytes = [0; 2048];
        if let Some(events) = self.passed.first() {
            // Nothing may be there.
            let _: Result<_> = receive(events.as_fd(), &mut bytes, RecvFlags::DONTWAIT);
        }
        let (_, passed) = receive(self.calls.as_fd(), &mut bytes, RecvFlags::DONTWAIT)?;
        self.passed.extend(passed);
        Ok(())
    }
}

/// A request whose form is right, whatever its values are.
fn write_request(script: &mut Script<'_>, descriptors: u32, writer: &mut Writer) {
    let (kind, call) = (script.byte().unwrap_or(0), script.byte().unwrap_or(0));
    // Few lies here, so that most frames come through.
    let said = if call == 0xFF { descriptors + 1 } else { descriptors };
    writer.write_u32(u32::from(kind % 18));
    writer.write_u32(call.into());
    writer.write_u32(said);
    let layout: &[u8] = match kind % 18 {
        1 => b"miit",
        2 => b"qqqiiq",
        3 => b"qqii",
        4 => b"qqq",
        5 | 6 | 7 | 9 | 15 => b"q",
        8 => b"qqqq",
        11 => b"t",
        14 => b"qi",
        _ => b"",
    };
    for value in layout {
        match value {
            b'q' => writer.write_u64(script.number()),
            b'i' => writer.write_u32(u32::try_from(script.number()).unwrap_or(u32::MAX)),
            b'm' => writer.write_str(handle_watcher_wire::protocol::MAGIC),
            _ => {
                let count = usize::from(script.byte().unwrap_or(0));
                writer.write_data(script.bytes(count));
            }
        }
    }
}
