//! Bars as SVG: readable on light and on dark pages, and as text.

use std::fmt::Write as _;

/// One quantity of everybody.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What is compared.
    pub title: String,
    /// Its unit.
    pub unit: &'static str,
    /// Who, and how much.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Who.
    pub label: String,
    /// How much.
    pub value: f64,
    /// How it is drawn.
    pub kind: Kind,
}

/// Whose bar it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Strongroom's.
    Ours,
    /// A peer's.
    Peer,
    /// What cannot be undercut.
    Floor,
}

const COLUMNS: usize = 2;
const PANEL_WIDTH: usize = 430;
const LABEL_WIDTH: usize = 96;
const BAR_WIDTH: usize = 240;
const BAR_HEIGHT: usize = 18;
const HEAD_HEIGHT: usize = 34;
const MARGIN: usize = 12;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.page { fill: #ffffff; }
.ours { fill: #0a66c2; }
.peer { fill: #a8b3bf; }
.floor { fill: none; stroke: #6b7783; stroke-dasharray: 3 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; }
  .ours { fill: #4ea1ff; }
  .peer { fill: #57616c; }
  .floor { stroke: #8b949e; }
}";

/// Panels, two in a row; shorter is better in all of them.
pub fn bars(title: &str, panels: &[Panel]) -> String {
    let rows: Vec<&[Panel]> = panels.chunks(COLUMNS).collect();
    let row_height = |row: &[Panel]| {
        HEAD_HEIGHT + BAR_HEIGHT * row.iter().map(|panel| panel.bars.len()).max().unwrap_or(0)
    };
    let height: usize = 2 * MARGIN + rows.iter().map(|row| row_height(row)).sum::<usize>();
    let width = COLUMNS * PANEL_WIDTH + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n\
         <style>\n{STYLE}\n</style>\n<rect class=\"page\" width=\"{width}\" \
         height=\"{height}\"/>\n",
        escape(title)
    );
    let mut top = MARGIN;
    for row in rows {
        for (column, panel) in row.iter().enumerate() {
            draw(&mut svg, panel, MARGIN + column * PANEL_WIDTH, top);
        }
        top += row_height(row);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, panel: &Panel, left: usize, top: usize) {
    let longest = panel.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let title = format!("{}, {}", panel.title, panel.unit);
    text(svg, "title", "start", left, top + 16, &title);
    for (index, bar) in panel.bars.iter().enumerate() {
        let y = top + HEAD_HEIGHT - 8 + index * BAR_HEIGHT;
        let share = if longest > 0.0 { (bar.value / longest).max(0.0) } else { 0.0 };
        let length = ((share * BAR_WIDTH as f64).round() as usize).max(1);
        let class = match bar.kind {
            Kind::Ours => "ours",
            Kind::Peer => "peer",
            Kind::Floor => "floor",
        };
        let x = left + LABEL_WIDTH;
        text(svg, "label", "end", x - 6, y + 12, &bar.label);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{}\"/>",
            BAR_HEIGHT - 4
        );
        text(svg, "value", "start", x + length + 5, y + 12, &number(bar.value));
    }
}

fn text(svg: &mut String, class: &str, anchor: &str, x: usize, y: usize, content: &str) {
    let content = escape(content);
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x}\" y=\"{y}\">{content}</text>"
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A number with about three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.5 => format!("{value:.0}"),
        size if size >= 9.95 => format!("{value:.1}"),
        size if size >= 0.995 => format!("{value:.2}"),
        size if size >= 0.000_5 => format!("{value:.3}"),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        let values = [1234.4, 99.6, 23.45, 1.234, 0.1234, 0.0004, -3.456];
        let texts = ["1234", "100", "23.4", "1.23", "0.123", "0", "-3.46"];
        assert_eq!(values.map(number), texts);
    }

    #[test]
    fn bars_are_as_long_as_they_should_be() {
        let bar = |label: &str, value, kind| Bar { label: label.to_owned(), value, kind };
        let panel = Panel {
            title: "first <backup>".to_owned(),
            unit: "s",
            bars: vec![
                bar("strongroom", 5.0, Kind::Ours),
                bar("restic", 10.0, Kind::Peer),
                bar("cat", 0.0, Kind::Floor),
            ],
        };
        let svg = bars("a & b", &[panel.clone(), panel.clone(), panel]);
        assert_eq!(svg.matches("<rect class=\"ours\"").count(), 3);
        assert!(svg.contains("width=\"120\"") && svg.contains("width=\"240\""));
        assert!(
            svg.contains("<title>a &amp; b</title>") && svg.contains("first &lt;backup&gt;, s")
        );
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains("prefers-color-scheme: dark"));
        // Two rows of panels with three bars each.
        let height = 2 * MARGIN + 2 * (HEAD_HEIGHT + 3 * BAR_HEIGHT);
        assert!(svg.contains(&format!("height=\"{height}\"")));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(bars("empty", &[]).ends_with("</svg>\n"));
    }
}
