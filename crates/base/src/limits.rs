//! The sizes that decide which shapes stored data takes, and how much a verb holds at a time.
//!
//! The program has the defaults. Tests draw small ones from a seed, so that a few kilobytes take the
//! shapes that otherwise only large data has: recipes with nodes above nodes, trees of many chunks,
//! plans that are cut, caches that evict. A reader depends on none of them: it reads what was written
//! with any others.

/// Limits of a writer and of the verbs. What is stored is the same format with all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// References of a recipe; a longer list is put into nodes. At most 16.
    pub recipe_refs_max: usize,
    /// Nodes above each other in every recipe, at least; of an empty one none.
    pub recipe_depth_min: u8,
    /// References of a node, unless it is the last of its level. At least 2, or levels would never
    /// become shorter.
    pub node_refs_min: usize,
    /// References of a node. At least `node_refs_min`.
    pub node_refs_max: usize,
    /// Bytes of a chunk of a tree, unless it is the last. This is well below the distance between
    /// names that end a chunk, so that cuts are the same again soon after a change.
    pub tree_chunk_bytes_min: usize,
    /// A chunk of a tree ends once it has this many bytes.
    pub tree_chunk_bytes_max: usize,
    /// Bytes of the slots that one plan, verdict or end names.
    pub plan_slots_bytes_max: usize,
    /// Bytes of the snapshots that one plan, verdict or end names.
    pub plan_snapshots_bytes_max: usize,
    /// Trees and nodes that a verb remembers, at least; at most twice as many.
    pub memo_kept_min: usize,
    /// References that were found good and are remembered.
    pub good_marks_max: usize,
    /// Bytes of each cache of summaries, blocks and healed arenas, even if its user asks for more.
    pub cache_bytes_max: usize,
    /// Records of an index that are in memory until they are written to a file.
    pub index_records_max: usize,
    /// Chunks and holes of a batch of a restore.
    pub batch_wants_max: usize,
    /// Files, further names of files, and directories of a batch of a restore.
    pub batch_entries_max: usize,
    /// Bytes of files that a backup reads ahead.
    pub ahead_bytes_max: usize,
    /// Files with several names of which a backup, or what brings a snapshot together, keeps the content
    /// until it met all of them, some 200 bytes each.
    pub linked_max: usize,
    /// Snapshots that a machine's own record keeps, and sessions.
    pub record_snapshots_max: usize,
    /// Sessions whose secrets it keeps.
    pub record_sessions_max: usize,
    /// Bytes of an arena's summary, before compression: an arena that has as many is closed,
    /// after the block that it has come to.
    pub summary_bytes_max: usize,
    /// Arenas that one object vouches for.
    pub vouchers_max: usize,
    /// Bytes of objects that a verb holds which moves many between two places. One object may have
    /// more; then it is alone.
    pub flight_bytes_max: u64,
    /// Files and lists of names that a verification names.
    pub affected_max: usize,
    /// References to greater slots are not remembered as good.
    pub good_slots_max: usize,
    /// Arenas that a backup may have closed and not written yet while it goes on. With 0 it makes no
    /// call to the store while another of its threads does.
    pub arenas_behind_max: usize,
}

impl SizeLimits {
    /// Those of the program.
    pub const DEFAULT: Self = Self {
        recipe_refs_max: 16,
        recipe_depth_min: 0,
        node_refs_min: 64,
        node_refs_max: 1024,
        tree_chunk_bytes_min: 4 << 10,
        tree_chunk_bytes_max: 256 << 10,
        plan_slots_bytes_max: 16 << 20,
        plan_snapshots_bytes_max: 8 << 20,
        // With a number for each that is 44 MiB.
        memo_kept_min: 900_000,
        // Of four bytes each.
        good_marks_max: 4 << 20,
        cache_bytes_max: usize::MAX,
        index_records_max: (1 << 18) / 8 * 7,
        // About 20 MiB of memory.
        batch_wants_max: 200_000,
        batch_entries_max: 25_000,
        ahead_bytes_max: 8 << 20,
        linked_max: 300_000,
        record_snapshots_max: 16,
        record_sessions_max: 16 << 10,
        // An eighth of what a reader accepts; a block may follow. Some 200,000 chunks.
        summary_bytes_max: 8 << 20,
        // Some 11 MiB.
        vouchers_max: 100_000,
        flight_bytes_max: 64 << 20,
        // Some 20 MiB of memory. A directory that holds itself twice, level upon level, would have
        // more losses than there is memory.
        affected_max: 100_000,
        // No arena has them, though a hostile reference may.
        good_slots_max: 1 << 20,
        // The queues of the packer are shorter.
        arenas_behind_max: usize::MAX,
    };

    /// For tests: each small, or that of the program.
    pub fn from_seed(seed: u64) -> Self {
        let usual = Self::DEFAULT;
        let mut draws = Draws(seed);
        Self {
            recipe_refs_max: draws.pick([1, 2, usual.recipe_refs_max]),
            recipe_depth_min: draws.pick([0, 1, 2, 3]),
            node_refs_min: 2,
            node_refs_max: draws.pick([3, 4, 8]),
            tree_chunk_bytes_min: 1,
            tree_chunk_bytes_max: draws.pick([1, 400, 2000]),
            // Of a few arenas, and of one snapshot.
            plan_slots_bytes_max: draws.pick([60, 100, usual.plan_slots_bytes_max]),
            plan_snapshots_bytes_max: draws.pick([50, usual.plan_snapshots_bytes_max]),
            memo_kept_min: draws.pick([1, 3, usual.memo_kept_min]),
            good_marks_max: draws.pick([1, 20, usual.good_marks_max]),
            cache_bytes_max: draws.pick([0, 20_000, usual.cache_bytes_max]),
            index_records_max: draws.pick([8, 64, usual.index_records_max]),
            batch_wants_max: draws.pick([1, 4, usual.batch_wants_max]),
            batch_entries_max: draws.pick([1, 6, usual.batch_entries_max]),
            ahead_bytes_max: draws.pick([1, 10_000, usual.ahead_bytes_max]),
            linked_max: draws.pick([0, 1, usual.linked_max]),
            record_snapshots_max: draws.pick([1, usual.record_snapshots_max]),
            record_sessions_max: draws.pick([2, usual.record_sessions_max]),
            summary_bytes_max: draws.pick([1, 400, usual.summary_bytes_max]),
            vouchers_max: draws.pick([1, 3, usual.vouchers_max]),
            flight_bytes_max: draws.pick([1, 60_000, usual.flight_bytes_max]),
            affected_max: draws.pick([1, 10, usual.affected_max]),
            good_slots_max: draws.pick([1, 4, usual.good_slots_max]),
            arenas_behind_max: draws.pick([0, 1, usual.arenas_behind_max]),
        }
    }
}

/// Numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn pick<T: Copy, const N: usize>(&mut self, some: [T; N]) -> T {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        some[((mixed ^ (mixed >> 31)) % N as u64) as usize]
    }
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_limits_let_every_level_become_shorter() {
        let mut depths = [0; 4];
        for seed in 0..200 {
            let drawn = SizeLimits::from_seed(seed);
            assert!(2 <= drawn.node_refs_min && drawn.node_refs_min < drawn.node_refs_max);
            assert!((1..=16).contains(&drawn.recipe_refs_max), "{drawn:?}");
            depths[usize::from(drawn.recipe_depth_min)] += 1;
        }
        assert!(depths.iter().all(|count| *count > 20), "{depths:?}");
    }
}
