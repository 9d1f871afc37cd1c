//! What one domain stores, and what the others may rely on.
//!
//! The attacker here has a put-only key and everything that it opens, and is not bound to use this
//! program: the tests build arenas as an attacker would.

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaName, ArenaSeed, BlockDraft, BlockSealer, CacheLimits,
    CompressionLevel, Finishing, Origin, StoredChunk, SummarySlot,
};
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Cancel, DomainId, Entropy, Fingerprint, Silent, SnapshotId};
use strongroom_catalog::{EntryKind, Snapshot};
use strongroom_engine::{BackupOptions, BackupOutcome};
use strongroom_repository::keys::{KeySlot, NewSlot, write_slot};
use strongroom_repository::{
    ChunkReader, Found, Piece, Repository, RepositoryError, SnapshotName, StreamCutter, find_path,
    find_snapshot, list_snapshots, read_vouchers, snapshot_object,
};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{Image, Listener, noise};
use strongroom_upkeep::{
    NewAccess, PruneOptions, VerifyDepth, VerifyOutcome, add_key, forget, plan_repair, prune,
    repair, verify, vouch,
};

use crate::world::{LAPTOP, World, options, run};

const SERVER: &[u8] =
    b"strongroom-key-3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3cd814f45f";

/// A put-only repository of the domain of this name.
pub fn put_only(world: &World, name: &str, passphrase: &[u8]) -> Repository {
    add_key(&world.open(), passphrase, name, NewAccess::PutOnly(name), None).unwrap();
    Repository::open(world.surroundings(), passphrase).unwrap()
}

fn back_up(world: &World, repository: &Repository) -> BackupOutcome {
    run(repository, &options(&world.tree()), &Silent).unwrap()
}

fn verify_data(repository: &Repository) -> VerifyOutcome {
    verify(repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap()
}

/// Every chunk of the tree's files, as a client of this repository would name them.
fn names_of_chunks(world: &World, repository: &Repository) -> Vec<Fingerprint> {
    let cutter = StreamCutter::of_files(repository).unwrap();
    let mut names = Vec::new();
    for entry in walkdir(&world.tree()) {
        let bytes = std::fs::read(entry).unwrap();
        let mut rest = &bytes[..];
        let mut read = |buffer: &mut [u8]| {
            let count = buffer.len().min(rest.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            Ok::<_, std::convert::Infallible>((count, rest.is_empty()))
        };
        let mut give = |piece: Piece| {
            names.extend(piece.chunks().map(|(_, fingerprint)| fingerprint));
            Ok(())
        };
        cutter.cut(bytes.len() as u64, &mut read, &mut give).unwrap();
    }
    names
}

/// The files below a folder.
fn walkdir(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files.extend(walkdir(&entry.path()));
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files
}

/// Stores an arena that claims to hold the chunks of these names, and holds rubbish.
fn store_rubbish(attacker: &Repository, names: &[Fingerprint]) -> ArenaId {
    let keys = attacker.write_keys();
    let seed = ArenaSeed::draw(ArenaContent::Data, keys, &*attacker.surroundings.entropy);
    create_rubbish(attacker, &seed, names, 0).id
}

/// Creates that arena in a generation.
fn create_rubbish(
    attacker: &Repository,
    seed: &ArenaSeed,
    names: &[Fingerprint],
    generation: u32,
) -> ArenaName {
    let mut builder = ArenaBuilder::new(seed, Vec::new(), 0);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    let mut draft = BlockDraft::new(0, 0);
    let mut slots = Vec::new();
    for name in names {
        draft.push(StoredChunk::Whole(b"rubbish"));
        slots.push(SummarySlot::of(*name, StoredChunk::Whole(b"rubbish")));
    }
    builder.push(&sealer.seal(draft, seed.id, &seed.key), slots);
    let finished = builder.finish(Finishing {
        generation,
        origin: Origin::NONE,
        keys: attacker.write_keys(),
        redundancy: attacker.redundancy(),
        padding: None,
    });
    attacker.backend().create(&finished.name.object(), finished.object()).unwrap();
    finished.name
}

/// Makes the arena that is drawn next have this name.
struct Chosen(ArenaId);

impl Entropy for Chosen {
    fn fill(&self, bytes: &mut [u8]) {
        match bytes.len() {
            ArenaId::BYTES => bytes.copy_from_slice(&self.0.0),
            _ => bytes.fill(0x5c),
        }
    }
}

/// Plants the next generation of every arena, with rubbish under the names of its chunks. Returns
/// the names of the planted objects.
fn plant_next_generations(world: &World, attacker: &Repository) -> Vec<String> {
    plant(world, attacker, usize::MAX)
}

/// The same with the names of the first chunks alone; for 0, with one that is no chunk's, and only in
/// arenas of data.
fn plant(world: &World, attacker: &Repository, names_max: usize) -> Vec<String> {
    let store = world.open().arena_store(CacheLimits::default());
    let mut planted = Vec::new();
    for name in names_in(&world.objects.snapshot(), "arenas") {
        let id = ArenaName::of(&name).unwrap().id;
        let seed = ArenaSeed::draw(ArenaContent::of(id), attacker.write_keys(), &Chosen(id));
        let arena = store.arena(id).unwrap();
        if names_max == 0 && ArenaContent::of(id) == ArenaContent::Metadata {
            continue;
        }
        let names = arena.slots().map(|(_, slot)| slot.fingerprint).take(names_max);
        let mut names: Vec<Fingerprint> = names.collect();
        if names.is_empty() {
            names.push(Fingerprint([0x5c; 32]));
        }
        planted.push(create_rubbish(attacker, &seed, &names, 1).object().as_str().to_owned());
    }
    planted
}

/// Every client that may create objects can create the next generation of an arena of another domain. Readers
/// go on reading the one that exists, and the planted ones are named and cleared away.
#[test]
fn engine_02_a_planted_generation_hides_nothing() {
    let world = World::new(409).with_cache();
    let attacker = put_only(&world, "laptop", LAPTOP);
    let mut kept = vec![(back_up(&world, &world.open()).snapshot.id, world.image())];
    let assert_all = |kept: &[(SnapshotId, Image)], when: &str| {
        for (id, image) in kept {
            world.assert_holds(&world.open(), *id, image, when);
        }
    };
    let mut planted = plant_next_generations(&world, &attacker);
    planted.sort();
    assert!(planted.len() > 2);
    assert_all(&kept, "planted");
    world.mutate(3);
    kept.push((back_up(&world, &world.open()).snapshot.id, world.image()));
    assert_all(&kept, "a backup after that");
    let verified = verify_data(&world.open());
    let mut named: Vec<&str> = verified.faults.iter().map(|(name, _)| name.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named, planted);
    assert!(verified.affected.is_empty(), "{:?}", verified.affected);
    assert_all(&kept, "a verification after that");
    let owner = world.open();
    let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
    repair(&owner, &plan, &Silent, &Cancel::new()).unwrap();
    assert_all(&kept, "a repair after that");
    kept.push((back_up(&world, &world.open()).snapshot.id, world.image()));
    assert_all(&kept, "another backup");
    let verified = verify_data(&world.open());
    assert!(verified.affected.is_empty(), "{:?}", verified.affected);
}

/// Planted generations do not make the owner's collector take the arenas of others for something else:
/// nothing of a snapshot goes, neither at once nor after a repair has emptied them.
#[test]
fn engine_02_a_planted_generation_removes_nothing() {
    for (seed, repaired, subset) in [(420, false, 1), (421, true, 1), (422, false, 0)] {
        let world = World::new(seed);
        let attacker = put_only(&world, "laptop", LAPTOP);
        let forgotten = back_up(&world, &world.open()).snapshot.id;
        world.mutate(seed);
        let kept = (back_up(&world, &world.open()).snapshot.id, world.image());
        let planted = plant(&world, &attacker, subset);
        assert!(planted.len() > 2);
        let owner = world.open();
        if repaired {
            let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
            repair(&owner, &plan, &Silent, &Cancel::new()).unwrap();
        }
        forget(&owner, &[forgotten]).unwrap();
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        let outcome = prune(&owner, &all, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.carried.arenas_removed + outcome.carried.arenas_rewritten > 0);
        world.assert_holds(&world.open(), kept.0, &kept.1, "after the collection");
        prune(&owner, &all, &Silent, &Cancel::new()).unwrap();
        world.assert_holds(&world.open(), kept.0, &kept.1, "after another");
        // Below and above what was rewritten, and with the last number that there is.
        for generation in [0, 9, u32::MAX] {
            let mut planted = 0;
            for name in names_in(&world.objects.snapshot(), "arenas") {
                let name = ArenaName::of(&name).unwrap();
                let over = ArenaName { generation, ..name };
                if name.generation > 0 && !world.objects.snapshot().contains_key(&over.object()) {
                    let entropy = Chosen(name.id);
                    let content = ArenaContent::of(name.id);
                    let seed = ArenaSeed::draw(content, attacker.write_keys(), &entropy);
                    create_rubbish(&attacker, &seed, &[Fingerprint([0x5c; 32])], generation);
                    planted += 1;
                }
            }
            assert!(planted > 0);
            world.assert_holds(&world.open(), kept.0, &kept.1, "planted again");
            world.mutate(seed + u64::from(generation));
            let next = back_up(&world, &world.open()).snapshot.id;
            forget(&owner, &[next]).unwrap();
            prune(&owner, &all, &Silent, &Cancel::new()).unwrap();
            world.assert_holds(&world.open(), kept.0, &kept.1, "and collected again");
        }
    }
}

/// Of two clients that cannot vouch for anything, one plants over the arenas of the other: nothing of
/// these is removed until a repair has taken the planted ones away.
#[test]
fn engine_02_generations_of_two_domains_keep_what_they_claim() {
    let world = World::new(423);
    let (attacker, server) =
        (put_only(&world, "laptop", LAPTOP), put_only(&world, "server", SERVER));
    let forgotten = back_up(&world, &server).snapshot.id;
    world.mutate(423);
    let kept = (back_up(&world, &server).snapshot.id, world.image());
    let planted = plant(&world, &attacker, 1);
    let owner = world.open();
    forget(&owner, &[forgotten]).unwrap();
    let before = names_in(&world.objects.snapshot(), "arenas");
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(&owner, &all, &Silent, &Cancel::new()).unwrap();
    assert_eq!(names_in(&world.objects.snapshot(), "arenas"), before, "all are claimed by two");
    world.assert_holds(&world.open(), kept.0, &kept.1, "planted");
    let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
    let outcome = repair(&owner, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.taken_away, planted.len() as u64);
    world.mutate(424);
    let next = back_up(&world, &server).snapshot.id;
    forget(&owner, &[next]).unwrap();
    let outcome = prune(&owner, &all, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.carried.arenas_removed + outcome.carried.arenas_rewritten > 0);
    world.assert_holds(&world.open(), kept.0, &kept.1, "once the planted ones are gone");
}

/// A put-only key must not be able to make others believe that their files are stored already.
#[test]
fn engine_02_rubbish_under_the_names_of_others_chunks_poisons_its_own_domain_alone() {
    let world = World::new(400).with_cache();
    let attacker = put_only(&world, "laptop", LAPTOP);
    let server = put_only(&world, "server", SERVER);
    let names = names_of_chunks(&world, &attacker);
    assert!(names.len() > 20);
    let rubbish = store_rubbish(&attacker, &names);
    let owner = world.open();
    for (repository, whose) in [(&server, "another put-only domain"), (&owner, "the owner")] {
        let outcome = back_up(&world, repository);
        assert!(outcome.written.data_chunks_new > 20, "{whose} stores its own");
        world.assert_holds(&owner, outcome.snapshot.id, &world.image(), whose);
    }
    // It is reported, and no voucher is written for it.
    let verified = verify_data(&owner);
    let wrong: Vec<&str> = verified.faults.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(wrong, [format!("arenas/{rubbish}.0")]);
    assert!(verified.affected.is_empty(), "no snapshot depends on it");
    assert!(verified.vouchable.iter().all(|arena| arena.voucher.arena != rubbish));
    vouch(&owner, &verified).unwrap();
    assert!(read_vouchers(&owner).unwrap().iter().all(|voucher| voucher.arena != rubbish));
    let again = back_up(&world, &server);
    world.assert_holds(&owner, again.snapshot.id, &world.image(), "after the vouching");
}

#[test]
fn what_was_verified_is_built_upon_by_the_owner() {
    let world = World::new(401).with_cache();
    let laptop = put_only(&world, "laptop", LAPTOP);
    back_up(&world, &laptop);
    let owner = world.open();
    let dry = backup_dry(&world, &owner);
    assert!(dry.written.data_chunks_new > 0, "the laptop's arenas are not vouched for yet");
    let verified = verify_data(&owner);
    assert!(verified.is_sound());
    let count = vouch(&owner, &verified).unwrap();
    assert!(count > 1, "{count}");
    assert_eq!(vouch(&owner, &verify_data(&owner)).unwrap(), 0, "once is enough");
    let outcome = back_up(&world, &owner);
    assert_eq!(outcome.written.data_chunks_new, 0, "the owner uses what the laptop stored");
    world.assert_holds(&owner, outcome.snapshot.id, &world.image(), "by the owner");
}

/// Deltas against arenas that were vouched for before.
#[test]
fn what_builds_upon_what_was_vouched_for_is_vouched_for() {
    let world = World::new(414).with_cache();
    let file = world.tree().join("file");
    let mut content = noise(415, 300_000);
    std::fs::write(&file, &content).unwrap();
    let laptop = put_only(&world, "laptop", LAPTOP);
    back_up(&world, &laptop);
    let owner = world.open();
    vouch(&owner, &verify_data(&owner)).unwrap();
    let before = read_vouchers(&owner).unwrap();
    content[150_000] ^= 1;
    std::fs::write(&file, &content).unwrap();
    back_up(&world, &laptop);
    let verified = verify_data(&owner);
    let is_before = |base: &ArenaId| before.iter().any(|voucher| voucher.arena == *base);
    assert!(verified.vouchable.iter().any(|it| it.bases.iter().any(is_before)));
    assert_eq!(vouch(&owner, &verified).unwrap(), verified.vouchable.len());
}

fn backup_dry(world: &World, repository: &Repository) -> BackupOutcome {
    let options = BackupOptions { dry_run: true, ..options(&world.tree()) };
    run(repository, &options, &Silent).unwrap()
}

/// The domain that wrote an arena has the key of its summary, and may try to exchange the summary
/// once the owner has vouched.
#[test]
fn a_voucher_is_for_the_arena_as_it_was() {
    let world = World::new(402);
    let laptop = put_only(&world, "laptop", LAPTOP);
    let server = put_only(&world, "server", SERVER);
    back_up(&world, &laptop);
    let owner = world.open();
    vouch(&owner, &verify_data(&owner)).unwrap();
    let vouched = read_vouchers(&owner).unwrap();
    let data = vouched.iter().find(|v| ArenaContent::of(v.arena) == ArenaContent::Data);
    let data = data.unwrap().clone();
    // The header and its hash stay what they were; the summary is another one.
    let arena = ArenaName { id: data.arena, generation: data.generation };
    let name = arena.object();
    let size = usize::try_from(world.objects.size(&name).unwrap()).unwrap();
    let mut object = world.objects.read(&name, 0, size).unwrap();
    let store = server.arena_store(Default::default());
    store.trust(vouched.clone());
    assert!(store.arena(data.arena).unwrap().trusted);
    let voucher = store_with_changed_summary(&mut object, &laptop, arena);
    world.objects.replace(&name, &object).unwrap();
    assert_eq!(voucher.body_hash, data.body_hash, "the header is what it was");
    assert_ne!(voucher.summary_hash, data.summary_hash);
    let store = server.arena_store(Default::default());
    store.trust(vouched);
    assert!(!store.arena(data.arena).is_ok_and(|arena| arena.trusted));
}

/// Changes a bit of the sealed summary, and gives what a voucher for that would say.
fn store_with_changed_summary(
    object: &mut [u8],
    laptop: &Repository,
    arena: ArenaName,
) -> strongroom_arena::Voucher {
    let store = laptop.arena_store(Default::default());
    let before = store.vouch_for(arena, object).unwrap();
    for place in 0..object.len() {
        object[place] ^= 1;
        if let Ok(after) = store.vouch_for(arena, object)
            && after.summary_hash != before.summary_hash
            && after.summary_key == before.summary_key
        {
            return after;
        }
        object[place] ^= 1;
    }
    panic!("the summary is somewhere in the object");
}

/// A file whose content is a directory's tree must not be taken for that tree: trees are looked for
/// in metadata arenas alone.
#[test]
fn engine_10_a_file_that_equals_a_tree_is_not_taken_for_it() {
    let world = World::new(403);
    let victim = world.tree().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("empty"), b"").unwrap();
    std::os::unix::fs::symlink("somewhere", victim.join("link")).unwrap();
    let first = back_up(&world, &world.open());
    let tree_of = |repository: &Repository, snapshot| {
        let reader = ChunkReader::of_domain(repository, "", Default::default()).unwrap();
        let path = victim.to_str().unwrap().as_bytes();
        let found = find_path(snapshot, path, &reader).unwrap();
        let Found::Entry { entry, .. } = found else { panic!("it is no root") };
        let EntryKind::Directory { tree, .. } = entry.kind else { panic!("it is a directory") };
        (tree.refs[0], reader.read_metadata(&tree.refs[0]).unwrap())
    };
    let (_, bytes) = tree_of(&world.open(), &first.snapshot);
    // Another repository, in which the file comes first.
    let other = World::empty(404);
    let init = crate::world::init_options();
    Repository::init(other.surroundings(), crate::world::PASSPHRASE, &init).unwrap();
    std::fs::create_dir(other.tree()).unwrap();
    std::fs::write(other.tree().join("planted"), &bytes).unwrap();
    let repository = other.open();
    run(&repository, &options(&other.tree()), &Silent).unwrap();
    let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
    let (chunk, same) = tree_of(&repository, &outcome.snapshot);
    assert_eq!(same, bytes, "the file was the tree, byte for byte");
    assert_eq!(ArenaContent::of(chunk.location.arena), ArenaContent::Metadata);
    let reader = ChunkReader::of_domain(&repository, "", Default::default()).unwrap();
    assert!(reader.read_data(&chunk).is_err(), "metadata is not content");
    assert_eq!(list_snapshots(&repository).unwrap().snapshots.len(), 2);
}

/// An attacker who may add objects may add slots sealed under guesses of a passphrase. One that opens must
/// not keep the right one from being found, nor change what the client does.
#[test]
fn engine_15_a_planted_slot_that_opens_is_passed_over() {
    let world = World::new(405);
    let planted = World::new(406);
    // A slot of another repository's secrets, sealed for this one under the same passphrase.
    let theirs = planted.open();
    let new =
        NewSlot { label: "planted".to_owned(), created: strongroom_base::Timestamp(0), cost: None };
    let id = world.open().config.id;
    for _ in 0..8 {
        let slot = KeySlot::seal(
            new.clone(),
            &theirs.secret,
            crate::world::PASSPHRASE,
            id,
            &*theirs.surroundings.entropy,
        );
        let objects: &dyn Backend = &*world.objects;
        write_slot(objects, &slot.unwrap()).unwrap();
    }
    let outcome = back_up(&world, &world.open());
    world.assert_holds(&world.open(), outcome.snapshot.id, &world.image(), "with the right slot");
}

/// A slot is replaced by another of its name that is whole: its copy still opens.
#[test]
fn engine_15_a_forged_slot_does_not_hide_its_copy() {
    let world = World::new(405);
    let theirs = World::new(406).open();
    let new =
        NewSlot { label: "forged".to_owned(), created: strongroom_base::Timestamp(0), cost: None };
    let (id, entropy) = (theirs.config.id, &*theirs.surroundings.entropy);
    let slot = KeySlot::seal(new, &theirs.secret, b"another passphrase", id, entropy);
    let mut slot = slot.unwrap();
    slot.id = world.open().slot;
    let elsewhere = strongroom_backend::MemoryBackend::new();
    write_slot(&elsewhere, &slot).unwrap();
    let [name, _] = strongroom_repository::objects::slot_names(slot.id);
    let mut objects = world.objects.snapshot();
    objects.insert(name.clone(), elsewhere.snapshot()[&name].clone());
    let opened = world.open_objects(&objects).unwrap();
    assert_eq!(strongroom_upkeep::list_keys(&opened).unwrap().len(), 1);
}

/// A put-only client names another host, a date of tomorrow and a great sequence.
#[test]
fn engine_02_a_domain_speaks_for_itself_alone() {
    let world = World::new(407);
    let laptop = put_only(&world, "laptop", LAPTOP);
    let owner = world.open();
    let honest = back_up(&world, &owner);
    world.mutate(1);
    let claimed = back_up(&world, &laptop);
    assert_eq!(claimed.snapshot.host, "host", "it claims the owner's host");
    let list = list_snapshots(&owner).unwrap();
    let shown = list.snapshots.iter().find(|s| s.id == claimed.snapshot.id).unwrap();
    assert_eq!((shown.host.as_str(), shown.domain.as_str()), ("laptop/host", "laptop"));
    let find = |text: &str| {
        let name = SnapshotName::parse(text, |_| None).unwrap();
        find_snapshot(&list.snapshots, &name, b"", text).map(|snapshot| snapshot.id)
    };
    assert_eq!(find("latest").unwrap(), honest.snapshot.id);
    assert_eq!(find("host:@latest").unwrap(), honest.snapshot.id);
    assert_eq!(find("laptop/host:@latest").unwrap(), claimed.snapshot.id);
    let next = back_up(&world, &owner);
    assert_eq!(next.snapshot.parent, Some(honest.snapshot.id), "no parent of another domain");
    assert_eq!(next.snapshot.sequence, honest.snapshot.sequence + 1);
    let asked = BackupOptions { parent: Some(claimed.snapshot.id), ..options(&world.tree()) };
    let listener = Listener::new();
    let next = run(&owner, &asked, &listener).unwrap();
    assert_eq!((next.snapshot.parent, next.files_unchanged), (None, 0), "nor if it is asked for");
    let [said] = &listener.problems()[..] else { panic!("{:?}", listener.problems()) };
    assert!(said.message.contains("is of the domain \"laptop\""), "{said:?}");
    let asked = BackupOptions { parent: Some(honest.snapshot.id), ..asked };
    let next = run(&owner, &asked, &Silent).unwrap();
    assert_eq!(next.snapshot.parent, Some(honest.snapshot.id));
}

/// What a put-only key can seal to the public key is not a snapshot of the owner's.
#[test]
fn engine_02_a_forged_snapshot_is_reported_and_left_out() {
    let world = World::new(408);
    let laptop = put_only(&world, "laptop", LAPTOP);
    let owner = world.open();
    let honest = back_up(&world, &owner);
    let entropy = &*laptop.surroundings.entropy;
    let own = laptop.write_keys().domain.clone();
    for (number, domain) in [(1, DomainId::ZERO), (2, own.id)] {
        // With the owner's domain and a tag of its own; with its own domain and no name of it.
        let id = SnapshotId([number; 16]);
        let forged = Snapshot { host: "host".to_owned(), ..honest.snapshot.clone() };
        let map = strongroom_catalog::format::pack_snapshot(&forged);
        let message = [&laptop.config.id.0[..], &id.0, &map].concat();
        let tag = strongroom_base::keys::authenticate(&own.author_key, &message);
        let plain = [&domain.0[..], &tag, &map].concat();
        let public_key = &laptop.write_keys().public_key;
        let sealed = public_key.seal("strongroom v0 snapshot", &id.0, &plain, entropy);
        let (kind, origin) = (ObjectKind::Snapshot, Origin { session: id, sequence: 9 });
        let message = [&laptop.config.id.0[..], &id.0, &9_u64.to_le_bytes()].concat();
        let claim = strongroom_base::keys::authenticate(&own.session_key, &message);
        let sealed = [&own.id.0[..], &claim, &sealed].concat();
        let identity = Identity { kind, id: id.0, generation: 0, origin };
        let object = envelope::seal_small(&sealed, identity);
        laptop.backend().create(&snapshot_object(id), &object).unwrap();
    }
    let list = list_snapshots(&owner).unwrap();
    assert_eq!(list.snapshots.len(), 1);
    assert_eq!(list.unreadable.len(), 2);
    for (_, error) in &list.unreadable {
        assert!(matches!(error, RepositoryError::Forged { .. }), "{error}");
    }
    let next = back_up(&world, &owner);
    assert_eq!(next.snapshot.parent, Some(honest.snapshot.id));
}
