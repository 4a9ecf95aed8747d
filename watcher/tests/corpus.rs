//! C15, C16c: every input that the fuzz targets begin with, and every one that ever failed, is harmless.
//!
//! The inputs are kept under `watcher/fuzz/corpus`, a folder for each target; `make fuzz` goes on from there.

#[path = "../fuzz/src/frame.rs"]
mod frame;
#[path = "../fuzz/src/pickle.rs"]
mod pickle;
#[path = "../fuzz/src/raw_client.rs"]
mod raw_client;
#[path = "../fuzz/src/session.rs"]
mod session;
#[path = "../fuzz/src/status.rs"]
mod status;

use std::path::Path;

/// Feeds every input of a target, and shorter and damaged ones made of it.
fn replay(target: &str, feed: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is kept beside the targets") {
        let path = entry.expect("the folder was opened").path();
        println!("{}", path.display());
        let input = std::fs::read(&path).expect("a readable file");
        feed(&input);
        for cut in (0..input.len()).step_by(1 + input.len() / 16) {
            feed(&input[..cut]);
            let mut damaged = input.clone();
            damaged[cut] ^= 0x81;
            feed(&damaged);
        }
        count += 1;
    }
    assert!(count >= 5, "{} has only {count} inputs", folder.display());
}

#[test]
fn frames() {
    replay("frame", frame::feed);
}

#[test]
fn pickles() {
    replay("pickle", pickle::feed);
}

#[test]
fn sessions() {
    replay("session", session::feed);
}

#[test]
fn statuses() {
    replay("status", status::feed);
}
