//! The bytes of the manifest: which segments count, and the caller's note.

use super::{CHECKSUM_BYTES, Rest, VERSION};
use crate::Damage;

const MAGIC: [u8; 8] = *b"SRINDEXM";
const HEAD_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 32;

/// Numbers of segments in a manifest are below this. An index never makes that many.
pub(crate) const NUMBERS_END: u64 = 1 << 63;

/// Which segments count, and the caller's note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The number that the next segment will have.
    pub(crate) next: u64,
    /// The segments, oldest first.
    pub(crate) segments: Vec<ManifestSegment>,
    /// The caller's note.
    pub(crate) note: Vec<u8>,
}

/// A segment as the manifest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManifestSegment {
    /// The number of the segment.
    pub(crate) number: u64,
    /// How many records it has.
    pub(crate) records: u64,
    /// The length of its file.
    pub(crate) file_bytes: u64,
    /// The checksum of its trailer, which covers all of it but the pages.
    pub(crate) trailer_checksum: u32,
}

/// Packs the manifest of these parts: the bytes before the note, and the checksum after it. The
/// note may be long, so it is not copied.
pub(crate) fn pack_manifest_around(
    next: u64,
    segments: &[ManifestSegment],
    note: &[u8],
) -> (Vec<u8>, [u8; CHECKSUM_BYTES]) {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + segments.len() * SEGMENT_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((segments.len() as u32).to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes.extend((note.len() as u64).to_le_bytes());
    for segment in segments {
        bytes.extend(segment.number.to_le_bytes());
        bytes.extend(segment.records.to_le_bytes());
        bytes.extend(segment.file_bytes.to_le_bytes());
        bytes.extend(segment.trailer_checksum.to_le_bytes());
        bytes.extend([0; 4]);
    }
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes), note);
    (bytes, checksum.to_le_bytes())
}

impl Manifest {
    /// The manifest in `bytes`, whose memory becomes that of the note.
    pub(crate) fn unpack(mut bytes: Vec<u8>) -> Result<Manifest, Damage> {
        let section = "manifest";
        let mut rest = Rest::checked(&bytes, section)?;
        rest.magic(MAGIC)?;
        rest.version()?;
        let segments = rest.u32()?;
        let next = rest.u64()?;
        let note_bytes = rest.length()?;
        if segments as usize > rest.bytes.len() / SEGMENT_BYTES {
            return Err(Damage::Length);
        }
        let segments = (0..segments)
            .map(|_| {
                let segment = ManifestSegment {
                    number: rest.u64()?,
                    records: rest.u64()?,
                    file_bytes: rest.u64()?,
                    trailer_checksum: rest.u32()?,
                };
                rest.zeros(4)?;
                Ok(segment)
            })
            .collect::<Result<Vec<_>, Damage>>()?;
        let note_begin = bytes.len() - CHECKSUM_BYTES - rest.bytes.len();
        rest.slice(note_bytes)?;
        rest.end()?;
        if next > NUMBERS_END || segments.iter().any(|segment| segment.number >= next) {
            return Err(Damage::Misplaced { section });
        }
        bytes.truncate(note_begin + note_bytes);
        bytes.drain(..note_begin);
        Ok(Manifest { next, segments, note: bytes })
    }
}
