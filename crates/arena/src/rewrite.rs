//! An arena's next generation, without the chunks that a collection takes out.
//!
//! The arena keeps its name, and what is left keeps its slots, so that no reference changes. It is
//! computed again from parity first, and each block that is left is opened: damage is never copied
//! and covered with fresh parity.

use strongroom_base::entropy::random_array;
use strongroom_base::keys::WriteKeys;
use strongroom_base::{Entropy, Fingerprint};

use crate::block::{BlockDraft, BlockSealer, CompressionLevel, OpenBlock, SealedBlock, seal_again};
use crate::envelope::{self, Redundancy};
use crate::error::{ArenaError, damaged, envelope_error};
use crate::format::ArenaHead;
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
    /// Draws the salt of blocks that are sealed again.
    pub entropy: &'r dyn Entropy,
}

/// Makes the next generation of an arena from the bytes of its object, without the slots for which
/// `goes` is true.
///
/// Blocks without a chunk that stays are left out. If in every other block all stay, the blocks are
/// kept byte for byte; otherwise all of them are sealed under a key of this generation, because a
/// number is used once per key.
///
/// # Errors
///
/// [`ArenaError::Damaged`] if the object is beyond repair or a block that stays does not open.
pub fn rewrite(
    store: &ArenaStore,
    name: ArenaName,
    object: &[u8],
    goes: &dyn Fn(u32) -> bool,
    rewriting: &Rewriting<'_>,
) -> Result<FinishedArena, ArenaError> {
    let id = name.id;
    assert!(rewriting.generation > name.generation, "a generation follows");
    let object = envelope::repair(object).map_err(|error| envelope_error(id, error))?;
    let arena = store.open_arena_in(name, &object)?;
    let (header, head) = heads_of(name, &object)?;
    let stays = |slot: u32| {
        let is_known = arena.slot(slot).is_some_and(|slot| slot.fingerprint != Fingerprint::ZERO);
        is_known && !goes(slot)
    };
    let left: Vec<(usize, Left)> = arena
        .summary
        .blocks
        .iter()
        .enumerate()
        .map(|(place, block)| (place, Left::of(block.head.slots(), &stays)))
        .filter(|(_, left)| *left != Left::Nothing)
        .collect();
    let takes_blocks_apart = left.iter().any(|(_, left)| matches!(left, Left::Some { .. }));
    let mut next_head = head.clone();
    if takes_blocks_apart {
        next_head.salt = random_array(rewriting.entropy);
    }
    let origin = header.origin;
    let key_of =
        |head: &ArenaHead| store.blocks_key(id, head, origin.session).ok_or(ArenaError::PutOnly);
    let (present, next) = (key_of(&head)?, key_of(&next_head)?);
    let (present, next) = (present.open()?, next.open()?);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    let mut builder = ArenaBuilder::rebuilding(id, &next_head);
    for (place, left) in left {
        let number = arena.summary.blocks[place].frame.number;
        let (offset, length) = arena.span(place..=place);
        let bytes = &object[offset as usize..][..length];
        let opened = arena.open_blocks(place..=place, bytes)?.pop();
        let opened = opened.expect("a run of one block opens as one block");
        let lost = |_| damaged(id, format!("block {number} is damaged"));
        let block = match left {
            Left::Some { first, end } => {
                let mut draft = draft_of(&opened, number, first..end, &stays);
                sealer.seal_within(Vec::new(), &mut draft, id, next)
            }
            _ if takes_blocks_apart => seal_again(bytes, id, present, next).map_err(lost)?,
            _ => {
                let block = &arena.summary.blocks[place];
                SealedBlock { frame: block.frame, head: block.head, bytes: bytes.to_vec() }
            }
        };
        let slots = block.head.slots().map(|slot| slot_of(&arena, slot, &stays));
        builder.push(&block, slots.collect::<Vec<_>>());
    }
    // It stays in its domain: else the machines of that domain could no longer use it.
    let foreign = ArenaError::Foreign { arena: id, domain: head.domain };
    let domain = store.domain(head.domain).ok_or(foreign)?;
    Ok(builder.finish(Finishing {
        generation: rewriting.generation,
        origin,
        keys: &WriteKeys { domain, ..rewriting.keys.clone() },
        redundancy: rewriting.redundancy,
        padding: rewriting.padding.then_some(next),
    }))
}

/// What is left of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Some { first: u32, end: u32 },
    All,
}

impl Left {
    fn of(slots: std::ops::Range<u32>, stays: &dyn Fn(u32) -> bool) -> Self {
        let mut staying = slots.clone().filter(|slot| stays(*slot));
        let Some(first) = staying.next() else { return Self::Nothing };
        let (mut last, mut count) = (first, 1);
        for slot in staying {
            (last, count) = (slot, count + 1);
        }
        match count == slots.len() {
            true => Self::All,
            false => Self::Some { first, end: last + 1 },
        }
    }
}

/// The chunks of a block that stay, in their slots.
fn draft_of(
    block: &OpenBlock,
    number: u32,
    slots: std::ops::Range<u32>,
    stays: &dyn Fn(u32) -> bool,
) -> BlockDraft {
    let mut draft = BlockDraft::new(number, slots.start);
    for slot in slots {
        match block.chunk(slot).filter(|_| stays(slot)) {
            Some(chunk) => {
                draft.push(chunk);
            }
            None => draft.push_absent(),
        }
    }
    draft
}

fn slot_of(arena: &Arena, slot: u32, stays: &dyn Fn(u32) -> bool) -> SummarySlot {
    let staying = arena.slot(slot).filter(|_| stays(slot));
    staying.map_or(SummarySlot::ABSENT, |slot| slot.to_slot())
}
