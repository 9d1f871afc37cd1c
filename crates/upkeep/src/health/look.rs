//! Checks one object. The result depends only on that object and on the bases of its deltas, so
//! several objects are checked at the same time.

use std::collections::{HashMap, HashSet};

use strongroom_arena::{
    Arena, ArenaContent, ArenaError, ArenaName, Origin, StoredChunk, SummarySlot, Voucher, envelope,
};
use strongroom_backend::{Backend, BackendError, ObjectInfo, Withheld};
use strongroom_base::{ArenaId, Fingerprint, Location};
use strongroom_repository::{ChunkReader, RepositoryError};

use crate::health::fault::{Fault, look_at_ends, look_whole};

/// What was found in an object.
#[derive(Debug, Default)]
pub struct Looked {
    /// Who wrote it, as its header says.
    pub origin: Option<Origin>,
    /// Bytes that were read, if it was read whole.
    pub whole_bytes: Option<u64>,
    /// Chunks whose bytes were compared with their fingerprints.
    pub chunks_read: u64,
    /// What is wrong with it.
    pub fault: Option<Fault>,
    /// For an arena beyond parity, what a reader can still read of it.
    pub survivors: Option<(ArenaId, Survivors)>,
    /// For an arena of another domain in which every chunk is right: what is needed to vouch for
    /// it.
    pub vouchable: Option<Vouchable>,
    /// Why the place withholds it, and what it said: then nothing else is known of it.
    pub withheld: Option<(Withheld, String)>,
    /// Slots of a whole arena that hold something else than its summary says.
    pub wrong_slots: Vec<Location>,
}

/// An arena of another domain that holds what its summary says, if its bases do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouchable {
    /// The future voucher.
    pub voucher: Voucher,
    /// Arenas that hold bases of its deltas.
    pub bases: HashSet<ArenaId>,
}

/// The slots of a broken arena that a reader can still read.
pub type Survivors = HashMap<u32, SummarySlot>;

/// How closely an object is checked.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// Every byte is read; otherwise only the ends, and the rest only if these are wrong.
    pub every_byte: bool,
    /// The length at which the repository closes arenas, which bounds what is read of one.
    pub arena_bytes: u32,
}

/// Checks an object. One that was removed since it was listed is skipped: if it is needed, the
/// objects that name it will report it.
pub fn look_at(
    backend: &dyn Backend,
    info: &ObjectInfo,
    depth: Depth,
    reader: Option<&ChunkReader>,
) -> Result<Looked, RepositoryError> {
    let mut looked = match look_at_listed(backend, info, depth, reader) {
        Err(RepositoryError::Backend(error)) if error.is_not_found() => Looked::default(),
        Err(RepositoryError::Backend(error)) if error.is_withheld() => {
            return Ok(Looked { withheld: withheld(&error), ..Looked::default() });
        }
        other => other?,
    };
    if let (Some(name), Some(reader)) = (ArenaName::of(&info.name), reader)
        && !looked.wrong_slots.is_empty()
    {
        // Readers may find a slot in another generation of the arena. This one may be planted.
        let is_read_here = |place: &Location| {
            reader.store().arena_with(*place).is_ok_and(|read| read.name() == name)
        };
        looked.wrong_slots.retain(is_read_here);
    }
    Ok(looked)
}

fn withheld(error: &BackendError) -> Option<(Withheld, String)> {
    error.withheld().map(|why| (why, error.to_string()))
}

fn look_at_listed(
    backend: &dyn Backend,
    info: &ObjectInfo,
    depth: Depth,
    reader: Option<&ChunkReader>,
) -> Result<Looked, RepositoryError> {
    if !depth.every_byte
        && let Some(header) = look_at_ends(backend, info)?
    {
        return Ok(Looked { origin: Some(header.origin), ..Looked::default() });
    }
    let (object, fault) = look_whole(backend, &info.name, depth.arena_bytes)?;
    let whole_bytes = Some(object.len() as u64);
    let origin = envelope::peek(&object).ok().map(|header| header.origin);
    let looked = Looked { whole_bytes, fault, origin, ..Looked::default() };
    let (Some(name), Some(reader)) = (ArenaName::of(&info.name), reader) else {
        return Ok(looked);
    };
    Ok(match &looked.fault {
        Some(Fault::Unknown) => looked,
        None => match reader.store().open_arena_in(name, &object) {
            Ok(arena) => look_into(&arena, &object, reader, looked),
            Err(ArenaError::Unknown { .. }) => Looked { fault: Some(Fault::Unknown), ..looked },
            Err(error) => Looked {
                fault: Some(Fault::Beyond { why: error.to_string() }),
                survivors: Some((name.id, survivors(name.id, reader))),
                ..looked
            },
        },
        // A reader computes it again, with the wrong chunks that it may have had before.
        Some(Fault::Repairable { .. }) => {
            let healed = envelope::repair(&object).unwrap_or_default();
            let arena = reader.store().open_arena_in(name, &healed);
            let within = arena.map(|arena| look_into(&arena, &healed, reader, Looked::default()));
            let wrong_slots = within.map(|within| within.wrong_slots).unwrap_or_default();
            Looked { wrong_slots, ..looked }
        }
        Some(_) => Looked { survivors: Some((name.id, survivors(name.id, reader))), ..looked },
    })
}

/// What a reader can still read of an arena beyond parity, in the way of any reader: by the
/// summary, in any generation that exists. Blocks that only a scan finds are not included: they are
/// lost to every reader until a repair has written the arena again.
pub fn survivors(id: ArenaId, reader: &ChunkReader) -> Survivors {
    let mut survivors = Survivors::new();
    let Ok(arenas) = reader.store().arenas(id) else { return survivors };
    // What is in several is the same.
    for arena in arenas {
        add_survivors(&arena, reader, &mut survivors);
    }
    survivors
}

fn add_survivors(arena: &Arena, reader: &ChunkReader, survivors: &mut Survivors) {
    let id = arena.id;
    for place in 0..arena.summary.blocks.len() {
        let Ok(block) = reader.store().block(arena, place) else { continue };
        for slot in arena.summary.blocks[place].head.slots() {
            let (Some(stored), Some(named)) = (block.chunk(slot), arena.slot(slot)) else {
                continue;
            };
            let found = look_at_chunk(reader, ArenaContent::of(id), stored, named.fingerprint);
            if matches!(found, Ok(()) | Err(Wrong::Withheld)) {
                survivors.entry(slot).or_insert_with(|| named.to_slot());
            }
        }
    }
}

/// Opens every block of an arena and compares every fingerprint.
pub fn look_into(arena: &Arena, object: &[u8], reader: &ChunkReader, mut looked: Looked) -> Looked {
    let (mut wrong, mut newer, mut withheld) = (0, 0, 0);
    for place in 0..arena.summary.blocks.len() {
        let (offset, length) = arena.span(place..=place);
        // The arena opened, so its spans are within the object.
        let start = offset as usize;
        let opened = arena.open_blocks(place..=place, &object[start..start + length]);
        for slot in arena.summary.blocks[place].head.slots() {
            let stored = opened.as_ref().ok().and_then(|blocks| blocks.first()?.chunk(slot));
            let found = match (stored, arena.slot(slot)) {
                (Some(stored), Some(named)) => {
                    look_at_chunk(reader, ArenaContent::of(arena.id), stored, named.fingerprint)
                }
                // A rewriting has left it out.
                (None, Some(named)) if opened.is_ok() && named.fingerprint == Fingerprint::ZERO => {
                    continue;
                }
                _ if matches!(opened, Err(ArenaError::Unknown { .. })) => Err(Wrong::Newer),
                _ => Err(Wrong::Here),
            };
            looked.chunks_read += u64::from(found != Err(Wrong::Withheld));
            newer += u64::from(found == Err(Wrong::Newer));
            withheld += u64::from(found == Err(Wrong::Withheld));
            wrong += u64::from(found == Err(Wrong::Here));
            if matches!(found, Err(Wrong::Here | Wrong::InBase)) {
                looked.wrong_slots.push(Location { arena: arena.id, slot });
            }
        }
    }
    // A repair would leave out what a newer program can read: it keeps away from the whole arena.
    looked.fault = match (newer, wrong) {
        (0, 0) => None,
        (0, count) => Some(Fault::WrongChunks { count }),
        _ => Some(Fault::Unknown),
    };
    if !arena.trusted && looked.wrong_slots.is_empty() && newer + withheld == 0 {
        let slots = &arena.summary.slots;
        let bases = slots.owned_bases().map(|(_, base)| base.arena).collect();
        let voucher = reader.store().vouch_for(arena.name(), object).ok();
        looked.vouchable = voucher.map(|voucher| Vouchable { voucher, bases });
    }
    looked
}

/// What is at fault if a chunk cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// The chunk.
    Here,
    /// A base of it, whose arena is reported separately.
    InBase,
    /// This program: a newer one stored the chunk, and it is not damaged.
    Newer,
    /// Nothing that is known: the place withholds a base of it.
    Withheld,
}

fn look_at_chunk(
    reader: &ChunkReader,
    content: ArenaContent,
    stored: StoredChunk<'_>,
    named: Fingerprint,
) -> Result<(), Wrong> {
    let fingerprinter = content.fingerprinter(reader.naming());
    match reader.expand(stored) {
        Ok(bytes) if fingerprinter.fingerprint(&bytes) == named => Ok(()),
        Err(error) if error.is_unknown() => Err(Wrong::Newer),
        Err(error) if error.is_withheld() => Err(Wrong::Withheld),
        Ok(_) | Err(RepositoryError::Delta(_)) => Err(Wrong::Here),
        Err(_) => Err(Wrong::InBase),
    }
}
