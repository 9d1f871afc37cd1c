//! Whether anything is named of generations that look planted.
//!
//! If neither a mark nor a voucher says of which domain an arena is, its first generation does. But a
//! version of before there were marks rewrote arenas without one and removed the first generation; then
//! a thief may create a first one, and the true one looks planted. So before a repair takes a generation
//! away, it asks whether a snapshot, or the delta of a chunk, names what only that has. What cannot be read
//! may name it, too; but if it is proved of which domain the arena is, only what does name it counts, or
//! anything that a thief leaves unreadable would keep what the thief has planted.

use std::collections::{BTreeSet, HashMap, HashSet};

use strongroom_arena::{Generations, ListedArena, ListedArenas};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{ChunkRef, Recipe};
use strongroom_repository::{
    ChunkReader, Found, NodeKey, PartMemo, Repository, RepositoryError, SnapshotEvent,
    SnapshotWalk, TreeKey, list_snapshots,
};

/// The arenas of these of which something is named that only a generation has which looks planted, and
/// those that are contested if something cannot be read that may name it.
pub(super) fn find_named(
    repository: &Repository,
    reader: &ChunkReader,
    listed: &ListedArenas,
    all: &[(ArenaId, Generations)],
) -> Result<HashSet<ArenaId>, RepositoryError> {
    if all.iter().all(|(_, sorted)| sorted.to_take_away().next().is_none()) {
        return Ok(HashSet::new());
    }
    let mut search = Search {
        reader,
        wanted: HashMap::new(),
        held: HashSet::new(),
        named: HashSet::new(),
        known: PartMemo::new(reader.limits().memo_kept_min),
        is_all_read: true,
    };
    search.look(repository, listed, all)?;
    if !search.is_all_read {
        let frozen = all.iter().filter(|(_, sorted)| sorted.is_frozen());
        search.named.extend(frozen.map(|(id, _)| *id));
    }
    Ok(search.named)
}

struct Search<'s> {
    reader: &'s ChunkReader,
    /// What only generations have that look planted.
    wanted: HashMap<Location, HashSet<Fingerprint>>,
    /// Places of these that hold another chunk in a generation that is proved to count: who names no
    /// fingerprint names that.
    held: HashSet<Location>,
    named: HashSet<ArenaId>,
    /// Trees and nodes that were gone into.
    known: PartMemo<()>,
    /// Whether everything could be read that may name something.
    is_all_read: bool,
}

impl Search<'_> {
    fn look(
        &mut self,
        repository: &Repository,
        listed: &ListedArenas,
        all: &[(ArenaId, Generations)],
    ) -> Result<(), RepositoryError> {
        for (id, sorted) in all {
            self.add(*id, sorted)?;
        }
        self.bases(listed)?;
        let list = list_snapshots(repository)?;
        self.is_all_read &= list.unreadable.is_empty() && list.newer.is_empty();
        for snapshot in list.all() {
            let cancel = Cancel::new();
            let mut walk = SnapshotWalk::new(&Found::root(snapshot), self.reader, &cancel);
            while let Some(event) = walk.next()? {
                match event {
                    SnapshotEvent::Enter(directory) => {
                        let was_met = self.known.was_met(TreeKey::of_tree(directory.tree));
                        let named = self.recipe(directory.tree);
                        self.pass(named)?;
                        if was_met {
                            walk.skip();
                        }
                    }
                    SnapshotEvent::Leaf { entry, .. } => {
                        let named = entry.content().map_or(Ok(()), |content| self.recipe(content));
                        self.pass(named)?;
                    }
                    SnapshotEvent::Lost { error, .. } => self.pass(Err(error))?,
                    SnapshotEvent::Leave { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Notes that something cannot be read, and goes on.
    fn pass(&mut self, read: Result<(), RepositoryError>) -> Result<(), RepositoryError> {
        match read {
            Err(error) if error.is_damage() || error.is_withheld() => {
                self.is_all_read = false;
                Ok(())
            }
            other => other,
        }
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
        let held: BTreeSet<u32> = genuine.iter().map(|(slot, _)| *slot).collect();
        let others: Vec<ListedArena> = sorted.to_take_away().copied().collect();
        for (slot, fingerprint) in slots(&others)? {
            if genuine.contains(&(slot, fingerprint)) {
                continue;
            }
            let place = Location { arena: id, slot };
            self.wanted.entry(place).or_default().insert(fingerprint);
            if !sorted.is_contested && held.contains(&slot) {
                self.held.insert(place);
            }
        }
        Ok(())
    }

    /// The bases of all deltas.
    fn bases(&mut self, listed: &ListedArenas) -> Result<(), RepositoryError> {
        for generation in listed.all() {
            let arena = match self.reader.store().arena_in(generation.name) {
                Ok(arena) => arena,
                Err(error) => {
                    self.pass(Err(error.into()))?;
                    continue;
                }
            };
            for (_, entry) in arena.slots() {
                let is_named =
                    |base: &&Location| self.wanted.contains_key(base) && !self.held.contains(base);
                self.named.extend(entry.bases.iter().filter(is_named).map(|base| base.arena));
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
        let is_any = self.reader.naming().is_by_value() && !self.held.contains(&chunk.location);
        if wanted.is_some_and(|names| is_any || names.contains(&chunk.fingerprint)) {
            self.named.insert(chunk.location.arena);
        }
    }
}
