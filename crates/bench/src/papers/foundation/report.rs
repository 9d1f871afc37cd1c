//! The document: figures 5 to 9 as tables, beside what the paper prints.

pub mod cases;

mod images;
mod nights;

use super::disk::{PAIRS, Pair};
use super::replay::Replay;
use crate::table::{row, table};

/// The whole document.
pub fn document(cases: &str, replay: &Replay, divisor: u64) -> String {
    let scale = match divisor {
        1 => String::new(),
        _ => format!("**A trial on 1/{divisor} of the disk: its numbers mean nothing.**"),
    };
    let parts = [
        HEAD.to_owned(),
        scale,
        disks(),
        cases.to_owned(),
        nights::section(replay),
        images::section(replay),
    ];
    let parts: Vec<&str> =
        parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    format!("{}\n", parts.join("\n\n"))
}

const HEAD: &str = "\
# Beside Foundation

Made by `cargo run -p strongroom-bench --release -- papers --part foundation`; not edited by hand. \
Simulated, not measured: what disks would take for the seeks and bytes that Venti, both modes of \
Foundation and Strongroom ask of them, by the rules of Foundation's own simulator (Rhea, Cox and \
Pesterev, \"Fast, Inexpensive Content-Addressed Storage in Foundation\", USENIX 2008, §5). A seek is \
a request that does not begin where the one before ended. The time is that of the slower of two \
disks, the machine's own and the archive's, which work at the same time. Processors take no time, \
and nothing is compressed, in all modes.

*Ours* is the design of [arenas](format/arena.md) and of the [index](design/0008-index.md): the \
index is on the machine's own disk, a known block costs a page of it, and nothing is read from the \
archive to find out that it is known; an arena is written at once, with 3 % of parity; recipes say where chunks are, and a \
restore sorts 200,000 of them at a time. 256 KiB are sealed together, as suits images. All modes \
cut at the same fixed places here; what content-defined chunks and deltas save is in [other \
tables](papers.md).";

fn disks() -> String {
    let head =
        ["", "own: seek, ms", "read, MB/s", "write", "archive: seek, ms", "read, MB/s", "write"];
    let mut rows = vec![row(head)];
    for Pair { name, local, archive } in PAIRS {
        let numbers = [local, archive].map(|disk| {
            [disk.seek_ms, disk.read_mb, disk.write_mb].map(|number| number.to_string())
        });
        rows.push(row(std::iter::once(name.to_owned()).chain(numbers.into_iter().flatten())));
    }
    format!("## Disks\n\n{DISKS_TEXT}\n\n{}", table(&rows))
}

const DISKS_TEXT: &str = "\
The first pair is the paper's, as measured there. The others are assumptions of 2026 and no \
measurements: a disk of 7,200 rpm (half a turn and an average seek; three quarters of the rate at \
the rim), a consumer's NVMe disk at queue depth 1 behind its write cache, and S3 as Amazon's \
guides describe it: 100 ms to the first byte, 90 MB/s a connection. The last row has sixteen \
requests in flight over a line of 1 Gbit/s, which flatters modes whose requests wait for each \
other: Venti's index and log, for example.";

/// A speed in MB/s, to three digits.
fn speed(bytes: u64, seconds: f64) -> String {
    match bytes as f64 / 1e6 / seconds.max(1e-9) {
        speed if speed >= 99.5 => format!("{speed:.0}"),
        speed if speed >= 9.95 => format!("{speed:.1}"),
        speed if speed >= 0.0995 => format!("{speed:.2}"),
        speed => format!("{speed:.3}"),
    }
}

/// Minutes, to about three digits.
fn minutes(seconds: f64) -> String {
    crate::table::seconds(seconds / 60.0)
}

#[cfg(test)]
mod tests {
    use super::super::nights::Size;
    use super::super::replay::{PARAMETERS, replay};
    use super::*;

    #[test]
    fn all_tables_are_in_the_document() {
        let replay = replay(1, Size { divisor: 400, nights: 30 }, PARAMETERS, |night| {
            [1, 30].contains(&night)
        });
        let text = document("## Six cases", &replay, 400);
        for line in [
            "1/400 of the disk",
            "| the paper's disks | 15 | 38.5 | 32.2 | 13.6 | 32.2 | 26.5 |",
            "## Six cases",
            "## The nights",
            "| paper | 95 % | – | 94 % | 90 % | – |",
            "| paper, MB/s | 0.849 | 20.6 | 15.7 | – |",
            "| paper, whole image | 739 | 41 | 35 | 8 | 18 | – | – | – |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn speeds() {
        assert_eq!(
            [(31_410_000, 1.0), (849_000, 1.0), (18_000, 1.0), (250_000_000, 1.0)]
                .map(|(bytes, seconds)| speed(bytes, seconds)),
            ["31.4", "0.85", "0.018", "250"]
        );
    }
}
