//! 400 synthetic nights of a disk with the homes of four users, in the form of the paper's trace:
//! for each night the blocks of 32 KiB that are not what they were the night before, in the order
//! of the disk. A block's content is a number; nothing has bytes.
//!
//! The paper's trace is not public, nor is any other that has a year of whole disks with their
//! contents. So this one imitates what the paper says of its own: a disk with 41.7 GB of data, 69.9
//! GB at the end, four users, and 95 % of nights above 128 MB. What fills it:
//!
//! - `system.rs`: a journal and write-ahead log that wrap, inodes whose times of access change, a
//!   database with hot pages, logs that are rotated, by renaming and by copying, and its dumps. They
//!   are what even a quiet night has.
//! - `people.rs`: a developer, whose builds replace objects by others that are often the same, and
//!   who copies trees; a reader of mail in a few large files; an experimenter, whose results
//!   are large and go when the disk is full; and a collector of photographs, downloads and ripped
//!   DVDs, which are deleted some nights later (§7.1). What one has, another may fetch again, so
//!   that duplicates come in by other paths (§6).
//!
//! All numbers come from a seed, by integer arithmetic, so every machine makes the same nights.
//! `scale` makes all sizes smaller for tests.

mod people;
mod system;
mod volume;
mod world;

use self::people::{Collector, Developer, Experimenter, Reader};
use self::system::System;
use self::world::World;

/// Bytes of a block: "blocks are 32 kB, to match the traces" (§5.2).
pub const BLOCK_BYTES: u64 = 32 << 10;

/// The night before the first: what is on the disk when the trace begins, in bytes.
pub const FIRST_BYTES: u64 = 41_700_000_000;
/// What is on the disk when it ends.
pub const LAST_BYTES: u64 = 69_900_000_000;
/// Nights.
pub const NIGHTS: u32 = 400;

/// How large a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Of how many blocks one is left.
    pub divisor: u64,
    /// Nights in which the disk grows from the first to the last size.
    pub nights: u32,
}

impl Size {
    /// The paper's.
    pub const FULL: Self = Self { divisor: 1, nights: NIGHTS };
}

/// The disk, night by night.
pub struct Nights {
    size: Size,
    night: u32,
    world: World,
    system: System,
    developer: Developer,
    reader: Reader,
    experimenter: Experimenter,
    collector: Collector,
}

impl Nights {
    /// The disk as it is before the first night.
    pub fn new(seed: u64, size: Size) -> Self {
        let mut world = World::new(seed, size.divisor);
        let mut nights = Self {
            size,
            night: 0,
            system: System::settle(&mut world),
            developer: Developer::settle(&mut world),
            reader: Reader::settle(&mut world),
            experimenter: Experimenter::settle(&mut world),
            collector: Collector::default(),
            world,
        };
        let target = nights.target();
        nights.collector.settle(&mut nights.world, target);
        nights.world.volume.take_changed();
        nights
    }

    /// The blocks of the next night that changed.
    pub fn next_night(&mut self) -> Vec<u32> {
        self.night += 1;
        let day = self.night;
        let target = self.target();
        self.experimenter.clean_up(&mut self.world, target);
        // Sundays, and a day now and then on which the machine is alone.
        let is_quiet =
            day.is_multiple_of(7) && self.world.random.once_in(3) || self.world.random.once_in(40);
        self.system.night(&mut self.world, day, is_quiet);
        if !is_quiet {
            let is_weekend = day % 7 >= 5 || day.is_multiple_of(7);
            self.developer.night(&mut self.world, is_weekend);
            self.reader.night(&mut self.world);
            self.experimenter.night(&mut self.world, is_weekend);
            self.collector.night(&mut self.world, day);
        }
        self.world.volume.take_changed()
    }

    /// Blocks on the disk, as they lie.
    pub fn image(&self) -> Vec<u32> {
        self.world.volume.image()
    }

    /// Bytes on the disk.
    pub fn used_bytes(&self) -> u64 {
        self.world.volume.used() * BLOCK_BYTES
    }

    /// What users let the disk grow to: they delete when it is full, so this is what makes it end
    /// as the paper's did.
    fn target(&self) -> u64 {
        let (night, nights) = (u64::from(self.night), u64::from(self.size.nights));
        let bytes = FIRST_BYTES + (LAST_BYTES - FIRST_BYTES) * night.min(nights) / nights;
        bytes / BLOCK_BYTES / self.size.divisor
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SMALL: Size = Size { divisor: 40, nights: 400 };

    #[test]
    fn the_same_seed_makes_the_same_nights() {
        let make = |seed| {
            let mut nights = Nights::new(seed, Size { divisor: 100, nights: 400 });
            let changed: Vec<Vec<u32>> = (0..20).map(|_| nights.next_night()).collect();
            (changed, nights.image())
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }

    #[test]
    fn its_statistics_are_the_papers() {
        let mut nights = Nights::new(2008, SMALL);
        let bytes = |blocks: usize| blocks as u64 * BLOCK_BYTES * SMALL.divisor;
        let near = |is: u64, should: u64| is.abs_diff(should) < should / 25;
        let first = nights.image();
        assert!(near(bytes(first.len()), FIRST_BYTES), "{}", bytes(first.len()));
        let mut known: HashSet<u32> = first.iter().copied().collect();
        let (mut written, mut fresh, mut above) = (0, 0, 0);
        for _ in 0..NIGHTS {
            let night = nights.next_night();
            above += u32::from(bytes(night.len()) > 128_000_000);
            written += night.len();
            fresh += night.iter().filter(|block| known.insert(**block)).count();
        }
        let last = nights.image();
        assert!(near(bytes(last.len()), LAST_BYTES), "{}", bytes(last.len()));
        assert!((376..=388).contains(&above), "95 % of nights above 128 MB: {above} of 400");
        // Venti's 849 kB/s are 2.8 seeks for a block: nine in ten are fresh.
        let share = 100 * fresh / written;
        assert!((80..=94).contains(&share), "fresh: {share} %");
        // Every block of the last image was there at the start or came in on a night.
        assert!(last.iter().all(|block| known.contains(block)));
        // Numbers are dense, which bounds the memory of what counts by them.
        let largest = known.iter().max().copied().unwrap_or_default() as usize;
        assert!(largest < 2 * known.len(), "{largest} for {}", known.len());
    }
}
