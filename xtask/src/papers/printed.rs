//! What the papers print, digit by digit.

/// A row of table 1 of Arrow: bytes, seconds.
pub struct ArrowPatch {
    /// The length of the patch against the first release.
    pub patch: u64,
    /// The sources with the patch applied.
    pub source: u64,
    /// All that is stored so far.
    pub backup: u64,
    /// How long it took.
    pub time: f64,
    /// Files that the patch changes.
    pub files: u64,
}

const fn patch(patch: u64, source: u64, backup: u64, time: f64, files: u64) -> ArrowPatch {
    ArrowPatch { patch, source, backup, time, files }
}

/// Table 1, "Backup test of Linux kernel versions": 2.6.23 and its patches.
pub const ARROW_1: [ArrowPatch; 18] = [
    patch(0, 252_065_213, 283_107_750, 451.08, 22_530),
    patch(3_218, 252_065_491, 283_119_871, 91.83, 2),
    patch(34_402, 252_066_473, 283_208_456, 89.34, 18),
    patch(65_218, 252_072_178, 283_362_188, 102.47, 53),
    patch(94_870, 252_073_453, 283_591_942, 143.06, 70),
    patch(127_389, 252_077_945, 283_912_484, 181.44, 81),
    patch(182_957, 252_082_973, 284_389_157, 193.47, 115),
    patch(187_496, 252_084_315, 284_831_665, 220.82, 113),
    patch(188_895, 252_084_342, 285_277_506, 229.20, 107),
    patch(221_604, 252_087_238, 285_811_410, 238.36, 132),
    patch(284_301, 252_091_147, 286_524_145, 240.94, 181),
    patch(283_078, 252_091_071, 287_204_874, 254.57, 175),
    patch(281_040, 252_090_640, 287_865_620, 256.07, 158),
    patch(283_099, 252_090_838, 288_510_953, 255.74, 254),
    patch(283_830, 252_090_842, 289_146_161, 257.06, 146),
    patch(541_078, 252_147_239, 290_212_238, 265.04, 228),
    patch(541_304, 252_147_258, 291_108_027, 267.25, 217),
    patch(555_389, 252_150_368, 292_006_750, 277.29, 218),
];

/// Table 2 of Arrow, "Storage breakdown of Linux kernel versions", by patch: the symlink tree, the
/// version files, the chunks, and by how much all grew.
pub const ARROW_2: [[u64; 4]; 18] = [
    [6_020_348, 18_715_460, 258_371_942, 0],
    [6_020_372, 18_721_280, 258_378_219, 12_121],
    [6_020_372, 18_763_104, 258_424_980, 88_585],
    [6_020_369, 18_832_200, 258_509_619, 153_732],
    [6_020_366, 18_939_252, 258_632_324, 229_754],
    [6_020_371, 19_108_140, 258_783_973, 320_542],
    [6_020_365, 19_365_364, 259_003_428, 476_673],
    [6_020_370, 19_622_648, 259_188_647, 442_508],
    [6_020_368, 19_883_304, 259_373_834, 445_841],
    [6_020_364, 20_184_188, 259_606_858, 533_904],
    [6_020_355, 20_577_220, 259_926_570, 712_735],
    [6_020_366, 20_971_084, 260_213_424, 680_729],
    [6_020_361, 21_348_916, 260_496_343, 660_746],
    [6_020_356, 21_725_972, 260_764_625, 645_333],
    [6_020_361, 22_099_124, 261_026_676, 635_208],
    [6_020_361, 22_613_212, 261_578_665, 1_066_077],
    [6_020_366, 23_116_276, 261_971_385, 895_789],
    [6_020_348, 23_620_716, 262_365_686, 898_723],
];

/// A row of table 4 of Arrow.
pub struct ArrowRelease {
    /// Linux.
    pub kernel: &'static str,
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

const fn release(
    kernel: &'static str,
    files: u64,
    time_disk: f64,
    time_raid: f64,
    size: u64,
    delta: u64,
) -> ArrowRelease {
    ArrowRelease { kernel, files, time_disk, time_raid, size, delta }
}

/// Table 4 of Arrow, "Native, local backup of major kernel releases".
pub const ARROW_4: [ArrowRelease; 16] = [
    release("2.6.10", 16_583, 263.82, 150.50, 219_538_292, 0),
    release("2.6.11", 5_481, 50.42, 24.16, 249_878_382, 30_340_090),
    release("2.6.12", 7_313, 89.42, 111.70, 294_696_204, 44_817_822),
    release("2.6.13", 8_285, 162.65, 154.36, 348_544_181, 53_847_977),
    release("2.6.14", 8_517, 428.72, 130.97, 399_782_781, 51_238_600),
    release("2.6.15", 9_258, 436.17, 101.68, 460_175_258, 60_392_477),
    release("2.6.16", 10_051, 236.86, 124.06, 526_137_368, 65_962_110),
    release("2.6.17", 10_247, 194.90, 257.49, 594_133_084, 67_995_716),
    release("2.6.18", 11_768, 278.77, 106.34, 666_703_249, 72_570_165),
    release("2.6.19", 12_471, 967.12, 135.16, 748_048_042, 81_344_793),
    release("2.6.20", 11_801, 807.57, 97.71, 819_728_218, 71_680_176),
    release("2.6.21", 11_782, 853.37, 96.82, 896_486_021, 76_757_803),
    release("2.6.22", 12_576, 944.28, 105.83, 982_696_828, 86_210_807),
    release("2.6.23", 12_231, 973.92, 167.14, 1_065_769_264, 83_072_436),
    release("2.6.24", 13_413, 995.01, 182.68, 1_162_798_886, 97_029_622),
    release("2.6.25", 13_940, 1185.11, 111.60, 1_266_597_571, 103_798_685),
];

/// A row of table 2 of Yuru: a release, and what of the next one is in it already.
pub struct YuruRelease {
    /// The project.
    pub dataset: &'static str,
    /// The release.
    pub version: &'static str,
    /// Its length in MB.
    pub size: f64,
    /// Files, MB and share of the next one that are in this one.
    pub overlap: Option<(u64, f64, f64)>,
}

const fn to_next(
    dataset: &'static str,
    version: &'static str,
    size: f64,
    files: u64,
    megabytes: f64,
    percent: f64,
) -> YuruRelease {
    YuruRelease { dataset, version, size, overlap: Some((files, megabytes, percent)) }
}

const fn last(dataset: &'static str, version: &'static str, size: f64) -> YuruRelease {
    YuruRelease { dataset, version, size, overlap: None }
}

/// Table 2 of Yuru, "Datasets".
pub const YURU_2: [YuruRelease; 24] = [
    to_next("emacs", "23.2a", 155.4, 957, 15.7, 10.09),
    to_next("emacs", "23.3a", 155.9, 980, 15.9, 10.17),
    last("emacs", "23.4", 155.9),
    to_next("hadoop", "1.0.1", 167.1, 3517, 96.8, 56.32),
    to_next("hadoop", "1.0.2", 171.9, 3517, 95.1, 53.60),
    last("hadoop", "1.0.3", 177.5),
    to_next("hive", "0.7.0", 143.7, 3720, 49.1, 34.10),
    to_next("hive", "0.7.1", 143.9, 2763, 15.9, 12.16),
    last("hive", "0.8.0", 161.4),
    to_next("lucene", "3.3.0", 136.9, 208, 13.3, 8.51),
    to_next("lucene", "3.4.0", 156.4, 206, 4.9, 2.91),
    last("lucene", "3.5.0", 168.7),
    to_next("mysql", "5.1.61", 173.0, 7877, 143.1, 82.64),
    to_next("mysql", "5.1.62", 173.2, 8038, 148.1, 85.45),
    last("mysql", "5.1.63", 173.4),
    to_next("postgresql", "9.1.2", 92.6, 3773, 66.1, 70.02),
    to_next("postgresql", "9.1.3", 94.1, 3728, 64.4, 68.36),
    last("postgresql", "9.1.4", 94.2),
    to_next("xen", "4.1.0", 45.2, 4276, 41.7, 92.20),
    to_next("xen", "4.1.1", 45.2, 4143, 40.7, 89.99),
    last("xen", "4.1.2", 45.2),
    to_next("zookeeper", "3.4.1", 35.7, 1205, 20.2, 56.56),
    to_next("zookeeper", "3.4.2", 35.7, 1126, 16.4, 45.58),
    last("zookeeper", "3.4.3", 35.9),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own sums are the best check of what was typed.
    #[test]
    fn what_is_printed_adds_up() {
        for (patch, [tree, versions, chunks, _]) in ARROW_1.iter().zip(ARROW_2) {
            assert_eq!(tree + versions + chunks, patch.backup);
        }
        for (pair, [.., difference]) in ARROW_1.windows(2).zip(&ARROW_2[1..]) {
            assert_eq!(pair[1].backup - pair[0].backup, *difference);
        }
        for pair in ARROW_4.windows(2) {
            assert_eq!(pair[1].size - pair[0].size, pair[1].delta, "{}", pair[1].kernel);
        }
    }
}
