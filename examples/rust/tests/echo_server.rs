//! C1d, C2g, C3d, C3g, C3h: the echo server with real clients: one, many, too many, one that is slow to read, one
//! that breaks off.

mod program;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use program::Program;

fn start(connections: usize) -> (Program, SocketAddr) {
    let limit = connections.to_string();
    let mut server = Program::start(env!("CARGO_BIN_EXE_echo_server"), &["0", "--connections", &limit]);
    let address = address_of(&mut server);
    (server, address)
}

fn address_of(server: &mut Program) -> SocketAddr {
    let line = server.read_line();
    let address = line.strip_prefix("listening on ").expect("it tells its address");
    address.parse().expect("an address")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(program::PATIENCE)).expect("a timeout can be set");
    stream
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251 + seed) % 256).expect("a byte")).collect()
}

#[test]
fn one_client_gets_its_words_back_and_the_server_ends() {
    let (server, address) = start(1);
    let mut stream = connect(address);
    for words in ["hello", "again", "and once more"] {
        stream.write_all(words.as_bytes()).expect("the server reads");
        let mut echo = vec![0; words.len()];
        stream.read_exact(&mut echo).expect("the server answers");
        assert_eq!(echo, words.as_bytes());
    }
    drop(stream);
    assert!(server.wait().status.success());
}

#[test]
fn many_clients_at_once_each_get_their_own_words() {
    const CLIENTS: usize = 200;
    let (server, address) = start(CLIENTS);
    let mut streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(address)).collect();
    for round in 0..3 {
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&bytes(number + round, 700)).expect("the server reads");
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let mut echo = vec![0; 700];
            stream.read_exact(&mut echo).expect("the server answers");
            assert_eq!(echo, bytes(number + round, 700), "connection {number}");
        }
    }
    drop(streams);
    assert!(server.wait().status.success());
}

#[test]
fn a_client_that_reads_late_gets_everything_and_holds_up_nobody() {
    const LENGTH: usize = 16 << 20;
    let (server, address) = start(2);
    let slow = connect(address);
    let mut writing = slow.try_clone().expect("a socket can be duplicated");
    // More than the sockets on both sides can hold: the server owes, and must not read on.
    let writer = std::thread::spawn(move || {
        writing.write_all(&bytes(1, LENGTH)).expect("the server reads at last");
        writing.shutdown(Shutdown::Write).expect("the socket is open");
    });
    std::thread::sleep(Duration::from_millis(100));

    let mut other = connect(address);
    other.write_all(b"meanwhile").expect("the server reads");
    let mut echo = [0; 9];
    other.read_exact(&mut echo).expect("the server answers others while it owes");
    assert_eq!(&echo, b"meanwhile");
    drop(other);

    let mut echo = Vec::new();
    let mut slow = slow;
    slow.read_to_end(&mut echo).expect("the server sends all it owes, then closes");
    assert!(echo == bytes(1, LENGTH), "{} of {LENGTH} bytes came back as sent", echo.len());
    writer.join().expect("the writer wrote all");
    assert!(server.wait().status.success());
}

#[test]
fn a_client_that_breaks_off_is_a_closed_connection_and_hurts_nobody() {
    let (server, address) = start(2);
    let mut other = connect(address);
    let mut broken = connect(address);
    broken.write_all(&bytes(1, 1 << 16)).expect("the server reads");
    std::thread::sleep(Duration::from_millis(50));
    // Closing with unread data resets the connection.
    drop(broken);
    other.write_all(b"still here").expect("the server reads");
    let mut echo = [0; 10];
    other.read_exact(&mut echo).expect("the server answers");
    drop(other);
    assert!(server.wait().status.success());
}

#[test]
fn more_clients_than_descriptors_are_served_one_after_the_other() {
    const CLIENTS: usize = 40;
    let script =
        format!("ulimit -n 24; exec {} 0 --connections {CLIENTS}", env!("CARGO_BIN_EXE_echo_server"));
    let mut server = Program::start("sh", &["-c", &script]);
    let address = address_of(&mut server);
    let streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(address)).collect();
    // Nobody leaves before the limit was met.
    let told = server.read_error();
    assert!(told.contains("not accepting for now"), "{told}");
    for (number, mut stream) in streams.into_iter().enumerate() {
        stream.write_all(&bytes(number, 100)).expect("the connection is in the kernel's queue at least");
        let mut echo = vec![0; 100];
        stream.read_exact(&mut echo).expect("it is accepted when others have left");
        assert_eq!(echo, bytes(number, 100), "connection {number}");
    }
    let outcome = server.wait();
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.errors.lines().count() < CLIENTS, "it turned idly: {outcome:?}");
}

#[test]
fn wrong_arguments_are_told() {
    let outcome = Program::start(env!("CARGO_BIN_EXE_echo_server"), &[]).wait();
    assert!(!outcome.status.success() && outcome.errors.contains("usage"), "{outcome:?}");
}
