//! What snapshots need: every chunk that they reach, and the bases of its delta.
//!
//! Only trees, nodes and summaries are read. A reference that names a place which no longer holds
//! its chunk is followed by fingerprint, to all places that do: the chunk was stored again.

use std::collections::{BTreeMap, HashMap, HashSet};

use strongroom_arena::ListedArenas;
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor, SnapshotId};
use strongroom_catalog::recipe::{Visit, for_each_chunk_left};
use strongroom_catalog::{ChunkRef, Recipe, Snapshot};
use strongroom_repository::{
    ChunkReader, Collections, Found, NodeKey, PartMemo, RepositoryError, SnapshotEvent,
    SnapshotWalk, TreeKey,
};

use super::choose::stored_bytes;
use super::inventory::{Change, Inventory};

/// An inventory, and what of it is known to be needed. It is brought up to date for the verdict:
/// what was needed for the plan is not looked at again.
pub struct Reach<'r> {
    /// What exists, with marks.
    pub inventory: Inventory,
    reader: &'r ChunkReader,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
    /// Snapshots that were marked.
    marked: HashSet<SnapshotId>,
    /// Trees and nodes that were gone into.
    known: PartMemo<()>,
    /// Chunks that are not where a reference says, or not in all generations of that arena; and deltas that
    /// lack a base. With each, the arena that is named.
    moved: HashMap<Fingerprint, ArenaId>,
    /// Those of them that no arena has whose summary could be read.
    unfound: HashMap<Fingerprint, ArenaId>,
    /// Chunks of snapshots that were removed without having been forgotten, and of sessions, of which no
    /// place, or no base, is left: that stops nothing.
    given_up: HashSet<Fingerprint>,
    /// Arenas that these name and that cannot be read.
    passed_over: HashSet<ArenaId>,
    /// While what these have left is marked: what cannot be read is lost.
    is_lenient: bool,
    /// Whether something was marked or added since the last `finish`.
    is_open: bool,
    /// While that is noted: arenas of which something is needed for the first time, and the stored
    /// bytes of them that nothing needed before.
    unneeded_before: Option<BTreeMap<ArenaId, u64>>,
}

impl<'r> Reach<'r> {
    /// Nothing exists yet, and nothing is needed.
    pub fn new(reader: &'r ChunkReader, monitor: &'r dyn Monitor, cancel: &'r Cancel) -> Self {
        let (inventory, marked) = (Inventory::default(), HashSet::new());
        let known = PartMemo::new(reader.limits().memo_kept_min);
        let (moved, unfound) = (HashMap::new(), HashMap::new());
        let (given_up, passed_over) = (HashSet::new(), HashSet::new());
        let (is_open, unneeded_before) = (false, None);
        Self {
            inventory,
            reader,
            monitor,
            cancel,
            marked,
            known,
            moved,
            unfound,
            given_up,
            passed_over,
            is_lenient: false,
            is_open,
            unneeded_before,
        }
    }

    /// Lists the arenas, and takes note of those that it does not know yet. If one that it knows
    /// has changed, all marks are dropped. Returns whether something was there to note.
    pub fn list_arenas(
        &mut self,
        backend: &dyn Backend,
        collections: &Collections,
    ) -> Result<bool, RepositoryError> {
        let store = self.reader.store();
        let listed = ListedArenas::list(backend)?;
        let (monitor, cancel) = (self.monitor, self.cancel);
        let update = |inventory: &mut Inventory| {
            inventory.update(store, &listed, collections, monitor, cancel)
        };
        let change = update(&mut self.inventory)?;
        if change == Change::Other {
            *self = Self::new(self.reader, monitor, cancel);
            update(&mut self.inventory)?;
        }
        self.is_open |= change != Change::Same;
        Ok(change != Change::Same)
    }

    /// Marks what these snapshots name, the newest first: most of what the others need is known
    /// then. Returns whether one of them was not marked before.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotCollectable`] if one of their trees cannot be read.
    pub fn mark(&mut self, mut snapshots: Vec<&Snapshot>) -> Result<bool, RepositoryError> {
        snapshots.retain(|snapshot| !self.marked.contains(&snapshot.id));
        snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.order()));
        for snapshot in &snapshots {
            self.is_open = true;
            self.snapshot(snapshot)?;
            self.marked.insert(snapshot.id);
        }
        Ok(!snapshots.is_empty())
    }

    /// Marks what is left of a snapshot that was removed without having been forgotten, after all others
    /// and once [`finish`](Self::finish) has looked at those. What it needs and is nowhere keeps nothing
    /// else from being collected.
    pub fn mark_left(&mut self, trees: &[Recipe]) -> Result<(), RepositoryError> {
        self.leniently(|reach| {
            trees.iter().try_for_each(|tree| reach.what_is_left(tree))?;
            reach.finish()
        })
    }

    /// Marks what these sessions have written, whose writers may be at work, as [`mark_left`](Self::mark_left)
    /// does. A create that came late has brought some of them back, after what their deltas need had gone,
    /// and anyone who may store can invent one: what none can read keeps nothing else from being collected.
    pub fn mark_written(&mut self, sessions: &HashSet<SnapshotId>) -> Result<(), RepositoryError> {
        match sessions.is_empty() {
            true => Ok(()),
            false => self.leniently(|reach| reach.follow(sessions)),
        }
    }

    /// Marks what may lack something without having to.
    fn leniently(
        &mut self,
        mark: impl FnOnce(&mut Self) -> Result<(), RepositoryError>,
    ) -> Result<(), RepositoryError> {
        // What others need must not count as known because this has it, too.
        let memo = PartMemo::new(self.reader.limits().memo_kept_min);
        let known = std::mem::replace(&mut self.known, memo);
        let (moved, unfound) = (self.moved.clone(), self.unfound.clone());
        (self.is_open, self.is_lenient) = (true, true);
        let marked = mark(self);
        let with_lost = std::mem::replace(&mut self.moved, moved);
        let names = with_lost.into_keys().filter(|name| !self.moved.contains_key(name));
        self.given_up.extend(names);
        (self.known, self.unfound, self.is_lenient) = (known, unfound, false);
        marked
    }

    fn what_is_left(&mut self, tree: &Recipe) -> Result<(), RepositoryError> {
        let lost = Snapshot { root: tree.clone(), ..Snapshot::empty(SnapshotId::ZERO) };
        let mut walk = SnapshotWalk::new(&Found::root(&lost), self.reader, self.cancel);
        while let Some(event) = walk.next()? {
            match event {
                SnapshotEvent::Enter(directory) => {
                    self.recipe(directory.tree)?;
                    if self.known.was_met(TreeKey::of_tree(directory.tree)) {
                        walk.skip();
                    }
                }
                SnapshotEvent::Leaf { entry, .. } => {
                    if let Some(content) = entry.content() {
                        self.recipe(content)?;
                    }
                }
                SnapshotEvent::Lost { .. } | SnapshotEvent::Leave { .. } => {}
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), RepositoryError> {
        let what = format!("snapshot {}", snapshot.id.short());
        self.monitor.detail(&what);
        let lost = |error: RepositoryError| match error.is_damage() {
            true => RepositoryError::NotCollectable { what: what.clone(), why: error.to_string() },
            false => error,
        };
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, self.cancel);
        while let Some(event) = walk.next()? {
            match event {
                SnapshotEvent::Enter(directory) => {
                    self.recipe(directory.tree).map_err(lost)?;
                    if self.known.was_met(TreeKey::of_tree(directory.tree)) {
                        walk.skip();
                    }
                }
                SnapshotEvent::Leaf { entry, .. } => {
                    if let Some(content) = entry.content() {
                        self.recipe(content).map_err(lost)?;
                    }
                }
                SnapshotEvent::Lost { error, .. } => return Err(lost(error)),
                SnapshotEvent::Leave { .. } => {}
            }
        }
        Ok(())
    }

    /// Marks the chunks of a recipe. What a known node names was marked when it became known, but
    /// the node itself may be in another place this time.
    fn recipe(&mut self, recipe: &Recipe) -> Result<(), RepositoryError> {
        let (reader, is_lenient) = (self.reader, self.is_lenient);
        let mut visit = |chunk: &ChunkRef, level| {
            self.chunk(chunk)?;
            let is_known = level > 0 && self.known.was_met(NodeKey::of_node(chunk, level));
            Ok(if is_known { Visit::Past } else { Visit::Into })
        };
        let mut lost = |error: RepositoryError| match is_lenient && error.is_damage() {
            true => Ok(()),
            false => Err(error),
        };
        for_each_chunk_left(recipe, reader, &mut visit, &mut lost)
    }

    fn chunk(&mut self, chunk: &ChunkRef) -> Result<(), RepositoryError> {
        let place = chunk.location;
        if self.unneeded_before.as_ref().is_some_and(|before| !before.contains_key(&place.arena))
            && self.inventory.is_unneeded(place)
        {
            let bytes = self.unneeded_bytes(place.arena)?;
            self.unneeded_before.get_or_insert_default().insert(place.arena, bytes);
        }
        if self.is_lenient {
            let is_there = need_or_pass(&mut self.inventory, place, &mut self.passed_over)?;
            if !is_there || !self.inventory.is_in_all(place) {
                self.moved.insert(chunk.fingerprint, place.arena);
            }
            return Ok(());
        }
        // What a snapshot needs that is there is not given up.
        if !self.given_up.is_empty() {
            self.given_up.remove(&chunk.fingerprint);
        }
        // What only some generations of its arena have may be in no other place than a further copy.
        if !self.inventory.need(place)? || !self.inventory.is_in_all(place) {
            self.moved.insert(chunk.fingerprint, place.arena);
        }
        Ok(())
    }

    /// Stored bytes of what this snapshot alone needs, of all that were marked so far.
    pub fn own_bytes(&mut self, snapshot: &Snapshot) -> Result<u64, RepositoryError> {
        self.unneeded_before = Some(BTreeMap::new());
        let marked = self.mark(vec![snapshot]);
        let before = self.unneeded_before.take().unwrap_or_default();
        marked?;
        let mut bytes = 0;
        for (id, unneeded_bytes) in before {
            self.cancel.check()?;
            bytes += unneeded_bytes.saturating_sub(self.unneeded_bytes(id)?);
        }
        Ok(bytes)
    }

    fn unneeded_bytes(&self, id: ArenaId) -> Result<u64, RepositoryError> {
        let Some(holding) = self.inventory.get(id) else { return Ok(0) };
        Ok(stored_bytes(&*self.reader.store().arena(id)?, self.inventory.unneeded(holding)))
    }

    /// Marks what follows from what was marked: all places of chunks that moved, and the bases of all that.
    pub fn finish(&mut self) -> Result<(), RepositoryError> {
        self.follow(&HashSet::new())
    }

    /// The same, and everything that these sessions wrote.
    fn follow(&mut self, sessions: &HashSet<SnapshotId>) -> Result<(), RepositoryError> {
        if !std::mem::take(&mut self.is_open) && sessions.is_empty() {
            return Ok(());
        }
        // Deltas that lack a base: like chunks that are not where a reference says.
        let mut lacking = HashMap::new();
        loop {
            self.moved.extend(lacking.drain());
            let Self { inventory, reader, cancel, moved, unfound, .. } = self;
            let Self { given_up, passed_over, is_lenient, .. } = self;
            let everywhere = !moved.is_empty();
            unfound.clone_from(moved);
            inventory.each_summary(
                reader.store(),
                cancel,
                |_, holding| {
                    everywhere || holding.has_deltas || sessions.contains(&holding.origin.session)
                },
                |inventory, arena| {
                    let is_listed = sessions.contains(&arena.origin.session);
                    // The planter of a generation may have invented a base.
                    let is_frozen = inventory.get(arena.id).is_some_and(|known| known.is_frozen);
                    for (slot, entry) in arena.slots() {
                        let place = Location { arena: arena.id, slot };
                        let name = reader.naming().name_in(place, entry.fingerprint);
                        let is_moved = moved.contains_key(&name);
                        if is_listed || is_moved {
                            inventory.need(place)?;
                        }
                        let (mut lost, mut in_doubt) = (None, None);
                        // A base is stored whole, so it needs no other.
                        if !entry.bases.is_empty() && inventory.is_needed(place) {
                            let may_lack = *is_lenient || given_up.contains(&name);
                            for base in entry.bases {
                                let has_base = match may_lack {
                                    true => need_or_pass(inventory, *base, passed_over)?,
                                    false => inventory.need(*base)?,
                                };
                                lost = if has_base { lost } else { Some(base.arena) };
                                if has_base && !inventory.is_in_all(*base) {
                                    in_doubt = Some(base.arena);
                                }
                            }
                        }
                        match lost {
                            Some(_) if *is_lenient && is_frozen => drop(given_up.insert(name)),
                            Some(arena) if !is_moved && !is_frozen && !given_up.contains(&name) => {
                                lacking.insert(name, arena);
                            }
                            None if is_moved => {
                                unfound.remove(&name);
                            }
                            // As of what only some generations of its arena have: the chunk may be in no
                            // other place than a further copy.
                            None => lacking.extend(in_doubt.map(|arena| (name, arena))),
                            _ => {}
                        }
                    }
                    Ok(())
                },
            )?;
            if lacking.is_empty() {
                return Ok(());
            }
        }
    }

    /// Fails if something that a snapshot needs may be in an arena that is missing, or that cannot be
    /// read: it may come back, and the bases of its deltas are not known. Those that `is_new` names
    /// were written since the arenas were listed, and are looked at later.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotCollectable`]
    pub fn refuse_hidden(&self, is_new: impl Fn(ArenaId) -> bool) -> Result<(), RepositoryError> {
        let is_known = |arena: &ArenaId| self.inventory.get(*arena).is_some();
        let named = || self.unfound.values().copied();
        let hidden = match named().filter(|arena| !is_known(arena) && !is_new(*arena)).min() {
            Some(arena) => Some((arena, "it is missing")),
            // What is no longer in its own arena may have been stored again in any other.
            None if named().any(|arena| is_known(&arena)) => self.inventory.unreadable().min(),
            None => None,
        };
        let Some((arena, why)) = hidden else { return Ok(()) };
        let what = format!("arena {arena}");
        Err(RepositoryError::NotCollectable { what, why: why.to_owned() })
    }

    /// Whether anything in an arena is needed, or may be: it was named, and the arena cannot be read.
    pub fn needs_any_of(&self, arena: ArenaId) -> bool {
        self.inventory.needs_any_of(arena) || self.passed_over.contains(&arena)
    }

    /// Whether a chunk that a snapshot needs is in no arena whose summary could be read.
    pub fn lacks_something(&self) -> bool {
        !self.unfound.is_empty()
    }
}

/// Notes that a chunk is needed. Returns false if its place does not hold it, or cannot be read: then the
/// arena is passed over.
fn need_or_pass(
    inventory: &mut Inventory,
    place: Location,
    passed_over: &mut HashSet<ArenaId>,
) -> Result<bool, RepositoryError> {
    match inventory.need(place) {
        Err(error) if error.is_damage() => {
            passed_over.insert(place.arena);
            Ok(false)
        }
        other => other,
    }
}
