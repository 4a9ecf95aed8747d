//! C10b, C14a, C16: remote_client is served by a service of its own, by one at a file, and learns that one is lost.

mod program;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use handle_watcher::{Config, Service, ServiceConfig, Watcher};
use program::{Outcome, Program};

const REMOTE_CLIENT: &str = env!("CARGO_BIN_EXE_remote_client");

fn serve(address: &str) -> (Watcher, Service) {
    let watcher = Watcher::spawn(Config::default()).expect("a watcher");
    let service = Service::bind(&watcher, address, ServiceConfig::default()).expect("a service");
    (watcher, service)
}

/// The words of its own pipe came, with a tick before the last of them at the earliest.
#[track_caller]
fn assert_counted(outcome: &Outcome, address: &str) {
    assert!(outcome.status.success(), "{outcome:?}");
    let lines: Vec<&str> = outcome.output.lines().collect();
    assert!(lines[0].starts_with(&format!("connected to {address}")), "{outcome:?}");
    assert!(lines.iter().any(|line| line.starts_with("tick ")), "{outcome:?}");
    assert_eq!(lines.last(), Some(&"the input has ended after 14 bytes"));
}

#[test]
fn without_an_address_it_serves_itself() {
    let outcome = Program::start_with(REMOTE_CLIENT, &[], &[("HANDLE_WATCHER_SOCKET", "")]).wait();
    assert_counted(&outcome, "@handle-watcher-example-");
}

#[test]
fn it_is_served_at_the_address_that_is_given_or_in_the_environment() {
    let address = format!("@handle-watcher-remote-{}", std::process::id());
    let (_watcher, _service) = serve(&address);
    assert_counted(&Program::start(REMOTE_CLIENT, &[&address]).wait(), &address);
    let variables = [("HANDLE_WATCHER_SOCKET", address.as_str())];
    assert_counted(&Program::start_with(REMOTE_CLIENT, &[], &variables).wait(), &address);
}

#[test]
fn what_comes_through_its_input_is_counted() {
    let mut child = Command::new(REMOTE_CLIENT)
        .env("HANDLE_WATCHER_SOCKET", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let input = child.stdin.take().expect("it was piped");
    (&input).write_all(&[b'x'; 100_000]).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it is our child");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.ends_with("the input has ended after 100000 bytes\n"), "{said}");
}

#[test]
fn a_service_that_is_lost_is_told() {
    let address = format!("@handle-watcher-lost-{}", std::process::id());
    let (watcher, service) = serve(&address);
    let mut child = Command::new(REMOTE_CLIENT)
        .arg(&address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let input = child.stdin.take();
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("it was piped"));
    said.read_line(&mut line).expect("a line");
    assert_eq!(line, format!("connected to {address}\n"));
    service.stop();
    let output = child.wait_with_output().expect("it is our child");
    drop((input, said));
    watcher.stop().expect("the watcher stops");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(!output.status.success() && said.contains("UNAVAILABLE"), "{said}");
}

#[test]
fn nobody_at_the_address_and_wrong_arguments_are_told() {
    let outcome = Program::start(REMOTE_CLIENT, &["@handle-watcher-nobody"]).wait();
    assert!(
        !outcome.status.success() && outcome.errors.contains("is handle-watcherd running there?"),
        "{outcome:?}"
    );
    let outcome = Program::start(REMOTE_CLIENT, &["one", "two"]).wait();
    assert!(!outcome.status.success() && outcome.errors.contains("usage"), "{outcome:?}");
}
