//! The document: each of the papers' tables, ours first.

use super::printed::{self, Overlap};
use super::series::Series;
use super::store::Version;
use crate::table::{NONE, grouped, megabytes, row, seconds, table, times};

/// The document of all series.
pub fn document(measured: &[(Series, Vec<Version>)]) -> String {
    let mut parts = vec![HEAD.to_owned()];
    parts.push(ARROW_1_TEXT.to_owned());
    for (series, versions) in measured {
        parts.push(titled(series, &arrow_1(versions)));
    }
    parts.push(format!("What the paper prints, of Linux 2.6.23:\n\n{}", arrow_1_printed()));
    parts.push(ARROW_2_TEXT.to_owned());
    for (series, versions) in measured {
        parts.push(titled(series, &arrow_2(versions)));
    }
    parts.push(format!("What the paper prints:\n\n{}", arrow_2_printed()));
    parts.push(ARROW_4_TEXT.to_owned());
    for (series, versions) in measured.iter().filter(|(series, _)| series.name != "linux") {
        parts.push(titled(series, &arrow_4(versions)));
    }
    parts.push(format!("What the paper prints, of Linux:\n\n{}", arrow_4_printed()));
    parts.push(YURU_2_TEXT.to_owned());
    parts.push(yuru_2(measured));
    parts.push(format!("What the paper prints:\n\n{}", yuru_2_printed()));
    let trimmed: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
    format!("{}\n", trimmed.join("\n\n"))
}

const HEAD: &str = "\
# Beside the papers

Made by `cargo run -p strongroom-bench --release -- papers`; not edited by hand. Each release of a series is put at one same \
path, with inodes and times of its own, and stored by Strongroom with its defaults: encryption, \
parity of 3 %, compression. The papers stored neither compressed nor encrypted, on machines of \
their time: what compares is growth with the size of a patch. *Growth* is that of the sum of all \
files' lengths in the repository. Seconds are one run's, on the wall (and of all processors).";

const ARROW_1_TEXT: &str = "\
## Arrow, table 1: patches and growth

*Patch* is the length of `diff -ruNa` from the release before, *gzip* its length after `gzip -9`; \
*files* are those that it touches. In the paper each patch is against the first \
release.";

const ARROW_2_TEXT: &str = "\
## Arrow, table 2: what is stored

Arrow keeps a tree of links, version files (lists of chunks) and chunks. Here trees and recipes \
are what tree and versions are there; *around them* are parity, signatures, summaries and small \
objects, which have no counterpart but Arrow's parity, counted with its chunks.";

const ARROW_4_TEXT: &str = "\
## Arrow, table 4: releases that change much

*Delta* is the growth by a release.";

const YURU_2_TEXT: &str = "\
## Yuru, table 2: duplicates eliminated

Of each release but the first: what the release before has as a whole file of the same path, \
what `rsync` finds (all but its literal data), what Strongroom finds in whole chunks, and what the \
repository grew by, which deltas and compression make less. Shares are of the release, as in the \
paper, which prints each of them in the row of the release before.";

fn titled(series: &Series, table: &str) -> String {
    format!("{}, {}:\n\n{table}", capital(&series.name), series.about)
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn time(version: &Version) -> String {
    format!("{} ({})", seconds(version.usage.wall), seconds(version.usage.cpu))
}

/// How many times one count is another.
fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { NONE.to_owned() } else { times(part as f64 / whole as f64) }
}

fn arrow_1(versions: &[Version]) -> String {
    let head = [
        "release", "patch", "gzip", "source", "backup", "growth", "÷ patch", "÷ gzip", "time",
        "files",
    ];
    let mut rows = vec![row(head)];
    for version in versions {
        let change = version.change.unwrap_or_default();
        let files = version.change.map_or(version.files, |change| change.patch_files);
        rows.push(row([
            version.name.clone(),
            grouped(change.patch_bytes),
            grouped(change.gzip_bytes),
            grouped(version.bytes),
            grouped(version.stored),
            grouped(version.growth),
            ratio(version.growth, change.patch_bytes),
            ratio(version.growth, change.gzip_bytes),
            time(version),
            grouped(files),
        ]));
    }
    table(&rows)
}

fn arrow_1_printed() -> String {
    let head = ["patch", "patch size", "source", "backup", "growth", "÷ patch", "time", "files"];
    let mut rows = vec![row(head)];
    for (number, (patch, parts)) in printed::arrow_1().iter().zip(printed::arrow_2()).enumerate() {
        let growth = parts.difference;
        rows.push(row([
            number.to_string(),
            grouped(patch.patch),
            grouped(patch.source),
            grouped(patch.backup),
            grouped(growth),
            ratio(growth, patch.patch),
            format!("{:.2}", patch.time),
            grouped(patch.files),
        ]));
    }
    table(&rows)
}

fn arrow_2(versions: &[Version]) -> String {
    let head = [
        "release",
        "snapshots",
        "chunks",
        "trees and recipes",
        "content",
        "around them",
        "difference",
    ];
    let mut rows = vec![row(head)];
    for (number, version) in versions.iter().enumerate() {
        rows.push(row([
            version.name.clone(),
            (number + 1).to_string(),
            grouped(version.chunks),
            grouped(version.tree_bytes),
            grouped(version.data_bytes),
            grouped(version.overhead_bytes),
            grouped(if number == 0 { 0 } else { version.growth }),
        ]));
    }
    table(&rows)
}

fn arrow_2_printed() -> String {
    let mut rows = vec![row(["patch", "tree", "versions", "chunks", "difference"])];
    for (number, parts) in printed::arrow_2().iter().enumerate() {
        let counts = [number as u64, parts.tree, parts.versions, parts.chunks, parts.difference];
        rows.push(row(counts.map(grouped)));
    }
    table(&rows)
}

fn arrow_4(versions: &[Version]) -> String {
    let mut rows = vec![row(["release", "files", "time", "source", "size", "delta", "÷ gzip"])];
    for version in versions {
        let files = version.change.map_or(version.files, |change| change.patch_files);
        let gzip = version.change.unwrap_or_default().gzip_bytes;
        rows.push(row([
            version.name.clone(),
            grouped(files),
            time(version),
            grouped(version.bytes),
            grouped(version.stored),
            grouped(if version.change.is_none() { 0 } else { version.growth }),
            ratio(version.growth, gzip),
        ]));
    }
    table(&rows)
}

fn arrow_4_printed() -> String {
    let mut rows = vec![row(["kernel", "files", "time, 1 disk", "time, RAID-5", "size", "delta"])];
    for release in printed::arrow_4() {
        rows.push(row([
            release.kernel,
            grouped(release.files),
            format!("{:.2}", release.time_disk),
            format!("{:.2}", release.time_raid),
            grouped(release.size),
            grouped(release.delta),
        ]));
    }
    table(&rows)
}

/// MB, and their share of a release.
fn share(bytes: u64, all: u64) -> String {
    let percent = 100.0 * bytes as f64 / all.max(1) as f64;
    format!("{} ({percent:.2} %)", megabytes(bytes as f64))
}

fn yuru_2(measured: &[(Series, Vec<Version>)]) -> String {
    let head = [
        "data set",
        "version",
        "MB",
        "files",
        "same files, MB",
        "found by rsync, MB",
        "in chunks, MB",
        "growth, MB",
    ];
    let mut rows = vec![row(head)];
    for (series, versions) in measured {
        for version in versions {
            let all = version.bytes;
            let found = |new: u64| share(all.saturating_sub(new), all);
            let of = |text: &dyn Fn(super::store::Change) -> String| {
                version.change.map_or(NONE.to_owned(), text)
            };
            rows.push(row([
                series.name.clone(),
                version.name.clone(),
                megabytes(all as f64),
                of(&|change| grouped(change.same_files)),
                of(&|change| share(change.same_bytes, all)),
                of(&|change| found(change.rsync_bytes)),
                found(version.new_bytes),
                share(version.growth, all),
            ]));
        }
    }
    table(&rows)
}

fn yuru_2_printed() -> String {
    let mut rows = vec![row(["data set", "version", "MB", "files", "same files, MB"])];
    for release in printed::yuru_2() {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let next = release.next.as_ref();
        let share = |next: &Overlap| format!("{:.1} ({:.2} %)", next.megabytes, next.percent);
        rows.push(row([
            release.dataset.clone(),
            release.version.clone(),
            format!("{:.1}", release.size),
            or_none(next.map(|next| grouped(next.files))),
            or_none(next.map(share)),
        ]));
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::super::store::Change;
    use super::*;

    #[test]
    fn all_tables_stand_in_the_document() {
        let series = |name: &str| Series {
            name: name.to_owned(),
            about: "releases".to_owned(),
            releases: Vec::new(),
        };
        let first = Version {
            name: "1.0".to_owned(),
            files: 1_000,
            bytes: 2_000_000,
            stored: 500_000,
            growth: 500_000,
            new_bytes: 1_500_000,
            ..Version::default()
        };
        let change = Change {
            patch_bytes: 30_000,
            gzip_bytes: 8_000,
            patch_files: 12,
            same_files: 988,
            same_bytes: 1_900_000,
            rsync_bytes: 40_000,
        };
        let second = Version {
            name: "1.1".to_owned(),
            change: Some(change),
            growth: 10_000,
            stored: 510_000,
            new_bytes: 80_000,
            ..first.clone()
        };
        let versions = vec![first, second];
        let text = document(&[(series("linux"), versions.clone()), (series("django"), versions)]);
        for line in [
            "| 1.1 | 30,000 | 8,000 | 2,000,000 | 510,000 | 10,000 | 0.33× | 1.25× | 0.000 (0.000) \
            | 12 |",
            "| 17 | 555,389 | 252,150,368 | 292,006,750 | 898,723 | 1.62× | 277.29 | 218 |",
            "| 1.1 | 2 | 0 | 0 | 0 | 0 | 10,000 |",
            "| 17 | 6,020,348 | 23,620,716 | 262,365,686 | 898,723 |",
            "| 2.6.25 | 13,940 | 1185.11 | 111.60 | 1,266,597,571 | 103,798,685 |",
            "| django | 1.1 | 2.00 | 988 | 1.90 (95.00 %) | 1.96 (98.00 %) | 1.92 (96.00 %) | \
            0.0100 (0.50 %) |",
            "| xen | 4.1.0 | 45.2 | 4,276 | 41.7 (92.20 %) |",
            "| zookeeper | 3.4.3 | 35.9 | – | – |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
