//! Snapshots that were removed, or are damaged beyond repair, and whose trees still exist.
//!
//! A session without a snapshot was given up, or its snapshot was removed. Its metadata decides: a
//! backup that came to its end has written the tree of `/`, and no other tree names that: one chunk, or
//! the node above its chunks. What a backup that was given up has written last is a tree of some
//! directory. So a tree counts as that of `/` only if the paths of another snapshot lead somewhere in
//! it, or if this machine remembers that the session was committed. Unless it is certain that there was
//! a snapshot, all that the tree needs must exist as well. Where it is certain, and no tree counts as
//! that of `/`, the trees that no other names are what is left of it: another snapshot of the same paths
//! shows which it was.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

use strongroom_arena::ArenaContent;
use strongroom_base::{ArenaId, Cancel, DomainId, Fingerprint, Location, Silent, SnapshotId};
use strongroom_catalog::recipe::{Visit, find_node, for_each_chunk_left};
use strongroom_catalog::{CatalogError, ChunkRef, Entry, Recipe, Snapshot, TreeReader};
use strongroom_repository::{
    Arrivals, ChunkReader, Found, NodeKey, NodeMemo, Repository, RepositoryError, SnapshotEvent,
    SnapshotWalk, Wishes, find_path,
};

use super::audit::audit;
use super::bad::BadPlaces;
use super::census::Unclaimed;
use super::presence::Presence;

/// A snapshot that was removed or is damaged, as far as it can be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostSnapshot {
    /// Its name, which is that of the session that made it.
    pub id: SnapshotId,
    /// Its sequence.
    pub sequence: u64,
    /// The tree of `/`.
    pub root: Recipe,
    /// What was backed up.
    pub paths: Vec<Vec<u8>>,
    /// The machine; empty if no other snapshot has these paths.
    pub host: String,
    /// Whether it was certainly committed once: no other snapshot has its sequence, and a later one
    /// is known; or its object is still there. Otherwise its backup may have failed at the last step.
    pub was_committed: bool,
    /// Whether its object is still there, damaged beyond repair.
    pub is_spoilt: bool,
}

/// What is left of a snapshot that was removed, and that cannot be made again as long as it is not known
/// which of its trees was that of `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecognised {
    /// Its name.
    pub id: SnapshotId,
    /// Its sequence.
    pub sequence: u64,
    /// The domain that made it, if it is another than that of this key.
    pub domain: Option<DomainId>,
    /// Whether it was certainly committed once.
    pub was_committed: bool,
    /// The trees that no other one names: what they need is what it needed.
    pub trees: Vec<Recipe>,
}

impl Unrecognised {
    /// Why it cannot be read.
    pub fn why_gone(&self) -> &'static str {
        why_removed(self.was_committed)
    }

    /// What brings it back.
    pub fn way_out(&self) -> &'static str {
        match self.domain {
            None => {
                "`strongroom repair` commits it again once there is another snapshot of its paths, or \
                 `repair --from` a replica"
            }
            Some(_) => "`strongroom repair --from` a replica brings it back",
        }
    }
}

/// The snapshots that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Those that can be made again, as far as they are there.
    pub snapshots: Vec<LostSnapshot>,
    /// The others: those of which the root is not known, and those of other domains.
    pub unrecognised: Vec<Unrecognised>,
}

impl LostSnapshot {
    /// What it was, as far as others are compared with it.
    fn as_snapshot(&self, domain: &str) -> Snapshot {
        Snapshot {
            domain: domain.to_owned(),
            sequence: self.sequence,
            host: self.host.clone(),
            paths: self.paths.clone(),
            root: self.root.clone(),
            ..Snapshot::empty(self.id)
        }
    }

    /// Why it cannot be read.
    pub fn why_gone(&self) -> &'static str {
        match self.is_spoilt {
            true => "it is damaged beyond repair; its files are still there",
            false => why_removed(self.was_committed),
        }
    }
}

fn why_removed(was_committed: bool) -> &'static str {
    match was_committed {
        true => "it was removed without having been forgotten",
        false => "it was removed, or its backup failed when everything was stored",
    }
}

/// What a tree of `/` is recognised by.
pub struct Known<'k> {
    /// The snapshots that can be read.
    pub snapshots: &'k [Snapshot],
    /// The last snapshot that this machine committed.
    pub own_newest: Option<SnapshotId>,
    /// Sequences of the owner's domain that no snapshot has.
    pub missing: &'k [RangeInclusive<u64>],
    /// What the owner wishes and says of them.
    pub wishes: &'k Wishes,
    /// What the owner saw of other domains.
    pub arrivals: &'k Arrivals,
}

impl Known<'_> {
    /// Whether the owner's own words prove that a session was committed.
    fn was_spoken_of(&self, session: SnapshotId) -> bool {
        self.wishes.is_certainly_held(session) || self.arrivals.seen(session).is_some()
    }
}

/// The greatest sequence of the owner's domain of which sessions without a snapshot prove that there was
/// one: each has one more than the greatest that it knew of. What other domains write proves nothing.
pub fn proven_sequence(
    repository: &Repository,
    reader: &ChunkReader,
    unclaimed: &[Unclaimed],
) -> Result<u64, RepositoryError> {
    let mut greatest = 0;
    if !repository.secret.domain_name().is_empty() {
        return Ok(greatest);
    }
    for id in unclaimed.iter().flat_map(|session| &session.metadata) {
        match reader.store().arena(*id).map_err(RepositoryError::from) {
            Ok(arena) if arena.domain == repository.write_keys().domain.id => {
                greatest = greatest.max(arena.origin.sequence);
            }
            Ok(_) => {}
            Err(error) if error.is_damage() || error.is_withheld() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(greatest.saturating_sub(1))
}

/// Finds the lost snapshots among sessions without one. Those that can be made again are of this key's
/// own domain: another one speaks for itself, and no snapshot is committed in its name.
pub fn find_lost(
    repository: &Repository,
    reader: &ChunkReader,
    unclaimed: &[Unclaimed],
    known: &Known<'_>,
    cancel: &Cancel,
) -> Result<Lost, RepositoryError> {
    let own = repository.secret.domain_name();
    let mut lost = Lost::default();
    if unclaimed.is_empty() {
        return Ok(lost);
    }
    let roots = Roots::read(known, reader, repository.limits.memo_kept_min)?;
    // What this machine remembers is found without the paths of others, and shows what others were.
    let mut sessions: Vec<&Unclaimed> = unclaimed.iter().collect();
    sessions.sort_by_key(|session| known.own_newest != Some(session.id));
    let mut remembered = None;
    for session in sessions {
        let is_remembered = known.own_newest == Some(session.id);
        let is_missing = known.missing.iter().any(|gap| gap.contains(&session.sequence));
        let was_committed = is_remembered
            || session.is_spoilt
            || (own.is_empty() && is_missing)
            || known.was_spoken_of(session.id);
        let finder = Finder {
            repository,
            reader,
            session,
            known,
            is_remembered,
            remembered: remembered.as_ref(),
            was_committed,
            roots: &roots,
            cancel,
        };
        match finder.find(&mut lost) {
            // Nothing can be said of it as long as the place withholds it.
            Err(error) if error.is_withheld() => {}
            found => found?,
        }
        let found = lost.snapshots.last().filter(|_| is_remembered);
        remembered = remembered.or(found.map(|found| found.as_snapshot(own)));
    }
    lost.snapshots.sort_by_key(|snapshot| (snapshot.sequence, snapshot.id));
    lost.unrecognised.sort_by_key(|session| (session.sequence, session.id));
    Ok(lost)
}

/// The chunks of the trees of `/` of the snapshots that can be read.
#[derive(Default)]
struct Roots {
    kept: HashSet<Fingerprint>,
    /// Those of snapshots that are to go, if no other has them.
    going: HashSet<Fingerprint>,
}

impl Roots {
    fn read(
        known: &Known<'_>,
        reader: &ChunkReader,
        memo_kept_min: usize,
    ) -> Result<Self, RepositoryError> {
        let mut roots = Self::default();
        let (going, kept): (Vec<&Snapshot>, Vec<&Snapshot>) =
            known.snapshots.iter().partition(|snapshot| known.wishes.forget(snapshot.id));
        for (snapshots, named) in [(kept, &mut roots.kept), (going, &mut roots.going)] {
            let mut nodes = NodeMemo::new(memo_kept_min);
            for snapshot in snapshots {
                name_chunks(&snapshot.root, reader, named, &mut nodes)?;
            }
        }
        Ok(roots)
    }

    /// Whether the root of a snapshot names a chunk. A session that certainly had one may have had the
    /// tree of a snapshot that is to go: then it keeps what both need.
    fn name(&self, chunk: &Fingerprint, was_committed: bool) -> bool {
        self.kept.contains(chunk) || (!was_committed && self.going.contains(chunk))
    }
}

/// A tree, or part of one.
enum Piece {
    /// A chunk of a tree: of most, the only one.
    Chunk { chunk: ChunkRef, entries: Vec<Entry> },
    /// A node above such chunks, and how many levels above.
    Node { node: ChunkRef, depth: u8, refs: Vec<ChunkRef> },
}

impl Piece {
    /// The tree that it is if nothing else belongs to it.
    fn into_tree(self) -> Recipe {
        match self {
            Self::Chunk { chunk, .. } => Recipe { depth: 0, refs: vec![chunk] },
            Self::Node { node, depth, .. } => Recipe { depth, refs: vec![node] },
        }
    }
}

struct Finder<'f> {
    repository: &'f Repository,
    reader: &'f ChunkReader,
    session: &'f Unclaimed,
    known: &'f Known<'f>,
    is_remembered: bool,
    remembered: Option<&'f Snapshot>,
    was_committed: bool,
    roots: &'f Roots,
    cancel: &'f Cancel,
}

impl Finder<'_> {
    /// Finds the snapshot of the session, if exactly one tree may be its root.
    fn find(&self, lost: &mut Lost) -> Result<(), RepositoryError> {
        let (arenas, domain) = self.arenas()?;
        let (mut named, mut nodes) =
            (HashSet::new(), NodeMemo::new(self.repository.limits.memo_kept_min));
        self.each_tree(&arenas, |piece| {
            match piece {
                Piece::Chunk { entries, .. } => {
                    for tree in entries.iter().filter_map(Entry::tree) {
                        name_chunks(tree, self.reader, &mut named, &mut nodes)?;
                    }
                }
                Piece::Node { refs, .. } => {
                    named.extend(refs.iter().map(|below| below.fingerprint));
                }
            }
            Ok(())
        })?;
        let (mut found, mut trees): (Vec<LostSnapshot>, Vec<Recipe>) = (Vec::new(), Vec::new());
        self.each_tree(&arenas, |piece| {
            let tree = piece.into_tree();
            let name = &tree.refs[0].fingerprint;
            if !named.contains(name) && !self.roots.name(name, self.was_committed) {
                found.extend(self.as_root(&tree, domain.is_none())?);
                trees.push(tree);
            }
            Ok(())
        })?;
        let was_committed = self.was_committed;
        let only = found.pop().filter(|_| found.is_empty());
        let only = match only {
            Some(only) if !was_committed && !self.is_whole(&only)? => return Ok(()),
            other => other,
        };
        let Unclaimed { id, sequence, is_spoilt, .. } = *self.session;
        match only {
            Some(only) if domain.is_none() => lost.snapshots.push(only),
            // No snapshot is committed in the name of another domain.
            Some(only) => {
                let trees = vec![only.root];
                lost.unrecognised.push(Unrecognised { id, sequence, domain, was_committed, trees });
            }
            // One that is damaged, and not gone, stops every prune itself.
            None if was_committed && !trees.is_empty() && !is_spoilt => {
                lost.unrecognised.push(Unrecognised { id, sequence, domain, was_committed, trees });
            }
            None => {}
        }
        Ok(())
    }

    /// False for what a backup wrote that failed: arenas are written side by side, so the last tree
    /// may exist while an arena of data does not.
    fn is_whole(&self, found: &LostSnapshot) -> Result<bool, RepositoryError> {
        let itself = Snapshot { root: found.root.clone(), ..Snapshot::empty(found.id) };
        let bad = BadPlaces::default();
        let mut presence = Presence::default();
        let mut ask = |chunk: &ChunkRef| presence.standing(self.reader, &bad, chunk);
        let (affected, audited) =
            audit(self.reader, &[itself], &mut ask, None, &Silent, self.cancel)?;
        Ok(affected.is_empty() && audited.withheld == 0)
    }

    /// The arenas of metadata that can be read, and another domain that wrote one of them.
    fn arenas(&self) -> Result<(BTreeSet<ArenaId>, Option<DomainId>), RepositoryError> {
        let (mut arenas, mut other) = (BTreeSet::new(), None);
        for id in &self.session.metadata {
            match self.reader.store().arena(*id) {
                Ok(arena) => {
                    let is_own = arena.domain == self.repository.write_keys().domain.id;
                    other = other.or(Some(arena.domain).filter(|_| !is_own));
                    arenas.insert(*id);
                }
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((arenas, other))
    }

    /// Reads every chunk that is a tree, or part of a large one, and every node above such parts.
    fn each_tree(
        &self,
        arenas: &BTreeSet<ArenaId>,
        mut take: impl FnMut(Piece) -> Result<(), RepositoryError>,
    ) -> Result<(), RepositoryError> {
        for id in arenas {
            // A generation that another copy brought back may have what a later one has no more.
            let generations = self.reader.store().arenas(*id)?;
            let slots = generations.iter().flat_map(|arena| arena.slots());
            let mut seen = HashSet::new();
            for (slot, named) in slots.filter(|(slot, _)| seen.insert(*slot)) {
                self.cancel.check()?;
                let (location, stream_bytes) =
                    (Location { arena: *id, slot }, named.chunk_bytes.into());
                let fingerprint = self.reader.naming().name_in(location, named.fingerprint);
                let chunk = ChunkRef { fingerprint, location, stream_bytes };
                if let Some(piece) = self.piece(chunk)? {
                    take(piece)?;
                }
            }
        }
        Ok(())
    }

    /// The piece of a tree that a chunk of metadata is; `None` if it is lost, or a node of a file's content.
    fn piece(&self, chunk: ChunkRef) -> Result<Option<Piece>, RepositoryError> {
        if let Some(entries) = self.entries(chunk)? {
            return Ok(Some(Piece::Chunk { chunk, entries }));
        }
        let Some((node, refs)) = self.node(&chunk)? else { return Ok(None) };
        let mut first = refs[0];
        for depth in 1..=Recipe::DEPTH_MAX {
            if first.is_hole() || ArenaContent::of(first.location.arena) != ArenaContent::Metadata {
                return Ok(None);
            }
            if self.entries(first)?.is_some() {
                return Ok(Some(Piece::Node { node, depth, refs }));
            }
            let Some((_, below)) = self.node(&first)? else { return Ok(None) };
            first = below[0];
        }
        Ok(None)
    }

    /// The entries of a chunk of a tree.
    fn entries(&self, chunk: ChunkRef) -> Result<Option<Vec<Entry>>, RepositoryError> {
        let tree = Recipe { depth: 0, refs: vec![chunk] };
        readable(TreeReader::new(&tree, self.reader).read_all())
    }

    /// The reference to a node, and what it names.
    fn node(&self, place: &ChunkRef) -> Result<Option<(ChunkRef, Vec<ChunkRef>)>, RepositoryError> {
        readable(find_node(place, self.reader))
    }

    /// The snapshot with this tree as that of `/`, if it may be.
    fn as_root(
        &self,
        root: &Recipe,
        is_own: bool,
    ) -> Result<Option<LostSnapshot>, RepositoryError> {
        let Unclaimed { id, sequence, is_spoilt, .. } = *self.session;
        let was_committed = self.was_committed;
        let itself = Snapshot { root: root.clone(), ..Snapshot::empty(id) };
        if !self.has_a_file(&itself)? {
            return Ok(None);
        }
        let nearest = |other: &&Snapshot| other.sequence.abs_diff(sequence);
        let own = self.repository.secret.domain_name();
        let others = self.known.snapshots.iter().chain(self.remembered);
        let mut others: Vec<&Snapshot> =
            others.filter(|other| (other.domain == own) == is_own).collect();
        others.sort_by_key(nearest);
        let mut asked = HashSet::new();
        for other in others.into_iter().filter(|other| asked.insert(&other.paths)) {
            let leads = |path: &Vec<u8>| leads_somewhere(&itself, path, self.reader);
            if !other.paths.is_empty() && all(other.paths.iter().map(leads))? {
                let (paths, host) = (other.paths.clone(), other.host.clone());
                return Ok(Some(LostSnapshot {
                    id,
                    sequence,
                    root: root.clone(),
                    paths,
                    host,
                    was_committed,
                    is_spoilt,
                }));
            }
        }
        if !self.is_remembered || !is_own {
            return Ok(None);
        }
        let (root, paths) = (root.clone(), vec![self.top(root)?]);
        let host = String::new();
        Ok(Some(LostSnapshot { id, sequence, root, paths, host, was_committed, is_spoilt }))
    }

    /// False for what a backup wrote that was stopped before its first file.
    fn has_a_file(&self, snapshot: &Snapshot) -> Result<bool, RepositoryError> {
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, self.cancel);
        while let Some(event) = walk.next()? {
            if matches!(event, SnapshotEvent::Leaf { .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first directory that holds anything but one directory.
    fn top(&self, root: &Recipe) -> Result<Vec<u8>, RepositoryError> {
        let mut path = Vec::new();
        let mut entries = TreeReader::new(root, self.reader).read_all()?;
        while let [Entry { name, .. }] = &entries[..]
            && let Some(tree) = entries[0].tree()
        {
            path.push(b'/');
            path.extend_from_slice(name);
            entries = TreeReader::new(tree, self.reader).read_all()?;
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }
}

/// Names every chunk of a directory's tree, also those below the nodes of a large one.
fn name_chunks(
    tree: &Recipe,
    reader: &ChunkReader,
    named: &mut HashSet<Fingerprint>,
    nodes: &mut NodeMemo<()>,
) -> Result<(), RepositoryError> {
    let mut visit = |chunk: &ChunkRef, level| {
        named.insert(chunk.fingerprint);
        let is_known = level > 0 && nodes.was_met(NodeKey::of_node(chunk, level));
        Ok(if is_known { Visit::Past } else { Visit::Into })
    };
    // What a lost node names is not known.
    let mut lost = |error: RepositoryError| match error.is_damage() || error.is_unknown() {
        true => Ok(()),
        false => Err(error),
    };
    for_each_chunk_left(tree, reader, &mut visit, &mut lost)
}

/// `None` for what is damaged, or is not what was looked for.
fn readable<T>(
    outcome: Result<T, CatalogError<RepositoryError>>,
) -> Result<Option<T>, RepositoryError> {
    match outcome.map_err(RepositoryError::from) {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_damage() || error.is_unknown() => Ok(None),
        Err(error) => Err(error),
    }
}

fn leads_somewhere(
    snapshot: &Snapshot,
    path: &[u8],
    reader: &ChunkReader,
) -> Result<bool, RepositoryError> {
    match find_path(snapshot, path, reader) {
        Ok(_) => Ok(true),
        Err(RepositoryError::NoSuchPath { .. }) => Ok(false),
        Err(error) if error.is_damage() || error.is_unknown() => Ok(false),
        Err(error) => Err(error),
    }
}

fn all(
    mut answers: impl Iterator<Item = Result<bool, RepositoryError>>,
) -> Result<bool, RepositoryError> {
    answers.try_fold(true, |so_far, answer| Ok(so_far && answer?))
}
