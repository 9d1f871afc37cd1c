//! Figures 7 and 8: how large nights are, and how long they take.

use super::super::disk::{PAIRS, PAPER, Pair};
use super::super::modes::Habit;
use super::super::nights::BLOCK_BYTES;
use super::super::parameters::Mode;
use super::super::replay::{CONTENDERS, Night, PARAMETERS, Replay};
use super::speed;
use crate::table::{NONE, grouped, megabytes, row, seconds, table};

/// The section.
pub fn section(replay: &Replay) -> String {
    let parts = [
        NIGHTS_TEXT.to_owned(),
        statistics(replay),
        DIFFERENCES_TEXT.to_owned(),
        FIGURE_7_TEXT.to_owned(),
        figure_7(replay),
        FIGURE_8_TEXT.to_owned(),
        figure_8(replay),
        OURS_TEXT.to_owned(),
        "MB/s of the same nights on other disks:".to_owned(),
        elsewhere(replay),
        HABITS_TEXT.to_owned(),
        habits(replay),
    ];
    parts.map(|part| part.trim().to_owned()).join("\n\n")
}

const NIGHTS_TEXT: &str = "\
## The nights

The paper's trace, 400 nights of a disk with four users' homes, is not public, and no other trace \
has a year of whole disks with contents. These nights are made from a seed \
(`crates/bench/src/papers/foundation/nights.rs` says what they imitate): a journal and a \
write-ahead log that wrap, inodes with times of access, a database with hot pages, rotated logs and \
dumps; a developer's trees and builds, mail in large files, experiments whose results go when the \
disk is full, photographs, downloads of which some are fetched twice, and ripped DVDs that are \
deleted some nights later.";

const DIFFERENCES_TEXT: &str = "\
How they differ from the paper's, and what follows:

- The sizes at both ends and the share of nights above 128 MB were made to agree. The share of \
fresh blocks was chosen so that Venti comes near its 0.849 MB/s, which are 2.8 seeks for a block. \
The tail of large nights was chosen so that nearly as many nights take less than a minute. \
Everything else is a guess at what such a machine did.
- How duplicates and new blocks lie on the disk is not in the paper. It decides how much slower \
compare-by-value is than compare-by-hash, and all of figure 9. A first version of these nights, in \
which users had fewer half-equal trees and experiments wrote one piece each, gave 15 minutes of seeks by \
value instead of the paper's 35. Trees and pieces were then made more. So that the minutes are near \
the paper's proves nothing; that all modes are in the same proportions says a little.
- Blocks that are the same lie farther apart here: 1024 reads sorted at a time find hardly more of \
them in the cache, in the paper 3.2 times as many.
- Fragmentation comes from the allocator, which is simple: the next free block, from a group that \
each larger file chooses by chance. The paper's file system was FFS after years of use.
- The index is made for a log of 320 GB, the size of the Maxtor, since the nights store more than \
the 100 GB of the paper's example.";

fn statistics(replay: &Replay) -> String {
    let gigabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e9);
    let changed: u64 = replay.nights.iter().map(|night| night.blocks).sum();
    let [before, after] = replay.log_bytes;
    let fresh = (after - before) / BLOCK_BYTES;
    let share = 100.0 * fresh as f64 / changed.max(1) as f64;
    let nights = replay.nights.len() as u64;
    let mean = (changed * BLOCK_BYTES / nights.max(1)) as f64;
    let rows = [
        row(["", "here", "paper"]),
        row(["nights".to_owned(), grouped(nights), "400".to_owned()]),
        row(["data before, GB", &gigabytes(replay.first.blocks * BLOCK_BYTES), "41.7"]),
        row(["data at the end, GB", &gigabytes(replay.used_bytes), "69.9"]),
        row(["mean night, MB", &megabytes(mean), NONE]),
        row(["blocks that are fresh", &format!("{share:.1} %"), NONE]),
        row(["log before, GB", &gigabytes(before), NONE]),
        row(["log at the end, GB", &gigabytes(after), NONE]),
    ];
    table(&rows)
}

const FIGURE_7_TEXT: &str = "\
## Figure 7: how large nights are, and how long they take

The share of all nights that are at most this large, and take at most this many seconds on the \
paper's disks. The last rows: nights above 128 MB, and nights of at most a minute.";

/// Percentiles of the distributions.
const PERCENTILES: [usize; 9] = [5, 10, 25, 50, 75, 90, 95, 99, 100];

fn figure_7(replay: &Replay) -> String {
    let mut rows = vec![row(["", "MB"].into_iter().chain(Mode::ALL.map(Mode::name)))];
    let sizes = sorted(replay, |night| (night.blocks * BLOCK_BYTES) as f64);
    let times = [0, 1, 2, 3].map(|mode| sorted(replay, |night| night.works[mode].seconds(&PAPER)));
    for percent in PERCENTILES {
        let at = |values: &[f64]| {
            let place = (values.len() * percent).div_ceil(100).max(1) - 1;
            values.get(place).copied().unwrap_or_default()
        };
        let times = times.each_ref().map(|times| seconds(at(times)));
        let cells = [format!("{percent} %"), megabytes(at(&sizes))];
        rows.push(row(cells.into_iter().chain(times)));
    }
    let share = |of: usize| format!("{:.0} %", 100.0 * of as f64 / sizes.len().max(1) as f64);
    let large = sizes.iter().filter(|size| **size > 128e6).count();
    let quick = times
        .each_ref()
        .map(|times| share(times.iter().filter(|seconds| **seconds <= 60.0).count()));
    let cells = ["above 128 MB; a minute or less".to_owned(), share(large)];
    rows.push(row(cells.into_iter().chain(quick)));
    rows.push(row(["paper", "95 %", NONE, "94 %", "90 %", NONE]));
    table(&rows)
}

fn sorted(replay: &Replay, of: impl Fn(&Night) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = replay.nights.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

const FIGURE_8_TEXT: &str = "\
## Figure 8: the mean night

On the paper's disks. *Own* is the machine's disk, with the image, and with our index.";

fn figure_8(replay: &Replay) -> String {
    let mut rows = vec![row(std::iter::once("").chain(Mode::ALL.map(Mode::name)))];
    let nights = replay.nights.len().max(1) as u64;
    let sums = [0, 1, 2, 3].map(|mode| {
        let mut sum = super::super::disk::Work::default();
        replay.nights.iter().for_each(|night| sum += night.works[mode]);
        sum
    });
    let mut line = |name: &str, cells: [String; 4]| {
        rows.push(row(std::iter::once(name.to_owned()).chain(cells)));
    };
    line("seeks", sums.map(|sum| grouped(sum.archive.seeks / nights)));
    line(
        "seconds seeking",
        sums.map(|sum| seconds(sum.archive.seeking(&PAPER.archive) / nights as f64)),
    );
    line("read, MB", sums.map(|sum| megabytes((sum.archive.read / nights) as f64)));
    line("written, MB", sums.map(|sum| megabytes((sum.archive.written / nights) as f64)));
    line("own: seeks", sums.map(|sum| grouped(sum.local.seeks / nights)));
    line("own: read, MB", sums.map(|sum| megabytes((sum.local.read / nights) as f64)));
    line(
        "seeks less than Venti",
        sums.map(|sum| {
            let times = sums[0].archive.seeks as f64 / sum.archive.seeks.max(1) as f64;
            format!("{times:.0}×")
        }),
    );
    line("MB/s", [0, 1, 2, 3].map(|mode| mean_speed(replay, mode, &PAPER)));
    line("paper, MB/s", ["0.849", "20.6", "15.7", NONE].map(str::to_owned));
    line("paper, seeks less than Venti", [NONE, "240×", NONE, NONE].map(str::to_owned));
    table(&rows)
}

const OURS_TEXT: &str = "\
Ours asks least of the archive, and is slower than Foundation all the same on the paper's disks: \
each known block costs a page of the index at a random place of the machine's own disk, while \
Foundation loads a summary and knows a whole arena. If the machine's own disk is an SSD, that is over. \
With an SSD for the archive too, parity and the index are what is left.";

/// All nights' bytes by all nights' time.
fn mean_speed(replay: &Replay, contender: usize, pair: &Pair) -> String {
    let blocks: u64 = replay.nights.iter().map(|night| night.blocks).sum();
    let times = replay.nights.iter().filter_map(|night| night.works.get(contender));
    speed(blocks * BLOCK_BYTES, times.map(|work| work.seconds(pair)).sum())
}

fn elsewhere(replay: &Replay) -> String {
    let mut rows = vec![row(std::iter::once("").chain(Mode::ALL.map(Mode::name)))];
    for pair in PAIRS {
        let speeds = [0, 1, 2, 3].map(|mode| mean_speed(replay, mode, &pair));
        rows.push(row(std::iter::once(pair.name.to_owned()).chain(speeds)));
    }
    table(&rows)
}

const HABITS_TEXT: &str = "\
The paper does not say what its simulator keeps from one night to the next. Above, entries that are \
not in the index yet are kept, as the log has them, and caches begin empty, as the Bloom filter is \
loaded \"only during the nightly archival process\". By hash, the paper's 20.6 MB/s are between \
this guess and the next. If an index this large is written each night, value is faster than hash, \
so the paper's simulator hardly did that. MB/s on the paper's disks:";

fn habits(replay: &Replay) -> String {
    let modes = [Mode::Venti, Mode::Hash, Mode::Value];
    let mut rows = vec![row(std::iter::once("").chain(modes.map(Mode::name)))];
    for (habit, name) in [
        (Habit::Buffer, "caches begin empty, the buffer is kept"),
        (Habit::Nothing, "caches begin empty, the index is written each night"),
        (Habit::Everything, "all is kept"),
    ] {
        let cells = modes.map(|mode| {
            let place = CONTENDERS.iter().position(|contender| *contender == (mode, habit));
            place.map_or(NONE.to_owned(), |place| mean_speed(replay, place, &PAPER))
        });
        rows.push(row(std::iter::once(name.to_owned()).chain(cells)));
    }
    let index = [Mode::Hash, Mode::Value].map(|mode| PARAMETERS.index_bytes(mode) as f64);
    let [hash, value] = index.map(megabytes);
    format!(
        "{}\nA pass over the index reads and writes {hash} MB by hash, {value} by value.",
        table(&rows)
    )
}
