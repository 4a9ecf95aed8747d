//! `cargo run --release -p handle-watcher-examples --bin echo_server -- 7000`
//!
//! Sends back whatever comes in over TCP on that port. `--connections N` ends it after N closed connections;
//! port 0 takes a free one. Try it with `nc 127.0.0.1 7000`.
//!
//! It shows: many descriptors on one port, a client that reads slowly (its connection is not read from until
//! it has taken what it is owed), and a full descriptor table (accepting is paused, not retried for ever).

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use handle_watcher_client::{Client, Events, Mode, Signals, Token, WatchOptions, Watched};

const USAGE: &str = "usage: echo_server PORT [--connections N]";

/// The listener's token. Connections count from 1.
const LISTENER: Token = 0;

struct Connection {
    stream: Watched<TcpStream>,
    /// What came in and could not be sent back yet.
    owed: Vec<u8>,
}

struct Server {
    // What is watched comes before the client, so that it is unwatched first.
    listener: Watched<TcpListener>,
    connections: HashMap<Token, Connection>,
    client: Client,
    accepted: u64,
    closed: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (port, limit) = match arguments.as_slice() {
        [port] => (port.parse()?, u64::MAX),
        [port, "--connections", limit] => (port.parse()?, limit.parse()?),
        _ => return Err(USAGE.into()),
    };
    let mut server = Server::new(port)?;
    println!("listening on {}", server.listener.local_addr()?);
    let mut events = Events::with_capacity(256);
    while server.closed < limit {
        server.client.wait(&mut events, None)?;
        for event in &events {
            match event.token {
                LISTENER => server.accept()?,
                token => server.serve(token)?,
            }
        }
    }
    Ok(())
}

impl Server {
    fn new(port: u16) -> Result<Self, Box<dyn Error>> {
        let client = Client::embedded()?;
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let options = WatchOptions::new(Signals::READABLE, Mode::Level, LISTENER);
        let listener = client.watch_owned(listener, options)?;
        Ok(Self { listener, connections: HashMap::new(), client, accepted: 0, closed: 0 })
    }

    fn accept(&mut self) -> Result<(), Box<dyn Error>> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                self.accepted += 1;
                let token = self.accepted;
                let options = WatchOptions::new(Signals::READABLE, Mode::Level, token);
                let stream = self.client.watch_owned(stream, options)?;
                self.connections.insert(token, Connection { stream, owed: Vec::new() });
            }
            // A Ready is a hint, and whoever connected may have left.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
            // Descriptors ran out. Nobody new until somebody has left, and no idle turning until then.
            Err(error) if !self.connections.is_empty() => {
                eprintln!("not accepting for now: {error}");
                self.client.pause(self.listener.id())?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn serve(&mut self, token: Token) -> Result<(), Box<dyn Error>> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let owed_before = !connection.owed.is_empty();
        // An error of one connection ends that one.
        if connection.echo().unwrap_or(false) {
            let owes = !connection.owed.is_empty();
            if owes != owed_before {
                // While something is owed nothing more is read, so what is owed stays small.
                let signals = if owes { Signals::WRITABLE } else { Signals::READABLE };
                self.client.change(connection.stream.id(), signals)?;
            }
            return Ok(());
        }
        // Dropped with its watch, which ends before the socket is closed.
        self.connections.remove(&token);
        self.closed += 1;
        self.client.resume(self.listener.id())?;
        Ok(())
    }
}

impl Connection {
    /// Reads once, unless something is owed, and sends what it can. False at the end.
    fn echo(&mut self) -> io::Result<bool> {
        if self.owed.is_empty() {
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => self.owed.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        while !self.owed.is_empty() {
            match self.stream.write(&self.owed) {
                Ok(sent) => drop(self.owed.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
