//! The terminal while the screen is shown.

use std::io::Result;
use std::mem::ManuallyDrop;

use ratatui::{DefaultTerminal, Frame};

/// A terminal in raw mode, on its alternate screen. It is given back as it was when this is dropped, and at a panic.
pub(crate) struct Stage {
    /// Its own drop complains, through a macro that panics, when the terminal has gone.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl Stage {
    /// Takes the terminal.
    ///
    /// # Errors
    /// What the terminal refused.
    pub(crate) fn open() -> Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| {
            // Half of it may have been done.
            let _: Result<()> = ratatui::try_restore();
        })?;
        Ok(Self { terminal: ManuallyDrop::new(terminal) })
    }

    /// Draws the screen anew, in the size that the terminal has now.
    ///
    /// # Errors
    /// What the terminal refused.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing back.
        let _: Result<()> = self.terminal.show_cursor();
        let _: Result<()> = ratatui::try_restore();
    }
}
