//! Unix stream sockets that pass descriptors: what std does not have, in safe calls.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use handle_watcher_wire::{Code, Result, Status};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, recvmsg, sendmsg,
    socket_with,
};

/// How long a path a socket may have: the kernel's sun_path, less the byte that ends it.
const PATH_BYTES_MOST: usize = 107;
/// How much room a receive makes at least.
const ROOM_BYTES: usize = 512;

/// The address of a path; `@name` is an abstract name, which is no file and has no permissions.
///
/// # Errors
/// `INVALID_ARGUMENT` for a path that is empty, too long or has a NUL byte.
pub(crate) fn address(path: &str) -> Result<SocketAddrUnix> {
    let refused = |why: &str| {
        Status::new(Code::InvalidArgument, format!("the socket path {path:?} {why}; choose another"))
    };
    if path.is_empty() || path == "@" {
        return Err(refused("is empty"));
    }
    if path.len() > PATH_BYTES_MOST {
        return Err(refused(&format!(
            "has {} bytes, and a socket's has at most {PATH_BYTES_MOST}",
            path.len()
        )));
    }
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    };
    address.map_err(|errno| refused(&format!("is no path of a socket ({errno})")))
}

/// Connects without waiting: `AGAIN` means that the listener's queue is full.
pub(crate) fn connect(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, address)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// A send or a receive gives up with `AGAIN` after so long.
pub(crate) fn set_timeouts(socket: &OwnedFd, timeout: Duration) -> Result<(), Errno> {
    // Zero would mean that there is no timeout.
    let timeout = Some(timeout.clamp(Duration::from_millis(1), Duration::from_secs(u32::MAX.into())));
    set_socket_timeout(socket, Timeout::Recv, timeout)?;
    set_socket_timeout(socket, Timeout::Send, timeout)
}

/// Sends what fits, waiting for room, with a descriptor beside the first byte. Never raises SIGPIPE.
pub(crate) fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<usize, Errno> {
    send_with(socket.as_fd(), bytes, descriptor, SendFlags::empty())
}

/// The same without waiting: `AGAIN` if nothing fits.
pub(crate) fn send_now(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| send_with(socket, bytes, descriptor, SendFlags::DONTWAIT))
}

fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let flags = flags | SendFlags::NOSIGNAL;
    let Some(descriptor) = descriptor else {
        return rustix::net::send(socket, bytes, flags);
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    // There is room for exactly this one.
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Appends what comes, waiting for it.
pub(crate) fn receive(socket: &OwnedFd, received: &mut Vec<u8>) -> Result<usize, Errno> {
    received.reserve(ROOM_BYTES);
    recv(socket, rustix::buffer::spare_capacity(received), RecvFlags::empty()).map(|(count, _)| count)
}

/// Fills the buffer with what is there, without waiting.
pub(crate) fn receive_now(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    recv(socket, buffer, RecvFlags::DONTWAIT).map(|(_, count)| count)
}

/// Appends what comes, and takes a descriptor that comes along; more than one are closed.
pub(crate) fn receive_with_descriptor(
    socket: &OwnedFd,
    received: &mut Vec<u8>,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut buffer = [0; ROOM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    received.extend_from_slice(&buffer[..message.bytes]);
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((message.bytes, descriptor))
}
