//! Unix sockets that pass descriptors, from the service's side: nothing here ever waits, and nothing raises SIGPIPE.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketFlags,
    SocketType, recvmsg, socketpair,
};

/// Room for as many descriptors as one call can bring: the kernel's SCM_MAX_FD.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(253));

/// Where descriptors arrive. Kept from call to call.
pub(crate) struct ControlSpace(Box<[MaybeUninit<u8>]>);

impl ControlSpace {
    pub(crate) fn new() -> Self {
        Self(vec![MaybeUninit::uninit(); CONTROL_BYTES].into())
    }
}

impl std::fmt::Debug for ControlSpace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ControlSpace")
    }
}

/// What one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many bytes; none at the end of the stream.
    pub(crate) bytes: usize,
    /// The kernel dropped descriptors that came along, most often because this process had none left.
    pub(crate) is_cut: bool,
}

/// Takes what is there. Every descriptor that comes along goes to `take`, in order, with close-on-exec set.
///
/// # Errors
/// `AGAIN` if nothing is there.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    space: &mut ControlSpace,
    mut take: impl FnMut(OwnedFd),
) -> Result<Received, Errno> {
    let mut control = RecvAncillaryBuffer::new(&mut space.0);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message =
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags))?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            descriptors.for_each(&mut take);
        }
    }
    Ok(Received { bytes: message.bytes, is_cut: message.flags.contains(ReturnFlags::CTRUNC) })
}

/// Accepts one connection.
///
/// # Errors
/// `AGAIN` if none waits.
pub(crate) fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Two connected sockets.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// The supplementary groups that the peer had when it connected. None if the kernel does not say.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0_u32; 64];
    for _ in 0..2 {
        let Ok(room_bytes) = u32::try_from(groups.len() * size_of::<u32>()) else { break };
        let mut length: libc::socklen_t = room_bytes;
        // SAFETY: the pointers are valid for the call, and the length says how many bytes there is room for.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        groups.resize(length as usize / size_of::<u32>(), 0);
        if outcome == 0 {
            return groups;
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::ERANGE) {
            break;
        }
    }
    Vec::new()
}
