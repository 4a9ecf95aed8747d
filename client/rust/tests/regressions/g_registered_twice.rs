//! C3f, C3g, C3i, C5f, C15c: group G, one descriptor registered more than once.

use std::thread;

use crate::support::*;
use crate::util::*;

/// joyent/libuv#680, libuv/libuv#2387, libuv/libuv#2987, libuv/help#7: any number of watches stand on one number, each
/// with its own signals, mode, token and end.
#[test]
fn g1_libuv_2387_many_watches_of_one_number_are_independent() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        let (ours, peer) = socket_pair();
        let mut watches = Vec::new();
        for (token, signals) in
            [READABLE, WRITABLE, PEER_CLOSED, READABLE | PRIORITY, NONE].into_iter().enumerate()
        {
            for mode in MODES {
                watches.push((client.watch(&ours, signals, mode, token as u64).unwrap(), signals));
            }
        }
        let told = tokens(&client.settle());
        assert!(told.iter().all(|&token| token == 1), "only writable holds: {told:?}");
        assert!(told.len() >= 3, "in each mode: {told:?}");
        write_all(&peer, b"x");
        let readers = |events: &[Event], token| {
            events.iter().filter(|event| event.token == token && event.satisfied.contains(READABLE)).count()
        };
        let told = client.settle();
        assert!(readers(&told, 0) >= 3 && readers(&told, 3) >= 3, "{told:#?}");
        assert!(told.iter().all(|event| event.token != 2 && event.token != 4), "{told:#?}");
        // Whoever is left still works when the others end, one after another.
        while let Some((watch, signals)) = watches.pop() {
            client.unwatch(watch).unwrap();
            for &(left, signals) in &watches {
                if !signals.is_empty() {
                    client.arm(left).unwrap();
                }
            }
            let armed = watches.iter().filter(|(_, signals)| signals.intersects(READABLE | WRITABLE));
            let mut told: Vec<WatchId> = client.settle().iter().map(|event| event.watch).collect();
            told.sort();
            told.dedup();
            let mut expected: Vec<WatchId> = armed.map(|(left, _)| *left).collect();
            expected.sort();
            assert_eq!(told, expected, "after the end of one that asked for {signals}");
        }
    });
}

/// ocaml-multicore/eio PR#279: two that wait for the same condition of one descriptor are both woken, and neither sees an
/// "exists".
#[test]
fn g2_eio_pr_279_two_waiters_for_one_condition_are_both_woken() {
    in_each(|setup, mode| {
        let clients: [Fixture; 3] = setup.clients();
        let (ours, peer) = socket_pair();
        fill(&ours);
        let ours = &ours;
        thread::scope(|scope| {
            let waiters: Vec<_> = clients
                .into_iter()
                .map(|mut client| {
                    let watch = client.watch(ours, WRITABLE, mode, 2).unwrap();
                    client.expect_nothing();
                    scope.spawn(move || client.expect_ready(watch, WRITABLE))
                })
                .collect();
            read_all(&peer);
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    });
}

/// tokio-rs/tokio-core#307, tokio-rs/mio#542, tokio-rs/mio#674: two clients, of one watcher or of two, watch one object,
/// by one number or by duplicates: one readiness, one event each.
#[test]
fn g3_tokio_core_307_two_clients_of_one_object_are_told_once_each() {
    in_each_setup(|setup| {
        for mode in [Mode::Once, Mode::Edge] {
            let event = event_fd(0);
            let same = duplicate(&event);
            let [first, second] = setup.clients();
            let mut clients = [first, second, setup.client(), setup.client()];
            let numbers = [&event, &event, &event, &same];
            let watches: Vec<WatchId> = clients
                .iter()
                .zip(numbers)
                .map(|(client, number)| client.watch(number, READABLE, mode, 3).unwrap())
                .collect();
            set_event(&event);
            for (client, watch) in clients.iter_mut().zip(&watches) {
                client.expect_ready(*watch, READABLE);
                client.expect_nothing();
            }
        }
    });
}

/// smol-rs/polling#151: watching twice makes two watches; changing or ending what is not there is NOT_FOUND, the first
/// time and every time.
#[test]
fn g4_polling_151_what_is_not_there_has_one_answer() {
    in_each(|setup, mode| {
        let mut client = setup.client();
        let event = event_fd(1);
        let first = client.watch(&event, READABLE, mode, 1).unwrap();
        let second = client.watch(&event, READABLE, mode, 1).unwrap();
        assert_ne!(first, second);
        // The second may have made the kernel look anew for the first.
        let mut told: Vec<WatchId> = client.settle().iter().map(|event| event.watch).collect();
        told.sort();
        told.dedup();
        assert_eq!(told, [first, second]);
        client.unwatch(first).unwrap();
        for id in [first, WatchId::INVALID, WatchId::new(second.slot(), second.generation() + 1)] {
            for _ in 0..2 {
                let answers =
                    [client.unwatch(id), client.change(id, WRITABLE), client.arm(id), client.pause(id)];
                for answer in answers {
                    assert_eq!(code_of(answer), Code::NotFound, "{id}");
                }
            }
        }
        client.arm(second).unwrap();
        client.expect_ready(second, READABLE);
        client.unwatch(second).unwrap();
        assert_eq!(code_of(client.unwatch(second)), Code::NotFound);
    });
}
