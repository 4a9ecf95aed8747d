//! What every scene has, and the list of scenes.

use handle_watcher_client::Event;

use crate::stage::Stage;
use crate::{Result, child, connections, file, number, terminal, thread, timers};

/// One kind of input, what is expected of it, and what came. An `Err` is a wrong event, in words.
pub(crate) trait Scene {
    /// What should come, in words.
    fn expected(&self) -> String;

    /// What came so far, in words.
    fn came(&self) -> String;

    /// Takes one event of this scene.
    fn on_event(&mut self, stage: &Stage<'_>, event: &Event) -> Result<()>;

    /// All that was expected came.
    fn is_over(&self) -> bool;
}

/// Opens what the scene needs and watches it.
pub(crate) type Begin = fn(&Stage<'_>) -> Result<Box<dyn Scene>>;

/// Every scene. Wake events have the token 0, so the scene that wakes is number 0.
pub(crate) const SCENES: [(&str, Begin); 7] = [
    ("thread", thread::begin),
    ("connections", connections::begin),
    ("child", child::begin),
    ("file", file::begin),
    ("timers", timers::begin),
    ("terminal", terminal::begin),
    ("number", number::begin),
];
