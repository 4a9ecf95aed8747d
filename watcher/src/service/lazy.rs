//! What most sessions never have, made when it is first changed.

use std::ops::{Deref, DerefMut};

/// Something that has an empty form, which can be looked at without being there.
pub(super) trait Empty: Default + 'static {
    fn empty() -> &'static Self;
}

/// Eight bytes until it is changed.
#[derive(Debug)]
pub(super) struct Lazy<T>(Option<Box<T>>);

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Empty> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::empty())
    }
}

impl<T: Empty> DerefMut for Lazy<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
