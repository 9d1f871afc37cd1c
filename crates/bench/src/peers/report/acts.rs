//! One data set's tables and plot.

use super::super::plot::{self, Bar, Kind, Panel};
use super::super::results::{ContenderInfo, FLOOR, OURS, Sample, SetResults};
use crate::table::{NONE, megabytes, row, seconds, table, times};

/// Seconds, MiB, MB: of those contenders that are wanted, and what ours is to the best of others.
pub fn main_table(set: &SetResults, wanted: impl Fn(&ContenderInfo) -> bool) -> String {
    let acts = timed_acts(set);
    let stored = stored_acts(set);
    let mut head = vec![String::new()];
    head.extend(acts.iter().map(|act| title(set, act)));
    head.push("peak MiB".to_owned());
    head.push("MB stored".to_owned());
    head.extend(stored.iter().map(|act| format!("+ {}", title(set, act))));
    let mut rows = vec![head];
    let wanted: Vec<&ContenderInfo> = set.contenders.iter().filter(|info| wanted(info)).collect();
    for info in &wanted {
        let mut cells = vec![format!("{} {}", info.tool, info.level)];
        cells.extend(acts.iter().map(|act| times_cell(set, &info.id, act)));
        let peak = set.peak_kib(&info.id);
        cells.push(peak.map_or(NONE.to_owned(), |kib| (kib >> 10).to_string()));
        let first = set.median(&info.id, "first", stored_of);
        cells.push(first.map_or(NONE.to_owned(), megabytes));
        let added = |act: &String| added_of(set, &info.id, act);
        cells.extend(stored.iter().map(|act| added(act).map_or(NONE.to_owned(), megabytes)));
        rows.push(cells);
    }
    let ours = wanted.iter().find(|info| info.tool == OURS);
    if let Some(ours) = ours.filter(|_| wanted.len() > 1) {
        rows.push(ratio_row(set, ours, &wanted, &acts, &stored));
    }
    table(&rows)
}

/// Ours divided by the best of the others, column by column.
fn ratio_row(
    set: &SetResults,
    ours: &ContenderInfo,
    all: &[&ContenderInfo],
    acts: &[String],
    stored: &[String],
) -> Vec<String> {
    let ratio = |of: &dyn Fn(&str) -> Option<f64>| {
        let peers = all.iter().filter(|info| info.tool != OURS);
        let best = peers.filter_map(|info| of(&info.id)).fold(f64::INFINITY, f64::min);
        let ours = of(&ours.id)?;
        (best.is_finite() && best > 0.0).then(|| ours / best)
    };
    let text = |ratio: Option<f64>| ratio.map_or(NONE.to_owned(), times);
    let mut cells = vec!["ours ÷ best peer".to_owned()];
    for act in acts {
        let wall = ratio(&|id| over(set, id, act, wall_of));
        let cpu = ratio(&|id| over(set, id, act, cpu_of));
        cells.push(if wall.is_none() {
            NONE.to_owned()
        } else {
            format!("{} ({})", text(wall), text(cpu))
        });
    }
    cells.push(text(ratio(&|id| set.peak_kib(id).map(|kib| kib as f64))));
    cells.push(text(ratio(&|id| set.median(id, "first", stored_of))));
    cells.extend(stored.iter().map(|act| text(ratio(&|id| added_of(set, id, act)))));
    cells
}

/// What cannot be undercut, in a sentence.
pub fn floors(set: &SetResults) -> String {
    let names = [
        ("cat", "reading every file"),
        ("find", "`find -printf`"),
        ("tar-1", "`tar \\| zstd -1`"),
        ("tar-3", "`tar \\| zstd -3`"),
        ("cp", "`cp -a`"),
        ("cp-sync", "`cp -a` and `sync -f`"),
    ];
    let texts = names.iter().filter_map(|(floor, name)| {
        let stored = set.median(FLOOR, floor, stored_of).filter(|bytes| *bytes > 0.0);
        let stored = stored.map_or(String::new(), |bytes| format!(", {} MB", megabytes(bytes)));
        set.median(FLOOR, floor, wall_of)?;
        Some(format!("{name} {}{stored}", times_cell(set, FLOOR, floor)))
    });
    format!("Floors: {}.", texts.collect::<Vec<_>>().join("; ")).replace("\\|", "|")
}

/// What passed through system calls.
pub fn traffic_table(set: &SetResults) -> String {
    let acts = timed_acts(set);
    let mut rows =
        vec![row(["".to_owned()].into_iter().chain(acts.iter().map(|act| title(set, act))))];
    for info in &set.contenders {
        let mut cells = vec![format!("{} {}", info.tool, info.level)];
        for act in &acts {
            let read = over(set, &info.id, act, |sample| sample.usage.read_bytes as f64);
            let written = over(set, &info.id, act, |sample| sample.usage.written_bytes as f64);
            let both = read.zip(written);
            let text = |(read, written)| format!("{} / {}", megabytes(read), megabytes(written));
            cells.push(both.map_or(NONE.to_owned(), text));
        }
        rows.push(cells);
    }
    table(&rows)
}

/// Bars of what matters most.
pub fn plot(set: &SetResults) -> String {
    let newest = set.acts("restore-").pop().unwrap_or_default();
    let next_acts: Vec<String> =
        timed_acts(set).into_iter().filter(|act| act.starts_with("next-")).collect();
    let next = next_acts.first().cloned().unwrap_or_default();
    let mut panels = vec![
        panel(set, "first backup", "s", &["cat", "tar-1"], |set, id| {
            set.median(id, "first", wall_of)
        }),
        panel(set, "first backup", "s of all processors", &[], |set, id| {
            set.median(id, "first", cpu_of)
        }),
        panel(set, "stored by the first", "MB", &[], |set, id| {
            set.median(id, "first", stored_of).map(|bytes| bytes / 1e6)
        }),
    ];
    for act in next_acts.first().into_iter().chain(next_acts.iter().skip(1).last()) {
        panels.push(panel(
            set,
            &format!("added by {}", version_title(set, act)),
            "MB",
            &[],
            |set, id| added_of(set, id, act).map(|bytes| bytes / 1e6),
        ));
    }
    panels.push(panel(set, &version_title(set, &next), "s", &[], |set, id| {
        over(set, id, &next, wall_of)
    }));
    panels.push(panel(set, "unchanged", "s", &["find"], |set, id| {
        set.median(id, "unchanged", wall_of)
    }));
    panels.push(panel(set, "restore", "s", &["cp", "cp-sync"], |set, id| {
        set.median(id, &newest, wall_of)
    }));
    panels.push(panel(set, "verify", "s", &[], |set, id| set.median(id, "verify", wall_of)));
    panels.push(panel(set, "peak memory", "MiB", &[], |set, id| {
        set.peak_kib(id).map(|kib| kib as f64 / 1024.0)
    }));
    panels.retain(|panel| panel.bars.iter().any(|bar| bar.kind != Kind::Floor));
    plot::bars(&format!("{}: shorter is better", set.name), &panels)
}

fn panel(
    set: &SetResults,
    title: &str,
    unit: &'static str,
    floors: &[&str],
    of: impl Fn(&SetResults, &str) -> Option<f64>,
) -> Panel {
    let contenders = set.contenders.iter().filter(|info| info.is_default);
    let bars = contenders.filter_map(|info| {
        let kind = if info.tool == OURS { Kind::Ours } else { Kind::Peer };
        Some(Bar { label: info.tool.clone(), value: of(set, &info.id)?, kind })
    });
    let floors = floors.iter().filter_map(|floor| {
        let value = set.median(FLOOR, floor, wall_of)?;
        Some(Bar { label: floor_label(floor).to_owned(), value, kind: Kind::Floor })
    });
    Panel { title: title.to_owned(), unit, bars: bars.chain(floors).collect() }
}

fn floor_label(floor: &str) -> &str {
    match floor {
        "tar-1" => "tar | zstd -1",
        "find" => "find -printf",
        "cp" => "cp -a",
        "cp-sync" => "cp -a, sync",
        other => other,
    }
}

/// Acts that have a column of times. Many next versions share one.
fn timed_acts(set: &SetResults) -> Vec<String> {
    let next = set.acts("next-");
    let next = if next.len() > 4 { vec!["next-".to_owned()] } else { next };
    let has = |act: &&str| !set.acts(act).is_empty();
    let before = ["first", "unchanged"].into_iter().filter(has).map(str::to_owned);
    let after = ["verify", "prune"].into_iter().filter(has).map(str::to_owned);
    before.chain(next).chain(set.acts("restore-")).chain(after).collect()
}

/// Acts that add to a repository.
fn stored_acts(set: &SetResults) -> Vec<String> {
    timed_acts(set)
        .into_iter()
        .filter(|act| act == "unchanged" || act.starts_with("next-"))
        .collect()
}

/// How an act is called at the head of a column.
fn title(set: &SetResults, act: &str) -> String {
    let many_restores = set.acts("restore-").len() > 1;
    match act.split_once('-') {
        Some(("next", "")) => "next".to_owned(),
        Some(("next", version)) => format!("{version}{}", ordinal(version)),
        Some(("restore", version)) if many_restores => {
            format!("restore {version}{}", ordinal(version))
        }
        Some(("restore", _)) => "restore".to_owned(),
        _ => act.to_owned(),
    }
}

/// How a next version is called alone.
fn version_title(set: &SetResults, act: &str) -> String {
    if act == "next-" {
        "all next versions".to_owned()
    } else {
        format!("the {} version", title(set, act))
    }
}

fn ordinal(number: &str) -> &'static str {
    match number {
        "11" | "12" | "13" => "th",
        _ if number.ends_with('1') => "st",
        _ if number.ends_with('2') => "nd",
        _ if number.ends_with('3') => "rd",
        _ => "th",
    }
}

/// `wall (cpu)`.
fn times_cell(set: &SetResults, subject: &str, act: &str) -> String {
    let (wall, cpu) = (over(set, subject, act, wall_of), over(set, subject, act, cpu_of));
    let text = |(wall, cpu)| format!("{} ({})", seconds(wall), seconds(cpu));
    wall.zip(cpu).map_or(NONE.to_owned(), text)
}

/// The median over all samples of an act, or of all acts where the name ends in `-`.
fn over(set: &SetResults, subject: &str, act: &str, of: impl Fn(&Sample) -> f64) -> Option<f64> {
    if !act.ends_with('-') {
        return set.median(subject, act, of);
    }
    let samples = set.samples.iter();
    let samples = samples.filter(|sample| sample.subject == subject && sample.act.starts_with(act));
    super::super::results::median(samples.map(of).collect())
}

/// Bytes that an act added; of all next versions together if they share a column.
pub fn added_of(set: &SetResults, subject: &str, act: &str) -> Option<f64> {
    if act.is_empty() {
        return None;
    }
    if !act.ends_with('-') {
        return set.median(subject, act, |sample| sample.added.unwrap_or_default() as f64);
    }
    let acts = set.acts(act);
    let each = acts.iter().map(|act| added_of(set, subject, act));
    each.sum::<Option<f64>>()
}

/// Seconds on the wall.
pub fn wall_of(sample: &Sample) -> f64 {
    sample.usage.wall
}

/// Seconds of all processors.
pub fn cpu_of(sample: &Sample) -> f64 {
    sample.usage.cpu
}

/// Bytes stored afterwards.
pub fn stored_of(sample: &Sample) -> f64 {
    sample.stored.unwrap_or_default() as f64
}
