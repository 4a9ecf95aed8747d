//! Descriptor numbers that callers lend us, and what kind of file is behind them.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

/// Lends a number to one system call. Nothing that is no descriptor number passes.
///
/// # Errors
/// `BADF` for a negative number. A number that is not open is found by the system call it is lent to.
pub(crate) fn borrow(number: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not -1, and we only ask about readiness: the kernel checks it at each call and answers
    // EBADF when it is closed, and nothing is read, written or closed through it.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Why epoll refuses a descriptor with EPERM, in words.
pub(crate) fn kind_in_words(number: RawFd) -> &'static str {
    let Ok(stat) = borrow(number).and_then(rustix::fs::fstat) else {
        return "a file that cannot be examined";
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a device without readiness",
        _ => "a file without readiness",
    }
}

/// True for a regular file or a directory: always ready in poll(2), refused by epoll.
pub(crate) fn is_file_or_directory(number: RawFd) -> bool {
    let Ok(stat) = borrow(number).and_then(rustix::fs::fstat) else {
        return false;
    };
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory)
}

/// What tells one file from another from outside: device and inode. Files that have no inode of their own (eventfd, timerfd
/// and the like) look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// The file a number means now; nothing if it is closed.
pub(crate) fn identity(number: RawFd) -> Option<Identity> {
    let stat = borrow(number).and_then(rustix::fs::fstat).ok()?;
    Some(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// True while the number names an open file.
pub(crate) fn is_open(number: RawFd) -> bool {
    borrow(number).and_then(rustix::io::fcntl_getfd).is_ok()
}

/// Closes a descriptor in a child that was forked since it was opened. The child's memory can be a moment younger than its
/// descriptors, so the number may not be open there; that is no fault, and nothing is told of it.
pub(crate) fn close_in_child(descriptor: OwnedFd) {
    // SAFETY: the number was owned by the value that was just given up, and nobody in the child uses it after this.
    unsafe { libc::close(descriptor.into_raw_fd()) };
}

/// Closes a number in a forked child whose owner is never dropped there.
pub(crate) fn close_number_in_child(number: RawFd) {
    // SAFETY: the value that owns the number is never dropped in the child, since a thread that does not exist there
    // shares it; and every call there is refused before it could use the number.
    unsafe { libc::close(number) };
}

/// An entry for [`poll_now`].
pub(crate) fn poll_entry(number: RawFd, flags: PollFlags) -> Result<PollFd<'static>, Errno> {
    borrow(number).map(|descriptor| PollFd::from_borrowed_fd(descriptor, flags))
}

/// Asks which of the entries hold now, without waiting.
pub(crate) fn poll_now(entries: &mut [PollFd<'static>]) -> Result<usize, Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(entries, Some(&now)))
}
