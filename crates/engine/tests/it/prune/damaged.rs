//! An arena that is lost or damaged: what needs it stops a prune, and nothing else does.

use strongroom_testkit::noise;

use super::*;
use crate::read_back::salvage;
use crate::restore::{into, run_restore};

/// How an arena is damaged; none if it is removed.
type Damage = fn(&mut Vec<u8>);

const DAMAGES: [(&str, Option<Damage>); 5] = [
    ("removed", None),
    ("zeros", Some(|object| object.fill(0))),
    ("a part of it zeros", Some(|object| object[64..1024].fill(0))),
    ("cut in half", Some(|object| object.truncate(object.len() / 2))),
    ("the last bytes cut", Some(|object| object.truncate(object.len() - 20))),
];

#[test]
fn an_arena_that_is_damaged_stops_what_needs_it() {
    let world = World::bare(43);
    grow(&world.tree(), 43, TREE);
    let (mut kept, mut forgotten) = (Vec::new(), Vec::new());
    for version in 0..4 {
        let made = (world.backup().snapshot.id, world.image());
        if version == 1 { &mut forgotten } else { &mut kept }.push(made);
        mutate(&world.tree(), 430 + version, TREE);
        let own = world.tree().join("own");
        let _ = std::fs::remove_dir_all(&own);
        grow(&own, 440 + version, TREE);
    }
    forget(&world.open(), &[forgotten[0].0]).unwrap();
    let before = world.objects.snapshot();
    let pruned = Arc::new(MemoryBackend::from_snapshot(before.clone()));
    collect(&world.open_over(pruned.clone()).unwrap()).unwrap();
    let after = pruned.snapshot();
    let arenas = |objects: &Objects| -> std::collections::BTreeSet<String> {
        let names = names_in(objects, "arenas");
        names.iter().map(|name| name.file().split('.').next().unwrap().to_owned()).collect()
    };
    let stays = arenas(&after);
    assert!(stays.len() < arenas(&before).len());
    let (mut stopped, mut needless, mut healed) = (0, 0, 0);
    for name in names_in(&before, "arenas") {
        for (how, damage) in DAMAGES {
            let what = format!("{name} {how}");
            let mut objects = before.clone();
            match damage {
                None => drop(objects.remove(&name)),
                Some(damage) => damage(objects.get_mut(&name).unwrap()),
            }
            let place = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
            let repository = world.open_over(place.clone()).unwrap();
            let was_read = |repository: &Repository| -> Vec<_> {
                let read = |(id, _): &(SnapshotId, Image)| {
                    salvage(repository, *id, &world.tree()).map_err(|error| error.to_string())
                };
                kept.iter().map(read).collect()
            };
            let whole = was_read(&repository);
            let is_needed = stays.contains(name.file().split('.').next().unwrap());
            let is_whole = whole.iter().flatten().all(|(_, lost)| lost.is_empty())
                && whole.iter().all(Result::is_ok);
            match collect(&repository) {
                Ok(outcome) => {
                    assert!(!is_needed || is_whole, "{what}: {outcome:?}");
                    let is_all = outcome.carried.arenas_put_off == 0 && is_whole;
                    needless += u32::from(!is_needed);
                    healed += u32::from(is_needed && is_all);
                }
                Err(RepositoryError::NotCollectable { what: named, why }) => {
                    // What is needed of it may be in the half that is left.
                    let is_due = is_needed && (!is_whole || how == "cut in half");
                    assert!(is_due, "{what}: {named}: {why}");
                    let left = place.snapshot();
                    let is_there = |(name, object): (&ObjectName, &Vec<u8>)| {
                        name.folder() == "collections" || left.get(name) == Some(object)
                    };
                    assert!(objects.iter().all(is_there), "{what}");
                    assert!(
                        named.contains("arena") || named.contains("snapshot"),
                        "{what}: {named}"
                    );
                    stopped += 1;
                }
                Err(error) => panic!("{what}: {error}"),
            }
            // What could be read before can be read now.
            let now = was_read(&world.open_over(place).unwrap());
            for (was, is) in whole.iter().zip(now) {
                if let Ok((was, lost)) = was {
                    let (is, lost_now) = is.unwrap();
                    was.assert_same(&is, &what);
                    assert_eq!(lost.len(), lost_now.len(), "{what}");
                }
            }
        }
    }
    assert!(stopped > 10 && needless >= 5 && healed > 5, "{stopped} {needless} {healed}");
}

/// A plan has room for some of the snapshots that are to be forgotten. What the others lack keeps no prune
/// from carrying it out, and so from coming to them.
#[test]
fn what_is_to_be_forgotten_and_had_no_room_stops_no_prune() {
    let mut world = World::bare(44);
    let (mut kept, mut forgotten) = (Vec::new(), Vec::new());
    for version in 0..5 {
        let own = world.tree().join("own");
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir_all(world.tree()).unwrap();
        grow(&own, 450 + version, TREE);
        let made = (world.backup().snapshot.id, world.image());
        if version < 3 { &mut forgotten } else { &mut kept }.push(made);
    }
    let ids: Vec<SnapshotId> = forgotten.iter().map(|(id, _)| *id).collect();
    forget(&world.open(), &ids).unwrap();
    world.limits.plan_snapshots_bytes_max = 50;
    let before = world.objects.snapshot();
    let mut rounds_most = 0;
    for name in names_in(&before, "arenas") {
        for (how, damage) in DAMAGES {
            let what = format!("{name} {how}");
            let mut objects = before.clone();
            match damage {
                None => drop(objects.remove(&name)),
                Some(damage) => damage(objects.get_mut(&name).unwrap()),
            }
            let place = Arc::new(MemoryBackend::from_snapshot(objects));
            let repository = world.open_over(place.clone()).unwrap();
            let are_whole = kept.iter().all(|(id, _)| {
                salvage(&repository, *id, &world.tree()).is_ok_and(|(_, lost)| lost.is_empty())
            });
            if !are_whole {
                continue;
            }
            let mut rounds = 0;
            while names_in(&place.snapshot(), "snapshots").len() > kept.len() {
                let outcome =
                    collect(&repository).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(outcome.snapshots.len(), 1, "{what}: there is room for one");
                rounds += 1;
            }
            rounds_most = rounds_most.max(rounds);
            for (id, image) in &kept {
                world.assert_holds(&world.open_over(place.clone()).unwrap(), *id, image, &what);
            }
        }
    }
    assert_eq!(rounds_most, forgotten.len(), "arenas that only what is forgotten needs");
}

/// A snapshot was removed without having been forgotten, and an arena is damaged besides: what else a
/// repair could bring back of it stays.
#[test]
fn what_is_left_of_a_removed_snapshot_stays_beside_a_damaged_arena() {
    let world = World::bare(45);
    let mut made = Vec::new();
    for version in 0..4 {
        let own = world.tree().join("own");
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir_all(world.tree()).unwrap();
        grow(&own, 460 + version, TREE);
        world.write("own/long", &noise(version, 300_000));
        made.push((world.backup().snapshot.id, world.image()));
    }
    forget(&world.open(), &[made[0].0]).unwrap();
    let removed = made[1].0;
    let object = strongroom_repository::snapshot_object(removed);
    let before = world.objects.snapshot();
    let (mut collected, mut partly) = (0, 0);
    for name in names_in(&before, "arenas") {
        for (how, damage) in DAMAGES {
            let what = format!("{name} {how}");
            let mut objects = before.clone();
            match damage {
                None => drop(objects.remove(&name)),
                Some(damage) => damage(objects.get_mut(&name).unwrap()),
            }
            let place = Arc::new(MemoryBackend::from_snapshot(objects));
            let repository = world.open_over(place.clone()).unwrap();
            // All that a restore gives of it, parts of files too.
            let had = |repository: &Repository| {
                let folder = tempfile::tempdir().unwrap();
                let target = folder.path().join("tree");
                let outcome =
                    run_restore(repository, removed, &into(&world.tree(), &target)).ok()?;
                let mut image = Image::of(&target);
                // What is set aside has the time at which it was.
                image.nodes.values_mut().for_each(|node| node.mtime = 0);
                Some((image, outcome.damaged.len()))
            };
            let Some((was, damaged)) = had(&repository) else { continue };
            place.remove(&object).unwrap();
            let outcome = collect(&repository);
            collected += u32::from(outcome.is_ok());
            place.create(&object, &before[&object]).unwrap();
            let (is, damaged_now) = had(&world.open_over(place).unwrap()).unwrap();
            was.assert_same(&is, &what);
            assert_eq!(damaged, damaged_now, "{what}");
            partly += u32::from(outcome.is_ok() && damaged > 0);
        }
    }
    assert!(collected > 10 && partly > 3, "{collected} {partly}");
}
