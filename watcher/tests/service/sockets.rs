//! The socket itself: paths, files, modes, who may connect.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use handle_watcher::{Code, Config, Service, ServiceConfig, Watcher};
use handle_watcher_wire::protocol::Request;

use crate::client::*;
use crate::process::*;
use crate::util::*;

fn watcher() -> Watcher {
    Watcher::spawn(Config::default()).expect("a watcher")
}

#[track_caller]
fn bind(watcher: &Watcher, path: &str) -> Service {
    Service::bind(watcher, path, ServiceConfig::default()).expect("a service")
}

#[track_caller]
fn refused(watcher: &Watcher, path: &str, code: Code) -> String {
    let status = Service::bind(watcher, path, ServiceConfig::default()).expect_err(path);
    assert_eq!(status.code(), code, "{status}");
    status.message().to_owned()
}

#[test]
fn q1_crun_2050_a_path_that_is_too_long_is_refused() {
    let watcher = watcher();
    let folder = Folder::new();
    let base = folder.path("");
    let fits = format!("{base}{}", "x".repeat(107 - base.len()));
    let service = bind(&watcher, &fits);
    Client::connect(&fits).ok(&Request::Ping);
    drop(service);
    let message = refused(&watcher, &format!("{fits}y"), Code::InvalidArgument);
    assert!(message.contains("108 bytes"), "{message}");
    refused(&watcher, "", Code::InvalidArgument);
    refused(&watcher, "a\0b", Code::InvalidArgument);
    refused(&watcher, &folder.path("absent/s"), Code::NotFound);
    assert_eq!(std::fs::read_dir(folder.path("")).expect("a folder").count(), 0, "nothing is left");
}

#[test]
fn q2_libuv_108_a_live_servers_file_is_never_touched() {
    let watcher = watcher();
    let folder = Folder::new();
    let path = folder.path("s");
    // Somebody who knows nothing of our lock.
    let listener = UnixListener::bind(&path).expect("bound");
    let inode = std::fs::metadata(&path).expect("there").ino();
    refused(&watcher, &path, Code::AlreadyExists);
    assert_eq!(std::fs::metadata(&path).expect("there").ino(), inode);
    drop(listener);
    // Of another type.
    let other = folder.path("d");
    let _datagrams = UnixDatagram::bind(&other).expect("bound");
    refused(&watcher, &other, Code::AlreadyExists);
    // One of ours.
    let ours = folder.path("o");
    let service = bind(&watcher, &ours);
    refused(&watcher, &ours, Code::AlreadyExists);
    Client::connect(&ours).ok(&Request::Ping);
    drop(service);
    drop(bind(&watcher, &ours));
}

#[test]
fn q2_a_live_server_with_a_full_queue_lives() {
    let watcher = watcher();
    let folder = Folder::new();
    let path = folder.path("s");
    let address = rustix::net::SocketAddrUnix::new(&*path).expect("an address");
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)
            .expect("a socket");
    rustix::net::bind(&listener, &address).expect("bound");
    rustix::net::listen(&listener, 0).expect("listening");
    let _first = UnixStream::connect(&path).expect("there is room for one");
    refused(&watcher, &path, Code::AlreadyExists);
}

#[test]
fn q2_what_is_no_socket_is_never_touched() {
    let watcher = watcher();
    let folder = Folder::new();
    let path = folder.path("s");
    std::fs::write(&path, "precious").expect("a file");
    let message = refused(&watcher, &path, Code::FailedPrecondition);
    assert!(message.contains("no socket"), "{message}");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "precious");
    let link = folder.path("l");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    refused(&watcher, &link, Code::FailedPrecondition);
    std::fs::create_dir(folder.path("f")).expect("a folder");
    refused(&watcher, &folder.path("f"), Code::FailedPrecondition);
}

#[test]
fn a_stale_file_is_replaced() {
    let watcher = watcher();
    let folder = Folder::new();
    let path = folder.path("s");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(std::fs::metadata(&path).expect("stale").file_type().is_socket());
    let _service = bind(&watcher, &path);
    Client::connect(&path).ok(&Request::Ping);
}

#[test]
fn q3_uvloop_623_only_our_own_file_is_removed() {
    let watcher = watcher();
    let folder = Folder::new();
    let path = folder.path("s");
    let service = bind(&watcher, &path);
    std::fs::remove_file(&path).expect("there");
    let other = UnixListener::bind(&path).expect("bound");
    drop(service);
    assert!(std::path::Path::new(&path).exists(), "it is somebody else's");
    drop(other);
    let service = bind(&watcher, &path);
    drop(service);
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn q4_async_io_176_abstract_names() {
    let watcher = watcher();
    let name = format!("@handle-watcher-test-{}", std::process::id());
    let service = bind(&watcher, &name);
    Client::connect(&name).ok(&Request::Ping);
    refused(&watcher, &name, Code::AlreadyExists);
    assert!(connect(&format!("{name}\0")).is_err(), "with a NUL it is another name");
    drop(service);
    assert!(connect(&name).is_err());
    refused(&watcher, "@", Code::InvalidArgument);
}

/// The umask belongs to the whole process.
#[test]
fn q5_libuv_1386_the_mode_is_never_wider_and_comes_to_be_exact() {
    alone!(q5_libuv_1386_the_mode_is_never_wider_and_comes_to_be_exact, {
        let watcher = watcher();
        for umask in [0o000, 0o022, 0o077, 0o777] {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
            for mode in [0o600, 0o660, 0o666, 0o700, 0o000] {
                let folder = std::env::temp_dir().join(format!("hw-mode-{}", std::process::id()));
                std::fs::create_dir(&folder).expect("a folder");
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("ours");
                let path = folder.join("s").to_str().expect("readable").to_owned();
                let config = ServiceConfig { mode, ..ServiceConfig::default() };
                let service = Service::bind(&watcher, &path, config).expect("a service");
                let found = std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777;
                assert_eq!(found, mode, "umask {umask:o}");
                drop(service);
                std::fs::remove_dir_all(&folder).expect("ours");
            }
        }
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        assert_eq!(umask.bits(), 0o777, "and the umask is left alone");
    });
}

/// bus1/dbus-broker PR#312: what counts is who connected. A process that has the socket from it is that session.
#[test]
fn q6_dbus_broker_312_a_session_is_who_connected() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut child = std::process::Command::new("true").spawn().expect("true");
    child.wait().expect("ours");
    let answer = client.ok(&Request::Sessions);
    let sessions = handle_watcher_wire::protocol::read_sessions(&mut answer.body()).expect("sessions");
    assert_eq!(sessions[0].process, std::process::id());
}

#[test]
fn q8_ipc_channel_378_a_hundred_at_once_are_each_served() {
    let stage = Stage::new();
    let threads: Vec<_> = (0..100)
        .map(|_| {
            let path = stage.path.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&path);
                client.ok(&Request::Ping);
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it was served");
    }
}

/// tokio-rs/mio PR#1564: more than the queue holds are told to come again, and are served then.
#[test]
fn q9_mio_1564_a_full_queue_is_told_and_passes() {
    let stage = Stage::with(ServiceConfig { backlog: 1, ..ServiceConfig::default() });
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(&stage.path)).collect();
    for client in &mut clients {
        client.ok(&Request::Ping);
    }
    assert_eq!(clients[0].stat("service_sessions"), 300);
}

#[test]
fn a_listener_that_somebody_else_made() {
    let watcher = watcher();
    let folder = Folder::new();
    let path = folder.path("s");
    let listener = UnixListener::bind(&path).expect("bound");
    // It may have waited for a while already.
    let mut early = Raw::connect(&path);
    let service = Service::from_listener(&watcher, listener, ServiceConfig::default()).expect("a service");
    early.send(&Request::Ping, 1, &[]);
    early.expect_last(Code::InvalidArgument);
    Client::connect(&path).ok(&Request::Ping);
    drop(service);
    assert!(std::path::Path::new(&path).exists(), "the file is its maker's");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let (stream, _peer) = UnixStream::pair().expect("a pair");
    for wrong in [tcp.into(), stream.into(), std::os::fd::OwnedFd::from(std::io::pipe().expect("a pipe").0)] {
        let status = Service::from_listener(&watcher, wrong, ServiceConfig::default()).expect_err("wrong");
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

/// Connects as whoever it is run as, and says what it is told.
#[test]
#[ignore = "started by another test"]
fn child_of_another_user() {
    let Ok(path) = std::env::var("HANDLE_WATCHER_TEST_SOCKET") else { return };
    let mut raw = Raw::connect(&path);
    let hello = handle_watcher_wire::protocol::Hello { version_lowest: 1, version_highest: 1, name: "" };
    // It may have been refused already.
    let _: std::io::Result<()> = raw.send_bytes(&frame_of(&Request::Hello(hello), 1, &[]), &[]);
    let answer = raw.next().expect("a reply");
    println!("told {}: {}", answer.call, answer.status);
}

/// The credentials of another user, where this process may become one.
#[test]
fn other_users_are_refused_unless_they_are_on_the_list() {
    const USER: u32 = 54321;
    if !rustix::process::geteuid().is_root() || std::process::Command::new("setpriv").output().is_err() {
        return;
    }
    let open = ServiceConfig { mode: 0o666, ..ServiceConfig::default() };
    let cases = [
        (open.clone(), false),
        (ServiceConfig { allow_uids: vec![USER], ..open.clone() }, true),
        (ServiceConfig { allow_gids: vec![7], ..open.clone() }, true),
        (ServiceConfig { allow_gids: vec![9], ..open.clone() }, true),
        (ServiceConfig { allow_uids: vec![7], allow_gids: vec![USER], ..open }, false),
    ];
    // Where it was built may be out of the other user's reach.
    let folder = Folder::new();
    let program = folder.path("program");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    for (config, may) in cases {
        let stage = Stage::with(config);
        let mut witness = Client::connect(&stage.path);
        let output = std::process::Command::new("setpriv")
            .args([&format!("--reuid={USER}"), "--regid=7", "--groups=8,9", &program])
            .args(["sockets::child_of_another_user", "--exact", "--ignored", "--nocapture"])
            .env("HANDLE_WATCHER_TEST_SOCKET", &stage.path)
            .output()
            .expect("setpriv");
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let expected = if may { "told 1: OK" } else { "told 0: PERMISSION_DENIED" };
        assert!(said.contains(expected), "{said}");
        witness.ok(&Request::Ping);
    }
}
