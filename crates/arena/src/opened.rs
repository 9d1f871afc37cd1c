//! An arena that was opened: its summary in memory, and the key to its blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use strongroom_base::{ArenaId, DomainId, Fingerprint};

use crate::block::{BlockError, OpenBlock, open_block};
use crate::blocks_key::BlocksKey;
use crate::envelope::format::Origin;
use crate::error::{ArenaError, damaged, format_error};
use crate::format::{FRAME_BYTES, Summary, SummaryBlock};
use crate::name::ArenaName;
use crate::slots::{SlotRef, Slots};

/// What the key of an arena's blocks takes in memory: AES-256 with the tables of its
/// authentication.
const KEY_BYTES: usize = 1 << 10;

/// An open arena: what it holds at which place, and the key to its blocks.
pub struct Arena {
    /// Its name.
    pub id: ArenaId,
    /// How often it was rewritten.
    pub generation: u32,
    /// Whose it is: the domain whose key opened the summary.
    pub domain: DomainId,
    /// True if the own domain wrote it, or the owner vouched for it: then a writer may rely on its
    /// summary without reading its blocks.
    pub trusted: bool,
    /// True if the owner made this generation: it has the owner's mark.
    pub is_marked: bool,
    /// The session that wrote it, and its sequence.
    pub origin: Origin,
    /// What it holds.
    pub summary: Summary,
    /// Bytes of its object, if it is whole.
    pub object_bytes: u64,
    /// Where its blocks begin in the object.
    pub(crate) blocks_start: u64,
    /// For each block, the place of its first chunk in the summary's slots.
    pub(crate) first_places: Vec<u32>,
    pub(crate) key: Option<Arc<BlocksKey>>,
}

impl Arena {
    /// With the place of each block's first chunk, which the summary implies.
    pub(crate) fn with_places(mut self) -> Self {
        let mut place = 0;
        let blocks = &self.summary.blocks;
        self.first_places = blocks
            .iter()
            .map(|block| {
                let first = place;
                place += block.head.chunk_count;
                first
            })
            .collect();
        self
    }

    /// Its name.
    pub fn name(&self) -> ArenaName {
        ArenaName { id: self.id, generation: self.generation }
    }

    /// The same arena without its slots: it takes a few bytes a block.
    pub fn outline(&self) -> Self {
        let summary = Summary { blocks: self.summary.blocks.clone(), slots: Slots::default() };
        Self { summary, first_places: Vec::new(), key: self.key.clone(), ..*self }
    }

    /// The block, by its place in the summary, that holds a slot.
    pub fn block_of(&self, slot: u32) -> Option<usize> {
        let blocks = &self.summary.blocks;
        let place = blocks.partition_point(|block| block.head.first_slot <= slot).checked_sub(1)?;
        blocks[place].head.slots().contains(&slot).then_some(place)
    }

    /// What the summary says of a slot.
    pub fn slot(&self, slot: u32) -> Option<SlotRef<'_>> {
        let block = self.block_of(slot)?;
        let within = slot - self.summary.blocks[block].head.first_slot;
        self.summary.slots.get((self.first_places.get(block)? + within) as usize)
    }

    /// Whether this generation holds a chunk in a slot.
    pub fn holds(&self, slot: u32) -> bool {
        self.slot(slot).is_some_and(|slot| slot.fingerprint != Fingerprint::ZERO)
    }

    /// Whether this generation holds every chunk that another does, except those in slots that `goes`
    /// names. Another chunk in the same slot is none of them.
    pub fn covers(&self, other: &Self, goes: impl Fn(u32) -> bool) -> bool {
        other.held().all(|(slot, entry)| {
            goes(slot) || self.slot(slot).is_some_and(|own| own.fingerprint == entry.fingerprint)
        })
    }

    /// Whether this and another generation can be of one arena: a slot has the same chunk in each
    /// generation that holds it, and a block the same number and none of the slots of others.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.blocks_agree_with(other)
            && other.held().all(|(slot, entry)| {
                let own = self.slot(slot).filter(|own| own.fingerprint != Fingerprint::ZERO);
                own.is_none_or(|own| own.fingerprint == entry.fingerprint)
            })
    }

    fn blocks_agree_with(&self, other: &Self) -> bool {
        let mut ranges: BTreeMap<u32, Range<u32>> = BTreeMap::new();
        for block in self.summary.blocks.iter().chain(&other.summary.blocks) {
            let slots = block.head.slots();
            let range = ranges.entry(block.frame.number).or_insert(slots.clone());
            *range = range.start.min(slots.start)..range.end.max(slots.end);
        }
        ranges.values().is_sorted_by(|one, next| one.end <= next.start)
    }

    /// Every slot that holds a chunk.
    fn held(&self) -> impl Iterator<Item = (u32, SlotRef<'_>)> {
        self.slots().filter(|(_, slot)| slot.fingerprint != Fingerprint::ZERO)
    }

    /// Every slot that the arena still holds, with its number.
    pub fn slots(&self) -> impl Iterator<Item = (u32, SlotRef<'_>)> {
        let numbers = self.summary.blocks.iter().flat_map(|block| block.head.slots());
        numbers.zip(self.summary.slots.iter())
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let key_bytes = self.key.as_ref().map_or(0, |_| KEY_BYTES);
        size_of::<Self>()
            + self.summary.blocks.capacity() * size_of::<SummaryBlock>()
            + self.summary.slots.heap_bytes()
            + self.first_places.capacity() * size_of::<u32>()
            + key_bytes
    }

    /// Where a run of blocks is in the object: offset and length in bytes.
    pub fn span(&self, blocks: std::ops::RangeInclusive<usize>) -> (u64, usize) {
        let start = self.summary.blocks[*blocks.start()].offset;
        let last = &self.summary.blocks[*blocks.end()];
        let end = last.offset as usize + FRAME_BYTES + last.frame.sealed_bytes as usize;
        (self.blocks_start + u64::from(start), end - start as usize)
    }

    /// Opens one block from the bytes of a run that begins with the block `first`.
    pub fn open_block_of_run(
        &self,
        place: usize,
        first: usize,
        run: &[u8],
    ) -> Result<OpenBlock, ArenaError> {
        let blocks = &self.summary.blocks;
        let start = (blocks[place].offset - blocks[first].offset) as usize;
        let mut opened = self.open_blocks(place..=place, &run[start.min(run.len())..])?;
        Ok(opened.pop().expect("a run of one block opens as one block"))
    }

    /// Opens a run of blocks from the bytes of their [`Arena::span`].
    pub fn open_blocks(
        &self,
        blocks: std::ops::RangeInclusive<usize>,
        bytes: &[u8],
    ) -> Result<Vec<OpenBlock>, ArenaError> {
        let key = self.key.as_ref().ok_or(ArenaError::PutOnly)?.open()?;
        let base = self.summary.blocks[*blocks.start()].offset as usize;
        blocks
            .map(|place| {
                let block = &self.summary.blocks[place];
                let start = (block.offset as usize - base).min(bytes.len());
                let opened = open_block(&bytes[start..], self.id, key)?;
                if opened.head() == block.head {
                    Ok(opened)
                } else {
                    Err(BlockError::Damaged { number: block.frame.number })
                }
            })
            .collect::<Result<_, BlockError>>()
            .map_err(|error| match error {
                BlockError::Format(error) => format_error(self.id, error),
                BlockError::Damaged { .. } => damaged(self.id, error),
            })
    }
}

impl Arena {
    /// Opens every block, of the bytes of its object.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Damaged`] if one does not open, or is not the one that the summary describes.
    pub fn open_all(&self, object: &[u8]) -> Result<(), ArenaError> {
        for place in 0..self.summary.blocks.len() {
            let (offset, _) = self.span(place..=place);
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            self.open_blocks(place..=place, object.get(offset..).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Blocks of an arena, from the bytes of its object, by the numbers that they have in another of
/// its generations.
pub(crate) fn blocks_in(
    arena: &Arena,
    object: &[u8],
    wanted: &[SummaryBlock],
) -> Result<Vec<OpenBlock>, ArenaError> {
    let blocks = &arena.summary.blocks;
    let mut opened = Vec::new();
    for block in wanted {
        let lost = ArenaError::SlotLost { arena: arena.id, slot: block.head.first_slot };
        let place = blocks
            .binary_search_by_key(&block.frame.number, |block| block.frame.number)
            .map_err(|_| lost)?;
        let (offset, length) = arena.span(place..=place);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(object.len());
        let end = start.saturating_add(length).min(object.len());
        opened.append(&mut arena.open_blocks(place..=place, &object[start..end])?);
    }
    Ok(opened)
}
