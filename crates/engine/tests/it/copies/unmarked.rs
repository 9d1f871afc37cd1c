//! Generations without the owner's mark that the owner's own programs have made: a repair makes one of an
//! arena whose summary is lost, and programs of before there were marks did. They stay a part of the arena
//! when another copy brings one that has the mark.

use strongroom_arena::ArenaContent;
use strongroom_repository::{Session, list_sessions};
use strongroom_testkit::noise;

use super::*;
use crate::damage::wipe_front;
use crate::verify::check_all;

/// A copy in which a repair has saved the arenas of data without their summaries, and a backup has used them
/// since, which is the last of `made`; and one in which most of these arenas was forgotten and collected.
fn saved_and_collected(seed: u64) -> (World, [Side; 2], Vec<ArenaName>) {
    let world = if seed.is_multiple_of(2) { World::bare(seed) } else { World::by_value(seed, 8) };
    for file in 0..8 {
        world.write(&format!("file{file}"), &noise(seed + file, 1000));
    }
    let first = (world.backup().snapshot.id, world.image());
    let mut one = Side::copy_of(&world, &[]);
    let mut other = Side::copy_of(&world, &[]);
    let mut saved = Vec::new();
    for (object, mut bytes) in one.objects.snapshot() {
        let Some(name) = ArenaName::of(&object) else { continue };
        if ArenaContent::of(name.id) != ArenaContent::Data {
            continue;
        }
        assert!(wipe_front(&mut bytes));
        one.objects.replace(&object, &bytes).unwrap();
        saved.push(name);
    }
    one.repair(&world);
    world.write("further", &noise(seed + 99, 300));
    one.back_up(&world);
    for file in 1..8 {
        std::fs::remove_file(world.tree().join(format!("file{file}"))).unwrap();
    }
    other.back_up(&world);
    forget(&other.open(&world), &[first.0]).unwrap();
    other.prune(&world);
    (world, [one, other], saved)
}

impl Side {
    fn repair(&self, world: &World) {
        let plan = plan_repair(&*self.objects, &Silent, &Cancel::new()).unwrap();
        let outcome = repair(&self.open(world), &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.lost, [], "{outcome:?}");
    }

    fn generations(&self, arena: ArenaName) -> Vec<ArenaName> {
        let names = self.objects.snapshot().into_keys().filter_map(|name| ArenaName::of(&name));
        names.filter(|name| name.id == arena.id).collect()
    }
}

#[test]
fn what_was_saved_without_a_summary_is_read_beside_what_another_copy_rewrote() {
    let mut orders = [0, 0];
    for seed in 5600..5606 {
        let (world, [one, other], saved) = saved_and_collected(seed);
        let [saved] = saved[..] else { panic!("an arena of data: {saved:?}") };
        let unmarked = one.generations(saved);
        assert!(check_all(&one.open(&world)).is_sound(), "{seed}");
        let copied = replicate(&*other.objects, &*one.objects, &Silent, &Cancel::new()).unwrap();
        assert_eq!(copied.conflicts, [], "{seed}");
        let generations = one.generations(saved);
        let ([unmarked], [_, _]) = (&unmarked[..], &generations[..]) else {
            panic!("{seed}: {unmarked:?} {generations:?}")
        };
        orders[usize::from(*unmarked == generations[0])] += 1;
        let holds = |when: &str| {
            let found = check_all(&one.open(&world));
            assert!(found.faults.is_empty() && found.is_sound(), "{seed}, {when}: {found:?}");
            for side in [&one, &other] {
                for (id, image) in &side.made {
                    world.assert_holds(&one.open(&world), *id, image, &format!("{seed}, {when}"));
                }
            }
        };
        holds("brought together");
        one.prune(&world);
        holds("pruned");
        one.repair(&world);
        holds("repaired");
        let again = replicate(&*other.objects, &*one.objects, &Silent, &Cancel::new()).unwrap();
        assert_eq!((again.sent, again.conflicts.len()), (0, 0), "{seed}");
        one.prune(&world);
        holds("pruned again");
    }
    assert!(orders.iter().all(|count| *count > 0), "{orders:?}");
}

/// A saved generation goes once nothing names what it alone has; and not while a backup may rely on it that began when it was
/// the only one.
#[test]
fn what_was_saved_without_a_summary_goes_once_nothing_can_need_it() {
    let (world, [one, other], saved) = saved_and_collected(5606);
    let unmarked = one.generations(saved[0])[0];
    let repository = one.open(&world);
    replicate(&*other.objects, &*one.objects, &Silent, &Cancel::new()).unwrap();
    let is_there = || one.objects.size(&unmarked.object()).is_ok();
    let all: Vec<SnapshotId> = list_snapshots(&repository).unwrap().ids().collect();
    forget(&repository, &all).unwrap();
    one.repair(&world);
    assert!(is_there(), "a snapshot names it that can be taken back");
    one.prune(&world);
    let session = Session::begin(&repository, "host").unwrap();
    one.repair(&world);
    assert!(is_there(), "a session may rely on it");
    drop(session);
    assert_eq!(list_sessions(&repository).unwrap().len(), 0);
    one.repair(&world);
    assert!(!is_there() && check_all(&one.open(&world)).is_sound());
}
