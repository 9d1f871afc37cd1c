//! Pictures as an SVG file that needs nothing else: no script, no style sheet, no font.

use std::fmt::Write as _;

use strongroom_base::units::bytes_text;

use super::{Picture, Series, Unit};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 40.0;
const CHART_HEIGHT: f64 = 180.0;
/// A chart with its title above and its dates below.
const CHART_PITCH: f64 = CHART_HEIGHT + 80.0;
const BAR_PITCH: f64 = 26.0;
/// About the width of a character of the font.
const CHARACTER: f64 = 7.2;
/// Where bars begin, after their labels.
const BAR_LEFT: f64 = 330.0;
/// Room for the number behind a bar.
const BAR_RIGHT: f64 = 100.0;

/// The picture as the text of a file.
pub fn document(picture: &Picture) -> String {
    let (bars, more) = picture.shown_bars();
    let charts = picture.series.len() as f64 * CHART_PITCH;
    let height = 60.0 + charts + 50.0 + bars.len().max(1) as f64 * BAR_PITCH + 70.0;
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = write!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut out, 20.0, 32.0, "start", 18, &picture.title);
    let mut top = 60.0;
    for series in &picture.series {
        chart(&mut out, top, series);
        top += CHART_PITCH;
    }
    text(&mut out, 20.0, top + 20.0, "start", 15, picture.bars_title);
    top += 40.0;
    let most = bars.iter().map(|bar| bar.whole).max().unwrap_or(0).max(1) as f64;
    let room = WIDTH - BAR_LEFT - BAR_RIGHT;
    for bar in bars {
        let (whole, own) = (bar.whole as f64 / most * room, bar.own as f64 / most * room);
        let characters = ((BAR_LEFT - 30.0) / CHARACTER) as usize;
        let label = crate::columns::shorten(&bar.label, characters);
        text(&mut out, BAR_LEFT - 10.0, top + 14.0, "end", 13, &label);
        rectangle(&mut out, (BAR_LEFT, top), (whole, 18.0), "#b9d7ea");
        rectangle(&mut out, (BAR_LEFT, top), (own, 18.0), "#2b6c99");
        let size = bytes_text(bar.whole);
        text(&mut out, BAR_LEFT + whole + 8.0, top + 14.0, "start", 13, &size);
        top += BAR_PITCH;
    }
    if bars.is_empty() {
        text(&mut out, 40.0, top + 14.0, "start", 13, "nothing yet");
        top += BAR_PITCH;
    }
    if more > 0 {
        let more = format!("and {more} more, which are smaller");
        text(&mut out, BAR_LEFT, top + 12.0, "start", 13, &more);
    }
    top += 30.0;
    rectangle(&mut out, (40.0, top), (14.0, 14.0), "#2b6c99");
    let own = "its own: freed if all of its snapshots were removed";
    text(&mut out, 60.0, top + 12.0, "start", 13, own);
    rectangle(&mut out, (480.0, top), (14.0, 14.0), "#b9d7ea");
    text(&mut out, 500.0, top + 12.0, "start", 13, "shared with others");
    out.push_str("</svg>\n");
    out
}

fn chart(out: &mut String, top: f64, series: &Series) {
    let title = match series.points.last() {
        Some((_, value)) => format!("{}: {}", series.title, series.unit.text(*value)),
        None => format!("{}: nothing yet", series.title),
    };
    text(out, 20.0, top + 15.0, "start", 15, &title);
    let (top, width) = (top + 30.0, WIDTH - LEFT - RIGHT);
    let bottom = top + CHART_HEIGHT;
    let step = step_of(series.most(), series.unit);
    let steps = (series.most() / step).ceil().max(1.0);
    let most = step * steps;
    for tick in 0..=steps as usize {
        let value = step * tick as f64;
        let y = bottom - value / most * CHART_HEIGHT;
        line(out, (LEFT, y), (LEFT + width, y), if tick == 0 { "#444444" } else { "#dddddd" });
        let label = if tick == 0 { "0".to_owned() } else { series.unit.text(value) };
        text(out, LEFT - 8.0, y + 4.0, "end", 12, &label);
    }
    let Some(span) = series.span() else { return };
    let ticks = if span.is_moment() { 0 } else { 4 };
    for tick in 0..=ticks {
        let x = LEFT + width * tick as f64 / f64::from(ticks.max(1) as u32);
        line(out, (x, bottom), (x, bottom + 5.0), "#444444");
        let date = span.text(span.time(tick, ticks));
        let anchor = if tick == 0 {
            "start"
        } else if tick == ticks {
            "end"
        } else {
            "middle"
        };
        text(out, x, bottom + 20.0, anchor, 12, &date);
    }
    let mut path = format!("M {LEFT:.1} {bottom:.1}");
    let mut y = bottom;
    for (time, value) in &series.points {
        let x = LEFT + width * span.share(*time);
        let _ = write!(path, " L {x:.1} {y:.1}");
        y = bottom - value / most * CHART_HEIGHT;
        let _ = write!(path, " L {x:.1} {y:.1}");
    }
    let end = LEFT + width;
    let _ = write!(path, " L {end:.1} {y:.1} L {end:.1} {bottom:.1} Z");
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"#b9d7ea\" fill-opacity=\"0.6\" stroke=\"#2b6c99\" stroke-width=\"1.5\"/>"
    );
}

/// The distance of two lines of the grid: one, two or five of a unit, so that there are at most six.
fn step_of(most: f64, unit: Unit) -> f64 {
    let mut scale = 1.0;
    if unit == Unit::Bytes {
        while most / scale >= 1000.0 {
            scale *= 1024.0;
        }
    }
    let rough = most / scale / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    scale * steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power)
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
    let text = escaped(text);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
    );
}

fn rectangle(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

/// A text without what XML gives a meaning, or does not allow.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}
