//! The cache on disk may be lost, stale, torn or another repository's: that costs time, never data.

use std::fs;
use std::path::Path;

use strongroom_base::Silent;
use strongroom_index::Index;
use strongroom_repository::Repository;
use strongroom_testkit::Change;
use strongroom_testkit::damage::files_below;

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
    let cache = world.cache.clone().unwrap();
    let other = World::empty(64);
    let surroundings = other.surroundings();
    let other_id =
        Repository::init(surroundings, PASSPHRASE, &init_options()).unwrap().config.id.to_string();
    // The other repository finds this one's cache under its own name.
    let mine = world.open().config.id.to_string();
    copy(&cache.join(mine), &cache.join(&other_id));
    let mut surroundings = other.surroundings();
    surroundings.cache = Some(cache);
    let repository = Repository::open(surroundings, PASSPHRASE).unwrap();
    let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), "a foreign cache");
}

/// A note that this program cannot read: the index is built again, and kept.
#[test]
fn a_note_of_another_version() {
    let world = world(66);
    let id = world.open().config.id.to_string();
    let path = world.cache.clone().unwrap().join(id).join("index");
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
    for name in strongroom_testkit::damage::names_in(&base, "arenas") {
        let mut objects = base.clone();
        objects.remove(&name);
        let what = format!("without {name}");
        let repository = world.open_objects(&objects).unwrap();
        let outcome = run(&repository, &options(&world.tree()), &Silent)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        world.assert_holds(&repository, outcome.snapshot.id, &world.image(), &what);
    }
}
