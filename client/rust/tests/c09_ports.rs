//! C9: taking events: C9a `wait`, C9c `drain`, C9e `wake`, C9f interruptions and timeouts, C9g nobody is passed over.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use util::*;

/// C9: a client can be given to another thread; its controls can be shared with any number of threads.
#[test]
fn who_may_be_where() {
    fn can_be_sent<T: Send>() {}
    fn can_be_shared<T: Send + Sync + Clone>() {}
    can_be_sent::<Client>();
    can_be_sent::<Events>();
    can_be_shared::<Control>();
    let mut client = Setup::Own.client();
    let control = client.control().clone();
    let waiting = thread::spawn(move || client.expect_event());
    control.wake().unwrap();
    assert_eq!(waiting.join().unwrap().kind, EventKind::Wake);
}

/// C9a: a wait returns when there is something, and with 0 at the timeout only. (The helpers check every wait.)
fn wait_returns_events_or_the_timeout(setup: Setup) {
    let mut client = setup.client();
    let (one, other) = socket_pair();
    let watch = client.watch(&one, READABLE, Mode::Once, 1).unwrap();
    assert!(client.wait_for(Duration::from_millis(20)).is_empty());
    assert!(client.wait_for(Duration::ZERO).is_empty(), "a timeout of zero looks and does not wait");
    let writing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        write_all(&other, b"x");
        other
    });
    let mut events = Events::with_capacity(4);
    assert_eq!(client.wait(&mut events, None).unwrap(), 1, "no timeout is a wait without end");
    assert_eq!(events.as_slice()[0].watch, watch);
    drop(writing.join().unwrap());
    // The buffer is emptied by a call that has nothing.
    assert_eq!(client.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    assert!(events.is_empty());
}

/// C9a: never "ready" with nothing, though another thread takes back what woke the waiter.
fn wait_never_returns_ready_with_nothing(setup: Setup) {
    let mut client = setup.client();
    let control = client.control().clone();
    let ready = event_fd(1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (control, ready, is_over) = (&control, &ready, &is_over);
        scope.spawn(move || {
            for round in 0..3000 {
                let watch = control.watch(ready, READABLE, MODES[round % 3], 1).unwrap();
                let timer = control.set_timer(Deadline::at_ns(1), 2).unwrap();
                // NOT_FOUND: the waiter was faster, and the timer is over.
                let _: Result<()> = control.cancel_timer(timer);
                control.unwatch(watch).unwrap();
            }
            is_over.store(true, Ordering::Release);
            control.wake().unwrap();
        });
        let mut events = Events::with_capacity(8);
        loop {
            let count = client.wait(&mut events, Some(PROMPT)).unwrap();
            assert!(count > 0, "the timeout had not passed");
            if events.iter().any(|event| event.kind == EventKind::Wake) && is_over.load(Ordering::Acquire) {
                break;
            }
        }
    });
}

/// C9c: a drain takes what the buffer holds, oldest first; the rest stays for the next.
fn drain_takes_what_fits_in_order(setup: Setup) {
    let mut client = setup.client();
    for token in 0..10 {
        client.set_timer(Deadline::at_ns(1), token).unwrap();
    }
    until("all wait", || client.client_stats().undelivered == 10);
    for (capacity, expected) in [(3, 0..3), (3, 3..6), (1, 6..7), (64, 7..10)] {
        client.set_capacity(capacity);
        let tokens: Vec<u64> = client.drained().iter().map(|event| event.token).collect();
        assert_eq!(tokens, expected.collect::<Vec<_>>());
    }
    assert!(client.drained().is_empty());
    let least = Events::with_capacity(0);
    assert_eq!((least.capacity(), least.len(), least.is_empty()), (1, 0, true));
}

/// C9c: nothing is lost between a small buffer and the watches behind it, in any mode.
fn a_small_buffer_loses_nothing(setup: Setup) {
    for mode in MODES {
        let mut client = setup.client();
        client.set_capacity(3);
        let ready: Vec<_> = (0..20).map(|_| event_fd(1)).collect();
        for (index, event) in ready.iter().enumerate() {
            client.watch(event, READABLE, mode, index as u64).unwrap();
        }
        let mut seen = HashSet::new();
        while seen.len() < ready.len() {
            let came = client.wait_for(PROMPT);
            assert!((1..=3).contains(&came.len()), "{mode:?}: only {seen:?} were told");
            for event in came {
                if seen.insert(event.token) {
                    clear_event(&ready[usize::try_from(event.token).unwrap()]);
                }
            }
        }
    }
}

/// C9g: with one place in the buffer and fifty handles that stay ready, every handle is visited before one is twice.
fn nobody_is_visited_twice_before_everybody_is_once(setup: Setup) {
    const COUNT: u64 = 50;
    for capacity in [1, 7] {
        let mut client = setup.client();
        client.set_capacity(capacity);
        let ready: Vec<_> = (0..COUNT).map(|_| event_fd(1)).collect();
        for (token, event) in (0..).zip(&ready) {
            client.watch(event, READABLE, Mode::Level, token).unwrap();
        }
        let mut order = Vec::new();
        while order.len() < 6 * ready.len() {
            let came = client.wait_for(PROMPT);
            assert!(!came.is_empty());
            order.extend(came.iter().map(|event| event.token));
        }
        // The first round is complete before anybody comes again; after that each has its turn, give or take a batch.
        let first: HashSet<_> = order[..ready.len()].iter().collect();
        assert_eq!(first.len(), ready.len(), "{order:?}");
        for (place, token) in order.iter().enumerate() {
            let next = order[place + 1..].iter().position(|other| other == token);
            let between = next.map_or(ready.len(), |distance| distance + 1);
            assert!(between + 2 * capacity >= ready.len(), "{token} came twice within {between}: {order:?}");
        }
    }
}

/// C9g: queue and handles alternate: a stream of wakes does not keep a ready handle out, nor the other way round.
fn the_queue_and_the_handles_alternate(setup: Setup) {
    let mut client = setup.client();
    client.set_capacity(1);
    let ready = event_fd(1);
    client.watch(&ready, READABLE, Mode::Level, 1).unwrap();
    let (mut wakes, mut readies) = (0, 0);
    let give_up = Instant::now() + PROMPT;
    while wakes < 10 || readies < 10 {
        client.wake().unwrap();
        match client.expect_event().kind {
            EventKind::Wake => wakes += 1,
            _ => readies += 1,
        }
        assert!(Instant::now() < give_up, "{wakes} wakes and {readies} Ready");
    }
}

/// C9e: wakes of many threads are merged and counted, and none is lost.
fn wakes_are_merged_and_counted(setup: Setup) {
    const THREADS: u64 = 6;
    const EACH: u64 = 500;
    let mut client = setup.client();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let control = client.control().clone();
            scope.spawn(move || (0..EACH).for_each(|_| control.wake().unwrap()));
        }
        let mut counted = 0;
        while counted < THREADS * EACH {
            let event = client.expect_event();
            assert_eq!((event.kind, event.status), (EventKind::Wake, Code::Ok));
            counted += u64::from(event.count);
        }
        assert_eq!(counted, THREADS * EACH);
    });
    client.expect_nothing();
    for _ in 0..5 {
        client.wake().unwrap();
    }
    assert_eq!(client.expect_event().count, 5, "wakes before the wait are one event");
}

/// C9e: a wake reaches a waiter that has been asleep for a while, again and again.
fn a_wake_reaches_a_sleeping_waiter(setup: Setup) {
    let mut client = setup.client();
    let control = client.control().clone();
    let waking = thread::spawn(move || {
        for round in 0..40 {
            thread::sleep(Duration::from_micros(round % 8 * 300));
            control.wake().unwrap();
        }
    });
    let mut counted = 0;
    while counted < 40 {
        let event = client.expect_event();
        assert_eq!(event.kind, EventKind::Wake);
        counted += event.count;
    }
    waking.join().unwrap();
    client.expect_nothing();
}

/// C9f: no timeout ends early, down to a nanosecond; the helper checks the clock.
fn no_timeout_ends_early(setup: Setup) {
    let mut client = setup.client();
    for power in 0..=24 {
        let timeout = Duration::from_nanos(1 << power);
        assert!(client.wait_for(timeout).is_empty());
        let deadline = Deadline::after(timeout);
        let mut events = Events::with_capacity(1);
        assert_eq!(client.wait_until(&mut events, deadline).unwrap(), 0);
        assert_eq!(deadline.remaining(), Duration::ZERO, "{timeout:?}");
    }
}

/// C9f: every large timeout is a long wait: something that comes later is still told, and nothing ends at once.
fn a_large_timeout_is_a_long_wait(setup: Setup) {
    let mut client = setup.client();
    let mut timeouts: Vec<Duration> = (32..64).map(|power| Duration::from_nanos(1 << power)).collect();
    timeouts.extend([Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)]);
    for timeout in timeouts {
        let control = client.control().clone();
        let waking = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            control.wake().unwrap();
        });
        let mut events = Events::with_capacity(1);
        assert_eq!(client.wait(&mut events, Some(timeout)).unwrap(), 1, "{timeout:?}");
        waking.join().unwrap();
    }
}

/// C9f: under a storm of signals a wait lasts as long as it was asked to, and is not interrupted.
fn signals_do_not_interrupt_a_wait(setup: Setup) {
    let mut client = setup.client();
    let storm = Storm::over_this_thread();
    let mut events = Events::with_capacity(4);
    let started = Instant::now();
    let deadline = Deadline::after(Duration::from_millis(150));
    assert_eq!(client.wait_until(&mut events, deadline).unwrap(), 0);
    assert!(started.elapsed() >= Duration::from_millis(149));
    let (one, other) = socket_pair();
    let watch = client.watch(&one, READABLE, Mode::Once, 1).unwrap();
    for _ in 0..30 {
        let writer = duplicate(&other);
        let writing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            write_all(&writer, b"x");
        });
        client.expect_ready(watch, READABLE);
        assert_eq!(read_all(&one), 1);
        client.arm(watch).unwrap();
        writing.join().unwrap();
    }
    assert!(storm.end() >= 20, "the storm was a breeze");
}

/// C9b in words of poll(2): the descriptor is readable exactly while a drain gives something, also after a drain that
/// took only a part, and after what it told of was taken back.
#[test]
fn the_descriptor_says_what_a_drain_gives() {
    for setup in [Setup::Own, Setup::Off, Setup::Always, Setup::Exposed] {
        let mut client = setup.client();
        let readable =
            |client: &mut Fixture| is_readable_within(&client.descriptor().unwrap(), Duration::ZERO);
        let number = number_of(&client.descriptor().unwrap());
        client.settle();
        assert!(!readable(&mut client));
        let ready: Vec<_> = (0..6).map(|_| event_fd(1)).collect();
        let watches: Vec<WatchId> =
            (0..6).map(|index| client.watch(&ready[index], READABLE, MODES[index % 3], 1).unwrap()).collect();
        client.set_capacity(1);
        for _ in 0..6 {
            until("there is something", || readable(&mut client));
            assert_eq!(client.drained().len(), 1);
        }
        // The Level watches still hold; the others do not come again.
        until("level", || readable(&mut client));
        for watch in &watches {
            client.unwatch(*watch).unwrap();
        }
        client.set_capacity(16);
        client.settle();
        assert!(!readable(&mut client), "{setup:?}: everything was taken back");
        assert!(client.drained().is_empty());
        client.wake().unwrap();
        assert!(readable(&mut client));
        assert_eq!(client.drained().len(), 1);
        assert!(!readable(&mut client));
        assert_eq!(number_of(&client.descriptor().unwrap()), number, "it stays the same");
    }
}

in_every_setup!(
    wait_returns_events_or_the_timeout,
    wait_never_returns_ready_with_nothing,
    drain_takes_what_fits_in_order,
    a_small_buffer_loses_nothing,
    nobody_is_visited_twice_before_everybody_is_once,
    the_queue_and_the_handles_alternate,
    wakes_are_merged_and_counted,
    a_wake_reaches_a_sleeping_waiter,
    no_timeout_ends_early,
    a_large_timeout_is_a_long_wait,
    signals_do_not_interrupt_a_wait,
);
