//! Descriptors that travel. All but P6 are about what a service receives: see `watcher/tests/service`.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use handle_watcher_client::{ConnectConfig, Service, ServiceConfig};
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, Uid, getuid, setrlimit};

use crate::util::*;

/// How many descriptors the client's process may have.
const LIMIT: u64 = 32;
/// The user nobody, who has no privileges. Only root can become it, and only who is not root meets the limit.
const NOBODY: u32 = 65534;

/// Sends duplicates of a descriptor to a socket that nobody reads, until the kernel takes no more.
fn fill_with_descriptors(socket: &UnixStream) -> Errno {
    for _ in 0..1000 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [socket.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        if let Err(errno) = sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::DONTWAIT) {
            return errno;
        }
    }
    Errno::OVERFLOW
}

/// mercury-hpc/mercury#385, unix(7) ETOOMANYREFS: while too many descriptors of a user are on their way, a watch is refused,
/// clearly and in time; the session goes on and works when they have arrived.
#[test]
fn p6_mercury_385_too_many_descriptors_on_their_way_are_waited_for_and_told() {
    let watcher = Setup::Own.watcher();
    let path = format!("@handle-watcher-p6-{}", std::process::id());
    let config = ServiceConfig { allow_uids: vec![NOBODY], ..ServiceConfig::default() };
    let _service = Service::bind(&watcher, &path, config).unwrap();
    let child = Forked::run(|| {
        if getuid().is_root() {
            rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
        }
        let file = event_fd(1);
        let (near, far) = UnixStream::pair().unwrap();
        let connect = ConnectConfig { call_timeout: Duration::from_millis(300), ..ConnectConfig::default() };
        let mut client = Client::connect_with(&path, &connect, Setup::RemoteOff.client_config()).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).unwrap();
        assert_eq!(fill_with_descriptors(&near), Errno::TOOMANYREFS);
        let status = client.watch(&file, READABLE, Mode::Once, 1).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        // Closing their receiver is how they arrive.
        drop((near, far));
        let mut events = Events::with_capacity(4);
        until("it can be watched", || client.watch(&file, READABLE, Mode::Once, 2).is_ok());
        assert_eq!(client.wait(&mut events, Some(PROMPT)).unwrap(), 1);
        assert_eq!(events.as_slice()[0].token, 2);
    });
    child.expect_success();
}
