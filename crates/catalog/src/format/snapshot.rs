//! The bytes of snapshots.

use minicbor::decode::Error as CborError;
use minicbor::{Decoder, Encoder};
use strongroom_base::{SnapshotId, Timestamp};

use super::{
    Cbor, FormatError, INFALLIBLE, decode_array, decode_map, decode_recipe, encode_recipe,
    expect_array,
};
use crate::snapshot::{Snapshot, SnapshotStats};

/// Keys of a snapshot's map.
mod snapshot_key {
    pub const KIND: u64 = 0;
    pub const STARTED: u64 = 1;
    pub const ENDED: u64 = 2;
    pub const HOST: u64 = 3;
    pub const USER: u64 = 4;
    pub const PATHS: u64 = 5;
    pub const LABELS: u64 = 6;
    pub const PARENT: u64 = 7;
    pub const ROOT: u64 = 8;
    pub const PARTIAL: u64 = 9;
    pub const STATS: u64 = 10;
    pub const PROGRAM: u64 = 11;
    pub const ROOT_PARTIAL: u64 = 12;
    pub const SEQUENCE: u64 = 13;
    pub const DOMAIN: u64 = 14;
}

/// Number of the only kind of snapshot so far: a file tree.
const SNAPSHOT_OF_FILE_TREE: u8 = 0;

/// A snapshot's bytes. Its identifier is the object's name, not part of them.
pub fn pack_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_snapshot(&mut Encoder::new(&mut bytes), snapshot).expect(INFALLIBLE);
    bytes
}

fn encode_snapshot(
    cbor: &mut Cbor<'_>,
    snapshot: &Snapshot,
) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
    use snapshot_key::*;
    let optional = [
        !snapshot.labels.is_empty(),
        snapshot.parent.is_some(),
        snapshot.partial,
        snapshot.root_partial,
        !snapshot.domain.is_empty(),
    ];
    cbor.map(10 + optional.into_iter().filter(|present| *present).count() as u64)?;
    cbor.u64(KIND)?.u8(SNAPSHOT_OF_FILE_TREE)?;
    cbor.u64(STARTED)?.i64(snapshot.started.0)?;
    cbor.u64(ENDED)?.i64(snapshot.ended.0)?;
    cbor.u64(HOST)?.str(&snapshot.host)?;
    cbor.u64(USER)?.str(&snapshot.user)?;
    cbor.u64(PATHS)?.array(snapshot.paths.len() as u64)?;
    for path in &snapshot.paths {
        cbor.bytes(path)?;
    }
    if !snapshot.labels.is_empty() {
        cbor.u64(LABELS)?.array(snapshot.labels.len() as u64)?;
        for label in &snapshot.labels {
            cbor.str(label)?;
        }
    }
    if let Some(parent) = snapshot.parent {
        cbor.u64(PARENT)?.bytes(&parent.0)?;
    }
    cbor.u64(ROOT)?;
    encode_recipe(cbor, &snapshot.root)?;
    if snapshot.partial {
        cbor.u64(PARTIAL)?.bool(true)?;
    }
    let stats = &snapshot.stats;
    cbor.u64(STATS)?.array(6)?;
    cbor.u64(stats.files)?.u64(stats.directories)?.u64(stats.bytes)?;
    cbor.u64(stats.bytes_new)?.u64(stats.bytes_stored)?.u64(stats.problems)?;
    cbor.u64(PROGRAM)?.str(&snapshot.program)?;
    if snapshot.root_partial {
        cbor.u64(ROOT_PARTIAL)?.bool(true)?;
    }
    cbor.u64(SEQUENCE)?.u64(snapshot.sequence)?;
    if !snapshot.domain.is_empty() {
        cbor.u64(DOMAIN)?.str(&snapshot.domain)?;
    }
    Ok(())
}

/// The snapshot of this identifier in `bytes`.
pub fn unpack_snapshot(id: SnapshotId, bytes: &[u8]) -> Result<Snapshot, FormatError> {
    let damaged = |error: CborError| FormatError::new("snapshot", error);
    let mut cbor = Decoder::new(bytes);
    let snapshot = decode_snapshot(&mut cbor, id).map_err(damaged)?;
    if cbor.position() == bytes.len() {
        Ok(snapshot)
    } else {
        Err(FormatError::new("snapshot", "bytes are left over"))
    }
}

fn decode_snapshot(cbor: &mut Decoder<'_>, id: SnapshotId) -> Result<Snapshot, CborError> {
    use snapshot_key::*;
    let mut snapshot = Snapshot::empty(id);
    let mut has_root = false;
    decode_map(cbor, |cbor, key| {
        match key {
            KIND => {
                if cbor.u8()? != SNAPSHOT_OF_FILE_TREE {
                    return Err(CborError::message("a kind this program does not know"));
                }
            }
            STARTED => snapshot.started = Timestamp(cbor.i64()?),
            ENDED => snapshot.ended = Timestamp(cbor.i64()?),
            HOST => snapshot.host = cbor.str()?.to_owned(),
            USER => snapshot.user = cbor.str()?.to_owned(),
            PATHS => snapshot.paths = decode_array(cbor, |cbor| Ok(cbor.bytes()?.to_vec()))?,
            LABELS => snapshot.labels = decode_array(cbor, |cbor| Ok(cbor.str()?.to_owned()))?,
            PARENT => {
                let parent = cbor.bytes()?.try_into();
                let parent = parent.map_err(|_| CborError::message("a parent's name"))?;
                snapshot.parent = Some(SnapshotId(parent));
            }
            ROOT => {
                snapshot.root = decode_recipe(cbor)?;
                has_root = true;
            }
            PARTIAL => snapshot.partial = cbor.bool()?,
            STATS => {
                expect_array(cbor, 6)?;
                snapshot.stats = SnapshotStats {
                    files: cbor.u64()?,
                    directories: cbor.u64()?,
                    bytes: cbor.u64()?,
                    bytes_new: cbor.u64()?,
                    bytes_stored: cbor.u64()?,
                    problems: cbor.u64()?,
                };
            }
            PROGRAM => snapshot.program = cbor.str()?.to_owned(),
            ROOT_PARTIAL => snapshot.root_partial = cbor.bool()?,
            SEQUENCE => snapshot.sequence = cbor.u64()?,
            DOMAIN => snapshot.domain = cbor.str()?.to_owned(),
            _ => cbor.skip()?,
        }
        Ok(())
    })?;
    if has_root { Ok(snapshot) } else { Err(CborError::message("it has no root")) }
}
