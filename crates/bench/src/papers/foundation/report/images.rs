//! Figure 9: reading whole images.

use super::super::disk::{PAIRS, PAPER};
use super::super::nights::BLOCK_BYTES;
use super::super::replay::{Image, Reading, Replay};
use super::super::{READ_EVERY, SHOWN};
use super::{minutes, speed};
use crate::table::{NONE, grouped, row, table};

/// The section.
pub fn section(replay: &Replay) -> String {
    let parts = [
        TEXT.to_owned(),
        seeking(replay),
        "All of it, in minutes, and MB/s:".to_owned(),
        all(replay),
        "Blocks found in the cache:".to_owned(),
        hits(replay),
        "MB/s of the last image on other disks:".to_owned(),
        elsewhere(replay),
    ];
    parts.map(|part| part.trim().to_owned()).join("\n\n")
}

const TEXT: &str = "\
## Figure 9: reading whole images

The image of a night, read from the archive with empty caches: minutes that the paper's archive disk \
seeks. The paper prints means over the images of its nights, so the mean here is of every \
fiftieth night. A gap between two places is a seek, however short it is. *Ours by the hints* is \
how an export of the image would be read from end to end without reading ahead; *arena order* is a \
restore. What is sealed together is read together, 256 KiB or 3.75 MiB, and is in the cache if it \
is wanted next.";

fn line(name: String, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name).chain(cells).collect()
}

fn head() -> Vec<String> {
    line(String::new(), Reading::ALL.into_iter().map(|reading| reading.name().to_owned()))
}

fn shown(replay: &Replay) -> impl Iterator<Item = &Image> {
    replay.images.iter().filter(|image| SHOWN.contains(&image.night))
}

fn seeking(replay: &Replay) -> String {
    let mut rows = vec![head()];
    let spent = |image: &Image| -> Vec<f64> {
        image.reads.iter().map(|(traffic, _)| traffic.seeking(&PAPER.archive)).collect()
    };
    for image in shown(replay) {
        let name = format!("night {}", image.night);
        rows.push(line(name, spent(image).into_iter().map(minutes)));
    }
    let every = replay.images.iter().filter(|image| image.night.is_multiple_of(READ_EVERY));
    let every: Vec<Vec<f64>> = every.map(spent).collect();
    if !every.is_empty() {
        let mean = |way: usize| {
            let sum: f64 = every.iter().map(|image| image[way]).sum();
            minutes(sum / every.len() as f64)
        };
        rows.push(line("mean".to_owned(), (0..Reading::ALL.len()).map(mean)));
    }
    rows.push(row(["paper, whole image", "739", "41", "35", "8", "18", NONE, NONE, NONE]));
    table(&rows)
}

fn all(replay: &Replay) -> String {
    let mut rows = vec![head()];
    for image in shown(replay) {
        let cells = image.reads.iter().map(|(traffic, _)| {
            let seconds = traffic.seconds(&PAPER.archive);
            format!("{} ({})", minutes(seconds), speed(image.blocks * BLOCK_BYTES, seconds))
        });
        rows.push(line(format!("night {}", image.night), cells));
    }
    table(&rows)
}

fn hits(replay: &Replay) -> String {
    let mut rows = vec![head()];
    for image in shown(replay) {
        let cells = image.reads.iter().map(|(_, hits)| grouped(*hits));
        rows.push(line(format!("night {}", image.night), cells));
    }
    rows.push(row(["paper, times those by value", NONE, NONE, "1", "24", "3.2", NONE, NONE, NONE]));
    table(&rows)
}

fn elsewhere(replay: &Replay) -> String {
    let mut rows = vec![head()];
    if let Some(image) = replay.images.last() {
        for pair in PAIRS {
            let cells = image.reads.iter().map(|(traffic, _)| {
                speed(image.blocks * BLOCK_BYTES, traffic.seconds(&pair.archive))
            });
            rows.push(line(pair.name.to_owned(), cells));
        }
    }
    table(&rows)
}
