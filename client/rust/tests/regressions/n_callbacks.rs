//! C5c, C8a, C9d, C14b, C14g: the part of group N that is about callbacks: what may be done inside a notifier, which
//! most often runs on the watcher's thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use handle_watcher_client::{Drained, NotifiedPort, Notify};

use crate::support::*;
use crate::util::*;

/// A notifier that calls a closure.
struct Calls<F>(F);

impl<F> fmt::Debug for Calls<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Calls")
    }
}

impl<F: Fn() + Send + Sync> Notify for Calls<F> {
    fn notify(&self) {
        self.0();
    }
}

fn notifier(call: impl Fn() + Send + Sync + 'static) -> Arc<dyn Notify> {
    Arc::new(Calls(call))
}

type Handler = Box<dyn Fn(&Control, &Event) + Send + Sync>;

/// A client that handles its events inside its own notifier, on whatever thread that is called.
struct Inside {
    client: Mutex<Option<Client<NotifiedPort>>>,
    /// Called since the events were looked at last.
    is_called: AtomicBool,
    handled: AtomicU64,
    handler: Handler,
}

impl fmt::Debug for Inside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Inside")
    }
}

impl Inside {
    fn start(client: Client, handler: Handler) -> Arc<Self> {
        let client_of = Mutex::new(None);
        let (is_called, handled) = (AtomicBool::new(false), AtomicU64::new(0));
        let inside = Arc::new(Self { client: client_of, is_called, handled, handler });
        let client = client.into_notified(Arc::clone(&inside) as Arc<dyn Notify>).unwrap();
        *inside.client.lock().unwrap() = Some(client);
        inside.notify();
        inside
    }

    fn end(&self) {
        let client = self.client.lock().unwrap().take();
        drop(client);
    }
}

impl Notify for Inside {
    fn notify(&self) {
        // Whoever is handling events, here or on another thread, sees this and looks once more.
        self.is_called.store(true, Ordering::SeqCst);
        while self.is_called.load(Ordering::SeqCst) {
            let Ok(mut client) = self.client.try_lock() else { return };
            self.is_called.store(false, Ordering::SeqCst);
            let Some(client) = client.as_mut() else { return };
            let control = client.control().clone();
            let mut events = Events::with_capacity(8);
            loop {
                let Ok(drained) = client.port_mut().drain(&mut events) else { return };
                for event in &events {
                    (self.handler)(&control, event);
                    self.handled.fetch_add(1, Ordering::Relaxed);
                }
                if !drained.has_more {
                    break;
                }
            }
        }
    }
}

/// servo/ipc-channel PR#418: a panic in a callback is caught and counted; the thread it happened on goes on, and so do the
/// client it belongs to and all others.
#[test]
fn n2_ipc_channel_pr_418_a_panic_in_a_callback_is_caught_and_counted() {
    let watcher = Setup::Own.watcher();
    let mut other = Setup::Own.attach(&watcher);
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let panics = notifier(move || {
        counted.fetch_add(1, Ordering::Release);
        // As a panic, but without its message.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let mut client = Client::attach(&watcher).unwrap().into_notified(panics).unwrap();
    let event = event_fd(0);
    let watch = client.watch(&event, READABLE, Mode::Once, 1).unwrap();
    let mut events = Events::with_capacity(8);
    for round in 1..=40 {
        // On the watcher's thread, and on this one.
        if round % 2 == 0 {
            client.wake().unwrap()
        } else {
            set_event(&event)
        }
        until("the notifier was called", || calls.load(Ordering::Acquire) == round);
        assert_eq!(client.port_mut().drain(&mut events), Ok(Drained { count: 1, has_more: false }));
        if round % 2 == 1 {
            clear_event(&event);
            client.arm(watch).unwrap();
        }
        expect_alive(&mut other);
    }
    assert_eq!(client.client_stats().notifier_panics, 40);
}

/// eclipse-iceoryx/iceoryx#2202: every call is legal inside a callback, on one's own watches and on others, while another
/// thread does the same: no deadlock.
#[test]
fn n3_iceoryx_2202_every_call_is_legal_inside_a_callback() {
    alone!(n3_iceoryx_2202_every_call_is_legal_inside_a_callback, {
        let _watchdog = Watchdog::new();
        for setup in [Setup::Own, Setup::Tight] {
            let watcher = setup.watcher();
            let mut other = setup.attach(&watcher);
            let event = Arc::new(event_fd(1));
            let client = Client::attach_with(&watcher, setup.client_config()).unwrap();
            let control = client.control().clone();
            let (watched, dice) = (Arc::clone(&event), Mutex::new(Dice::new(3)));
            let handler = move |control: &Control, event: &Event| {
                do_anything(control, event.watch, &watched, &mut dice.lock().unwrap());
            };
            let inside = Inside::start(client, Box::new(handler));
            let end = Instant::now() + Duration::from_millis(300);
            let mut dice = Dice::new(4);
            while Instant::now() < end {
                let watch = control.watch(&event, READABLE, Mode::Once, 1).unwrap();
                do_anything(&control, watch, &event, &mut dice);
                other.set_timer(Duration::ZERO, 2).unwrap();
                assert_eq!(other.expect_event().token, 2);
                if control.client_stats().watches > 50 {
                    // A later event may be of one that is gone by then.
                    drop(control.unwatch(watch));
                }
            }
            assert!(inside.handled.load(Ordering::Relaxed) > 10);
            inside.end();
            expect_alive(&mut other);
        }
    });
}

/// Some calls, chosen by dice. What they answer depends on what others did a moment ago.
fn do_anything(control: &Control, watch: WatchId, descriptor: &std::os::fd::OwnedFd, dice: &mut Dice) {
    let answer = match dice.below(9) {
        0 => control.arm(watch),
        1 => control.change(watch, READABLE | WRITABLE),
        2 => control.pause(watch),
        3 => control.resume(watch),
        4 => control.unwatch(watch),
        5 => control.wake(),
        6 => control.arm_until(watch, Duration::from_micros(dice.below(50))),
        7 => control.set_timer(Duration::from_micros(dice.below(50)), 2).map(drop),
        _ => {
            let handle = control.adopt(event_fd(1)).unwrap();
            let options = WatchOptions::new(READABLE, Mode::Edge, 3);
            control.watch_handle(handle, options).and_then(|_| control.close(handle))
        }
    };
    let code = answer.map_or_else(|status| status.code(), |()| Code::Ok);
    // The last where the watcher's thread finds its own queue full.
    let allowed = [Code::Ok, Code::NotFound, Code::FailedPrecondition, Code::ResourceExhausted];
    assert!(allowed.contains(&code), "{code:?}");
    if control.client_stats().watches < 20 {
        control.watch(descriptor, READABLE, Mode::Edge, 1).unwrap();
    }
}

/// polkit-org/polkit PR#573, gtk-rs/glib#583: the last client of a watcher may be dropped inside its own callback, on the
/// watcher's own thread, which cannot wait for itself: it ends when the callback has returned.
#[test]
fn n4_glib_583_the_last_client_may_be_dropped_inside_its_own_callback() {
    alone!(n4_glib_583_the_last_client_may_be_dropped_inside_its_own_callback, {
        let _watchdog = Watchdog::new();
        expect_no_leak(|| {
            for _ in 0..20 {
                let config = Setup::Own.config();
                let name = config.thread_name.clone();
                let place: Arc<Mutex<Option<Client<NotifiedPort>>>> = Arc::default();
                let (inside, (tell, told)) = (Arc::clone(&place), mpsc::channel());
                let drops = notifier(move || {
                    let client = inside.lock().unwrap().take();
                    if let Some(client) = client {
                        drop(client);
                        tell.send(thread::current().name().map(str::to_owned)).unwrap();
                    }
                });
                let client = Client::embedded_with(config, ClientConfig::default()).unwrap();
                let client = client.into_notified(drops).unwrap();
                let event = event_fd(0);
                client.watch(&event, READABLE, Mode::Once, 1).unwrap();
                client.watch(&event, READABLE, Mode::Edge, 2).unwrap();
                client.set_timer(Duration::from_secs(3600), 3).unwrap();
                client.adopt(event_fd(1)).unwrap();
                *place.lock().unwrap() = Some(client);
                set_event(&event);
                let thread = told.recv_timeout(PROMPT).expect("the callback returned");
                assert_eq!(thread.as_deref(), Some(name.as_str()), "it was the watcher's thread");
                until("the thread is gone", || find_thread(&name).is_none());
            }
        });
    });
}

/// polkit-org/polkit PR#573: a stop inside a callback on the watcher's thread marks and returns; whoever stops from
/// elsewhere waits for the end, and every client is told.
#[test]
fn n4_polkit_pr_573_a_stop_inside_a_callback_marks_and_returns() {
    alone!(n4_polkit_pr_573_a_stop_inside_a_callback_marks_and_returns, {
        let _watchdog = Watchdog::new();
        for _ in 0..20 {
            let watcher = Arc::new(Setup::Own.watcher());
            let mut other = Setup::Own.attach(&watcher);
            let idle = event_fd(0);
            let on_idle = other.watch(&idle, READABLE, Mode::Once, 1).unwrap();
            let (stopped, (tell, told)) = (Arc::downgrade(&watcher), mpsc::channel());
            let stops = notifier(move || {
                if let Some(watcher) = stopped.upgrade() {
                    tell.send(watcher.stop()).unwrap();
                }
            });
            let mut client = Client::attach(&watcher).unwrap().into_notified(stops).unwrap();
            let event = event_fd(1);
            let watch = client.watch(&event, READABLE, Mode::Edge, 1).unwrap();
            assert_eq!(told.recv_timeout(PROMPT), Ok(Ok(())));
            watcher.stop().unwrap();
            other.expect_ended(on_idle, Code::Aborted);
            let mut events = Events::with_capacity(8);
            let mut last = None;
            while client.port_mut().drain(&mut events).is_ok() {
                last = events.iter().last().copied().or(last);
            }
            let last = last.expect("it was told");
            assert_eq!((last.watch, last.kind, last.status), (watch, EventKind::Ended, Code::Aborted));
        }
    });
}

/// wahern/cqueues#174, wahern/cqueues#175: closing, inside a callback, what one is just being told of ends every watch on it
/// with a result, which comes through the next callback.
#[test]
fn n5_cqueues_174_closing_a_handle_inside_a_callback_ends_its_watches() {
    let watcher = Setup::Own.watcher();
    let mut other = Setup::Own.attach(&watcher);
    for mode in [Mode::Once, Mode::Edge] {
        let client = Client::attach(&watcher).unwrap();
        let event = event_fd(1);
        let number = number_of(&event);
        let handle = client.adopt(event).unwrap();
        let options = WatchOptions::new(READABLE, mode, 5);
        let foreign = other.watch_number(number, options).unwrap();
        let first = client.watch_handle(handle, options).unwrap();
        let second = client.watch_handle(handle, options).unwrap();
        let (tell, told) = mpsc::channel();
        let handler = move |control: &Control, event: &Event| {
            if event.kind == EventKind::Ready {
                // The second to be told finds it closed.
                drop(control.close(handle));
            }
            tell.send(*event).unwrap();
        };
        let inside = Inside::start(client, Box::new(handler));
        let mut ended = Vec::new();
        while ended.len() < 2 {
            let event = told.recv_timeout(PROMPT).expect("both are ended");
            assert!(!ended.contains(&event.watch), "{event:#?}");
            if event.kind == EventKind::Ended {
                assert_eq!(event.status, Code::Cancelled);
                ended.push(event.watch);
            }
        }
        ended.sort();
        assert_eq!(ended, [first.min(second), first.max(second)]);
        let told = other.settle();
        let end = told.last().expect("the other is told");
        assert_eq!((end.watch, end.kind, end.status), (foreign, EventKind::Ended, Code::Cancelled));
        inside.end();
    }
    expect_alive(&mut other);
}
