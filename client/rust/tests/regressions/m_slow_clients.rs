//! Slow clients. M1 to M4 and M6 are about sockets between processes: see `watcher/tests/service`.

use handle_watcher_client::ChannelClient;

use crate::util::*;

/// firezone/firezone#5880: a client that is told through a channel and never receives is a normal state. The watcher and
/// the other clients go on, and what was told last is one event a watch.
#[test]
fn m5_firezone_5880_a_channel_that_nobody_receives_from_hurts_nobody() {
    let watcher = Setup::Own.watcher();
    let mut idle: ChannelClient = Client::attach(&watcher).unwrap().into_channel().unwrap();
    let mut busy = Setup::Off.attach(&watcher);
    let files: Vec<_> = (0..50).map(|_| event_fd(0)).collect();
    let watches: Vec<_> =
        files.iter().map(|file| idle.watch(file, READABLE, Mode::Edge, 1).unwrap()).collect();
    let (one, other) = socket_pair();
    let watch = busy.watch(&one, READABLE, Mode::Edge, 2).unwrap();
    for _ in 0..200 {
        files.iter().for_each(set_event);
        write_all(&other, b"x");
        busy.expect_ready(watch, READABLE);
        assert_eq!(read_all(&one), 1);
    }
    until("each has one event", || idle.client_stats().undelivered == watches.len() as u64);
    idle.receiver().recv_timeout(PROMPT).unwrap();
    assert!(idle.receiver().try_recv().is_err(), "one message for all of them");
    let mut events = Events::with_capacity(64);
    assert_eq!(idle.drain(&mut events).unwrap(), watches.len());
}
