//! Every object of a repository, without a key.
//!
//! An object's envelope alone shows whether it is whole and whether it can be computed again; its
//! name says what it should be. Verify and repair both begin here.

use strongroom_arena::envelope::format::{Header, HeaderError, ObjectKind};
use strongroom_arena::envelope::{self, EnvelopeError, RawObject, read_object};
use strongroom_arena::{ARENAS_FOLDER, ArenaContent, ArenaName, object_bytes_max};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Soundness, judge_note};
use strongroom_base::{ArenaId, DomainId, SlotId, SnapshotId, VoucherId};

use crate::error::RepositoryError;
use crate::folders::{WithheldFolder, show};
pub use crate::names::{
    ARRIVALS_FOLDER, COLLECTIONS_FOLDER, COPY, ENDED_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER,
    SESSIONS_FOLDER, VOUCHERS_FOLDER, ending_name,
};
use crate::names::{Step, arrivals_name, arrivals_of, ending_of, numbered_name, numbered_of};

/// The folder of key slots.
pub const KEYS_FOLDER: &str = "keys";
/// The folder of snapshots.
pub const SNAPSHOTS_FOLDER: &str = "snapshots";
/// The configuration's object.
pub const CONFIG: &str = "config";
/// The folder of objects that a repair has moved aside, each named by its rightful name and the
/// hash of its body, so that their places can be filled. It is empty except while a repair is at
/// work, or after one was interrupted.
pub const ASIDE_FOLDER: &str = "aside";
/// An object that is not an arena is at most this long.
const SMALL_OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Folders in the order in which they are checked: small and vital ones first.
const FOLDERS: [&str; 11] = [
    "",
    KEYS_FOLDER,
    SNAPSHOTS_FOLDER,
    SESSIONS_FOLDER,
    VOUCHERS_FOLDER,
    COLLECTIONS_FOLDER,
    FORGOTTEN_FOLDER,
    REMARKS_FOLDER,
    ARRIVALS_FOLDER,
    ENDED_FOLDER,
    ARENAS_FOLDER,
];

/// Folders that this program does not use. A newer one may have written into them.
const RESERVED_FOLDERS: [&str; 2] = ["manifests", "fences"];

/// What an object should be, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Of which kind.
    pub kind: ObjectKind,
    /// Which one; `None` if the name does not say.
    pub id: Option<[u8; 16]>,
    /// How often it was rewritten.
    pub generation: u32,
}

/// Whether a name was drawn by chance, so that only one program creates it, and with the same bytes
/// each time. All others may be created by several at once, with different bytes.
pub fn is_drawn(name: &ObjectName) -> bool {
    match name.folder() {
        KEYS_FOLDER | SESSIONS_FOLDER | VOUCHERS_FOLDER | ASIDE_FOLDER => true,
        // Two collectors may rewrite one arena, each in its own way.
        ARENAS_FOLDER => {
            name.file().parse::<ArenaName>().is_ok_and(|arena: ArenaName| arena.generation == 0)
        }
        _ => false,
    }
}

/// What an object should be, by its name; `None` if the name is not one of ours. Only the
/// configuration, key slots, ends of domains, plans and verdicts have copies.
pub fn expected(name: &ObjectName) -> Option<Expected> {
    let file = match name.folder() {
        "" | KEYS_FOLDER => name.file().strip_suffix(COPY).unwrap_or(name.file()),
        _ => name.file(),
    };
    let (kind, id) = match name.folder() {
        "" if file == CONFIG => (ObjectKind::Config, None),
        KEYS_FOLDER => (ObjectKind::KeySlot, Some(slot_object_id(file.parse::<SlotId>().ok()?))),
        SNAPSHOTS_FOLDER => (ObjectKind::Snapshot, Some(file.parse::<SnapshotId>().ok()?.0)),
        SESSIONS_FOLDER => (ObjectKind::Session, Some(file.parse::<SnapshotId>().ok()?.0)),
        COLLECTIONS_FOLDER => {
            let (number, step, _) = Step::or_copy_of(file)?;
            (step.kind(), Some(number_object_id(number)))
        }
        FORGOTTEN_FOLDER => return numbered(ObjectKind::Wish, file),
        REMARKS_FOLDER => return numbered(ObjectKind::Remark, file),
        ARRIVALS_FOLDER => (ObjectKind::Look, Some(number_object_id(arrivals_of(file)?))),
        ENDED_FOLDER => {
            let (domain, generation) = ending_of(file)?;
            return Some(Expected { kind: ObjectKind::Ending, id: Some(domain.0), generation });
        }
        VOUCHERS_FOLDER => (ObjectKind::Vouchers, Some(file.parse::<VoucherId>().ok()?.0)),
        ARENAS_FOLDER => {
            let ArenaName { id, generation } = file.parse().ok()?;
            let kind = ArenaContent::of(id).object_kind();
            return Some(Expected { kind, id: Some(id.0), generation });
        }
        _ => return None,
    };
    Some(Expected { kind, id, generation: 0 })
}

/// A wish or a remark: its number is its generation.
fn numbered(kind: ObjectKind, file: &str) -> Option<Expected> {
    let (snapshot, generation) = numbered_of(file)?;
    Some(Expected { kind, id: Some(snapshot.0), generation })
}

/// Every object whose name is one of ours, vital ones first; those of reserved folders last.
pub fn list_objects(backend: &dyn Backend) -> Result<Vec<ObjectInfo>, BackendError> {
    let mut objects = Vec::new();
    for folder in FOLDERS {
        objects.extend(backend.list(folder)?);
    }
    objects.retain(|info| expected(&info.name).is_some());
    // What is in these is checked and repaired by its envelope, and left alone.
    for folder in RESERVED_FOLDERS {
        objects.extend(backend.list(folder)?);
    }
    Ok(objects)
}

/// The same as far as the place shows them, and the folders that it withholds.
pub fn list_shown(
    backend: &dyn Backend,
) -> Result<(Vec<ObjectInfo>, Vec<WithheldFolder>), BackendError> {
    let (mut objects, mut withheld) = (Vec::new(), Vec::new());
    for folder in FOLDERS.into_iter().chain(RESERVED_FOLDERS) {
        let mut shown = show(backend, folder)?;
        if FOLDERS.contains(&folder) {
            shown.objects.retain(|info| expected(&info.name).is_some());
        }
        objects.append(&mut shown.objects);
        withheld.extend(shown.withheld);
    }
    Ok((objects, withheld))
}

/// Everything in the repository's folders that is none of its objects: no verb reads it, and none
/// removes it.
pub fn list_strangers(backend: &dyn Backend) -> Result<Vec<ObjectName>, BackendError> {
    let mut strangers = Vec::new();
    for folder in FOLDERS {
        let names = show(backend, folder)?.objects.into_iter().map(|info| info.name);
        strangers.extend(names.filter(|name| expected(name).is_none()));
    }
    Ok(strangers)
}

/// Reads an object whole, as far as the medium can read it, and within the bound of its kind.
pub fn read_whole(
    backend: &dyn Backend,
    name: &ObjectName,
    arena_bytes: u32,
) -> Result<RawObject, BackendError> {
    read_here_or_there(backend, name, bytes_max_of(name, arena_bytes))
}

/// Reads an object whole; if it is lost here, or damaged beyond its parity, as replicas give it.
fn read_here_or_there(
    backend: &dyn Backend,
    name: &ObjectName,
    bytes_max: u64,
) -> Result<RawObject, BackendError> {
    let here = read_object(backend, name, bytes_max);
    if backend.replicas().is_empty() {
        return here;
    }
    let is_wanted = |header: &Header| is_as_named(name, header);
    let damaged = match &here {
        Ok(object) => match envelope::inspect(&object.bytes) {
            Ok(found) if found.is_repairable() && is_wanted(&found.header) => return here,
            _ => &object.bytes[..],
        },
        Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => &[],
        Err(_) => return here,
    };
    for replica in backend.replicas() {
        // Another replica may answer.
        if let Ok(Some(fetched)) =
            envelope::fetch_from(&**replica, name, damaged, &is_wanted, bytes_max)
        {
            return Ok(RawObject { bytes: fetched.object, ..RawObject::default() });
        }
    }
    here
}

/// The most bytes that an object of such a name can have.
pub fn bytes_max_of(name: &ObjectName, arena_bytes: u32) -> u64 {
    match name.folder() {
        ARENAS_FOLDER | ASIDE_FOLDER => object_bytes_max(arena_bytes),
        _ => SMALL_OBJECT_BYTES_MAX,
    }
}

/// The second copy of a small object, and the first of a copy.
pub fn twin(name: &ObjectName) -> Option<ObjectName> {
    let has_twin = match name.folder() {
        "" => name.file().starts_with(CONFIG),
        KEYS_FOLDER | ENDED_FOLDER => true,
        COLLECTIONS_FOLDER => {
            Step::or_copy_of(name.file()).is_some_and(|(_, step, _)| step.has_copy())
        }
        _ => false,
    };
    has_twin.then(|| original_of(name).unwrap_or_else(|| copy_of(name)))
}

/// Whether an object is missed if its twin is there. The copy of a plan or a verdict is not: programs
/// of before there were such copies made none, and one that stopped in between made none either.
pub fn is_missed(name: &ObjectName) -> bool {
    match name.folder() {
        COLLECTIONS_FOLDER => {
            matches!(Step::or_copy_of(name.file()), Some((_, Step::Verdict, false)))
        }
        _ => true,
    }
}

/// The name of an object's copy.
pub fn copy_of(name: &ObjectName) -> ObjectName {
    beside(name, &format!("{}{COPY}", name.file()))
}

/// The object to which a copy belongs; `None` if the name is not that of a copy.
pub fn original_of(name: &ObjectName) -> Option<ObjectName> {
    name.file().strip_suffix(COPY).map(|file| beside(name, file))
}

fn beside(name: &ObjectName, file: &str) -> ObjectName {
    match name.folder() {
        "" => ObjectName::top(file),
        folder => ObjectName::new(folder, file),
    }
}

/// Whether a header agrees with the object's name.
pub fn is_as_named(name: &ObjectName, header: &Header) -> bool {
    expected(name).is_some_and(|expected| {
        // The end of a session is in the place of its snapshot.
        let kinds = (expected.kind, header.kind);
        (expected.kind == header.kind || kinds == (ObjectKind::Snapshot, ObjectKind::Tombstone))
            && expected.id.is_none_or(|id| id == header.id)
            && expected.generation == header.generation
    })
}

/// How much of an object there is in the bytes under its name, as far as that can be said without a
/// key: of several copies, the best one is read and repaired from.
pub fn soundness(name: &ObjectName, bytes: &[u8]) -> Soundness {
    if let Some(of_note) = judge_note(name, bytes) {
        return of_note;
    }
    match envelope::inspect(bytes) {
        // What a newer program made may be right.
        Ok(found) if found.header.is_unknown() => Soundness::Repairable,
        Ok(found) if expected(name).is_some() && !is_as_named(name, &found.header) => {
            Soundness::Damaged
        }
        Ok(found) if found.is_whole() => Soundness::Whole,
        Ok(found) if found.is_repairable() => Soundness::Repairable,
        Err(EnvelopeError::Header(HeaderError::NewerVersion { .. })) => Soundness::Repairable,
        // Nothing can be said of what is none of ours.
        Err(EnvelopeError::Header(HeaderError::NotAnObject)) if !has_envelope(name) => {
            Soundness::Repairable
        }
        Ok(_) | Err(_) => Soundness::Damaged,
    }
}

/// Whether only an object with an envelope has such a name.
fn has_envelope(name: &ObjectName) -> bool {
    expected(name).is_some() || name.folder() == ASIDE_FOLDER
}

/// The name that an object should have, by its header; `None` if its kind is unknown.
pub fn rightful_name(header: &Header) -> Option<ObjectName> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let id = hex(&header.id);
    Some(match header.kind {
        ObjectKind::Unknown(_) => return None,
        ObjectKind::Config => ObjectName::top(CONFIG),
        ObjectKind::KeySlot => ObjectName::new(KEYS_FOLDER, hex(&header.id[..SlotId::BYTES])),
        ObjectKind::DataArena | ObjectKind::MetadataArena => {
            ArenaName { id: ArenaId(header.id), generation: header.generation }.object()
        }
        ObjectKind::Snapshot | ObjectKind::Tombstone => ObjectName::new(SNAPSHOTS_FOLDER, id),
        ObjectKind::Session => ObjectName::new(SESSIONS_FOLDER, id),
        ObjectKind::Vouchers => ObjectName::new(VOUCHERS_FOLDER, id),
        ObjectKind::Wish => {
            numbered_name(FORGOTTEN_FOLDER, SnapshotId(header.id), header.generation)
        }
        ObjectKind::Remark => {
            numbered_name(REMARKS_FOLDER, SnapshotId(header.id), header.generation)
        }
        ObjectKind::Look => arrivals_name(number_of(&header.id)),
        ObjectKind::Ending => ending_name(DomainId(header.id), header.generation),
        ObjectKind::Plan => Step::Plan.object(number_of(&header.id)),
        ObjectKind::Verdict => Step::Verdict.object(number_of(&header.id)),
        ObjectKind::Done => Step::Done.object(number_of(&header.id)),
    })
}

/// The object of a session.
pub(crate) fn session_name(id: SnapshotId) -> ObjectName {
    ObjectName::new(SESSIONS_FOLDER, id)
}

/// The object of a snapshot.
pub(crate) fn snapshot_name(id: SnapshotId) -> ObjectName {
    ObjectName::new(SNAPSHOTS_FOLDER, id)
}

/// The two objects of a key slot.
pub fn slot_names(id: SlotId) -> [ObjectName; 2] {
    [ObjectName::new(KEYS_FOLDER, id), ObjectName::new(KEYS_FOLDER, format!("{id}{COPY}"))]
}

/// The identifier in the envelope of a key slot.
pub(crate) fn slot_object_id(id: SlotId) -> [u8; 16] {
    let mut wide = [0; 16];
    wide[..SlotId::BYTES].copy_from_slice(&id.0);
    wide
}

/// The identifier in the envelope of an object that is named by a number.
fn number_object_id(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

/// The number of an identifier.
fn number_of(id: &[u8; 16]) -> u64 {
    u128::from_le_bytes(*id) as u64
}

/// The body of a small object, computed again from parity if it is damaged.
pub fn read_small(
    backend: &dyn Backend,
    name: &ObjectName,
    kind: ObjectKind,
    id: Option<&[u8; 16]>,
) -> Result<Vec<u8>, RepositoryError> {
    let object = read_here_or_there(backend, name, SMALL_OBJECT_BYTES_MAX)?;
    match envelope::open(&object.bytes, kind, id) {
        Ok((_, body, _)) => Ok(body),
        // Something else entirely is in the place of a repository's configuration.
        Err(EnvelopeError::Header(HeaderError::NotAnObject)) if kind == ObjectKind::Config => {
            Err(RepositoryError::NotARepository { place: backend.describe() })
        }
        Err(source) => Err(RepositoryError::Object { name: name.clone(), source }),
    }
}

#[cfg(test)]
mod tests {
    use strongroom_arena::Origin;
    use strongroom_arena::envelope::Identity;

    use super::*;

    #[test]
    fn of_several_copies_the_whole_one_is_known() {
        let id = SnapshotId([7; 16]);
        let identity =
            Identity { kind: ObjectKind::Snapshot, id: id.0, generation: 0, origin: Origin::NONE };
        let whole = envelope::seal_small(&[5; 300], identity);
        let mut flipped = whole.clone();
        flipped[200] ^= 1;
        let name = snapshot_name(id);
        for (bytes, expected) in [
            (&whole[..], Soundness::Whole),
            (&flipped, Soundness::Repairable),
            (&whole[..whole.len() - 1], Soundness::Repairable),
            (&whole[..100], Soundness::Damaged),
            (&vec![0; whole.len()], Soundness::Damaged),
            (&[], Soundness::Damaged),
        ] {
            assert_eq!(soundness(&name, bytes), expected, "{} bytes", bytes.len());
        }
        assert_eq!(soundness(&snapshot_name(SnapshotId([8; 16])), &whole), Soundness::Damaged);
        // Nothing is known of what others put there.
        assert_eq!(soundness(&ObjectName::top("letter"), b"dear"), Soundness::Repairable);
        let note = ObjectName::new("agreed-07", "top.config.00000001-0123456789abcdef.2");
        assert_eq!(soundness(&note, &[]), Soundness::Damaged);
        let draft = vec![5; 20_000];
        let hash = blake3::hash(&draft).to_hex();
        let name = ObjectName::new("agreed-07", format!("top.config.{}.draft", &hash[..32]));
        assert_eq!(soundness(&name, &draft), Soundness::Whole);
        assert_eq!(soundness(&name, &draft[1..]), Soundness::Damaged);
    }
}
