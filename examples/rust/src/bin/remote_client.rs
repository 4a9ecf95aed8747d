//! `cargo run --release -p handle-watcher-examples --bin remote_client`
//!
//! A client of the service: `remote_client [SOCKET]`, where SOCKET is a path or `@name`; without it
//! HANDLE_WATCHER_SOCKET says it, and without either a service in this very process stands in for one.
//! It counts what comes through its standard input, or else through a pipe of its own, with a timer beside it, and ends
//! with that input.
//!
//! It shows: the same calls and events as in process. Only `Client::connect` is new, and that the service can be lost.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use handle_watcher_client::{
    Client, Code, Config, Event, EventKind, Events, Mode, Service, ServiceConfig, Signals, Token, Watcher,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: remote_client [SOCKET]";

const INPUT: Token = 1;
const TICK: Token = 2;

const PERIOD: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 64 * 1024;

fn main() -> Result<()> {
    // Both live as long as the program: a service that stops ends its clients' watches.
    let (address, _own) = match address()? {
        Some(address) => (address, None),
        None => {
            let (address, watcher, service) = serve_here()?;
            (address, Some((service, watcher)))
        }
    };
    let mut client = Client::connect(&address)?;
    println!("connected to {address}");

    let mut input = input()?;
    let watch = client.watch(&input, Signals::READABLE, Mode::Once, INPUT)?;
    client.set_periodic(PERIOD, PERIOD, TICK)?;
    let (mut bytes, mut ticks) = (0, 0);
    let mut events = Events::with_capacity(16);
    loop {
        client.wait(&mut events, None)?;
        for event in &events {
            match event {
                Event { kind: EventKind::Ended, status: Code::Unavailable, .. } => {
                    return Err(format!("the service is lost: {}", event.to_status()).into());
                }
                Event { token: TICK, .. } => {
                    ticks += event.count;
                    println!("tick {ticks}, {bytes} bytes so far");
                }
                Event { token: INPUT, kind: EventKind::Ready, .. } => {
                    let length = input.read(&mut [0; READ_BYTES])?;
                    if length == 0 {
                        println!("the input has ended after {bytes} bytes");
                        return Ok(());
                    }
                    bytes += length;
                    client.arm(watch)?;
                }
                _ => return Err(format!("not expected here: {event:?}").into()),
            }
        }
    }
}

/// The service that was asked for, if one was.
fn address() -> Result<Option<String>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().or_else(|| std::env::var("HANDLE_WATCHER_SOCKET").ok());
    if words.next().is_some() {
        return Err(USAGE.into());
    }
    Ok(address.filter(|address| !address.is_empty()))
}

/// A service of our own, at an abstract name that nobody else has.
fn serve_here() -> Result<(String, Watcher, Service)> {
    let address = format!("@handle-watcher-example-{}", std::process::id());
    let watcher = Watcher::spawn(Config::default())?;
    let service = Service::bind(&watcher, &address, ServiceConfig::default())?;
    Ok((address, watcher, service))
}

/// Standard input where there is a pipe or a socket; otherwise a pipe with a few words in it, so that the program ends.
/// Whoever else reads the same input may wake us for nothing, and then the read here waits.
fn input() -> Result<File> {
    let stdin = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let file_type = stdin.metadata()?.file_type();
    if file_type.is_fifo() || file_type.is_socket() {
        return Ok(stdin);
    }
    let (reader, mut writer) = std::io::pipe()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        for word in ["one ", "two ", "three "] {
            std::thread::sleep(PERIOD);
            writer.write_all(word.as_bytes())?;
        }
        Ok(())
    });
    Ok(File::from(OwnedFd::from(reader)))
}
