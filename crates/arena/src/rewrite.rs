//! An arena's next generation, without the chunks that a collection takes out.
//!
//! The arena keeps its name, and what is left keeps its slots, so that no reference changes. It is
//! computed again from parity first, and each block that is left is opened: damage is never copied
//! and covered with fresh parity.
//!
//! If there are several generations, the next holds what is left of all of them: after two copies of
//! a repository were brought together, each may have chunks that the others lack.

use std::collections::BTreeMap;

use strongroom_base::keys::WriteKeys;

use crate::block::{
    BlockDraft, BlockSealer, CompressionLevel, OpenBlock, PackedBlock, SealedBlock,
};
use crate::blocks_key::BlocksKey;
use crate::envelope::format::Origin;
use crate::envelope::{self, Redundancy};
use crate::error::{ArenaError, damaged, envelope_error};
use crate::format::{ArenaHead, BlockHead, SummaryBlock};
use crate::name::ArenaName;
use crate::opened::Arena;
use crate::slots::SummarySlot;
use crate::store::ArenaStore;
use crate::store::opening::heads_of;
use crate::writer::{ArenaBuilder, FinishedArena, Finishing};

/// How an arena is rewritten.
pub struct Rewriting<'r> {
    /// The generation that is made: greater than any that exists.
    pub generation: u32,
    /// The keys of a holder of all domains' keys.
    pub keys: &'r WriteKeys,
    /// How much parity it gets.
    pub redundancy: Redundancy,
    /// Whether it is padded.
    pub padding: bool,
}

/// A generation that exists: its name, and the bytes of its object.
#[derive(Debug, Clone, Copy)]
pub struct Source<'s> {
    /// The arena and the generation.
    pub name: ArenaName,
    /// Its object.
    pub object: &'s [u8],
}

/// Makes the next generation of an arena from those that exist, without the slots for which `goes` is
/// true. A chunk is taken from the first of them that holds it.
///
/// Blocks without a chunk that stays are left out. If in every other block all stay, there is one
/// source, and nothing is padded, the blocks are kept byte for byte; otherwise all of them are sealed
/// under a key of this generation, because a number is used once per key.
///
/// # Errors
///
/// [`ArenaError::Damaged`] if an object is beyond repair, a block that stays does not open, or two of
/// them have different chunks in a slot that stays.
pub fn rewrite(
    store: &ArenaStore,
    sources: &[Source<'_>],
    goes: &dyn Fn(u32) -> bool,
    rewriting: &Rewriting<'_>,
) -> Result<FinishedArena, ArenaError> {
    let sources = sources.iter().map(|source| Opened::of(store, *source));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let first = sources.first().expect("there is a generation to rewrite");
    let (id, domain, origin) = (first.arena.id, first.head.domain, first.arena.origin);
    let is_right =
        |source: &Opened| source.arena.id == id && source.arena.generation < rewriting.generation;
    assert!(sources.iter().all(is_right), "a generation follows others of its arena");
    let all_agree = |source: &Opened| sources.iter().all(|it| it.arena.agrees_with(&source.arena));
    if !sources.iter().all(all_agree) {
        return Err(damaged(id, "two of its generations contradict each other"));
    }
    let left = blocks_left(&sources, goes);
    let is_taken_over = |block: &BlockLeft| block.is_whole(&sources);
    let keeps_bytes = sources.len() == 1 && !rewriting.padding && left.values().all(is_taken_over);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    let mut builder = ArenaBuilder::rebuilding(id, &first.head, Some(store.authority()?));
    for (number, block) in &left {
        let lost = |_| damaged(id, format!("block {number} is damaged"));
        let (source, place) = block.holders[0];
        let opened = block.open(&sources)?;
        let slots = |head: BlockHead| head.slots().map(|slot| block.slot(&sources, slot));
        if keeps_bytes {
            let SummaryBlock { frame, head, .. } = sources[source].arena.summary.blocks[place];
            let bytes = sources[source].block(place).to_vec();
            builder.push(&SealedBlock { frame, head, bytes }, slots(head).collect::<Vec<_>>());
        } else {
            let packed = if block.is_whole(&sources) {
                let key = sources[source].key.open()?;
                PackedBlock::unsealed(sources[source].block(place), id, key).map_err(lost)?
            } else {
                sealer.pack_within(Vec::new(), &mut block.draft(&opened, *number))
            };
            builder.push_unsealed(&packed, slots(packed.head).collect::<Vec<_>>());
        }
    }
    let (generation, is_padded) = (rewriting.generation, rewriting.padding);
    let next = match keeps_bytes {
        true => None,
        false => Some(builder.seal_again(&first.key, generation, is_padded)?),
    };
    // It stays in its domain: else the machines of that domain could no longer use it.
    let foreign = ArenaError::Foreign { arena: id, domain };
    let domain = store.domain(domain).ok_or(foreign)?;
    Ok(builder.finish(Finishing {
        generation,
        origin,
        keys: &WriteKeys { domain, ..rewriting.keys.clone() },
        redundancy: rewriting.redundancy,
        padding: next.as_ref().filter(|_| is_padded),
    }))
}

/// A source, computed again from its parity and opened.
struct Opened {
    arena: Arena,
    head: ArenaHead,
    object: Vec<u8>,
    key: BlocksKey,
}

impl Opened {
    fn of(store: &ArenaStore, source: Source<'_>) -> Result<Self, ArenaError> {
        let Source { name, object } = source;
        let object = envelope::repair(object).map_err(|error| envelope_error(name.id, error))?;
        let arena = store.open_arena_in(name, &object)?;
        let (header, head) = heads_of(name, &object)?;
        let Origin { session, .. } = header.origin;
        let key = store.blocks_key(name.id, &head, session).ok_or(ArenaError::PutOnly)?;
        Ok(Self { arena, head, object, key })
    }

    /// The bytes of the block at a place of the summary.
    fn block(&self, place: usize) -> &[u8] {
        let (offset, length) = self.arena.span(place..=place);
        &self.object[offset as usize..][..length]
    }
}

/// What stays of the block of one number.
struct BlockLeft {
    /// The slots that stay, ascending, and of each the holder that gives it.
    slots: BTreeMap<u32, usize>,
    /// The sources that give a slot, and the block's place in each.
    holders: Vec<(usize, usize)>,
}

/// The blocks of which something stays, by their numbers.
fn blocks_left(sources: &[Opened], goes: &dyn Fn(u32) -> bool) -> BTreeMap<u32, BlockLeft> {
    let mut left: BTreeMap<u32, BlockLeft> = BTreeMap::new();
    for (source, opened) in sources.iter().enumerate() {
        for (place, block) in opened.arena.summary.blocks.iter().enumerate() {
            let empty = || BlockLeft { slots: BTreeMap::new(), holders: Vec::new() };
            let found = left.entry(block.frame.number).or_insert_with(empty);
            let holder = found.holders.len();
            let before = found.slots.len();
            let stays = |slot: &u32| !goes(*slot) && opened.arena.holds(*slot);
            for slot in block.head.slots().filter(stays) {
                found.slots.entry(slot).or_insert(holder);
            }
            if found.slots.len() > before {
                found.holders.push((source, place));
            }
        }
    }
    left.retain(|_, block| !block.slots.is_empty());
    left
}

impl BlockLeft {
    /// Whether one source has all that stays, and nothing else.
    fn is_whole(&self, sources: &[Opened]) -> bool {
        let [(source, place)] = self.holders[..] else { return false };
        let head = &sources[source].arena.summary.blocks[place].head;
        head.chunk_count as usize == self.slots.len()
    }

    /// The blocks that give something, in the order of the holders.
    fn open(&self, sources: &[Opened]) -> Result<Vec<OpenBlock>, ArenaError> {
        let open = |(source, place): &(usize, usize)| {
            let source = &sources[*source];
            let mut opened = source.arena.open_blocks(*place..=*place, source.block(*place))?;
            Ok(opened.pop().expect("a run of one block opens as one block"))
        };
        self.holders.iter().map(open).collect()
    }

    /// The chunks that stay, in their slots.
    fn draft(&self, opened: &[OpenBlock], number: u32) -> BlockDraft {
        let first = *self.slots.first_key_value().expect("something stays").0;
        let last = *self.slots.last_key_value().expect("something stays").0;
        let mut draft = BlockDraft::new(number, first);
        for slot in first..=last {
            match self.slots.get(&slot).and_then(|holder| opened[*holder].chunk(slot)) {
                Some(chunk) => {
                    draft.push(chunk);
                }
                None => draft.push_absent(),
            }
        }
        draft
    }

    /// What the summary says of a slot.
    fn slot(&self, sources: &[Opened], slot: u32) -> SummarySlot {
        let holder = self.slots.get(&slot).map(|holder| self.holders[*holder].0);
        let found = holder.and_then(|source| sources[source].arena.slot(slot));
        found.map_or(SummarySlot::ABSENT, |slot| slot.to_slot())
    }
}
