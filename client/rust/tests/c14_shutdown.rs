//! C14: stopping, dropping, forking, and leaving the rest of the process alone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use util::*;

/// C14a: every live watch of every client is told ABORTED, after what was undelivered; then there is nothing more.
fn stop_tells_every_watch(setup: Setup) {
    let watcher = setup.watcher();
    let mut clients = [setup.attach(&watcher), setup.attach(&watcher)];
    let (ready, idle) = (event_fd(1), event_fd(0));
    for client in &mut clients {
        for mode in MODES {
            client.watch(&idle, READABLE, mode, 1).unwrap();
            let paused = client.watch(&ready, READABLE, mode, 2).unwrap();
            client.pause(paused).unwrap();
            client.watch(&ready, READABLE, mode, 3).unwrap();
        }
        client.set_timer(Duration::from_secs(3600), 4).unwrap();
        let told = client.watch(&ready, READABLE, Mode::Once, 5).unwrap();
        while !client.wait_for(PROMPT).iter().any(|event| event.watch == told) {}
    }
    watcher.stop().unwrap();
    for client in &mut clients {
        let mut ended: HashMap<u64, usize> = HashMap::new();
        while ended.values().sum::<usize>() < 10 {
            for event in client.wait_for(PROMPT) {
                if event.kind == EventKind::Ended {
                    assert_eq!(event.status, Code::Aborted);
                    *ended.entry(event.token).or_default() += 1;
                } else {
                    assert_eq!((event.kind, event.token), (EventKind::Ready, 3), "{event:?}");
                }
            }
        }
        assert_eq!(ended, HashMap::from([(1, 3), (2, 3), (3, 3), (5, 1)]));
        expect_stopped(client, &watcher);
    }
}

/// C14a: every call says UNAVAILABLE from now on.
#[track_caller]
fn expect_stopped(client: &mut Fixture, watcher: &Watcher) {
    let idle = event_fd(0);
    let mut events = Events::with_capacity(4);
    let code = |result: Result<()>| result.map_err(|status| status.code());
    let unavailable = Err(Code::Unavailable);
    for timeout in [None, Some(Duration::ZERO), Some(Duration::from_millis(5)), Some(Duration::MAX)] {
        assert_eq!(code(client.wait(&mut events, timeout).map(drop)), unavailable);
    }
    assert_eq!(code(client.drain(&mut events).map(drop)), unavailable);
    for mode in MODES {
        assert_eq!(code(client.watch(&idle, READABLE, mode, 1).map(drop)), unavailable);
    }
    assert_eq!(code(client.set_timer(Duration::ZERO, 1).map(drop)), unavailable);
    assert_eq!(code(client.set_periodic(Duration::ZERO, Duration::from_secs(1), 1).map(drop)), unavailable);
    let number = number_of(&idle);
    let refused = client.adopt(idle).unwrap_err();
    assert_eq!((refused.status.code(), number_of(&refused.value)), (Code::Unavailable, number));
    assert_eq!(code(Client::attach(watcher).map(drop)), unavailable);
    watcher.stop().unwrap();
    assert_eq!(code(client.drain(&mut events).map(drop)), unavailable);
}

/// C14a: there is nobody to wake any more, and a wake brings no event back.
fn a_wake_after_the_stop_is_refused(setup: Setup) {
    let watcher = setup.watcher();
    let mut client = setup.attach(&watcher);
    watcher.stop().unwrap();
    assert_eq!(client.wake().map_err(|status| status.code()), Err(Code::Unavailable));
    let mut events = Events::with_capacity(4);
    assert_eq!(client.drain(&mut events).unwrap_err().code(), Code::Unavailable);
}

/// C14a: waiters return, those with watches and those without, in whatever they wait.
fn stop_makes_waiters_return(setup: Setup) {
    within_time(move || {
        let watcher = setup.watcher();
        let (ready, idle) = (Barrier::new(5), event_fd(0));
        thread::scope(|scope| {
            for number in 0..4 {
                let (ready, idle, watcher) = (&ready, &idle, &watcher);
                scope.spawn(move || {
                    let mut client = setup.attach(watcher);
                    let modes: &[Mode] = if number == 0 { &[] } else { &MODES[..number] };
                    for mode in modes {
                        client.watch(idle, READABLE, *mode, 1).unwrap();
                    }
                    ready.wait();
                    let mut events = Events::with_capacity(8);
                    let mut ended = 0;
                    let timeout = (number % 2 == 0).then_some(Duration::from_secs(3600));
                    let status = loop {
                        match client.wait(&mut events, timeout) {
                            Ok(count) => ended += count,
                            Err(status) => break status,
                        }
                    };
                    assert_eq!((status.code(), ended), (Code::Unavailable, modes.len()));
                });
            }
            ready.wait();
            thread::sleep(Duration::from_millis(10));
            watcher.stop().unwrap();
        });
    });
}

/// C14b: any number of stops from any number of threads; each returns when the thread has ended.
fn stop_may_be_called_by_everybody(setup: Setup) {
    within_time(move || {
        for _ in 0..20 {
            let config = setup.config();
            let name = config.thread_name.clone();
            let watcher = Watcher::spawn(config).unwrap();
            let mut client = setup.attach(&watcher);
            let idle = event_fd(0);
            let watch = client.watch(&idle, READABLE, Mode::Level, 1).unwrap();
            until("the thread is there", || find_thread(&name).is_some());
            let start = Barrier::new(4);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        watcher.stop().unwrap();
                        watcher.stop().unwrap();
                    });
                }
            });
            until("the thread is gone", || find_thread(&name).is_none());
            client.expect_ended(watch, Code::Aborted);
        }
    });
}

/// C14a: a stop in the middle of a flood of calls: nobody hangs, and nobody is told anything else than it should be.
fn stop_meets_a_flood_of_calls(setup: Setup) {
    within_time(move || {
        for _ in 0..15 {
            let watcher = setup.watcher();
            let (mut client, ready) = (setup.attach(&watcher), event_fd(1));
            thread::scope(|scope| {
                for number in 0..3 {
                    let (control, ready) = (client.control().clone(), &ready);
                    scope.spawn(move || {
                        for round in 0_usize.. {
                            let result = match (number + round) % 3 {
                                0 => control.watch(ready, READABLE, MODES[round % 3], 1).map(|watch| {
                                    // NOT_FOUND: the stop was faster and the client was told.
                                    let _: Result<()> =
                                        control.arm(watch).and_then(|()| control.unwatch(watch));
                                }),
                                1 => control.set_timer(Duration::from_micros(50), 1).map(drop),
                                _ => control
                                    .adopt(event_fd(0))
                                    .map_err(Status::from)
                                    .and_then(|it| control.close(it)),
                            };
                            if let Err(status) = result {
                                assert_eq!(status.code(), Code::Unavailable, "{status}");
                                break;
                            }
                        }
                    });
                }
                thread::sleep(Duration::from_millis(2));
                watcher.stop().unwrap();
            });
            let mut events = Events::with_capacity(64);
            let status = loop {
                match client.wait(&mut events, Some(PROMPT)) {
                    Ok(count) => assert!(count > 0, "the end does not come"),
                    Err(status) => break status,
                }
            };
            assert_eq!(status.code(), Code::Unavailable);
        }
    });
}

/// C14b: dropping the watcher is a stop, though its clients live on.
fn dropping_the_watcher_stops_it(setup: Setup) {
    let watcher = setup.watcher();
    let mut client = setup.attach(&watcher);
    let idle = event_fd(0);
    let watch = client.watch(&idle, READABLE, Mode::Once, 1).unwrap();
    drop(watcher);
    client.expect_ended(watch, Code::Aborted);
    let mut events = Events::with_capacity(4);
    assert_eq!(client.wait(&mut events, None).unwrap_err().code(), Code::Unavailable);
}

/// C14c: dropping a client takes its watches and timers along and touches no other client; a control that is left over
/// is told so.
fn dropping_a_client_touches_no_other(setup: Setup) {
    let [dropped, mut kept] = setup.clients();
    let (one, other) = socket_pair();
    let control = dropped.control().clone();
    for mode in MODES {
        dropped.watch(&one, READABLE, mode, 1).unwrap();
    }
    dropped.set_periodic(Duration::ZERO, Duration::from_millis(1), 2).unwrap();
    let watch = kept.watch(&one, READABLE, Mode::Once, 3).unwrap();
    let timer = kept.set_timer(Duration::from_millis(20), 4).unwrap();
    let mut told: Vec<Event> = Vec::new();
    let watches = kept.stats().watches;
    drop(dropped);
    assert_eq!((kept.stats().watches, control.client_stats().watches), (watches - 3, 0));
    assert_eq!(control.client_stats().timers, 0);
    let unavailable = Err(Code::Unavailable);
    assert_eq!(control.wake().map_err(|status| status.code()), unavailable);
    assert_eq!(control.watch(&one, READABLE, Mode::Once, 1).map(drop).map_err(|it| it.code()), unavailable);
    assert_eq!(control.set_timer(Duration::ZERO, 1).map(drop).map_err(|it| it.code()), unavailable);
    assert_eq!(control.adopt(event_fd(0)).unwrap_err().status.code(), Code::Unavailable);
    write_all(&other, b"x");
    while told.len() < 2 {
        told.extend(kept.wait_for(PROMPT));
    }
    told.sort_by_key(|event| event.kind == EventKind::Timer);
    assert_eq!((told.len(), told[0].watch, told[0].satisfied), (2, watch, READABLE));
    assert_eq!(told[1].timer(), Some(timer));
    kept.expect_nothing();
    kept.expect_quiet_for(Duration::from_millis(50));
}

/// C14c: an embedded client takes its watcher along; nothing is left of either.
fn nothing_is_left_of_a_client(setup: Setup) {
    let run = || {
        let mut client = setup.client();
        let name = client.thread_name().to_owned();
        let ready = event_fd(1);
        for mode in MODES {
            client.watch(&ready, READABLE, mode, 1).unwrap();
        }
        client.adopt(event_fd(0)).unwrap();
        client.set_timer(Duration::from_secs(3600), 1).unwrap();
        client.settle();
        drop(client);
        until("the thread is gone", || find_thread(&name).is_none());
    };
    // What a process makes once and keeps is made by now.
    run();
    for _ in 0..5 {
        expect_no_leak(run);
    }
}

/// C14d: in a forked child every call is refused, dropping the client closes what it was given, and a new client works;
/// the parent's watches notice nothing of it.
fn a_forked_child_is_refused(setup: Setup) {
    let watcher = setup.watcher();
    let mut slot = Some(setup.attach(&watcher));
    let client = slot.as_mut().unwrap();
    let pairs: Vec<(OwnedFd, OwnedFd)> = MODES.iter().map(|_| socket_pair()).collect();
    let watch = |index: usize| client.watch(&pairs[index].0, READABLE, MODES[index], index as u64).unwrap();
    let watches: Vec<WatchId> = (0..3).map(watch).collect();
    let (given, given_peer) = socket_pair();
    let given_number = number_of(&given);
    let handle = client.adopt(given).unwrap();
    let given_watch = client.watch_handle(handle, WatchOptions::new(READABLE, Mode::Once, 9)).unwrap();
    client.expect_nothing();
    let child = Forked::run(|| {
        let mut client = slot.take().unwrap();
        expect_refused(&mut client, &watcher, watches[0], handle);
        let mut new = setup.client();
        let (reader, writer) = pipe();
        let new_watch = new.watch(&reader, READABLE, Mode::Once, 1).unwrap();
        write_all(&writer, b"x");
        new.expect_ready(new_watch, READABLE);
        new.set_timer(Duration::from_millis(1), 2).unwrap();
        new.expect_event();
        expect_refused(&mut client, &watcher, watches[0], handle);
        drop(client);
        assert!(!is_open(given_number), "what it was given is closed");
        drop(new);
    });
    child.expect_success();
    let client = slot.as_mut().unwrap();
    client.expect_nothing();
    for (index, (_, other)) in pairs.iter().enumerate() {
        write_all(other, b"x");
        client.expect_ready(watches[index], READABLE);
        assert_eq!(read_all(&pairs[index].0), 1);
    }
    write_all(&given_peer, b"x");
    client.expect_ready(given_watch, READABLE);
    client.set_timer(Duration::ZERO, 1).unwrap();
    client.expect_event();
    client.close(handle).unwrap();
    watcher.stop().unwrap();
}

/// Every call in a forked child is FAILED_PRECONDITION, and none of them waits.
#[track_caller]
fn expect_refused(client: &mut Fixture, watcher: &Watcher, watch: WatchId, handle: HandleId) {
    let idle = event_fd(0);
    let mut events = Events::with_capacity(4);
    let process = ChildProcess::open(std::process::id()).unwrap();
    let options = WatchOptions::new(READABLE, Mode::Once, 1);
    let results = [
        client.watch(&idle, READABLE, Mode::Once, 1).map(drop),
        client.watch_child(&process, 1).map(drop),
        client.watch_handle(handle, options).map(drop),
        client.arm(watch),
        client.arm_until(watch, Duration::ZERO),
        client.change(watch, READABLE),
        client.pause(watch),
        client.resume(watch),
        client.unwatch(watch),
        client.set_timer(Duration::ZERO, 1).map(drop),
        client.set_periodic(Duration::ZERO, Duration::from_secs(1), 1).map(drop),
        client.cancel_timer(TimerId::from_raw(watch.raw())),
        client.wake(),
        client.close(handle),
        client.wait(&mut events, None).map(drop),
        client.wait(&mut events, Some(Duration::ZERO)).map(drop),
        client.wait_until(&mut events, Deadline::FARTHEST).map(drop),
        client.drain(&mut events).map(drop),
        client.descriptor().map(drop),
        Client::attach(watcher).map(drop),
        watcher.stop(),
    ];
    for (place, result) in results.into_iter().enumerate() {
        let code = result.map_err(|status| status.code());
        assert_eq!(code, Err(Code::FailedPrecondition), "call {place}");
    }
    let number = number_of(&idle);
    let refused = client.adopt(idle).unwrap_err();
    assert_eq!((refused.status.code(), number_of(&refused.value)), (Code::FailedPrecondition, number));
}

/// C14d: forks in the middle of a flood of calls: no child hangs, whatever lock another thread held at that moment.
fn forks_meet_a_flood_of_calls(setup: Setup) {
    let mut slot = Some(setup.client());
    let control = slot.as_ref().unwrap().control().clone();
    let (ready, is_over) = (event_fd(1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let watch = control.watch(&ready, READABLE, Mode::Once, 1).unwrap();
                    let handle = control.adopt(event_fd(0)).unwrap();
                    let timer = control.set_timer(Deadline::at_ns(1), 1).unwrap();
                    control.close(handle).unwrap();
                    control.unwatch(watch).unwrap();
                    // NOT_FOUND: the other thread has drained it.
                    let _: Result<()> = control.cancel_timer(timer);
                }
            });
        }
        let _over = RaiseOnDrop(&is_over);
        for _ in 0..25 {
            let child = Forked::run(|| {
                let mut client = slot.take().unwrap();
                let mut events = Events::with_capacity(4);
                assert_eq!(client.drain(&mut events).unwrap_err().code(), Code::FailedPrecondition);
                drop(client);
            });
            child.expect_success();
            slot.as_mut().unwrap().drained();
        }
    });
}

/// C14e: every descriptor of ours is close-on-exec.
fn our_descriptors_are_close_on_exec(setup: Setup) {
    let open = || -> Vec<i32> { (0..1024).filter(|number| is_open(*number)).collect() };
    let before = open();
    let mut client = setup.client();
    client.descriptor().unwrap();
    let ready = event_fd(1);
    for mode in MODES {
        client.watch(&ready, READABLE, mode, 1).unwrap();
    }
    let kept = (ChildProcess::open(std::process::id()).unwrap(), FileChanges::new().unwrap());
    client.settle();
    let ours: Vec<i32> = open().into_iter().filter(|number| !before.contains(number)).collect();
    assert!(ours.len() >= 5, "{ours:?}");
    for number in ours {
        assert!(is_close_on_exec(number), "descriptor {number} would leak into programs that are executed");
    }
    drop(kept);
}

/// C14f: dispositions stay, and so does the mask of every thread of the user; the watcher's thread blocks everything.
fn signals_are_left_alone(setup: Setup) {
    let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let state = || ["SigBlk", "SigIgn", "SigCgt"].map(|name| thread_status(this, name));
    let before = state();
    let mut client = setup.client();
    let ready = event_fd(1);
    let watch = client.watch(&ready, READABLE, Mode::Level, 1).unwrap();
    client.expect_ready(watch, READABLE);
    assert_eq!(state(), before);
    let blocked = u64::from_str_radix(&thread_status(thread_id(client.thread_name()), "SigBlk"), 16).unwrap();
    for signal in 1..=64 {
        // Nobody can block KILL and STOP; the C library keeps 32 to 34 for itself.
        let is_free = matches!(signal, libc::SIGKILL | libc::SIGSTOP | 32..=34);
        assert!(is_free || blocked & (1 << (signal - 1)) != 0, "signal {signal} is not blocked: {blocked:x}");
    }
    drop(client);
    assert_eq!(state(), before);
}

/// C14f: nothing we do raises SIGPIPE, which would end this process.
fn no_broken_pipe_is_signalled(setup: Setup) {
    use_default_disposition(libc::SIGPIPE);
    let mut client = setup.client();
    for mode in MODES {
        let (one, other) = socket_pair();
        let (reader, writer) = pipe();
        let handle = client.adopt(one).unwrap();
        client.watch_handle(handle, WatchOptions::new(READABLE | WRITABLE, mode, 1)).unwrap();
        client.watch(&writer, WRITABLE, mode, 2).unwrap();
        drop((other, reader));
        client.wake().unwrap();
        client.settle();
        client.close(handle).unwrap();
        client.settle();
    }
    drop(client);
    assert_eq!(disposition(libc::SIGPIPE), libc::SIG_DFL);
}

in_every_setup!(stop_makes_waiters_return, stop_meets_a_flood_of_calls, signals_are_left_alone,);

in_every_embedded_setup!(
    stop_tells_every_watch,
    a_wake_after_the_stop_is_refused,
    stop_may_be_called_by_everybody,
    dropping_the_watcher_stops_it,
    dropping_a_client_touches_no_other,
);

in_every_setup_alone!(
    nothing_is_left_of_a_client,
    a_forked_child_is_refused,
    our_descriptors_are_close_on_exec,
    no_broken_pipe_is_signalled,
);

in_every_embedded_setup_alone!(forks_meet_a_flood_of_calls,);
