//! C3, C9a, C10: the shortest road through everything.
use std::io::{Read, Write};
use std::time::Duration;

use handle_watcher_client::*;

#[test]
fn modes() {
    let mut client = Client::embedded().unwrap();
    let mut events = Events::with_capacity(16);
    for mode in [Mode::Once, Mode::Edge, Mode::Level] {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let watch = client.watch(&reader, Signals::READABLE, mode, 7).unwrap();
        assert_eq!(client.wait(&mut events, Some(Duration::from_millis(20))).unwrap(), 0);
        for round in 0..1000 {
            writer.write_all(b"xy").unwrap();
            assert_eq!(
                client.wait(&mut events, Some(Duration::from_secs(2))).unwrap(),
                1,
                "{mode:?} {round}"
            );
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            match mode {
                Mode::Once => client.arm(watch).unwrap(),
                Mode::Level => {}
                Mode::Edge => {
                    reader.read_exact(&mut byte).unwrap();
                    continue;
                }
            }
            assert_eq!(
                client.wait(&mut events, Some(Duration::from_secs(2))).unwrap(),
                1,
                "{mode:?} {round}"
            );
            reader.read_exact(&mut byte).unwrap();
            if mode == Mode::Once {
                client.arm(watch).unwrap()
            }
        }
        assert_eq!(client.wait(&mut events, Some(Duration::from_millis(20))).unwrap(), 0);
        client.unwatch(watch).unwrap();
        assert_eq!(client.unwatch(watch).unwrap_err().code(), Code::NotFound);
    }
}

#[test]
fn timers() {
    let mut client = Client::embedded().unwrap();
    let mut events = Events::with_capacity(16);
    client.set_timer(Duration::from_millis(5), 1).unwrap();
    client.set_timer(Duration::from_millis(3), 2).unwrap();
    let p = client.set_periodic(Duration::from_millis(10), Duration::from_millis(1), 3).unwrap();
    assert_eq!(client.wait(&mut events, None).unwrap(), 1);
    assert_eq!(events.as_slice()[0].token, 2);
    assert_eq!(client.wait(&mut events, None).unwrap(), 1);
    assert_eq!(events.as_slice()[0].token, 1);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(client.wait(&mut events, None).unwrap(), 1);
    assert!(events.as_slice()[0].count > 5);
    client.cancel_timer(p).unwrap();
    client.wake().unwrap();
    client.wake().unwrap();
    assert_eq!(client.wait(&mut events, None).unwrap(), 1);
    assert_eq!(events.as_slice()[0].count, 2);
}

#[test]
fn stop() {
    let watcher = Watcher::spawn(Config::default()).unwrap();
    let mut client = Client::attach(&watcher).unwrap();
    let mut events = Events::with_capacity(16);
    let (reader, _writer) = std::io::pipe().unwrap();
    client.watch(&reader, Signals::READABLE, Mode::Once, 7).unwrap();
    watcher.stop().unwrap();
    assert_eq!(client.wait(&mut events, None).unwrap(), 1);
    assert_eq!(events.as_slice()[0].status, Code::Aborted);
    assert_eq!(client.wait(&mut events, None).unwrap_err().code(), Code::Unavailable);
    assert_eq!(
        client.watch(&reader, Signals::READABLE, Mode::Once, 7).unwrap_err().code(),
        Code::Unavailable
    );
}
