//! C16: a client that was written from PROTOCOL.md alone, in another language's standard library, is served.

mod program;

use handle_watcher::{Config, Service, ServiceConfig, Watcher};
use program::Program;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/plain_client.py");

/// What the demo prints; its first line has the session's number.
const PRINTED: &str = "\
pipe: hello (token 100)
timer: fired 1 time (token 200)
child: ended with 0 (token 300)
pipe: again (token 101)
watches of this session: 2
watch 2: ended, CANCELLED
unwatch again: NOT_FOUND
bye
";

fn serve(address: &str) -> (Watcher, Service) {
    let watcher = Watcher::spawn(Config::default()).expect("a watcher");
    let service = Service::bind(&watcher, address, ServiceConfig::default()).expect("a service");
    (watcher, service)
}

fn assert_demo(program: Program) {
    let outcome = program.wait();
    assert!(outcome.status.success(), "{}\n{}", outcome.output, outcome.errors);
    let (first, rest) = outcome.output.split_once('\n').expect("lines");
    assert!(first.starts_with("session ") && first.ends_with(", version 1"), "{first}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // The pipe and the timer may come in either order on a busy machine.
        lines[..3].sort();
        lines
    };
    assert_eq!(sorted(rest), sorted(PRINTED), "{}", outcome.errors);
}

#[test]
fn the_plain_python_client_is_served_at_a_file() {
    let folder = std::env::temp_dir().join(format!("handle-watcher-python-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("socket");
    let (watcher, service) = serve(path.to_str().expect("a readable path"));
    assert_demo(Program::start("python3", &[SCRIPT, path.to_str().expect("a readable path")]));
    service.stop();
    watcher.stop().expect("the watcher stops");
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
}

#[test]
fn the_plain_python_client_is_served_at_an_abstract_name() {
    let address = format!("@handle-watcher-python-{}", std::process::id());
    let (_watcher, _service) = serve(&address);
    assert_demo(Program::start_with("python3", &[SCRIPT], &[("HANDLE_WATCHER_SOCKET", &address)]));
}

#[test]
fn without_an_address_it_says_what_is_missing() {
    let outcome = Program::start_with("python3", &[SCRIPT], &[("HANDLE_WATCHER_SOCKET", "")]).wait();
    assert!(!outcome.status.success());
    assert!(outcome.errors.contains("HANDLE_WATCHER_SOCKET=ADDRESS"), "{}", outcome.errors);
}
