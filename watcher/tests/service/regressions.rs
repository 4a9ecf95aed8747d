//! Bugs of other systems that may not be ours. Each is named by where it was reported.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use handle_watcher::{Code, Mode, Signals};
use handle_watcher_wire::protocol::{Arm, Request};

use crate::client::*;
use crate::process::*;
use crate::util::*;

const READABLE: Signals = Signals::READABLE;

/// labwc/labwc#3399, swaywm/sway PR#8532: a client that is busy for a while is not disconnected.
#[test]
fn m1_labwc_3399_a_busy_client_stays() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    client.timer(1, 1, 100);
    let mut pipes = Vec::new();
    for id in 2..100 {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        client.watch(id, &reader, READABLE, Mode::Edge);
        pipes.push((reader, writer));
    }
    // The fast timer fills the event socket, and nobody reads.
    for (_, writer) in pipes.iter().cycle().take(20_000) {
        (&*writer).write_all(b"x").expect("room");
    }
    std::thread::sleep(Duration::from_millis(200));
    client.ok(&Request::CancelTimer { id: 1 });
    let mut seen = [false; 100];
    while let Some(event) = client.find_event(SILENCE * 10) {
        seen[event.id as usize] = true;
    }
    assert!(seen[1..].iter().all(|seen| *seen));
    client.expect_nothing();
}

/// Smithay/wayland-rs#668: a full socket is not the end; X11Libre/xserver PR#635: what waited comes without other
/// traffic.
#[test]
fn m2_wayland_rs_668_m3_xserver_635_what_a_full_socket_did_not_take_comes_by_itself() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let mut calls = Vec::new();
    let bytes = vec![5; 100_000];
    // More than one socket buffer, and less than two: whoever reads nothing may not send for ever.
    for _ in 0..3 {
        calls.push(client.send(&Request::Echo(&bytes), &[]));
    }
    // Nothing else is sent from here on.
    for call in calls {
        let answer = client.raw.next().expect("a reply");
        assert_eq!((answer.call, answer.code()), (call, Code::Ok));
        assert_eq!(answer.body().read_data().expect("data"), bytes);
    }
}

/// dart-lang/sdk#23572: at most one undelivered event a watch, however often it is ready.
#[test]
fn m4_dart_sdk_23572_one_pending_event_a_watch() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    client.watch(1, &reader, READABLE, Mode::Edge);
    // A timer that fires faster than anybody reads fills the event socket; what comes then waits in the engine.
    client.timer(2, 1, 100);
    // Full is where nothing more is told though something waits; a moment of waiting alone may be just before it is told.
    until("the event socket is full", || {
        let told = client.stat("session_events");
        std::thread::sleep(SILENCE);
        client.stat("session_undelivered") > 0 && client.stat("session_events") == told
    });
    for _ in 0..1000 {
        writer.write_all(b"x").expect("room");
    }
    assert!(client.stat("session_undelivered") <= 2);
    client.ok(&Request::CancelTimer { id: 2 });
    let mut ready = 0;
    while let Some(event) = client.find_event(SILENCE * 10) {
        ready += u32::from(event.id == 1);
    }
    assert!((1..=2).contains(&ready), "{ready}");
}

/// servo/servo PR#6746, servo/ipc-channel#240: descriptors that come faster than they are closed are held back.
#[test]
fn m6_servo_6746_p11_a_flood_of_descriptors_is_held_back() {
    alone!(m6_servo_6746_p11_a_flood_of_descriptors_is_held_back, {
        let stage = Stage::new();
        let mut client = Client::connect(&stage.path);
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        client.ok(&Request::Ping);
        let before = descriptor_count();
        let descriptors = [file.as_fd(); 250];
        let mut bytes = Vec::new();
        for id in 0..250 {
            bytes.extend(frame_of(&watch_of(id, READABLE, Mode::Once), 2, &[file.as_fd()]));
        }
        for _ in 0..40 {
            client.raw.send_bytes(&bytes, &descriptors).expect("room");
            for _ in 0..250 {
                assert_eq!(client.raw.next().expect("a reply").code(), Code::FailedPrecondition);
            }
            assert!(descriptor_count() < before + 2000);
        }
        expect_descriptors(before);
    });
}

/// dart-lang/sdk#22181, joyent/libuv#315: no descriptor for the next connection is no spin, is told, and passes.
#[test]
fn o1_dart_sdk_22181_o2_libuv_accepting_rests_and_recovers() {
    alone!(o1_dart_sdk_22181_o2_libuv_accepting_rests_and_recovers, {
        let stage = Stage::new();
        let mut witness = Client::connect(&stage.path);
        let clock = ThreadClock::of("handle-watcher");
        let mut early: Vec<UnixStream> = Vec::new();
        limit_descriptors(descriptor_count() as u64 + 6);
        while let Ok(socket) = UnixStream::connect(&stage.path) {
            early.push(socket);
            if early.len() > 50 {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(early.len() < 50, "the limit was reached");
        let ticks = clock.ticks();
        std::thread::sleep(Duration::from_millis(1000));
        assert!(clock.ticks() <= ticks + 10, "it spins");
        witness.ok(&Request::Ping);
        assert!(witness.stat("service_accept_pauses") >= 1);
        // The reserve told at least one of them.
        raise_descriptor_limit();
        drop(early);
        let mut late = Client::connect(&stage.path);
        late.ok(&Request::Ping);
        until("the others are gone", || late.stat("service_sessions") == 2);
    });
}

/// tokio-rs/mio PR#1636: making a service, a session or a watch fails cleanly at the n-th descriptor.
#[test]
fn o3_dart_sdk_52865_o5_mio_1636_every_descriptor_may_be_missing() {
    alone!(o3_dart_sdk_52865_o5_mio_1636_every_descriptor_may_be_missing, {
        let watcher = handle_watcher::Watcher::spawn(handle_watcher::Config::default()).expect("a watcher");
        let folder = Folder::new();
        let path = folder.path("s");
        let before = descriptor_count();
        let mut served = 0;
        for more in 0..16 {
            limit_descriptors(before as u64 + more);
            if let Ok(service) =
                handle_watcher::Service::bind(&watcher, &path, handle_watcher::ServiceConfig::default())
            {
                if let Ok(socket) = UnixStream::connect(&path) {
                    let raw = Raw::of(socket);
                    let hello = handle_watcher_wire::protocol::Hello {
                        version_lowest: 1,
                        version_highest: 1,
                        name: "",
                    };
                    // It may have been refused already.
                    let mut raw = raw;
                    if raw.send_bytes(&frame_of(&Request::Hello(hello), 1, &[]), &[]).is_ok()
                        && raw.next().is_some_and(|answer| answer.code() == Code::Ok)
                    {
                        served += 1;
                    }
                }
                drop(service);
            }
            raise_descriptor_limit();
            expect_descriptors(before);
            assert_eq!(std::fs::read_dir(folder.path("")).expect("a folder").count(), 0, "a file is left");
        }
        assert!((1..16).contains(&served), "some succeed and some fail: {served}");
    });
}

/// servo/ipc-channel#240: the same descriptor ten thousand times.
#[test]
fn o4_ipc_channel_240_the_same_descriptor_again_and_again() {
    alone!(o4_ipc_channel_240_the_same_descriptor_again_and_again, {
        let stage = Stage::new();
        let mut client = Client::connect(&stage.path);
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"x").expect("room");
        client.ok(&Request::Ping);
        let before = descriptor_count();
        for _ in 0..100 {
            let mut bytes = Vec::new();
            for id in 0..100 {
                bytes.extend(frame_of(&watch_of(id, READABLE, Mode::Once), 2, &[reader.as_fd()]));
            }
            for id in 0..100 {
                bytes.extend(frame_of(&Request::Unwatch { id }, 3, &[]));
            }
            client.raw.send_bytes(&bytes, &[reader.as_fd(); 100]).expect("room");
            for _ in 0..200 {
                assert_eq!(client.raw.next().expect("a reply").code(), Code::Ok);
            }
        }
        expect_descriptors(before);
    });
}

/// libuv/libuv PR#4358, oven-sh/bun PR#37427: more than one control message, more descriptors than wanted.
#[test]
fn p3_libuv_4358_surplus_descriptors_are_closed() {
    alone!(p3_libuv_4358_surplus_descriptors_are_closed, {
        let stage = Stage::new();
        let mut client = Client::connect(&stage.path);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        client.ok(&Request::Ping);
        let before = descriptor_count();
        let many: Vec<BorrowedFd<'_>> = vec![reader.as_fd(); 253];
        let bytes = frame_of(&watch_of(1, READABLE, Mode::Once), 2, &many);
        client.raw.send_bytes(&bytes, &many).expect("room");
        assert_eq!(client.raw.next().expect("a reply").code(), Code::InvalidArgument);
        client.ok(&Request::Ping);
        expect_descriptors(before);
    });
}

/// oven-sh/bun PR#28764: a small buffer cuts the bytes, and every descriptor comes once.
#[test]
fn p4_bun_28764_p5_wayland_rs_647_pieces_bring_each_descriptor_once() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    rustix::net::sockopt::set_socket_send_buffer_size(client.raw.socket.as_fd(), 1).expect("ours");
    let mut pipes = Vec::new();
    for id in 0..300_u64 {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // A frame in two pieces: the descriptor goes with the first.
        let frame = frame_of(&watch_of(id, READABLE, Mode::Once), 2, &[reader.as_fd()]);
        let cut = 1 + usize::try_from(id).expect("few") % (frame.len() - 1);
        client.raw.send_bytes(&frame[..cut], &[reader.as_fd()]).expect("room");
        client.raw.send_bytes(&frame[cut..], &[]).expect("room");
        pipes.push((reader, writer));
    }
    for _ in 0..300 {
        assert_eq!(client.raw.next().expect("a reply").code(), Code::Ok);
    }
    for (id, (_, writer)) in (0..).zip(&pipes) {
        (&*writer).write_all(b"x").expect("room");
        client.expect_ready(id, READABLE);
    }
}

/// servo/ipc-channel PR#271: what came does not leak into children.
#[test]
fn p7_ipc_channel_271_children_inherit_nothing() {
    alone!(p7_ipc_channel_271_children_inherit_nothing, {
        let inherited = || {
            let output = std::process::Command::new("ls").arg("/proc/self/fd").output().expect("ls");
            String::from_utf8_lossy(&output.stdout).lines().count()
        };
        let before = inherited();
        let stage = Stage::new();
        let mut client = Client::connect(&stage.path);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        client.watch(1, &reader, READABLE, Mode::Once);
        assert_eq!(inherited(), before);
    });
}

/// servo/ipc-channel#29: what was sent before the end is carried out, although nobody reads the replies.
#[test]
fn p8_ipc_channel_29_requests_before_the_end_are_carried_out() {
    let stage = Stage::new();
    let mut witness = Client::connect(&stage.path);
    let before = witness.stat("service_requests");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let client = Client::connect(&stage.path);
    let mut bytes = frame_of(&watch_of(1, READABLE, Mode::Once), 2, &[reader.as_fd()]);
    for call in 3..3000 {
        bytes.extend(frame_of(&Request::Arm(Arm { id: 1, token: 1, deadline_ns: 0 }), call, &[]));
    }
    bytes.extend(frame_of(&Request::Unwatch { id: 1 }, 3000, &[]));
    client.raw.send_bytes(&bytes, &[reader.as_fd()]).expect("room");
    drop((client, reader));
    until("the session is gone", || witness.stat("service_sessions") == 1);
    let asked = witness.stat("service_requests") - before;
    assert!(asked >= 3000, "{asked} requests were carried out");
    until("its descriptor is closed", || writer.write_all(b"x").is_err());
}

/// asterinas/asterinas PR#2176: sockets in sockets: a session's own end is not kept.
#[test]
fn p9_asterinas_2176_no_session_keeps_itself_alive() {
    let stage = Stage::new();
    let mut witness = Client::connect(&stage.path);
    let mut client = Client::connect(&stage.path);
    let own = client.raw.socket.try_clone().expect("a clone");
    let answer = client.call(&watch_of(1, READABLE, Mode::Once), &[own.as_fd()]);
    assert_eq!(answer.code(), Code::FailedPrecondition, "{}", answer.status);
    let events = client.events.try_clone().expect("a clone");
    client.watch(2, &events, Signals::PEER_CLOSED, Mode::Once);
    drop((client, own, events));
    until("the session is gone", || witness.stat("service_sessions") == 1);
}

/// epoll(7) Q6, unix(7): a passed descriptor is a duplicate; the peer sees the end when the watch and the owner are gone.
#[test]
fn f4_unix_7_the_peer_sees_the_end_after_unwatch_and_after_death() {
    let stage = Stage::new();
    let mut client = Client::connect(&stage.path);
    for is_death in [false, true] {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PROMPT)).expect("ours");
        client.watch(1, &theirs, READABLE, Mode::Once);
        drop(theirs);
        if is_death {
            client = Client::connect(&stage.path);
        } else {
            client.ok(&Request::Unwatch { id: 1 });
        }
        assert_eq!(std::io::Read::read(&mut &ours, &mut [0; 8]).expect("the end"), 0);
    }
}

/// dart-lang/sdk#53190: a client that ends right after it asked leaves nothing.
#[test]
fn d7_dart_sdk_53190_an_end_right_after_a_request() {
    alone!(d7_dart_sdk_53190_an_end_right_after_a_request, {
        let stage = Stage::new();
        let mut witness = Client::connect(&stage.path);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        witness.ok(&Request::Ping);
        let before = descriptor_count();
        for round in 0..300 {
            let raw = Raw::connect(&stage.path);
            let hello =
                handle_watcher_wire::protocol::Hello { version_lowest: 1, version_highest: 1, name: "" };
            let mut bytes = frame_of(&Request::Hello(hello), 1, &[]);
            bytes.extend(frame_of(&watch_of(1, READABLE, Mode::Once), 2, &[reader.as_fd()]));
            bytes.truncate(bytes.len() - round % 3);
            raw.send_bytes(&bytes, &[reader.as_fd()]).expect("room");
        }
        until("all are gone", || witness.stat("service_sessions") == 1);
        expect_descriptors(before);
    });
}

/// eclipse-iceoryx/iceoryx2#1477: writing to a client that is gone kills nobody.
#[test]
fn i10_iceoryx2_1477_no_sigpipe() {
    alone!(i10_iceoryx2_1477_no_sigpipe, {
        // Rust programs ignore the signal; the service must not need that.
        let stage = Stage::new();
        let mut witness = Client::connect(&stage.path);
        for _ in 0..100 {
            let mut client = Client::connect(&stage.path);
            client.timer(1, 1, 10_000);
            client.raw.send_bytes(&frame_of(&Request::Ping, 2, &[]).repeat(50), &[]).expect("room");
        }
        until("all are gone", || witness.stat("service_sessions") == 1);
    });
}
