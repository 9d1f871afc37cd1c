//! Nights in which the disk or the parent cannot be read in part: no zeros take the place of what the
//! disk still has, and what was stored as zeros is not believed the next night.

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

#[test]
fn zeros_in_place_of_what_could_not_be_read_are_read_again() {
    let world = World::bare(112);
    let bytes = Random::new(112).noise(40 << 20);
    let bad = 5 << 20..(5 << 20) + 4096;
    let watched = |bad: Range<u64>| Watched { bytes: bytes.clone(), bad, ..Watched::default() };
    let first = try_night(&world, watched(bad.clone()), None, false).unwrap().outcome.snapshot;
    assert_eq!(first.stats.problems, 1);
    let nothing = |since| Some(Changed { since, ranges: Vec::new() });
    // As long as it cannot be read, each night says so.
    let second = try_night(&world, watched(bad), nothing(first.id), false).unwrap();
    let second = second.outcome.snapshot;
    assert_eq!(second.stats.problems, 1);
    let third = try_night(&world, watched(0..0), nothing(second.id), false).unwrap().outcome;
    assert_eq!(third.snapshot.stats.problems, 0);
    assert!(restored(&world, &third) == bytes);
    // Now the notes of the writes are believed again.
    let fourth = try_night(&world, watched(0..0), nothing(third.snapshot.id), false).unwrap();
    assert!(fourth.read < 20 << 20, "{} read", fourth.read);
}

/// The sample finds a part that cannot be read: what the parent has of it is kept, and named; so it is in
/// each night after it.
#[test]
fn a_sample_that_cannot_be_read_is_a_problem() {
    let world = World::bare(113);
    let bytes = Random::new(113).noise(52 << 20);
    let first = night(&world, &bytes, None, false).outcome.snapshot;
    let nothing = Some(Changed { since: first.id, ranges: Vec::new() });
    let honest = night(&world, &bytes, nothing, false);
    let at = honest.sample() + 500_000;
    assert!(at < 50 << 20, "what is at the end is in each sample");
    let mut since = honest.outcome.snapshot.id;
    for _ in 0..3 {
        let bad = at..at + 4096;
        let watched = Watched { bytes: bytes.clone(), bad, ..Watched::default() };
        let nothing = Some(Changed { since, ranges: Vec::new() });
        let next = try_night(&world, watched, nothing, false).unwrap();
        assert_eq!(next.outcome.snapshot.stats.problems, 1);
        assert!(restored(&world, &next.outcome) == bytes, "the parent has it");
        assert!(next.read < 20 << 20, "{} read: the writes' notes are believed", next.read);
        since = next.outcome.snapshot.id;
    }
}
