//! The unsafe code of the program: signals that are waited for, and a descriptor that was passed at the start.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The signals that stop the program, blocked in every thread and waited for in one.
#[derive(Debug)]
pub(super) struct StopSignals(libc::sigset_t);

impl StopSignals {
    /// Blocks them in the calling thread and in those it spawns from now on.
    pub(super) fn block() -> std::io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the pointer is valid for one set, which the call fills.
        if unsafe { libc::sigemptyset(set.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the call above has filled it.
        let mut set = unsafe { set.assume_init() };
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the set is a whole one, and the signals exist.
            if unsafe { libc::sigaddset(&raw mut set, signal) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        // SAFETY: the set is a whole one; the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
            0 => Ok(Self(set)),
            number => Err(std::io::Error::from_raw_os_error(number)),
        }
    }

    /// Waits for one of them, at most so long. Gives its number.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Option<i32> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let until = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the set is a whole one, and the timeout is none or valid for the call.
        let signal = unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), until) };
        (signal > 0).then_some(signal)
    }
}

/// Takes a descriptor that this process was started with. None if the number is not open.
pub(super) fn take_inherited(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD looks at the number alone, and changes nothing.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and it was passed for this process to own: nothing else here knows the number, since this is
    // called once, before anything was opened.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
