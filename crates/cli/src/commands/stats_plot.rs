//! `strongroom stats --plot`

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::Printable;
use strongroom_repository::RepositoryError;
use strongroom_upkeep::{Cost, Growth, GrowthPoint, growth_stats};

use crate::columns::output_columns;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::plot::{Bar, Picture, Series, Unit, svg, text};
use crate::progress::Words;
use crate::replaced::replace;
use crate::snapshot_arg::NarrowingArgs;
use crate::terminal::{name_json, printable, printable_bytes, printable_text};

/// The columns of a picture that goes to no terminal.
const COLUMNS: usize = 80;

/// Draws on the terminal, or into a file.
pub fn run(
    context: &Context,
    narrowing: &NarrowingArgs,
    file: Option<&Path>,
) -> Result<ExitCode, CliError> {
    if let Some(file) = file
        && file.extension().is_none_or(|name| name != "svg")
    {
        let message = format!("{} does not end with .svg", Printable::path(file));
        return Err(CliError::new(Exit::Failed, message, "--plot=FILE writes an SVG file"));
    }
    let repository = context.open()?;
    if !repository.keys.can_read() {
        return Err(RepositoryError::PutOnly.into());
    }
    let monitor = context.terminal.monitor(Words::files("counted"));
    let growth = growth_stats(&repository, &narrowing.resolve(), &monitor, &context.cancel);
    monitor.finish();
    let growth = growth?;
    report(context, &growth)?;
    let picture = picture(context.place_text()?, &growth);
    if let Some(file) = file {
        replace(file, svg::document(&picture).as_bytes()).map_err(|error| {
            let message = format!("cannot write {}: {error}", Printable::path(file));
            CliError::new(Exit::Failed, message, "choose a folder that exists and is yours")
        })?;
        context.terminal.line(format!("wrote {}", printable(file)))?;
    } else if !context.json() {
        let columns = output_columns().unwrap_or(COLUMNS);
        for line in text::lines(&picture, columns, crate::paint::output_has_colours()) {
            // All names in it are escaped already, and it has colours.
            context.terminal.raw(&line)?;
        }
    }
    Ok(if growth.unreadable > 0 { Exit::Damaged } else { Exit::Done }.into())
}

fn ratio(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| whole as f64 / part as f64)
}

/// The data of the picture, for programs.
fn report(context: &Context, growth: &Growth) -> std::io::Result<()> {
    for point in &growth.points {
        context.terminal.json(&json!({
            "event": "growth",
            "id": point.id.to_string(),
            "started": dates::rfc3339(point.started),
            "bytes": point.bytes,
            "unique_bytes": point.unique_bytes,
            "stored_bytes": point.stored_bytes,
            "dedup_ratio": ratio(point.bytes, point.unique_bytes),
        }))?;
    }
    for Cost { owner, snapshots, stored_bytes, own_stored_bytes } in &growth.costs {
        context.terminal.json(&json!({
            "event": "cost",
            "host": owner.host,
            "paths": owner.paths.iter().map(|path| name_json(path)).collect::<Vec<_>>(),
            "snapshots": snapshots,
            "stored_bytes": stored_bytes,
            "own_stored_bytes": own_stored_bytes,
        }))?;
    }
    context.terminal.json(&json!({
        "event": "summary",
        "snapshots": growth.points.len(),
        "owners": growth.costs.len(),
        "unreadable": growth.unreadable,
    }))
}

fn picture(place: String, growth: &Growth) -> Picture {
    let series = |title, unit, value: fn(&GrowthPoint) -> Option<f64>| {
        let points = growth.points.iter();
        let points = points.filter_map(|point| Some((point.started, value(point)?)));
        Series { title, unit, points: points.collect() }
    };
    let bar = |cost: &Cost| {
        let paths: Vec<String> = cost.owner.paths.iter().map(|p| printable_bytes(p)).collect();
        let label = format!("{}:{}", printable_text(&cost.owner.host), paths.join(","));
        Bar { label, whole: cost.stored_bytes, own: cost.own_stored_bytes }
    };
    Picture {
        title: format!("Strongroom repository {}", printable_text(&place)),
        series: vec![
            series("stored, compressed", Unit::Bytes, |point| Some(point.stored_bytes as f64)),
            series("size of all snapshots, restored", Unit::Bytes, |point| {
                Some(point.bytes as f64)
            }),
            series("deduplication", Unit::Ratio, |point| ratio(point.bytes, point.unique_bytes)),
        ],
        bars_title: "what the snapshots of each machine and folder take",
        bars: growth.costs.iter().map(bar).collect(),
    }
}
