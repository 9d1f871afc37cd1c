//! Regions of memory in the model: they are stored, are loaded, and those of two snapshots become one.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{MemfdFlags, memfd_create};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_catalog::Guarantee;
use strongroom_engine::{
    BackupOptions, CombinedPart, EngineError, RegionOptions, RegionOutcome, Stillness,
    backup_regions, combine, load_region, regions_of,
};
use strongroom_repository::keys::Access;
use strongroom_repository::read_snapshot;
use strongroom_source::memory::mark::PAGE_BYTES;

use super::Model;
use super::held::{Held, Regions};
use super::memory::{BYTES_MAX, Memory, Writing};
use super::steps::{Needs, forget_held};
use crate::world::options;

/// What a load compares and writes.
const LOADED_BYTES: usize = 4096;

impl Model {
    /// Stores the regions of a bucket, or of both, after some changes. They may change meanwhile.
    pub fn store_regions(&mut self) {
        let bucket = *self.random.pick(&[Some(0), Some(0), Some(1), Some(1), None]);
        let areas = Memory::of(bucket);
        let mut changes = 0;
        while !self.random.once_in(3) {
            let area = areas.start + self.random.below(areas.len() as u64) as usize;
            for edit in self.memory.draw(area, true, &mut self.random) {
                self.memory.edit(area, &edit);
            }
            changes += 1;
        }
        let before = self.memory.contents(areas.clone());
        let mut options = self.region_options(bucket);
        options.pack.deltas = !self.random.once_in(4);
        options.readers = 1 + self.random.below(3) as usize;
        // Any snapshot, one of a tree or of another bucket too.
        if self.random.once_in(4) && !self.expected.is_empty() {
            let ids: Vec<SnapshotId> = self.expected.keys().copied().collect();
            options.parent = Some(*self.random.pick(&ids));
        }
        let (is_written, is_held) = match self.random.below(4) {
            0 => (true, false),
            other => (false, other == 1),
        };
        let mut edits = Vec::new();
        if is_written {
            for area in areas.clone().filter(|area| !before[&self.memory.path(*area)].is_empty()) {
                let drawn = self.memory.draw(area, false, &mut self.random);
                edits.extend(drawn.into_iter().map(|edit| (area, edit)));
            }
        }
        self.note(format!("store {areas:?}: {changes} changes, {} while it is read", edits.len()));
        let memory = self.memory.clone();
        let regions = memory.regions(areas.clone(), is_held);
        let writing = Writing { memory: &memory, edits: Mutex::new(edits) };
        let stillness = is_written.then_some(&writing as &dyn Stillness);
        let what = RegionOptions { passes_max: 2, accepts_fuzzy: false, stillness };
        let mut fired = 0;
        let outcome = self.troubled_counting("store regions", Needs::Any, &mut fired, |opened| {
            backup_regions(opened, &regions, what, &options, &Silent, &Cancel::new())
        });
        let now = memory.contents(areas);
        let new = self.new_snapshots();
        assert!(new.len() <= 1, "seed {}: one store, one snapshot", self.log.seed);
        if let Some(outcome) = &outcome {
            let id = outcome.backup.snapshot.id;
            assert_eq!(new, [id], "seed {}: what was acknowledged", self.log.seed);
            if fired == 0 && self.ledger.is_clean() {
                self.check_stored(outcome, &before, is_held || is_written);
            }
        }
        self.expected.extend(new.into_iter().map(|id| (id, Held::Regions(now.clone()))));
    }

    /// Without damage, what was found of the regions is what a comparison with the parent finds.
    fn check_stored(&self, outcome: &RegionOutcome, before: &Regions, is_read_otherwise: bool) {
        let snapshot = &outcome.backup.snapshot;
        let what = format!("seed {}: store {}", self.log.seed, snapshot.id.short());
        assert!(snapshot.guarantee.unwrap().promise >= Guarantee::BYTES, "{what}");
        assert_eq!(outcome.healed, 0, "{what}: no mark missed a change");
        let parent = snapshot.parent.and_then(|parent| self.expected.get(&parent));
        let Some(parent) = parent.and_then(Held::regions) else { return };
        let is_in_parent = |(path, bytes): (&PathBuf, &Vec<u8>)| {
            parent.get(path).is_some_and(|before| before.len() == bytes.len())
        };
        if !before.iter().all(is_in_parent) {
            return;
        }
        let changed: u64 =
            before.iter().map(|(path, bytes)| differing(&parent[path], bytes, PAGE_BYTES).1).sum();
        // A machine that may only store reads of the parent what its record has the secrets for, and a record
        // may be short. What it cannot read counts as changed.
        if self.keys.iter().any(|key| key.access == Access::PutOnly) {
            return assert!(outcome.pages_changed >= changed, "{what}: {changed} changed");
        }
        assert_eq!(outcome.pages_changed, changed, "{what}");
        if !is_read_otherwise {
            assert_eq!(outcome.passes == 1, changed == 0, "{what}: {} readings", outcome.passes);
        }
    }

    /// Options for a snapshot of a bucket, or of both.
    fn region_options(&self, bucket: Option<usize>) -> BackupOptions {
        let path = bucket.map_or("/file".to_owned(), |bucket| format!("/file/{}", bucket + 1));
        options(Path::new(&path))
    }

    /// The snapshots that have these areas.
    fn having(&self, areas: Range<usize>) -> Vec<SnapshotId> {
        let paths: Vec<PathBuf> = self.memory.contents(areas).into_keys().collect();
        let has = |held: &Held| {
            held.regions().is_some_and(|held| paths.iter().all(|path| held.contains_key(path)))
        };
        self.expected.iter().filter(|(_, held)| has(held)).map(|(id, _)| *id).collect()
    }

    /// Loads a region of some snapshot over something else. It is what it was when it was stored, and
    /// only what differed is written.
    pub fn load_region(&mut self) {
        let number = self.random.below(4) as usize;
        let ids = self.having(number..number + 1);
        if ids.is_empty() {
            return;
        }
        let (id, path) = (*self.random.pick(&ids), self.memory.path(number));
        let stored = self.expected[&id].regions().unwrap()[&path].clone();
        let before = match self.random.below(5) {
            0 => Vec::new(),
            1 => self.memory.contents(number..number + 1).remove(&path).unwrap(),
            2 => self.expected[self.random.pick(&ids)].regions().unwrap()[&path].clone(),
            3 => [&stored[..], &self.random.noise(5000)].concat(),
            _ => {
                let length = self.random.below(BYTES_MAX) as usize;
                self.random.noise(length)
            }
        };
        let target = File::from(memfd_create("loaded", MemfdFlags::CLOEXEC).unwrap());
        target.write_all_at(&before, 0).unwrap();
        let mut fired = 0;
        let outcome = self.troubled_counting("load", Needs::Full, &mut fired, |repository| {
            let snapshot = read_snapshot(repository, id)?;
            let regions = regions_of(
                repository,
                &snapshot,
                path.as_os_str().as_encoded_bytes(),
                &Cancel::new(),
            )?;
            assert_eq!((regions.len(), &regions[0].path), (1, &path));
            load_region(repository, &regions[0], &target, &Silent, &Cancel::new())
        });
        let mut after = vec![0; target.metadata().unwrap().len() as usize];
        target.read_exact_at(&mut after, 0).unwrap();
        let what = format!("seed {}: load {} of {}", self.log.seed, path.display(), id.short());
        // Even if it failed: each byte is what it was, or what was stored.
        let or_zero = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        for (at, byte) in after.iter().enumerate() {
            let is_stored = stored.get(at).is_some_and(|stored| stored == byte);
            assert!(is_stored || or_zero(&before, at) == *byte, "{what}: byte {at} is neither");
        }
        let Some(outcome) = outcome else { return };
        if fired == 0 && !self.ledger.excuses_losses() {
            assert_eq!(outcome.bytes_lost, 0, "{what}");
            assert!(after[..stored.len()] == stored, "{what}: it is not what was stored");
            assert!(after[stored.len()..] == before[stored.len().min(before.len())..], "{what}");
        }
        if before.len() >= stored.len() {
            let (most, _) = differing(&before[..stored.len()], &stored, LOADED_BYTES);
            assert!(outcome.bytes_written <= most, "{what}: {} {most}", outcome.bytes_written);
        }
    }

    /// Makes one snapshot of the buckets of two, which may be forgotten and collected then.
    pub fn combine(&mut self) {
        let (firsts, seconds) =
            (self.having(Memory::of(Some(0))), self.having(Memory::of(Some(1))));
        if firsts.is_empty() || seconds.is_empty() {
            return;
        }
        let parts = [
            (*self.random.pick(&firsts), PathBuf::from("/file/1")),
            (*self.random.pick(&seconds), PathBuf::from("/file/2")),
        ];
        let mut held = Regions::new();
        for (id, path) in &parts {
            let regions = self.expected[id].regions().unwrap().iter();
            let below = regions.filter(|(region, _)| region.starts_with(path));
            held.extend(below.map(|(path, bytes)| (path.clone(), bytes.clone())));
        }
        self.note(format!("combine {} and {}", parts[0].0.short(), parts[1].0.short()));
        let options = self.region_options(None);
        let guarantee = Guarantee::new(Guarantee::EXACT, Guarantee::OWNER);
        let mut is_part_gone = false;
        let outcome = self.troubled("combine", Needs::Full, |repository| {
            let mut taken = Vec::new();
            for (id, path) in &parts {
                let snapshot = read_snapshot(repository, *id)?;
                taken.push(CombinedPart { snapshot, path: path.clone() });
            }
            let made = combine(repository, &taken, guarantee, &options, &Silent, &Cancel::new());
            is_part_gone = matches!(made, Err(EngineError::PartGone { .. }));
            made
        });
        // What is being collected is not named again, nor is what an older generation of another copy alone has.
        let may_be_gone = self.was_merged || parts.iter().any(|(id, _)| self.wished.contains(id));
        let is_excused = !is_part_gone || may_be_gone || self.ledger.excuses_losses();
        assert!(is_excused, "seed {}: a part is gone", self.log.seed);
        let new = self.new_snapshots();
        assert!(new.len() <= 1, "seed {}: one cut", self.log.seed);
        if let Some(outcome) = &outcome {
            assert_eq!(new, [outcome.snapshot.id], "seed {}: what was acknowledged", self.log.seed);
            assert_eq!(outcome.snapshot.stats.bytes_new, 0, "it only names what is there");
        }
        self.expected.extend(new.into_iter().map(|id| (id, Held::Regions(held.clone()))));
        if outcome.is_none() || self.random.once_in(2) {
            return;
        }
        let ids = parts.map(|(id, _)| id);
        self.wished.extend(ids);
        self.note(format!("forget {} and {}", ids[0].short(), ids[1].short()));
        self.troubled("forget", Needs::Full, |repository| forget_held(repository, &ids));
        self.prune();
    }
}

/// How many bytes of blocks differ, and of how many blocks.
fn differing(before: &[u8], now: &[u8], block: usize) -> (u64, u64) {
    let pairs = before.chunks(block).zip(now.chunks(block));
    let differing = pairs.filter(|(before, now)| before != now);
    differing.fold((0, 0), |(bytes, blocks), (_, now)| (bytes + now.len() as u64, blocks + 1))
}
