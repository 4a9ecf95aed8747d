//! C16: the service as a program: start and stop, files, flags, and what a service manager expects.
#![allow(dead_code, reason = "helpers are shared with the other tests of the service")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

#[path = "service/client.rs"]
mod client;
#[path = "service/util.rs"]
mod util;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Command, ExitStatus, Stdio};

use client::Client;
use handle_watcher::{Code, Mode, Signals};
use handle_watcher_wire::protocol::Request;
use rustix::process::{Pid, Signal, kill_process};
use util::{Folder, PROMPT, until};

/// A running program, killed if its test fails.
#[derive(Debug)]
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already, where the test went well.
        let _: std::io::Result<()> = self.0.kill();
        let _: std::io::Result<ExitStatus> = self.0.wait();
    }
}

impl Daemon {
    fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.0);
        kill_process(process, signal).expect("it runs");
    }

    /// Its end, and all it said.
    #[track_caller]
    fn end(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        if let Some(mut errors) = self.0.stderr.take() {
            errors.read_to_string(&mut said).expect("text");
        }
        (self.0.wait().expect("ours"), said)
    }

    /// Stops it in order.
    #[track_caller]
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let (status, said) = self.end();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handle-watcherd"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HANDLE_WATCHER_")) {
        command.env_remove(name);
    }
    for name in
        ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "XDG_RUNTIME_DIR"]
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn spawn(command: &mut Command) -> Daemon {
    Daemon(command.spawn().expect("the program"))
}

/// Starts it at a path, and waits until it can be connected to.
#[track_caller]
fn start(path: &str, flags: &[&str]) -> Daemon {
    let daemon = spawn(program().args(["--socket", path]).args(flags));
    until("it listens", || client::connect(path).is_ok());
    daemon
}

/// Starts it and sees it fail.
#[track_caller]
fn fail(command: &mut Command) -> (Option<i32>, String) {
    let mut daemon = spawn(command);
    let (status, said) = daemon.end();
    assert!(!status.success(), "{said}");
    (status.code(), said)
}

#[test]
fn it_serves_until_it_is_told_to_stop() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Folder::new();
        let path = folder.path("s");
        let mut daemon = start(&path, &[]);
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let mut client = Client::connect(&path);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        client.watch(1, &reader, Signals::READABLE, Mode::Once);
        std::io::Write::write_all(&mut &writer, b"x").expect("room");
        client.expect_ready(1, Signals::READABLE);
        daemon.signal(signal);
        client.raw.expect_last(Code::Unavailable);
        let (status, said) = daemon.end();
        assert!(status.success(), "{said}");
        assert!(said.contains("listening") && said.contains("stopping"), "{said}");
        assert_eq!(std::fs::read_dir(folder.path("")).expect("a folder").count(), 0, "nothing is left");
    }
}

#[test]
fn a_second_start_leaves_the_first_alone() {
    let folder = Folder::new();
    let path = folder.path("s");
    let first = start(&path, &[]);
    let inode = std::fs::metadata(&path).expect("there").ino();
    let (code, said) = fail(program().args(["--socket", &path]));
    assert_eq!(code, Some(1));
    assert!(said.lines().last().expect("a line").starts_with("handle-watcherd: ALREADY_EXISTS: "), "{said}");
    assert_eq!(std::fs::metadata(&path).expect("there").ino(), inode);
    Client::connect(&path).ok(&Request::Ping);
    first.stop();
}

#[test]
fn a_killed_one_leaves_a_stale_file_that_the_next_replaces() {
    let folder = Folder::new();
    let path = folder.path("s");
    let mut first = start(&path, &[]);
    first.signal(Signal::KILL);
    first.end();
    assert!(std::fs::metadata(&path).expect("stale").file_type().is_socket());
    let second = start(&path, &[]);
    Client::connect(&path).ok(&Request::Ping);
    second.stop();
    assert_eq!(std::fs::read_dir(folder.path("")).expect("a folder").count(), 0, "nothing is left");
}

#[test]
fn flags_and_environment_say_the_same() {
    let folder = Folder::new();
    let path = folder.path("s");
    let flags = ["--mode", "660", "--watches-per-session", "5", "--frame-bytes", "8192"];
    let daemon = start(&path, &flags);
    let expect = || {
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o660);
        let limits = Client::connect(&path).welcome.limits;
        assert_eq!((limits.watches, limits.frame_bytes), (5, 8192));
    };
    expect();
    daemon.stop();
    let mut command = program();
    command.env("HANDLE_WATCHER_SOCKET", &path).env("HANDLE_WATCHER_MODE", "660");
    command.env("HANDLE_WATCHER_WATCHES_PER_SESSION", "5").env("HANDLE_WATCHER_FRAME_BYTES", "8192");
    let daemon = spawn(&mut command);
    until("it listens", || client::connect(&path).is_ok());
    expect();
    daemon.stop();
}

#[test]
fn the_usual_place_is_the_users_runtime_folder() {
    let folder = Folder::new();
    let daemon = spawn(program().env("XDG_RUNTIME_DIR", folder.path("").trim_end_matches('/')));
    let path = folder.path("handle-watcher.sock");
    until("it listens", || client::connect(&path).is_ok());
    daemon.stop();
}

#[test]
fn wrong_flags_and_wrong_places_are_told_apart() {
    assert_eq!(fail(program().arg("--no-such-flag")).0, Some(2));
    assert_eq!(fail(program().args(["--mode", "9"])).0, Some(2));
    assert_eq!(fail(program().args(["--socket", &"x".repeat(200)])).0, Some(1));
    assert_eq!(fail(program().args(["--socket", "@handle-watcher-log-test", "--log", "=="])).0, Some(1));
    let (code, said) = fail(program().args(["--socket", "/absent/s", "--frame-bytes", "1"]));
    assert_eq!(code, Some(1));
    assert!(said.contains("ServiceConfig::frame_bytes is 1"), "{said}");
    for flag in ["--help", "--version"] {
        let output = program().arg(flag).stdout(Stdio::piped()).output().expect("the program");
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("handle-watcherd"), "{said}");
    }
}

#[test]
fn its_log_is_an_object_a_line_and_a_client_forges_none() {
    let folder = Folder::new();
    let path = folder.path("s");
    let daemon = start(&path, &["--log-format", "json", "--log", "debug"]);
    let mut raw = client::Raw::connect(&path);
    let hello = handle_watcher_wire::protocol::Hello {
        version_lowest: 1,
        version_highest: 1,
        name: "evil\n{\"level\":\"ERROR\"}\u{1b}[2J",
    };
    raw.send(&Request::Hello(hello), 1, &[]);
    assert_eq!(raw.next().expect("a welcome").code(), Code::Ok);
    raw.send(&Request::Ping, 0, &[]);
    raw.expect_last(Code::InvalidArgument);
    let said = daemon.stop();
    assert!(said.contains("a session was ended"), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("{\"timestamp\"") && line.ends_with('}'), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}

#[test]
fn its_limit_of_descriptors_is_raised() {
    let folder = Folder::new();
    let path = folder.path("s");
    let shell = format!(
        "ulimit -S -n 64; exec \"{}\" --socket \"{path}\" --log warn",
        env!("CARGO_BIN_EXE_handle-watcherd")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).stderr(Stdio::piped());
    let daemon = spawn(&mut command);
    until("it listens", || client::connect(&path).is_ok());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.0.id())).expect("proc");
    let line =
        limits.lines().find(|line| line.starts_with("Max open files")).expect("the kernel has this line");
    let numbers: Vec<&str> = line.trim_start_matches("Max open files").split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
    assert_eq!(daemon.stop(), "");
}

/// A descriptor at number 3, as a service manager passes it.
fn with_descriptor(descriptor: &OwnedFd, environment: &str) -> Daemon {
    let shell = format!(
        "{environment} LISTEN_PID=$$ exec \"{}\" --socket /absent/s --log warn 3<&0 0</dev/null",
        env!("CARGO_BIN_EXE_handle-watcherd")
    );
    let mut command = program_shell(&shell);
    command.stdin(descriptor.try_clone().expect("a clone"));
    spawn(&mut command)
}

fn program_shell(shell: &str) -> Command {
    let mut command = Command::new("sh");
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"] {
        command.env_remove(name);
    }
    command.args(["-c", shell]).stderr(Stdio::piped());
    command
}

#[test]
fn a_passed_socket_is_served_and_left_in_place() {
    let folder = Folder::new();
    let path = folder.path("s");
    let listener: OwnedFd = UnixListener::bind(&path).expect("bound").into();
    let daemon = with_descriptor(&listener, "LISTEN_FDS=1");
    Client::connect(&path).ok(&Request::Ping);
    daemon.stop();
    assert!(std::path::Path::new(&path).exists(), "the file is the manager's");
    // It was passed, and not to be served by this process: without LISTEN_PID nothing of it is believed.
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let mut daemon = with_descriptor(&reader.into(), "LISTEN_FDS=1");
    let (status, said) = daemon.end();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("no listening Unix stream socket"), "{said}");
    let mut daemon = with_descriptor(&listener, "LISTEN_FDS=2");
    assert_eq!(daemon.end().0.code(), Some(1));
}

#[test]
fn a_manager_is_told_of_readiness_life_and_the_stop() {
    for is_abstract in [false, true] {
        let folder = Folder::new();
        let path = folder.path("s");
        let notify = folder.path("n");
        let name = format!("handle-watcher-notify-{}", std::process::id());
        let (socket, shown) = if is_abstract {
            let address = SocketAddr::from_abstract_name(&name).expect("a name");
            (UnixDatagram::bind_addr(&address).expect("bound"), format!("@{name}"))
        } else {
            (UnixDatagram::bind(&notify).expect("bound"), notify)
        };
        socket.set_read_timeout(Some(PROMPT)).expect("ours");
        let mut command = program();
        command.args(["--socket", &path]).env("NOTIFY_SOCKET", shown).env("WATCHDOG_USEC", "40000");
        let mut daemon = spawn(&mut command);
        let next = || {
            let mut buffer = [0; 256];
            let length = socket.recv(&mut buffer).expect("a message");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        assert_eq!(next(), "READY=1");
        // Ready means ready.
        drop(UnixStream::connect(&path).expect("it listens"));
        for _ in 0..3 {
            assert_eq!(next(), "WATCHDOG=1");
        }
        daemon.signal(Signal::TERM);
        while next() != "STOPPING=1" {}
        let (status, said) = daemon.end();
        assert!(status.success(), "{said}");
    }
}
