//! What is not believed: the answer to a commit, what the index forgot, and a summary's fingerprints.

use std::fs;
use std::sync::Arc;

use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaName, ArenaSeed, BlockDraft, BlockSealer, CacheLimits,
    CompressionLevel, Finishing, ListedArenas, Origin, Redundancy, StoredChunk, SummarySlot,
};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Location, SeededEntropy, Silent};
use strongroom_catalog::Snapshot;
use strongroom_engine::EngineError;
use strongroom_repository::{
    ChunkIndex, ErrorKind, InitOptions, Repository, RepositoryError, Session, Surroundings,
    end_session, list_snapshots, snapshot_object,
};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{
    CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, RefusingBackend, noise,
};
use strongroom_upkeep::{PruneOptions, forget, plan_repair, prune, repair};

use crate::verify::check_all;
use crate::withdrawn::left;
use crate::world::{ALL, PASSPHRASE, World, init_options, options, run};

fn sessions(objects: &MemoryBackend) -> usize {
    objects.list("sessions").unwrap().len()
}

fn commits() -> Calls {
    Calls::of(&[CallKind::Create]).within("snapshots")
}

/// Engine 6: an answer that was lost is no failure, and a call that failed once is tried again.
#[test]
fn a_commit_whose_answer_is_lost_is_a_commit() {
    let kinds = [FaultKind::LostAcknowledgement, FaultKind::Io, FaultKind::Late];
    for kind in kinds.into_iter().chain([FaultKind::FullAfterwards]) {
        let world = World::new(190);
        let plan = FaultPlan::hiccup(commits(), 0, kind);
        let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan));
        let repository = world.open_over(faulty.clone()).unwrap();
        let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
        faulty.land();
        world.assert_holds(&repository, outcome.snapshot.id, &world.image(), &format!("{kind:?}"));
        assert_eq!((faulty.fired(), sessions(&world.objects)), (1, 0), "{kind:?}");
    }
}

/// Engine 6: what may still become a snapshot keeps its session, or a collector would remove what
/// it needs.
#[test]
fn a_commit_of_unknown_outcome_keeps_its_session() {
    let world = World::new(191);
    let plan = FaultPlan::lasting(commits(), 0, FaultKind::Late);
    let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan));
    let repository = world.open_over(faulty.clone()).unwrap();
    let failure = run(&repository, &options(&world.tree()), &Silent).unwrap_err();
    assert!(
        matches!(failure, EngineError::Repository(RepositoryError::CommitUnknown { .. })),
        "{failure}"
    );
    assert_eq!(sessions(&world.objects), 1);
    faulty.land();
    let list = list_snapshots(&world.open()).unwrap();
    assert_eq!(list.snapshots.len(), 1, "it was on its way");
    world.assert_holds(&repository, list.snapshots[0].id, &world.image(), "landed");
    assert_eq!(sessions(&world.objects), 1);
}

/// Engine 6: a place that has no room for a snapshot has none of it. If its users had decided before that it
/// is to be there, anyone may put it there: its session stays.
#[test]
fn a_commit_without_room_has_failed_unless_it_was_decided() {
    for agreed in [false, true] {
        let world = World::empty(201);
        let init = InitOptions { agreed, ..init_options() };
        Repository::init(world.surroundings(), PASSPHRASE, &init).unwrap();
        world.write("file", b"content");
        let calls = Calls::of(&[CallKind::Create, CallKind::Replace]).within("snapshots");
        let plan = FaultPlan::lasting(calls, 0, FaultKind::NoSpace);
        let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan));
        let repository = world.open_over(faulty).unwrap();
        let failure = run(&repository, &options(&world.tree()), &Silent).unwrap_err();
        let session = world.objects.list("sessions").unwrap().pop();
        let Some(session) = session.filter(|_| agreed) else {
            assert_eq!(failure.kind(), ErrorKind::NoSpace, "{failure}");
            assert!(!agreed && sessions(&world.objects) == 0);
            continue;
        };
        assert!(
            matches!(failure, EngineError::Repository(RepositoryError::CommitUnknown { .. })),
            "{failure}"
        );
        let id = session.name.file().parse().unwrap();
        end_session(&world.open(), id).unwrap();
        world.assert_holds(&world.open(), id, &world.image(), "another has carried it out");
    }
}

#[test]
fn a_session_that_was_ended_from_outside_commits_nothing() {
    let world = World::new(192);
    let repository = world.open();
    let session = Session::begin(&repository, "host").unwrap();
    let name = snapshot_object(session.id);
    world.objects.create(&name, b"a tombstone").unwrap();
    let snapshot = Snapshot::empty(session.id);
    let failure = session.commit(&snapshot).unwrap_err();
    assert!(matches!(failure, RepositoryError::Fenced { .. }), "{failure}");
    assert_eq!(world.objects.snapshot()[&name], b"a tombstone");
    assert_eq!(sessions(&world.objects), 0);
}

/// Engine 5: the index forgets the one place that it knew of a chunk; another arena holds it too.
#[test]
fn engine_05_what_the_index_forgot_is_not_lost() {
    let mut world = World::new(193).with_cache();
    let before = world.objects.snapshot();
    let first = world.backup();
    // Another machine, which has a cache of its own, stores the same at the same time.
    let cache = world.cache.take();
    let other = Arc::new(MemoryBackend::from_snapshot(before));
    let repository = world.open_over(other.clone()).unwrap();
    let second = run(&repository, &options(&world.tree()), &Silent).unwrap();
    for (name, bytes) in other.snapshot() {
        world.objects.create(&name, &bytes).unwrap();
    }
    world.cache = cache;
    // The index learns of the other's arenas.
    world.backup();
    let theirs = names_in(&other.snapshot(), "arenas");
    for name in theirs.iter().filter(|name| is_of_data(name)) {
        world.objects.remove(name).unwrap();
    }
    let repository = world.open();
    for id in [first.snapshot.id, second.snapshot.id] {
        world.assert_holds(&repository, id, &world.image(), "from the other copy");
    }
    assert_eq!(check_all(&repository).affected, []);
}

fn is_of_data(name: &ObjectName) -> bool {
    ArenaContent::of(ArenaName::of(name).unwrap().id) == ArenaContent::Data
}

/// An arena that claims to hold this content and holds something else.
fn plant(world: &World, repository: &Repository, content: &[u8]) {
    let (name, object) = lying_arena(repository, content, 0);
    world.objects.create(&name, &object).unwrap();
}

/// An arena, in a generation, that claims to hold this content and holds something else.
fn lying_arena(repository: &Repository, content: &[u8], generation: u32) -> (ObjectName, Vec<u8>) {
    arena_of(repository, &[(content, &vec![0x11; content.len()])], generation)
}

/// An arena, in a generation, of chunks that it claims to hold, each with what it holds instead.
fn arena_of(
    repository: &Repository,
    chunks: &[(&[u8], &[u8])],
    generation: u32,
) -> (ObjectName, Vec<u8>) {
    let keys = repository.write_keys();
    let seed = ArenaSeed::draw(ArenaContent::Data, keys, &SeededEntropy::new(7));
    let mut draft = BlockDraft::new(0, 0);
    let mut slots = Vec::new();
    for (claimed, held) in chunks {
        draft.push(StoredChunk::Whole(held));
        let fingerprint = keys.naming.data.fingerprint(claimed);
        slots.push(SummarySlot::of(fingerprint, StoredChunk::Whole(held)));
    }
    let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    builder.push(&sealer.seal(draft, seed.id, &seed.key), slots);
    let finished = builder.finish(Finishing {
        generation,
        origin: Origin::NONE,
        keys,
        redundancy: Redundancy::ARENA,
        padding: None,
    });
    (finished.name.object(), finished.object().to_vec())
}

/// Engine 7: two copies of a repository rewrite an arena, each in its own way, into objects of one
/// name and size. A cache made from the one is no proof for the other.
#[test]
fn engine_07_a_rewritten_arena_of_another_copy_is_no_hit() {
    let world = World::new(196).with_cache();
    let repository = world.open();
    let (one, other) = ([0x77; 3000], [0x66; 3000]);
    let (name, object) = lying_arena(&repository, &one, 1);
    world.objects.create(&name, &object).unwrap();
    world.backup();
    let (_, of_other_copy) = lying_arena(&repository, &other, 1);
    assert_eq!(object.len(), of_other_copy.len());
    world.objects.replace(&name, &of_other_copy).unwrap();
    fs::write(world.tree().join("file"), one).unwrap();
    let id = world.backup().snapshot.id;
    world.assert_holds(&world.open(), id, &world.image(), "stored, not taken for known");
}

/// What `verify` has named, no backup builds upon: also if the medium gives nothing at all of an arena, and
/// the cache knows what was in it.
#[test]
fn kept_p_e1_an_arena_that_the_medium_refuses_is_stored_again_by_the_next_backup() {
    for (all, is_far) in [(true, false), (false, false), (true, true), (false, true)] {
        let world = World::new(196).with_cache().far(is_far);
        for file in 0..3 {
            fs::write(world.tree().join(format!("victim{file}")), [file; 3000]).unwrap();
        }
        world.backup();
        let place = Arc::new(RefusingBackend::new(world.objects.clone()));
        for name in names_in(&world.objects.snapshot(), "arenas") {
            let arena = ArenaName::of(&name).unwrap();
            if all || ArenaContent::of(arena.id) == ArenaContent::Data {
                place.refuse(&name, 0..u64::MAX);
            }
        }
        let place = world.seen(place);
        let repository = world.open_over(place.clone()).unwrap();
        let found = check_all(&repository);
        assert!(!found.faults.is_empty() && !found.is_sound(), "{found:?}");
        let again = run(&repository, &options(&world.tree()), &Silent).unwrap().snapshot.id;
        world.assert_holds(&world.open_over(place).unwrap(), again, &world.image(), "again");
    }
}

/// The blocks of the arenas of data are damaged where they are kept, beyond parity, and whole in what a
/// machine keeps near. Once that was found, the machine relies on nothing of it: neither for chunks, nor
/// for the bases of deltas.
#[test]
fn what_is_damaged_far_away_is_stored_again_though_it_is_whole_near() {
    for is_edited in [false, true] {
        let world = World::bare(198).with_cache().far(true);
        let mut content = noise(198, 300_000);
        world.write("victim", &content);
        world.backup();
        for name in names_in(&world.objects.snapshot(), "arenas").iter().filter(|it| is_of_data(it))
        {
            let mut object = world.objects.snapshot()[name].clone();
            let blocks = object.len() / 8;
            object[blocks..].fill(0x55);
            world.objects.replace(name, &object).unwrap();
        }
        let is_near = |name: &ObjectName| {
            let near = world.open().far_cache().unwrap().join("near");
            near.join(name.file()).exists()
        };
        let data = names_in(&world.objects.snapshot(), "arenas");
        let data: Vec<_> = data.iter().filter(|name| is_of_data(name)).collect();
        assert!(data.iter().all(|name| is_near(name)));
        assert!(!check_all(&world.open()).affected.is_empty());
        assert!(!data.iter().any(|name| is_near(name)), "what is bad there is dropped here");
        if is_edited {
            content[100_000] ^= 1;
            world.write("victim", &content);
        }
        let again = world.backup();
        let stored = again.written.stored_bytes;
        assert!(stored > 250_000, "what was lost is stored again: {:?}", again.written);
        world.assert_holds(&world.open(), again.snapshot.id, &world.image(), "again");
        let affected = check_all(&world.open()).affected;
        assert!(affected.iter().all(|lost| lost.snapshot != again.snapshot.id), "{affected:?}");
    }
}

/// An index that is made again is made of what the place has, not of what is kept near.
#[test]
fn what_is_kept_near_is_no_proof_that_the_place_has_it() {
    let world = World::new(200).with_cache().far(true);
    world.backup();
    fs::remove_dir_all(world.open().cache_folder().unwrap().join("index")).unwrap();
    let place = Arc::new(RefusingBackend::new(world.objects.clone()));
    for name in names_in(&world.objects.snapshot(), "arenas") {
        place.refuse(&name, 0..u64::MAX);
    }
    let repository = world.open_over(world.seen(place)).unwrap();
    let again = run(&repository, &options(&world.tree()), &Silent).unwrap();
    world.assert_holds(&repository, again.snapshot.id, &world.image(), "all is stored again");
}

/// What was found lost takes what rests on it with it: a verification that reads no block of a delta
/// does not find it, and the next backup stores that chunk again too.
#[test]
fn a_delta_of_what_was_withdrawn_is_stored_again() {
    for is_far in [false, true] {
        let world = World::bare(199).with_cache().far(is_far);
        let mut content = noise(199, 5000);
        world.write("victim", &content);
        world.backup();
        let first = names_in(&world.objects.snapshot(), "arenas");
        let base = first.iter().find(|name| is_of_data(name)).unwrap();
        content[100] ^= 1;
        world.write("victim", &content);
        assert_eq!(world.backup().written.deltas, 1, "of data");
        let repository = world.open();
        let mut index = ChunkIndex::open(repository.cache_folder().as_deref()).unwrap();
        let store = repository.arena_store(CacheLimits::default());
        index.refresh(repository.backend(), &store, &Silent, &Cancel::new()).unwrap();
        let arena = ArenaName::of(base).unwrap().id;
        index.withdraw(&[Location { arena, slot: 0 }]);
        index.flush(&Silent);
        drop(index);
        let again = world.backup();
        assert_eq!((again.files_unchanged, again.files_changed), (0, 1));
        assert_eq!(again.written.data_bytes, 5000, "{:?}", again.written);
        world.objects.remove(base).unwrap();
        world.assert_holds(&world.open(), again.snapshot.id, &world.image(), "without the base");
    }
}

/// Engine 2: a chunk that is not what its fingerprint says is found by `verify --data`, withdrawn,
/// and stored again by the next backup, which heals the snapshots that name it.
#[test]
fn a_chunk_that_is_not_what_it_says_heals() {
    for (by_repair, is_far) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::new(195).with_cache().far(is_far);
        let repository = world.open();
        let content = [0x77; 3000];
        fs::write(world.tree().join("victim"), content).unwrap();
        plant(&world, &repository, &content);
        let poisoned = world.backup().snapshot.id;
        let found = check_all(&repository);
        assert!(found.affected.iter().any(|lost| lost.path.ends_with("victim")), "{found:?}");
        if by_repair {
            fs::remove_dir_all(world.cache.as_ref().unwrap()).unwrap();
            let plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
            let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
            assert_eq!((outcome.rescued, outcome.lost.len()), (0, 1), "{outcome:?}");
        }
        let healing = world.backup().snapshot.id;
        let what = if by_repair { "repaired" } else { "withdrawn" };
        let image = world.image();
        world.assert_holds(&world.open(), poisoned, &image, what);
        assert!(check_all(&world.open()).affected.is_empty(), "{what}");
        if by_repair {
            let found = check_all(&world.open());
            assert!(found.faults.is_empty(), "what was left out is no damage: {found:?}");
            // Nothing but the first snapshot needs the chunk that was stored again.
            fs::write(world.tree().join("victim"), [0x78; 3000]).unwrap();
            world.backup();
            forget(&repository, &[healing]).unwrap();
            let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
            prune(&repository, &all, &Silent, &Cancel::new()).unwrap();
            world.assert_holds(&world.open(), poisoned, &image, "after a collection");
        }
    }
}

/// A rewriting opens blocks and compares no fingerprint: what was wrong before is wrong in the next generation.
#[test]
fn a_chunk_that_was_found_wrong_is_so_after_a_rewriting() {
    let world = World::bare(198).with_cache();
    let repository = world.open();
    let (victim, other, unneeded) = (noise(1, 3000), noise(2, 3000), noise(3, 3000));
    let mut flipped = victim.clone();
    flipped[1500] ^= 1;
    let chunks: [(&[u8], &[u8]); 3] =
        [(&victim, &flipped), (&other, &other), (&unneeded, &unneeded)];
    let (name, object) = arena_of(&repository, &chunks, 0);
    world.objects.create(&name, &object).unwrap();
    world.write("victim", &victim);
    world.write("other", &other);
    let first = world.backup();
    assert_eq!(first.written.data_chunks_new, 0, "all is believed to be there");
    assert!(!check_all(&repository).affected.is_empty());
    let second = world.backup();
    assert_eq!(second.written.data_chunks_new, 1, "it is stored again");
    // By another machine: the index here learns of it later.
    let surroundings = Surroundings { cache: None, ..world.surroundings() };
    let elsewhere = Repository::open(surroundings, PASSPHRASE).unwrap();
    let outcome = prune(&elsewhere, &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.carried.arenas_rewritten > 0, "{outcome:?}");
    // It is not forgotten if the next generation cannot be read at first.
    let before = world.objects.snapshot();
    let listed = ListedArenas::list(&*world.objects).unwrap();
    let next = listed.newest().map(|newest| newest.name).find(|name| name.generation > 0).unwrap();
    world.objects.replace(&next.object(), &vec![0; before[&next.object()].len()]).unwrap();
    // Who reads does not keep the index, and each leaves the same note.
    for _ in 0..8 {
        let mut index = ChunkIndex::open(repository.cache_folder().as_deref()).unwrap();
        let store = repository.arena_store(CacheLimits::default());
        index.refresh(repository.backend(), &store, &Silent, &Cancel::new()).unwrap();
    }
    let notes = left(&world);
    let lengths: Vec<u64> = notes.iter().map(|path| path.metadata().unwrap().len()).collect();
    assert_eq!(lengths, [28], "one note, of one place");
    world.write("meanwhile", b"while it cannot be read");
    let meanwhile = world.backup();
    world.objects.replace(&next.object(), &before[&next.object()]).unwrap();
    fs::rename(world.tree().join("victim"), world.tree().join("under another name")).unwrap();
    let third = world.backup();
    assert_eq!(third.written.data_chunks_new, 0, "the good one is known");
    let others = [first, second, meanwhile].map(|backup| backup.snapshot.id);
    forget(&repository, &others).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    world.assert_holds(&world.open(), third.snapshot.id, &world.image(), "the good one is named");
}

/// Engine 2: what a repair left out of an arena is still in its block, until the arena is rewritten. No
/// backup makes a delta of it: the file is stored again, and outlives the rewriting.
#[test]
fn what_a_repair_left_out_is_no_base() {
    for is_far in [false, true] {
        let world = World::bare(197).with_cache().far(is_far);
        let repository = world.open();
        let (victim, other, unneeded) = (noise(1, 3000), noise(2, 3000), noise(3, 3000));
        let mut flipped = victim.clone();
        flipped[1500] ^= 1;
        let chunks: [(&[u8], &[u8]); 3] =
            [(&victim, &flipped), (&other, &other), (&unneeded, &unneeded)];
        let (name, object) = arena_of(&repository, &chunks, 0);
        world.objects.create(&name, &object).unwrap();
        world.write("victim", &victim);
        world.write("other", &other);
        assert_eq!(world.backup().written.data_chunks_new, 0, "all is believed to be there");
        let plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
        let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.rescued, 1, "{outcome:?}");
        let again = world.backup();
        assert_eq!(again.written.data_chunks_new, 1, "it is stored again: {:?}", again.written);
        let outcome = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.carried.arenas_rewritten > 0, "{outcome:?}");
        world.assert_holds(&world.open(), again.snapshot.id, &world.image(), "after a rewriting");
    }
}
