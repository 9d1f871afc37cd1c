//! What all users share: the disk, chance, and what the network offers.

use std::collections::VecDeque;

use strongroom_testkit::Random;

use super::BLOCK_BYTES;
use super::volume::{File, Volume};

/// Capacity of the disk, in bytes.
const DISK_BYTES: u64 = 100_000_000_000;
/// Things on the network that were fetched lately and may be fetched again.
const OFFERED_MAX: usize = 24;
/// The largest of them, in blocks.
const OFFERED_BLOCKS_MAX: u32 = 32_768;

/// Who owns files.
pub const SYSTEM: usize = 0;
/// The developer.
pub const DEVELOPER: usize = 1;
/// The reader of mail.
pub const READER: usize = 2;
/// The experimenter.
pub const EXPERIMENTER: usize = 3;
/// The collector.
pub const COLLECTOR: usize = 4;
const OWNERS: u32 = 5;

/// What all users share.
pub struct World {
    /// The disk.
    pub volume: Volume,
    /// Chance.
    pub random: Random,
    divisor: u64,
    offered: VecDeque<Vec<u32>>,
}

impl World {
    /// An empty disk.
    pub fn new(seed: u64, divisor: u64) -> Self {
        let blocks = DISK_BYTES / BLOCK_BYTES / divisor;
        Self {
            volume: Volume::new(blocks as u32, OWNERS),
            random: Random::new(seed),
            divisor,
            offered: VecDeque::new(),
        }
    }

    /// How many blocks a number of megabytes are, at least one.
    pub fn megabytes(&self, megabytes: u64) -> u32 {
        (megabytes * 1_000_000 / BLOCK_BYTES / self.divisor).max(1) as u32
    }

    /// Blocks of a number of megabytes between two. Small ones are as likely as large ones, each
    /// time that the size doubles: what users make has no typical size.
    pub fn size(&mut self, least: u64, most: u64) -> u32 {
        let doublings = u64::from((most / least).ilog2()) + 1;
        let low = least << self.random.below(doublings);
        let size = low + self.random.below(low);
        self.megabytes(size.min(most))
    }

    /// True in a share of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// A number between two, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least + 1)
    }

    /// Puts an owner's next file elsewhere.
    pub fn move_on(&mut self, owner: usize) {
        let number = self.random.number();
        self.volume.move_on(owner, number);
    }

    /// A file with new contents, in another place.
    pub fn create(&mut self, owner: usize, blocks: u32) -> File {
        self.move_on(owner);
        self.volume.create(owner, blocks)
    }

    /// Many small files with new contents, in several directories. Some were allocated and never
    /// written: their blocks are all the same.
    pub fn scatter(&mut self, owner: usize, blocks: u32) -> File {
        let mut files = File::default();
        self.move_on(owner);
        while files.blocks() < blocks {
            let length = (self.between(8, 64) as u32).min(blocks - files.blocks());
            if self.random.once_in(3) {
                self.move_on(owner);
            }
            let before = files.blocks();
            if self.random.once_in(200) {
                self.volume.append_empty(owner, &mut files, length);
            } else {
                self.volume.append(owner, &mut files, length);
            }
            if files.blocks() == before {
                break;
            }
        }
        files
    }

    /// A copy of a file, in another place.
    pub fn copy(&mut self, owner: usize, file: &File) -> File {
        let contents = self.volume.contents(file);
        self.move_on(owner);
        self.volume.create_from(owner, &contents)
    }

    /// A share of a file's blocks get new contents where they are.
    pub fn renew_some(&mut self, file: &File, per_mille: u64) {
        for address in file.addresses() {
            if self.random.below(1_000) < per_mille {
                self.volume.renew(address);
            }
        }
    }

    /// Fetches something new; others may fetch it again.
    pub fn fetch_new(&mut self, owner: usize, blocks: u32) -> File {
        let file = self.create(owner, blocks);
        if file.blocks() <= OFFERED_BLOCKS_MAX {
            self.offer(&file);
        }
        file
    }

    /// Offers a copy of a file to all.
    pub fn offer(&mut self, file: &File) {
        self.offered.push_back(self.volume.contents(file));
        while self.offered.len() > OFFERED_MAX {
            self.offered.pop_front();
        }
    }

    /// Fetches something that was fetched before, perhaps by another, perhaps deleted since; nothing
    /// if it is larger than a limit.
    pub fn fetch_again(&mut self, owner: usize, megabytes_max: u64) -> Option<File> {
        let place = self.random.below(OFFERED_MAX as u64) as usize;
        let contents = self.offered.get(place)?.clone();
        if contents.len() > self.megabytes(megabytes_max) as usize {
            return None;
        }
        self.move_on(owner);
        Some(self.volume.create_from(owner, &contents))
    }
}
