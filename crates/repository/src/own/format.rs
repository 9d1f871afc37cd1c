//! The bytes of a machine's own record. The document: `docs/format/own.md`.

use std::collections::HashMap;

use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_base::seal::{OpenError, TAG_BYTES};
use strongroom_base::{ArenaSecret, SnapshotId};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::{pack_snapshot, unpack_snapshot};
use zeroize::Zeroizing;

use super::{KeptSession, KeptSnapshot, OwnRecord};
use crate::cache::SALT_BYTES;

/// What the file begins with.
pub const MAGIC: [u8; 8] = *b"SROWNREC";
/// The version of the file.
pub const VERSION: u32 = 1;
/// Bytes before what is sealed.
pub const HEADER_BYTES: usize = MAGIC.len() + 4 + SALT_BYTES;

/// Bytes of the record before the first session.
pub const HEAD_BYTES: usize = 8 + SnapshotId::BYTES + 4 + 4;
/// Bytes of a session, before its bases.
pub const SESSION_BYTES: usize = SnapshotId::BYTES + 32 + 4;
/// Bytes of a snapshot, before its map.
pub const SNAPSHOT_BYTES: usize = SnapshotId::BYTES + 4 + 4;
/// Bytes of the number of a session.
const NUMBER_BYTES: usize = 4;

/// Why there is no record in some bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It begins otherwise than this program's files.
    #[error("it is not a record of this version of the program")]
    Unknown,
    /// It does not open.
    #[error("it is damaged, or belongs to another repository or key")]
    Sealed(#[from] OpenError),
    /// It ends too early or too late.
    #[error(transparent)]
    Length(#[from] LengthError),
    /// It names a session that it does not have.
    #[error("it names a session that it does not have")]
    NoSuchSession,
    /// A snapshot in it is invalid.
    #[error(transparent)]
    Snapshot(#[from] FormatError),
}

/// What is in the clear before the sealed record.
pub fn pack_header(salt: &[u8; SALT_BYTES]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.put(&MAGIC);
    header.put_u32(VERSION);
    header.put(salt);
    header
}

/// The salt; none if it is no such file, or of another version.
pub fn unpack_header(header: &[u8; HEADER_BYTES]) -> Option<[u8; SALT_BYTES]> {
    let mut fields = LeReader::new(header);
    let is_known = fields.array().ok()? == MAGIC && fields.u32().ok()? == VERSION;
    fields.array().ok().filter(|_| is_known)
}

/// The bytes of a record, to be sealed. Sessions that the record does not have are left out of
/// what needs them.
pub fn pack_record(record: &OwnRecord) -> Zeroizing<Vec<u8>> {
    let maps: Vec<Vec<u8>> =
        record.snapshots.iter().map(|kept| pack_snapshot(&kept.snapshot)).collect();
    let numbers: HashMap<SnapshotId, u32> =
        record.sessions.iter().map(|session| session.id).zip(0..).collect();
    let numbers_of = |sessions: &[SnapshotId]| -> Vec<u32> {
        sessions.iter().filter_map(|session| numbers.get(session).copied()).collect()
    };
    // With room for all: a vector that grows leaves a part of the secrets behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(packed_bytes(record, &maps)));
    bytes.put_u64(record.sequence);
    bytes.put(&record.newest.unwrap_or(SnapshotId::ZERO).0);
    bytes.put_u32(len_u32(record.sessions.len()));
    bytes.put_u32(len_u32(record.snapshots.len()));
    for session in &record.sessions {
        bytes.put(&session.id.0);
        bytes.put(&session.secret.0);
        put_numbers(&mut bytes, &numbers_of(&session.bases));
    }
    for (kept, map) in record.snapshots.iter().zip(&maps) {
        bytes.put(&kept.snapshot.id.0);
        bytes.put_u32(len_u32(map.len()));
        bytes.put(map);
        put_numbers(&mut bytes, &numbers_of(&kept.needs));
    }
    bytes
}

/// At most how many bytes a record has, the tag of its seal included.
fn packed_bytes(record: &OwnRecord, maps: &[Vec<u8>]) -> usize {
    let sessions = record.sessions.iter();
    let sessions = sessions.map(|session| SESSION_BYTES + NUMBER_BYTES * session.bases.len());
    let snapshots = record.snapshots.iter().zip(maps);
    let snapshots =
        snapshots.map(|(kept, map)| SNAPSHOT_BYTES + map.len() + NUMBER_BYTES * kept.needs.len());
    HEAD_BYTES + sessions.sum::<usize>() + snapshots.sum::<usize>() + TAG_BYTES
}

/// The record in opened bytes.
pub fn unpack_record(bytes: &[u8]) -> Result<OwnRecord, RecordError> {
    let mut fields = LeReader::new(bytes);
    let record = unpack_fields(&mut fields)?;
    fields.finish()?;
    Ok(record)
}

fn unpack_fields(fields: &mut LeReader<'_>) -> Result<OwnRecord, RecordError> {
    let sequence = fields.u64()?;
    let newest = SnapshotId(fields.array()?);
    let sessions = fields.u32()?;
    let snapshots = fields.u32()?;
    // Each takes some bytes of its own, so that what is not there cannot make memory be reserved.
    let mut read = Vec::new();
    for _ in 0..sessions {
        let id = SnapshotId(fields.array()?);
        let secret = ArenaSecret(fields.array()?);
        read.push((id, secret, take_numbers(fields)?));
    }
    let ids: Vec<SnapshotId> = read.iter().map(|(id, ..)| *id).collect();
    let sessions = read.into_iter().map(|(id, secret, bases)| {
        Ok(KeptSession { id, secret, bases: sessions_of(&bases, &ids)? })
    });
    let sessions = sessions.collect::<Result<Vec<_>, RecordError>>()?;
    let mut kept = Vec::new();
    for _ in 0..snapshots {
        let id = SnapshotId(fields.array()?);
        let map_bytes = fields.u32()?;
        let map = fields.take(map_bytes as usize)?;
        let snapshot = unpack_snapshot(id, map)?;
        let needs = take_numbers(fields)?;
        kept.push(KeptSnapshot { snapshot, needs: sessions_of(&needs, &ids)? });
    }
    let newest = (newest != SnapshotId::ZERO).then_some(newest);
    Ok(OwnRecord { sequence, newest, snapshots: kept, sessions })
}

fn put_numbers(bytes: &mut Vec<u8>, numbers: &[u32]) {
    bytes.put_u32(len_u32(numbers.len()));
    numbers.iter().for_each(|number| bytes.put_u32(*number));
}

fn take_numbers(fields: &mut LeReader<'_>) -> Result<Vec<u32>, LengthError> {
    let count = fields.u32()? as usize;
    let bytes = fields.take(count.checked_mul(NUMBER_BYTES).ok_or(LengthError)?)?;
    let (numbers, _) = bytes.as_chunks::<NUMBER_BYTES>();
    Ok(numbers.iter().map(|number| u32::from_le_bytes(*number)).collect())
}

fn sessions_of(numbers: &[u32], ids: &[SnapshotId]) -> Result<Vec<SnapshotId>, RecordError> {
    let id_of = |number: &u32| ids.get(*number as usize).copied();
    let sessions = numbers.iter().map(id_of).collect::<Option<_>>();
    sessions.ok_or(RecordError::NoSuchSession)
}

fn len_u32(length: usize) -> u32 {
    u32::try_from(length).expect("a record is shorter than 4 GiB")
}
