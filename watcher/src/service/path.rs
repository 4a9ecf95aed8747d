//! The socket's file: never two servers on one path, never anybody else's file touched, its mode from birth.

use std::os::fd::{AsFd, OwnedFd};

use handle_watcher_wire::{Code, Result, Status};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys::stream;

/// How often the lock is taken again because another server took it away with its own end.
const LOCK_TRIES: u32 = 16;

/// A file as it is told from others: device and inode.
type Inode = (u64, u64);

/// The socket's file and its lock, which keeps other services from the path. Dropped, both are taken away, the file
/// only if it is still ours.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: String,
    inode: Inode,
    /// Let go of after the file is gone.
    _lock: Lock,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode_of(&self.path) == Some(self.inode) {
            // If it cannot be removed it stays, and is stale for the next server.
            let _: std::result::Result<(), Errno> = rustix::fs::unlink(&*self.path);
        }
    }
}

/// Binds a listener to a path, or to an abstract name if it begins with `@`, which is no file and has no permissions.
///
/// # Errors
/// `INVALID_ARGUMENT` for a path that no socket can have; `ALREADY_EXISTS` if a server lives there;
/// `FAILED_PRECONDITION` if something else is there; otherwise what the system says.
pub(super) fn bind(path: &str, mode: u32, backlog: i32) -> Result<(OwnedFd, Option<SocketFile>)> {
    let address = stream::address(path)?;
    let lock = if path.starts_with('@') { None } else { Some(Lock::take(path)?) };
    if lock.is_some() {
        clear_away(path, &address)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| failure(path, "no socket could be made", errno))?;
    // A file is born with the mode of its socket, less the umask.
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::fchmod(&listener, mode).map_err(|errno| failure(path, "its mode could not be set", errno))?;
    rustix::net::bind(&listener, &address).map_err(|errno| failure(path, "it could not be bound", errno))?;
    let file = match lock {
        Some(lock) => {
            let inode = inode_of(path);
            let inode = inode.ok_or_else(|| failure(path, "it went away at once", Errno::NOENT))?;
            Some(SocketFile { path: path.to_owned(), inode, _lock: lock })
        }
        None => None,
    };
    if file.is_some() {
        widen(path, mode)?;
    }
    rustix::net::listen(&listener, backlog)
        .map_err(|errno| failure(path, "it could not be listened at", errno))?;
    Ok((listener, file))
}

/// Checks what somebody else bound, such as a service manager.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is no listening Unix stream socket.
pub(super) fn check_listener(listener: &OwnedFd) -> Result<()> {
    use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
    let is_one = socket_domain(listener) == Ok(AddressFamily::UNIX)
        && socket_type(listener) == Ok(SocketType::STREAM)
        && socket_acceptconn(listener) == Ok(true);
    if !is_one {
        return Err(Status::new(
            Code::InvalidArgument,
            "the descriptor is no listening Unix stream socket; pass one, such as systemd's ListenStream makes",
        ));
    }
    let prepared = rustix::io::ioctl_fionbio(listener, true)
        .and_then(|()| rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::CLOEXEC));
    prepared
        .map_err(|errno| Status::new(Code::Internal, format!("the listener could not be prepared: {errno}")))
}

/// Removes a stale file. Only its holder of the lock calls this, so nobody else removes or makes one meanwhile but those
/// who know no lock; they are asked.
fn clear_away(path: &str, address: &SocketAddrUnix) -> Result<()> {
    let found = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failure(path, "it cannot be looked at", errno)),
        Ok(found) => found,
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Status::new(
            Code::FailedPrecondition,
            format!("{path:?} is there and is no socket; remove it yourself, or choose another path"),
        ));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| failure(path, "no socket could be made", errno))?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => rustix::fs::unlink(path)
            .map_err(|errno| failure(path, "the stale file could not be removed", errno)),
        Err(Errno::NOENT) => Ok(()),
        // A full queue, and a socket of another type, belong to somebody who lives.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(in_use(path)),
        Err(errno) => Err(failure(path, "it cannot be told whether a server lives there", errno)),
    }
}

/// Gives the file the bits that the umask took away. The umask itself belongs to the whole process.
fn widen(path: &str, mode: Mode) -> Result<()> {
    let failed = |errno| failure(path, "its mode could not be set", errno);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let found = rustix::fs::fstat(&file).map_err(failed)?;
    if Mode::from_raw_mode(found.st_mode) == mode {
        return Ok(());
    }
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(failed(Errno::NOTSOCK));
    }
    // Through the descriptor: a path could lead somewhere else by now.
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::chmodat(rustix::fs::CWD, link, mode, AtFlags::empty()).map_err(failed)
}

fn inode_of(path: &str) -> Option<Inode> {
    rustix::fs::lstat(path).ok().map(|found| (found.st_dev, found.st_ino))
}

fn in_use(path: &str) -> Status {
    Status::new(
        Code::AlreadyExists,
        format!("a server lives at {path:?} already; stop it, or choose another path"),
    )
}

fn failure(path: &str, what: &str, errno: Errno) -> Status {
    let code = match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::PermissionDenied,
        Errno::NOENT | Errno::NOTDIR => Code::NotFound,
        Errno::ADDRINUSE => Code::AlreadyExists,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    Status::new(code, format!("no service at {path:?}: {what} ({errno})"))
}

/// A file beside the socket that one server at a time has locked. It goes away with the server.
#[derive(Debug)]
struct Lock {
    path: String,
    file: OwnedFd,
}

impl Lock {
    fn take(socket_path: &str) -> Result<Self> {
        let path = format!("{socket_path}.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        for _ in 0..LOCK_TRIES {
            let file = rustix::fs::open(&*path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|errno| failure(socket_path, "its lock file could not be opened", errno))?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Err(in_use(socket_path)),
                Err(errno) => return Err(failure(socket_path, "its lock file could not be locked", errno)),
            }
            let locked = rustix::fs::fstat(file.as_fd()).ok().map(|found| (found.st_dev, found.st_ino));
            if locked.is_some() && locked == inode_of(&path) {
                return Ok(Self { path, file });
            }
            // Whoever had it has just ended and taken it away.
        }
        Err(in_use(socket_path))
    }
}

impl Drop for Lock {
    /// Takes the file away while it is still locked, so that nobody locks one that is about to go.
    fn drop(&mut self) {
        let locked = rustix::fs::fstat(&self.file).ok().map(|found| (found.st_dev, found.st_ino));
        if locked.is_some() && locked == inode_of(&self.path) {
            // If it stays, the next server locks it as it is.
            let _: std::result::Result<(), Errno> = rustix::fs::unlink(&*self.path);
        }
    }
}
