//! Being told by a call instead of waiting.

/// What a [`NotifiedPort`](crate::NotifiedPort) calls when events wait in it.
///
/// It is called on the thread that queued the event, most often the watcher thread, while no lock of ours is held: it
/// may call anything of this library. It should be short, since other clients wait for it; a panic in it is caught and
/// counted.
pub trait Notify: std::fmt::Debug + Send + Sync {
    /// Events wait. Called once; the next call comes after a drain that found nothing more.
    fn notify(&self);
}
