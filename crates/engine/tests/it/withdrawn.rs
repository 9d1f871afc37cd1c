//! What a verification found to be lost is stored again by the next backup, also if another program is the
//! writer of the index in the cache meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use strongroom_arena::{ArenaContent, ArenaName, CacheLimits};
use strongroom_backend::{Backend, ObjectName};
use strongroom_base::{Cancel, Location, Silent};
use strongroom_repository::{ChunkIndex, LostPlaces, snapshot_object};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{Listener, noise};

use crate::verify::check_all;
use crate::world::{World, options, run};

/// The arenas of data of a world.
fn of_data(world: &World) -> BTreeSet<ObjectName> {
    let names = names_in(&world.objects.snapshot(), "arenas").into_iter();
    let is_of_data =
        |name: &ArenaName| ArenaContent::of(name.id) == ArenaContent::Data && name.generation == 0;
    names.filter(|name| ArenaName::of(name).as_ref().is_some_and(is_of_data)).collect()
}

/// Damages an arena beyond parity. Its summary can still be read.
fn damage(world: &World, name: &ObjectName) {
    let mut object = world.objects.snapshot()[name].clone();
    let half = object.len() / 2;
    object[2_000..half].fill(0x5c);
    world.objects.replace(name, &object).unwrap();
}

fn cache_folder(world: &World) -> PathBuf {
    world.open().cache_folder().unwrap()
}

/// The files of what was found to be lost and is not in the index yet.
pub fn left(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache_folder(world)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("withdrawn-"));
    files
}

/// Another program has the index open while it is verified, and perhaps also during the next backup.
#[test]
fn what_is_lost_is_stored_again_though_another_program_has_the_index() {
    for ends_before_the_backup in [true, false] {
        let what = format!("{ends_before_the_backup}");
        let world = World::bare(800).with_cache();
        world.write("file", &noise(800, 60_000));
        world.backup();
        damage(&world, of_data(&world).first().unwrap());
        let other = ChunkIndex::open(Some(&cache_folder(&world))).unwrap();
        assert!(!check_all(&world.open()).affected.is_empty(), "{what}");
        let other = Some(other).filter(|_| !ends_before_the_backup);
        let again = world.backup();
        let repository = world.open();
        world.assert_holds(&repository, again.snapshot.id, &world.image(), &what);
        drop(other);
        // From now on the index says it.
        for name in ["copy", "another"] {
            world.write(name, &noise(800, 60_000));
            let copied = world.backup();
            world.assert_holds(&world.open(), copied.snapshot.id, &world.image(), &what);
            assert_eq!(left(&world), Vec::<PathBuf>::new(), "{what}");
        }
    }
}

/// A verification that looks for a lost snapshot reads the index itself, and withdraws from it all the same.
#[test]
fn what_is_lost_is_stored_again_though_a_snapshot_is_looked_for() {
    let world = World::bare(810).with_cache();
    world.write("file", &noise(810, 30_000));
    world.backup();
    let first = of_data(&world);
    world.write("other", &noise(811, 30_000));
    let removed = world.backup().snapshot.id;
    let second: BTreeSet<ObjectName> = of_data(&world).difference(&first).cloned().collect();
    // It may be of a backup that failed, and a part of what it needs is gone.
    world.objects.remove(&snapshot_object(removed)).unwrap();
    fs::remove_file(cache_folder(&world).join("own")).unwrap();
    second.iter().for_each(|name| world.objects.remove(name).unwrap());
    first.iter().for_each(|name| damage(&world, name));
    let found = check_all(&world.open());
    assert_eq!(found.unclaimed.len(), 1, "{found:?}");
    assert!(!found.affected.is_empty());
    let again = world.backup();
    world.assert_holds(&world.open(), again.snapshot.id, &world.image(), "stored again");
}

/// What cannot be read of what was found to be lost is named once.
#[test]
fn a_damaged_note_of_what_is_lost_is_reported() {
    let world = World::bare(820).with_cache();
    world.write("file", &noise(820, 60_000));
    world.backup();
    damage(&world, of_data(&world).first().unwrap());
    let other = ChunkIndex::open(Some(&cache_folder(&world))).unwrap();
    check_all(&world.open());
    drop(other);
    let [file] = &left(&world)[..] else { panic!("it is noted in a file") };
    let mut bytes = fs::read(file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(file, &bytes).unwrap();
    for is_reported in [true, false] {
        let listener = Listener::new();
        run(&world.open(), &options(&world.tree()), &listener).unwrap();
        let said = listener.problems();
        let is_it = said.iter().any(|heard| heard.message.contains("`strongroom verify`"));
        assert_eq!(is_it, is_reported, "{said:?}");
    }
}

/// An arena that is silent for a while has the same wrong chunk when it speaks again.
#[test]
fn what_is_left_out_stays_so_though_its_arena_could_not_be_read() {
    for another_has_the_index in [false, true] {
        let world = World::bare(830).with_cache();
        world.write("file", &noise(830, 60_000));
        world.backup();
        let arena = ArenaName::of(of_data(&world).first().unwrap()).unwrap().id;
        let place = Location { arena, slot: 0 };
        let folder = cache_folder(&world);
        let repository = world.open();
        let store = repository.arena_store(CacheLimits::default());
        let fingerprint = store.arena(arena).unwrap().slot(0).unwrap().fingerprint;
        let refreshed = || {
            let mut index = ChunkIndex::open(Some(&folder)).unwrap();
            index.refresh(repository.backend(), &store, &Silent, &Cancel::new()).unwrap();
            index
        };
        assert_eq!(refreshed().lookup(&fingerprint), Some(place));
        let wrong = LostPlaces { slots: vec![place], arenas: Vec::new() };
        let silent = LostPlaces { slots: Vec::new(), arenas: vec![arena] };
        refreshed().withdraw_for_good(&wrong, &Silent);
        let other = another_has_the_index.then(|| ChunkIndex::open(Some(&folder)).unwrap());
        refreshed().withdraw_for_good(&silent, &Silent);
        drop(other);
        for _ in 0..3 {
            let mut index = refreshed();
            assert_eq!(index.lookup(&fingerprint), None, "{another_has_the_index}");
            index.flush(&Silent);
        }
        assert_eq!(left(&world), Vec::<PathBuf>::new());
    }
}
