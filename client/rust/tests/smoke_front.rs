//! C9b: the front, shortly.
use std::io::{Read, Write};
use std::time::Duration;
use handle_watcher_client::*;

#[test]
fn modes() {
    for front in [FrontPolicy::Off, FrontPolicy::Adaptive, FrontPolicy::Always] {
        let mut client = Client::embedded_with(Config::default(), ClientConfig { front, ..ClientConfig::default() }).unwrap();
        let mut events = Events::with_capacity(16);
        for mode in [Mode::Once, Mode::Edge, Mode::Level] {
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let watch = client.watch(&reader, Signals::READABLE, mode, 7).unwrap();
            assert_eq!(client.wait(&mut events, Some(Duration::from_millis(20))).unwrap(), 0);
            for round in 0..1000 {
                writer.write_all(b"xy").unwrap();
                assert_eq!(client.wait(&mut events, Some(Duration::from_secs(2))).unwrap(), 1, "{front:?} {mode:?} {round}");
                let mut byte = [0];
                reader.read_exact(&mut byte).unwrap();
                match mode {
                    Mode::Once => client.arm(watch).unwrap(),
                    Mode::Level => {}
                    Mode::Edge => { reader.read_exact(&mut byte).unwrap(); continue; }
                }
                assert_eq!(client.wait(&mut events, Some(Duration::from_secs(2))).unwrap(), 1, "{front:?} {mode:?} {round}");
                reader.read_exact(&mut byte).unwrap();
                if mode == Mode::Once { client.arm(watch).unwrap() }
            }
            assert_eq!(client.wait(&mut events, Some(Duration::from_millis(20))).unwrap(), 0);
            client.unwatch(watch).unwrap();
            assert_eq!(client.unwatch(watch).unwrap_err().code(), Code::NotFound);
        }
        println!("{front:?} {:?}", client.stats().turns);
    }
}

fn readable(client: &mut Client) -> bool {
    let fd = client.descriptor().unwrap();
    let mut e = [WaitEntry::new(fd, Signals::READABLE)];
    wait_many(&mut e, Some(Deadline::at_ns(0))).unwrap().is_some()
}

#[test]
fn descriptor() {
    for front in [FrontPolicy::Off, FrontPolicy::Adaptive, FrontPolicy::Always] {
        let mut client = Client::embedded_with(Config::default(), ClientConfig { front, ..ClientConfig::default() }).unwrap();
        let mut events = Events::with_capacity(16);
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let watch = client.watch(&reader, Signals::READABLE, Mode::Level, 7).unwrap();
        assert!(!readable(&mut client));
        writer.write_all(b"xy").unwrap();
        for _ in 0..3 {
            assert!(readable(&mut client));
            assert_eq!(client.drain(&mut events).unwrap(), 1);
        }
        reader.read_exact(&mut [0, 0]).unwrap();
        assert!(!readable(&mut client));
        assert_eq!(client.drain(&mut events).unwrap(), 0);
        client.wake().unwrap();
        assert!(readable(&mut client));
        assert_eq!(client.drain(&mut events).unwrap(), 1);
        assert!(!readable(&mut client));
        client.unwatch(watch).unwrap();
    }
}
