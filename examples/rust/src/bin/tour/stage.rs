//! Where a scene stands: its number, the client's control handle, and the voice.

use std::fmt::Display;
use std::os::fd::AsFd;
use std::time::Duration;

use handle_watcher_client::{ChildProcess, Control, Event, EventKind, Mode, Signals, Token, WatchId};

use crate::Result;
use crate::voice::Voice;

/// What a scene may do. The high half of each token is the scene's number, the low half is the scene's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'show> {
    pub(crate) control: &'show Control,
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    pub(crate) voice: &'show Voice,
}

impl Stage<'_> {
    pub(crate) fn token(&self, item: u32) -> Token {
        u64::from(self.number) << 32 | u64::from(item)
    }

    /// Watches `handle` until it can be read, and keeps it.
    pub(crate) fn watch<T: AsFd>(&self, handle: T, mode: Mode, item: u32) -> Result<Watched<T>> {
        let watch = self.control.watch(&handle, Signals::READABLE, mode, self.token(item))?;
        Ok(Watched { control: self.control.clone(), watch, handle })
    }

    /// Watches a child until it has ended.
    pub(crate) fn watch_child(&self, child: ChildProcess, item: u32) -> Result<Watched<ChildProcess>> {
        let watch = self.control.watch_child(&child, self.token(item))?;
        Ok(Watched { control: self.control.clone(), watch, handle: child })
    }

    /// Tells the user what happened.
    pub(crate) fn tell(&self, words: impl Display) -> Result<()> {
        self.voice.tell(self.number, self.title, words)
    }
}

/// The number of the scene that a token belongs to.
pub(crate) fn scene_of(token: Token) -> u32 {
    (token >> 32) as u32
}

/// The scene's own part of a token.
#[expect(clippy::cast_possible_truncation, reason = "the low half is the item")]
pub(crate) fn item_of(token: Token) -> u32 {
    token as u32
}

/// Something lent to the watcher. It is unwatched before it is closed.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    control: Control,
    watch: WatchId,
    pub(crate) handle: T,
}

impl<T> Watched<T> {
    /// Refuses any event but a Ready of this very watch.
    pub(crate) fn expect_ready(&self, event: &Event) -> Result<()> {
        if event.watch != self.watch {
            return Err(
                format!("an event of watch {} has the token of watch {}", event.watch, self.watch).into()
            );
        }
        if event.kind != EventKind::Ready {
            return Err(format!("{:?} came where Ready was expected: {event:?}", event.kind).into());
        }
        Ok(())
    }

    /// Arms a Once watch again.
    pub(crate) fn arm(&self) -> Result<()> {
        Ok(self.control.arm(self.watch)?)
    }

    /// Arms it again, to tell either of its signals or that they did not come in time.
    pub(crate) fn arm_until(&self, timeout: Duration) -> Result<()> {
        Ok(self.control.arm_until(self.watch, timeout)?)
    }

    /// Asks for other signals.
    pub(crate) fn change(&self, signals: Signals) -> Result<()> {
        Ok(self.control.change(self.watch, signals)?)
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        // NOT_FOUND means that it has ended, which is as good.
        let _: handle_watcher_client::Result<()> = self.control.unwatch(self.watch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_scene_and_an_item() {
        let token = 7 << 32 | u64::from(u32::MAX);
        assert_eq!((scene_of(token), item_of(token)), (7, u32::MAX));
    }
}
