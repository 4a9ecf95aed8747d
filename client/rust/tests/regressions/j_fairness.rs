//! C3b, C3d, C9g, C11b, C11d: group J, hot handles and those beside them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use crate::util::*;

/// Takes events one at a time until one is of `watch`; gives how many others came before.
#[track_caller]
fn others_before(client: &mut Fixture, watch: WatchId, mut at_other: impl FnMut(&Fixture, &Event)) -> usize {
    let started = Instant::now();
    for others in 0.. {
        let event = client.expect_event();
        if event.watch == watch {
            return others;
        }
        assert!(started.elapsed() < PROMPT, "{others} others came before {watch}, which does not come");
        at_other(client, &event);
    }
    unreachable!("the loop returns or fails");
}

/// libuv/libuv@738b31eb3: a fast source gets one visit a turn. What becomes ready beside it comes after at most what was
/// queued and on its way already.
#[test]
fn j1_libuv_738b31eb3_a_hot_handle_does_not_hold_up_another() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        client.set_capacity(1);
        let hot = event_fd(1);
        client.watch(&hot, READABLE, Mode::Level, 1).unwrap();
        let (reader, writer) = pipe();
        let cold = client.watch(&reader, READABLE, Mode::Edge, 2).unwrap();
        for _ in 0..100 {
            write_all(&writer, b"x");
            if setup.serves_in_front(Mode::Level) && !setup.serves_in_front(Mode::Edge) {
                // The hot one costs the client no hop, this one does.
                until("the cold one is told of", || client.client_stats().undelivered == 1);
            }
            let others = others_before(&mut client, cold, |_, _| {});
            assert!(others <= 3, "{others} visits to the hot one before the cold one");
            read_all(&reader);
        }
    });
}

/// libuv/libuv PR#1787, libuv/libuv PR#371: what becomes ready while the ready ones are handed out waits for the next
/// round; a client that arms its own ready watch again at once does not keep others out.
#[test]
fn j2_libuv_pr_1787_a_watch_that_is_armed_again_at_once_goes_to_the_end() {
    in_each_setup(|setup| {
        let mut client = setup.client();
        client.set_capacity(1);
        let own = event_fd(1);
        client.watch(&own, READABLE, Mode::Once, 1).unwrap();
        let (reader, writer) = pipe();
        let cold = client.watch(&reader, READABLE, Mode::Once, 2).unwrap();
        for _ in 0..100 {
            write_all(&writer, b"x");
            let others = others_before(&mut client, cold, |client, event| client.arm(event.watch).unwrap());
            // Where watches move when they are hot, one of them costs a hop for a while and the other does not.
            let moves = matches!(setup, Setup::Own | Setup::Exposed);
            assert!(others <= 3 || moves, "{others} visits to the one armed again before the cold one");
            read_all(&reader);
            client.arm(cold).unwrap();
        }
    });
}

fn ready_ones(client: &Fixture, count: usize, mode: Mode) -> Vec<OwnedFd> {
    let ready: Vec<OwnedFd> = (0..count).map(|_| event_fd(1)).collect();
    for (token, event) in ready.iter().enumerate() {
        client.watch(event, READABLE, mode, token as u64).unwrap();
    }
    ready
}

/// systemd/systemd#13236: every ready watch is visited before any is visited twice, whatever the sizes of the batches.
#[test]
fn j3_systemd_13236_everything_ready_is_visited_before_anything_is_visited_twice() {
    const COUNT: usize = 100;
    in_each_setup(|setup| {
        for (poll_batch, capacity) in [(512, 128), (16, 7), (1, 1), (7, 64)] {
            let mut client = setup.client_with(|config| config.poll_batch = poll_batch);
            let _ready = ready_ones(&client, COUNT, Mode::Level);
            client.until_undelivered(Mode::Level, COUNT as u64);
            client.set_capacity(capacity);
            let mut visits = vec![0_u32; COUNT];
            for _ in 0..5 * COUNT / capacity + 5 {
                for event in client.wait_for(PROMPT) {
                    visits[usize::try_from(event.token).unwrap()] += 1;
                }
                let (least, most) = (visits.iter().min().unwrap(), visits.iter().max().unwrap());
                assert!(most - least <= 1, "{poll_batch}, {capacity}: {visits:?}");
            }
        }
    });
}

/// systemd/systemd PR#19841, systemd/systemd#19811: what is held back for a while comes back when its time is over, and is
/// not put behind those that are always ready.
#[test]
fn j4_systemd_19811_a_watch_that_rested_comes_back_among_hot_ones() {
    let mut client = Setup::Own.client();
    let _hot = ready_ones(&client, 50, Mode::Level);
    let (reader, writer) = pipe();
    let rests = client.watch(&reader, READABLE, Mode::Level, 1000).unwrap();
    write_all(&writer, b"x");
    for _ in 0..20 {
        client.pause(rests).unwrap();
        let window = client.set_timer(Duration::from_millis(2), 1001).unwrap();
        let is_over = |event: &Event| event.timer() == Some(window);
        loop {
            let events = client.wait_for(PROMPT);
            assert!(events.iter().all(|event| event.watch != rests), "it rests");
            if events.iter().any(is_over) {
                break;
            }
        }
        client.resume(rests).unwrap();
        let told: usize =
            (0..8).map(|_| tokens(&client.wait_for(PROMPT)).iter().filter(|it| **it == 1000).count()).sum();
        assert!(told > 0, "it came back");
    }
}

/// erlang/otp#10322, erlang/otp PR#9275: how hot a watch is belongs to the watch, not to its descriptor, and is forgotten
/// with time; what a watch that moves is told is what it would be told anyway.
#[test]
fn j5_otp_10322_moving_a_hot_watch_changes_nothing_of_what_is_told() {
    for setup in [Setup::Own, Setup::Exposed, Setup::Off] {
        let [mut client, mut other] = setup.clients();
        let event = event_fd(0);
        let hot = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
        let cold = client.watch(&event, READABLE, Mode::Once, 2).unwrap();
        let foreign = other.watch(&event, READABLE, Mode::Once, 3).unwrap();
        for rests in [false, true, false] {
            if rests {
                // Longer than what counts as a long gap.
                thread::sleep(Duration::from_millis(1100));
            }
            set_event(&event);
            let mut told: Vec<WatchId> = client.expect_events(2).iter().map(|event| event.watch).collect();
            told.sort();
            assert_eq!(told, [hot, cold]);
            other.expect_ready(foreign, READABLE);
            clear_event(&event);
            for _ in 0..30 {
                client.arm(hot).unwrap();
                set_event(&event);
                client.expect_ready(hot, READABLE);
                clear_event(&event);
            }
            assert!(
                client.settle().is_empty() && other.settle().is_empty(),
                "those that were told wait to be armed"
            );
            client.arm(hot).unwrap();
            client.arm(cold).unwrap();
            other.arm(foreign).unwrap();
            client.expect_nothing();
            other.expect_nothing();
        }
    }
}

/// crossbeam-rs/crossbeam-channel#1: of two that are always ready, each gets about half.
#[test]
fn j6_crossbeam_channel_1_two_that_are_always_ready_share_evenly() {
    in_each_setup(|setup| {
        for mode in [Mode::Once, Mode::Level] {
            let mut client = setup.client();
            let _ready = ready_ones(&client, 2, mode);
            client.until_undelivered(mode, 2);
            client.set_capacity(1);
            let mut visits = [0_u32; 2];
            let mut visit = || {
                let event = client.expect_event();
                if mode == Mode::Once {
                    client.arm(event.watch).unwrap();
                }
                usize::try_from(event.token).unwrap()
            };
            // Where hot watches move, one of the two may do so before the other.
            let mut warm = [0, 0];
            while warm.iter().any(|visits| *visits < 10) {
                warm[visit()] += 1;
            }
            for _ in 0..500 {
                visits[visit()] += 1;
            }
            assert!(visits.iter().all(|visits| (200..=300).contains(visits)), "{mode:?}: {visits:?}");
        }
    });
}

/// smol-rs/async-io@f2c0dd7: no client keeps the watcher to itself: one that never rests leaves the others their turns.
#[test]
fn j7_async_io_f2c0dd7_a_client_that_never_rests_leaves_the_others_their_turns() {
    let [mut busy, mut one, mut two, mut three] = Setup::Own.clients();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _hot = ready_ones(&busy, 64, Mode::Level);
            while !is_over.load(Ordering::Acquire) {
                busy.set_timer(Duration::ZERO, 1000).unwrap();
                assert!(!busy.wait_for(PROMPT).is_empty());
            }
        });
        for _ in 0..100 {
            [&mut one, &mut two, &mut three].into_iter().for_each(expect_alive);
        }
        is_over.store(true, Ordering::Release);
    });
}

/// libuv/libuv#2312: a command does not queue behind all that is ready: it is looked at before each batch.
#[test]
fn j8_libuv_2312_a_command_is_not_kept_waiting_by_ready_handles() {
    in_each_setup(|setup| {
        const COUNT: usize = 100;
        let mut client = setup.client_with(|config| config.poll_batch = 16);
        let _hot = ready_ones(&client, COUNT, Mode::Level);
        client.until_undelivered(Mode::Level, COUNT as u64);
        client.set_capacity(16);
        let is_in_front = setup.serves_in_front(Mode::Level);
        for round in 0..20 {
            client.set_timer(Duration::ZERO, 10_000 + round).unwrap();
            if is_in_front {
                // The hot ones cost the client no hop, the command does.
                until("the timer is told of", || client.client_stats().undelivered == 1);
            }
            let most = if is_in_front { 3 * 16 } else { 3 * COUNT };
            let mut others = 0;
            while !tokens(&client.wait_for(PROMPT)).contains(&(10_000 + round)) {
                others += 16;
                assert!(others <= most, "{others} others came before the timer");
            }
        }
    });
}
