//! What these tests do to the kernel beyond `util`, and that Rust has no safe words for.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::os::fd::{BorrowedFd, RawFd};

/// From now on write(2) to this number fails with EPERM in the calling thread, and in what it spawns, as in a sandbox.
///
/// # Errors
/// Where the kernel has no system call filters.
pub(crate) fn forbid_writes_to(number: RawFd) -> Result<()> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // Offsets in `seccomp_data`: the number of the call, and the low half of its first argument.
    const CALL: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let write = u32::try_from(libc::SYS_write).expect("a small number");
    let refusal = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).expect("a small number");
    let mut steps = [
        step(LOAD, 0, 0, CALL),
        step(JUMP_IF_EQUAL, 0, 3, write),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(JUMP_IF_EQUAL, 0, 1, number.cast_unsigned()),
        step(RETURN, 0, 0, refusal),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: steps.as_mut_ptr() };
    // SAFETY: no pointers; it only takes privileges away from the children to come.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the program and its steps live until the call, which copies them, has returned.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

/// The calling thread runs only when nobody else wants the processor (SCHED_IDLE).
pub(crate) fn run_when_idle() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 names the calling thread, and the pointer is valid for the call.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) };
    assert_eq!(failed, 0, "sched_setscheduler: {}", Error::last_os_error());
}

/// Adds to an eventfd that somebody else owns.
pub(crate) fn add_to_event(number: RawFd, count: u64) {
    // SAFETY: the caller knows the number to be an eventfd that stays open for this call.
    let event = unsafe { BorrowedFd::borrow_raw(number) };
    assert_eq!(rustix::io::write(event, &count.to_ne_bytes()), Ok(8), "a count");
}

/// The children of this process will see CLOCK_MONOTONIC ahead by so many seconds (time_namespaces(7)).
///
/// # Errors
/// Where the kernel or our privileges do not allow it; nothing has changed then.
pub(crate) fn shift_monotonic_clock_of_children(seconds: u32) -> Result<()> {
    // SAFETY: no pointers; it changes what children get, and nothing of this process.
    if unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0 {
        return Err(Error::last_os_error());
    }
    std::fs::write("/proc/self/timens_offsets", format!("monotonic {seconds} 0"))
}
