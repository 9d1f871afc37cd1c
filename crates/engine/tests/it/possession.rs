//! Whose an arena is, and who may name what is in it: the attacks of a thief who has one put-only key,
//! and may create objects.

use std::time::Duration;

use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaName, ArenaSeed, BlockDraft, BlockSealer, CacheLimits,
    CompressionLevel, Finishing, ListedArenas, Origin, StoredChunk, SummarySlot,
};
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Cancel, Entropy, Location, Silent, SnapshotId};
use strongroom_catalog::{ChunkRef, Recipe, Snapshot};
use strongroom_engine::cat;
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{
    ArenaSlots, ChunkIndex, ChunkReader, Collections, Repository, RepositoryError, Session,
    read_snapshot, read_vouchers,
};
use strongroom_testkit::Image;
use strongroom_upkeep::{
    Fault, NewAccess, PruneOptions, VerifyDepth, add_key, forget, plan_repair, prune, repair,
    verify, vouch,
};

use crate::domains::put_only;
use crate::read_back::read_back;
use crate::world::{LAPTOP, World, options, run};

mod takeover;

const SERVER: &[u8] =
    b"strongroom-key-3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3cd814f45f";

/// Draws this name for an arena.
struct Chosen(ArenaId);

impl Entropy for Chosen {
    fn fill(&self, bytes: &mut [u8]) {
        match bytes.len() {
            ArenaId::BYTES => bytes.copy_from_slice(&self.0.0),
            _ => bytes.fill(0x5c),
        }
    }
}

/// Creates a generation of an arena with these chunks: honest, and of the thief's domain.
fn plant(thief: &Repository, name: ArenaName, chunks: &[StoredChunk<'_>], names: &[&[u8]]) {
    let keys = thief.write_keys();
    let content = ArenaContent::of(name.id);
    let seed = ArenaSeed::draw(content, keys, &Chosen(name.id));
    let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
    let mut draft = BlockDraft::new(0, 0);
    let mut slots = Vec::new();
    for (chunk, named) in chunks.iter().zip(names) {
        draft.push(*chunk);
        let fingerprint = content.fingerprinter(&keys.naming).fingerprint(named);
        slots.push(SummarySlot::of(fingerprint, *chunk));
    }
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    builder.push(&sealer.seal(draft, seed.id, &seed.key), slots);
    let finished = builder.finish(Finishing {
        generation: name.generation,
        origin: Origin::NONE,
        keys,
        redundancy: thief.redundancy(),
        padding: None,
    });
    thief.backend().create(&finished.name.object(), finished.object()).unwrap();
}

/// The same with a chunk of the thief's own.
pub fn plant_honest(thief: &Repository, name: ArenaName) {
    let chunk = [0x77_u8; 1000];
    plant(thief, name, &[StoredChunk::Whole(&chunk)], &[&chunk]);
}

/// The arenas that exist, each in its greatest generation.
fn arenas(world: &World) -> Vec<ArenaName> {
    let listed = ListedArenas::list(&*world.objects).unwrap();
    listed.newest().map(|newest| newest.name).collect()
}

fn prune_all(world: &World) -> strongroom_upkeep::PruneOutcome {
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(&world.open(), &all, &Silent, &Cancel::new()).unwrap()
}

fn mend(world: &World) -> strongroom_upkeep::RepairOutcome {
    let owner = world.open();
    let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
    repair(&owner, &plan, &Silent, &Cancel::new()).unwrap()
}

/// A machine that can only store, with two versions of its files, the second of which has deltas.
struct Victim {
    world: World,
    thief: Repository,
    server: Repository,
    first: SnapshotId,
    second: (SnapshotId, Image),
    /// What the second has stored.
    of_second: Vec<ArenaName>,
}

impl Victim {
    fn new(seed: u64) -> Self {
        let world = World::new(seed).with_cache();
        let thief = put_only(&world, "laptop", LAPTOP);
        let server = put_only(&world, "server", SERVER);
        let first = run(&server, &options(&world.tree()), &Silent).unwrap().snapshot.id;
        let before = arenas(&world);
        world.mutate(seed);
        let second = run(&server, &options(&world.tree()), &Silent).unwrap();
        let mut of_second = arenas(&world);
        of_second.retain(|name| !before.contains(name));
        let second = (second.snapshot.id, world.image());
        Self { world, thief, server, first, second, of_second }
    }

    #[track_caller]
    fn assert_held(&self, when: &str) {
        self.world.assert_holds(&self.world.open(), self.second.0, &self.second.1, when);
    }
}

/// Kept 2.2, `genloss.sh`: an honest generation over a victim's arena, a nightly sample that vouches,
/// a forget and a prune. Each of twenty parts by itself, and then all of them.
#[test]
fn kept_h2_a_planted_generation_and_a_sample_lose_nothing() {
    let parts = (1..=20).map(Some).chain([None]);
    for part in parts {
        let victim = Victim::new(5200);
        let world = &victim.world;
        for name in &victim.of_second {
            plant_honest(&victim.thief, name.next().unwrap());
        }
        for turn in part.map_or(0..20, |part| part..part + 1) {
            let depth = VerifyDepth::Sample { percent: 5, turn };
            let owner = world.open();
            let verified = verify(&owner, depth, &Silent, &Cancel::new()).unwrap();
            assert!(!verified.is_sound(), "what is planted is named");
            vouch(&owner, &verified).unwrap();
        }
        let vouched = read_vouchers(&world.open()).unwrap();
        let is_planted = |id: &ArenaId| victim.of_second.iter().any(|name| name.id == *id);
        assert!(vouched.iter().all(|voucher| !is_planted(&voucher.arena)));
        forget(&world.open(), &[victim.first]).unwrap();
        prune_all(world);
        victim.assert_held("after the prune");
        mend(world);
        prune_all(world);
        victim.assert_held("after a repair and another prune");
    }
}

/// Kept 2.6: planted generations are named, do not stop a prune, and a repair takes them away.
#[test]
fn kept_h6_a_planted_generation_stops_no_prune_and_is_taken_away() {
    for generation in [1, 7, u32::MAX] {
        let victim = Victim::new(5201);
        let world = &victim.world;
        let all = arenas(world);
        for name in &all {
            plant_honest(&victim.thief, ArenaName { generation, ..*name });
        }
        let owner = world.open();
        let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        let planted = |(_, fault): &&_| *fault == Fault::Planted;
        assert_eq!(verified.faults.iter().filter(planted).count(), all.len());
        assert_eq!(vouch(&owner, &verified).unwrap(), 0, "for none of an arena, or for all");
        forget(&owner, &[victim.first]).unwrap();
        prune_all(world);
        victim.assert_held("after a prune");
        assert_eq!(mend(world).taken_away, all.len() as u64);
        let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(verified.is_sound(), "{:?}", verified.faults);
        // What the first prune left is removed by the next that has a reason.
        world.mutate(1);
        world.backup();
        let own = world.backup().snapshot.id;
        forget(&owner, &[own]).unwrap();
        let outcome = prune_all(world);
        assert!(outcome.carried.arenas_rewritten + outcome.carried.arenas_removed > 0);
        victim.assert_held("after all");
    }
}

/// Kept 2.6: rubbish under the name of the next generation.
#[test]
fn kept_h6_rubbish_as_the_next_generation_stops_no_prune_and_is_taken_away() {
    let victim = Victim::new(5202);
    let world = &victim.world;
    let all = arenas(world);
    for name in &all {
        world.objects.create(&name.next().unwrap().object(), &[0x33; 500]).unwrap();
    }
    let owner = world.open();
    let verified = verify(&owner, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
    assert_eq!(verified.faults.len(), all.len());
    forget(&owner, &[victim.first]).unwrap();
    prune_all(world);
    victim.assert_held("after a prune");
    let mended = mend(world);
    assert!(mended.lost.is_empty() && mended.taken_away > 0, "{mended:?}");
    victim.assert_held("after a repair");
    let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.faults);
}

/// A generation that the owner has made says of which domain an arena is, also below and above it.
#[test]
fn kept_h2_what_the_owner_has_rewritten_stays_its_domain_s() {
    let victim = Victim::new(5203);
    let world = &victim.world;
    forget(&world.open(), &[victim.first]).unwrap();
    prune_all(world);
    victim.assert_held("after a prune");
    let rewritten = arenas(world).into_iter().filter(|name| name.generation > 0);
    let rewritten: Vec<_> = rewritten.collect();
    assert!(!rewritten.is_empty());
    for name in &rewritten {
        plant_honest(&victim.thief, ArenaName { generation: 0, ..*name });
        plant_honest(&victim.thief, name.next().unwrap());
    }
    victim.assert_held("planted below and above");
    prune_all(world);
    victim.assert_held("pruned");
    assert_eq!(mend(world).taken_away, 2 * rewritten.len() as u64);
    victim.assert_held("repaired");
    assert!(rewritten.iter().all(|name| arenas(world).contains(name)));
}

/// A version of before there were marks rewrote an arena and removed its first generation; a thief creates
/// a first one. Then the true one looks planted, and a snapshot names what is in it.
#[test]
fn kept_h6_a_repair_takes_nothing_away_that_a_snapshot_names() {
    let world = World::bare(5205);
    std::fs::create_dir_all(world.tree()).unwrap();
    world.write("payroll", &[0x42; 3000]);
    let thief = put_only(&world, "laptop", LAPTOP);
    let server = put_only(&world, "server", SERVER);
    let id = run(&server, &options(&world.tree()), &Silent).unwrap().snapshot.id;
    let image = world.image();
    let owner = world.open();
    let of_data = |name: &ArenaName| ArenaContent::of(name.id) == ArenaContent::Data;
    let first = arenas(&world).into_iter().find(of_data).unwrap();
    // As that version rewrote it: of the same domain, and without a mark.
    let chunk = [0x42; 3000];
    let reader = ChunkReader::of_domain(&owner, "", CacheLimits::default()).unwrap();
    assert_eq!(reader.store().arena(first.id).unwrap().slots().count(), 1);
    world.objects.remove(&first.object()).unwrap();
    let rewritten = first.next().unwrap();
    plant(&server, rewritten, &[StoredChunk::Whole(&chunk)], &[&chunk]);
    world.assert_holds(&world.open(), id, &image, "rewritten");
    plant_honest(&thief, first);
    let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
    let mended = repair(&owner, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!((mended.taken_away, &mended.lost[..]), (0, &[rewritten.object()][..]));
    // The thief's is removed by hand.
    world.objects.remove(&first.object()).unwrap();
    world.assert_holds(&world.open(), id, &image, "after a repair");
}

/// What a verdict names of an arena stays held while it is not known whose the arena is: a collector that
/// has listed it before may still carry the verdict out, and take what a backup has named since.
#[test]
fn kept_h2_a_collection_stays_open_while_one_of_its_arenas_is_contested() {
    let victim = Victim::new(5204);
    let world = &victim.world;
    forget(&world.open(), &[victim.first]).unwrap();
    // The verdict is there, and one arena of it is done.
    let interrupted = PruneOptions {
        unused_percent_max: 0,
        time_max: Some(Duration::ZERO),
        ..PruneOptions::default()
    };
    let outcome = prune(&world.open(), &interrupted, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.carried.arenas_left > 1, "{:?}", outcome.carried);
    let open = Collections::read(&world.open()).unwrap().open.unwrap();
    assert!(open.decided);
    let is_part = |slots: &ArenaSlots| matches!(slots, ArenaSlots::Runs(_));
    let partly = |name: &ArenaName| open.selection.slots.0.get(&name.id).is_some_and(is_part);
    let left: Vec<ArenaName> =
        arenas(world).into_iter().filter(|name| name.generation == 0 && partly(name)).collect();
    assert!(!left.is_empty());
    for name in &left {
        plant_honest(&victim.thief, name.next().unwrap());
    }
    for _ in 0..2 {
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        let error = prune(&world.open(), &all, &Silent, &Cancel::new()).unwrap_err();
        let RepositoryError::NotCollectable { why, .. } = &error else { panic!("{error}") };
        assert_eq!(why, "another domain has claimed it since it was condemned");
        assert!(Collections::read(&world.open()).unwrap().open.is_some(), "and it is held");
        victim.assert_held("while it waits");
    }
    assert_eq!(mend(world).taken_away, left.len() as u64);
    prune_all(world);
    assert!(Collections::read(&world.open()).unwrap().open.is_none());
    assert!(left.iter().all(|name| !arenas(world).contains(name)), "all were rewritten");
    victim.assert_held("at the end");
}

/// Stores a snapshot of the thief's domain that names what another has stored.
fn commit_as(thief: &Repository, root: &Recipe) -> SnapshotId {
    let session = Session::begin(thief, "laptop").unwrap();
    let snapshot = Snapshot {
        root: root.clone(),
        host: "laptop".to_owned(),
        paths: vec![b"/".to_vec()],
        ..Snapshot::empty(session.id)
    };
    let id = session.id;
    session.commit(&snapshot).unwrap();
    id
}

/// Kept 2.3, `deputy.sh`: the thief's own snapshot names the victim's trees and files, at their places,
/// or by their fingerprints at places of its own. The owner's restore gives nothing of them.
#[test]
fn kept_h3_a_put_only_snapshot_names_nothing_of_another_domain() {
    for by_value in [false, true] {
        let world = match by_value {
            false => World::bare(5300),
            true => World::by_value(5300, 8),
        };
        std::fs::create_dir_all(world.tree()).unwrap();
        world.write("payroll", &[0x42; 30_000]);
        let open = |domain: &'static str, passphrase: &[u8]| {
            let cost = None::<KdfCost>;
            add_key(&world.open(), passphrase, domain, NewAccess::PutOnly(domain), cost).unwrap();
            world.open_with(world.surroundings(), passphrase).unwrap()
        };
        let (thief, server) = (open("laptop", LAPTOP), open("server", SERVER));
        let honest = run(&server, &options(&world.tree()), &Silent).unwrap().snapshot.id;
        let owner = world.open();
        let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(verified.is_sound());
        vouch(&owner, &verified).unwrap();
        let root = read_snapshot(&owner, honest).unwrap().root;
        let mut stolen = vec![commit_as(&thief, &root)];
        if !by_value {
            // The places are of an arena that there is not: the chunks are looked for by their names.
            let nowhere = Location { arena: ArenaId([0x90; 16]), slot: 3 };
            let refs = root.refs.iter().map(|chunk| ChunkRef { location: nowhere, ..*chunk });
            stolen.push(commit_as(&thief, &Recipe { depth: root.depth, refs: refs.collect() }));
        }
        let path = world.tree().join("payroll");
        let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        let read = |repository: &Repository, id| {
            let snapshot = read_snapshot(repository, id).unwrap();
            let mut bytes = Vec::new();
            cat(repository, &snapshot, path, &mut bytes).map(|_| bytes)
        };
        assert_eq!(read(&owner, honest).unwrap(), [0x42; 30_000], "its own domain reads it");
        for id in &stolen {
            assert!(read_back(&owner, *id, &world.tree()).is_err(), "{by_value}");
            let error = read(&owner, *id).unwrap_err().to_string();
            assert!(error.contains("another domain") || error.contains("missing"), "{error}");
        }
        let verified = verify(&owner, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
        for id in &stolen {
            assert!(verified.affected.iter().any(|loss| loss.snapshot == *id), "it is named");
        }
        assert!(verified.affected.iter().all(|loss| stolen.contains(&loss.snapshot)));
        let trusting = Repository { trusts_references: true, ..world.open() };
        assert_eq!(read(&trusting, stolen[0]).unwrap(), [0x42; 30_000], "if the owner says so");
    }
}

/// The thief has an arena of its own, with a delta of what is in the victim's.
#[test]
fn kept_h3_a_delta_of_another_domain_s_chunk_is_not_made() {
    let world = World::bare(5301);
    std::fs::create_dir_all(world.tree()).unwrap();
    world.write("payroll", &[0x42; 6000]);
    let thief = put_only(&world, "laptop", LAPTOP);
    let server = put_only(&world, "server", SERVER);
    run(&server, &options(&world.tree()), &Silent).unwrap();
    let owner = world.open();
    let of_data = |name: &ArenaName| ArenaContent::of(name.id) == ArenaContent::Data;
    let base = Location { arena: arenas(&world).into_iter().find(of_data).unwrap().id, slot: 0 };
    let limits = CacheLimits::default();
    let all = ChunkReader::of_domain(&owner, "", limits).unwrap();
    let block = all.block_of(base).unwrap();
    let Some(StoredChunk::Whole(secret)) = block.chunk(0) else { panic!("it is stored whole") };
    let basis = strongroom_chunk::delta::Basis::new(secret.to_vec(), vec![secret.len()]);
    let instructions = basis.encode(secret, 0, secret.len()).unwrap().bytes;
    let chunk_bytes = u32::try_from(secret.len()).unwrap();
    let delta = StoredChunk::Delta { instructions: &instructions, bases: &[base], chunk_bytes };
    let id = ArenaId([0x11; 16]);
    plant(&thief, ArenaName::first(id), &[delta], &[secret]);
    let fingerprint = thief.write_keys().naming.data.fingerprint(secret);
    let location = Location { arena: id, slot: 0 };
    let chunk = ChunkRef { fingerprint, location, stream_bytes: u64::from(chunk_bytes) };
    assert_eq!(all.read_data(&chunk).unwrap(), secret, "the owner's own verbs read it");
    let of_thief = ChunkReader::of_domain(&owner, "laptop", limits).unwrap();
    assert!(of_thief.read_data(&chunk).is_err());
    // Nor is it named for the thief in a snapshot of the owner's.
    let mut index = ChunkIndex::in_memory();
    let refreshed = index.refresh(owner.backend(), all.store(), &Silent, &Cancel::new());
    assert!(refreshed.is_ok());
    let is_there = |reader: &ChunkReader| index.is_there(&fingerprint, location, reader.store());
    assert!(is_there(&all).unwrap());
    assert!(!is_there(&of_thief).unwrap());
}

/// A machine that can only store learns nothing of what others have stored, and uses nothing of it.
#[test]
fn kept_h3_what_is_vouched_for_is_for_the_owner_alone() {
    let world = World::new(5302);
    let laptop = put_only(&world, "laptop", LAPTOP);
    let server = put_only(&world, "server", SERVER);
    run(&laptop, &options(&world.tree()), &Silent).unwrap();
    let owner = world.open();
    let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(vouch(&owner, &verified).unwrap() > 1);
    assert!(read_vouchers(&server).unwrap().is_empty());
    let of_server = run(&server, &options(&world.tree()), &Silent).unwrap();
    assert!(of_server.written.data_chunks_new > 0, "it stores its own");
    world.assert_holds(&owner, of_server.snapshot.id, &world.image(), "by the server");
    let of_owner = run(&owner, &options(&world.tree()), &Silent).unwrap();
    assert_eq!(of_owner.written.data_chunks_new, 0, "the owner uses what is vouched for");
}
