//! The nights, written by each mode, and whole images read again.

use super::disk::{Traffic, Work};
use super::log::Log;
use super::modes::{Habit, Reader, Writer};
use super::nights::{BLOCK_BYTES, Nights, Size};
use super::ours::OurWriter;
use super::parameters::{self, BATCH_CHUNKS, LARGE_UNIT_BYTES, Mode, Parameters};

/// §5.1's parameters, "except that blocks are 32 kB", and an index for a log that fills the Maxtor:
/// the paper's example, 100 GB, would be overfull. The system may keep 64 MiB of our index.
pub const PARAMETERS: Parameters = Parameters {
    block_bytes: BLOCK_BYTES,
    log_bytes_max: 320_000_000_000,
    page_cache_bytes: 64 << 20,
    ..parameters::PAPER
};

/// The modes, then what else the paper's simulator may have assumed.
pub const CONTENDERS: [(Mode, Habit); 9] = [
    (Mode::Venti, Habit::Buffer),
    (Mode::Hash, Habit::Buffer),
    (Mode::Value, Habit::Buffer),
    (Mode::Ours, Habit::Buffer),
    (Mode::Hash, Habit::Nothing),
    (Mode::Value, Habit::Nothing),
    (Mode::Venti, Habit::Everything),
    (Mode::Hash, Habit::Everything),
    (Mode::Value, Habit::Everything),
];

/// A night: how many blocks changed, and what each contender asked of the disks.
pub struct Night {
    /// Blocks that changed.
    pub blocks: u64,
    /// By the order of [`CONTENDERS`].
    pub works: Vec<Work>,
}

/// A way to read an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Block after block, as they lie in the image.
    InOrder(Mode),
    /// By value, all places sorted first.
    Sorted,
    /// By value, 1024 places at a time sorted.
    Sorted1024,
    /// Ours, as a restore reads: 200,000 places at a time sorted.
    ArenaOrder,
    /// The same, with blocks as files have them.
    LargeBlocks,
}

impl Reading {
    /// In the order of the tables.
    pub const ALL: [Self; 8] = [
        Self::InOrder(Mode::Venti),
        Self::InOrder(Mode::Hash),
        Self::InOrder(Mode::Value),
        Self::Sorted,
        Self::Sorted1024,
        Self::InOrder(Mode::Ours),
        Self::ArenaOrder,
        Self::LargeBlocks,
    ];

    /// Name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::InOrder(Mode::Ours) => "ours, by the hints, in image order",
            Self::InOrder(mode) => mode.name(),
            Self::Sorted => "by value, sorted",
            Self::Sorted1024 => "by value, 1024 sorted at a time",
            Self::ArenaOrder => "ours, arena order",
            Self::LargeBlocks => "ours, arena order, blocks of 3.75 MiB",
        }
    }
}

/// A whole image, read in every way.
pub struct Image {
    /// The night after which it was read.
    pub night: u32,
    /// Its blocks.
    pub blocks: u64,
    /// What was asked of the archive, and the blocks found in the cache, by the order of
    /// [`Reading::ALL`].
    pub reads: Vec<(Traffic, u64)>,
}

/// What a replay found.
pub struct Replay {
    /// The first backup, before the first night.
    pub first: Night,
    /// All nights.
    pub nights: Vec<Night>,
    /// Bytes on the disk at the end.
    pub used_bytes: u64,
    /// Bytes in the log before the first night, and at the end.
    pub log_bytes: [u64; 2],
    /// Images that were read.
    pub images: Vec<Image>,
}

enum Archive {
    Theirs(Writer),
    Ours(OurWriter),
}

impl Archive {
    fn new(mode: Mode, habit: Habit, parameters: Parameters) -> Self {
        match mode {
            Mode::Ours => Self::Ours(OurWriter::new(parameters, Log::default())),
            _ => Self::Theirs(Writer::new(mode, parameters, habit, Log::default())),
        }
    }

    fn backup(&mut self, blocks: &[u32]) -> Work {
        let before = self.work();
        match self {
            Self::Theirs(writer) => writer.backup(blocks),
            Self::Ours(writer) => writer.backup(blocks),
        }
        self.work() - before
    }

    fn work(&self) -> Work {
        match self {
            Self::Theirs(writer) => writer.work(),
            Self::Ours(writer) => writer.work(),
        }
    }
}

/// Makes the nights, and gives them to every contender. After each night for which `is_read` is
/// true, the whole image is read.
pub fn replay(
    seed: u64,
    size: Size,
    parameters: Parameters,
    is_read: impl Fn(u32) -> bool,
) -> Replay {
    let mut source = Nights::new(seed, size);
    let mut archives: Vec<Archive> =
        CONTENDERS.map(|(mode, habit)| Archive::new(mode, habit, parameters)).into();
    let image = source.image();
    let first = write(&mut archives, &image);
    for archive in &mut archives {
        // The nights begin with an index on the disk, as the paper's did.
        if let Archive::Theirs(writer) = archive {
            writer.flush();
        }
    }
    let first_log = log_bytes(&archives);
    let (mut nights, mut images) = (Vec::new(), Vec::new());
    for night in 1..=size.nights {
        nights.push(write(&mut archives, &source.next_night()));
        if is_read(night) {
            images.push(read(night, &source.image(), &archives, parameters));
        }
    }
    let log_bytes = [first_log, log_bytes(&archives)];
    Replay { first, nights, used_bytes: source.used_bytes(), log_bytes, images }
}

fn write(archives: &mut [Archive], blocks: &[u32]) -> Night {
    let works = archives.iter_mut().map(|archive| archive.backup(blocks)).collect();
    Night { blocks: blocks.len() as u64, works }
}

fn log_bytes(archives: &[Archive]) -> u64 {
    let blocks = archives.iter().map(|archive| match archive {
        Archive::Theirs(writer) => writer.log().next(),
        Archive::Ours(_) => 0,
    });
    u64::from(blocks.max().unwrap_or_default()) * BLOCK_BYTES
}

fn read(night: u32, image: &[u32], archives: &[Archive], parameters: Parameters) -> Image {
    let read = |reading| {
        let mode = match reading {
            Reading::InOrder(mode) => mode,
            Reading::ArenaOrder | Reading::LargeBlocks => Mode::Ours,
            Reading::Sorted | Reading::Sorted1024 => Mode::Value,
        };
        let place = CONTENDERS.iter().position(|(other, _)| *other == mode);
        match place.and_then(|place| archives.get(place)) {
            Some(Archive::Theirs(writer)) => {
                let mut reader = Reader::new(mode, parameters, writer.log());
                let place = |block: &u32| writer.log().slot(*block);
                batches(image, reading, place, |block| reader.read(block));
                (reader.traffic(), reader.hits())
            }
            Some(Archive::Ours(writer)) => {
                let mut reader = match reading {
                    Reading::LargeBlocks => writer.reader_of(LARGE_UNIT_BYTES),
                    _ => writer.reader(),
                };
                let place = |block: &u32| writer.place(*block);
                batches(image, reading, place, |block| reader.read(block));
                (reader.traffic(), reader.hits())
            }
            None => Default::default(),
        }
    };
    let reads = Reading::ALL.map(read).into();
    Image { night, blocks: image.len() as u64, reads }
}

/// Hands on the blocks of an image in the order in which they are read.
fn batches<K: Ord>(
    image: &[u32],
    reading: Reading,
    place: impl Fn(&u32) -> K,
    mut read: impl FnMut(u32),
) {
    let batch = match reading {
        Reading::InOrder(_) => 1,
        Reading::Sorted => image.len(),
        Reading::Sorted1024 => 1_024,
        Reading::ArenaOrder | Reading::LargeBlocks => BATCH_CHUNKS,
    };
    for blocks in image.chunks(batch.max(1)) {
        let mut blocks = blocks.to_vec();
        blocks.sort_by_cached_key(&place);
        blocks.into_iter().for_each(&mut read);
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::{PAIRS, PAPER, Pair};
    use super::*;

    /// 1/40 of the paper's disk, with arenas, caches and the index as much smaller.
    fn small() -> Replay {
        let parameters = Parameters {
            arena_bytes: 2 << 20,
            log_bytes_max: PARAMETERS.log_bytes_max / 40,
            index_cache_bytes: (64 << 20) / 40,
            write_buffer_bytes: (128 << 20) / 40,
            page_cache_bytes: (64 << 20) / 40,
            ..PARAMETERS
        };
        replay(2008, Size { divisor: 40, nights: 100 }, parameters, |night| night == 100)
    }

    fn speed(replay: &Replay, contender: usize, pair: &Pair) -> f64 {
        let seconds: f64 =
            replay.nights.iter().map(|night| night.works[contender].seconds(pair)).sum();
        let blocks: u64 = replay.nights.iter().map(|night| night.blocks).sum();
        (blocks * BLOCK_BYTES) as f64 / seconds
    }

    #[test]
    fn the_order_of_the_modes_is_the_papers() {
        let replay = small();
        let [venti, hash, value] = [0, 1, 2].map(|contender| speed(&replay, contender, &PAPER));
        assert!(hash > value && value > 10.0 * venti, "{venti} {hash} {value}");
        let seeks = |contender: usize| -> u64 {
            replay.nights.iter().map(|night| night.works[contender].archive.seeks).sum()
        };
        assert!(seeks(0) > 40 * seeks(1), "{} and {}", seeks(0), seeks(1));
        assert!(seeks(2) > seeks(1), "{} and {}", seeks(2), seeks(1));
        // Ours does not seek in the archive to decide that a block is known.
        assert!(seeks(3) < seeks(1), "{} and {}", seeks(3), seeks(1));
        assert!(PAIRS.iter().all(|pair| speed(&replay, 3, pair) > speed(&replay, 0, pair)));
        // But it seeks in the index, on the machine's own disk.
        let [seeking, quick] = [&PAIRS[0], &PAIRS[1]];
        assert!(speed(&replay, 3, seeking) < speed(&replay, 1, seeking));
        assert!(speed(&replay, 3, quick) > speed(&replay, 1, quick));

        let image = &replay.images[0];
        let [venti, hash, value, sorted, some, hints, ours, large] = *image.reads.as_slice() else {
            panic!("eight ways")
        };
        let order = [venti, hash, value, some, sorted].map(|(traffic, _)| traffic.seeks);
        assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
        assert!(value.1 < some.1 && some.1 < sorted.1, "hits: {} {} {}", value.1, some.1, sorted.1);
        assert!(ours.0.seeks < hints.0.seeks, "{} and {}", ours.0.seeks, hints.0.seeks);
        assert!(ours.0.seeks < value.0.seeks, "{} and {}", ours.0.seeks, value.0.seeks);
        assert!(large.0.seeks < ours.0.seeks && large.0.read > ours.0.read);
        // Each way gets every block of the image, from the archive or from the cache.
        for (traffic, hits) in [venti, hash, value, sorted, some] {
            assert!(traffic.read + hits * BLOCK_BYTES >= image.blocks * BLOCK_BYTES);
        }
    }

    #[test]
    fn every_mode_stores_the_same() {
        let size = Size { divisor: 200, nights: 30 };
        let replay = replay(1, size, PARAMETERS, |_| false);
        let all = |of: &dyn Fn(&Work) -> u64, contender: usize| -> u64 {
            let nights = std::iter::once(&replay.first).chain(&replay.nights);
            nights.map(|night| of(&night.works[contender])).sum()
        };
        let stored = replay.log_bytes[1];
        // Venti writes a bucket for each block, ours a summary and parity for each arena.
        let buckets = stored / BLOCK_BYTES * PARAMETERS.bucket_bytes;
        assert_eq!(all(&|work| work.archive.written, 0), stored + buckets);
        let ours = all(&|work| work.archive.written, 3);
        assert!(ours > stored * 103 / 100 && ours < stored * 104 / 100, "{ours} for {stored}");
        for contender in 0..CONTENDERS.len() {
            let read = all(&|work| work.local.read, contender);
            let blocks: u64 = replay.nights.iter().map(|night| night.blocks).sum();
            assert!(read >= (blocks + replay.first.blocks) * BLOCK_BYTES);
        }
    }
}
