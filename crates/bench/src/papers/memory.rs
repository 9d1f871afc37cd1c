//! The evaluation of SDDS-2002 (Litwin, Mokadem and Schwarz, "Disk Backup Through Algebraic Signatures
//! in Scalable Distributed Data Structures", §3) again: how fast a change is noticed, what it costs to
//! store a bucket of which nothing or little changed, and how often a change is missed.

mod buckets;
mod detectors;
mod misses;

use std::path::Path;

use crate::peers::Scale;
use crate::say;
use crate::shell::{Done, make_folder};
use crate::table::table;

/// What the document begins with.
const HEAD: &str = "\
# Beside SDDS-2002

Made by `cargo run -p strongroom-bench --release -- papers --part memory`; not edited by hand. Measured on \
the machine that made it, medians of five runs; a page has 16 KiB, as in the paper. *Marks* are what \
Strongroom keeps of a page: the signature with the symbols 1 and −1, and a seeded XXH3-64 of the same bytes \
([memory](format/memory.md)).
";

/// The document. Buckets are made and stored below `folder`, which should be on a disk.
pub fn document(program: &Path, folder: &Path, scale: Scale) -> Done<String> {
    make_folder(folder)?;
    say("memory: what notices a change");
    let detectors = detectors::measure(scale.pick(64 << 20, 1 << 30));
    say("memory: buckets");
    let buckets = buckets::measure(program, folder, scale)?;
    say("memory: trials");
    let misses = misses::count(scale.pick(10_000_000, 1_000_000_000));
    let sections = [
        HEAD.to_owned(),
        format!(
            "\n## What notices a change\n\nOne thread over {} MiB of memory that no cache holds, wall time.\n\n{}",
            scale.pick(64, 1024),
            table(&detectors)
        ),
        format!(
            "\n## Tables 1 and 2: a bucket is stored\n\n{}\n{}",
            buckets::WORDS,
            table(&buckets.rows)
        ),
        format!(
            "\n## Figure 4: one file on several servers\n\n{}\n{}",
            buckets::FIGURE_4,
            table(&buckets.servers)
        ),
        format!("\n## Changes that are missed\n\n{}\n{}", misses::WORDS, table(&misses)),
    ];
    Ok(sections.concat())
}
