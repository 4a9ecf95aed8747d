//! The one loop: waits for all scenes at once and gives each event to the scene it belongs to.

use std::time::Duration;

use handle_watcher_client::{Client, ClientStats, Deadline, Event, Events};

use crate::Result;
use crate::scene::{SCENES, Scene};
use crate::stage::{Stage, scene_of};
use crate::voice::{Colour, Voice};

/// How long a scene may take. All take about two seconds; a scene that waits for something lost takes this
/// long.
const SCENE_LIMIT: Duration = Duration::from_secs(8);

/// How many events are taken at once.
const EVENTS_MOST: usize = 64;

/// A scene and how it goes.
struct Act {
    title: &'static str,
    number: u32,
    deadline: Deadline,
    /// None once it is over or has failed: its watches are gone, too.
    scene: Option<Box<dyn Scene>>,
    result: SceneResult,
}

/// How a scene went.
#[derive(Debug, Default)]
pub(crate) struct SceneResult {
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    pub(crate) expected: String,
    pub(crate) came: String,
    pub(crate) events: u64,
    /// What was wrong.
    pub(crate) fault: Option<String>,
}

/// How everything went.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) scenes: Vec<SceneResult>,
    /// Scenes that have clients of their own.
    pub(crate) apart: Vec<SceneResult>,
    /// Events that belong to no scene, or came after its end.
    pub(crate) strays: Vec<String>,
    /// The client's own count, at the end.
    pub(crate) client: ClientStats,
}

impl Report {
    /// Events that were handed out, as the scenes and the strays count them.
    pub(crate) fn events(&self) -> u64 {
        self.scenes.iter().map(|scene| scene.events).sum::<u64>() + self.strays.len() as u64
    }

    /// What is wrong beyond the scenes: strays, and differences between our count and the client's.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.strays.clone();
        let counts = [
            ("events delivered", self.client.delivered, self.events()),
            ("events undelivered", self.client.undelivered, 0),
            ("watches left", self.client.watches, 0),
            ("timers left", self.client.timers, 0),
        ];
        // A scene that failed leaves in the middle, and what it left behind proves nothing.
        if self.scenes.iter().all(|scene| scene.fault.is_none()) {
            let differing = counts.iter().filter(|(_, counted, expected)| counted != expected);
            faults.extend(differing.map(|(what, counted, expected)| {
                format!("the client counts {counted} {what}, and it should be {expected}")
            }));
        }
        faults
    }

    /// The scenes of the show, then those apart.
    pub(crate) fn all_scenes(&self) -> impl Iterator<Item = &SceneResult> {
        self.scenes.iter().chain(&self.apart)
    }

    pub(crate) fn is_right(&self) -> bool {
        self.all_scenes().all(|scene| scene.fault.is_none()) && self.faults().is_empty()
    }
}

/// All scenes and the client they share.
pub(crate) struct Show<'voice> {
    client: Client,
    voice: &'voice Voice,
    acts: Vec<Act>,
    strays: Vec<String>,
}

impl<'voice> Show<'voice> {
    /// Begins every scene.
    pub(crate) fn begin(client: Client, voice: &'voice Voice) -> Result<Self> {
        let mut show = Self { client, voice, acts: Vec::new(), strays: Vec::new() };
        for (number, (title, begin)) in (0..).zip(SCENES) {
            let result = SceneResult { number, title, ..SceneResult::default() };
            let mut act = Act { title, number, deadline: Deadline::after(SCENE_LIMIT), scene: None, result };
            match begin(&act.stage(&show.client, voice)) {
                Ok(scene) => act.scene = Some(scene),
                Err(error) => act.result.fault = Some(format!("it could not begin: {error}")),
            }
            show.acts.push(act);
        }
        Ok(show)
    }

    /// Runs until every scene is over, has failed, or is overdue.
    pub(crate) fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(EVENTS_MOST);
        while let Some(deadline) = self.next_deadline() {
            self.client.wait_until(&mut events, deadline)?;
            for event in &events {
                self.on_event(event)?;
            }
            self.fail_overdue()?;
        }
        Ok(())
    }

    /// What came of it all.
    pub(crate) fn end(self) -> Report {
        let client = self.client.client_stats();
        let scenes = self.acts.into_iter().map(|act| act.result).collect();
        Report { scenes, apart: Vec::new(), strays: self.strays, client }
    }

    /// When the first of the running scenes is overdue; none if none runs.
    fn next_deadline(&self) -> Option<Deadline> {
        self.acts.iter().filter(|act| act.scene.is_some()).map(|act| act.deadline).min()
    }

    fn on_event(&mut self, event: &Event) -> Result<()> {
        let number = scene_of(event.token);
        let Some(act) = self.acts.get_mut(number as usize) else {
            self.strays.push(format!("an event has a token that nobody gave: {event:?}"));
            return Ok(());
        };
        let stage = act.stage(&self.client, self.voice);
        let Some(scene) = &mut act.scene else {
            // What was taken together with a wrong event is not held against a scene that has failed.
            if act.result.fault.is_none() {
                self.strays.push(format!("an event came after the end of its scene: {event:?}"));
            }
            return Ok(());
        };
        act.result.events += 1;
        match scene.on_event(&stage, event) {
            Err(error) => act.fail(&stage, error.to_string()),
            Ok(()) if scene.is_over() => act.end(&stage),
            Ok(()) => Ok(()),
        }
    }

    fn fail_overdue(&mut self) -> Result<()> {
        let overdue = |act: &&mut Act| act.scene.is_some() && act.deadline.remaining().is_zero();
        for act in self.acts.iter_mut().filter(overdue) {
            let stage = act.stage(&self.client, self.voice);
            act.fail(&stage, format!("an event is missing: it was not over after {SCENE_LIMIT:?}"))?;
        }
        Ok(())
    }
}

impl Act {
    fn stage<'show>(&self, client: &'show Client, voice: &'show Voice) -> Stage<'show> {
        Stage { control: client.control(), number: self.number, title: self.title, voice }
    }

    fn fail(&mut self, stage: &Stage<'_>, fault: String) -> Result<()> {
        stage.tell(stage.voice.paint(Colour::BAD, format_args!("WRONG: {fault}")))?;
        self.result.fault = Some(fault);
        self.leave();
        Ok(())
    }

    fn end(&mut self, stage: &Stage<'_>) -> Result<()> {
        self.leave();
        stage.tell("over")
    }

    /// Takes every watch of the scene back, closes its descriptors and collects its children.
    fn leave(&mut self) {
        if let Some(scene) = self.scene.take() {
            self.result.expected = scene.expected();
            self.result.came = scene.came();
        }
    }
}
