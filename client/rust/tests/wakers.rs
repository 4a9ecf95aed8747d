//! C9d, C14b, C14g: watches, timers and events awaited under any executor, and wakers that misbehave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use handle_watcher_client::{AsyncClient, EventStream};
use smol::stream::{Stream, StreamExt};
use util::*;

const SETUPS: [Setup; 4] = [Setup::Own, Setup::Off, Setup::Always, Setup::Remote];

fn async_client(setup: Setup) -> AsyncClient {
    setup.bare_client().into_async().unwrap()
}

/// An executor without anything: one thread that sleeps until its waker is called.
#[track_caller]
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let until = Instant::now() + PROMPT;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(PROMPT);
        assert!(Instant::now() < until, "nobody called the waker");
    }
}

/// Fails the test where a future would hang it.
async fn in_time<F: Future>(future: F) -> F::Output {
    let late = async {
        async_io::Timer::after(PROMPT).await;
        panic!("nobody called the waker")
    };
    smol::future::or(future, late).await
}

/// Runs a body under each executor.
macro_rules! under_every_executor {
    ($($body:ident),+ $(,)?) => {
        mod bare {
            $(#[test] fn $body() { super::block_on(super::$body()); })+
        }
        mod under_smol {
            $(#[test] fn $body() { smol::block_on(smol::spawn(super::in_time(super::$body()))); })+
        }
        mod under_tokio {
            $(#[test] fn $body() {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(super::in_time(super::$body()));
            })+
        }
        mod under_tokio_threads {
            $(#[test] fn $body() {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
                runtime.block_on(runtime.spawn(super::in_time(super::$body()))).unwrap();
            })+
        }
    };
}

/// A thread that answers each byte with one.
fn echo(socket: OwnedFd, rounds: usize) -> std::thread::JoinHandle<OwnedFd> {
    std::thread::spawn(move || {
        for _ in 0..rounds {
            until("a byte comes", || read_some(&socket, 1).is_some());
            write_all(&socket, b"y");
        }
        socket
    })
}

async fn a_watch_is_awaited() {
    for setup in SETUPS {
        let client = async_client(setup);
        let (ours, theirs) = socket_pair();
        let mut watch = client.watch(&ours, READABLE).unwrap();
        let echo = echo(theirs, 50);
        for _ in 0..50 {
            write_all(&ours, b"x");
            assert_eq!(watch.ready().await.unwrap(), READABLE);
            assert_eq!(read_all(&ours), 1);
        }
        let socket = echo.join().unwrap();
        write_all(&socket, b"data");
        drop(socket);
        assert_eq!(watch.ready().await.unwrap() & READABLE, READABLE);
        read_some(&ours, 4);
        assert_eq!(watch.ready().await.unwrap() & PEER_CLOSED, PEER_CLOSED);
    }
}

async fn a_timer_is_awaited_and_never_early() {
    let client = async_client(Setup::Own);
    for milliseconds in [0, 1, 3] {
        let started = Instant::now();
        let duration = Duration::from_millis(milliseconds);
        client.timer(duration).unwrap().await.unwrap();
        assert!(started.elapsed() >= duration);
    }
    let never = client.timer(Duration::MAX).unwrap();
    drop(never);
    let first = client.timer(Duration::from_millis(1)).unwrap();
    let second = client.timer(Duration::from_millis(2)).unwrap();
    second.await.unwrap();
    first.await.unwrap();
    until("the timers are gone", || client.control().client_stats().timers == 0);
}

async fn a_dropped_future_loses_nothing() {
    let client = async_client(Setup::Own);
    let (reader, writer) = pipe();
    let mut watch = client.watch(&reader, READABLE).unwrap();
    for _ in 0..20 {
        // Polled once, then dropped.
        let polled = poll_fn(|context| Poll::Ready(pin!(watch.ready()).poll(context))).await;
        assert!(polled.is_pending());
        write_all(&writer, b"x");
        assert_eq!(watch.ready().await.unwrap(), READABLE);
        read_all(&reader);
    }
    // Told while nobody polls.
    assert!(poll_fn(|context| Poll::Ready(pin!(watch.ready()).poll(context))).await.is_pending());
    write_all(&writer, b"x");
    client.timer(Duration::from_millis(5)).unwrap().await.unwrap();
    assert_eq!(watch.ready().await.unwrap(), READABLE);
}

async fn many_watches_in_one_task() {
    let client = async_client(Setup::Own);
    let events: Vec<OwnedFd> = (0..200).map(|_| event_fd(0)).collect();
    let mut watches: Vec<_> = events.iter().map(|event| client.watch(event, READABLE).unwrap()).collect();
    let setter = std::thread::spawn(move || {
        events.iter().rev().for_each(set_event);
        events
    });
    for watch in &mut watches {
        assert_eq!(watch.ready().await.unwrap(), READABLE);
    }
    drop(watches);
    drop(setter.join().unwrap());
    assert_eq!(client.control().client_stats().watches, 0);
}

async fn watches_are_dropped_while_their_events_are_in_flight() {
    let client = async_client(Setup::Own);
    let event = event_fd(0);
    for round in 0..300 {
        let mut watch = client.watch(&event, READABLE).unwrap();
        let timer = client.timer(Deadline::at_ns(1)).unwrap();
        set_event(&event);
        if round % 3 == 0 {
            assert_eq!(watch.ready().await.unwrap(), READABLE);
        }
        drop((watch, timer));
        clear_event(&event);
        // What takes over the freed places is told nothing of theirs.
        let mut next = client.watch(&event, READABLE).unwrap();
        let polled = poll_fn(|context| Poll::Ready(pin!(next.ready()).poll(context))).await;
        assert!(polled.is_pending(), "round {round}: {polled:?}");
        let mut late = pin!(client.timer(PROMPT * 10).unwrap());
        let polled = poll_fn(|context| Poll::Ready(late.as_mut().poll(context))).await;
        assert!(polled.is_pending(), "round {round}: {polled:?}");
    }
    assert_eq!(client.control().client_stats().watches, 0);
}

async fn a_stream_gives_every_event_and_ends_with_the_watcher() {
    let watcher = Setup::Own.watcher();
    let mut stream: EventStream = Client::attach(&watcher).unwrap().into_stream().unwrap();
    let (reader, writer) = pipe();
    let watch = stream.watch(&reader, READABLE, Mode::Once, 1).unwrap();
    let sender = std::thread::spawn(move || {
        for _ in 0..50 {
            write_all(&writer, b"x");
            std::thread::sleep(Duration::from_micros(100));
        }
        writer
    });
    let mut read = 0;
    while read < 50 {
        let event = stream.next().await.unwrap();
        assert_eq!((event.watch, event.token, event.kind), (watch, 1, EventKind::Ready));
        read += read_all(&reader);
        stream.arm(watch).unwrap();
    }
    let _writer = sender.join().unwrap();
    stream.wake().unwrap();
    assert_eq!(stream.next().await.unwrap().kind, EventKind::Wake);
    watcher.stop().unwrap();
    let event = stream.next().await.unwrap();
    assert_eq!((event.watch, event.status), (watch, Code::Aborted));
    assert!(stream.next().await.is_none());
    assert!(stream.next().await.is_none(), "an ended stream stays ended");
}

async fn a_stop_ends_what_is_awaited() {
    let watcher = Setup::Own.watcher();
    let client = Client::attach(&watcher).unwrap().into_async().unwrap();
    let (reader, _writer) = pipe();
    let mut watch = client.watch(&reader, READABLE).unwrap();
    let timer = client.timer(PROMPT * 10).unwrap();
    assert!(poll_fn(|context| Poll::Ready(pin!(watch.ready()).poll(context))).await.is_pending());
    watcher.stop().unwrap();
    assert_eq!(watch.ready().await.unwrap_err().code(), Code::Aborted);
    assert_eq!(timer.await.unwrap_err().code(), Code::Unavailable);
    assert!(watch.ready().await.is_err());
    assert_eq!(client.watch(&reader, READABLE).unwrap_err().code(), Code::Unavailable);
}

under_every_executor!(
    a_watch_is_awaited,
    a_timer_is_awaited_and_never_early,
    a_dropped_future_loses_nothing,
    many_watches_in_one_task,
    watches_are_dropped_while_their_events_are_in_flight,
    a_stream_gives_every_event_and_ends_with_the_watcher,
    a_stop_ends_what_is_awaited,
);

/// A waker that runs a closure, the first time it is called.
struct Calls(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
    }
}

fn waker(call: impl FnOnce() + Send + 'static) -> Waker {
    Arc::new(Calls(Mutex::new(Some(Box::new(call))))).into()
}

fn poll_with<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Holds the watcher thread inside a waker until it is let go, so that what becomes ready meanwhile comes in one turn.
struct Held {
    release: Sender<()>,
}

impl Held {
    fn new(client: &AsyncClient) -> Self {
        let (release, released): (Sender<()>, Receiver<()>) = channel();
        let (arrived, arrival) = channel();
        let event = event_fd(0);
        let mut watch = client.watch(&event, READABLE).unwrap();
        let waker = waker(move || {
            arrived.send(()).unwrap();
            released.recv_timeout(PROMPT).unwrap();
        });
        assert!(poll_with(pin!(watch.ready()), &waker).is_pending());
        set_event(&event);
        arrival.recv_timeout(PROMPT).expect("the waker was called");
        Self { release }
    }

    fn release(self) {
        self.release.send(()).unwrap();
    }
}

/// C14g.
#[test]
fn a_panicking_waker_is_counted_and_harms_nobody() {
    for bad in 0..3 {
        let client = async_client(Setup::Own);
        let events: Vec<OwnedFd> = (0..3).map(|_| event_fd(0)).collect();
        let mut watches: Vec<_> = events.iter().map(|event| client.watch(event, READABLE).unwrap()).collect();
        let called = Arc::new(AtomicU32::new(0));
        for (index, watch) in watches.iter_mut().enumerate() {
            let called = Arc::clone(&called);
            let waker = waker(move || {
                assert!(index != bad, "this waker panics on purpose");
                called.fetch_add(1, Ordering::SeqCst);
            });
            assert!(poll_with(pin!(watch.ready()), &waker).is_pending());
        }
        let held = Held::new(&client);
        events.iter().for_each(set_event);
        held.release();
        until("the others are woken", || called.load(Ordering::SeqCst) == 2);
        until("the panic is counted", || client.control().client_stats().notifier_panics == 1);
        for watch in &mut watches {
            assert_eq!(block_on(watch.ready()).unwrap(), READABLE);
        }
        let mut watch = client.watch(&events[0], READABLE).unwrap();
        assert_eq!(block_on(watch.ready()).unwrap(), READABLE, "and the client goes on");
    }
}

#[test]
fn a_panicking_waker_of_a_stream_harms_nobody() {
    let watcher = Setup::Own.watcher();
    let mut stream = Client::attach(&watcher).unwrap().into_stream().unwrap();
    let mut neighbour = Setup::Own.attach(&watcher);
    let event = event_fd(0);
    stream.watch(&event, READABLE, Mode::Once, 1).unwrap();
    let near = neighbour.watch(&event, READABLE, Mode::Once, 2).unwrap();
    let panics = waker(|| panic!("this waker panics on purpose"));
    assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(&panics)).is_pending());
    set_event(&event);
    neighbour.expect_ready(near, READABLE);
    until("the panic is counted", || stream.client_stats().notifier_panics == 1);
    assert_eq!(block_on(stream.next()).unwrap().token, 1);
    stream.wake().unwrap();
    assert_eq!(block_on(stream.next()).unwrap().kind, EventKind::Wake);
}

/// The last client is dropped on the watcher's own thread: nothing waits for itself.
#[test]
fn the_last_client_may_be_dropped_inside_a_waker() {
    for with_timer in [false, true] {
        let client = async_client(Setup::Own);
        let event = event_fd(0);
        let descriptor = client.control().adopt(duplicate(&event)).unwrap();
        let other =
            client.control().watch_handle(descriptor, WatchOptions::new(READABLE, Mode::Once, 1 << 40));
        other.unwrap();
        let mut watch = client.watch(&event, READABLE).unwrap();
        let (dropped, is_dropped) = channel();
        let holder = Arc::new(Mutex::new(None));
        let held = Arc::clone(&holder);
        let waker = waker(move || {
            let last = held.lock().unwrap().take();
            drop(last);
            dropped.send(()).unwrap();
        });
        assert!(poll_with(pin!(watch.ready()), &waker).is_pending());
        let timer = with_timer.then(|| client.timer(PROMPT * 10).unwrap());
        *holder.lock().unwrap() = Some((client, watch, timer));
        set_event(&event);
        is_dropped.recv_timeout(PROMPT).expect("dropping the last client came to an end");
    }
}

/// Wakers run outside every lock: they may call anything.
#[test]
fn a_waker_may_call_anything() {
    let watcher = Arc::new(Setup::Own.watcher());
    let client = Client::attach(&watcher).unwrap().into_async().unwrap();
    let (event, later) = (event_fd(0), Arc::new(event_fd(0)));
    let mut watch = client.watch(&event, READABLE).unwrap();
    let (done, is_done) = channel();
    let (inner, inner_event, inner_watcher) = (client.clone(), Arc::clone(&later), Arc::clone(&watcher));
    let waker = waker(move || {
        let mut mine = inner.watch(&*inner_event, READABLE).unwrap();
        set_event(&*inner_event);
        assert!(poll_with(pin!(mine.ready()), Waker::noop()).is_pending() || cfg!(debug_assertions));
        let control = inner.control();
        control.change(mine.id(), WRITABLE).unwrap();
        control.pause(mine.id()).unwrap();
        control.resume(mine.id()).unwrap();
        drop(mine);
        drop(inner.timer(Deadline::at_ns(1)).unwrap());
        let kept = inner.timer(Duration::from_millis(1)).unwrap();
        control.wake().unwrap();
        let mut neighbour = Client::attach(&inner_watcher).unwrap();
        neighbour.watch(&*inner_event, READABLE, Mode::Level, 1).unwrap();
        let mut events = Events::with_capacity(4);
        assert_eq!(neighbour.drain(&mut events).unwrap(), 1);
        drop(neighbour);
        done.send(kept).unwrap();
    });
    assert!(poll_with(pin!(watch.ready()), &waker).is_pending());
    set_event(&event);
    let kept = is_done.recv_timeout(PROMPT).expect("the waker came to its end");
    block_on(kept).unwrap();
    assert_eq!(client.control().client_stats().notifier_panics, 0);
    assert_eq!(block_on(watch.ready()).unwrap(), READABLE);
}

/// C14b: from the watcher thread itself, stop marks and returns.
#[test]
fn a_waker_may_stop_the_watcher() {
    let watcher = Arc::new(Setup::Own.watcher());
    let client = Client::attach(&watcher).unwrap().into_async().unwrap();
    let (event, idle) = (event_fd(0), event_fd(0));
    let mut watch = client.watch(&event, READABLE).unwrap();
    let mut other = client.watch(&idle, READABLE).unwrap();
    let stopper = Arc::clone(&watcher);
    let (done, is_done) = channel();
    let waker = waker(move || {
        stopper.stop().unwrap();
        done.send(()).unwrap();
    });
    assert!(poll_with(pin!(watch.ready()), &waker).is_pending());
    set_event(&event);
    is_done.recv_timeout(PROMPT).expect("stop returned");
    assert_eq!(block_on(other.ready()).unwrap_err().code(), Code::Aborted);
    watcher.stop().unwrap();
}

/// What nobody awaits reaches nobody who does.
#[test]
fn a_wake_and_foreign_tokens_disturb_no_watch() {
    let client = Client::embedded().unwrap();
    let older = event_fd(0);
    client.watch(&older, READABLE, Mode::Edge, 0).unwrap();
    let client = client.into_async().unwrap();
    let idle = event_fd(0);
    let mut watch = client.watch(&idle, READABLE).unwrap();
    let mut timer = pin!(client.timer(PROMPT * 10).unwrap());
    assert!(poll_with(pin!(watch.ready()), Waker::noop()).is_pending());
    assert!(poll_with(timer.as_mut(), Waker::noop()).is_pending());
    let delivered = client.control().client_stats().delivered;
    client.control().wake().unwrap();
    until("the wake is delivered", || client.control().client_stats().delivered > delivered);
    let polled = poll_with(pin!(watch.ready()), Waker::noop());
    assert!(polled.is_pending(), "a wake is no readiness: {polled:?}");
    set_event(&older);
    until("the old watch is delivered", || client.control().client_stats().delivered > delivered + 1);
    let polled = poll_with(pin!(watch.ready()), Waker::noop());
    assert!(polled.is_pending(), "another watch's readiness is not ours: {polled:?}");
    client.control().set_timer(Deadline::at_ns(1), 1).unwrap();
    until("the other timer is delivered", || client.control().client_stats().delivered > delivered + 2);
    assert!(poll_with(timer.as_mut(), Waker::noop()).is_pending(), "another timer is not ours");
}

/// Two tasks of different executors share one client.
#[test]
fn clones_serve_tasks_of_several_executors() {
    let client = async_client(Setup::Own);
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let client = client.clone();
            std::thread::spawn(move || {
                let work = async {
                    let (ours, theirs) = socket_pair();
                    let mut watch = client.watch(&ours, READABLE).unwrap();
                    let echo = echo(theirs, 100);
                    for _ in 0..100 {
                        write_all(&ours, b"x");
                        watch.ready().await.unwrap();
                        read_all(&ours);
                    }
                    drop(echo.join().unwrap());
                };
                match index {
                    0 => block_on(work),
                    1 => smol::block_on(work),
                    _ => tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work),
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(client.control().client_stats().watches, 0);
}
