//! What has changed since the index was made, and what it drops because of that.

use strongroom_arena::{ArenaStore, ListedArena, ListedArenas};
use strongroom_base::Monitor;
use strongroom_index::IndexError;

use super::super::arenas::Covered;
use super::super::location::unpack_location;
use super::ChunkIndex;

impl ChunkIndex {
    /// Drops the arenas that are gone or changed; returns how many are gone.
    pub(super) fn drop_changed(
        &mut self,
        listed: &ListedArenas,
        store: &ArenaStore,
    ) -> Result<usize, IndexError> {
        let open = self.collections.open.as_ref().map_or(0, |open| open.number);
        let (mut vanished, mut changed) = (0, self.arenas.respected() < open);
        self.arenas.respect(open);
        for ordinal in 0..self.arenas.len() {
            let Some(covered) = self.arenas.existing(ordinal) else { continue };
            let is_dead = self.collections.is_dead(covered.id);
            let newest = listed.generations(covered.id).last().filter(|_| !is_dead);
            let is_same = |newest: &ListedArena| {
                *newest == covered.listed()
                    || is_as_it_was(&covered, listed.generations(covered.id), store)
            };
            if newest.is_some_and(is_same) {
                continue;
            }
            vanished += usize::from(newest.is_none());
            // A rewriting opens blocks and compares no fingerprint: what was wrong is so in the next generation.
            if newest.is_some() {
                let wrong = self.left_out_of(ordinal, covered.id);
                self.left.lost.slots.extend(wrong);
            }
            self.arenas.update(ordinal, |covered| covered.exists = false);
            changed = true;
        }
        if changed {
            self.check_deltas_again();
            let arenas = &self.arenas;
            self.orphans.retain(|(ordinal, _)| arenas.existing(*ordinal).is_some());
            self.drop_gone_records()?;
        }
        Ok(vanished)
    }

    /// Drops the records of what is gone if they are a quarter of all or more: this writes all others
    /// again.
    fn drop_gone_records(&mut self) -> Result<(), IndexError> {
        let existing = (0..self.arenas.len()).filter_map(|ordinal| self.arenas.existing(ordinal));
        let expected: u64 = existing.map(|covered| u64::from(covered.chunks)).sum();
        let records = self.index.stats().records;
        if records.saturating_sub(expected) < records.div_ceil(4) {
            return Ok(());
        }
        let (arenas, orphans) = (&self.arenas, &self.orphans);
        self.index.retain(|location| {
            let place = unpack_location(location);
            arenas.existing(place.0).is_some() && !orphans.contains(&place)
        })
    }

    /// Drops everything, only in memory if the directory cannot be written; no arena has vanished. What is
    /// left out is lost in the repository, and not only here, so the next index leaves it out too.
    pub(super) fn begin_again(&mut self, monitor: &dyn Monitor) -> usize {
        let left_out = self.left_out();
        self.leave_for_later(left_out.clone(), monitor);
        if self.clear().is_err() {
            let (folder, collections) = (self.folder.take(), self.collections.clone());
            let left = std::mem::take(&mut self.left);
            *self = Self { folder, collections, left, ..Self::in_memory() };
        }
        self.left.lost.slots.extend(left_out);
        0
    }
}

/// Whether the generation in which an arena was read is still the one that counts, although there is a greater
/// number: what is planted there, or cannot be read, would otherwise be a change in every session.
fn is_as_it_was(covered: &Covered, generations: &[ListedArena], store: &ArenaStore) -> bool {
    let known = covered.listed();
    if !generations.contains(&known) {
        return false;
    }
    let sorted = store.sort_generations(generations);
    if !sorted.is_ok_and(|sorted| sorted.genuine.last() == Some(&known)) {
        return false;
    }
    store.learn(known.name);
    let opened = store.trusted_arena(covered.id);
    opened.is_ok_and(|arena| arena.name() == known.name && arena.trusted == covered.trusted)
}
