//! A session that calls in frames, one after the other: what a small blocking client in any language does.

use crate::Result;
use handle_watcher_wire::Code;
use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next};
use handle_watcher_wire::protocol::{Hello, Reply, Request, VERSION_HIGHEST, VERSION_LOWEST};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Room for the longest reply that is asked for here.
const ROOM_BYTES: usize = 64 << 10;

/// One session.
pub(crate) struct Calls {
    socket: UnixStream,
    /// Stays open: closing it would say that the client has gone.
    events: Option<OwnedFd>,
    writer: Writer,
    room: Vec<u8>,
    last_call: u32,
}

impl Calls {
    /// Connects to an abstract name, written `@name`, and says hello.
    pub(crate) fn open(address: &str) -> Result<Self> {
        let name = address.strip_prefix('@').ok_or("the address is no abstract name")?;
        let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        let mut calls =
            Self { socket, events: None, writer: Writer::new(), room: vec![0; ROOM_BYTES], last_call: 0 };
        let hello =
            Hello { version_lowest: VERSION_LOWEST, version_highest: VERSION_HIGHEST, name: "hw-bench" };
        calls.write(&Request::Hello(hello), 0)?;
        calls.socket.write_all(calls.writer.frame()?)?;
        let received = calls.receive_descriptor()?;
        calls.read_reply(received, |_| Ok(()))?;
        calls.events.as_ref().ok_or("no event socket came with the welcome")?;
        Ok(calls)
    }

    /// Asks, and reads what a good reply says.
    pub(crate) fn call<T>(
        &mut self,
        request: &Request<'_>,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        self.write(request, 0)?;
        self.socket.write_all(self.writer.frame()?)?;
        self.read_reply(0, read)
    }

    /// Asks for something that a descriptor goes with.
    pub(crate) fn pass(&mut self, request: &Request<'_>, descriptor: BorrowedFd<'_>) -> Result<()> {
        self.write(request, 1)?;
        let frame = self.writer.frame()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err("there is no room for a descriptor".into());
        }
        let sent =
            rustix::net::sendmsg(&self.socket, &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)?;
        if sent != frame.len() {
            return Err(format!("sent {sent} of {} bytes", frame.len()).into());
        }
        self.read_reply(0, |_| Ok(()))
    }

    /// The same bytes back; gives how many came.
    pub(crate) fn echo(&mut self, payload: &[u8]) -> Result<usize> {
        self.call(&Request::Echo(payload), |body| Ok(body.read_data()?.len()))
    }

    fn write(&mut self, request: &Request<'_>, descriptors: u32) -> Result<()> {
        // 0 is no call.
        self.last_call = self.last_call.checked_add(1).ok_or("the numbers of calls ran out")?;
        request.write(self.last_call, descriptors, &mut self.writer);
        Ok(())
    }

    /// Reads on behind what was `received` until the reply is whole.
    fn read_reply<T>(
        &mut self,
        mut received: usize,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        let frame = loop {
            let filled = self.room.get(..received).unwrap_or_default();
            if let Some((frame, _)) = find_next(HeaderSize::PLAIN, filled) {
                break frame;
            }
            let left = self.room.get_mut(received..).unwrap_or_default();
            match rustix::io::read(self.socket.as_fd(), left)? {
                0 => return Err("the service closed the session, or its reply is too long".into()),
                count => received += count,
            }
        };
        let mut reply = Reply::read(frame)?;
        if reply.status.code() != Code::Ok {
            return Err(reply.status.into());
        }
        if reply.call != self.last_call {
            return Err(format!("call {} was answered, not {}", reply.call, self.last_call).into());
        }
        read(&mut reply.body)
    }

    /// The first bytes of the session, which the event socket comes along with.
    fn receive_descriptor(&mut self) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut self.room)];
        let message = rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                self.events = descriptors.last();
            }
        }
        Ok(message.bytes)
    }
}
