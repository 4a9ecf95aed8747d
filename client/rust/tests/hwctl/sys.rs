//! What Rust has no safe words for.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The child begins a session of its own, whose terminal is its standard input: what the kernel does to programs in a
/// terminal is done to it, and the terminal of whoever runs the tests is out of its reach.
pub(crate) fn in_own_terminal(command: &mut Command) {
    let begin = || {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(std::io::stdin())?;
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(begin) };
}
