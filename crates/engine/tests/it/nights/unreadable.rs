//! Nights in which the parent cannot be read in part: no zeros take the place of what the disk still
//! has.

use strongroom_testkit::RefusingBackend;

use super::*;

/// A repository that says which data it has and gives none of it, as behind a server that takes a
/// machine's backups.
fn without_data(world: &World) -> Repository {
    let refusing = RefusingBackend::new(world.objects.clone());
    for (name, bytes) in world.objects.snapshot() {
        let arena = ArenaName::of(&name);
        if arena.is_some_and(|arena| ArenaContent::of(arena.id) == ArenaContent::Data) {
            // The blocks are in front of what names them.
            refusing.refuse(&name, 4096..(bytes.len() - bytes.len() / 8) as u64);
        }
    }
    world.open_over(Arc::new(refusing)).unwrap()
}

#[test]
fn what_the_parent_cannot_give_is_read_from_the_disk() {
    let world = World::bare(111);
    let before = Random::new(111).noise(40 << 20);
    let first = night(&world, &before, None, false).outcome.snapshot.id;
    let mut now = before.clone();
    for at in [1 << 20, 5 << 20, (9 << 20) + GRAIN] {
        now[at..at + GRAIN].copy_from_slice(&Random::new(at as u64).noise(GRAIN));
    }
    let watched = Watched { bytes: now.clone(), ..Watched::default() };
    let changed = since(first, &before, &now);
    let next = try_night_in(&without_data(&world), watched, changed, false).unwrap();
    assert!(restored(&world, &next.outcome) == now);
    assert_eq!(next.outcome.snapshot.stats.problems, 0);
    assert!(next.read < 20 << 20, "{} read: chunks that were not written are kept", next.read);
}

#[test]
fn files_are_listed_although_the_parent_gives_nothing() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(114);
    let machine = Machine::new(64);
    machine.mounted(|point| grow(&point.join("tree"), 114, TREE));
    let before = fs::read(machine.disk()).unwrap();
    let first = night(&world, &before, None, false).outcome.snapshot.id;
    machine.mounted(|point| mutate(&point.join("tree"), 115, TREE));
    let now = fs::read(machine.disk()).unwrap();
    let watched = Watched { bytes: now.clone(), ..Watched::default() };
    let changed = since(first, &before, &now);
    let next = try_night_in(&without_data(&world), watched, changed, false).unwrap();
    assert_eq!(next.outcome.snapshot.stats.problems, 0);
    restored_files(&world, &next.outcome).assert_same(&machine.files(), "the night's files");
}
