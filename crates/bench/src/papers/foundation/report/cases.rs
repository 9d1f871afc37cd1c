//! Figures 5 and 6: what each case costs.

use super::super::cases::{Case, Extent, simulate};
use super::super::counts::{in_words, predict};
use super::super::disk::{PAIRS, PAPER, Work};
use super::super::parameters::{self, Mode, Parameters};
use super::speed;
use crate::peers::Scale;
use crate::table::{NONE, row, table};

/// The section.
pub fn section(scale: Scale) -> String {
    let extent = scale.pick(Extent { visits: 8, ..Extent::FULL }, Extent::FULL);
    let paper = parameters::PAPER;
    let nights = Parameters { block_bytes: 32 << 10, ..paper };
    let parts = [
        FIGURE_5_TEXT.to_owned(),
        figure_5(),
        FIGURE_6_TEXT.to_owned(),
        figure_6(&paper, &extent),
        "With blocks of 32 KiB, as in the nights below:".to_owned(),
        figure_6(&nights, &extent),
        ORDER_TEXT.to_owned(),
        "MB/s on other disks, blocks of 32 KiB, by the counts:".to_owned(),
        elsewhere(&nights, &extent),
    ];
    parts.map(|part| part.trim().to_owned()).join("\n\n")
}

const FIGURE_5_TEXT: &str = "\
## Figure 5: operations of the six cases

Seeks of the archive's disk. The figure is not in the text that we have. Its counts were derived \
again from the sentences of §3 (`crates/bench/src/papers/foundation/counts.rs` quotes them and says \
what they leave open).";

fn figure_5() -> String {
    let head = std::iter::once("").chain(Mode::ALL.map(Mode::name));
    let mut rows = vec![row(head)];
    for case in Case::ALL {
        rows.push(row(
            std::iter::once(case.name()).chain(Mode::ALL.map(|mode| in_words(case, mode)))
        ));
    }
    table(&rows)
}

const FIGURE_6_TEXT: &str = "\
## Figure 6: the six cases on the paper's disks

*Seeks* are the archive's, for a thousand blocks; *MB/s* by the counts; *simulated* is whether the \
simulator, which knows nothing of the counts, gives the same seeks and bytes on both disks to the \
last one. Blocks have 512 bytes, as in the paper's prototype. Strongroom never cuts that small; \
its column shows only what the design does with such blocks. What its engine does in reality is in \
[the benchmarks](benchmarks.md).";

fn figure_6(parameters: &Parameters, extent: &Extent) -> String {
    let mut rows = vec![row(["", "", "seeks", "MB/s", "simulated"])];
    for case in Case::ALL {
        for mode in Mode::ALL {
            let predicted = predict(case, mode, parameters, extent);
            let simulated = simulate(case, mode, parameters, extent);
            let blocks = extent.blocks(case, mode, parameters);
            rows.push(row([
                case.name().to_owned(),
                mode.name().to_owned(),
                seeks(&predicted, blocks),
                speed(blocks * parameters.block_bytes, predicted.seconds(&PAPER)),
                if simulated == predicted { "the same" } else { "**differs**" }.to_owned(),
            ]));
        }
    }
    table(&rows)
}

fn seeks(work: &Work, blocks: u64) -> String {
    match work.archive.seeks {
        0 => NONE.to_owned(),
        seeks => crate::table::seconds(1_000.0 * seeks as f64 / blocks as f64),
    }
}

const ORDER_TEXT: &str = "\
What §5.1 says of its figure, and holds here, as a test checks: hash is much faster than Venti in \
sequence and slower out of order; value reads faster than hash and writes duplicates slower, \
dramatically so if the entry is cached and the block is not, when Venti and hash are limited by the \
local disk alone; both modes write sequential duplicates nearly as fast as that disk reads; fresh \
writes differ by the flushes of the index alone. The paper's prototype was up to 2.25 times \
slower than its predictions: compared with the internal disk, its reads by value were 2.2 times slower \
in sequence and 1.8 times out of order, where the counts give 1.2 and 0.9.";

fn elsewhere(parameters: &Parameters, extent: &Extent) -> String {
    let mut rows = vec![row(["", ""].into_iter().chain(PAIRS.map(|pair| pair.name)))];
    for case in Case::ALL {
        for mode in Mode::ALL {
            let work = predict(case, mode, parameters, extent);
            let bytes = extent.blocks(case, mode, parameters) * parameters.block_bytes;
            let speeds = PAIRS.map(|pair| speed(bytes, work.seconds(&pair)));
            rows.push(row([case.name().to_owned(), mode.name().to_owned()]
                .into_iter()
                .chain(speeds)));
        }
    }
    table(&rows)
}
