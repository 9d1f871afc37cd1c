//! `stats`: what the repository holds, what it costs, and what the share of each snapshot is.
//!
//! The repository's numbers come from listings and summaries: no block is opened. A snapshot's
//! numbers come from its trees, and from one mark a slot that says which snapshot named the chunk
//! last and whether another one does too: four bytes a stored chunk, for any number of snapshots.

mod marks;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use strongroom_arena::{Arena, ArenaContent, ArenaError, ArenaName, CacheLimits};
use strongroom_backend::ObjectInfo;
use strongroom_base::{
    ArenaId, Cancel, Fingerprint, Monitor, Problem, Progress, Severity, SnapshotId,
};
use strongroom_catalog::{EntryKind, Recipe, Snapshot, TreeReader};
use strongroom_repository::objects::list_objects;
use strongroom_repository::{ChunkReader, Repository, RepositoryError, list_snapshots};

use crate::error::EngineError;
use marks::{Mark, Marks};

/// What the arenas of one kind hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArenaTotals {
    /// How many there are.
    pub arenas: u64,
    /// Bytes of their objects.
    pub object_bytes: u64,
    /// Stored bytes of their blocks, without frames.
    pub block_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of those chunks before compression.
    pub chunk_bytes: u64,
    /// Chunks that are stored as deltas.
    pub deltas: u64,
}

impl ArenaTotals {
    /// What parity, signatures, summaries and frames take.
    pub fn overhead_bytes(&self) -> u64 {
        self.object_bytes.saturating_sub(self.block_bytes)
    }

    fn add(&mut self, arena: &Arena) {
        let blocks = &arena.summary.blocks;
        self.blocks += blocks.len() as u64;
        self.block_bytes += blocks.iter().map(|b| u64::from(b.frame.sealed_bytes)).sum::<u64>();
        for slot in arena.summary.slots.iter().filter(|s| s.fingerprint != Fingerprint::ZERO) {
            self.chunks += 1;
            self.chunk_bytes += u64::from(slot.chunk_bytes);
            self.deltas += u64::from(!slot.bases.is_empty());
        }
    }
}

/// What a repository holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepositoryStats {
    /// Snapshots that can be read.
    pub snapshots: u64,
    /// Bytes of content that restoring every snapshot would give, by the numbers recorded in the
    /// snapshots.
    pub referenced_bytes: u64,
    /// Chunks of files.
    pub data: ArenaTotals,
    /// Trees and nodes of recipes.
    pub metadata: ArenaTotals,
    /// Bytes of all objects but arenas: configuration, keys, snapshots, sessions.
    pub small_bytes: u64,
    /// Arenas that cannot be read; of them only the sizes are counted.
    pub unreadable: u64,
    /// Arenas of other domains, and of newer programs, that this key or program does not open; of
    /// them only the sizes are counted.
    pub not_opened: u64,
}

impl RepositoryStats {
    /// Bytes of all objects.
    pub fn stored_bytes(&self) -> u64 {
        self.data.object_bytes + self.metadata.object_bytes + self.small_bytes
    }

    /// How many bytes of content one byte of a kept chunk represents; `None` in an empty
    /// repository.
    pub fn dedup_ratio(&self) -> Option<f64> {
        ratio(self.referenced_bytes, self.data.chunk_bytes)
    }

    /// How many bytes of chunks one byte of a block represents.
    pub fn compression_ratio(&self) -> Option<f64> {
        let chunk_bytes = self.data.chunk_bytes + self.metadata.chunk_bytes;
        ratio(chunk_bytes, self.data.block_bytes + self.metadata.block_bytes)
    }

    /// How many bytes of content one byte of the repository represents.
    pub fn total_ratio(&self) -> Option<f64> {
        ratio(self.referenced_bytes, self.stored_bytes())
    }
}

fn ratio(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| whole as f64 / part as f64)
}

/// Counts what a repository holds. A key that only stores is enough.
pub fn repository_stats(
    repository: &Repository,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepositoryStats, EngineError> {
    let mut stats = RepositoryStats::default();
    let objects = list_objects(repository.backend())?;
    let store = repository.arena_store(CacheLimits::default());
    let files_total = Some(objects.len() as u64);
    let mut progress = Progress { files_total, ..Progress::default() };
    for info in &objects {
        cancel.check()?;
        match arena_of(info) {
            None => stats.small_bytes += info.bytes,
            Some(id) => {
                let totals = match ArenaContent::of(id) {
                    ArenaContent::Data => &mut stats.data,
                    ArenaContent::Metadata => &mut stats.metadata,
                };
                totals.arenas += 1;
                totals.object_bytes += info.bytes;
                match store.arena(id).map_err(RepositoryError::from) {
                    Ok(arena) => totals.add(&arena),
                    Err(RepositoryError::Arena(ArenaError::Foreign { .. })) => {
                        stats.not_opened += 1;
                    }
                    Err(error) if error.is_unknown() => stats.not_opened += 1,
                    Err(error) if error.is_damage() => {
                        stats.unreadable += 1;
                        damage(monitor, info.name.as_str(), &error);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        progress.files += 1;
        monitor.progress(&progress);
    }
    if repository.keys.can_read() {
        let list = readable_snapshots(repository, monitor)?;
        stats.snapshots = list.len() as u64;
        stats.referenced_bytes = list.iter().map(|snapshot| snapshot.stats.bytes).sum();
    }
    Ok(stats)
}

fn arena_of(info: &ObjectInfo) -> Option<ArenaId> {
    ArenaName::of(&info.name).map(|name| name.id)
}

fn readable_snapshots(
    repository: &Repository,
    monitor: &dyn Monitor,
) -> Result<Vec<Snapshot>, EngineError> {
    let list = list_snapshots(repository)?;
    for (id, error) in &list.newer {
        report(monitor, Severity::Warning, &format!("snapshot {}", id.short()), error);
    }
    for (id, error) in &list.unreadable {
        damage(monitor, &format!("snapshot {}", id.short()), error);
    }
    Ok(list.snapshots)
}

fn damage(monitor: &dyn Monitor, what: &str, error: &RepositoryError) {
    report(monitor, Severity::Damage, what, error);
}

fn report(monitor: &dyn Monitor, severity: Severity, what: &str, error: &RepositoryError) {
    let (path, message) = (Some(what.as_ref()), &error.to_string());
    monitor.problem(Problem { severity, path, message });
}

/// What a snapshot holds, and what of the repository is its share.
///
/// Chunks are distinguished by where they are: one that was stored again after a loss counts as
/// another. Stored bytes are a chunk's share in its block, so they add up to the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotStat {
    /// The snapshot.
    pub id: SnapshotId,
    /// Entries that are not directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of content, counting each file once for each of its names.
    pub bytes: u64,
    /// Bytes of content, each chunk once.
    pub unique_bytes: u64,
    /// Bytes of those chunks that no other snapshot of the repository names.
    pub own_bytes: u64,
    /// Bytes that the snapshot's chunks, trees included, take in blocks.
    pub stored_bytes: u64,
    /// Bytes of blocks that would be free if this snapshot alone were forgotten.
    pub own_stored_bytes: u64,
    /// Trees and recipes that cannot be read; what they name is not counted.
    pub unreadable: u64,
}

/// Counts what snapshots hold. What only one of them holds depends on all snapshots of the
/// repository, so all of them are walked.
pub fn snapshot_stats(
    repository: &Repository,
    snapshots: &[Snapshot],
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Vec<SnapshotStat>, EngineError> {
    let reader = ChunkReader::new(repository, CacheLimits::default())?;
    let mut all = readable_snapshots(repository, monitor)?;
    for wanted in snapshots {
        if !all.iter().any(|snapshot| snapshot.id == wanted.id) {
            all.push(wanted.clone());
        }
    }
    let files_total = Some(all.iter().map(|snapshot| snapshot.stats.files).sum());
    let progress = Progress { files_total, ..Progress::default() };
    let mut counter = Counter {
        reader: &reader,
        marks: Marks::new(reader.store()),
        stats: Vec::with_capacity(all.len()),
        walked: HashMap::new(),
        monitor,
        cancel,
        progress,
    };
    for snapshot in &all {
        counter.snapshot(snapshot)?;
    }
    let counted: HashMap<SnapshotId, SnapshotStat> =
        counter.stats.into_iter().map(|stat| (stat.id, stat)).collect();
    Ok(snapshots.iter().map(|snapshot| counted[&snapshot.id]).collect())
}

/// Files, directories and bytes below a tree.
#[derive(Debug, Clone, Copy, Default)]
struct Below {
    files: u64,
    directories: u64,
    bytes: u64,
}

impl Below {
    fn add(&mut self, other: Below) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
    }
}

/// A directory that is being walked.
struct Level<'r> {
    entries: TreeReader<'r, ChunkReader>,
    key: [u8; 32],
    below: Below,
}

struct Counter<'r> {
    reader: &'r ChunkReader,
    marks: Marks<'r>,
    /// Of the snapshots so far; the last one is being counted.
    stats: Vec<SnapshotStat>,
    /// What the trees of the snapshot being counted hold: a repeated tree adds no chunk.
    walked: HashMap<[u8; 32], Below>,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
    progress: Progress,
}

impl<'r> Counter<'r> {
    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        self.monitor.detail(&format!("snapshot {}", snapshot.id.short()));
        self.walked.clear();
        self.stats.push(SnapshotStat {
            id: snapshot.id,
            files: 0,
            directories: 0,
            bytes: 0,
            unique_bytes: 0,
            own_bytes: 0,
            stored_bytes: 0,
            own_stored_bytes: 0,
            unreadable: 0,
        });
        let below = self.tree(&snapshot.root)?;
        let stat = self.stats.last_mut().expect("just pushed");
        (stat.files, stat.directories, stat.bytes) = (below.files, below.directories, below.bytes);
        Ok(())
    }

    /// Walks a tree to its end. An explicit stack: trees are deeper than stacks.
    fn tree(&mut self, root: &Recipe) -> Result<Below, EngineError> {
        let mut levels: Vec<Level<'r>> = Vec::new();
        levels.push(self.descend(root)?);
        while let Some(level) = levels.last_mut() {
            self.cancel.check()?;
            let entry = match level.entries.next_entry().map_err(RepositoryError::from) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    let level = levels.pop().expect("just looked at");
                    self.walked.insert(level.key, level.below);
                    let Some(above) = levels.last_mut() else { return Ok(level.below) };
                    above.below.add(level.below);
                    continue;
                }
                Err(error) => {
                    self.unreadable(error)?;
                    continue;
                }
            };
            match &entry.kind {
                EntryKind::Directory { tree, .. } => {
                    level.below.directories += 1;
                    if let Some(below) = self.walked.get(&tree.digest()) {
                        level.below.add(*below);
                    } else {
                        levels.push(self.descend(tree)?);
                    }
                }
                EntryKind::File { content } => {
                    let bytes = content.stream_bytes();
                    level.below.files += 1;
                    level.below.bytes += bytes;
                    self.recipe(content, Mark::Content)?;
                    self.progress.bytes += bytes;
                    self.tell_file();
                }
                _ => {
                    level.below.files += 1;
                    self.tell_file();
                }
            }
        }
        Ok(Below::default())
    }

    fn descend(&mut self, tree: &Recipe) -> Result<Level<'r>, EngineError> {
        self.recipe(tree, Mark::Tree)?;
        let (entries, below) = (TreeReader::new(tree, self.reader), Below::default());
        Ok(Level { entries, key: tree.digest(), below })
    }

    /// Marks every chunk of a recipe for the snapshot being counted.
    fn recipe(&mut self, recipe: &Recipe, leaves: Mark) -> Result<(), EngineError> {
        let (marks, stats) = (&mut self.marks, &mut self.stats);
        let mut failed = None;
        let visited = strongroom_catalog::recipe::for_each_chunk(
            recipe,
            self.reader,
            &mut |chunk, is_node| {
                let mark = if is_node { Mark::Node } else { leaves };
                if let Err(error) = marks.mark(chunk, mark, stats) {
                    failed.get_or_insert(error);
                }
            },
        );
        match (failed, visited) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => self.unreadable(RepositoryError::from(error)),
            (None, Ok(())) => Ok(()),
        }
    }

    fn unreadable(&mut self, error: RepositoryError) -> Result<(), EngineError> {
        if !error.is_damage() {
            return Err(error.into());
        }
        let stat = self.stats.last_mut().expect("a snapshot is being counted");
        stat.unreadable += 1;
        damage(self.monitor, &format!("snapshot {}", stat.id.short()), &error);
        Ok(())
    }

    fn tell_file(&mut self) {
        self.progress.files += 1;
        if self.progress.files.is_multiple_of(1024) {
            self.monitor.progress(&self.progress);
        }
    }
}
