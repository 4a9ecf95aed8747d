//! What the watcher thread asks of the kernel for itself. Nothing here touches another thread.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Blocks every signal in the calling thread, so that none of the program's handlers ever runs on it.
pub(crate) fn block_all_signals() -> std::io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for one set, which the call fills.
    let filled = unsafe { libc::sigfillset(all.as_mut_ptr()) };
    if filled != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the set was filled above; the old mask is not asked for; only this thread's mask changes.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) } {
        0 => Ok(()),
        number => Err(std::io::Error::from_raw_os_error(number)),
    }
}

/// Puts the calling thread under SCHED_BATCH: it no longer preempts the writer that woke it. Needs no privilege.
pub(crate) fn use_batch_scheduling() -> std::io::Result<()> {
    // SAFETY: an all-zero `sched_param` is the priority 0 that SCHED_BATCH demands.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 names the calling thread, and the pointer is valid for the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Keeps the calling thread on these processors.
///
/// # Errors
/// `INVAL` if none of them exists or one is beyond what the kernel can name.
pub(crate) fn set_affinity(processors: &[usize]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for &processor in processors {
        if processor >= CpuSet::MAX_CPU {
            return Err(Errno::INVAL);
        }
        set.set(processor);
    }
    sched_setaffinity(None, &set)
}
