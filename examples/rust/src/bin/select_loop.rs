//! `cargo run --release -p handle-watcher-examples --bin select_loop`
//!
//! One thread that takes jobs from a channel and requests from a socket, whichever comes first, in one `select!`.
//! Another thread sends five of each, checks the answers and ends, which ends the program.
//!
//! It shows: a client as a `crossbeam_channel` receiver, which gets one message however many events wait; `drain`
//! hands them out. A timer of the same client stands beside both.

use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crossbeam_channel::{Sender, never, select, unbounded};
use handle_watcher_client::{Client, Events, Mode, Signals, Token, WatchOptions};

const REQUESTS: Token = 0;
const TICK: Token = 1;

const EACH: u64 = 5;
const PAUSE: Duration = Duration::from_millis(20);
const PERIOD: Duration = Duration::from_millis(30);

fn main() -> Result<(), Box<dyn Error>> {
    let (ours, theirs) = UnixStream::pair()?;
    let (send_job, mut jobs) = unbounded();
    let producer = std::thread::spawn(move || produce(&send_job, theirs));

    let mut client = Client::embedded()?.into_channel()?;
    ours.set_nonblocking(true)?;
    // Nobody comes back for more, so Level is refused here. Edge is read to the end each time.
    let socket = client.watch_owned(ours, WatchOptions::new(Signals::READABLE, Mode::Edge, REQUESTS))?;
    client.set_periodic(PERIOD, PERIOD, TICK)?;

    let mut requests = Requests { reader: BufReader::new(&socket), line: Vec::new() };
    let (mut ticks, mut has_jobs, mut has_requests) = (0, true, true);
    let mut events = Events::with_capacity(16);
    while has_jobs || has_requests {
        select! {
            recv(jobs) -> job => match job {
                Ok(number) => println!("job {number}: squared {}", number * number),
                Err(_) => {
                    has_jobs = false;
                    // A channel without senders is always ready.
                    jobs = never();
                }
            },
            recv(client.receiver()) -> _ => {
                client.drain(&mut events)?;
                for event in &events {
                    match event.token {
                        TICK => ticks += event.count,
                        _ => has_requests = requests.answer()?,
                    }
                }
            }
        }
    }
    producer.join().map_err(|_| "the producer panicked")??;
    println!("{ticks} ticks of {PERIOD:?} meanwhile");
    Ok(())
}

/// One number a line, answered by its cube.
struct Requests<'a> {
    reader: BufReader<&'a UnixStream>,
    /// The beginning of a line that has not ended yet.
    line: Vec<u8>,
}

impl Requests<'_> {
    /// Answers everything that is there. False at the end.
    fn answer(&mut self) -> Result<bool, Box<dyn Error>> {
        loop {
            match self.reader.read_until(b'\n', &mut self.line) {
                Ok(0) => return Ok(false),
                Ok(_) => {
                    let number: u64 = std::str::from_utf8(&self.line)?.trim().parse()?;
                    println!("request {number}: cubed {}", number.pow(3));
                    let mut socket = *self.reader.get_ref();
                    writeln!(socket, "{}", number.pow(3))?;
                    self.line.clear();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The other thread: sends a job and a request each time, and takes the answer.
fn produce(jobs: &Sender<u64>, mut socket: UnixStream) -> io::Result<()> {
    let mut answers = BufReader::new(socket.try_clone()?).lines();
    for number in 1..=EACH {
        // Nobody takes jobs any more only if the other thread has failed, and that is told there.
        let _: Result<(), _> = jobs.send(number);
        writeln!(socket, "{number}")?;
        let answer = answers.next().ok_or(ErrorKind::UnexpectedEof)??;
        if answer != number.pow(3).to_string() {
            return Err(io::Error::other(format!("{answer} is not the cube of {number}")));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
