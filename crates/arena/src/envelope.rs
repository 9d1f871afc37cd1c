//! The envelope around every object of a repository.
//!
//! ```text
//! header | body, in shards | signature table | parity shards | signature table | trailer
//! ```
//!
//! The envelope of an object shows, with or without keys, whether the object is whole and which
//! shards are damaged. As many lost shards as there are parity shards can be computed again. Parity
//! is Reed–Solomon and the table holds algebraic signatures, both over the same GF(2^16), so the
//! parity's signatures are the parity of the signatures (Litwin–Schwarz; see
//! `docs/format/envelope.md`). The envelope knows nothing of what the body means.

mod fetch;
pub mod format;
pub mod newness;
pub mod proof;
mod read;

pub use fetch::{Fetched, fetch_from};
pub use read::{RawObject, read_object};

use strongroom_galois::Code;
use strongroom_galois::{Signature, signature};

use format::{
    HEADER_BYTES, Header, HeaderError, Layout, ObjectKind, Origin, PROOF_BYTES,
    SHARD_BYTES_LOG2_MAX, pack_table, unpack_table,
};

/// How much parity an object gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redundancy {
    /// Parity shards per thousand data shards; rounded up. Zero means none, and there are never
    /// more than data shards.
    pub per_mille: u32,
}

impl Redundancy {
    /// The default for arenas: 3 %.
    pub const ARENA: Self = Self { per_mille: 30 };
    /// For small objects, on each of which a whole snapshot depends: as much again.
    pub const SMALL_OBJECT: Self = Self { per_mille: 1000 };

    fn parity_shards(self, data_shards: usize) -> u32 {
        let parity = (data_shards as u64 * u64::from(self.per_mille)).div_ceil(1000);
        let parity = parity.min(data_shards as u64).min(1 << 14);
        u32::try_from(parity).expect("at most 2^14 parity shards")
    }
}

/// The object to which an envelope belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// What it is.
    pub kind: ObjectKind,
    /// Which one.
    pub id: [u8; 16],
    /// How often it was rewritten with other content.
    pub generation: u32,
    /// Which writer made it.
    pub origin: Origin,
}

/// Bytes to be put in front of a body before [`seal`].
pub const HEADROOM: usize = HEADER_BYTES;

/// Wraps the body that follows [`HEADROOM`] spare bytes in `object`, in place.
pub fn seal(mut object: Vec<u8>, identity: Identity, redundancy: Redundancy) -> Vec<u8> {
    seal_from(0, &mut object, identity, redundancy);
    object
}

/// As [`seal`], for the object that begins at `start` in `memory`.
pub fn seal_from(start: usize, memory: &mut Vec<u8>, identity: Identity, redundancy: Redundancy) {
    assert!(memory.len() > start + HEADROOM, "an object has a body");
    let body = &memory[start + HEADROOM..];
    let shard_bytes_log2 = shard_bytes_log2(body.len());
    let header = Header {
        kind: identity.kind,
        generation: identity.generation,
        id: identity.id,
        origin: identity.origin,
        body_bytes: body.len() as u64,
        shard_bytes_log2,
        parity_shards: redundancy.parity_shards(body.len().div_ceil(1 << shard_bytes_log2)),
        required_features: 0,
        body_hash: *blake3::hash(body).as_bytes(),
        proof: [0; PROOF_BYTES],
    };
    append_proofs(start, memory, &header);
}

/// Fills in the header of an object that begins at `start` and ends with its body, and appends
/// tables, parity and trailer.
fn append_proofs(start: usize, memory: &mut Vec<u8>, header: &Header) {
    let layout = header.layout();
    let shard_bytes = header.shard_bytes();
    let body = &memory[start..][HEADROOM..layout.first_table];
    let mut parity = vec![0; layout.parity_bytes];
    if header.parity_shards > 0 {
        code_of(header)
            .encode(body, shard_bytes, &mut parity)
            .expect("body and parity have the lengths that the header gives them");
    }
    let shards = body.chunks(shard_bytes).chain(parity.chunks(shard_bytes));
    let table = pack_table(&shards.map(signature::<2>).collect::<Vec<_>>());
    memory.reserve_exact(layout.object_bytes - (memory.len() - start));
    memory[start..][..HEADER_BYTES].copy_from_slice(&header.pack());
    memory.extend_from_slice(&table);
    memory.extend_from_slice(&parity);
    memory.extend_from_slice(&table);
    memory.extend_from_slice(&header.pack());
    assert_eq!(memory.len() - start, layout.object_bytes, "the layout is what was written");
}

/// The largest shard, up to 64 KiB, of which the body fills 128; at least 256 bytes. So parity
/// costs its rate in small objects too.
fn shard_bytes_log2(body_bytes: usize) -> u8 {
    let wanted = (body_bytes / 128).max(1).ilog2();
    u8::try_from(wanted.clamp(8, u32::from(SHARD_BYTES_LOG2_MAX))).expect("at most sixteen")
}

fn code_of(header: &Header) -> Code {
    Code::new(header.data_shards(), header.parity_shards as usize)
        .expect("a header that is consistent names a code that exists")
}

/// What is wrong with an object under the name of another.
fn swapped(wanted: ObjectKind, found: ObjectKind) -> String {
    if wanted == found {
        format!("it is another {} than its name says", wanted.noun())
    } else {
        format!("it is a {} where a {} should be", found.noun(), wanted.noun())
    }
}

/// Why an object is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Neither header nor trailer can be read.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A whole object, but another one.
    #[error("{}", swapped(*.wanted, *.found))]
    Swapped {
        /// What was wanted.
        wanted: ObjectKind,
        /// What is there.
        found: ObjectKind,
    },
    /// A whole object, or one that parity can repair, that a newer program made.
    #[error("it was made by a newer program: update Strongroom")]
    Unknown,
    /// More is lost than parity can recover.
    #[error("{lost} of its {shards} shards are damaged, and its parity can repair only {parity}")]
    BeyondRepair {
        /// Damaged shards; all of them if it is unknown which.
        lost: usize,
        /// Shards in all.
        shards: usize,
        /// Parity shards.
        parity: usize,
    },
}

/// What an inspection found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The header, from the end that could be read.
    pub header: Header,
    /// The damaged shards, data first, by number. All of them if neither table can be read and the
    /// body is wrong.
    pub lost_shards: Vec<usize>,
    /// True if anything besides the shards is damaged: header, trailer, a table, the length.
    pub frame_damaged: bool,
}

impl Inspection {
    /// True if nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.lost_shards.is_empty() && !self.frame_damaged
    }

    /// True if the object itself is enough to repair the damage.
    pub fn is_repairable(&self) -> bool {
        self.lost_shards.len() <= self.header.parity_shards as usize
            || self.lost_shards.iter().all(|&shard| shard >= self.header.data_shards())
    }

    fn beyond_repair(&self) -> EnvelopeError {
        EnvelopeError::BeyondRepair {
            lost: self.lost_shards.len(),
            shards: self.header.shards(),
            parity: self.header.parity_shards as usize,
        }
    }
}

/// The header of an object of which at least the first [`HEADER_BYTES`] bytes are given.
pub fn peek(object: &[u8]) -> Result<Header, HeaderError> {
    Header::unpack(object)
}

/// Checks every byte of an object and reports what is damaged. Needs no key.
///
/// Memory: for any claim in the header, at most 1 MiB besides the object: eight bytes a shard, and
/// the signatures of the tables that exist.
pub fn inspect(object: &[u8]) -> Result<Inspection, EnvelopeError> {
    let (header, header_damaged) = header_of(object)?;
    let layout = header.layout();
    let tables = [layout.first_table, layout.second_table].map(|at| {
        let bytes = object.get(at..at + layout.table_bytes)?;
        unpack_table(bytes)
    });
    let trailer_damaged = object.get(layout.trailer..layout.object_bytes) != Some(&header.pack());
    let frame_damaged = header_damaged
        || trailer_damaged
        || object.len() != layout.object_bytes
        || tables.iter().any(Option::is_none)
        || tables[0] != tables[1];
    let table = tables.into_iter().flatten().next();
    let lost_shards = lost_shards(object, &header, &layout, table.as_deref());
    Ok(Inspection { header, lost_shards, frame_damaged })
}

fn header_of(object: &[u8]) -> Result<(Header, bool), HeaderError> {
    match Header::unpack(object) {
        Ok(header) => Ok((header, false)),
        Err(HeaderError::NewerVersion { version }) => Err(HeaderError::NewerVersion { version }),
        Err(error) => {
            let trailer = object.len().checked_sub(HEADER_BYTES).ok_or(error)?;
            let header = Header::unpack(&object[trailer..]).map_err(|_| error)?;
            Ok((header, true))
        }
    }
}

fn lost_shards(
    object: &[u8],
    header: &Header,
    layout: &Layout,
    table: Option<&[Signature<2>]>,
) -> Vec<usize> {
    let body = object.get(HEADROOM..layout.first_table);
    let body_is_right = body.is_some_and(|body| *blake3::hash(body).as_bytes() == header.body_hash);
    let data_shards = header.data_shards();
    let Some(table) = table else {
        // Which shard is wrong is unknown; if the body is right, only parity can be.
        let first = if body_is_right { data_shards } else { 0 };
        return (first..header.shards()).collect();
    };
    let is_lost = |shard: usize| {
        if shard < data_shards && body_is_right {
            return false;
        }
        let range = shard_range(header, layout, shard);
        object.get(range).is_none_or(|bytes| signature::<2>(bytes) != table[shard])
    };
    let lost: Vec<usize> = (0..header.shards()).filter(|&shard| is_lost(shard)).collect();
    if !body_is_right && lost.first().is_none_or(|&first| first >= data_shards) {
        // Signatures that match a body whose hash does not: a collision, or a forged table.
        return (0..header.shards()).collect();
    }
    lost
}

/// Where a shard is in the object, in bytes.
fn shard_range(header: &Header, layout: &Layout, shard: usize) -> std::ops::Range<usize> {
    let shard_bytes = header.shard_bytes();
    match shard.checked_sub(header.data_shards()) {
        None => {
            let start = HEADROOM + shard * shard_bytes;
            start..(start + shard_bytes).min(layout.first_table)
        }
        Some(parity) => {
            let start = layout.parity + parity * shard_bytes;
            start..start + shard_bytes
        }
    }
}

/// The object as it was sealed, computed from what is left of it. Needs no key.
///
/// Memory: for any claim in the header, at most six times the object's length and 1 MiB. A body can
/// be repaired only if a table or the whole body exists, and both tables come after its end; and
/// parity is never longer than the body's shards ([`Header::unpack`] checks that).
pub fn repair(object: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
    let inspection = inspect(object)?;
    if !inspection.is_repairable() {
        return Err(inspection.beyond_repair());
    }
    let header = &inspection.header;
    let layout = header.layout();
    let shard_bytes = header.shard_bytes();
    let mut data =
        take_padded(object, HEADROOM..layout.first_table, header.data_shards() * shard_bytes);
    if header.parity_shards > 0 {
        let mut parity =
            take_padded(object, layout.parity..layout.second_table, layout.parity_bytes);
        code_of(header)
            .repair(&mut data, &mut parity, shard_bytes, &inspection.lost_shards)
            .map_err(|_| inspection.beyond_repair())?;
    }
    data.truncate(header.body_bytes());
    if *blake3::hash(&data).as_bytes() != header.body_hash {
        return Err(inspection.beyond_repair());
    }
    let mut repaired = Vec::with_capacity(layout.object_bytes);
    repaired.resize(HEADROOM, 0);
    repaired.append(&mut data);
    append_proofs(0, &mut repaired, header);
    Ok(repaired)
}

/// The bytes of `range` that exist, zero-padded to `length`.
fn take_padded(object: &[u8], range: std::ops::Range<usize>, length: usize) -> Vec<u8> {
    let start = range.start.min(object.len());
    let end = range.end.min(object.len());
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&object[start..end]);
    bytes.resize(length, 0);
    bytes
}

/// The parts of an object that [`salvage`] recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvage {
    /// The header, from the end that could be read.
    pub header: Header,
    /// The body with its lost shards unrepaired, short if the object is.
    pub body: Vec<u8>,
}

/// The body of an object that is beyond repair, damage and all.
pub fn salvage(object: &[u8]) -> Result<Salvage, EnvelopeError> {
    let (header, _) = header_of(object)?;
    let layout = header.layout();
    let end = layout.first_table.min(object.len());
    let body = object.get(HEADROOM..end).unwrap_or_default().to_vec();
    Ok(Salvage { header, body })
}

/// The body of a small object that was read whole, repaired in memory if needed. The flag says
/// whether it was.
pub fn open(
    object: &[u8],
    kind: ObjectKind,
    id: Option<&[u8; 16]>,
) -> Result<(Header, Vec<u8>, bool), EnvelopeError> {
    let inspection = inspect(object)?;
    let header = &inspection.header;
    if header.is_unknown() {
        return Err(EnvelopeError::Unknown);
    }
    if header.kind != kind || id.is_some_and(|id| *id != header.id) {
        return Err(EnvelopeError::Swapped { wanted: kind, found: header.kind });
    }
    let whole = inspection.is_whole();
    let layout = header.layout();
    let body = if whole {
        object[HEADROOM..layout.first_table].to_vec()
    } else {
        repair(object)?[HEADROOM..layout.first_table].to_vec()
    };
    Ok((inspection.header, body, !whole))
}

/// Wraps the body of a small object.
pub fn seal_small(body: &[u8], identity: Identity) -> Vec<u8> {
    let mut object = vec![0; HEADROOM];
    object.extend_from_slice(body);
    seal(object, identity, Redundancy::SMALL_OBJECT)
}

#[cfg(test)]
mod tests;
