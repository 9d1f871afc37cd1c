//! How what a snapshot needs is laid out: in which blocks it is, and in how many requests they are
//! read.
//!
//! A new version of a file adds a few chunks in an arena of its own. So the newest of many versions
//! is spread over many arenas, of which it needs little (Foundation §7).

use strongroom_arena::{Arena, ArenaContent};
use strongroom_base::{ArenaId, Cancel, Location};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{ChunkRef, Recipe, Snapshot};

use crate::error::RepositoryError;
use crate::places::Places;
use crate::read::chunk_reader::ChunkReader;
use crate::read::lookup::Found;
use crate::read::memo::{NodeKey, PartMemo, TreeKey};
use crate::read::walk::{SnapshotEvent, SnapshotWalk};
use crate::write::packer::options::{DATA_BLOCK_BYTES, METADATA_BLOCK_BYTES_MAX};

/// Bytes of neighbouring blocks, as they lie, that a restore reads at once.
pub const RUN_BYTES_MAX: usize = 2 << 20;

/// Neighbouring blocks that are read at once, and what is needed of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where they are.
    pub arena: ArenaId,
    /// The numbers of their slots.
    pub slots: std::ops::Range<u32>,
    /// How many there are.
    pub blocks: u64,
    /// Bytes that are read.
    pub read_bytes: u64,
    /// The part of them that is needed: of each block as much as the share of its chunks.
    pub needed_bytes: u64,
    /// Bytes of the chunks that are needed, before compression.
    pub chunk_bytes: u64,
}

/// What a snapshot needs, by place.
#[derive(Debug, Default)]
pub struct Layout {
    /// What its trees and recipes name.
    pub named: Places,
    /// In the order of arenas, and of blocks in them.
    pub runs: Vec<Run>,
    /// References to places that no longer hold their chunk: each is read for itself.
    pub moved: u64,
}

/// How far a layout is from the best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Blocks that hold something that is needed.
    pub blocks: u64,
    /// Blocks that all of it would fill.
    pub blocks_least: u64,
    /// Runs of those blocks, each read by one request.
    pub requests: u64,
    /// Requests that would read as much if it lay together.
    pub requests_least: u64,
    /// Bytes that are read.
    pub read_bytes: u64,
    /// Bytes that would be read if it lay together.
    pub read_bytes_least: u64,
}

impl Layout {
    /// Reads the trees of a snapshot, and the summaries of the arenas that it needs.
    pub fn of(
        snapshot: &Snapshot,
        reader: &ChunkReader,
        cancel: &Cancel,
    ) -> Result<Self, RepositoryError> {
        let mut layout = Self::default();
        let mut known = PartMemo::new(reader.limits().memo_kept_min);
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), reader, cancel);
        while let Some(event) = walk.next()? {
            match event {
                SnapshotEvent::Enter(directory) => {
                    layout.name(directory.tree, reader, &mut known)?;
                    if known.was_met(TreeKey::of_tree(directory.tree)) {
                        walk.skip();
                    }
                }
                SnapshotEvent::Leaf { entry, .. } => {
                    if let Some(content) = entry.content() {
                        layout.name(content, reader, &mut known)?;
                    }
                }
                SnapshotEvent::Lost { error, .. } => return Err(error),
                SnapshotEvent::Leave { .. } => {}
            }
        }
        layout.cut_runs(reader, cancel)?;
        Ok(layout)
    }

    fn name(
        &mut self,
        recipe: &Recipe,
        reader: &ChunkReader,
        known: &mut PartMemo<()>,
    ) -> Result<(), RepositoryError> {
        for_each_chunk(recipe, reader, &mut |chunk: &ChunkRef, level| {
            self.named.insert(chunk.location);
            let is_known = level > 0 && known.was_met(NodeKey::of_node(chunk, level));
            Ok(if is_known { Visit::Past } else { Visit::Into })
        })
    }

    /// Cuts what is named, and the bases of that, into runs.
    fn cut_runs(&mut self, reader: &ChunkReader, cancel: &Cancel) -> Result<(), RepositoryError> {
        let mut needed = self.named.clone();
        for id in self.named.arenas() {
            cancel.check()?;
            let arena = match reader.store().arena(id) {
                Err(error) if error.is_unreadable() => continue,
                other => other?,
            };
            for (slot, entry) in arena.slots() {
                let place = Location { arena: id, slot };
                if !entry.bases.is_empty() && self.named.contains(place) {
                    entry.bases.iter().for_each(|base| needed.insert(*base));
                }
            }
            reader.store().forget(id);
        }
        for id in needed.arenas() {
            cancel.check()?;
            let slots = needed.of(id).expect("it is one of its arenas");
            match reader.store().arena(id) {
                Err(error) if error.is_unreadable() => self.moved += slots.len() as u64,
                other => self.cut_arena(&*other?, &needed),
            }
            reader.store().forget(id);
        }
        Ok(())
    }

    fn cut_arena(&mut self, arena: &Arena, needed: &Places) {
        let mut slots = arena.slots();
        let mut found = 0;
        let mut last: Option<std::ops::RangeInclusive<usize>> = None;
        for (place, block) in arena.summary.blocks.iter().enumerate() {
            let count = block.head.chunk_count as usize;
            let (mut all_bytes, mut chunk_bytes, before) = (0, 0, found);
            for (slot, entry) in slots.by_ref().take(count) {
                all_bytes += u64::from(entry.chunk_bytes);
                if needed.contains(Location { arena: arena.id, slot }) {
                    chunk_bytes += u64::from(entry.chunk_bytes);
                    found += 1;
                }
            }
            if found == before {
                continue;
            }
            let needed_bytes = block.stored_share(chunk_bytes, all_bytes);
            let joined = last.clone().filter(|run| *run.end() + 1 == place);
            let joined = joined.map(|run| *run.start()..=place);
            let joined = joined.filter(|run| arena.span(run.clone()).1 <= RUN_BYTES_MAX);
            match (joined, self.runs.last_mut()) {
                (Some(blocks), Some(run)) => {
                    run.slots.end = block.head.slots().end;
                    run.blocks += 1;
                    run.read_bytes = arena.span(blocks.clone()).1 as u64;
                    run.needed_bytes += needed_bytes;
                    run.chunk_bytes += chunk_bytes;
                    last = Some(blocks);
                }
                _ => {
                    self.runs.push(Run {
                        arena: arena.id,
                        slots: block.head.slots(),
                        blocks: 1,
                        read_bytes: arena.span(place..=place).1 as u64,
                        needed_bytes,
                        chunk_bytes,
                    });
                    last = Some(place..=place);
                }
            }
        }
        let wanted = needed.of(arena.id).map_or(0, |slots| slots.len() as u64);
        self.moved += wanted.saturating_sub(found);
    }

    /// How far it is from the best.
    pub fn fragmentation(&self) -> Fragmentation {
        let mut sum = Fragmentation { requests: self.moved, ..Fragmentation::default() };
        for content in [ArenaContent::Data, ArenaContent::Metadata] {
            let runs = self.runs.iter().filter(|run| ArenaContent::of(run.arena) == content);
            let (mut needed_bytes, mut chunk_bytes) = (0, 0_u64);
            for run in runs {
                sum.requests += 1;
                sum.blocks += run.blocks;
                sum.read_bytes += run.read_bytes;
                needed_bytes += run.needed_bytes;
                chunk_bytes += run.chunk_bytes;
            }
            sum.read_bytes_least += needed_bytes;
            sum.requests_least += needed_bytes.div_ceil(RUN_BYTES_MAX as u64);
            let block_bytes = match content {
                ArenaContent::Data => DATA_BLOCK_BYTES,
                ArenaContent::Metadata => METADATA_BLOCK_BYTES_MAX,
            };
            sum.blocks_least += chunk_bytes.div_ceil(block_bytes as u64);
        }
        sum
    }
}
