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
use strongroom_base::{Cancel, Monitor, SnapshotId};
use strongroom_catalog::recipe::{check_length, read_node};
use strongroom_catalog::{ChunkRef, Entry, Snapshot};
use strongroom_repository::{
    ChunkReader, Collections, Found, NodeKey, NodeMemo, Repository, RepositoryError, SnapshotEvent,
    SnapshotWalk, TreeKey, TreeMemo, read_vouchers,
};

use super::bad::{BadPlaces, is_good};
use super::known_good::KnownGood;

/// At most this many losses are named, in some 20 MiB of memory. A directory that holds itself
/// twice, level upon level, would have more of them than there is memory.
const AFFECTED_MAX: usize = if cfg!(test) { 1000 } else { 100_000 };

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
pub type IsGood<'g> = dyn FnMut(&ChunkRef) -> Result<bool, RepositoryError> + 'g;

/// What an audit counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Snapshots walked.
    pub snapshots: u64,
    /// Trees read, each once if it is whole.
    pub trees: u64,
    /// Chunks of content checked.
    pub chunks: u64,
}

/// Names everything that is affected, in all these snapshots.
pub fn audit(
    reader: &ChunkReader,
    snapshots: &[Snapshot],
    is_good: &mut IsGood<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(Vec<Affected>, Audited), RepositoryError> {
    let mut auditor = Auditor {
        reader,
        is_good,
        trees: TreeMemo::new(reader.limits().memo_kept_min),
        nodes: NodeMemo::new(reader.limits().memo_kept_min),
        known_good: KnownGood::new(reader.limits().good_marks_max),
        affected: Vec::new(),
        audited: Audited::default(),
    };
    for snapshot in snapshots {
        monitor.detail(&format!("snapshot {}", snapshot.id.short()));
        auditor.snapshot(snapshot, cancel)?;
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
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(Vec<Affected>, Audited), RepositoryError> {
    let (affected, audited) =
        audit_each_domain(repository, reader, snapshots, bad, monitor, cancel)?;
    if affected.is_empty() {
        return Ok((affected, audited));
    }
    let named: HashSet<SnapshotId> = affected.iter().map(|loss| loss.snapshot).collect();
    let named = snapshots.iter().filter(|snapshot| named.contains(&snapshot.id));
    let named: Vec<Snapshot> = named.cloned().collect();
    let reader = ChunkReader::new(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    let (mut affected, _) = audit_each_domain(repository, &reader, &named, bad, monitor, cancel)?;
    let collections = Collections::read(repository)?;
    affected.retain(|loss| !collections.is_gone(loss.snapshot));
    Ok((affected, audited))
}

/// Audits the snapshots of each domain by themselves: what one may name, another may not.
fn audit_each_domain(
    repository: &Repository,
    reader: &ChunkReader,
    snapshots: &[Snapshot],
    bad: &BadPlaces,
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
        let mut good = |chunk: &ChunkRef| is_good(reader, bad, chunk);
        let (more, also) = audit(reader, &snapshots, &mut good, monitor, cancel)?;
        affected.extend(more);
        audited.snapshots += also.snapshots;
        audited.trees += also.trees;
        audited.chunks += also.chunks;
    }
    affected.truncate(AFFECTED_MAX);
    Ok((affected, audited))
}

struct Auditor<'r, 'g> {
    reader: &'r ChunkReader,
    is_good: &'r mut IsGood<'g>,
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
}

impl Loss {
    fn of(bytes: u64) -> Self {
        Self { any: true, bytes }
    }

    fn add(&mut self, other: Self) {
        self.any |= other.any;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Auditor<'_, '_> {
    fn snapshot(&mut self, snapshot: &Snapshot, cancel: &Cancel) -> Result<(), RepositoryError> {
        self.audited.snapshots += 1;
        // The directories that the walk is in, and whether all of each is whole so far.
        let mut open: Vec<(TreeKey, bool)> = Vec::new();
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, cancel);
        while let Some(event) = walk.next()? {
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
                    !loss.any
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
        self.affected.len() < AFFECTED_MAX
    }

    /// Names a file of which this many bytes are lost, or a directory.
    fn name(&mut self, snapshot: SnapshotId, path: &[u8], lost_bytes: Option<u64>) {
        if !self.names_more() {
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
                    match self.is_good(chunk)? {
                        true => Loss::default(),
                        false => Loss::of(chunk.stream_bytes),
                    }
                }
                _ => self.loss_in_node(level, chunk)?,
            });
        }
        Ok(loss)
    }

    fn is_good(&mut self, chunk: &ChunkRef) -> Result<bool, RepositoryError> {
        if self.known_good.has(chunk) {
            return Ok(true);
        }
        let is_good = (self.is_good)(chunk)?;
        if is_good {
            self.known_good.add(chunk);
        }
        Ok(is_good)
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
            Err(error) => return Err(error),
        };
        self.nodes.insert(key, loss);
        Ok(loss)
    }
}
