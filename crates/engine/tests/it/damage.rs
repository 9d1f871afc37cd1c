//! The damage matrix: action × damaged structure × change. The outcome is right data or a clear
//! error; never wrong data, never a panic.

use strongroom_arena::envelope::format::HEADER_BYTES;
use strongroom_arena::format::ArenaHead;
use strongroom_arena::{ArenaContent, ArenaName, envelope};
use strongroom_backend::ObjectName;
use strongroom_base::{Silent, SnapshotId};
use strongroom_repository::{Repository, RepositoryError, Session, list_snapshots, session_object};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{Change, Image};

use crate::read_back::read_back;
use crate::world::{World, options, run};

/// A repository of two versions, and what each was.
pub struct Scene {
    pub world: World,
    pub base: Objects,
    pub kept: Vec<(SnapshotId, Image)>,
}

/// What can be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    Config,
    KeySlot,
    Snapshot,
    Session,
    DataArena,
    MetadataArena,
}

impl Structure {
    pub const ALL: [Self; 6] = [
        Self::Config,
        Self::KeySlot,
        Self::Snapshot,
        Self::Session,
        Self::DataArena,
        Self::MetadataArena,
    ];

    /// The objects of that kind that a test damages: a few of many.
    pub fn objects(self, base: &Objects) -> Vec<ObjectName> {
        let arenas = |content| {
            let mut names = names_in(base, "arenas");
            names.retain(|name| ArenaContent::of(ArenaName::of(name).unwrap().id) == content);
            names.truncate(2);
            names
        };
        match self {
            Self::Config => vec![ObjectName::top("config")],
            Self::KeySlot => names_in(base, "keys")[..1].to_vec(),
            Self::Snapshot => names_in(base, "snapshots"),
            Self::Session => names_in(base, "sessions"),
            Self::DataArena => arenas(ArenaContent::Data),
            Self::MetadataArena => arenas(ArenaContent::Metadata),
        }
    }
}

/// Wipes all before the blocks of an arena, and its parity; the head behind the blocks stays. Returns whether
/// there was something to wipe.
pub fn wipe_front(object: &mut [u8]) -> bool {
    let Ok(header) = envelope::peek(object) else { return false };
    let layout = header.layout();
    let Ok(head) = ArenaHead::unpack(&object[HEADER_BYTES..]) else { return false };
    let first_block = head.blocks_start() as usize;
    if layout.object_bytes != object.len() || first_block >= layout.first_table {
        return false;
    }
    object[HEADER_BYTES..first_block].fill(0);
    object[layout.parity..layout.second_table].fill(0);
    true
}

pub fn scene(seed: u64) -> Scene {
    let world = World::new(seed);
    let mut kept = Vec::new();
    for version in 0..2 {
        kept.push((world.backup().snapshot.id, world.image()));
        world.mutate(seed + version);
    }
    let mut base = world.objects.snapshot();
    // A writer died.
    let repository = world.open();
    let session = Session::begin(&repository, "host").unwrap();
    let name = session_object(session.id);
    base.insert(name.clone(), world.objects.snapshot()[&name].clone());
    drop(session);
    Scene { world, base, kept }
}

/// Every damaged repository, one change to one object each.
pub fn each_damage(scene: &Scene, mut check: impl FnMut(Structure, &ObjectName, Change, &Objects)) {
    for structure in Structure::ALL {
        let names = structure.objects(&scene.base);
        assert!(!names.is_empty(), "{structure:?}");
        for name in names {
            for change in Change::ALL {
                let mut objects = scene.base.clone();
                if change.on_object(&mut objects, &name) {
                    check(structure, &name, change, &objects);
                }
            }
        }
    }
}

/// All that can be read is right; the rest is damage, and reported as damage.
#[track_caller]
pub fn check_readable(scene: &Scene, repository: &Repository, what: &str) -> usize {
    let mut whole = 0;
    let list = list_snapshots(repository).unwrap_or_else(|error| panic!("{what}: {error}"));
    for (id, image) in &scene.kept {
        match read_back(repository, *id, &scene.world.tree()) {
            Ok(kept) => {
                image.assert_same(&kept, what);
                whole += 1;
            }
            Err(error) if list.unreadable.iter().any(|(other, _)| other == id) => {
                assert!(error.is_damage(), "{what}: {error}");
            }
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {
                assert!(list.snapshots.iter().all(|snapshot| snapshot.id != *id), "{what}");
            }
            Err(error) => assert!(error.is_damage(), "{what}: {error}"),
        }
    }
    whole
}

/// Damage that parity can repair: every snapshot can still be read whole.
pub fn is_within_parity(change: Change) -> bool {
    matches!(change, Change::FlipBit(_) | Change::LastByte | Change::Appended)
}

#[test]
fn reading() {
    let scene = scene(110);
    let mut lost = 0;
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let repository =
            scene.world.open_objects(objects).unwrap_or_else(|error| panic!("{what}: {error}"));
        let whole = check_readable(&scene, &repository, &what);
        let harmless =
            matches!(structure, Structure::Config | Structure::KeySlot | Structure::Session);
        if harmless || is_within_parity(change) {
            assert_eq!(whole, scene.kept.len(), "{what}: nothing is lost by that");
        }
        lost += scene.kept.len() - whole;
    });
    assert!(lost > 0, "some damage is beyond parity");
}

#[test]
fn backing_up() {
    let scene = scene(111);
    let now = scene.world.image();
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let repository = scene.world.open_objects(objects).unwrap();
        let outcome = run(&repository, &options(&scene.world.tree()), &Silent)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        match read_back(&repository, outcome.snapshot.id, &scene.world.tree()) {
            Ok(kept) => now.assert_same(&kept, &what),
            // Damage behind a whole summary is found by verify, not by a backup.
            Err(error) => {
                assert!(error.is_damage(), "{what}: {error}");
                assert!(!is_within_parity(change), "{what}: {error}");
                let behind_summary = matches!(change, Change::Scratch(400, 300) | Change::Half);
                assert!(behind_summary, "{what}: {error}");
            }
        }
        check_readable(&scene, &repository, &what);
    });
}

/// Two arenas of the same kind change places, or an arena and a snapshot.
#[test]
fn objects_in_each_others_places() {
    let scene = scene(112);
    let names: Vec<ObjectName> = scene.base.keys().cloned().collect();
    for (place, one) in names.iter().enumerate() {
        for other in names.iter().skip(place + 1).step_by(3) {
            let mut objects = scene.base.clone();
            if !strongroom_testkit::damage::swap(&mut objects, one, other) {
                continue;
            }
            let what = format!("{one} and {other} swapped");
            let repository = scene.world.open_objects(&objects).unwrap();
            check_readable(&scene, &repository, &what);
        }
    }
}
