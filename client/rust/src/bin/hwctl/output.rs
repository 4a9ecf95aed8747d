//! What `hwctl` prints, for readers that may be gone.

use std::io::{ErrorKind, Write};

use handle_watcher_client::{Code, Result, Status};

use crate::text::escape_json;

/// Prints lines. A reader that has gone, as `head` does, is no failure: the exit status still tells what came.
///
/// # Errors
/// `UNKNOWN` with the system's word if it cannot be written, for example to a full disk.
pub(crate) fn print(lines: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(lines.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Status::new(Code::Unknown, format!("the output cannot be written: {error}; redirect it")))
        }
        _ => Ok(()),
    }
}

/// Prints a value on a line of its own.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(value: &serde_json::Value) -> Result<()> {
    print(&format!("{}\n", escape_json(&value.to_string())))
}

/// Says on stderr what went wrong.
pub(crate) fn complain(line: &str) {
    // Where stderr is closed nobody wants to know.
    let _: std::io::Result<()> = writeln!(std::io::stderr(), "{line}");
}
