//! `prune --defragment`: brings together what a snapshot needs (Foundation §7).
//!
//! No object changes. The chunks that are scattered are stored again, side by side, and a new
//! snapshot of the same content, times and paths names them there; the old one is forgotten, and
//! the next collection removes it. So this is a writer as any other (`docs/concurrency.md`). Other
//! snapshots go on naming the old places.

use std::collections::HashMap;
use std::ops::Range;

use strongroom_arena::CacheLimits;
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor, Progress, SnapshotId};
use strongroom_catalog::recipe::{RecipeBuilder, RecipeReader, Visit, for_each_chunk};
use strongroom_catalog::{
    ChunkRef, Entry, EntryKind, LinkKey, LinkTable, Recipe, Snapshot, StoredEntry, TreeReader,
    TreeWriteError, TreeWriter,
};
use strongroom_repository::{
    ChunkReader, ChunkWriter, CopiedChunk, Found, Fragmentation, Hold, Layout, ListedSession,
    OwnRecord, PackOptions, Places, RUN_BYTES_MAX, Repository, RepositoryError, Run, SeriesId,
    Session, SnapshotEvent, SnapshotList, SnapshotWalk, StreamBasis, Wishes, change_remark,
    give_up, list_known_snapshots, list_sessions, list_snapshots,
};

use crate::forget::forget;
use crate::reader::reader_of_everything;
use crate::reckoning::reckon_same;

/// A request to a store takes about as long as reading this much.
const REQUEST_BYTES: u64 = 1 << 20;

/// What a restore saves must be worth this many times what is copied: the copies are written now,
/// and take space as long as other snapshots name the old places.
const WORTH: u64 = 4;

/// Chunks that are read in the order of their places before they are stored in that of their files.
const WINDOW_BYTES: u64 = 16 << 20;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// The snapshot.
    pub from: SnapshotId,
    /// The one in its place; none if bringing chunks together would save too little.
    pub to: Option<SnapshotId>,
    /// How its chunks lay.
    pub before: Fragmentation,
    /// How they lie.
    pub after: Fragmentation,
    /// Bytes that the chunks took that were stored again.
    pub copied_bytes: u64,
}

/// Brings together what a snapshot of the owner needs, by storing again chunks that take at most
/// `copied_bytes_max` bytes. Returns none if the snapshot is not there any more, is not the newest of its
/// series, may go with the open collection, or if its machine is storing another.
///
/// # Errors
///
/// [`RepositoryError::Argument`] if the snapshot cannot be replaced: another domain made it, or a
/// newer program; [`RepositoryError::Held`] if it is held.
pub fn defragment(
    repository: &Repository,
    snapshot: SnapshotId,
    copied_bytes_max: u64,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Option<Gathered>, RepositoryError> {
    let mut session = Session::begin(repository, "")?;
    let list = list_known_snapshots(repository, monitor)?.left_by(&session.collections);
    let known = OwnRecord::read(repository, monitor).sequence.max(list.greatest_sequence(""));
    let used_up = RepositoryError::SequenceUsedUp { domain: String::new() };
    session.sequence = known.checked_add(1).ok_or(used_up)?;
    let stays = |found: &&Snapshot| !session.collections.may_go(found.id);
    let found = list.snapshots.iter().filter(stays).find(|found| found.id == snapshot);
    let Some(snapshot) = found else { return Ok(None) };
    check_replaceable(repository, snapshot)?;
    // The one in its place comes after all that there are. A writer that begins from now on comes after it.
    if is_followed(&list, snapshot, session.id)
        || may_be_followed(repository, snapshot, session.id)?
    {
        return Ok(None);
    }
    let wishes = Wishes::read(repository)?;
    if let Some(Hold { reason, .. }) = wishes.hold(snapshot.id) {
        return Err(RepositoryError::Held { snapshot: snapshot.id, reason });
    }
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    let layout = Layout::of(snapshot, &reader, cancel)?;
    let before = layout.fragmentation();
    let runs = scattered(&layout, copied_bytes_max);
    if runs.is_empty() {
        let (from, after) = (snapshot.id, before);
        return Ok(Some(Gathered { from, to: None, before, after, copied_bytes: 0 }));
    }
    let replacing =
        Replacing { repository, reader: &reader, snapshot, layout: &layout, monitor, cancel };
    let id = session.id;
    let gathered = replacing.by_copy(session, &runs, &wishes);
    if !gathered.as_ref().is_ok_and(|gathered| gathered.to.is_some()) {
        // What was written belongs to nothing, and is no snapshot that was removed.
        give_up(repository, id);
        return gathered.map(Some);
    }
    // From here on, the new one is never given up: the wish about the old one may have been taken although
    // it failed. Both may stay.
    forget(repository, &[snapshot.id])?;
    gathered.map(Some)
}

/// Whether a writer is at work, or was when it died, that may commit a snapshot of this one's series. It
/// has its number already, and what is put in this one's place would come after it.
fn may_be_followed(
    repository: &Repository,
    snapshot: &Snapshot,
    own: SnapshotId,
) -> Result<bool, RepositoryError> {
    let is_of_its_host = |listed: &ListedSession| match &listed.head {
        Ok(head) => head.domain == snapshot.domain && head.host == snapshot.host,
        // Of another domain, or of none.
        Err(RepositoryError::PutOnly | RepositoryError::Forged { .. }) => false,
        Err(_) => true,
    };
    let sessions = list_sessions(repository)?;
    Ok(sessions.iter().any(|listed| listed.id != own && is_of_its_host(listed)))
}

/// A snapshot in whose place another one is put.
struct Replacing<'r> {
    repository: &'r Repository,
    reader: &'r ChunkReader,
    snapshot: &'r Snapshot,
    layout: &'r Layout,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
}

impl Replacing<'_> {
    /// Stores what is in these runs again, and commits a snapshot that names it there, if that is worth it.
    fn by_copy(
        &self,
        session: Session<'_>,
        runs: &[&Run],
        wishes: &Wishes,
    ) -> Result<Gathered, RepositoryError> {
        let Self { repository, reader, snapshot, layout, monitor, cancel } = *self;
        let before = layout.fragmentation();
        let again = places_in(layout, runs, reader, cancel)?;
        let copied_bytes = runs.iter().map(|run| run.needed_bytes).sum();
        let pack = PackOptions::default();
        let mut writer =
            ChunkWriter::open(repository, reader, &session, pack, false, monitor, cancel)?;
        writer.store_again(again.clone());
        let linked = LinkTable::new(repository.limits.linked_max);
        let mut copy = Copy { reader, writer, again, linked, monitor, cancel };
        copy.data(snapshot)?;
        let root = copy.tree(&snapshot.root)?;
        let written = copy.writer.finish(monitor)?;
        let mut replacing = Snapshot {
            id: session.id,
            sequence: session.sequence,
            seen: session.collections.last,
            parent: Some(snapshot.id),
            root,
            ..snapshot.clone()
        };
        replacing.stats.bytes_stored = written.stored_bytes;
        reckon_same(repository, reader, snapshot, &replacing, cancel)?;
        let after = Layout::of(&replacing, reader, cancel)?.fragmentation();
        if after.requests >= before.requests {
            let (from, after) = (snapshot.id, before);
            return Ok(Gathered { from, to: None, before, after, copied_bytes });
        }
        let to = Some(session.id);
        let description = wishes.remarks().about(snapshot.id).description;
        if !description.is_empty() {
            let id = session.id;
            change_remark(repository, id, |remark| remark.description = description.clone())?;
        }
        let session_id = session.id;
        session.commit(&replacing)?;
        // A backup that ended meanwhile must not come before what was gathered: that is given up.
        if is_followed(&list_snapshots(repository)?, snapshot, session_id) {
            let (from, after) = (snapshot.id, before);
            return Ok(Gathered { from, to: None, before, after, copied_bytes });
        }
        Ok(Gathered { from: snapshot.id, to, before, after, copied_bytes })
    }
}

/// Whether another snapshot of its series than this one is newer.
fn is_followed(list: &SnapshotList, snapshot: &Snapshot, but: SnapshotId) -> bool {
    list.snapshots.iter().any(|other| {
        other.id != but
            && SeriesId::of(other) == SeriesId::of(snapshot)
            && other.order() > snapshot.order()
    })
}

fn check_replaceable(repository: &Repository, snapshot: &Snapshot) -> Result<(), RepositoryError> {
    let why = if snapshot.domain != repository.secret.domain_name() {
        "a machine that can only store made it, and could not read its successor"
    } else if !snapshot.features.is_empty() {
        "it has a feature that only a newer program knows"
    } else if snapshot.partial {
        "it is incomplete"
    } else {
        return Ok(());
    };
    let name = snapshot.id.short();
    Err(RepositoryError::Argument(format!("snapshot {name} stays as it is: {why}")))
}

/// The runs of which least is needed for what it takes to read them, within the budget; none if
/// reading their chunks together would not take at most half as many requests.
fn scattered(layout: &Layout, copied_bytes_max: u64) -> Vec<&Run> {
    // Together, a run's chunks take their share of a longest run.
    let read_together =
        |run: &Run| run.needed_bytes + run.needed_bytes * REQUEST_BYTES / RUN_BYTES_MAX as u64;
    let saved = |run: &Run| (REQUEST_BYTES + run.read_bytes).saturating_sub(read_together(run));
    let mut runs: Vec<&Run> =
        layout.runs.iter().filter(|run| saved(run) >= WORTH * run.needed_bytes).collect();
    let cost = |run: &Run| (u128::from(run.needed_bytes) << 64) / u128::from(saved(run).max(1));
    runs.sort_by_key(|run| (cost(run), run.arena, run.slots.start));
    let mut copied = 0_u64;
    runs.retain(|run| {
        let fits = copied + run.needed_bytes <= copied_bytes_max;
        copied += if fits { run.needed_bytes } else { 0 };
        fits
    });
    let needed: u64 = runs.iter().map(|run| run.needed_bytes).sum();
    // A run of data and one of metadata may be shorter than the others.
    let together = needed.div_ceil(RUN_BYTES_MAX as u64) + 1;
    if runs.len() as u64 >= 2 * together { runs } else { Vec::new() }
}

/// What the snapshot needs in these runs, and what it names whose base is in one of them.
fn places_in(
    layout: &Layout,
    runs: &[&Run],
    reader: &ChunkReader,
    cancel: &Cancel,
) -> Result<Places, RepositoryError> {
    let mut in_runs: HashMap<ArenaId, Vec<Range<u32>>> = HashMap::new();
    for run in runs {
        in_runs.entry(run.arena).or_default().push(run.slots.clone());
    }
    let is_in_runs = |place: &Location| {
        let ranges = in_runs.get(&place.arena);
        ranges.is_some_and(|ranges| ranges.iter().any(|range| range.contains(&place.slot)))
    };
    let mut places = Places::default();
    for id in layout.named.arenas() {
        cancel.check()?;
        let arena = match reader.store().arena(id) {
            Err(error) if error.is_unreadable() => continue,
            other => other?,
        };
        for (slot, entry) in arena.slots() {
            let place = Location { arena: id, slot };
            if !layout.named.contains(place) {
                continue;
            }
            let mut is_scattered = is_in_runs(&place);
            for base in entry.bases.iter().filter(|base| is_in_runs(base)) {
                places.insert(*base);
                is_scattered = true;
            }
            if is_scattered {
                places.insert(place);
            }
        }
        reader.store().forget(id);
    }
    Ok(places)
}

/// A copy of a snapshot that names some chunks in other places.
struct Copy<'c> {
    reader: &'c ChunkReader,
    writer: ChunkWriter<'c>,
    again: Places,
    /// What files with several names have now. Names are one file to a reader only if they agree in the
    /// places of their chunks, and the same chunk is not always found in the same place. Of files beyond
    /// a bound each name is copied by itself.
    linked: LinkTable<LinkKey, Recipe>,
    monitor: &'c dyn Monitor,
    cancel: &'c Cancel,
}

/// A directory on the way.
struct Frame<'c> {
    entries: TreeReader<'c, ChunkReader>,
    before: StreamBasis<'c>,
    tree: TreeWriter,
    /// Its entry, in memory and as it is stored; none for the root.
    entry: Option<(Entry, StoredEntry)>,
}

impl<'c> Copy<'c> {
    /// Stores the chunks of data again, in the order of the files.
    fn data(&mut self, snapshot: &Snapshot) -> Result<(), RepositoryError> {
        let (mut window, mut window_bytes) = (Vec::new(), 0);
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, self.cancel);
        while let Some(event) = walk.next()? {
            let entry = match event {
                SnapshotEvent::Leaf { entry, .. } => entry,
                SnapshotEvent::Lost { error, .. } => return Err(error),
                SnapshotEvent::Enter(_) | SnapshotEvent::Leave { .. } => continue,
            };
            let Some(content) = entry.content() else { continue };
            for_each_chunk(content, self.reader, &mut |chunk, level| {
                if level == 0 && self.again.contains(chunk.location) {
                    window.push(*chunk);
                    window_bytes += chunk.stream_bytes;
                }
                Ok::<_, RepositoryError>(Visit::Into)
            })?;
            if window_bytes >= WINDOW_BYTES {
                self.store(&std::mem::take(&mut window))?;
                window_bytes = 0;
            }
        }
        self.store(&window)
    }

    fn store(&mut self, window: &[ChunkRef]) -> Result<(), RepositoryError> {
        let mut copies: HashMap<Fingerprint, CopiedChunk> = HashMap::new();
        let mut by_place = window.to_vec();
        by_place.sort_by_key(|chunk| chunk.location);
        for chunk in by_place {
            self.cancel.check()?;
            if !copies.contains_key(&chunk.fingerprint) && self.writer.usable(&chunk)?.is_none() {
                copies.insert(chunk.fingerprint, self.writer.take_copy(&chunk)?);
            }
        }
        for chunk in window {
            if let Some(copy) = copies.remove(&chunk.fingerprint) {
                self.writer.put_copy(chunk, &copy)?;
            }
        }
        let bytes_stored = self.writer.stats().stored_bytes;
        let bytes_new = self.writer.stats().data_bytes;
        self.monitor.progress(&Progress { bytes_new, bytes_stored, ..Progress::default() });
        Ok(())
    }

    /// The same directory, and all below it.
    fn tree(&mut self, root: &Recipe) -> Result<Recipe, RepositoryError> {
        // An explicit stack: trees are deeper than stacks.
        let mut frames = vec![self.frame(root, None)];
        loop {
            self.cancel.check()?;
            let frame = frames.last_mut().expect("the root is left last");
            if frame.entries.advance()? {
                let entry = frame.entries.entry();
                let stored = frame.entries.stored().expect("it moved to an entry");
                if let Some(tree) = entry.tree() {
                    let below = self.frame(tree, Some((entry.clone(), stored)));
                    frames.push(below);
                } else {
                    let entry = entry.clone();
                    let content = self.content_of(&entry)?;
                    let kind = content.map(|content| EntryKind::File { content });
                    self.push(frame, entry, &stored, kind)?;
                }
                continue;
            }
            let mut frame = frames.pop().expect("it is the last");
            let mut lane = self.writer.metadata(Some(&mut frame.before));
            let (Some(above), Some((entry, stored))) = (frames.last_mut(), frame.entry) else {
                return frame.tree.finish_root(&mut lane);
            };
            let tree = frame.tree.finish(&mut lane)?;
            let partial = entry.is_partial();
            self.push(above, entry, &stored, Some(EntryKind::Directory { tree, partial }))?;
        }
    }

    fn frame(&self, tree: &Recipe, entry: Option<(Entry, StoredEntry)>) -> Frame<'c> {
        let before = StreamBasis::new(self.reader, tree);
        let entries = TreeReader::new(tree, self.reader);
        Frame { entries, before, tree: TreeWriter::new(), entry }
    }

    /// Puts an entry into its directory: as it is stored, unless it names other places now.
    fn push(
        &mut self,
        frame: &mut Frame<'_>,
        mut entry: Entry,
        stored: &StoredEntry,
        kind: Option<EntryKind>,
    ) -> Result<(), RepositoryError> {
        let mut lane = self.writer.metadata(Some(&mut frame.before));
        match kind {
            Some(kind) if kind != entry.kind => {
                entry.kind = kind;
                frame.tree.push(&entry, &mut lane).map_err(|error| match error {
                    TreeWriteError::Chunk(error) => error,
                    TreeWriteError::EntryTooLarge { .. } | TreeWriteError::InvalidName => {
                        RepositoryError::Argument(format!("an entry of it: {error}"))
                    }
                })
            }
            _ => frame.tree.push_stored(&entry.name, stored, &mut lane),
        }
    }

    /// The same content of a file, for each of its names.
    fn content_of(&mut self, entry: &Entry) -> Result<Option<Recipe>, RepositoryError> {
        let Some(content) = entry.content() else { return Ok(None) };
        let key = LinkKey::of(entry);
        if let Some(copied) = key.and_then(|key| self.linked.take(&key)) {
            return Ok(Some(copied));
        }
        let copied = self.content(content)?;
        if let Some(key) = key {
            self.linked.insert(key, entry.metadata.links, copied.clone());
        }
        Ok(Some(copied))
    }

    /// The same content.
    fn content(&mut self, content: &Recipe) -> Result<Recipe, RepositoryError> {
        let mut before = StreamBasis::new(self.reader, content);
        let mut recipe = RecipeBuilder::new();
        let mut chunks = RecipeReader::new(content, self.reader);
        while let Some((_, chunk)) = chunks.next_chunk()? {
            let chunk = match chunk.is_hole() {
                true => chunk,
                false => self.chunk(chunk)?,
            };
            recipe.push(chunk, &mut self.writer.metadata(Some(&mut before)))?;
        }
        recipe.finish(&mut self.writer.metadata(Some(&mut before)))
    }

    fn chunk(&mut self, chunk: ChunkRef) -> Result<ChunkRef, RepositoryError> {
        if let Some(usable) = self.writer.usable(&chunk)? {
            return Ok(usable);
        }
        let copy = self.writer.take_copy(&chunk)?;
        self.writer.put_copy(&chunk, &copy)
    }
}
