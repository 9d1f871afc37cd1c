//! The cache on disk may be lost, stale, torn or another repository's: that costs time, never data.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use strongroom_arena::{ArenaName, ArenaStore, CacheLimits, ListedArenas};
use strongroom_backend::Backend;
use strongroom_base::{Cancel, Fingerprint, Silent};
use strongroom_index::Index;
use strongroom_repository::{ChunkIndex, Collections, Refreshed, Repository, Session};
use strongroom_testkit::damage::{files_below, names_in};
use strongroom_testkit::{Change, Random};
use strongroom_upkeep::{PruneOptions, forget, prune};

use crate::world::{PASSPHRASE, World, init_options, options, run, snapshot_ids};

/// A world whose cache has several generations in it.
fn world(seed: u64) -> World {
    let world = World::new(seed).with_cache();
    world.backup();
    world.mutate(seed);
    world.backup();
    world
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for file in files_below(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}

/// After some damage, a backup keeps what it should; returns how many bytes of data it stored.
#[track_caller]
fn check(world: &World, base: &strongroom_testkit::damage::Objects, what: &str) -> u64 {
    let repository = world.open_objects(base).unwrap();
    let outcome = run(&repository, &options(&world.tree()), &Silent)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), what);
    outcome.written.data_bytes
}

#[test]
fn any_damage_to_any_file_of_it() {
    let world = world(60);
    let base = world.objects.snapshot();
    let cache = world.cache.clone().unwrap();
    let saved = world.folder.path().join("saved");
    copy(&cache, &saved);
    world.mutate(61);
    let repository = world.open_objects(&base).unwrap();
    let expected = run(&repository, &options(&world.tree()), &Silent).unwrap().written.data_bytes;
    assert!(expected > 0);
    let files = files_below(&saved);
    assert!(files.len() >= 2, "{files:?}");
    for file in &files {
        let inside = file.strip_prefix(&saved).unwrap();
        for change in Change::ALL.into_iter().filter(|change| *change != Change::Swapped) {
            copy(&saved, &cache);
            change.on_file(&cache.join(inside));
            let what = format!("{change:?} of {}", inside.display());
            // If a page cannot be read, its chunks count as unknown.
            assert!(check(&world, &base, &what) >= expected, "{what}");
            // That rebuilt the cache.
            assert_eq!(check(&world, &base, &format!("again after {what}")), expected, "{what}");
        }
    }
    fs::remove_dir_all(&cache).unwrap();
    assert_eq!(check(&world, &base, "no cache"), expected);
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, b"a file where the folder should be").unwrap();
    assert_eq!(check(&world, &base, "a file in its place"), expected);
}

#[test]
fn a_stale_one() {
    let world = world(62);
    let cache = world.cache.clone().unwrap();
    let saved = world.folder.path().join("saved");
    copy(&cache, &saved);
    let before = (world.objects.snapshot(), world.image());
    // Two versions on, then the old cache comes back.
    for version in 0..2 {
        world.mutate(70 + version);
        world.backup();
    }
    copy(&saved, &cache);
    world.mutate(80);
    let outcome = world.backup();
    world.assert_holds(&world.open(), outcome.snapshot.id, &world.image(), "with an old cache");
    // And in the other direction: the repository is an old copy, and the cache knows its future.
    let repository = world.open_objects(&before.0).unwrap();
    let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), "an old repository");
    let first = snapshot_ids(&repository)[1];
    world.assert_holds(&repository, first, &before.1, "the last snapshot of it");
}

#[test]
fn that_of_another_repository() {
    let world = world(63);
    let other = World::empty(64);
    let mut surroundings = other.surroundings();
    surroundings.cache = world.cache.clone();
    let made = Repository::init(surroundings.clone(), PASSPHRASE, &init_options()).unwrap();
    // The other repository finds this one's cache under its own name.
    let mine = world.open().cache_folder().unwrap();
    copy(&mine, &made.cache_folder().unwrap());
    let repository = Repository::open(surroundings, PASSPHRASE).unwrap();
    let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), "a foreign cache");
}

/// A note that this program cannot read: the index is built again, and kept.
#[test]
fn a_note_of_another_version() {
    let world = world(66);
    let path = world.open().cache_folder().unwrap().join("index");
    let mut index = Index::open(&path).unwrap();
    let note = index.take_note();
    index.flush(&[&[0], &note[1..]].concat()).unwrap();
    drop(index);
    assert_eq!(world.backup().written.data_bytes, 0, "all is found in the summaries");
    assert_eq!(Index::open(&path).unwrap().take_note()[0], note[0]);
}

/// Arenas that vanish without the cache's knowledge are stored again.
#[test]
fn arenas_gone_behind_its_back() {
    let world = world(65);
    let base = world.objects.snapshot();
    for name in names_in(&base, "arenas") {
        let mut objects = base.clone();
        objects.remove(&name);
        let what = format!("without {name}");
        let repository = world.open_objects(&objects).unwrap();
        let outcome = run(&repository, &options(&world.tree()), &Silent)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        world.assert_holds(&repository, outcome.snapshot.id, &world.image(), &what);
    }
}

/// An index as a writer would have it now, and the summaries.
fn refreshed(
    repository: &Repository,
    folder: Option<&Path>,
) -> (ChunkIndex, ArenaStore, Refreshed) {
    let store = repository.arena_store(CacheLimits::default());
    let mut index = ChunkIndex::open(folder).unwrap();
    index.respect(Arc::new(Collections::read(repository).unwrap()));
    let refreshed = index.refresh(repository.backend(), &store, &Silent, &Cancel::new()).unwrap();
    (index, store, refreshed)
}

/// What is in all arenas.
fn fingerprints(repository: &Repository) -> BTreeSet<Fingerprint> {
    let store = repository.arena_store(CacheLimits::default());
    let mut all = BTreeSet::new();
    for newest in ListedArenas::list(repository.backend()).unwrap().newest() {
        let arena = store.arena(newest.name.id).unwrap();
        all.extend(arena.slots().map(|(_, slot)| slot.fingerprint));
    }
    all.remove(&Fingerprint::ZERO);
    all
}

/// Among backups, collections that end and that do not, and arenas that get lost, the index in the
/// cache names no chunk that one made at that moment would not, and hardly any less.
#[test]
fn it_names_nothing_that_one_made_now_would_not() {
    let (mut named, mut by_both, mut distrusted) = (0, 0, 0);
    for seed in 600..612 {
        let world = World::new(seed).with_cache();
        let mut random = Random::new(seed);
        let mut ids = vec![world.backup().snapshot.id];
        let mut ever = BTreeSet::new();
        let another = world.open();
        let mut open = None;
        for step in 0..24 {
            let repository = world.open();
            match random.below(8) {
                0..4 => {
                    world.mutate(100 * seed + step);
                    ids.push(world.backup().snapshot.id);
                }
                4 if ids.len() > 1 => {
                    let id = ids.remove(random.below(ids.len() as u64) as usize);
                    forget(&repository, &[id]).unwrap();
                }
                // While there is a session, a plan has no verdict.
                5 => {
                    open = match open {
                        None => Some(Session::begin(&another, "another").unwrap()),
                        Some(_) => None,
                    }
                }
                6 if step > 16 && seed % 2 == 0 => {
                    let arenas = names_in(&world.objects.snapshot(), "arenas");
                    world.objects.remove(random.pick(&arenas)).unwrap();
                }
                _ => {
                    let options = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
                    // It refuses once something is lost.
                    let _ = prune(&repository, &options, &Silent, &Cancel::new());
                }
            }
            ever.extend(fingerprints(&repository));
            let (mut cached, store, _) =
                refreshed(&repository, repository.cache_folder().as_deref());
            let (now, _, _) = refreshed(&repository, None);
            for fingerprint in &ever {
                let place = cached.find_known(fingerprint, &store).unwrap();
                let by_now = now.find_known(fingerprint, &store).unwrap();
                named += u64::from(by_now.is_some());
                by_both += u64::from(by_now.is_some() && place.is_some());
                distrusted += u64::from(place.is_none() && cached.lookup(fingerprint).is_some());
                if let Some(place) = place {
                    let is_there = now.is_present(fingerprint, place, &store).unwrap();
                    assert!(is_there, "seed {seed}, step {step}: {fingerprint} at {place:?}");
                }
            }
            if random.once_in(3) {
                cached.flush(&Silent);
            }
        }
    }
    assert!(named > 10_000 && by_both * 10 > named * 9, "{by_both} of {named}");
    assert!(distrusted > 0);
}

/// After a collection, the summaries that are read are those of rewritten arenas, and of arenas in
/// which a delta is about to be relied on.
#[test]
fn a_collection_costs_what_it_changed() {
    let world = World::new(620).with_cache();
    let first = world.backup().snapshot.id;
    for version in 0..6 {
        world.mutate(630 + version);
        world.backup();
    }
    let repository = world.open();
    let folder = repository.cache_folder();
    forget(&repository, &[first]).unwrap();
    let options = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(&repository, &options, &Silent, &Cancel::new()).unwrap();
    let listed = ListedArenas::list(repository.backend()).unwrap();
    let rewritten = listed.newest().filter(|newest| newest.name.generation > 0).count();
    assert!(rewritten > 0 && listed.newest().count() > 2 * rewritten);
    let (mut index, store, found) = refreshed(&repository, folder.as_deref());
    assert_eq!(found.read, rewritten);
    index.flush(&Silent);
    drop(index);
    let (index, _, found) = refreshed(&repository, folder.as_deref());
    assert_eq!(found, Refreshed::default());
    let mut known = 0;
    for fingerprint in fingerprints(&repository) {
        known += usize::from(index.find_known(&fingerprint, &store).unwrap().is_some());
    }
    let (now, store, _) = refreshed(&repository, None);
    let all = fingerprints(&repository);
    let by_now = all.iter().filter(|chunk| now.find_known(chunk, &store).unwrap().is_some());
    assert_eq!(known, by_now.count());
}

/// What cannot be read above the generation of an arena, or was planted there, costs a session nothing: the
/// index is as it was, and grows by nothing.
#[test]
fn what_does_not_count_above_an_arena_changes_nothing() {
    for is_planted in [false, true] {
        let world = World::new(640).with_cache();
        world.backup();
        world.mutate(640);
        world.backup();
        let repository = world.open();
        let thief = crate::domains::put_only(&world, "thief", crate::world::LAPTOP);
        let names = names_in(&world.objects.snapshot(), "arenas");
        for name in names.iter().filter_map(ArenaName::of) {
            let above = ArenaName { generation: name.generation + 5, ..name };
            match is_planted {
                true => crate::possession::plant_honest(&thief, above),
                false => world.objects.create(&above.object(), &[0x5c; 16]).unwrap(),
            }
        }
        let folder = repository.cache_folder().unwrap();
        let manifest = folder.join("index/MANIFEST");
        let before = fs::read(&manifest).unwrap().len();
        for _ in 0..3 {
            let (mut index, store, found) = refreshed(&repository, Some(&folder));
            assert_eq!(found, Refreshed::default(), "{is_planted}");
            let (now, _, _) = refreshed(&repository, None);
            for fingerprint in fingerprints(&repository) {
                let is_known = index.find_known(&fingerprint, &store).unwrap().is_some();
                let by_now = now.find_known(&fingerprint, &store).unwrap().is_some();
                assert_eq!(is_known, by_now, "{is_planted}");
            }
            index.flush(&Silent);
            assert_eq!(fs::read(&manifest).unwrap().len(), before, "{is_planted}");
        }
        let again = world.backup();
        assert_eq!(again.written.data_chunks_new, 0, "{:?}", again.written);
    }
}
