//! The evaluation of Foundation (Rhea, Cox and Pesterev, USENIX 2008, §5) again: its simulator, its
//! six cases, 400 nights that are like its own, and figures 5 to 9 as tables.
//!
//! Nothing is measured here: the numbers are what disks would take for the seeks and bytes of each
//! mode, ours among them, as the paper's own simulator counts.

mod disk;
mod log;
mod parameters;
mod recent;

mod modes;
mod ours;

mod cases;
mod counts;

mod nights;
mod replay;

mod report;

use self::nights::{NIGHTS, Size};
use crate::peers::Scale;
use crate::say;

/// The seed of the nights in the document: the year of the paper.
const SEED: u64 = 2008;
/// Nights after which images are read for the tables.
const SHOWN: [u32; 4] = [1, 30, 100, 400];
/// For the mean, one night in this many.
const READ_EVERY: u32 = 50;

/// The document, with all nights or with a twentieth of the disk.
pub fn document(scale: Scale) -> String {
    let size = scale.pick(Size { divisor: 20, nights: NIGHTS }, Size::FULL);
    say("foundation: six cases");
    let cases = report::cases::section(scale);
    say(&format!("foundation: {} nights", size.nights));
    let is_read = |night: u32| SHOWN.contains(&night) || night.is_multiple_of(READ_EVERY);
    let replay = replay::replay(SEED, size, replay::PARAMETERS, is_read);
    report::document(&cases, &replay, size.divisor)
}
