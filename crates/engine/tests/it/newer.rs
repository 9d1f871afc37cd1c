//! What a newer program made: it is reported, checked and repaired like everything else, and never
//! taken for damage.

use std::collections::BTreeSet;
use std::sync::Arc;

use strongroom_arena::envelope::format::{HEADER_BYTES, Header, ObjectKind};
use strongroom_arena::envelope::{self, HEADROOM, Identity, newness};
use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaSeed, BlockDraft, BlockSealer, CompressionLevel, Finishing,
    Origin, Redundancy, StoredChunk, SummarySlot,
};
use strongroom_backend::{Backend, MemoryBackend, ObjectName, read_all};
use strongroom_base::keys::authenticate;
use strongroom_base::{Cancel, Location, SeededEntropy, Silent, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_catalog::format::pack_snapshot;
use strongroom_repository::{
    ErrorKind, Hold, Repository, Session, SnapshotName, end_session, find_snapshot, list_snapshots,
    snapshot_object,
};
use strongroom_testkit::damage::names_in;
use strongroom_upkeep::{
    Fault, PruneOptions, VerifyDepth, forget, hold, plan_repair, prune, repair, repair_objects,
    verify, vouch,
};

use crate::domains::put_only;
use crate::world::{LAPTOP, World, options, run};

type Change = fn(&mut Header);

const CHANGES: [(&str, Change); 2] = [
    ("an unknown kind", |header| header.kind = ObjectKind::Unknown(200)),
    ("an unknown feature", |header| header.required_features = 1),
];

/// Makes an object one that a newer program made, which proves it.
fn renew(world: &World, name: &ObjectName, change: Change) -> Vec<u8> {
    let mut object = read_all(&*world.objects, name).unwrap();
    let mut header = envelope::peek(&object).unwrap();
    let trailer = header.layout().trailer;
    change(&mut header);
    let key = world.open().write_keys().naming.envelope_key;
    let proven = newness::with_proof(header.pack(), &key);
    object[..HEADROOM].copy_from_slice(&proven);
    object[trailer..].copy_from_slice(&proven);
    world.objects.replace(name, &object).unwrap();
    object
}

/// What a header can claim, by its bytes: a version, a kind, a feature.
const CLAIMS: [(usize, u8); 3] = [(8, 1), (10, 200), (71, 0x80)];

/// Which ends of an object are changed.
const ENDS: [[bool; 2]; 3] = [[true, false], [false, true], [true, true]];

/// The object as someone leaves it who has no key, and knows where a header has its checksum.
fn with_claim(object: &[u8], (place, value): (usize, u8), ends: [bool; 2]) -> Vec<u8> {
    let mut claiming = object.to_vec();
    for (start, _) in [0, object.len() - HEADER_BYTES].into_iter().zip(ends).filter(|it| it.1) {
        let header = &mut claiming[start..][..HEADER_BYTES];
        header[place] = value;
        let checksum = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
        header[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
    claiming
}

/// Kept 9: a bit in the header hid a snapshot without an error, stopped every prune, and lost files
/// that no repair brought back. It is now what damage of a header is, to every verb.
#[test]
fn kept_9_what_claims_to_be_newer_and_does_not_prove_it_is_what_it_was() {
    let world = World::new(940);
    let laptop = put_only(&world, "laptop", LAPTOP);
    run(&laptop, &options(&world.tree()), &Silent).unwrap();
    let gone = world.backup().snapshot.id;
    world.mutate(1);
    let kept = world.backup().snapshot.id;
    let image = world.image();
    let owner = world.open();
    let cancel = Cancel::new();
    let verified = verify(&owner, VerifyDepth::Data, &Silent, &cancel).unwrap();
    assert!(vouch(&owner, &verified).unwrap() > 0);
    hold(&owner, &[kept], &Hold { reason: "a remark".to_owned(), until: None }).unwrap();
    forget(&owner, &[gone]).unwrap();
    let sound = world.objects.snapshot();
    let (mut kinds, mut tried) = (BTreeSet::new(), 0);
    for (turn, (name, object)) in sound.iter().enumerate() {
        kinds.insert(name.folder().to_owned());
        for (claim, ends) in CLAIMS.iter().flat_map(|claim| ENDS.map(|ends| (*claim, ends))) {
            let what = format!("{name}: {claim:?} {ends:?}");
            let mut objects = sound.clone();
            objects.insert(name.clone(), with_claim(object, claim, ends));
            let memory = Arc::new(MemoryBackend::from_snapshot(objects));
            let open = || world.open_over(memory.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let repository = open();
            let list = list_snapshots(&repository).unwrap();
            assert_eq!((list.snapshots.len(), list.forgotten.len()), (2, 1), "{what}");
            assert!(list.newer.is_empty() && list.unreadable.is_empty(), "{what}");
            world.assert_holds(&repository, kept, &image, &what);
            let verified = verify(&repository, VerifyDepth::Data, &Silent, &cancel).unwrap();
            let fault = Fault::Repairable { lost_shards: 0 };
            assert_eq!(verified.faults, [(name.clone(), fault)], "{what}: it is named");
            // Every verb that changes something goes on, too; one of them now, for each object.
            if ends == [true, true] && claim == CLAIMS[turn % 3] {
                run(&repository, &options(&world.tree()), &Silent).unwrap();
                prune(&open(), &PruneOptions::default(), &Silent, &cancel)
                    .unwrap_or_else(|error| panic!("{what}: prune: {error}"));
                world.assert_holds(&open(), kept, &image, &what);
                tried += 1;
                continue;
            }
            let plan = plan_repair(repository.backend(), &Silent, &cancel).unwrap();
            let outcome = repair(&repository, &plan, &Silent, &cancel).unwrap();
            assert_eq!((outcome.repaired, outcome.lost.len()), (1, 0), "{what}");
            assert!(memory.snapshot() == sound, "{what}: as it was");
        }
    }
    let all = ["", "keys", "arenas", "snapshots", "vouchers", "remarks", "forgotten"];
    assert!(all.iter().all(|folder| kinds.contains(*folder)), "{kinds:?}");
    assert_eq!(tried, sound.len());
}

/// A program of tomorrow has rewritten the configuration, and not its copy: this one does not go by
/// that. The same without a proof is nothing.
#[test]
fn a_configuration_that_proves_to_be_newer_is_obeyed() {
    let world = World::new(941);
    world.backup();
    let (config, copy) = (ObjectName::top("config"), ObjectName::top("config.copy"));
    let sound = world.objects.snapshot();
    renew(&world, &config, |header| header.required_features = 1);
    let opened = world.open_over(world.objects.clone());
    assert_eq!(opened.err().map(|error| error.kind()), Some(ErrorKind::Newer));
    world.objects.replace(&config, &sound[&config]).unwrap();
    for name in [&config, &copy] {
        world.objects.replace(name, &with_claim(&sound[name], CLAIMS[0], [true, true])).unwrap();
        if name == &config {
            assert!(world.open_over(world.objects.clone()).is_ok(), "the other is read");
        }
    }
    let opened = world.open_over(world.objects.clone());
    assert!(opened.is_err(), "without any configuration there is no repository");
}

#[test]
fn what_a_newer_program_made_is_reported_and_is_no_damage() {
    for (what, change) in CHANGES {
        let world = World::new(900);
        let kept = world.backup();
        let newer = names_in(&world.objects.snapshot(), "snapshots").remove(0);
        renew(&world, &newer, change);
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
        // Keys ascend, and the one that is added is to be the last.
        let newer = Snapshot { id, sequence: 7, lists_trusted: false, ..first.clone() };
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
            let whole = renew(&world, &name, change);
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
    let object = renew(&world, &session, |header| header.kind = ObjectKind::Unknown(12));
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
