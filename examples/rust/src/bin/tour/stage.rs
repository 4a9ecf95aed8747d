//! Where a scene stands: its number, the client's control handle, and the voice.

use std::fmt::Display;
use std::os::fd::AsFd;

use handle_watcher_client::{
    Control, Event, EventKind, Mode, Signals, Status, Token, WatchId, WatchOptions, Watched,
};

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

    /// Watches `handle` until it can be read, and keeps it: it is unwatched before it is closed.
    pub(crate) fn watch<T: AsFd>(&self, handle: T, mode: Mode, item: u32) -> Result<Watched<T>> {
        let options = WatchOptions::new(Signals::READABLE, mode, self.token(item));
        Ok(self.control.watch_owned(handle, options).map_err(Status::from)?)
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

/// Refuses any event but a Ready of this very watch.
pub(crate) fn expect_ready(watch: WatchId, event: &Event) -> Result<()> {
    if event.watch != watch {
        return Err(format!("an event of watch {} has the token of watch {watch}", event.watch).into());
    }
    if event.kind != EventKind::Ready {
        return Err(format!("{:?} came where Ready was expected: {event:?}", event.kind).into());
    }
    Ok(())
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
