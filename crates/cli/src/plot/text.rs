//! Pictures of block characters, for a terminal.

use strongroom_base::units::bytes_text;

use super::{Bar, Picture, Series, Span};
use crate::columns::shorten;

/// Lines of a chart.
const ROWS: usize = 8;
/// Columns of the numbers at the left, with the axis.
const LABEL_COLUMNS: usize = 12;
/// A column of no, one, and up to eight eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How colours are written; empty for none.
const CYAN: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";
const END: &str = "\x1b[0m";

/// The picture as lines of at most this many columns.
pub fn lines(picture: &Picture, columns: usize, colours: bool) -> Vec<String> {
    let columns = columns.clamp(40, 400);
    let mut lines = Vec::new();
    for series in &picture.series {
        lines.extend(chart(series, columns, colours));
        lines.push(String::new());
    }
    lines.extend(bars(picture, columns, colours));
    lines
}

fn coloured(colour: &str, text: &str, colours: bool) -> String {
    if colours && !text.trim().is_empty() {
        format!("{colour}{text}{END}")
    } else {
        text.to_owned()
    }
}

fn chart(series: &Series, columns: usize, colours: bool) -> Vec<String> {
    let mut lines = vec![match series.points.last() {
        Some((_, value)) => format!("{}: {}", series.title, series.unit.text(*value)),
        None => format!("{}: nothing yet", series.title),
    }];
    let Some(span) = series.span() else { return lines };
    let width = columns - LABEL_COLUMNS - 1;
    let most = series.most();
    let heights: Vec<usize> = (0..width)
        .map(|column| {
            let value = match span.is_moment() {
                true => series.points.last().map(|(_, value)| *value),
                false => series.at(span.time(column + 1, width)),
            };
            let value = value.unwrap_or(0.0);
            let eighths = (value / most * (ROWS * 8) as f64).round() as usize;
            // What is there is seen.
            if value > 0.0 { eighths.max(1) } else { 0 }
        })
        .collect();
    for row in (0..ROWS).rev() {
        let label = match row {
            7 => series.unit.text(most),
            3 => series.unit.text(most / 2.0),
            _ => String::new(),
        };
        let tick = if label.is_empty() { '│' } else { '┤' };
        let filled = |height: &usize| EIGHTHS[height.saturating_sub(row * 8).min(8)];
        let bar: String = heights.iter().map(filled).collect();
        let bar = coloured(CYAN, bar.trim_end(), colours);
        lines.push(format!("{label:>LABEL_COLUMNS$}{tick}{bar}").trim_end().to_owned());
    }
    lines.push(format!("{:>LABEL_COLUMNS$}┴{}", "0", "─".repeat(width)));
    lines.push(date_line(span, width));
    lines
}

/// The dates below the axis, as many as have room.
fn date_line(span: Span, width: usize) -> String {
    let indent = " ".repeat(LABEL_COLUMNS + 1);
    let first = span.text(span.first);
    if span.is_moment() {
        return format!("{indent}{first}");
    }
    let mut line: Vec<char> = vec![' '; width];
    let count = if width >= 120 { 5 } else { 3 };
    for tick in 0..count {
        let text: Vec<char> = span.text(span.time(tick, count - 1)).chars().collect();
        let middle = width * tick / (count - 1);
        let from = middle.saturating_sub(text.len() / 2).min(width.saturating_sub(text.len()));
        let is_free = line[from.saturating_sub(2)..].iter().all(|character| *character == ' ');
        if is_free && from + text.len() <= width {
            line[from..from + text.len()].copy_from_slice(&text);
        }
    }
    let line: String = line.into_iter().collect();
    format!("{indent}{}", line.trim_end())
}

fn bars(picture: &Picture, columns: usize, colours: bool) -> Vec<String> {
    let (shown, more) = picture.shown_bars();
    let mut lines = vec![picture.bars_title.to_owned()];
    if shown.is_empty() {
        lines.push("  nothing yet".to_owned());
        return lines;
    }
    let longest = shown.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let label_columns = longest.min(columns / 3);
    // The number has 10 columns, with two before it and two more at the left.
    let width = columns - label_columns - 15;
    let most = shown.iter().map(|bar| bar.whole).max().unwrap_or(0).max(1);
    for Bar { label, whole, own } in shown {
        let of = |bytes: u64| (bytes as f64 / most as f64 * width as f64).round() as usize;
        let (whole_columns, own_columns) = (of(*whole).min(width), of(*own).min(of(*whole)));
        let own_text = coloured(CYAN, &"█".repeat(own_columns), colours);
        let shared = "░".repeat((whole_columns - own_columns).min(width));
        let shared = coloured(DIM, &shared, colours);
        let label = shorten(label, label_columns);
        let pad = " ".repeat(label_columns - label.chars().count());
        let size = bytes_text(*whole);
        lines.push(format!("  {label}{pad} {size:>10} {own_text}{shared}").trim_end().to_owned());
    }
    if more > 0 {
        lines.push(format!("  and {more} more, which are smaller"));
    }
    lines.push(String::new());
    lines.push(
        "█ its own: freed if all of its snapshots were removed   ░ shared with others".to_owned(),
    );
    lines
}
