//! The bytes of snapshots.

use minicbor::decode::Error as CborError;
use minicbor::{Decoder, Encoder};
use strongroom_base::{SnapshotId, Timestamp};

use super::{
    Cbor, FormatError, INFALLIBLE, PackedRecipe, RecipeForm, decode_array, decode_map,
    encode_recipe, expect_array,
};
use crate::reference::Recipe;
use crate::snapshot::{Guarantee, Origin, Snapshot, SnapshotHead, SnapshotStats};

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
    pub const FEATURES: u64 = 15;
    pub const REQUIRED: u64 = 16;
    pub const SEEN: u64 = 17;
    pub const PARTITIONS: u64 = 18;
    pub const PAGE_MAP: u64 = 19;
    pub const ORIGIN: u64 = 20;
    pub const GUARANTEE: u64 = 21;
    pub const MISSING: u64 = 22;
    pub const MISSING_NAMES: u64 = 23;
    pub const LISTS_TRUSTED: u64 = 24;
}

/// Number of the only kind of snapshot that this program makes and reads: a file tree. Disk images
/// (1), machines (2) and memory regions (3) are reserved.
const SNAPSHOT_OF_FILE_TREE: u64 = 0;

/// The required feature of a snapshot whose recipes name chunks by their places.
const RECIPES_OF_PLACES: u64 = 1;

/// Reserved keys that hold references to chunks, and the features without which no snapshot has
/// them: a collector that did not know of the references would remove what they name.
const REFERENCES_OF_FEATURES: [(u64, u64); 2] =
    [(snapshot_key::PARTITIONS, 2), (snapshot_key::PAGE_MAP, 3)];

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
    let has_names = snapshot.missing.values().any(|names| !names.is_empty());
    let optional = [
        !snapshot.labels.is_empty(),
        snapshot.parent.is_some(),
        snapshot.partial,
        snapshot.root_partial,
        !snapshot.domain.is_empty(),
        !snapshot.features.is_empty(),
        RecipeForm::of(&snapshot.root.refs) == RecipeForm::Places,
        snapshot.seen > 0,
        snapshot.origin.is_some(),
        snapshot.guarantee.is_some(),
        !snapshot.missing.is_empty(),
        has_names,
        snapshot.lists_trusted,
    ];
    cbor.map(10 + optional.into_iter().filter(|present| *present).count() as u64)?;
    cbor.u64(KIND)?.u64(SNAPSHOT_OF_FILE_TREE)?;
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
    if !snapshot.features.is_empty() {
        cbor.u64(FEATURES)?.array(snapshot.features.len() as u64)?;
        for feature in &snapshot.features {
            cbor.u64(*feature)?;
        }
    }
    if RecipeForm::of(&snapshot.root.refs) == RecipeForm::Places {
        cbor.u64(REQUIRED)?.array(1)?.u64(RECIPES_OF_PLACES)?;
    }
    if snapshot.seen > 0 {
        cbor.u64(SEEN)?.u64(snapshot.seen)?;
    }
    if let Some(Origin { program, repository, snapshot }) = &snapshot.origin {
        cbor.u64(ORIGIN)?.array(3)?.str(program)?.str(repository)?.str(snapshot)?;
    }
    if let Some(Guarantee { promise, method, turn }) = snapshot.guarantee {
        cbor.u64(GUARANTEE)?.array(3)?.u64(promise)?.u64(method)?.u64(turn)?;
    }
    if !snapshot.missing.is_empty() {
        cbor.u64(MISSING)?.array(snapshot.missing.len() as u64)?;
        for path in snapshot.missing.keys() {
            cbor.bytes(path)?;
        }
    }
    if has_names {
        cbor.u64(MISSING_NAMES)?.array(snapshot.missing.len() as u64)?;
        for names in snapshot.missing.values() {
            cbor.array(names.len() as u64)?;
            for name in names {
                cbor.bytes(name)?;
            }
        }
    }
    if snapshot.lists_trusted {
        cbor.u64(LISTS_TRUSTED)?.bool(true)?;
    }
    Ok(())
}

/// What the snapshot in `bytes` says of itself, of any kind and with any features.
pub fn unpack_head(bytes: &[u8]) -> Result<SnapshotHead, FormatError> {
    use snapshot_key::*;
    let mut head = SnapshotHead::default();
    decode_whole(bytes, |cbor, key| {
        match key {
            KIND => head.kind = cbor.u64()?,
            STARTED => head.started = Timestamp(cbor.i64()?),
            SEQUENCE => head.sequence = cbor.u64()?,
            DOMAIN => head.domain = cbor.str()?.to_owned(),
            REQUIRED => head.required = decode_array(cbor, |cbor| cbor.u64())?,
            _ => cbor.skip()?,
        }
        Ok(())
    })?;
    Ok(head)
}

/// The snapshot of this identifier in `bytes`.
///
/// # Errors
///
/// [`FormatError::Unknown`] for one of another kind, or with a feature that a reader must know.
pub fn unpack_snapshot(id: SnapshotId, bytes: &[u8]) -> Result<Snapshot, FormatError> {
    let head = unpack_head(bytes)?;
    if head.kind != SNAPSHOT_OF_FILE_TREE {
        return Err(FormatError::Unknown { what: "kind", number: head.kind });
    }
    if let Some(number) = head.required.iter().find(|number| **number != RECIPES_OF_PLACES) {
        return Err(FormatError::Unknown { what: "required feature", number: *number });
    }
    let mut unpacked =
        Unpacked { snapshot: Snapshot::empty(id), root: None, referring: Vec::new() };
    decode_whole(bytes, |cbor, key| unpacked.field(cbor, key))?;
    unpacked.finish()
}

/// Reads the map that is all of these bytes.
fn decode_whole<'b>(
    bytes: &'b [u8],
    field: impl FnMut(&mut Decoder<'b>, u64) -> Result<(), CborError>,
) -> Result<(), FormatError> {
    let mut cbor = Decoder::new(bytes);
    decode_map(&mut cbor, field).map_err(|error| FormatError::damaged("snapshot", error))?;
    if cbor.position() < bytes.len() {
        return Err(FormatError::damaged("snapshot", "bytes are left over"));
    }
    Ok(())
}

/// A snapshot on the way.
struct Unpacked<'b> {
    snapshot: Snapshot,
    root: Option<PackedRecipe<'b>>,
    /// Features whose references it has.
    referring: Vec<u64>,
}

impl<'b> Unpacked<'b> {
    fn field(&mut self, cbor: &mut Decoder<'b>, key: u64) -> Result<(), CborError> {
        use snapshot_key::*;
        let snapshot = &mut self.snapshot;
        match key {
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
            ROOT => self.root = Some(PackedRecipe::decode(cbor)?),
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
            FEATURES => snapshot.features = decode_array(cbor, |cbor| cbor.u64())?,
            SEEN => snapshot.seen = cbor.u64()?,
            ORIGIN => {
                expect_array(cbor, 3)?;
                snapshot.origin = Some(Origin {
                    program: cbor.str()?.to_owned(),
                    repository: cbor.str()?.to_owned(),
                    snapshot: cbor.str()?.to_owned(),
                });
            }
            GUARANTEE => {
                expect_array(cbor, 3)?;
                let (promise, method) = (cbor.u64()?, cbor.u64()?);
                snapshot.guarantee = Some(Guarantee { promise, method, turn: cbor.u64()? });
            }
            MISSING => {
                let paths = decode_array(cbor, |cbor| Ok(cbor.bytes()?.to_vec()))?;
                snapshot.missing = paths.into_iter().map(|path| (path, Vec::new())).collect();
            }
            MISSING_NAMES => {
                let name = |cbor: &mut Decoder<'_>| Ok(cbor.bytes()?.to_vec());
                let all = decode_array(cbor, |cbor| decode_array(cbor, name))?;
                snapshot.missing.values_mut().zip(all).for_each(|(names, all)| *names = all);
            }
            LISTS_TRUSTED => snapshot.lists_trusted = cbor.bool()?,
            key => {
                let of_key = REFERENCES_OF_FEATURES.iter().filter(|(other, _)| *other == key);
                self.referring.extend(of_key.map(|(_, feature)| feature));
                cbor.skip()?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Snapshot, FormatError> {
        let Self { mut snapshot, root, referring } = self;
        let damaged = |detail: &str| FormatError::damaged("snapshot", detail);
        if !referring.iter().all(|feature| snapshot.features.contains(feature)) {
            return Err(damaged("references without the feature that announces them"));
        }
        let mut recipe = Recipe::default();
        root.ok_or_else(|| damaged("it has no root"))?.unpack_to(&mut recipe)?;
        snapshot.root = recipe;
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests;
