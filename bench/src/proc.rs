//! What /proc tells about this process and its threads.

use crate::Result;
use std::fs;

/// What some threads have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// Nanoseconds on a processor.
    pub(crate) cpu_ns: u64,
    /// Voluntary and involuntary.
    pub(crate) context_switches: u64,
}

/// Adds up every thread but the main one, which is the one that measures.
pub(crate) fn other_threads() -> Result<Others> {
    let main = std::process::id();
    used(main, Some(main))
}

/// Adds up every thread of another process.
pub(crate) fn process_used(process: u32) -> Result<Others> {
    used(process, None)
}

/// Adds up the threads of a process, but for one.
fn used(process: u32, but: Option<u32>) -> Result<Others> {
    let but = but.map(|thread| thread.to_string());
    let mut sum = Others::default();
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        if but.as_deref() == task.file_name().to_str() {
            continue;
        }
        let schedstat = fs::read_to_string(task.path().join("schedstat"))?;
        let on_cpu = schedstat.split_whitespace().next().ok_or("schedstat is empty")?;
        sum.cpu_ns += on_cpu.parse::<u64>()?;
        sum.context_switches += context_switches(&fs::read_to_string(task.path().join("status"))?)?;
    }
    Ok(sum)
}

fn context_switches(status: &str) -> Result<u64> {
    let mut sum = 0;
    for line in status.lines() {
        if let Some((_, value)) = line.split_once("voluntary_ctxt_switches:") {
            sum += value.trim().parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Bytes of this process that are in memory now.
pub(crate) fn resident_bytes() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split_whitespace().nth(1).ok_or("statm has no second field")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Bytes of another process that are in memory now. statm would be wrong by up to some hundred pages, since the kernel
/// adds its counters up late; this one counts the pages.
pub(crate) fn resident_bytes_of(process: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("smaps_rollup has no Rss")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}

/// How many descriptors another process has open.
pub(crate) fn descriptors_of(process: u32) -> Result<u64> {
    let folder = format!("/proc/{process}/fd");
    // Kernels since 6.2 say the number here; before, it is zero and they have to be counted.
    match fs::metadata(&folder)?.len() {
        0 => Ok(fs::read_dir(&folder)?.count() as u64),
        count => Ok(count),
    }
}

/// One line that says where figures come from: processor, number of processors, kernel.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let uname = rustix::system::uname();
    let (system, release) = (uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    format!("{model}, {processors} processors, {system} {release} {}", std::env::consts::ARCH)
}
