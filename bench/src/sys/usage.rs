//! What the kernel counted for this process, all threads together.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time and context switches, since the process began or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Voluntary and involuntary.
    pub(crate) context_switches: u64,
}

impl Usage {
    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
        }
    }
}

/// The process's usage so far. rustix does not offer this call.
pub(crate) fn of_process() -> io::Result<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for a write of one `rusage`.
    let code = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every bit pattern of `rusage` is valid, and the kernel filled it.
    let usage = unsafe { usage.assume_init() };
    Ok(Usage {
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        context_switches: usage.ru_nvcsw.cast_unsigned() + usage.ru_nivcsw.cast_unsigned(),
    })
}

/// The kernel never reports negative times; if it did, zero would be the honest reading.
fn duration(time: libc::timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}
