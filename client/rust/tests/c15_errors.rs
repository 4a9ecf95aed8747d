//! C15: every failure has its code, and a message that says what was wrong, with what value, and what to do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use util::*;

/// Words that begin an advice.
const ADVICE: [&str; 23] = [
    "add", "ask", "call", "change", "check", "close", "create", "drop", "end", "give", "keep", "lower",
    "make", "open", "pass", "raise", "read", "resume", "spawn", "take", "untangle", "use", "watch",
];

thread_local! {
    static COMPLAINTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Gathers what is wrong with the messages of a test, and fails it at the end with all of it.
struct Gathering;

impl Drop for Gathering {
    fn drop(&mut self) {
        let complaints = COMPLAINTS.with_borrow_mut(std::mem::take);
        if !std::thread::panicking() {
            assert!(complaints.is_empty(), "messages that do not say enough:\n{}", complaints.join("\n"));
        }
    }
}

fn complain(what: &str, lack: &str, message: &str) {
    COMPLAINTS.with_borrow_mut(|complaints| complaints.push(format!("{what}: {lack}: {message:?}")));
}

/// The failure has this code; its message has these words (the thing and its value) and, after a stop, an advice.
#[track_caller]
fn expect<T>(what: &str, result: std::result::Result<T, impl Into<Status>>, code: Code, words: &[&str]) {
    let Err(status) = result.map(drop) else { panic!("{what}: there was no failure") };
    let status = status.into();
    let message = status.message();
    assert_eq!(status.code(), code, "{what}: {message}");
    for word in words.iter().filter(|word| !message.contains(**word)) {
        complain(what, &format!("does not say {word:?}"), message);
    }
    let mut parts = message.split([';', '.', ':']).skip(1).map(str::trim_start);
    let advises = |part: &str| {
        let word = part.split([' ', ',']).next().unwrap_or_default().to_ascii_lowercase();
        ADVICE.contains(&word.as_str())
            || part.starts_with("it must be")
            || part.starts_with("name processors")
    };
    if !parts.any(advises) {
        complain(what, "does not say what to do", message);
    }
    if message.chars().any(char::is_control) {
        complain(what, "is not one clean line", message);
    }
    assert_eq!(status.to_string(), format!("{}: {message}", code.name()));
}

/// Numbers that are no open descriptors, and descriptors that cannot be watched.
#[test]
fn descriptors_that_are_refused() {
    let setup = Setup::Own;
    let _gathering = Gathering;
    let client = setup.client();
    let options = WatchOptions::new(READABLE, Mode::Once, 1);
    let closed = PrivateNumber::new().number();
    for number in [closed, -1, i32::MIN, i32::MAX] {
        let words = [number.to_string()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        expect("a closed number", client.watch_number(number, options), Code::InvalidArgument, &words);
    }
    let folder = Folder::new();
    std::fs::write(folder.file("file"), b"x").unwrap();
    let files = [("a regular file", folder.file("file")), ("a directory", folder.path().to_owned())];
    for (words, path) in files.into_iter().chain([("a device", "/dev/null".into())]) {
        let file = std::fs::File::open(path).unwrap();
        let number = number_of(&file).to_string();
        let refused = client.watch(&file, READABLE, Mode::Edge, 1);
        expect(words, refused, Code::FailedPrecondition, &[words, &number]);
        if words != "a device" {
            let refused = client.adopt(file.into());
            expect("an adopted file", refused, Code::FailedPrecondition, &[words, &number]);
        }
    }
    assert_eq!((client.client_stats().watches, client.client_stats().handles), (0, 0));
}

/// Poll sets within poll sets: too deep, and in a ring.
fn poll_sets_that_are_refused(setup: Setup) {
    let _gathering = Gathering;
    let before: Vec<i32> = (0..600).filter(|number| is_open(*number)).collect();
    let client = setup.client();
    let mut sets: Vec<OwnedFd> = vec![poll_set()];
    for _ in 0..8 {
        let outer = poll_set();
        let inner = sets.last().unwrap();
        // The kernel refuses the last ones itself.
        let flags = rustix::event::epoll::EventFlags::IN;
        let data = rustix::event::epoll::EventData::new_u64(1);
        if rustix::event::epoll::add(&outer, inner, data, flags).is_err() {
            break;
        }
        sets.push(outer);
    }
    let deepest = sets.last().unwrap();
    let number = number_of(deepest).to_string();
    let refused = client.watch(deepest, READABLE, Mode::Once, 1);
    expect("a deep poll set", refused, Code::InvalidArgument, &["poll set", &number]);

    // The set that the watcher waits on is somewhere among this process's descriptors.
    let ring = poll_set();
    for number in (0..600).filter(|number| is_open(*number) && !before.contains(number)) {
        let is_ours = sets.iter().chain([&ring]).all(|set| number_of(set) != number);
        let link = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        if is_ours && link.to_string_lossy().contains("eventpoll") {
            add_number_to_poll_set(&ring, number);
        }
    }
    for mode in [Mode::Once, Mode::Edge] {
        let number = number_of(&ring).to_string();
        let refused = client.watch(&ring, READABLE, mode, 1);
        expect("a ring of poll sets", refused, Code::InvalidArgument, &["poll set", &number]);
    }
    assert_eq!(client.client_stats().watches, 0);
}

/// Arguments that no state of the program could make right.
#[test]
fn arguments_that_are_refused() {
    let setup = Setup::Own;
    let _gathering = Gathering;
    let client = setup.client();
    let ready = event_fd(1);
    let unknown = client.watch(&ready, Signals::from_bits_retain(64), Mode::Once, 1);
    expect("an unknown signal bit", unknown, Code::InvalidArgument, &["0x40"]);
    let period = client.set_periodic(Duration::ZERO, Duration::ZERO, 1);
    expect("a period of zero", period, Code::InvalidArgument, &["period", "0"]);
    expect("process 0", ChildProcess::open(0), Code::InvalidArgument, &["process", "0"]);
    let most = u32::MAX.to_string();
    expect(
        "a process that cannot be",
        ChildProcess::open(u32::MAX),
        Code::InvalidArgument,
        &["process", &most],
    );
    let mut changes = FileChanges::new().unwrap();
    let nothing = changes.watch_path("/tmp", Changes::empty());
    expect("no changes at all", nothing, Code::InvalidArgument, &["/tmp"]);
    let only_always = changes.watch_path("/tmp", Changes::LOST);
    expect("only what is always told", only_always, Code::InvalidArgument, &["/tmp"]);
}

/// Configurations that cannot work.
#[test]
fn configurations_that_are_refused() {
    let setup = Setup::Own;
    let _gathering = Gathering;
    let bad = |change: fn(&mut Config)| {
        let mut config = setup.config();
        change(&mut config);
        Watcher::spawn(config)
    };
    let code = Code::InvalidArgument;
    expect("poll_batch", bad(|config| config.poll_batch = 0), code, &["Config::poll_batch", "0", "65536"]);
    expect("poll_batch", bad(|config| config.poll_batch = 65_537), code, &["poll_batch", "65537"]);
    expect("timer_batch", bad(|config| config.timer_batch = 0), code, &["Config::timer_batch", "0"]);
    expect("command_limit", bad(|config| config.command_limit = 0), code, &["Config::command_limit", "0"]);
    let most = usize::MAX.to_string();
    expect("command_limit", bad(|config| config.command_limit = usize::MAX), code, &["command_limit", &most]);
    expect("client_limit", bad(|config| config.client_limit = 0), code, &["Config::client_limit", "0"]);
    expect("row_limit", bad(|config| config.row_limit = 0), code, &["Config::row_limit", "0"]);
    let most = u32::MAX.to_string();
    expect("row_limit", bad(|config| config.row_limit = u32::MAX), code, &["row_limit", &most]);
    expect(
        "thread_name",
        bad(|config| config.thread_name = "a\0b".to_owned()),
        code,
        &["thread_name", "NUL"],
    );
    let nowhere = bad(|config| config.affinity = Some(vec![100_000]));
    expect("affinity", nowhere, code, &["Config::affinity", "100000"]);
    expect("affinity", bad(|config| config.affinity = Some(Vec::new())), code, &["Config::affinity", "[]"]);
}

/// Ids that name nothing of this client.
#[test]
fn ids_that_are_not_found() {
    let setup = Setup::Own;
    let _gathering = Gathering;
    let client = setup.client();
    let idle = event_fd(0);
    let watch = client.watch(&idle, READABLE, Mode::Once, 1).unwrap();
    client.unwatch(watch).unwrap();
    let name = watch.to_string();
    let words = ["watch", name.as_str()];
    expect("arm", client.arm(watch), Code::NotFound, &words);
    expect("arm_until", client.arm_until(watch, Duration::ZERO), Code::NotFound, &words);
    expect("change", client.change(watch, READABLE), Code::NotFound, &words);
    expect("pause", client.pause(watch), Code::NotFound, &words);
    expect("resume", client.resume(watch), Code::NotFound, &words);
    expect("unwatch", client.unwatch(watch), Code::NotFound, &words);
    let timer = client.set_timer(Duration::from_secs(100), 1).unwrap();
    client.cancel_timer(timer).unwrap();
    expect("cancel_timer", client.cancel_timer(timer), Code::NotFound, &["timer", &timer.to_string()]);
    let handle = client.adopt(event_fd(0)).unwrap();
    client.close(handle).unwrap();
    let name = handle.to_string();
    expect("close", client.close(handle), Code::NotFound, &["handle", &name]);
    let options = WatchOptions::new(READABLE, Mode::Once, 1);
    expect("watch_handle", client.watch_handle(handle, options), Code::NotFound, &["handle", &name]);
    // Closed behind our back, noticed by this very call.
    let number = PrivateNumber::new();
    let lent = number.take(event_fd(0));
    let gone = client.watch(&lent, READABLE, Mode::Once, 1).unwrap();
    drop(lent);
    expect("arm", client.arm(gone), Code::NotFound, &["closed", &number.number().to_string()]);
}

/// Processes and paths that are not there, or may not be looked at.
#[test]
fn things_that_are_not_there() {
    let _gathering = Gathering;
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let id = child.id();
    assert!(child.wait().unwrap().success());
    expect("a collected child", ChildProcess::open(id), Code::NotFound, &["process", &id.to_string()]);
    let folder = Folder::new();
    let path = folder.file("absent");
    let mut changes = FileChanges::new().unwrap();
    let absent = changes.watch_path(&path, Changes::CONTENT);
    expect("an absent path", absent, Code::NotFound, &[path.to_str().unwrap()]);
    // C15e: what a path is called cannot make a message look like two.
    let forged = changes.watch_path("absent\nERROR: \u{1b}[31mforged\r", Changes::CONTENT);
    expect("a path that forges", forged, Code::NotFound, &["absent", "forged"]);
    expect(
        "a path with a NUL",
        changes.watch_path("a\0b", Changes::CONTENT),
        Code::InvalidArgument,
        &["a", "b"],
    );
    let empty = changes.watch_path("", Changes::CONTENT);
    expect("an empty path", empty, Code::NotFound, &["\"\""]);
}

/// A path that may not be watched, by somebody who is not root.
#[test]
fn a_path_that_may_not_be_watched() {
    alone!(a_path_that_may_not_be_watched, {
        let folder = Folder::new();
        let secret = folder.file("secret");
        std::fs::write(&secret, b"x").unwrap();
        let nobody = std::os::unix::fs::PermissionsExt::from_mode(0o0);
        std::fs::set_permissions(&secret, nobody).unwrap();
        let child = Forked::run(|| {
            let _gathering = Gathering;
            become_nobody();
            let refused = FileChanges::new().unwrap().watch_path(&secret, Changes::CONTENT);
            expect("a secret", refused, Code::PermissionDenied, &["secret"]);
        });
        child.expect_success();
    });
}

/// What is right in itself, but not now.
#[test]
fn states_that_are_refused() {
    let setup = Setup::Own;
    let _gathering = Gathering;
    let client = setup.client();
    let idle = event_fd(0);
    let watch = client.watch(&idle, READABLE, Mode::Once, 1).unwrap();
    client.pause(watch).unwrap();
    let name = watch.to_string();
    let code = Code::FailedPrecondition;
    expect("arm on a paused watch", client.arm(watch), code, &["watch", "paused", &name]);
    let empty = client.watch(&idle, NONE, Mode::Once, 1).unwrap();
    expect("resume without signals", client.resume(empty), code, &["watch", "signals", &empty.to_string()]);
    let watcher = setup.watcher();
    let (client, mut waiting) = (setup.attach(&watcher), setup.attach(&watcher));
    watcher.stop().unwrap();
    let code = Code::Unavailable;
    expect("watch after the stop", client.watch(&idle, READABLE, Mode::Once, 1), code, &["stopped"]);
    expect("adopt after the stop", client.adopt(event_fd(0)), code, &["stopped"]);
    expect("set_timer after the stop", client.set_timer(Duration::ZERO, 1), code, &["stopped"]);
    expect("attach after the stop", Client::attach(&watcher), code, &["stopped"]);
    let mut events = Events::with_capacity(1);
    expect("wait after the stop", waiting.wait(&mut events, None), code, &["stopped"]);
    expect("drain after the stop", waiting.drain(&mut events), code, &["stopped"]);
    let control = client.control().clone();
    drop(client);
    expect("watch after the drop", control.watch(&idle, READABLE, Mode::Once, 1), code, &["stopped"]);
    expect("wake after the drop", control.wake(), code, &["client"]);
}

/// Limits of the configuration: the limit, and the field that raises it.
#[test]
fn limits_are_named() {
    let setup = Setup::Own;
    let _gathering = Gathering;
    let config = Config { watch_limit: 2, timer_limit: 3, client_limit: 4, ..setup.config() };
    let watcher = Watcher::spawn(config).unwrap();
    let clients: Vec<Fixture> = (0..4).map(|_| setup.attach(&watcher)).collect();
    let code = Code::ResourceExhausted;
    expect("clients", Client::attach(&watcher), code, &["4", "clients", "Config::client_limit"]);
    let idle = event_fd(0);
    for client in &clients {
        for _ in 0..2 {
            client.watch(&idle, READABLE, Mode::Once, 1).unwrap();
        }
        let more = client.watch(&idle, READABLE, Mode::Once, 1);
        expect("watches", more, code, &["2", "watches", "Config::watch_limit"]);
        for _ in 0..3 {
            client.set_timer(Duration::from_secs(100), 1).unwrap();
        }
        let more = client.set_timer(Duration::ZERO, 1);
        expect("timers", more, code, &["3", "timers", "Config::timer_limit"]);
    }
    let watcher = Watcher::spawn(Config { row_limit: 2, ..setup.config() }).unwrap();
    let client = setup.attach(&watcher);
    client.set_timer(Duration::from_secs(100), 1).unwrap();
    let more = client.watch(&idle, READABLE, Mode::Once, 1);
    expect("rows", more, code, &["2", "rows", "Config::row_limit"]);
    expect("a client without a row", Client::attach(&watcher), code, &["rows", "Config::row_limit"]);
}

/// An open descriptor that is beyond what the watcher was made for.
#[test]
fn a_descriptor_beyond_the_hard_limit() {
    alone!(a_descriptor_beyond_the_hard_limit, {
        let high = PrivateNumber::new();
        let beyond = high.take(event_fd(0));
        let _gathering = Gathering;
        lower_hard_descriptor_limit(256);
        let client = Setup::Own.client();
        let number = high.number().to_string();
        let refused = client.watch(&beyond, READABLE, Mode::Once, 1);
        expect("a high number", refused, Code::ResourceExhausted, &[&number, "256", "RLIMIT_NOFILE"]);
        assert_eq!(client.client_stats().watches, 0);
    });
}

/// A status is an error for the standard library too, of the right kind, and an Ended event explains itself.
#[test]
fn a_status_travels() {
    for code in Code::ALL {
        let status = Status::new(code, "text");
        let error = std::io::Error::from(status.clone());
        assert!(error.to_string().contains("text"));
        assert_eq!(error.get_ref().unwrap().downcast_ref::<Status>(), Some(&status));
    }
    let event = |status| Event {
        watch: WatchId::new(1, 1),
        token: 0,
        kind: EventKind::Ended,
        satisfied: NONE,
        satisfiable: NONE,
        status,
        count: 1,
    };
    for code in [Code::Cancelled, Code::Aborted, Code::NotFound, Code::Internal, Code::ResourceExhausted] {
        let status = event(code).to_status();
        assert_eq!(status.code(), code);
        assert!(status.message().contains("watch"), "{status}");
    }
    let idle = event_fd(0);
    let mut entries = [WaitEntry::new(idle.as_fd(), READABLE)];
    assert!(wait_many(&mut entries, Some(Deadline::at_ns(1))).is_ok(), "a timeout is no error");
}

in_every_setup_alone!(poll_sets_that_are_refused);
