//! What was expected and what came, scene by scene, and the watcher's own numbers in words.

use handle_watcher_client::{HISTOGRAM_CLASSES, Histogram, Stats};

use crate::Result;
use crate::show::{Report, SceneResult};
use crate::voice::{Colour, Voice, counted, grouped};

pub(crate) fn print(voice: &Voice, report: &Report, stats: &Stats) -> Result<()> {
    voice.line(voice.paint(Colour::STRONG, "\nWhat was expected, and what came"))?;
    for scene in report.all_scenes() {
        print_scene(voice, scene)?;
    }
    for fault in report.faults() {
        voice.line(format_args!("  {} {fault}", voice.paint(Colour::BAD, "✗")))?;
    }
    print_stats(voice, report, stats)
}

fn print_scene(voice: &Voice, scene: &SceneResult) -> Result<()> {
    let mark = match scene.fault {
        None => voice.paint(Colour::GOOD, "✓"),
        Some(_) => voice.paint(Colour::BAD, "✗"),
    };
    let title = voice.paint(Colour::of_scene(scene.number), format!("{:<11}", scene.title));
    voice.line(format_args!("  {mark} {title}  expected  {}", scene.expected))?;
    voice.line(format_args!(
        "    {:11}  came      {} ({})",
        "",
        scene.came,
        counted(scene.events, "event")
    ))?;
    match &scene.fault {
        None => Ok(()),
        Some(fault) => voice.line(format_args!("    {:11}  {}", "", voice.paint(Colour::BAD, fault))),
    }
}

fn print_stats(voice: &Voice, report: &Report, stats: &Stats) -> Result<()> {
    voice.line(voice.paint(Colour::STRONG, "\nWhat the watcher did"))?;
    voice.line(format_args!(
        "  In {} it found {} ready, {} in one wait. {} of the kernel's reports meant nothing any more.",
        counted(stats.turns, "turn"),
        counted(stats.readiness, "descriptor"),
        most_in_words(&stats.ready_per_wait),
        grouped(stats.stale_events),
    ))?;
    voice.line(format_args!(
        "  It took {} and was woken {} for them; it woke the client {}.",
        counted(stats.commands, "command"),
        counted(stats.wakes, "time"),
        counted(stats.client_wakes, "time"),
    ))?;
    voice.line(format_args!(
        "  {} were set, and {} expirations came of them.",
        counted(stats.timers_set, "timer"),
        grouped(stats.timers_fired),
    ))?;
    let client = &report.client;
    voice.line(format_args!(
        "  The client was handed {}; {} belong to a scene. Left: {} events, {} watches, {} timers.",
        counted(client.delivered, "event"),
        grouped(report.events() - report.strays.len() as u64),
        grouped(client.undelivered),
        grouped(client.watches),
        grouped(client.timers),
    ))
}

/// The highest class of a histogram that has anything.
fn most_in_words(histogram: &Histogram) -> String {
    match histogram.iter().rposition(|&count| count > 0).unwrap_or(0) {
        0 => "none".to_owned(),
        1 => "at most 1".to_owned(),
        class if class == HISTOGRAM_CLASSES - 1 => format!("{} or more", 1_u64 << (class - 1)),
        class => format!("at most {} to {}", 1_u64 << (class - 1), (1_u64 << class) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_class_is_named() {
        let mut histogram = [0; HISTOGRAM_CLASSES];
        assert_eq!(most_in_words(&histogram), "none");
        for (class, words) in [(1, "at most 1"), (2, "at most 2 to 3"), (7, "at most 64 to 127")] {
            histogram[class] = 1;
            assert_eq!(most_in_words(&histogram), words);
        }
        histogram[HISTOGRAM_CLASSES - 1] = 1;
        assert_eq!(most_in_words(&histogram), "16384 or more");
    }
}
