//! `cargo run --release -p handle-watcher-examples --bin tail -- FILE`
//!
//! Prints what is appended to a file, from now on. A file that is cut is read from its start again; one that
//! is moved or removed ends it. `--lines N` ends it after N lines, `--for-ms T` after T milliseconds.
//!
//! It shows: a regular file cannot be waited for (it is always ready), but its changes can; and a timer
//! beside them.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use handle_watcher_client::{Changes, Client, Events, FileChanges, Mode, Signals, Token};

const USAGE: &str = "usage: tail FILE [--lines N] [--for-ms T]";

const READ_BYTES: usize = 64 * 1024;

const CHANGES: Token = 0;
const END: Token = 1;

struct Arguments {
    path: String,
    lines: usize,
    time: Option<Duration>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read()?;
    let mut file = File::open(&arguments.path)?;
    let mut changes = FileChanges::new()?;
    // Its attributes change when its last name is removed.
    changes.watch_path(&arguments.path, Changes::CONTENT | Changes::ATTRIBUTES)?;
    // Only now: what is appended from here on is told.
    file.seek(SeekFrom::End(0))?;
    let mut client = Client::embedded()?;
    client.watch(&changes, Signals::READABLE, Mode::Level, CHANGES)?;
    if let Some(time) = arguments.time {
        client.set_timer(time, END)?;
    }
    eprintln!("following {}", arguments.path);

    let mut lines = 0;
    let mut events = Events::with_capacity(2);
    while lines < arguments.lines {
        client.wait(&mut events, None)?;
        for event in &events {
            if event.token == END {
                return Ok(());
            }
            let is_gone = changes.read()?.iter().any(|change| change.changes.contains(Changes::GONE));
            lines += print_appended(&mut file)?;
            if is_gone || file.metadata()?.nlink() == 0 {
                return Err(format!("{} was moved or removed", arguments.path).into());
            }
        }
    }
    Ok(())
}

/// Prints what is there beyond where the file was read to. Gives the number of lines that ended in it.
fn print_appended(file: &mut File) -> io::Result<usize> {
    if file.metadata()?.len() < file.stream_position()? {
        eprintln!("the file was cut; reading from its start");
        file.rewind()?;
    }
    let mut output = io::stdout();
    let mut buffer = vec![0; READ_BYTES];
    let mut lines = 0;
    // To the end of the file: what is left would not be told again.
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            output.flush()?;
            return Ok(lines);
        }
        output.write_all(&buffer[..length])?;
        lines += buffer[..length].iter().filter(|&&byte| byte == b'\n').count();
    }
}

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut words = std::env::args().skip(1);
        let path = words.next().ok_or(USAGE)?;
        let mut arguments = Self { path, lines: usize::MAX, time: None };
        while let Some(option) = words.next() {
            let value = words.next().ok_or(USAGE)?;
            match option.as_str() {
                "--lines" => arguments.lines = value.parse()?,
                "--for-ms" => arguments.time = Some(Duration::from_millis(value.parse()?)),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(arguments)
    }
}
