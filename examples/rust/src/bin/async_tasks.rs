//! `cargo run --release -p handle-watcher-examples --bin async_tasks`
//!
//! Three tasks on one thread: an echo, somebody who talks to it, and a clock; then a stream of events.
//!
//! It shows: watches and timers that are awaited, under an executor that has no reactor and needs none, because the
//! watcher thread calls the wakers. Any other executor does as well. Both clients share one watcher.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use async_executor::LocalExecutor;
use futures_lite::StreamExt;
use futures_lite::future::{block_on, or};
use handle_watcher_client::{
    AsyncClient, AsyncWatch, Client, Config, EventKind, Mode, Signals, Token, WatchOptions, Watcher,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WORDS: [&str; 3] = ["hello", "is there anybody", "good bye"];
const PERIOD: Duration = Duration::from_millis(20);
const PERIODS: u32 = 3;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

const PIPE: Token = 0;
const TICK: Token = 1;

fn main() -> Result<()> {
    let watcher = Watcher::spawn(Config::default())?;
    let client = Client::attach(&watcher)?.into_async()?;
    let tasks = LocalExecutor::new();
    block_on(tasks.run(async {
        let (near, far) = UnixStream::pair()?;
        let echo = tasks.spawn(echo(Socket::new(&client, far)?));
        let clock = tasks.spawn(clock(client.clone()));
        talk(&client, Socket::new(&client, near)?).await?;
        println!("the echo has ended after {} bytes", echo.await?);
        println!("the clock has ended after {:?}", clock.await?);
        listen(&watcher).await
    }))
}

/// Sends back whatever comes in. Gives how much it was.
async fn echo(mut socket: Socket) -> Result<usize> {
    let (mut total, mut room) = (0, [0; 64]);
    loop {
        match socket.read(&mut room).await? {
            0 => return Ok(total),
            length => {
                total += length;
                socket.write_all(&room[..length]).await?;
            }
        }
    }
}

/// Says a few words, and waits for the answer to each, but not for ever.
async fn talk(client: &AsyncClient, mut socket: Socket) -> Result<()> {
    for words in WORDS {
        socket.write_all(words.as_bytes()).await?;
        let mut answer = vec![0; words.len()];
        let timeout = async {
            client.timer(PATIENCE)?.await?;
            Err(format!("no answer came within {PATIENCE:?}").into())
        };
        // The one that is not needed any more is dropped, which takes its timer or its wait back.
        or(socket.read_exact(&mut answer), timeout).await?;
        println!("the echo says: {}", String::from_utf8(answer)?);
    }
    Ok(())
}

/// Ticks a few times. Gives how long that took.
async fn clock(client: AsyncClient) -> Result<Duration> {
    let began = Instant::now();
    for period in 1..=PERIODS {
        client.timer(began + PERIOD * period)?.await?;
        println!("tick {period}");
    }
    Ok(began.elapsed())
}

/// Takes events one by one, until the watcher is stopped.
async fn listen(watcher: &Watcher) -> Result<()> {
    let mut events = Client::attach(watcher)?.into_stream()?;
    let (reader, mut writer) = io::pipe()?;
    let pipe = events.watch_owned(reader, WatchOptions::new(Signals::READABLE, Mode::Once, PIPE))?;
    events.set_timer(PERIOD, TICK)?;
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::Timer => {
                println!("the stream gave a timer");
                writer.write_all(b"x")?;
            }
            EventKind::Ready => {
                println!("the stream gave a pipe that is {}", event.satisfied);
                (&*pipe).read_exact(&mut [0])?;
                pipe.arm()?;
                watcher.stop()?;
            }
            EventKind::Ended => println!("the stream gave an end: {}", event.to_status()),
            kind => return Err(format!("nobody asked for {kind:?}").into()),
        }
    }
    println!("the stream has ended");
    Ok(())
}

/// A socket and its two watches, which end before it is closed because they come first.
struct Socket {
    readable: AsyncWatch,
    writable: AsyncWatch,
    stream: UnixStream,
}

impl Socket {
    fn new(client: &AsyncClient, stream: UnixStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        let readable = client.watch(&stream, Signals::READABLE)?;
        let writable = client.watch(&stream, Signals::WRITABLE)?;
        Ok(Self { readable, writable, stream })
    }

    /// Zero at the end of the stream.
    async fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        loop {
            match self.stream.read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable.ready().await?,
                result => return Ok(result?),
            };
        }
    }

    async fn read_exact(&mut self, mut room: &mut [u8]) -> Result<()> {
        while !room.is_empty() {
            match self.read(room).await? {
                0 => return Err("the other side has closed too early".into()),
                length => room = &mut room[length..],
            }
        }
        Ok(())
    }

    async fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(self.writable.ready().await?),
                result => bytes = &bytes[result?..],
            }
        }
        Ok(())
    }
}
