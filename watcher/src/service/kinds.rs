//! What kind of file a descriptor is, found out without asking whoever is behind it: nothing here can block.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use handle_watcher_wire::{Code, Result, Status};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny};
use rustix::path::DecInt;

/// A kind of descriptor that the service waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Socket,
    Pipe,
    Terminal,
    EventFd,
    TimerFd,
    ProcessFd,
    Inotify,
}

impl Kind {
    /// As it is called in lists.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::Terminal => "terminal",
            Self::EventFd => "eventfd",
            Self::TimerFd => "timerfd",
            Self::ProcessFd => "pidfd",
            Self::Inotify => "inotify",
        }
    }
}

/// How much of a link's text is looked at.
const LINK_BYTES: usize = 64;

/// Tells the kinds apart.
#[derive(Debug)]
pub(super) struct Kinds {
    /// The folder of links from our descriptors to what they are.
    links: OwnedFd,
    /// The devices that are terminals.
    terminals: Vec<u32>,
    /// The service's own address, whose connections are not for waiting.
    own_address: Option<SocketAddrAny>,
}

impl Kinds {
    /// # Errors
    /// `FAILED_PRECONDITION` where /proc is not mounted.
    pub(super) fn new(own_address: Option<SocketAddrAny>) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let links = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(|errno| {
            let code = if errno == Errno::MFILE { Code::ResourceExhausted } else { Code::FailedPrecondition };
            Status::new(
                code,
                format!("/proc/self/fd cannot be opened ({errno}), and nothing else tells what a descriptor is; mount /proc"),
            )
        })?;
        Ok(Self { links, terminals: terminal_majors(), own_address })
    }

    /// The kind of a descriptor.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` for one that the service does not wait for.
    pub(super) fn examine(&mut self, descriptor: BorrowedFd<'_>) -> Result<Kind> {
        let mut room = [MaybeUninit::uninit(); LINK_BYTES];
        let link = rustix::fs::readlinkat_raw(&self.links, DecInt::from_fd(descriptor), &mut room);
        let link = link.map_or(&[][..], |(link, _)| &*link);
        match link {
            link if link.starts_with(b"socket:[") => self.check_socket(descriptor),
            link if link.starts_with(b"pipe:[") => Ok(Kind::Pipe),
            b"anon_inode:[eventfd]" => Ok(Kind::EventFd),
            b"anon_inode:[timerfd]" => Ok(Kind::TimerFd),
            b"anon_inode:inotify" | b"anon_inode:[inotify]" => Ok(Kind::Inotify),
            // The second form is that of the first kernels that gave pidfds a file system of their own.
            b"anon_inode:[pidfd]" => Ok(Kind::ProcessFd),
            link if link.starts_with(b"pidfd:[") => Ok(Kind::ProcessFd),
            b"anon_inode:[eventpoll]" => Err(refusal(
                "an epoll set: what is in it could stall everybody else; pass what is in it instead",
            )),
            b"anon_inode:[signalfd]" => Err(refusal(
                "a signalfd: it tells the signals of whoever looks at it, here of the service; look at it yourself",
            )),
            link if link.starts_with(b"anon_inode:") || link.is_empty() => Err(refusal(
                "of a kind that the service does not know; pass a socket, pipe, terminal, eventfd, timerfd, pidfd or inotify",
            )),
            _ => self.examine_file(descriptor),
        }
    }

    /// A file that has a path. The kernel's own copy of its type is looked at: it never asks a file system's server.
    fn examine_file(&mut self, descriptor: BorrowedFd<'_>) -> Result<Kind> {
        const EMPTY: &CStr = c"";
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(descriptor, EMPTY, flags, StatxFlags::TYPE)
            .map_err(|errno| refusal(&format!("a file that cannot be examined ({errno}); pass another")))?;
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Fifo => Ok(Kind::Pipe),
            FileType::Socket => self.check_socket(descriptor),
            FileType::CharacterDevice if self.is_terminal(found.stx_rdev_major) => Ok(Kind::Terminal),
            FileType::CharacterDevice => Err(refusal(
                "a device that is no terminal: its driver could stall everybody else; watch it in your own process",
            )),
            FileType::RegularFile => Err(refusal(
                "a regular file, which is always ready; just read and write it, or pass an inotify for its changes",
            )),
            FileType::Directory => {
                Err(refusal("a directory, which is never ready; pass an inotify for its changes"))
            }
            FileType::BlockDevice => {
                Err(refusal("a block device, which is always ready; just read and write it"))
            }
            _ => Err(refusal("of a kind that the service does not know; pass a socket or a pipe")),
        }
    }

    /// Drivers may be loaded later, so an unknown device is looked up once more.
    fn is_terminal(&mut self, major: u32) -> bool {
        if !self.terminals.contains(&major) {
            self.terminals = terminal_majors();
        }
        self.terminals.contains(&major)
    }

    fn check_socket(&self, descriptor: BorrowedFd<'_>) -> Result<Kind> {
        if self.is_own_connection(descriptor) {
            return Err(refusal("a connection to this service; its end is noticed without a watch"));
        }
        Ok(Kind::Socket)
    }

    /// A connection to this very service. Held here, it keeps its own session alive after its client is gone.
    pub(super) fn is_own_connection(&self, descriptor: BorrowedFd<'_>) -> bool {
        let is_unix = || rustix::net::sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX);
        if self.own_address.is_none() || !is_unix() {
            return false;
        }
        let peer = rustix::net::getpeername(descriptor).ok().flatten();
        peer.is_some() && peer == self.own_address
    }
}

impl Kinds {
    /// The address of the service's own listener.
    pub(super) fn address_of(listener: impl AsFd) -> Option<SocketAddrAny> {
        rustix::net::getsockname(listener).ok()
    }
}

fn refusal(what: &str) -> Status {
    Status::new(Code::FailedPrecondition, format!("the descriptor is {what}"))
}

/// The majors of the terminal drivers there are. Without the list there are those that every kernel has.
fn terminal_majors() -> Vec<u32> {
    let Ok(drivers) = std::fs::read_to_string("/proc/tty/drivers") else {
        return vec![4, 5, 136];
    };
    parse_drivers(&drivers)
}

/// Each line is: driver, device, major, minors, type. The fields are counted from the right: a driver's name may have
/// spaces.
fn parse_drivers(drivers: &str) -> Vec<u32> {
    let major = |line: &str| line.split_whitespace().rev().nth(2)?.parse().ok();
    let mut majors: Vec<u32> = drivers.lines().filter_map(major).collect();
    majors.sort_unstable();
    majors.dedup();
    majors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_drivers_is_read_from_the_right() {
        let drivers = "/dev/tty             /dev/tty        5       0 system:/dev/tty\n\
                       serial               /dev/ttyS       4      64-95 serial\n\
                       a driver of two      /dev/ttyX     204      64 serial\n\
                       pty_slave            /dev/pts      136 0-1048575 pty:slave\n\n";
        assert_eq!(parse_drivers(drivers), [4, 5, 136, 204]);
    }

    #[test]
    fn kinds_are_told_apart() {
        let mut kinds = Kinds::new(None).expect("proc");
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert_eq!(kinds.examine(reader.as_fd()), Ok(Kind::Pipe));
        let null = std::fs::File::open("/dev/null").expect("it is everywhere");
        let refused = kinds.examine(null.as_fd()).expect_err("no terminal");
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("no terminal"), "{refused}");
    }
}
