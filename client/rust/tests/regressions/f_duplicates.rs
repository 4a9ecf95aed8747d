//! C1d, C7e, C8d: group F, duplicates of a descriptor and the one open file behind them.
//!
//! - F4 is about descriptors passed over a socket: there is no service yet.
//! - F5, that flags of lent descriptors are left alone, is tested with H7.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::support::*;
use crate::util::*;

/// tokio-rs/mio#361, tokio-rs/mio#308: an unwatched descriptor is taken out of the kernel's set while its number is open,
/// so a duplicate of it tells nothing any more.
#[test]
fn f1_mio_361_a_duplicate_of_what_was_unwatched_tells_nothing() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let duplicate = duplicate(&reader);
        let watch = client.watch(&reader, READABLE, mode, 1).unwrap();
        client.unwatch(watch).unwrap();
        drop(reader);
        expect_quiet(&client);
        let turns = client.stats().turns;
        write_all(&writer, b"x");
        expect_quiet(&client);
        assert_eq!(client.stats().turns, turns, "the watcher did not even look");
        client.expect_nothing();
        assert_eq!(read_all(&duplicate), 1);
    });
}

/// libuv/libuv#1148: a number that was closed first, while a duplicate lives, makes no wake-ups without end, neither
/// before nor after it is unwatched.
#[test]
fn f2_libuv_1148_unwatching_after_the_close_leaves_nothing_that_wakes_without_end() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let number = PrivateNumber::new();
        let (reader, writer) = pipe();
        let file = number.take_duplicate(&reader);
        let watch = client.watch(&file, READABLE, mode, 2).unwrap();
        write_all(&writer, b"x");
        client.expect_ready(watch, READABLE);
        drop(file);
        expect_quiet(&client);
        client.unwatch(watch).unwrap();
        write_all(&writer, b"x");
        // The kernel's entry may make a port look for nothing a few times, not for ever.
        for _ in 0..4 {
            assert!(client.drained().is_empty());
        }
        client.expect_nothing();
        expect_quiet_while_waiting(&mut client);
        // The number works again for somebody else, and for the same file.
        for other_file in [event_fd(1), duplicate(&reader)] {
            let file = number.take(other_file);
            let watch = client.watch(&file, READABLE, mode, 3).unwrap();
            client.expect_ready(watch, READABLE);
            client.unwatch(watch).unwrap();
        }
    });
}

/// joyent/libuv#1099: a child process inherited the open file. What it does with it after we unwatched, or only closed,
/// does not keep the watcher busy.
#[test]
fn f3_libuv_1099_what_a_child_does_with_an_inherited_file_makes_nothing_spin() {
    let number = PrivateNumber::new();
    in_each_setup(|setup| {
        for unwatches in [true, false] {
            for mode in [Mode::Edge, Mode::Level] {
                let mut client = setup.client();
                let (ours, peer) = socket_pair();
                let file = number.take(ours);
                let mut child = Command::new("sh")
                    .args(["-c", "read line; echo late; read line"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::from(duplicate(&file)))
                    .spawn()
                    .unwrap();
                let mut stdin = child.stdin.take().unwrap();
                let watch = client.watch(&file, READABLE | PEER_CLOSED, mode, 3).unwrap();
                if unwatches {
                    client.unwatch(watch).unwrap();
                }
                drop(file);
                // The child writes to its copy, and the peer answers into it: it is readable from now on.
                stdin.write_all(b"go\n").unwrap();
                let mut line = String::new();
                rustix::io::ioctl_fionbio(&peer, false).unwrap();
                let peer = std::fs::File::from(peer);
                BufReader::new(&peer).read_line(&mut line).unwrap();
                assert_eq!(line, "late\n");
                write_all(&peer, b"x");
                expect_quiet(&client);
                drop(stdin);
                child.wait().unwrap();
                expect_quiet(&client);
                if unwatches {
                    client.expect_nothing();
                }
            }
        }
    });
}
