//! What the other processes do: they are the real input of the scenes.
//!
//! A variable makes one of them misbehave, so that a test can see the tour notice: a changed byte, a lost
//! byte, an end that never comes, a line after the count. The scene `front`, which has no helper, is held in the back.

use std::io::{Read, Write, stdout};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::{Result, child, connections, file, pattern, service, terminal};

/// Names the scene whose helper misbehaves.
const MISBEHAVE_VARIABLE: &str = "HANDLE_WATCHER_TOUR_MISBEHAVE";

/// How long a helper waits for the tour before it gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Plays a role to its end.
pub(crate) fn play(role: &str, rest: &[&str]) -> Result<()> {
    let misbehaves = misbehaves(role);
    match (role, rest) {
        (connections::ROLE, [port]) => drive_connections(port.parse()?, misbehaves),
        (child::ROLE, [_]) => talk(misbehaves),
        (file::ROLE, [path]) => append(Path::new(path), misbehaves),
        (terminal::ROLE, [_]) => fill_terminal(misbehaves),
        (service::ROLE, [_]) => say_and_end(misbehaves),
        _ => Err(format!("there is no role {role:?} with {rest:?}").into()),
    }
}

/// Whether this scene is to go wrong.
pub(crate) fn misbehaves(scene: &str) -> bool {
    std::env::var(MISBEHAVE_VARIABLE).is_ok_and(|named| named == scene)
}

/// Opens every connection, then sends message after message on each and checks what comes back.
fn drive_connections(port: u16, misbehaves: bool) -> Result<()> {
    use connections::{CONNECTIONS, MESSAGE_BYTES, MESSAGES};
    let mut streams = Vec::new();
    for number in 0..CONNECTIONS {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        streams.push((number, stream));
    }
    for message in 0..MESSAGES {
        let from = message * MESSAGE_BYTES;
        for (number, stream) in &mut streams {
            let mut bytes = pattern::bytes(*number, from, MESSAGE_BYTES);
            if misbehaves && (*number, message) == (42, 3) {
                bytes[100] ^= 1;
            }
            stream.write_all(&bytes)?;
        }
        for (number, stream) in &mut streams {
            let mut echo = vec![0; MESSAGE_BYTES];
            stream.read_exact(&mut echo)?;
            if echo != pattern::bytes(*number, from, MESSAGE_BYTES) {
                return Err(format!("connection {number}: message {message} came back changed").into());
            }
        }
        std::thread::sleep(connections::PAUSE);
    }
    Ok(())
}

/// Says a few lines, the last one just before it ends.
fn talk(misbehaves: bool) -> Result<()> {
    for line in child::LINES {
        std::thread::sleep(child::PAUSE);
        writeln!(stdout(), "{line}")?;
    }
    if misbehaves {
        // Its end does not come while the tour waits.
        std::thread::sleep(Duration::from_secs(60));
    }
    std::process::exit(child::EXIT_CODE)
}

/// Appends line after line to a file.
fn append(path: &Path, misbehaves: bool) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    for line in file::LINES {
        std::thread::sleep(file::PAUSE);
        // One write a line, so that a reader never sees half of one.
        file.write_all(format!("{line}\n").as_bytes())?;
    }
    if misbehaves {
        file.write_all(b"one line too many\n")?;
    }
    Ok(())
}

/// Says something and ends at once, so that both are there when the client looks.
fn say_and_end(misbehaves: bool) -> Result<()> {
    let words = if misbehaves { service::WORDS.to_uppercase() } else { service::WORDS.to_owned() };
    let mut output = stdout();
    output.write_all(words.as_bytes())?;
    output.flush()?;
    std::process::exit(service::EXIT_CODE)
}

/// Writes all it has into the terminal and ends at once, which hangs up while the reader is still reading.
fn fill_terminal(misbehaves: bool) -> Result<()> {
    let length = if misbehaves { terminal::BYTES - 1 } else { terminal::BYTES };
    let letters: Vec<u8> = (0..length).map(pattern::letter).collect();
    let mut output = stdout();
    output.write_all(&letters)?;
    Ok(output.flush()?)
}
