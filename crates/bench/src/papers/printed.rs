//! What the papers print, digit by digit: the files in `data/papers`, one row of a table per line.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A row of table 1 of Arrow, "Backup test of Linux kernel versions": 2.6.23 and its patches.
#[derive(Deserialize)]
pub struct ArrowPatch {
    /// Bytes of the patch against the first release.
    pub patch: u64,
    /// Bytes of the sources with the patch applied.
    pub source: u64,
    /// Bytes stored so far.
    pub backup: u64,
    /// Seconds that it took.
    pub time: f64,
    /// Files that the patch changes.
    pub files: u64,
}

/// A row of table 2 of Arrow, "Storage breakdown of Linux kernel versions", in bytes.
#[derive(Deserialize)]
pub struct ArrowBreakdown {
    /// The tree of symbolic links.
    pub tree: u64,
    /// The version files.
    pub versions: u64,
    /// The chunks.
    pub chunks: u64,
    /// By how much the sum grew.
    pub difference: u64,
}

/// A row of table 4 of Arrow, "Native, local backup of major kernel releases".
#[derive(Deserialize)]
pub struct ArrowRelease {
    /// Version of Linux.
    pub kernel: String,
    /// Files that changed.
    pub files: u64,
    /// Seconds on one disk.
    pub time_disk: f64,
    /// Seconds on a RAID-5.
    pub time_raid: f64,
    /// Bytes stored so far.
    pub size: u64,
    /// By how much that grew.
    pub delta: u64,
}

/// A row of table 2 of Yuru, "Datasets".
#[derive(Deserialize)]
pub struct YuruRelease {
    /// The project.
    pub dataset: String,
    /// The release.
    pub version: String,
    /// Its length in MB.
    pub size: f64,
    /// What it shares with the next release; none for the last one.
    pub next: Option<Overlap>,
}

/// What two successive releases share.
#[derive(Deserialize)]
pub struct Overlap {
    /// Files.
    pub files: u64,
    /// MB.
    pub megabytes: f64,
    /// Share of the later release.
    pub percent: f64,
}

/// Table 1 of Arrow.
pub fn arrow_1() -> Vec<ArrowPatch> {
    rows(include_str!("../../data/papers/arrow-table-1.jsonl"))
}

/// Table 2 of Arrow.
pub fn arrow_2() -> Vec<ArrowBreakdown> {
    rows(include_str!("../../data/papers/arrow-table-2.jsonl"))
}

/// Table 4 of Arrow.
pub fn arrow_4() -> Vec<ArrowRelease> {
    rows(include_str!("../../data/papers/arrow-table-4.jsonl"))
}

/// Table 2 of Yuru.
pub fn yuru_2() -> Vec<YuruRelease> {
    rows(include_str!("../../data/papers/yuru-table-2.jsonl"))
}

fn rows<T: DeserializeOwned>(lines: &str) -> Vec<T> {
    let row = |line| serde_json::from_str(line).expect("the tests read each of these files");
    lines.lines().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The papers' own sums are the best check of what was typed.
    #[test]
    fn what_is_printed_adds_up() {
        let (patches, breakdowns) = (arrow_1(), arrow_2());
        assert_eq!((patches.len(), breakdowns.len()), (18, 18));
        for (patch, parts) in patches.iter().zip(&breakdowns) {
            assert_eq!(parts.tree + parts.versions + parts.chunks, patch.backup);
        }
        for (pair, parts) in patches.windows(2).zip(&breakdowns[1..]) {
            assert_eq!(pair[1].backup - pair[0].backup, parts.difference);
        }
        let releases = arrow_4();
        assert_eq!(releases.len(), 16);
        for pair in releases.windows(2) {
            assert_eq!(pair[1].size - pair[0].size, pair[1].delta, "{}", pair[1].kernel);
        }
        let datasets = yuru_2();
        assert_eq!(datasets.iter().filter(|release| release.next.is_none()).count(), 8);
        assert_eq!(datasets.len(), 24);
    }
}
