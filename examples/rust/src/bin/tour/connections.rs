//! A listener and a hundred connections, driven by a second process. A third of the watches each is Once,
//! Edge and Level.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use handle_watcher_client::{Event, Mode, Watched};

use crate::helper::{EXIT_ITEM, Helper};
use crate::scene::Scene;
use crate::stage::{Stage, expect_ready, item_of};
use crate::voice::{counted, grouped};
use crate::{Result, pattern};

pub(crate) const ROLE: &str = "connections";
pub(crate) const CONNECTIONS: u8 = 100;
pub(crate) const MESSAGES: usize = 8;
/// Small enough that a socket always has room for the one message that is under way.
pub(crate) const MESSAGE_BYTES: usize = 512;
/// Between two rounds of messages.
pub(crate) const PAUSE: Duration = Duration::from_millis(150);

const BYTES_EACH: usize = MESSAGES * MESSAGE_BYTES;
const LISTENER_ITEM: u32 = EXIT_ITEM - 1;
/// Events of this scene are told together, no more often than this.
const TELL_EVERY: Duration = Duration::from_millis(250);

struct Connection {
    stream: Watched<TcpStream>,
    mode: Mode,
    /// The driver's number of it, which is its first byte.
    number: Option<u8>,
    received: usize,
}

/// What came since it was last told.
#[derive(Default)]
struct Tally {
    events: u64,
    accepted: u64,
    bytes: u64,
    closed: u64,
}

struct Connections {
    listener: Watched<TcpListener>,
    /// By item; none once closed.
    open: Vec<Option<Connection>>,
    seen: Vec<u8>,
    bytes: u64,
    closed: usize,
    driver: Helper,
    tally: Tally,
    told: Instant,
}

pub(crate) fn begin(stage: &Stage<'_>) -> Result<Box<dyn Scene>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = stage.watch(listener, Mode::Level, LISTENER_ITEM)?;
    let driver = Helper::start(stage, ROLE, &address.port().to_string(), Stdio::null())?;
    stage.tell(format_args!("listening on {address}; a second process opens {CONNECTIONS} connections"))?;
    Ok(Box::new(Connections {
        listener,
        open: Vec::new(),
        seen: Vec::new(),
        bytes: 0,
        closed: 0,
        driver,
        tally: Tally::default(),
        told: Instant::now(),
    }))
}

impl Scene for Connections {
    fn expected(&self) -> String {
        let bytes = grouped(u64::from(CONNECTIONS) * BYTES_EACH as u64);
        format!("{CONNECTIONS} connections, {bytes} bytes as sent and sent back, {CONNECTIONS} ends, exit 0")
    }

    fn came(&self) -> String {
        let exit = self.driver.status().map_or("no exit".to_owned(), |status| status.to_string());
        let bytes = grouped(self.bytes);
        format!("{} connections, {bytes} bytes, {} ends, {exit}", self.open.len(), self.closed)
    }

    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        self.tally.events += 1;
        match item_of(event.token) {
            EXIT_ITEM => {
                let status = self.driver.on_exit(event)?;
                if !status.success() {
                    return Err(format!("the driver was not content with its echoes: {status}").into());
                }
            }
            LISTENER_ITEM => self.accept(stage, event)?,
            item => self.serve(item, event)?,
        }
        if self.told.elapsed() >= TELL_EVERY || self.is_over() {
            self.tell(stage)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.closed == usize::from(CONNECTIONS) && self.driver.status().is_some()
    }
}

impl Connections {
    fn accept(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()> {
        expect_ready(self.listener.id(), event)?;
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let mode = [Mode::Once, Mode::Edge, Mode::Level][self.open.len() % 3];
            let stream = stage.watch(stream, mode, u32::try_from(self.open.len())?)?;
            self.open.push(Some(Connection { stream, mode, number: None, received: 0 }));
            self.tally.accepted += 1;
        }
    }

    /// Reads what is there and sends it back; at the end of the stream the connection is closed.
    fn serve(&mut self, item: u32, event: &Event) -> Result<()> {
        let slot = self.open.get_mut(item as usize).ok_or_else(|| format!("nobody gave the item {item}"))?;
        let connection = slot.as_mut().ok_or_else(|| format!("connection {item} is closed: {event:?}"))?;
        expect_ready(connection.stream.id(), event)?;
        let before = connection.received;
        let has_ended = connection.echo()?;
        let bytes = (connection.received - before) as u64;
        if !has_ended && connection.mode == Mode::Once {
            connection.stream.arm()?;
        }
        self.bytes += bytes;
        self.tally.bytes += bytes;
        if has_ended && let Some(connection) = slot.take() {
            self.seen.push(connection.finish()?);
            self.seen.sort_unstable();
            if self.seen.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("two connections had one number".into());
            }
            self.closed += 1;
            self.tally.closed += 1;
        }
        Ok(())
    }

    fn tell(&mut self, stage: &Stage<'_>) -> Result<()> {
        let tally = std::mem::take(&mut self.tally);
        self.told = Instant::now();
        let counts = [
            (tally.accepted, "accepted"),
            (tally.bytes, "bytes checked and sent back"),
            (tally.closed, "closed by the other side"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
        stage.tell(format_args!("{}: {}", counted(tally.events, "event"), counts.join(", ")))
    }
}

impl Connection {
    /// True at the end of the stream.
    fn echo(&mut self) -> Result<bool> {
        let mut buffer = [0; 2 * MESSAGE_BYTES];
        loop {
            let length = match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            self.check(&buffer[..length])?;
            self.stream.write_all(&buffer[..length])?;
        }
    }

    fn check(&mut self, bytes: &[u8]) -> Result<()> {
        for &byte in bytes {
            let number = *self.number.get_or_insert(byte);
            let expected = pattern::byte(number, self.received);
            if byte != expected {
                return Err(format!(
                    "connection {number}: byte {} is {byte}, and {expected} was sent",
                    self.received
                )
                .into());
            }
            self.received += 1;
        }
        Ok(())
    }

    /// The number of a connection whose stream was complete.
    fn finish(self) -> Result<u8> {
        match self.number {
            Some(number) if self.received == BYTES_EACH => Ok(number),
            number => {
                Err(format!("connection {number:?} ended after {} of {BYTES_EACH} bytes", self.received)
                    .into())
            }
        }
    }
}
