//! What every source of `hwctl wait` can do.

use handle_watcher_client::{Code, Control, Event, EventKind, Result, Status, Token};

/// How far a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Go on waiting.
    Pending,
    /// It came; in one word, how.
    Came(String),
}

impl Step {
    pub(crate) fn came(what: &str) -> Self {
        Self::Came(what.to_owned())
    }
}

/// A source being waited for. Every event of its token is passed to it, until it came.
pub(crate) trait Awaited {
    /// Begins. What holds already has come.
    ///
    /// # Errors
    /// Why it can never come.
    fn start(&mut self, control: &Control, token: Token) -> Result<Step>;

    /// Takes an event of its token.
    ///
    /// # Errors
    /// Why it can never come.
    fn tell(&mut self, control: &Control, event: &Event) -> Result<Step>;

    /// Looks for what a helper thread found out.
    ///
    /// # Errors
    /// Why it can never come.
    fn look(&mut self, _control: &Control) -> Result<Step> {
        Ok(Step::Pending)
    }

    /// What is in the way, as far as it knows.
    fn obstacle(&self) -> Option<String> {
        None
    }
}

/// Whether the event of a watch is not its last one.
///
/// # Errors
/// Why the watch ended, if it did.
pub(crate) fn check_end(event: &Event, name: &str) -> Result<()> {
    if event.kind != EventKind::Ended {
        return Ok(());
    }
    let status = event.to_status();
    let code = if status.code() == Code::Ok { Code::Internal } else { status.code() };
    Err(Status::new(code, format!("{name}: {}", status.message())))
}
