//! How the screen is drawn. Any size will do; what does not fit is not drawn.

use handle_watcher_wire::protocol::SessionEntry;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};

use super::histogram::Histogram;
use super::view::{Busy, RATES, View};
use crate::span;
use crate::text::{shorten, show_signals};

/// Histograms stand at the side from this width on.
const COLUMNS_FOR_SIDE: u16 = 70;

/// How wide the side is.
const SIDE_COLUMNS: u16 = 30;

/// How much of a line of a histogram is its name and its count.
const NAME_COLUMNS: usize = 10;
const COUNT_COLUMNS: usize = 7;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(4), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    draw_head(frame, head, view);
    let side_columns = if body.width >= COLUMNS_FOR_SIDE { SIDE_COLUMNS } else { 0 };
    let [lists, side] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(side_columns)]).spacing(1).areas(body);
    let halves = [Constraint::Fill(1), Constraint::Fill(1)];
    let [sessions, watches] = Layout::vertical(halves).areas(lists);
    draw_sessions(frame, sessions, view);
    draw_watches(frame, watches, view);
    if side_columns > 0 {
        let [ready, round_trip] = Layout::vertical(halves).areas(side);
        draw_histogram(frame, ready, "ready per wait", &view.ready_per_wait);
        draw_histogram(frame, round_trip, "round trip, us", &view.round_trip);
    }
    draw_foot(frame, foot, view);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let sessions = view.sessions.len();
    let sum = |count: fn(&Busy<SessionEntry>) -> u64| view.sessions.iter().map(count).sum::<u64>();
    let (watches, timers) = (sum(|busy| busy.what.watches), sum(|busy| busy.what.timers));
    let undelivered = sum(|busy| busy.what.undelivered);
    let total = view.events.front + view.events.back;
    let share = |part: f64| if total > 0.0 { part / total * 100.0 } else { 0.0 };
    let (front, back) = (view.events.front, view.events.back);
    let rates =
        RATES.map(|name| format!("{} {}/s", name.replace('_', " "), rate(view.rate(name)))).join("  ");
    let lines = vec![
        Line::from(format!("hwctl top  {}", view.name)).bold(),
        Line::from(format!(
            "sessions {sessions}  watches {watches}  timers {timers}  undelivered {undelivered}"
        )),
        Line::from(format!(
            "events {}/s  front {}/s ({:.0}%)  back {}/s ({:.0}%)",
            rate(total),
            rate(front),
            share(front),
            rate(back),
            share(back),
        )),
        Line::from(rates),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_sessions(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let rows = view.sessions.iter().take(usize::from(area.height)).map(|busy| {
        let entry = &busy.what;
        Row::new([
            entry.session.to_string(),
            entry.process.to_string(),
            entry.watches.to_string(),
            rate(busy.per_second),
            entry.name.clone(),
        ])
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Min(4),
    ];
    let head = Row::new(["session", "process", "watches", "events/s", "name"]).style(Style::new().bold());
    frame.render_widget(Table::new(rows, widths).header(head).block(block("sessions")), area);
}

fn draw_watches(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let rows = view.watches.iter().take(usize::from(area.height)).map(|busy| {
        let watch = &busy.what.watch;
        Row::new([
            busy.what.session.to_string(),
            watch.id.to_string(),
            shorten(&watch.kind, 8),
            rate(busy.per_second),
            watch.events.to_string(),
            show_signals(watch.signals),
        ])
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Min(4),
    ];
    let head =
        Row::new(["session", "watch", "kind", "events/s", "events", "signals"]).style(Style::new().bold());
    frame.render_widget(Table::new(rows, widths).header(head).block(block("watches")), area);
}

fn draw_histogram(frame: &mut Frame<'_>, area: Rect, title: &str, histogram: &Histogram) {
    let rows = histogram.rows(usize::from(area.height.saturating_sub(1)));
    let largest = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let bar_columns = usize::from(area.width).saturating_sub(NAME_COLUMNS + COUNT_COLUMNS + 2);
    let lines = rows.iter().map(|(name, count)| {
        let share = u128::from(*count) * (bar_columns as u128);
        let columns = usize::try_from(share.div_ceil(u128::from(largest))).unwrap_or(0);
        let count = u64_short(*count);
        Line::from(format!("{name:>NAME_COLUMNS$} {count:>COUNT_COLUMNS$} {}", "█".repeat(columns)))
    });
    let lines = if rows.is_empty() { vec![Line::from("nothing yet")] } else { lines.collect() };
    frame.render_widget(Paragraph::new(lines).block(block(title)), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = match &view.failure {
        Some(status) => Line::from(format!("{status} (trying again)")).reversed(),
        None => Line::from(format!("q quits  every {}", span::show(view.interval))).dim(),
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn block(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).title(title)
}

/// A rate in at most six characters.
fn rate(per_second: f64) -> String {
    match per_second {
        ..10.0 => format!("{per_second:.1}"),
        ..100_000.0 => format!("{per_second:.0}"),
        ..10_000_000.0 => format!("{:.0}k", per_second / 1e3),
        _ => format!("{:.0}M", per_second / 1e6),
    }
}

/// A count in at most seven characters.
fn u64_short(count: u64) -> String {
    match count {
        0..1_000_000 => count.to_string(),
        1_000_000..1_000_000_000 => format!("{}k", count / 1000),
        1_000_000_000..1_000_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn every_size_is_drawn() {
        let view = View::new("@x".as_ref(), Duration::from_secs(1));
        for (columns, lines) in [(80, 24), (20, 5), (1, 1), (200, 60), (3, 100), (100, 2)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("a terminal");
            terminal.draw(|frame| draw(frame, &view)).expect("a screen");
        }
    }

    #[test]
    fn rates_are_short() {
        let shown = [0.0, 9.94, 1234.5, 123_456.0, 98_765_432.0].map(rate);
        assert_eq!(shown, ["0.0", "9.9", "1234", "123k", "99M"]);
    }
}
