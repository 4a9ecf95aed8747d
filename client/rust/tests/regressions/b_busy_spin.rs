//! C3h, C6a, C6b, C6c, C2f, C2g: group B, loops that ran at full speed over something that nobody takes away.
//!
//! B8 speaks of a client process that is killed and of a wake pipe that reaches its end: there is no service yet, and
//! the watcher's waker is an eventfd, which has no end. The dropped client is tested.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

use crate::support::*;
use crate::util::*;

/// A socket whose connection was refused: hung up, failed, readable and writable, for ever.
fn refused_socket() -> OwnedFd {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    assert!(rustix::net::connect(&socket, &gone).is_err(), "nobody listens");
    socket
}

/// tokio-rs/tokio#5550, tokio-rs/tokio#4549: a hang-up or an error that nobody can take away is told once per arm, and
/// again only when the watch is armed again.
#[test]
fn b1_tokio_5550_a_hang_up_is_told_once_per_arm() {
    in_each(|setup, mode| {
        let [mut client, mut other] = setup.clients();
        let refused = refused_socket();
        // Nothing of what always holds here was asked for.
        let watch = client.watch(&refused, PRIORITY, mode, 1).unwrap();
        for _ in 0..3 {
            client.expect_ready(watch, PEER_CLOSED);
            expect_quiet_while_waiting(&mut client);
            client.arm(watch).unwrap();
        }
        expect_alive(&mut other);
    });
}

/// tokio-rs/tokio#5550: the same when the data end was asked for, and the client takes its event and goes away.
#[test]
fn b1_tokio_5550_what_a_client_leaves_unread_makes_nothing_spin() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (ours, peer) = tcp_pair();
        client.watch(&ours, READABLE | PEER_CLOSED, mode, 1).unwrap();
        drop(peer);
        assert!(client.expect_event().satisfied.contains(READABLE | PEER_CLOSED));
        expect_quiet(&client);
    });
}

/// tokio-rs/tokio#4349, tokio-rs/tokio#7938, smol-rs/async-io#10: an error alone wakes every waiter, whatever it waits
/// for.
#[test]
fn b2_tokio_4349_an_error_wakes_every_waiter() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let socket = udp_to_nobody();
        let mut watches: Vec<WatchId> = [READABLE, PRIORITY, PEER_CLOSED]
            .into_iter()
            .map(|signals| client.watch(&socket, signals, mode, 2).unwrap())
            .collect();
        client.expect_nothing();
        socket.send(b"x").unwrap();
        let events = client.expect_events(3);
        assert!(events.iter().all(|event| event.satisfied == ERROR), "{events:#?}");
        let mut told: Vec<WatchId> = events.iter().map(|event| event.watch).collect();
        told.sort();
        watches.sort();
        assert_eq!(told, watches);
        expect_quiet_while_waiting(&mut client);
    });
}

/// h2o/h2o PR#603, apple/cups#4605: the kernel tells of a hang-up even where nothing is asked for. A paused watch is
/// silent all the same, nothing spins, and at the resume the hang-up is told.
#[test]
fn b3_h2o_pr_603_a_hang_up_of_a_paused_watch_waits_for_the_resume() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (ours, peer) = socket_pair();
        let watch = client.watch(&ours, READABLE, mode, 3).unwrap();
        client.pause(watch).unwrap();
        drop(peer);
        client.expect_nothing();
        expect_quiet_while_waiting(&mut client);
        client.resume(watch).unwrap();
        client.expect_ready(watch, READABLE | PEER_CLOSED);
        expect_quiet(&client);
    });
}

/// joyent/libuv#982, libuv/libuv#1859: a hang-up without IN or OUT reaches a watch that asked for writing only.
#[test]
fn b4_libuv_1859_a_hang_up_reaches_a_writer() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (ours, peer) = socket_pair();
        fill(&ours);
        let watch = client.watch(&ours, WRITABLE, mode, 4).unwrap();
        client.expect_nothing();
        drop(peer);
        expect_signals(&mut client, watch, mode, PEER_CLOSED);
        expect_quiet(&client);
    });
}

/// joyent/libuv#982: a hang-up that was asked for is a condition like any other. A pipe reports it without any flag
/// beside it, and a Level watch is told of it as long as its client comes back.
#[test]
fn b4_libuv_982_a_level_watch_of_a_hang_up_is_told_as_long_as_it_holds() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let (reader, writer) = pipe();
        let watch = client.watch(&reader, PEER_CLOSED, Mode::Level, 4).unwrap();
        client.expect_nothing();
        drop(writer);
        for _ in 0..3 {
            client.expect_ready(watch, PEER_CLOSED);
        }
        expect_quiet(&client);
    });
}

/// joyent/libuv#982: the same for an error that was asked for.
#[test]
fn b4_libuv_982_a_level_watch_of_an_error_is_told_as_long_as_it_holds() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let socket = udp_to_nobody();
        let watch = client.watch(&socket, ERROR, Mode::Level, 4).unwrap();
        socket.send(b"x").unwrap();
        for _ in 0..3 {
            client.expect_ready(watch, ERROR);
        }
        expect_quiet(&client);
        assert!(socket.take_error().unwrap().is_some(), "nobody took the error away");
        client.expect_nothing();
    });
}

/// redpanda-data/seastar PR#64: an aborted connection of a watch that asks for nothing costs nothing.
#[test]
fn b5_seastar_pr_64_a_reset_while_nothing_is_asked_for_is_quiet() {
    in_each(|setup, mode| {
        let [mut client, mut other] = setup.clients();
        let (ours, peer) = tcp_pair();
        let paused = client.watch(&ours, READABLE | WRITABLE, mode, 5).unwrap();
        assert!(client.expect_event().satisfied.contains(WRITABLE));
        client.pause(paused).unwrap();
        let empty = client.watch(&ours, NONE, mode, 6).unwrap();
        set_linger(&peer, 0);
        drop(peer);
        client.expect_nothing();
        expect_quiet_while_waiting(&mut client);
        client.resume(paused).unwrap();
        assert!(client.expect_event().satisfied.contains(READABLE | PEER_CLOSED | ERROR));
        client.unwatch(empty).unwrap();
        expect_quiet(&client);
        expect_alive(&mut other);
    });
}

/// netty/netty#8698, netty/netty#11125, netty/netty#13674: a closed number whose open file lives on elsewhere, ready all
/// the time, makes nothing spin, whatever the mode.
#[test]
fn b6_netty_8698_a_closed_number_with_a_ready_duplicate_makes_nothing_spin() {
    let number = PrivateNumber::new();
    in_each(|setup, mode| {
        let [mut client, mut other] = setup.clients();
        let (reader, writer) = pipe();
        let watched = number.take_duplicate(&reader);
        let watch = client.watch(&watched, READABLE, mode, 6).unwrap();
        drop(watched);
        write_all(&writer, b"x");
        expect_quiet(&client);
        // Not even when others keep the watcher turning.
        for _ in 0..20 {
            expect_alive(&mut other);
        }
        expect_quiet(&client);
        client.unwatch(watch).unwrap();
        // Nobody can take the kernel's entry out by its number any more. It may make a port look for nothing a few times,
        // not for ever: waiting does not spin over it either.
        for _ in 0..4 {
            assert!(client.drained().is_empty());
        }
        client.settle();
        for _ in 0..2 {
            expect_quiet_while_waiting(&mut client);
        }
        expect_alive(&mut client);
    });
}

/// eclipse-iceoryx/iceoryx2#1680: handing an event out consumes it, also with several sources. Nothing is told again
/// because its cause was left in place.
#[test]
fn b7_iceoryx2_1680_an_event_is_consumed_by_the_hand_over() {
    in_each_setup(|setup| {
        for mode in [Mode::Once, Mode::Edge] {
            let mut client = setup.client();
            let ready = [event_fd(1), event_fd(1), event_fd(1)];
            for event in &ready {
                client.watch(event, READABLE, mode, 7).unwrap();
            }
            client.expect_events(3);
            client.expect_nothing();
            expect_quiet_while_waiting(&mut client);
        }
    });
}

/// python/cpython PR#156345: when a client goes, with whatever it had, nothing of it stays behind to be looked at.
#[test]
fn b8_cpython_pr_156345_a_client_that_goes_leaves_nothing_to_spin_on() {
    alone!(b8_cpython_pr_156345_a_client_that_goes_leaves_nothing_to_spin_on, {
        let [client, mut other] = Setup::Own.clients();
        expect_no_leak(|| {
            let ready = event_fd(1);
            let (reader, writer) = pipe();
            drop(writer);
            for round in 0..34 {
                let mode = MODES[round % 3];
                client.watch(&ready, READABLE, mode, 1).unwrap();
                client.watch(&reader, READABLE, mode, 2).unwrap();
                client.adopt(duplicate(&ready)).unwrap();
                client.set_periodic(Duration::ZERO, Duration::from_micros(50), 3).unwrap();
            }
            drop(client);
        });
        expect_quiet(&other);
        let stats = other.stats();
        assert_eq!((stats.clients, stats.watches, stats.timers, stats.undelivered), (1, 0, 0, 0));
        expect_alive(&mut other);
    });
}

/// wahern/cqueues#71: waiting for nothing at all has a defined end, and after a hand-out the port is empty.
#[test]
fn b9_cqueues_71_a_client_without_watches_waits_for_its_timeout() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let started = Instant::now();
        // Not earlier and with no events: `wait_for` checks both.
        assert!(client.wait_for(Duration::from_millis(50)).is_empty());
        assert!(started.elapsed() >= Duration::from_millis(50));
        client.wake().unwrap();
        assert_eq!(client.expect_event().kind, EventKind::Wake);
        assert!(client.drained().is_empty());
        assert!(client.wait_for(Duration::from_millis(50)).is_empty());
    });
}

/// smol-rs/smol#122: an idle program uses no processor, however many of its threads wait.
#[test]
fn b10_smol_122_many_idle_waiters_use_no_processor() {
    let watcher = Setup::Own.watcher();
    let mut clients: Vec<Fixture> = (0..8).map(|_| Setup::Own.attach(&watcher)).collect();
    let controls: Vec<Control> = clients.iter().map(|client| client.control().clone()).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.set_timer(Duration::from_secs(10), 10).unwrap();
                let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                assert_eq!(client.expect_event().kind, EventKind::Wake);
                let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                let nanoseconds = (now.tv_sec - used.tv_sec) * 1_000_000_000 + now.tv_nsec - used.tv_nsec;
                assert!(nanoseconds < 20_000_000, "an idle waiter used {nanoseconds} ns");
            });
        }
        until("all have set their timers", || watcher.stats().timers == 8);
        thread::sleep(Duration::from_millis(50));
        let turns = watcher.stats().turns;
        thread::sleep(Duration::from_millis(500));
        assert_eq!(watcher.stats().turns, turns, "the watcher sleeps");
        for control in &controls {
            control.wake().unwrap();
        }
    });
}

/// erlang/otp#10791: a watch that keeps failing and that nobody attends to costs nothing, and the others do not notice.
#[test]
fn b11_otp_10791_a_failing_watch_is_quiet_and_the_others_are_prompt() {
    in_each(|setup, mode| {
        let [mut client, mut other] = setup.clients();
        let socket = udp_to_nobody();
        let watch = client.watch(&socket, READABLE, mode, 11).unwrap();
        socket.send(b"x").unwrap();
        client.expect_ready(watch, ERROR);
        for _ in 0..20 {
            expect_alive(&mut other);
        }
        client.expect_nothing();
        expect_quiet_while_waiting(&mut client);
    });
}

/// systemd/systemd#38265: of several watches of one object the others stay sound when one is taken away.
#[test]
fn b12_systemd_38265_removing_one_of_three_watches_of_one_object_leaves_two() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let event = event_fd(0);
        let same = [duplicate(&event), duplicate(&event), duplicate(&event)];
        let watches: Vec<WatchId> =
            (0..3).map(|index| client.watch(&same[index], READABLE, mode, index as u64).unwrap()).collect();
        client.unwatch(watches[1]).unwrap();
        set_event(&event);
        let mut told = tokens(&client.settle());
        told.sort_unstable();
        assert!(told.len() == 2 || mode == Mode::Level, "once each: {told:?}");
        told.dedup();
        assert_eq!(told, [0, 2]);
        clear_event(&event);
        client.expect_nothing();
        expect_quiet_while_waiting(&mut client);
    });
}

/// libuv/libuv#4992: "hung up" does not mean "nothing left". On a pseudo-terminal every byte comes out after the hang-up.
#[test]
fn b13_libuv_4992_a_hang_up_never_hides_what_is_left_to_read() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let (master, slave) = pty();
        let watch = client.watch(&master, READABLE, mode, 13).unwrap();
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(65536 + 13).collect();
        let mut received = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    match rustix::io::write(&slave, rest) {
                        Ok(count) => rest = &rest[count..],
                        Err(rustix::io::Errno::AGAIN) => thread::sleep(Duration::from_micros(100)),
                        Err(errno) => panic!("write: {errno}"),
                    }
                }
                drop(slave);
            });
            'reading: loop {
                expect_signals(&mut client, watch, mode, NONE);
                // Small bites, so that a hang-up comes while much is left. An Edge client reads until there is nothing.
                while let Some(bite) = read_some(&master, 997) {
                    if bite.is_empty() {
                        break 'reading;
                    }
                    received.extend(bite);
                    if mode != Mode::Edge {
                        break;
                    }
                }
                if mode == Mode::Once {
                    client.arm(watch).unwrap();
                }
            }
        });
        assert_eq!(received.len(), bytes.len(), "{mode:?}");
        assert!(received == bytes, "{mode:?}: the bytes are not those that were written");
        expect_quiet(&client);
    });
}

/// Mellanox/rshim-user-space PR#274: asking a handle for what it cannot have is answered with silence, not with a spin:
/// a timerfd is never writable.
#[test]
fn b14_rshim_pr_274_a_signal_that_a_handle_cannot_have_never_comes() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let timer = timer_fd();
        let watch = client.watch(&timer, READABLE | WRITABLE, mode, 14).unwrap();
        let only_writable = client.watch(&timer, WRITABLE, mode, 15).unwrap();
        expect_quiet_while_waiting(&mut client);
        set_timer_fd(&timer, Duration::from_millis(1));
        client.expect_ready(watch, READABLE);
        expect_quiet(&client);
        assert_eq!(clear_event(&timer), 1);
        client.expect_nothing();
        client.unwatch(only_writable).unwrap();
    });
}

/// libuv/libuv#2162: the kernel is asked only for what somebody waits for. A Level client that never comes back is told
/// once, and its readiness makes nothing turn.
#[test]
fn b15_libuv_2162_a_level_watch_that_nobody_drains_is_told_once() {
    in_each_setup(|setup| {
        let [mut client, mut other] = setup.clients();
        let (reader, writer) = pipe();
        let watch = client.watch(&reader, READABLE, Mode::Level, 15).unwrap();
        write_all(&writer, b"x");
        client.until_undelivered(Mode::Level, 1);
        expect_quiet(&client);
        for _ in 0..50 {
            write_all(&writer, b"x");
            expect_alive(&mut other);
        }
        expect_quiet(&client);
        client.until_undelivered(Mode::Level, 1);
        assert_eq!(client.drained().iter().filter(|event| event.watch == watch).count(), 1);
    });
}
