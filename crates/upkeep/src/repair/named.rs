//! Whether anything is named of generations that are not proved to be planted.
//!
//! If neither a mark nor a voucher says of which domain an arena is, its first generation does. But a
//! version of before there were marks rewrote arenas without one and removed the first generation; then
//! a thief may create a first one, and the true one looks planted. So before a repair takes such a
//! generation away, it asks whether a snapshot, or the delta of a chunk, names what only that has.

use std::collections::{BTreeSet, HashMap, HashSet};

use strongroom_arena::{Generations, ListedArena, ListedArenas};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{ChunkRef, Recipe};
use strongroom_repository::{
    ChunkReader, Found, NodeKey, PartMemo, Repository, RepositoryError, SnapshotEvent,
    SnapshotWalk, TreeKey, list_snapshots,
};

/// The arenas of these of which something is named that only a generation has which looks planted; all
/// of them if that cannot be found out.
pub(super) fn find_named(
    repository: &Repository,
    reader: &ChunkReader,
    listed: &ListedArenas,
    contested: &[(ArenaId, Generations)],
) -> Result<HashSet<ArenaId>, RepositoryError> {
    if contested.is_empty() {
        return Ok(HashSet::new());
    }
    let mut search = Search {
        reader,
        wanted: HashMap::new(),
        named: HashSet::new(),
        known: PartMemo::new(reader.limits().memo_kept_min),
    };
    let found = search.look(repository, listed, contested);
    match found {
        Ok(()) => Ok(search.named),
        Err(error) if error.is_damage() || error.is_withheld() => {
            Ok(contested.iter().map(|(id, _)| *id).collect())
        }
        Err(error) => Err(error),
    }
}

struct Search<'s> {
    reader: &'s ChunkReader,
    /// What only generations have that look planted.
    wanted: HashMap<Location, HashSet<Fingerprint>>,
    named: HashSet<ArenaId>,
    /// Trees and nodes that were gone into.
    known: PartMemo<()>,
}

impl Search<'_> {
    fn look(
        &mut self,
        repository: &Repository,
        listed: &ListedArenas,
        contested: &[(ArenaId, Generations)],
    ) -> Result<(), RepositoryError> {
        for (id, sorted) in contested {
            self.add(*id, sorted)?;
        }
        self.bases(listed)?;
        let mut list = list_snapshots(repository)?;
        if let Some((_, error)) = list.unreadable.drain(..).chain(list.newer.drain(..)).next() {
            return Err(error);
        }
        for snapshot in list.all() {
            let cancel = Cancel::new();
            let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, &cancel);
            while let Some(event) = walk.next()? {
                match event {
                    SnapshotEvent::Enter(directory) => {
                        let was_met = self.known.was_met(TreeKey::of_tree(directory.tree));
                        self.recipe(directory.tree)?;
                        if was_met {
                            walk.skip();
                        }
                    }
                    SnapshotEvent::Leaf { entry, .. } => {
                        entry.content().map_or(Ok(()), |content| self.recipe(content))?;
                    }
                    SnapshotEvent::Lost { error, .. } => return Err(error),
                    SnapshotEvent::Leave { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Notes what is in generations of one arena that look planted, and in none of the others.
    fn add(&mut self, id: ArenaId, sorted: &Generations) -> Result<(), RepositoryError> {
        let slots =
            |listed: &[ListedArena]| -> Result<BTreeSet<(u32, Fingerprint)>, RepositoryError> {
                let mut slots = BTreeSet::new();
                for generation in listed {
                    let arena = self.reader.store().arena_in(generation.name)?;
                    let there =
                        arena.slots().filter(|(_, slot)| slot.fingerprint != Fingerprint::ZERO);
                    slots.extend(there.map(|(slot, entry)| (slot, entry.fingerprint)));
                }
                Ok(slots)
            };
        let genuine = slots(&sorted.genuine)?;
        for (slot, fingerprint) in slots(&sorted.planted)? {
            if !genuine.contains(&(slot, fingerprint)) {
                let place = Location { arena: id, slot };
                self.wanted.entry(place).or_default().insert(fingerprint);
            }
        }
        Ok(())
    }

    /// The bases of all deltas.
    fn bases(&mut self, listed: &ListedArenas) -> Result<(), RepositoryError> {
        for generation in listed.all() {
            let arena = self.reader.store().arena_in(generation.name)?;
            for (_, entry) in arena.slots() {
                let named = entry.bases.iter().filter(|base| self.wanted.contains_key(base));
                self.named.extend(named.map(|base| base.arena));
            }
        }
        Ok(())
    }

    fn recipe(&mut self, recipe: &Recipe) -> Result<(), RepositoryError> {
        let reader = self.reader;
        for_each_chunk(recipe, reader, &mut |chunk, level| {
            self.reference(chunk);
            let is_known = level > 0 && self.known.was_met(NodeKey::of_node(chunk, level));
            Ok(if is_known { Visit::Past } else { Visit::Into })
        })
    }

    fn reference(&mut self, chunk: &ChunkRef) {
        let wanted = self.wanted.get(&chunk.location);
        // By value a reference does not say what the chunk is.
        let is_any = self.reader.naming().is_by_value();
        if wanted.is_some_and(|names| is_any || names.contains(&chunk.fingerprint)) {
            self.named.insert(chunk.location.arena);
        }
    }
}
