//! What the exit status of `hwctl` means.

use handle_watcher_client::{Code, Status};

/// It did what it was asked to do; for `wait`, what was waited for came.
pub(crate) const READY: u8 = 0;
/// It failed, and the message says why.
pub(crate) const FAILED: u8 = 1;
/// `wait` ran out of time: the number of timeout(1).
pub(crate) const TIMEOUT: u8 = 124;
/// The service cannot be reached, or does not answer: EX_UNAVAILABLE of sysexits.h.
pub(crate) const UNAVAILABLE: u8 = 69;

/// For `--help`. The 2 is that of the parser of the command line.
pub(crate) const HELP: &str = "\
Exit status:
  0    done; for `wait`: what was waited for came
  1    failed; the message says why
  2    the command line is wrong
  69   the service cannot be reached or does not answer
  124  `wait` ran out of time
A signal ends hwctl as it ends any program; a shell shows 128 and its number.";

/// The exit status of a failure.
pub(crate) fn of(status: &Status) -> u8 {
    match status.code() {
        Code::Unavailable => UNAVAILABLE,
        _ => FAILED,
    }
}
