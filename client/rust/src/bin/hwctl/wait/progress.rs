//! The line on a terminal that says what is still waited for.

use std::io::{IsTerminal, Write};

use crate::text::shorten;

/// Where a terminal does not say how wide it is.
const COLUMNS_USUAL: u16 = 80;

/// One line of stderr, drawn over and over. Gone when it is dropped.
pub(crate) struct Progress {
    is_drawn: bool,
}

impl Progress {
    /// A progress line, if stderr is a terminal.
    pub(crate) fn on_terminal() -> Option<Self> {
        std::io::stderr().is_terminal().then_some(Self { is_drawn: false })
    }

    /// Draws the line over the one before. `line` has no control characters.
    pub(crate) fn draw(&mut self, line: &str) {
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        let columns =
            size.map_or(COLUMNS_USUAL, |size| if size.ws_col == 0 { COLUMNS_USUAL } else { size.ws_col });
        // The last column stays free: some terminals wrap when it is filled.
        let line = shorten(line, usize::from(columns).saturating_sub(1));
        self.is_drawn = true;
        put(&format!("\r\x1b[K{line}"));
    }

    /// Takes the line away, so that others can print.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            put("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn put(text: &str) {
    let mut terminal = std::io::stderr().lock();
    // A terminal that has gone shows nothing.
    let _: std::io::Result<()> = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}
