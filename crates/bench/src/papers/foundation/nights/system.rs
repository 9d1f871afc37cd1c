//! What a machine writes by itself, each night.

use std::collections::VecDeque;

use super::volume::File;
use super::world::{SYSTEM, World};

/// Logs and dumps that are kept.
const LOGS: usize = 8;
const DUMPS: usize = 4;

/// Journal, inodes, database and logs.
pub struct System {
    /// 32 MB, which ext3 had at the time: it wraps on most days.
    journal: File,
    /// Tables of inodes in use: 128 bytes for each file, of which nightly jobs read many.
    inodes: File,
    database: File,
    /// The database's own log, which also wraps.
    ahead: File,
    log: File,
    logs: VecDeque<File>,
    dumps: VecDeque<File>,
}

impl System {
    /// As it is before the first night.
    pub fn settle(world: &mut World) -> Self {
        let mut create = |megabytes| {
            let blocks = world.megabytes(megabytes);
            world.create(SYSTEM, blocks)
        };
        Self {
            journal: create(32),
            inodes: create(90),
            database: create(900),
            ahead: create(90),
            log: create(20),
            logs: (0..LOGS).map(|_| create(12)).collect(),
            dumps: VecDeque::new(),
        }
    }

    /// A night. Quiet ones have half of the database's work, and no dump.
    pub fn night(&mut self, world: &mut World, day: u32, is_quiet: bool) {
        let busy = if is_quiet { 500 } else { 1_000 };
        let share = world.between(600, 1_000) * busy / 1_000;
        world.renew_some(&self.journal, share);
        let share = world.between(300, 900);
        world.renew_some(&self.inodes, share);
        self.rewrite_pages(world, busy);
        let share = world.between(400, 1_000) * busy / 1_000;
        world.renew_some(&self.ahead, share);
        let megabytes = world.between(3, 15);
        let blocks = world.megabytes(megabytes);
        world.volume.append(SYSTEM, &mut self.log, blocks);
        if day.is_multiple_of(7) {
            self.rotate(world);
        }
        if !is_quiet && day.is_multiple_of(2) {
            self.dump(world);
        }
    }

    /// Between 1 and 5 % of all pages, most of them in the hot tenth.
    fn rewrite_pages(&mut self, world: &mut World, busy: u64) {
        let pages = u64::from(self.database.blocks());
        let hot = (pages / 10).max(1);
        let rewritten = pages * world.between(10, 50) * busy / 1_000_000;
        let chosen: Vec<u64> = (0..rewritten)
            .map(|_| {
                let of = if world.chance(60) { hot } else { pages };
                world.random.below(of)
            })
            .collect();
        let addresses: Vec<u32> = self.database.addresses().collect();
        for page in chosen {
            if let Some(address) = addresses.get(page as usize) {
                world.volume.renew(*address);
            }
        }
    }

    /// The log is compressed to an eighth, or copied as it is and then emptied.
    fn rotate(&mut self, world: &mut World) {
        let old = if world.chance(50) {
            let blocks = (self.log.blocks() / 8).max(1);
            world.create(SYSTEM, blocks)
        } else {
            world.copy(SYSTEM, &self.log)
        };
        world.volume.remove(&self.log);
        self.log = File::default();
        self.logs.push_back(old);
        if self.logs.len() > LOGS
            && let Some(oldest) = self.logs.pop_front()
        {
            world.volume.remove(&oldest);
        }
    }

    /// Tables that only grow are the same in each dump up to where they grew; behind that, all is
    /// shifted.
    fn dump(&mut self, world: &mut World) {
        let blocks = world.megabytes(90);
        let same = world.between(10, 40) as usize * blocks as usize / 100;
        let before = self.dumps.back().map(|dump| world.volume.contents(dump));
        let before = before.unwrap_or_default();
        world.move_on(SYSTEM);
        let mut dump = world.volume.create_from(SYSTEM, &before[..same.min(before.len())]);
        let rest = blocks.saturating_sub(dump.blocks());
        world.volume.append(SYSTEM, &mut dump, rest);
        self.dumps.push_back(dump);
        if self.dumps.len() > DUMPS
            && let Some(oldest) = self.dumps.pop_front()
        {
            world.volume.remove(&oldest);
        }
    }
}
