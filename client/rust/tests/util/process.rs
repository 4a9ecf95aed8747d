//! Looks at this process, and tests that need a process of their own.

use std::process::Command;
use std::time::{Duration, Instant};

use super::PROMPT;

/// Set in a process that runs one test alone; its value is the test's name.
const ALONE: &str = "HANDLE_WATCHER_TEST_ALONE";

/// Runs a block in a process of its own: the test program runs itself again with this one test, and the test fails if
/// that does. The first argument is the name of the test function this stands in.
macro_rules! alone {
    ($name:ident, $body:expr) => {
        $crate::util::run_alone(module_path!(), stringify!($name), || {
            $body;
        })
    };
}
pub(crate) use alone;

#[track_caller]
pub(crate) fn run_alone(module: &str, name: &str, body: impl FnOnce()) {
    let inner = module.split_once("::").map_or(String::new(), |(_, inner)| format!("{inner}::"));
    let test = format!("{inner}{name}");
    if std::env::var(ALONE).is_ok_and(|asked| asked == test) {
        return body();
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args([&test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(ALONE, &test)
        .output()
        .expect("this program runs again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test} failed in a process of its own ({}):\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// How many descriptors this process has open.
pub(crate) fn descriptor_count() -> usize {
    // The one that reads the folder is among them.
    std::fs::read_dir("/proc/self/fd").expect("proc").count() - 1
}

/// The id of this process's thread with that name. A thread takes its name when it first runs.
#[track_caller]
pub(crate) fn thread_id(name: &str) -> u32 {
    let until = Instant::now() + PROMPT;
    loop {
        if let Some(thread) = find_thread(name) {
            return thread;
        }
        assert!(Instant::now() < until, "no thread is called {name}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn find_thread(name: &str) -> Option<u32> {
    // The kernel keeps 15 bytes.
    let name = &name[..name.len().min(15)];
    for entry in std::fs::read_dir("/proc/self/task").expect("proc") {
        let path = entry.expect("proc").path();
        // A thread may end while we look.
        let Ok(found) = std::fs::read_to_string(path.join("comm")) else { continue };
        if found.trim_end() == name {
            return path.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse().ok());
        }
    }
    None
}

/// The processor time a thread has used, in ticks of 10 ms.
pub(crate) fn processor_ticks(thread: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("the thread lives");
    // The name in brackets may hold anything; the fields after it are numbered from 3.
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let mut times =
        fields.split_whitespace().skip(14 - 3).map(|field| field.parse::<u64>().expect("a number"));
    let (user, system) = (times.next().expect("utime"), times.next().expect("stime"));
    user + system
}

/// A line of a thread's status, such as `SigBlk`.
pub(crate) fn thread_status(thread: u32, name: &str) -> String {
    let status =
        std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("the thread lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("the kernel has this line").trim().to_owned()
}

/// The memory this process has, in KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel has this line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Runs a block and checks that the process has as many descriptors afterwards as before. Only for a test that runs
/// alone.
#[track_caller]
pub(crate) fn expect_no_leak(body: impl FnOnce()) {
    let before = descriptor_count();
    body();
    // Threads of the test itself may still be closing, and may have been before.
    let until = Instant::now() + PROMPT;
    while descriptor_count() > before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = descriptor_count();
    assert!(after <= before, "descriptors leaked: {after} after {before}");
}

/// Numbers that look random and are the same in every run.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Sets how many descriptors this process may have; gives the limit before. Only for a test that runs alone.
pub(crate) fn set_descriptor_limit(limit: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let new = Rlimit { current: Some(limit), maximum: before.maximum };
    setrlimit(Resource::Nofile, new).expect("below the hard limit");
    before.current.unwrap_or(u64::MAX)
}

/// Lets this process have as many descriptors as it may, within reason; gives how many that are.
pub(crate) fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, getrlimit};
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(8192);
    set_descriptor_limit(hard);
    hard
}

/// Lowers the hard limit of descriptors of this process for good. Only for a test that runs alone.
pub(crate) fn lower_hard_descriptor_limit(limit: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) })
        .expect("a lower limit");
}

/// Runs a block that would hang if something went wrong, and fails the test then.
#[track_caller]
pub(crate) fn within_time(body: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let running = std::thread::spawn(move || {
        body();
        // Nobody listens any more if this took too long.
        let _: Result<(), std::sync::mpsc::SendError<()>> = done.send(());
    });
    match is_done.recv_timeout(PROMPT) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        // Its panic, if it had one, becomes this thread's.
        _ => running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}
