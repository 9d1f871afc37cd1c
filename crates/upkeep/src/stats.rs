//! `stats`: what the repository holds, what it costs, and what the share of each snapshot is.
//!
//! The repository's numbers come from listings and summaries: no block is opened. A snapshot's
//! numbers come from its trees, and from one mark for each slot that says which snapshot names the
//! chunk, or that several do: four bytes for each stored chunk, for any number of snapshots.

mod growth;
mod marks;

pub use growth::{Cost, CostOwner, Growth, GrowthPoint, growth_stats};

use strongroom_arena::{Arena, ArenaContent, ArenaError, ArenaName, CacheLimits};
use strongroom_backend::ObjectInfo;
use strongroom_base::{
    ArenaId, Cancel, Fingerprint, Monitor, Problem, Progress, Severity, SizeLimits, SnapshotId,
};
use strongroom_catalog::recipe::{Visit, check_length, for_each_chunk};
use strongroom_catalog::{Entry, Recipe, Snapshot};
use strongroom_repository::objects::list_objects;
use strongroom_repository::{
    ChunkReader, Found, NodeKey, NodeMemo, PartKey, PartMemo, Repository, RepositoryError,
    SnapshotEvent, SnapshotWalk, TreeKey, TreeMemo, list_snapshots,
};

use marks::{Mark, Marks, SnapshotNumber};

use crate::reader::reader_of_everything;

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

/// Snapshots may say anything of themselves.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn ratio(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| whole as f64 / part as f64)
}

/// Counts what a repository holds. A key that only stores is enough.
pub fn repository_stats(
    repository: &Repository,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepositoryStats, RepositoryError> {
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
                    Err(error) => return Err(error),
                }
            }
        }
        progress.files += 1;
        monitor.progress(&progress);
    }
    if repository.keys.can_read() {
        let list = readable_snapshots(repository, monitor)?;
        stats.snapshots = list.len() as u64;
        stats.referenced_bytes = sum(list.iter().map(|snapshot| snapshot.stats.bytes));
    }
    Ok(stats)
}

fn arena_of(info: &ObjectInfo) -> Option<ArenaId> {
    ArenaName::of(&info.name).map(|name| name.id)
}

fn readable_snapshots(
    repository: &Repository,
    monitor: &dyn Monitor,
) -> Result<Vec<Snapshot>, RepositoryError> {
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

impl SnapshotStat {
    /// Nothing counted yet.
    fn of(id: SnapshotId) -> Self {
        Self {
            id,
            files: 0,
            directories: 0,
            bytes: 0,
            unique_bytes: 0,
            own_bytes: 0,
            stored_bytes: 0,
            own_stored_bytes: 0,
            unreadable: 0,
        }
    }
}

/// Counts what snapshots hold. What is theirs alone depends on all of the repository's snapshots, so
/// the trees of all are walked: each at most twice, and those of `snapshots` once more.
pub fn snapshot_stats(
    repository: &Repository,
    snapshots: &[Snapshot],
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Vec<SnapshotStat>, RepositoryError> {
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    let mut all = readable_snapshots(repository, monitor)?;
    for wanted in snapshots {
        if !all.iter().any(|snapshot| snapshot.id == wanted.id) {
            all.push(wanted.clone());
        }
    }
    let files_total = Some(sum(snapshots.iter().map(|snapshot| snapshot.stats.files)));
    let progress = Progress { files_total, ..Progress::default() };
    let marks = Marks::new(reader.store());
    let mut counter = Counter { reader: &reader, marks, monitor, cancel, progress };
    let numbered = all.iter().enumerate();
    counter.claim_all(numbered.map(|(place, snapshot)| (snapshot, SnapshotNumber::at(place))))?;
    let number = |id| all.iter().position(|snapshot| snapshot.id == id).map(SnapshotNumber::at);
    let count = |snapshot: &Snapshot| {
        let number = number(snapshot.id).expect("it is one of all");
        let mut count = Count::of(snapshot.id, number, &repository.limits);
        counter.count(snapshot, &mut count)?;
        Ok(count.stat)
    };
    snapshots.iter().map(count).collect()
}

/// Files, directories and bytes below a tree.
#[derive(Debug, Clone, Copy, Default)]
struct Below {
    files: u64,
    directories: u64,
    bytes: u64,
}

impl Below {
    /// With the directory whose tree it is.
    fn with_directory(mut self) -> Self {
        self.directories = self.directories.saturating_add(1);
        self
    }

    /// A directory may hold itself twice, level upon level.
    fn add(&mut self, other: Below) {
        self.files = self.files.saturating_add(other.files);
        self.directories = self.directories.saturating_add(other.directories);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

struct Counter<'r> {
    reader: &'r ChunkReader,
    marks: Marks<'r>,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
    progress: Progress,
}

/// Whose a tree or a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    One(SnapshotNumber),
    Many,
}

impl Counter<'_> {
    /// Has every snapshot claim the chunks that it names, by its number or that of its group. A tree
    /// of one number is walked again when a second one has it, and then never more.
    fn claim_all<'s>(
        &mut self,
        all: impl Iterator<Item = (&'s Snapshot, SnapshotNumber)>,
    ) -> Result<(), RepositoryError> {
        let mut owners = PartMemo::new(self.reader.limits().memo_kept_min);
        for (snapshot, by) in all {
            let what = format!("snapshot {}", snapshot.id.short());
            self.monitor.detail(&what);
            let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, self.cancel);
            while let Some(event) = walk.next()? {
                let claimed = match event {
                    SnapshotEvent::Enter(directory) => {
                        if is_claimed(&mut owners, TreeKey::of_tree(directory.tree), by) {
                            walk.skip();
                            continue;
                        }
                        self.claim(directory.tree, by, &mut owners)
                    }
                    SnapshotEvent::Leaf { entry, .. } => match entry.content() {
                        Some(content) => self.claim(content, by, &mut owners),
                        None => continue,
                    },
                    SnapshotEvent::Lost { error, .. } => Err(error),
                    SnapshotEvent::Leave { .. } => continue,
                };
                match claimed {
                    Err(error) if error.is_damage() => {
                        damage(self.monitor, &what, &error);
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Claims the chunks of a recipe for a snapshot.
    fn claim(
        &mut self,
        recipe: &Recipe,
        by: SnapshotNumber,
        owners: &mut PartMemo<Owner>,
    ) -> Result<(), RepositoryError> {
        for_each_chunk(recipe, self.reader, &mut |chunk, level| {
            self.marks.claim(chunk, by)?;
            let is_done = level > 0 && is_claimed(owners, NodeKey::of_node(chunk, level), by);
            Ok(if is_done { Visit::Past } else { Visit::Into })
        })
    }

    /// Adds what a snapshot holds to a count. What it shares with snapshots that were added before
    /// is not counted again; files, directories and bytes are then those of this one.
    fn count(&mut self, snapshot: &Snapshot, count: &mut Count) -> Result<(), RepositoryError> {
        let mut open: Vec<(TreeKey, Below)> = Vec::new();
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, self.cancel);
        while let Some(event) = walk.next()? {
            let below = match event {
                SnapshotEvent::Enter(directory) => {
                    let key = TreeKey::of_tree(directory.tree);
                    let Some(known) = count.trees.get(key) else {
                        self.chunks(directory.tree, Mark::Tree, count)?;
                        open.push((key, Below::default()));
                        continue;
                    };
                    walk.skip();
                    self.progress.files = self.progress.files.saturating_add(known.files);
                    known.with_directory()
                }
                SnapshotEvent::Leaf { entry, .. } => self.file(entry, count)?,
                SnapshotEvent::Lost { .. } => {
                    count.stat.unreadable += 1;
                    continue;
                }
                SnapshotEvent::Leave { .. } => {
                    let (key, below) = open.pop().expect("what is left was entered");
                    count.trees.insert(key, below);
                    if open.is_empty() {
                        count.stat.files = below.files;
                        count.stat.directories = below.directories;
                        count.stat.bytes = below.bytes;
                    }
                    below.with_directory()
                }
            };
            if let Some((_, above)) = open.last_mut() {
                above.add(below);
            }
        }
        Ok(())
    }

    fn file(&mut self, entry: &Entry, count: &mut Count) -> Result<Below, RepositoryError> {
        let mut file = Below { files: 1, ..Below::default() };
        if check_length(entry).is_err() {
            count.stat.unreadable += 1;
        } else if let Some(content) = entry.content() {
            self.chunks(content, Mark::Content, count)?;
            file.bytes = content.stream_bytes();
            self.progress.bytes = self.progress.bytes.saturating_add(file.bytes);
        }
        self.progress.files = self.progress.files.saturating_add(1);
        if self.progress.files.is_multiple_of(1024) {
            self.monitor.progress(&self.progress);
        }
        Ok(file)
    }

    /// Counts the chunks of a recipe, each once for the snapshot.
    fn chunks(
        &mut self,
        recipe: &Recipe,
        leaves: Mark,
        count: &mut Count,
    ) -> Result<(), RepositoryError> {
        let Count { stat, number, nodes, .. } = count;
        let visited = for_each_chunk(recipe, self.reader, &mut |chunk, level| {
            let mark = if level > 0 { Mark::Node } else { leaves };
            self.marks.count(chunk, mark, *number, stat)?;
            if level == 0 {
                return Ok(Visit::Into);
            }
            let key = NodeKey::of_node(chunk, level);
            let is_new = nodes.get(key).is_none();
            nodes.insert(key, ());
            Ok::<_, RepositoryError>(if is_new { Visit::Into } else { Visit::Past })
        });
        match visited {
            // It was reported when the snapshot claimed its chunks.
            Err(error) if error.is_damage() => stat.unreadable += 1,
            other => other?,
        }
        Ok(())
    }
}

/// A snapshot, or a group of them, that is being counted.
struct Count {
    stat: SnapshotStat,
    number: SnapshotNumber,
    /// The nodes that were counted.
    nodes: NodeMemo<()>,
    /// What the trees hold that were counted: one that is met again adds no chunk.
    trees: TreeMemo<Below>,
}

impl Count {
    fn of(id: SnapshotId, number: SnapshotNumber, limits: &SizeLimits) -> Self {
        let (stat, kept_min) = (SnapshotStat::of(id), limits.memo_kept_min);
        Self { stat, number, nodes: NodeMemo::new(kept_min), trees: TreeMemo::new(kept_min) }
    }
}

/// Whether a snapshot need not go into a tree or node, because it did before, or because more than
/// one snapshot did. If not, this is remembered as done.
fn is_claimed(owners: &mut PartMemo<Owner>, key: impl Into<PartKey>, by: SnapshotNumber) -> bool {
    let key = key.into();
    let owner = match owners.get(key) {
        None => Owner::One(by),
        Some(Owner::One(owner)) if owner != by => Owner::Many,
        Some(_) => return true,
    };
    owners.insert(key, owner);
    false
}
