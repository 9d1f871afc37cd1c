//! What can be recovered of an arena that parity cannot repair: every block that opens, and a new
//! summary of them.
//!
//! Each block contains its own frame, directory and authentication, so it needs neither other
//! blocks nor the summary (Foundation §3.4: everything but the log can be recreated by scanning the
//! log). The arena keeps its name and its slots; what is lost is left out, and its generation is
//! raised.

use strongroom_base::keys::WriteKeys;
use strongroom_base::seal::SealKey;
use strongroom_base::{ArenaId, DomainId, Fingerprint, Fingerprinter};

use crate::block::{
    BlockDraft, BlockError, BlockSealer, CompressionLevel, OpenBlock, PackedBlock, SealedBlock,
    StoredChunk, open_block,
};
use crate::envelope;
use crate::error::{ArenaError, damaged, envelope_error};
use crate::format::{ArenaHead, BlockFrame, Codec, FRAME_BYTES, FormatError, HEAD_BYTES};
use crate::name::ArenaName;
use crate::opened::Arena;
use crate::rewrite::Rewriting;
use crate::slots::SummarySlot;
use crate::store::ArenaStore;
use crate::writer::{ArenaBuilder, ArenaContent, FinishedArena, Finishing};

/// Makes a delta's chunk.
pub type ResolveDelta<'r> = dyn FnMut(StoredChunk<'_>) -> Option<Vec<u8>> + 'r;

/// An arena made of the blocks of a damaged one that still open.
pub struct Rescued {
    /// The arena's next generation, ready to replace the damaged one. If no block is left it is
    /// empty, so that its slots are not taken for filled.
    pub arena: FinishedArena,
    /// How many blocks were saved.
    pub blocks_saved: usize,
    /// How many blocks the head says there were, if it could be read.
    pub blocks_before: Option<u32>,
}

/// Saves every block of a damaged arena that still opens. If its summary does not, the next generation has
/// no mark: nothing proves of which domain the arena is.
pub fn rescue(
    store: &ArenaStore,
    name: ArenaName,
    object: &[u8],
    rescuing: &Rewriting<'_>,
    resolve: &mut ResolveDelta<'_>,
) -> Result<Rescued, ArenaError> {
    let (id, keys) = (name.id, rescuing.keys);
    assert!(rescuing.generation > name.generation, "a generation follows");
    let salvage = envelope::salvage(object).map_err(|error| envelope_error(id, error))?;
    if salvage.header.is_unknown() {
        return Err(ArenaError::Unknown { arena: id });
    }
    if (salvage.header.id, salvage.header.generation) != (id.0, name.generation) {
        return Err(damaged(id, "another object is in its place"));
    }
    let head = head_of(&salvage.body).ok_or_else(|| damaged(id, "its key is lost"))?;
    let origin = salvage.header.origin;
    let key = store.blocks_key(id, &head, origin.session).ok_or(ArenaError::PutOnly)?;
    let mut blocks = scan_blocks(&salvage.body, id, key.open()?)?;
    let found = blocks.len();
    blocks.retain(|(sealed, _)| sealed.head.codec != Codec::Padding);
    let is_padded = blocks.len() < found;
    let fingerprinter = ArenaContent::of(id).fingerprinter(&keys.naming);
    // It stays in its domain: else the machines of that domain could no longer use it.
    let foreign = ArenaError::Foreign { arena: id, domain: head.domain };
    let domain = store.domain(head.domain).ok_or(foreign)?;
    let keys = &WriteKeys { domain, ..keys.clone() };
    let summary = store.open_arena_in(name, object).ok();
    let slots = |(_, opened): &(SealedBlock, OpenBlock)| {
        slots_of(opened, summary.as_ref(), fingerprinter, resolve)
    };
    let slots: Vec<Vec<SummarySlot>> = blocks.iter().map(slots).collect();
    let is_short = |((_, opened), slots): (&(SealedBlock, OpenBlock), &Vec<SummarySlot>)| {
        leaves_out(opened, slots)
    };
    let is_sealed_again = is_padded || blocks.iter().zip(&slots).any(is_short);
    // Without the summary the domain is what the head says, and anybody can write a head.
    let authority = summary.is_some().then(|| store.authority()).transpose()?;
    let mut builder = ArenaBuilder::rebuilding(id, &head, authority);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    let mut blocks_saved = 0;
    for ((sealed, opened), slots) in blocks.iter().zip(slots) {
        if slots.iter().all(|slot| *slot == SummarySlot::ABSENT) {
            continue;
        }
        blocks_saved += 1;
        if !is_sealed_again {
            builder.push(sealed, slots);
        } else if leaves_out(opened, &slots) {
            let mut draft = draft_of(sealed, opened, &slots);
            builder.push_unsealed(&sealer.pack_within(Vec::new(), &mut draft), slots);
        } else {
            let block = PackedBlock::unsealed(&sealed.bytes, id, key.open()?);
            builder.push_unsealed(&block.map_err(|error| damaged(id, error))?, slots);
        }
    }
    // New messages are sealed, with all else, under a key of their own.
    let next = match is_sealed_again {
        true => Some(builder.seal_again(&key, rescuing.generation, is_padded)?),
        false => None,
    };
    let arena = builder.finish(Finishing {
        generation: rescuing.generation,
        origin,
        keys,
        redundancy: rescuing.redundancy,
        padding: next.as_ref().filter(|_| is_padded),
    });
    Ok(Rescued { arena, blocks_saved, blocks_before: Some(head.block_count) })
}

/// Whether a block has a chunk that its slots leave out. A base is found by its place alone, so what is not
/// named must not be there.
fn leaves_out(block: &OpenBlock, slots: &[SummarySlot]) -> bool {
    let mut named = block.slots().zip(slots);
    named.any(|(slot, named)| *named == SummarySlot::ABSENT && block.chunk(slot).is_some())
}

/// The block without the chunks that its slots leave out.
fn draft_of(sealed: &SealedBlock, block: &OpenBlock, slots: &[SummarySlot]) -> BlockDraft {
    let mut draft = BlockDraft::new(sealed.frame.number, sealed.head.first_slot);
    for (slot, named) in block.slots().zip(slots) {
        match block.chunk(slot).filter(|_| *named != SummarySlot::ABSENT) {
            Some(chunk) => drop(draft.push(chunk)),
            None => draft.push_absent(),
        }
    }
    draft
}

/// Whether anything of an arena beyond parity may still be read: a block that opens, or one that another key
/// may open.
pub fn holds_something(store: &ArenaStore, name: ArenaName, object: &[u8]) -> bool {
    let Ok(salvage) = envelope::salvage(object) else { return false };
    let is_of =
        |(id, generation)| (salvage.header.id, salvage.header.generation) == (id, generation);
    if salvage.header.is_unknown() || !is_of((name.id.0, name.generation)) {
        return true;
    }
    let Some(head) = head_of(&salvage.body) else { return false };
    let Some(key) = store.blocks_key(name.id, &head, salvage.header.origin.session) else {
        return true;
    };
    let Ok(key) = key.open() else { return false };
    !scan_blocks(&salvage.body, name.id, key).is_ok_and(|blocks| blocks.is_empty())
}

/// The domain that a damaged arena names. It is proved only if the summary opens.
pub fn domain_claimed(object: &[u8]) -> Option<DomainId> {
    Some(head_of(&envelope::salvage(object).ok()?.body)?.domain)
}

/// The head from either end of the body.
fn head_of(body: &[u8]) -> Option<ArenaHead> {
    let first = ArenaHead::unpack(body).ok();
    first.or_else(|| ArenaHead::unpack(&body[body.len().checked_sub(HEAD_BYTES)?..]).ok())
}

/// Every block that opens, in order, with any damage between them. Padding too.
fn scan_blocks(
    body: &[u8],
    id: ArenaId,
    key: &SealKey,
) -> Result<Vec<(SealedBlock, OpenBlock)>, ArenaError> {
    let mut blocks: Vec<(SealedBlock, OpenBlock)> = Vec::new();
    let mut at = HEAD_BYTES.min(body.len());
    while at + FRAME_BYTES <= body.len() {
        let Ok(frame) = BlockFrame::unpack(&body[at..]) else {
            at += next_frame(&body[at..]);
            continue;
        };
        let is_later = blocks.last().is_none_or(|(last, _)| last.frame.number < frame.number);
        match open_block(&body[at..], id, key) {
            Ok(opened) if is_later => {
                let end = at + FRAME_BYTES + frame.sealed_bytes as usize;
                let (head, bytes) = (opened.head(), body[at..end].to_vec());
                blocks.push((SealedBlock { frame, head, bytes }, opened));
                at = end;
            }
            // A rescue without this block would lose it.
            Err(BlockError::Format(FormatError::Unknown(_))) => {
                return Err(ArenaError::Unknown { arena: id });
            }
            _ => at += next_frame(&body[at..]),
        }
    }
    Ok(blocks)
}

/// How far it is to the next bytes that could begin a frame.
fn next_frame(bytes: &[u8]) -> usize {
    let magic = &crate::format::FRAME_MAGIC;
    let found = bytes[1..].windows(magic.len()).position(|window| window == magic);
    found.map_or(bytes.len(), |distance| distance + 1)
}

/// What a new summary says of a block. A slot that has other bytes than the old summary says is left
/// out: who looks for what it should hold must look elsewhere. A delta whose base is lost stays, without a
/// name: the base may come back.
fn slots_of(
    block: &OpenBlock,
    summary: Option<&Arena>,
    fingerprinter: &Fingerprinter,
    resolve: &mut ResolveDelta<'_>,
) -> Vec<SummarySlot> {
    block
        .slots()
        .map(|slot| {
            // A rewriting left it out.
            let Some(stored) = block.chunk(slot) else { return SummarySlot::ABSENT };
            let fingerprint = match stored {
                StoredChunk::Whole(bytes) => fingerprinter.fingerprint(bytes),
                // A delta whose base is lost no longer has a name: no reader will look for it.
                StoredChunk::Delta { .. } => resolve(stored)
                    .map_or(Fingerprint::ZERO, |bytes| fingerprinter.fingerprint(&bytes)),
            };
            let claimed = summary.and_then(|arena| Some(arena.slot(slot)?.fingerprint));
            let has_no_name = |it| it == Fingerprint::ZERO;
            // By value its place is its name: if the base comes back, it can be read.
            let is_kept = fingerprinter.makes_tags() && has_no_name(fingerprint);
            let fingerprint = claimed.filter(|_| is_kept).unwrap_or(fingerprint);
            let is_right = has_no_name(fingerprint)
                || claimed.is_none_or(|claimed| has_no_name(claimed) || claimed == fingerprint);
            if is_right { SummarySlot::of(fingerprint, stored) } else { SummarySlot::ABSENT }
        })
        .collect()
}
