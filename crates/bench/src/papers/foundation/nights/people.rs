//! Four users of different character.

use std::collections::VecDeque;

use super::volume::File;
use super::world::{COLLECTOR, DEVELOPER, EXPERIMENTER, READER, World};

/// Working copies that a developer has at most.
const TREES: usize = 8;

/// Edits sources, builds, and copies whole trees.
pub struct Developer {
    /// Each a list of small files.
    trees: VecDeque<Vec<File>>,
    objects: Vec<File>,
}

impl Developer {
    /// As it is before the first night.
    pub fn settle(world: &mut World) -> Self {
        let first = small_files(world, 600, 2);
        let mut developer = Self { trees: VecDeque::from([first]), objects: Vec::new() };
        for _ in 1..TREES {
            developer.check_out(world, 50);
        }
        developer.objects = small_files(world, 700, 6);
        developer
    }

    /// A night.
    pub fn night(&mut self, world: &mut World, is_weekend: bool) {
        if !world.chance(if is_weekend { 30 } else { 85 }) {
            return;
        }
        self.edit(world);
        if world.chance(70) {
            // Little was touched, or a header that all include.
            let percent = 2 << world.random.below(6);
            self.build(world, percent.min(60));
        }
        if world.random.once_in(25) {
            self.check_out(world, 5);
        }
    }

    /// An editor writes a new file and removes the old one.
    fn edit(&mut self, world: &mut World) {
        let Some(tree) = self.trees.back_mut() else { return };
        let megabytes = world.between(1, 6);
        for _ in 0..world.megabytes(megabytes) {
            let number = world.random.below(tree.len() as u64) as usize;
            if let Some(file) = tree.get_mut(number) {
                replace(world, DEVELOPER, file);
            }
        }
    }

    /// A share of all objects are made again; one in six comes out as it was.
    fn build(&mut self, world: &mut World, percent: u64) {
        world.move_on(DEVELOPER);
        for object in &mut self.objects {
            if !world.chance(percent) {
                continue;
            }
            if world.random.once_in(6) {
                let contents = world.volume.contents(object);
                let again = world.volume.create_from(DEVELOPER, &contents);
                world.volume.remove(object);
                *object = again;
            } else {
                replace(world, DEVELOPER, object);
            }
        }
    }

    /// Copies the newest tree, of which a share of all files is then another.
    fn check_out(&mut self, world: &mut World, percent: u64) {
        world.move_on(DEVELOPER);
        let newest: &[File] = self.trees.back().map_or(&[], |tree| tree.as_slice());
        let mut tree = Vec::with_capacity(newest.len());
        for file in newest {
            tree.push(if world.chance(percent) {
                world.volume.create(DEVELOPER, file.blocks())
            } else {
                let contents = world.volume.contents(file);
                world.volume.create_from(DEVELOPER, &contents)
            });
        }
        self.trees.push_back(tree);
        if self.trees.len() > TREES
            && let Some(oldest) = self.trees.pop_front()
        {
            oldest.iter().for_each(|file| world.volume.remove(file));
        }
    }
}

/// Has all mail in a few files, to which programs append, and which they rewrite.
pub struct Reader {
    folders: Vec<File>,
}

impl Reader {
    /// As it is before the first night.
    pub fn settle(world: &mut World) -> Self {
        let folders = (0..12)
            .map(|_| {
                let blocks = world.size(20, 600);
                world.create(READER, blocks)
            })
            .collect();
        Self { folders }
    }

    /// A night.
    pub fn night(&mut self, world: &mut World) {
        // The last block of a folder is filled up, and more follow.
        let megabytes = world.between(2, 20);
        let blocks = world.megabytes(megabytes);
        if let Some(inbox) = self.folders.first_mut() {
            if let Some(last) = inbox.addresses().last() {
                world.volume.renew(last);
            }
            world.volume.append(READER, inbox, blocks);
        }
        if world.chance(35) {
            self.expunge(world);
        }
        if world.chance(10) {
            // An attachment that another has sent around before is saved.
            if let Some(file) = world.fetch_again(READER, 20) {
                self.folders.push(file);
            }
        }
    }

    /// A message is removed: what is behind it is shifted, so all of it is new. Most programs write
    /// it where it was, some into a new file.
    fn expunge(&mut self, world: &mut World) {
        let number = world.random.below(self.folders.len() as u64) as usize;
        let Some(folder) = self.folders.get_mut(number) else { return };
        let before = u64::from(folder.blocks()) * world.between(30, 98) / 100;
        if world.chance(80) {
            let behind: Vec<u32> = folder.addresses().skip(before as usize).collect();
            behind.into_iter().for_each(|address| world.volume.renew(address));
            return;
        }
        let contents = world.volume.contents(folder);
        world.move_on(READER);
        let mut again = world.volume.create_from(READER, &contents[..before as usize]);
        let rest = folder.blocks() - again.blocks();
        world.volume.append(READER, &mut again, rest);
        world.volume.remove(folder);
        *folder = again;
    }
}

/// Runs programs that write much, keeps what they write as long as there is room, and passes some
/// of it on.
#[derive(Default)]
pub struct Experimenter {
    results: VecDeque<File>,
}

impl Experimenter {
    /// As it is before the first night.
    pub fn settle(world: &mut World) -> Self {
        let mut results = VecDeque::new();
        for _ in 0..6 {
            let blocks = world.size(100, 1_000);
            results.push_back(world.scatter(EXPERIMENTER, blocks));
        }
        Self { results }
    }

    /// A night.
    pub fn night(&mut self, world: &mut World, is_weekend: bool) {
        if !world.chance(if is_weekend { 25 } else { 40 }) {
            return;
        }
        let blocks = world.size(20, 1_600);
        let result = world.scatter(EXPERIMENTER, blocks);
        // A part goes to where others see it, or to the paper.
        if world.chance(15) {
            let contents = world.volume.contents(&result);
            let part = &contents[..contents.len().div_ceil(5)];
            world.move_on(EXPERIMENTER);
            let copy = world.volume.create_from(EXPERIMENTER, part);
            world.offer(&copy);
            self.results.push_back(copy);
        }
        self.results.push_back(result);
    }

    /// In the morning: deletes the oldest results until no more than `target` blocks are used.
    pub fn clean_up(&mut self, world: &mut World, target: u64) {
        while world.volume.used() > target
            && let Some(oldest) = self.results.pop_front()
        {
            world.volume.remove(&oldest);
        }
    }
}

/// Keeps photographs and music, and fetches what is deleted later.
#[derive(Default)]
pub struct Collector {
    kept: Vec<File>,
    /// With the day on which they are deleted.
    passing: Vec<(u32, File)>,
}

impl Collector {
    /// Fills the disk with what was collected up to now.
    pub fn settle(&mut self, world: &mut World, target: u64) {
        while world.volume.used() < target {
            let blocks = world.size(4, 600);
            let room = target - world.volume.used();
            let file = match self.kept.last() {
                // Some of it is there twice: albums beside what was taken from the camera.
                Some(last) if world.chance(5) => world.copy(COLLECTOR, last),
                _ => world.fetch_new(COLLECTOR, blocks.min(room as u32)),
            };
            self.kept.push(file);
        }
    }

    /// A night.
    pub fn night(&mut self, world: &mut World, day: u32) {
        self.passing.retain(|(until, file)| {
            if *until <= day {
                world.volume.remove(file);
            }
            *until > day
        });
        if world.random.once_in(10) {
            let blocks = world.size(100, 700);
            let photographs = world.create(COLLECTOR, blocks);
            self.kept.push(photographs);
        }
        if world.chance(15) {
            let fetched = if world.chance(30) { world.fetch_again(COLLECTOR, 1_000) } else { None };
            let fetched = fetched.unwrap_or_else(|| {
                let blocks = world.size(10, 600);
                world.fetch_new(COLLECTOR, blocks)
            });
            let until = day + world.between(20, 90) as u32;
            self.passing.push((until, fetched));
        }
        // For a journey (§7.1): on the disk for some nights, and in the archive for ever.
        if world.random.once_in(90) {
            let megabytes = world.between(4_400, 7_900);
            let blocks = world.megabytes(megabytes);
            let film = world.create(COLLECTOR, blocks);
            let until = day + world.between(4, 12) as u32;
            self.passing.push((until, film));
        }
    }
}

/// Files of one to `blocks_max` blocks, which fill a number of megabytes.
fn small_files(world: &mut World, megabytes: u64, blocks_max: u64) -> Vec<File> {
    world.move_on(DEVELOPER);
    let (mut left, mut files) = (world.megabytes(megabytes), Vec::new());
    while left > 0 {
        let blocks = (world.between(1, blocks_max) as u32).min(left);
        files.push(world.volume.create(DEVELOPER, blocks));
        left -= blocks;
    }
    files
}

/// Puts a file with new contents in the place of another, as programs do that never leave half a
/// file.
fn replace(world: &mut World, owner: usize, file: &mut File) {
    let again = world.volume.create(owner, file.blocks());
    world.volume.remove(file);
    *file = again;
}
