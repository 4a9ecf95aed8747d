//! Micro benches of a port, on the client's thread alone: what one call costs when nobody has to be waited for.

use criterion::{Criterion, criterion_group, criterion_main};
use handle_watcher_client::{Client, Events, Mode, Signals};
use std::os::unix::net::UnixStream;

/// A client with a watcher of its own, and a pair of sockets of which nothing is ever ready.
fn idle() -> (Client, UnixStream, UnixStream) {
    let client = Client::embedded().expect("a watcher starts");
    let (watched, other) = UnixStream::pair().expect("a socket pair");
    (client, watched, other)
}

fn port(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("port");
    let (mut client, watched, _other) = idle();
    let mut events = Events::with_capacity(16);

    group.bench_function("drain_empty/ours", |bencher| {
        bencher.iter(|| client.drain(&mut events).expect("an empty drain"));
    });
    group.bench_function("wake_and_drain/ours", |bencher| {
        bencher.iter(|| {
            client.wake().expect("a wake");
            client.drain(&mut events).expect("a drain of one event")
        });
    });
    let watch = client.watch(&watched, Signals::READABLE, Mode::Once, 0).expect("a watch");
    group.bench_function("arm/ours", |bencher| {
        bencher.iter(|| client.arm(watch).expect("an idle watch can be armed again"));
    });
    group.bench_function("change/ours", |bencher| {
        bencher.iter(|| client.change(watch, Signals::READABLE).expect("a change"));
    });
    group.finish();
}

criterion_group!(benches, port);
criterion_main!(benches);
