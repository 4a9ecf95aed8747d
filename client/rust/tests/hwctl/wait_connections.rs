//! `hwctl wait tcp:…` and `unix:…`: somebody accepts connections.

use std::io::Read;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::folder::Folder;
use crate::program::{Running, command, run};

#[test]
fn a_port_that_listens_is_connected_to_and_let_go() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    for source in [format!("tcp:127.0.0.1:{port}"), format!("tcp:localhost:{port}")] {
        let ended = run(&["wait", "--timeout", "10s", &source]).expect_code(0);
        assert_eq!(ended.came(), [(source.as_str(), "connected")]);
        let (mut stream, _) = listener.accept().expect("its connection");
        assert_eq!(stream.read(&mut [0]).expect("no error"), 0, "it was closed");
    }
}

#[test]
fn a_port_that_begins_to_listen_later_is_found() {
    // A port of our own that nobody listens at, which the kernel gives to nobody else meanwhile.
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
    rustix::net::bind(&socket, &any).expect("a port");
    let listener = TcpListener::from(socket);
    let port = listener.local_addr().expect("an address").port();
    let begun = Folder::new();
    let first = begun.listen("begun");
    let (source, last) = (format!("tcp:127.0.0.1:{port}"), begun.source("unix", "begun"));
    let mut running = Running::start(&mut command(&["wait", "--all", &source, &last]));
    first.accept().expect("it connects when it has begun");
    std::thread::sleep(Duration::from_millis(150));
    running.expect_running();
    rustix::net::listen(&listener, 8).expect("a listener");
    assert_eq!(running.finish().expect_code(0).came()[1], (source.as_str(), "connected"));
}

#[test]
fn a_timeout_says_what_was_in_the_way() {
    let folder = Folder::new();
    let unix = folder.source("unix", "nobody");
    let sources = ["tcp:nobody.invalid:80", &unix];
    let mut arguments = vec!["wait", "--timeout", "300ms"];
    arguments.extend(sources);
    let ended = run(&arguments).expect_code(124);
    assert!(ended.errors.contains(&format!("{unix} (No such file")), "{ended:?}");
    assert!(ended.errors.contains(sources[0]), "{ended:?}");
}

#[test]
fn a_unix_socket_that_comes_later_is_found() {
    let folder = Folder::new();
    let source = folder.source("unix", "socket");
    let begun = folder.listen("begun");
    let last = folder.source("unix", "begun");
    let mut running = Running::start(&mut command(&["wait", "--all", &source, &last]));
    begun.accept().expect("it connects when it has begun");
    running.expect_running();
    // Something else stands there first.
    let wrong = UnixDatagram::bind(folder.path("socket")).expect("a socket of another type");
    std::thread::sleep(Duration::from_millis(60));
    running.expect_running();
    drop(wrong);
    std::fs::remove_file(folder.path("socket")).expect("it is left behind");
    let _listener = folder.listen("socket");
    assert_eq!(running.finish().expect_code(0).came()[1], (source.as_str(), "connected"));
}

#[test]
fn an_abstract_socket_is_found() {
    let name = format!("hwctl-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("a free name");
    run(&["wait", "--timeout", "10s", &format!("unix:@{name}")]).expect_code(0);
    run(&["wait", "--timeout", "20ms", &format!("unix:@{name}-not")]).expect_code(124);
}
