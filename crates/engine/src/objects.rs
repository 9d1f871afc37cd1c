//! Every object of a repository, looked at without a key.
//!
//! An object's envelope tells by itself whether it is whole and whether it can be computed anew;
//! its name tells what it should be. Verify and repair both begin here.

use strongroom_arena::envelope::format::{HEADER_BYTES, Header, ObjectKind};
use strongroom_arena::envelope::{self, EnvelopeError, Inspection};
use strongroom_arena::{ARENAS_FOLDER, ArenaContent};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, read_all};
use strongroom_base::{ArenaId, SlotId, SnapshotId};

use crate::repository::{CONFIG, COPY, KEYS_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER};

/// Folders in the order in which they are looked at: small and vital ones first.
const FOLDERS: [&str; 5] = ["", KEYS_FOLDER, SNAPSHOTS_FOLDER, SESSIONS_FOLDER, ARENAS_FOLDER];

/// What an object's name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Of which kind.
    pub kind: ObjectKind,
    /// Which one; none where the name does not tell.
    pub id: Option<[u8; 16]>,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Damaged, and parity can undo it: so many shards, and whether the frame is damaged too.
    Repairable {
        /// Damaged shards.
        lost_shards: usize,
    },
    /// Damaged beyond what parity can undo.
    Beyond {
        /// What is wrong.
        why: String,
    },
    /// The object is whole, and some chunks in it are not what their fingerprints say.
    WrongChunks {
        /// How many.
        count: u64,
    },
    /// Whole, but of another name or kind: somebody swapped files.
    Swapped {
        /// The name that it should have.
        rightful: ObjectName,
    },
    /// Not there, though its copy is.
    Missing,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repairable { lost_shards: 0 } => {
                write!(f, "its frame is damaged; repair can undo it")
            }
            Self::Repairable { lost_shards: 1 } => {
                write!(f, "1 shard is damaged; parity can undo it")
            }
            Self::Repairable { lost_shards } => {
                write!(f, "{lost_shards} shards are damaged; parity can undo it")
            }
            Self::Beyond { why } => write!(f, "damaged beyond parity: {why}"),
            Self::WrongChunks { count } => {
                write!(f, "{count} of its chunks are not what their fingerprints say")
            }
            Self::Swapped { rightful } => {
                write!(f, "{rightful} stands in its place")
            }
            Self::Missing => write!(f, "missing; its copy is there"),
        }
    }
}

/// What the name of an object says it is; none for what is not ours.
pub fn expected(name: &ObjectName) -> Option<Expected> {
    let file = name.file().strip_suffix(COPY).unwrap_or(name.file());
    let (kind, id) = match name.folder() {
        "" if file == CONFIG => (ObjectKind::Config, None),
        KEYS_FOLDER => {
            let mut wide = [0; 16];
            wide[..SlotId::BYTES].copy_from_slice(&file.parse::<SlotId>().ok()?.0);
            (ObjectKind::KeySlot, Some(wide))
        }
        SNAPSHOTS_FOLDER => (ObjectKind::Snapshot, Some(file.parse::<SnapshotId>().ok()?.0)),
        SESSIONS_FOLDER => (ObjectKind::Session, Some(file.parse::<SnapshotId>().ok()?.0)),
        ARENAS_FOLDER => {
            let id = file.parse::<ArenaId>().ok()?;
            (ArenaContent::of(id).object_kind(), Some(id.0))
        }
        _ => return None,
    };
    Some(Expected { kind, id })
}

/// Every object whose name is one of ours, vital ones first.
pub fn list_objects(backend: &dyn Backend) -> Result<Vec<ObjectInfo>, BackendError> {
    let mut objects = Vec::new();
    for folder in FOLDERS {
        objects.extend(backend.list(folder)?);
    }
    objects.retain(|info| expected(&info.name).is_some());
    Ok(objects)
}

/// The second copy of a small object, and the first of a copy.
pub fn twin(name: &ObjectName) -> Option<ObjectName> {
    let has_twin = match name.folder() {
        "" => name.file().starts_with(CONFIG),
        KEYS_FOLDER => true,
        _ => false,
    };
    has_twin.then(|| original_of(name).unwrap_or_else(|| copy_of(name)))
}

/// The name of an object's copy.
pub fn copy_of(name: &ObjectName) -> ObjectName {
    beside(name, &format!("{}{COPY}", name.file()))
}

/// The object that a copy is of; none for what is no copy.
pub fn original_of(name: &ObjectName) -> Option<ObjectName> {
    name.file().strip_suffix(COPY).map(|file| beside(name, file))
}

fn beside(name: &ObjectName, file: &str) -> ObjectName {
    match name.folder() {
        "" => ObjectName::top(file),
        folder => ObjectName::new(folder, file),
    }
}

/// Looks at every byte of an object. None where nothing is wrong.
pub fn look_whole(
    backend: &dyn Backend,
    name: &ObjectName,
) -> Result<(Vec<u8>, Option<Fault>), BackendError> {
    let object = read_all(backend, name)?;
    let fault = fault_of(name, envelope::inspect(&object));
    Ok((object, fault))
}

/// Looks at the ends of an object alone: its header, its trailer, its length.
pub fn look_at_ends(
    backend: &dyn Backend,
    info: &ObjectInfo,
) -> Result<Option<Fault>, BackendError> {
    let start = backend.read(&info.name, 0, HEADER_BYTES)?;
    let end =
        backend.read(&info.name, info.bytes.saturating_sub(HEADER_BYTES as u64), HEADER_BYTES)?;
    let sound = start == end
        && Header::unpack(&start).is_ok_and(|header| {
            let fits = header.layout().object_bytes as u64 == info.bytes;
            fits && is_as_named(&info.name, &header)
        });
    if sound { Ok(None) } else { look_whole(backend, &info.name).map(|(_, fault)| fault) }
}

fn is_as_named(name: &ObjectName, header: &Header) -> bool {
    expected(name).is_some_and(|expected| {
        expected.kind == header.kind && expected.id.is_none_or(|id| id == header.id)
    })
}

/// The name that an object should have, by its header.
fn rightful_name(header: &Header) -> ObjectName {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let id = hex(&header.id);
    match header.kind {
        ObjectKind::Config => ObjectName::top(CONFIG),
        ObjectKind::KeySlot => ObjectName::new(KEYS_FOLDER, hex(&header.id[..SlotId::BYTES])),
        ObjectKind::DataArena | ObjectKind::MetadataArena => ObjectName::new(ARENAS_FOLDER, id),
        ObjectKind::Snapshot => ObjectName::new(SNAPSHOTS_FOLDER, id),
        ObjectKind::Session => ObjectName::new(SESSIONS_FOLDER, id),
    }
}

fn fault_of(name: &ObjectName, inspected: Result<Inspection, EnvelopeError>) -> Option<Fault> {
    let inspection = match inspected {
        Ok(inspection) => inspection,
        Err(error) => return Some(Fault::Beyond { why: error.to_string() }),
    };
    if !is_as_named(name, &inspection.header) {
        return Some(Fault::Swapped { rightful: rightful_name(&inspection.header) });
    }
    let lost_shards = inspection.lost_shards.len();
    match (inspection.is_whole(), inspection.is_repairable()) {
        (true, _) => None,
        (false, true) => Some(Fault::Repairable { lost_shards }),
        (false, false) => {
            let header = &inspection.header;
            let why = EnvelopeError::BeyondRepair {
                lost: lost_shards,
                shards: header.shards(),
                parity: header.parity_shards as usize,
            };
            Some(Fault::Beyond { why: why.to_string() })
        }
    }
}
