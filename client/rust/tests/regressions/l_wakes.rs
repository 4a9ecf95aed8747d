//! C9e, C4b, C11d: group L, how often somebody is woken.

use std::thread;
use std::time::Duration;

use crate::support::*;
use crate::sys;
use crate::util::*;

/// grpc/grpc PR#6110, cppalliance/corosio#33: an event for one client wakes that client's thread, and no other.
#[test]
fn l1_grpc_pr_6110_an_event_wakes_only_the_client_it_is_for() {
    const COUNT: usize = 16;
    let watcher = Setup::Own.watcher();
    let mut clients: Vec<Fixture> = (0..COUNT).map(|_| Setup::Own.attach(&watcher)).collect();
    let controls: Vec<Control> = clients.iter().map(|client| client.control().clone()).collect();
    let events: Vec<_> = (0..COUNT).map(|_| event_fd(0)).collect();
    for (client, event) in clients.iter().zip(&events) {
        client.watch(event, READABLE, Mode::Edge, 1).unwrap();
    }
    let wakes = || controls.iter().map(|control| control.client_stats().wakes).collect::<Vec<u64>>();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(
                || {
                    while client.wait_for(PROMPT).iter().all(|event| event.kind != EventKind::Wake) {}
                },
            );
        }
        let mut expected = vec![0; COUNT];
        thread::sleep(Duration::from_millis(50));
        assert_eq!(wakes(), expected);
        for round in 0..64 {
            let target = round * 7 % COUNT;
            let delivered = controls[target].client_stats().delivered;
            set_event(&events[target]);
            until("it is delivered", || controls[target].client_stats().delivered == delivered + 1);
            // Let it park again, so that the next one has to wake it.
            thread::sleep(Duration::from_millis(2));
            let now = wakes();
            expected[target] = now[target];
            assert_eq!(now, expected, "only {target} is woken");
        }
        assert!(wakes().iter().sum::<u64>() <= 64);
        controls.iter().for_each(|control| control.wake().unwrap());
    });
}

/// libuv/libuv PR#4400, libevent/libevent PR#1619, tokio-rs/mio PR#909: a counter that is full means "woken already", or is
/// emptied and written again: the wake works.
#[test]
fn l2_mio_pr_909_a_full_wake_counter_still_wakes() {
    alone!(l2_mio_pr_909_a_full_wake_counter_still_wakes, {
        let mut client = Setup::Own.client();
        let is_waker = |number: &i32| {
            let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
            link.is_ok_and(|link| link.to_string_lossy().contains("[eventfd]"))
        };
        let waker = (0..64).find(is_waker).unwrap();
        for round in 0..5 {
            // Whatever it holds now, after this it is as full as it gets.
            expect_quiet(&client);
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{waker}")).unwrap();
            let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:")).unwrap().trim();
            let count = u64::from_str_radix(count, 16).unwrap();
            if count < u64::MAX - 1 {
                sys::add_to_event(waker, u64::MAX - 1 - count);
            }
            expect_quiet(&client);
            client.set_timer(Duration::ZERO, round).unwrap();
            assert_eq!(client.expect_event().token, round);
        }
    });
}

/// libuv/libuv, docs/src/async.rst: wakes are merged, and the event says how many there were.
#[test]
fn l3_libuv_async_merged_wakes_are_counted() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        for count in [5, 1, 1000] {
            for _ in 0..count {
                client.wake().unwrap();
            }
            let event = client.expect_event();
            assert_eq!((event.kind, event.count, event.status), (EventKind::Wake, count, Code::Ok));
            client.expect_nothing();
        }
    });
}

/// eclipse-iceoryx/iceoryx2@51c3e2dbb, eclipse-iceoryx/iceoryx2#925: who is about to be woken is not woken again: ten
/// thousand events for a client that sleeps elsewhere cost no wake at all, and registering wakes nobody.
#[test]
fn l4_iceoryx2_925_at_most_one_wake_until_the_client_looks() {
    let mut client = Setup::Off.client();
    let event = event_fd(0);
    let watch = client.watch(&event, READABLE, Mode::Edge, 4).unwrap();
    client.expect_nothing();
    let (before, watcher_before) = (client.client_stats().wakes, client.stats().wakes);
    for _ in 0..10_000 {
        set_event(&event);
        client.wake().unwrap();
        let other = client.watch(&event, PRIORITY, Mode::Once, 5).unwrap();
        client.unwatch(other).unwrap();
    }
    until("both are told of", || client.client_stats().undelivered == 2);
    assert_eq!(client.client_stats().wakes, before, "nobody was parked");
    assert_eq!(client.stats().wakes, watcher_before, "registering does not wake the watcher");
    let mut told = client.settle();
    told.sort_by_key(|event| event.token);
    assert_eq!((told[0].kind, told[0].count), (EventKind::Wake, 10_000));
    assert!(told[1..].iter().all(|event| event.watch == watch), "{told:#?}");
}

/// eclipse-iceoryx/iceoryx2#925: and one that is parked is woken once for all that comes before it looks.
#[test]
fn l4_iceoryx2_925_a_parked_client_is_woken_once_for_a_burst() {
    const COUNT: usize = 100;
    let mut client = Setup::Off.client();
    let ready = event_fd(0);
    for token in 0..COUNT as u64 {
        client.watch(&ready, READABLE, Mode::Once, token).unwrap();
    }
    client.set_capacity(COUNT);
    let control = client.control().clone();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            // One readiness for all of them.
            set_event(&ready);
        });
        assert_eq!(client.expect_events(COUNT).len(), COUNT);
    });
    let wakes = control.client_stats().wakes;
    assert!(wakes <= 1, "{wakes} wakes for one burst");
}
