//! What a newer program made: it is reported, checked and repaired like everything else, and never
//! taken for damage.

use strongroom_arena::envelope::format::{Header, ObjectKind};
use strongroom_arena::envelope::{self, HEADROOM, Identity};
use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaSeed, BlockDraft, BlockSealer, CompressionLevel, Finishing,
    Origin, Redundancy, StoredChunk, SummarySlot,
};
use strongroom_backend::{Backend, ObjectName, read_all};
use strongroom_base::keys::authenticate;
use strongroom_base::{Cancel, Location, SeededEntropy, Silent, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_catalog::format::pack_snapshot;
use strongroom_repository::{
    ErrorKind, Repository, Session, SnapshotName, end_session, find_snapshot, list_snapshots,
    snapshot_object,
};
use strongroom_testkit::damage::names_in;
use strongroom_upkeep::{
    Fault, PruneOptions, VerifyDepth, forget, plan_repair, prune, repair, repair_objects, verify,
};

use crate::world::World;

type Change = fn(&mut Header);

const CHANGES: [(&str, Change); 2] = [
    ("an unknown kind", |header| header.kind = ObjectKind::Unknown(200)),
    ("an unknown feature", |header| header.required_features = 1),
];

/// Makes an object one that a newer program made.
fn renew(backend: &dyn Backend, name: &ObjectName, change: Change) -> Vec<u8> {
    let mut object = read_all(backend, name).unwrap();
    let mut header = envelope::peek(&object).unwrap();
    let trailer = header.layout().trailer;
    change(&mut header);
    object[..HEADROOM].copy_from_slice(&header.pack());
    object[trailer..].copy_from_slice(&header.pack());
    backend.replace(name, &object).unwrap();
    object
}

#[test]
fn what_a_newer_program_made_is_reported_and_is_no_damage() {
    for (what, change) in CHANGES {
        let world = World::new(900);
        let kept = world.backup();
        let newer = names_in(&world.objects.snapshot(), "snapshots").remove(0);
        renew(&*world.objects, &newer, change);
        world.mutate(1);
        let after = world.backup();
        assert_ne!(kept, after);
        let repository = world.open();
        let list = list_snapshots(&repository).unwrap();
        assert_eq!(list.snapshots.len(), 1, "{what}");
        assert!(list.unreadable.is_empty(), "{what}: {:?}", list.unreadable);
        assert!(list.newer[0].1.is_unknown(), "{what}: {:?}", list.newer);
        assert_eq!(list.not_collectable(), [kept.snapshot.id], "{what}");
        let outcome = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.is_sound(), "{what}: {:?}", outcome.faults);
        assert_eq!(outcome.faults, [(newer, Fault::Unknown)], "{what}");
    }
}

/// A snapshot as a newer program would make it: a map of ours, changed.
fn plant_snapshot(repository: &Repository, id: SnapshotId, map: &[u8]) -> ObjectName {
    let domain = &repository.write_keys().domain;
    let message = [&repository.config.id.0[..], &id.0, map].concat();
    let plain = [&domain.id.0[..], &authenticate(&domain.author_key, &message), map].concat();
    let (public_key, entropy) = (&repository.write_keys().public_key, SeededEntropy::new(9));
    let sealed = public_key.seal("strongroom v0 snapshot", &id.0, &plain, &entropy);
    let message = [&repository.config.id.0[..], &id.0, &7_u64.to_le_bytes()].concat();
    let claim = [domain.id.0.to_vec(), authenticate(&domain.session_key, &message).to_vec()];
    let (kind, origin) = (ObjectKind::Snapshot, Origin { session: id, sequence: 7 });
    let identity = Identity { kind, id: id.0, generation: 0, origin };
    let sealed = [claim.concat(), sealed].concat();
    let name = snapshot_object(id);
    repository.backend().create(&name, &envelope::seal_small(&sealed, identity)).unwrap();
    name
}

/// Kinds of snapshots that are reserved, and a feature that a reader must know: in the listing they
/// are unknown, and `latest`, the parent, a restore and the verification pass over them.
#[test]
fn engine_11_a_snapshot_of_a_newer_program_is_unknown_and_no_damage() {
    for kind in [0, 1, 2, 3, 9] {
        let world = World::new(902 + u64::from(kind));
        let first = world.backup().snapshot;
        let repository = world.open();
        let id = SnapshotId([kind + 1; 16]);
        let newer = Snapshot { id, sequence: 7, ..first.clone() };
        let mut map = pack_snapshot(&newer);
        map[2] = kind;
        if kind == 0 {
            map[0] += 1;
            map.extend([16, 0x81, 0x04]);
        }
        let name = plant_snapshot(&repository, id, &map);
        let list = list_snapshots(&repository).unwrap();
        assert_eq!((list.snapshots.len(), list.unreadable.len()), (1, 0), "{kind}");
        assert_eq!(list.newer[0].0, id, "{kind}");
        assert_eq!(list.newer[0].1.kind(), ErrorKind::Newer, "{kind}");
        assert_eq!(list.not_collectable(), [id], "{kind}");
        let latest = find_snapshot(&list.snapshots, &SnapshotName::Latest(0), b"", "latest");
        assert_eq!(latest.unwrap().id, first.id, "{kind}");
        for depth in [VerifyDepth::Structure, VerifyDepth::Data] {
            let outcome = verify(&repository, depth, &Silent, &Cancel::new()).unwrap();
            assert!(outcome.is_sound(), "{kind}: {:?}", outcome.faults);
            assert_eq!(outcome.faults, [(name.clone(), Fault::Unknown)], "{kind}");
        }
        let plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
        assert!(plan.steps.is_empty(), "{kind}: {:?}", plan.steps);
        world.mutate(1);
        let next = world.backup().snapshot;
        assert_eq!((next.parent, next.sequence), (Some(first.id), 8), "{kind}");
    }
}

#[test]
fn a_feature_that_a_reader_need_not_know_stops_only_a_collector() {
    let world = World::new(920);
    let first = world.backup().snapshot;
    let repository = world.open();
    assert_eq!(list_snapshots(&repository).unwrap().not_collectable(), []);
    let newer = Snapshot { id: SnapshotId([1; 16]), features: vec![2], sequence: 7, ..first };
    plant_snapshot(&repository, newer.id, &pack_snapshot(&newer));
    let list = list_snapshots(&repository).unwrap();
    assert_eq!((list.snapshots.len(), list.not_collectable()), (2, vec![newer.id]));
    world.assert_holds(&repository, newer.id, &world.image(), "what is known of it");
}

#[test]
fn what_a_newer_program_made_is_repaired_as_it_was() {
    for (what, change) in CHANGES {
        let world = World::new(901);
        world.backup();
        for folder in ["snapshots", "arenas"] {
            let name = names_in(&world.objects.snapshot(), folder).remove(0);
            let whole = renew(&*world.objects, &name, change);
            let mut damaged = whole.clone();
            damaged[HEADROOM + 9] ^= 1;
            world.objects.replace(&name, &damaged).unwrap();
            let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
            assert_eq!(plan.steps.len(), 1, "{what}, {folder}: {:?}", plan.steps);
            let outcome = repair_objects(&*world.objects, &plan, &Silent, &Cancel::new()).unwrap();
            assert_eq!((outcome.repaired, outcome.lost.len()), (1, 0), "{what}, {folder}");
            assert!(read_all(&*world.objects, &name).unwrap() == whole, "{what}, {folder}");
        }
    }
}

/// An older program that took such a delta for damage would rewrite the arena without it.
#[test]
fn engine_11_a_delta_of_a_new_kind_is_unknown_and_a_repair_keeps_it() {
    let world = World::new(930);
    let repository = world.open();
    let keys = repository.write_keys();
    let seed = ArenaSeed::draw(ArenaContent::Data, keys, &SeededEntropy::new(3));
    let base = Location { arena: seed.id, slot: 0 };
    let (whole, bases) = ([7; 900], [base]);
    let chunks = [
        StoredChunk::Whole(&whole),
        StoredChunk::Delta { instructions: &[99, 1, 2], bases: &bases, chunk_bytes: 900 },
    ];
    let mut draft = BlockDraft::new(0, 0);
    let named = |chunk| SummarySlot::of(keys.naming.data.fingerprint(&whole), chunk);
    let slots: Vec<SummarySlot> = chunks.iter().map(|chunk| named(*chunk)).collect();
    for chunk in chunks {
        draft.push(chunk);
    }
    let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    builder.push(&sealer.seal(draft, seed.id, &seed.key), slots);
    let (origin, redundancy) = (Origin::NONE, Redundancy::ARENA);
    let finishing = Finishing { generation: 0, origin, keys, redundancy, padding: None };
    let finished = builder.finish(finishing);
    let name = finished.name.object();
    world.objects.create(&name, finished.object()).unwrap();
    let before = world.objects.snapshot();
    let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert_eq!(verified.faults, [(name, Fault::Unknown)]);
    assert!(verified.is_sound());
    let plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
    let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.rescued, outcome.lost.len()), (0, 0));
    assert!(world.objects.snapshot() == before, "nothing was rewritten");
}

/// Folders that this program does not use: what is in them is checked and repaired, and left alone.
#[test]
fn objects_in_reserved_folders_are_unknown_and_repaired() {
    let world = World::new(931);
    world.backup();
    let session = names_in(&world.objects.snapshot(), "snapshots").remove(0);
    let object = renew(&*world.objects, &session, |header| header.kind = ObjectKind::Unknown(12));
    world.objects.remove(&session).unwrap();
    let mut damaged = object.clone();
    damaged[HEADROOM + 3] ^= 1;
    for name in ["manifests/cd", "fences/ef"] {
        let (folder, file) = name.split_once('/').unwrap();
        let name = ObjectName::new(folder, file);
        world.objects.create(&name, &object).unwrap();
        let repository = world.open();
        let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert_eq!(verified.faults, [(name.clone(), Fault::Unknown)]);
        assert!(verified.is_sound() && verified.strangers.is_empty(), "{name}");
        world.objects.replace(&name, &damaged).unwrap();
        let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
        repair_objects(&*world.objects, &plan, &Silent, &Cancel::new()).unwrap();
        assert!(read_all(&*world.objects, &name).unwrap() == object, "{name}");
        world.objects.remove(&name).unwrap();
    }
}

#[test]
fn a_repository_whose_mode_is_unknown_is_read_and_takes_no_name() {
    let world = World::new(904);
    let kept = world.backup();
    let image = world.image();
    let mut repository = world.open();
    repository.config.store = 9;
    let before = world.objects.snapshot();
    let id = kept.snapshot.id;
    world.assert_holds(&repository, id, &image, "it is read");
    let cancel = Cancel::new();
    let plan = plan_repair(&*world.objects, &Silent, &cancel).unwrap();
    let refused = [
        Session::begin(&repository, "host").map(|_| ()),
        forget(&repository, &[id]).map(|_| ()),
        end_session(&repository, id),
        prune(&repository, &PruneOptions::default(), &Silent, &cancel).map(|_| ()),
        repair(&repository, &plan, &Silent, &cancel).map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("mode of storing is number 9"), "{error}");
    }
    assert_eq!(world.objects.snapshot(), before);
}
