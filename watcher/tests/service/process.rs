//! Tests that need a process of their own, and looks at a process.

use std::process::Command;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::util::PROMPT;

/// Set in a process that runs one test alone; its value is the test's name.
const ALONE: &str = "HANDLE_WATCHER_TEST_ALONE";

/// Runs a block in a process of its own: the test program runs itself again with this one test, and the test fails if
/// that does. The first argument is the name of the test function this stands in.
macro_rules! alone {
    ($name:ident, $body:expr) => {
        $crate::process::run_alone(module_path!(), stringify!($name), || {
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
    let output = this_program(&test).env(ALONE, &test).output().expect("this program runs again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test} failed in a process of its own ({}):\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// This program, to run one test of it.
pub(crate) fn this_program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// How many descriptors this process has open.
pub(crate) fn descriptor_count() -> usize {
    // The one that reads the folder is among them.
    std::fs::read_dir("/proc/self/fd").expect("proc").count() - 1
}

/// The process comes to have so many descriptors open.
#[track_caller]
pub(crate) fn expect_descriptors(count: usize) {
    let until = Instant::now() + PROMPT;
    while descriptor_count() != count {
        assert!(Instant::now() < until, "{} descriptors are open, not {count}", descriptor_count());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Sets how many descriptors this process may have. Only for a test that runs alone.
pub(crate) fn limit_descriptors(limit: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).expect("below the hard limit");
}

/// Lets this process have as many descriptors as it may, within reason; gives how many that are.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(20_000);
    limit_descriptors(hard);
    hard
}

/// The processor time of one thread of this process. Looking at it needs no descriptor.
#[derive(Debug)]
pub(crate) struct ThreadClock(std::fs::File);

impl ThreadClock {
    /// The clock of the thread of that name.
    #[track_caller]
    pub(crate) fn of(name: &str) -> Self {
        for entry in std::fs::read_dir("/proc/self/task").expect("proc") {
            let path = entry.expect("proc").path();
            // A thread may end while we look.
            let Ok(found) = std::fs::read_to_string(path.join("comm")) else { continue };
            if found.trim_end() == name {
                return Self(std::fs::File::open(path.join("stat")).expect("the thread lives"));
            }
        }
        panic!("no thread is called {name}");
    }

    /// What it has used, in ticks of 10 ms.
    pub(crate) fn ticks(&self) -> u64 {
        let mut stat = vec![0; 1024];
        let length = std::os::unix::fs::FileExt::read_at(&self.0, &mut stat, 0).expect("the thread lives");
        let stat = String::from_utf8_lossy(&stat[..length]).into_owned();
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        let times = fields.split_whitespace().skip(14 - 3).take(2);
        times.map(|field| field.parse::<u64>().expect("a number")).sum()
    }
}

/// The memory this process has, in KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel has this line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
