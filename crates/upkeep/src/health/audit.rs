//! Which files of which snapshots depend on what is lost.
//!
//! Snapshots share most of their trees. A tree that is whole is walked once. One with a loss is
//! walked again, because the loss has to be named in every snapshot that has it. Nodes of recipes
//! are read once in either case.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_arena::CacheLimits;
use strongroom_base::regimes::{Regime, reached};
use strongroom_base::{Cancel, Monitor, Progress, SnapshotId};
use strongroom_catalog::recipe::{check_length, read_node};
use strongroom_catalog::{ChunkRef, Entry, Snapshot};
use strongroom_repository::{
    ChunkReader, Collections, Found, NodeKey, NodeMemo, Repository, RepositoryError, SnapshotEvent,
    SnapshotWalk, TreeKey, TreeMemo, Wishes, read_vouchers,
};

use super::bad::BadPlaces;
use super::known_good::KnownGood;
use super::presence::{Presence, Standing};
use crate::reader::reader_of_everything;

/// A file, or a directory's list of names, of which something is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    /// In this snapshot.
    pub snapshot: SnapshotId,
    /// Where.
    pub path: PathBuf,
    /// Bytes of its content that are lost, as far as known.
    pub lost_bytes: u64,
    /// True for a directory: entries of it are lost.
    pub is_directory: bool,
}

/// Whether a chunk can be read, from where its recipe says or from elsewhere.
pub type Asking<'a> = dyn FnMut(&ChunkRef) -> Result<Standing, RepositoryError> + 'a;

/// What an audit counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Snapshots walked.
    pub snapshots: u64,
    /// Trees read, each once if it is whole.
    pub trees: u64,
    /// Chunks of content checked.
    pub chunks: u64,
    /// Files and lists of names of which nothing can be said, because the place withholds an arena
    /// that they need: each is counted once.
    pub withheld: u64,
}

impl Audited {
    fn add(&mut self, other: Self) {
        self.snapshots += other.snapshots;
        self.trees += other.trees;
        self.chunks += other.chunks;
        self.withheld += other.withheld;
    }
}

/// Names everything that is affected, in all these snapshots. Entries are counted in the progress,
/// if there is one, after what was counted before.
pub fn audit(
    reader: &ChunkReader,
    snapshots: &[Snapshot],
    ask: &mut Asking<'_>,
    progress: Option<&mut Progress>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(Vec<Affected>, Audited), RepositoryError> {
    let mut auditor = Auditor {
        reader,
        ask,
        monitor,
        progress: progress.map(|progress| Entries::of(snapshots, progress)),
        trees: TreeMemo::new(reader.limits().memo_kept_min),
        nodes: NodeMemo::new(reader.limits().memo_kept_min),
        known_good: KnownGood::new(reader.limits()),
        affected: Vec::new(),
        audited: Audited::default(),
    };
    for snapshot in snapshots {
        let name = format!("snapshot {}", snapshot.id.short());
        monitor.detail(&name);
        monitor.working_on(name.as_ref());
        auditor.snapshot(snapshot, cancel)?;
        if let Some(progress) = &mut auditor.progress {
            progress.end(snapshot, monitor);
        }
    }
    Ok((auditor.affected, auditor.audited))
}

/// The same, for a repository that others change meanwhile: a loss counts only if a new reader,
/// which remembers nothing of an earlier state, finds it as well, in a snapshot that no collection
/// has removed.
pub fn audit_beside_others(
    repository: &Repository,
    reader: &ChunkReader,
    snapshots: &[Snapshot],
    bad: &BadPlaces,
    mut progress: Option<&mut Progress>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(Vec<Affected>, Audited), RepositoryError> {
    let (affected, audited) = audit_each_domain(
        repository,
        reader,
        snapshots,
        bad,
        progress.as_deref_mut(),
        monitor,
        cancel,
    )?;
    if affected.is_empty() {
        return Ok((affected, audited));
    }
    let named: HashSet<SnapshotId> = affected.iter().map(|loss| loss.snapshot).collect();
    let named = snapshots.iter().filter(|snapshot| named.contains(&snapshot.id));
    let named: Vec<Snapshot> = named.cloned().collect();
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    let (mut affected, _) =
        audit_each_domain(repository, &reader, &named, bad, progress, monitor, cancel)?;
    let collections = Collections::read(repository)?;
    let wishes = Wishes::read(repository)?;
    affected.retain(|loss| !wishes.let_go(&collections, loss.snapshot));
    Ok((affected, audited))
}

/// How many entries of all snapshots were come to, after the objects that were checked before.
struct Entries<'p> {
    progress: &'p mut Progress,
    /// The count at the end of the present snapshot.
    end: u64,
}

impl<'p> Entries<'p> {
    fn of(snapshots: &[Snapshot], progress: &'p mut Progress) -> Self {
        let end = progress.files;
        let entries = snapshots.iter().map(entries_of).fold(end, u64::saturating_add);
        progress.files_total = Some(entries);
        // Bytes are not counted any more: entries are what takes time.
        progress.bytes_total = None;
        Self { progress, end }
    }

    /// The walk came to an entry. A snapshot may say that it has fewer than it has.
    fn step(&mut self, snapshot: &Snapshot, monitor: &dyn Monitor) {
        let end = self.end.saturating_add(entries_of(snapshot));
        self.progress.files = self.progress.files.saturating_add(1).min(end);
        monitor.progress(self.progress);
    }

    /// The walk is at the end of a snapshot; it passes over what it has seen in another.
    fn end(&mut self, snapshot: &Snapshot, monitor: &dyn Monitor) {
        self.end = self.end.saturating_add(entries_of(snapshot));
        self.progress.files = self.end;
        monitor.progress(self.progress);
    }
}

fn entries_of(snapshot: &Snapshot) -> u64 {
    snapshot.stats.files.saturating_add(snapshot.stats.directories)
}

/// Audits the snapshots of each domain by themselves: what one may name, another may not.
fn audit_each_domain(
    repository: &Repository,
    reader: &ChunkReader,
    snapshots: &[Snapshot],
    bad: &BadPlaces,
    mut progress: Option<&mut Progress>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(Vec<Affected>, Audited), RepositoryError> {
    let mut of_domains: BTreeMap<&str, Vec<Snapshot>> = BTreeMap::new();
    for snapshot in snapshots {
        of_domains.entry(&snapshot.domain).or_default().push(snapshot.clone());
    }
    let (mut affected, mut audited) = (Vec::new(), Audited::default());
    for (domain, snapshots) in of_domains {
        let own = match domain {
            "" => None,
            domain => Some(ChunkReader::of_domain(repository, domain, CacheLimits::default())?),
        };
        let reader = own.as_ref().unwrap_or(reader);
        let mut presence = Presence::default();
        let mut ask = |chunk: &ChunkRef| presence.standing(reader, bad, chunk);
        let (more, also) =
            audit(reader, &snapshots, &mut ask, progress.as_deref_mut(), monitor, cancel)?;
        affected.extend(more);
        audited.add(also);
    }
    affected.truncate(repository.limits.affected_max);
    Ok((affected, audited))
}

struct Auditor<'r, 'g> {
    reader: &'r ChunkReader,
    ask: &'r mut Asking<'g>,
    monitor: &'r dyn Monitor,
    progress: Option<Entries<'r>>,
    /// Whether a tree is whole, with all below it.
    trees: TreeMemo<bool>,
    /// What is lost of the stream that a node is for.
    nodes: NodeMemo<Loss>,
    known_good: KnownGood,
    affected: Vec<Affected>,
    audited: Audited,
}

/// What is lost of a stream, or of a part of it.
#[derive(Debug, Clone, Copy, Default)]
struct Loss {
    any: bool,
    bytes: u64,
    /// Of a part nothing can be said.
    withheld: bool,
}

impl Loss {
    const WITHHELD: Self = Self { any: false, bytes: 0, withheld: true };

    fn of(bytes: u64) -> Self {
        Self { any: true, bytes, withheld: false }
    }

    fn add(&mut self, other: Self) {
        self.any |= other.any;
        self.withheld |= other.withheld;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Auditor<'_, '_> {
    fn snapshot(&mut self, snapshot: &Snapshot, cancel: &Cancel) -> Result<(), RepositoryError> {
        self.audited.snapshots += 1;
        // The directories that the walk is in, and whether all of each is whole so far.
        let mut open: Vec<(TreeKey, bool)> = Vec::new();
        let walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, cancel);
        let mut walk = walk.passing_withheld();
        while let Some(event) = walk.next()? {
            if matches!(event, SnapshotEvent::Enter(_) | SnapshotEvent::Leaf { .. })
                && let Some(progress) = &mut self.progress
            {
                progress.step(snapshot, self.monitor);
            }
            let is_whole = match event {
                SnapshotEvent::Enter(directory) => {
                    let key = TreeKey::of_tree(directory.tree);
                    let known = self.trees.get(key);
                    if known.is_none_or(|is_whole| !is_whole && self.names_more()) {
                        self.audited.trees += 1;
                        open.push((key, true));
                        continue;
                    }
                    walk.skip();
                    known == Some(true)
                }
                SnapshotEvent::Leaf { path, entry } => {
                    let loss = self.loss_of(entry)?;
                    if loss.any {
                        self.name(snapshot.id, path, Some(loss.bytes));
                    }
                    self.audited.withheld += u64::from(loss.withheld);
                    !loss.any
                }
                // Nothing is known to be lost: the tree counts as whole, and is not walked again.
                SnapshotEvent::Lost { error, .. } if error.is_withheld() => {
                    self.audited.withheld += 1;
                    true
                }
                SnapshotEvent::Lost { path, .. } => {
                    self.name(snapshot.id, path, None);
                    false
                }
                SnapshotEvent::Leave { .. } => {
                    let (key, is_whole) = open.pop().expect("what is left was entered");
                    self.trees.insert(key, is_whole);
                    is_whole
                }
            };
            if let Some((_, all)) = open.last_mut() {
                *all &= is_whole;
            }
        }
        Ok(())
    }

    fn names_more(&self) -> bool {
        self.affected.len() < self.reader.limits().affected_max
    }

    /// Names a file of which this many bytes are lost, or a directory.
    fn name(&mut self, snapshot: SnapshotId, path: &[u8], lost_bytes: Option<u64>) {
        if !self.names_more() {
            reached(Regime::LossesCut);
            return;
        }
        let path = if path.is_empty() { b"/" } else { path };
        self.affected.push(Affected {
            snapshot,
            path: PathBuf::from(OsStr::from_bytes(path)),
            lost_bytes: lost_bytes.unwrap_or(0),
            is_directory: lost_bytes.is_none(),
        });
    }

    /// What is lost of a file.
    fn loss_of(&mut self, entry: &Entry) -> Result<Loss, RepositoryError> {
        let Some(content) = entry.content() else { return Ok(Loss::default()) };
        if check_length(entry).is_err() {
            return Ok(Loss::of(entry.metadata.size));
        }
        self.loss_in(content.depth, &content.refs)
    }

    fn loss_in(&mut self, level: u8, refs: &[ChunkRef]) -> Result<Loss, RepositoryError> {
        let mut loss = Loss::default();
        for chunk in refs {
            loss.add(match level {
                _ if chunk.stream_bytes == 0 => Loss::of(0),
                _ if chunk.is_hole() => Loss::default(),
                0 => {
                    self.audited.chunks += 1;
                    match self.standing(chunk)? {
                        Standing::Good => Loss::default(),
                        Standing::Withheld => Loss::WITHHELD,
                        Standing::Lost => Loss::of(chunk.stream_bytes),
                    }
                }
                _ => self.loss_in_node(level, chunk)?,
            });
        }
        Ok(loss)
    }

    fn standing(&mut self, chunk: &ChunkRef) -> Result<Standing, RepositoryError> {
        if self.known_good.has(chunk) {
            return Ok(Standing::Good);
        }
        let standing = (self.ask)(chunk)?;
        if standing == Standing::Good {
            self.known_good.add(chunk);
        }
        Ok(standing)
    }

    /// What is lost of the stream that a node is for. A recipe is at most eight levels deep.
    fn loss_in_node(&mut self, level: u8, node: &ChunkRef) -> Result<Loss, RepositoryError> {
        let key = NodeKey::of_node(node, level);
        if let Some(known) = self.nodes.get(key) {
            return Ok(known);
        }
        let loss = match read_node(node, self.reader).map_err(RepositoryError::from) {
            Ok(refs) => self.loss_in(level - 1, &refs)?,
            Err(error) if error.is_damage() => Loss::of(node.stream_bytes),
            Err(error) if error.is_withheld() => Loss::WITHHELD,
            Err(error) => return Err(error),
        };
        self.nodes.insert(key, loss);
        Ok(loss)
    }
}
