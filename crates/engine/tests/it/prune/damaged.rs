//! An arena that is lost or damaged: what needs it stops a prune, and nothing else does.

use strongroom_testkit::noise;
use strongroom_upkeep::{Later, plan_repair, prune_later};

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
            let outcome = collect(&repository).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(outcome.snapshots.len(), forgotten.len(), "{what}");
            assert_eq!(names_in(&place.snapshot(), "snapshots").len(), kept.len(), "{what}");
            let is_end = |name: &&ObjectName| name.file().ends_with(".done");
            let ends = names_in(&place.snapshot(), "collections");
            rounds_most = rounds_most.max(ends.iter().filter(is_end).count());
            for (id, image) in &kept {
                world.assert_holds(&world.open_over(place.clone()).unwrap(), *id, image, &what);
            }
        }
    }
    assert_eq!(rounds_most, forgotten.len(), "there is room for one in each");
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

/// A snapshot was removed without having been forgotten, and a delta of it has its base in an arena that
/// cannot be read: that stops nothing, neither at once nor the next night.
#[test]
fn a_delta_of_a_removed_snapshot_without_its_base_stops_nothing() {
    let world = World::bare(46);
    let mut made = Vec::new();
    let mut arenas = Vec::new();
    for version in 0..4 {
        let own = world.tree().join("own");
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir_all(&own).unwrap();
        // The second is like the first, and the others are like nothing.
        let mut bytes = noise(if version == 1 { 0 } else { version }, 300_000);
        if version == 1 {
            (0..30).for_each(|at| bytes[at * 10_000] ^= 0x5c);
        }
        world.write("own/long", &bytes);
        made.push((world.backup().snapshot.id, world.image()));
        arenas.push(names_in(&world.objects.snapshot(), "arenas"));
    }
    let (removed, kept) = (made[1].0, &made[2..]);
    forget(&world.open(), &[made[0].0]).unwrap();
    world.objects.remove(&strongroom_repository::snapshot_object(removed)).unwrap();
    let before = world.objects.snapshot();
    let is_data = |name: &&ObjectName| {
        ArenaContent::of(ArenaName::of(name).unwrap().id) == ArenaContent::Data
    };
    let base = arenas[0].iter().find(is_data).unwrap();
    let later = |repository: &Repository| {
        prune_later(repository, &ALL, &Silent, &Cancel::new()).map(|later| match later {
            Later::Pruned(outcome) => *outcome,
            Later::Doubted(found) => panic!("{:?}", found.faults),
        })
    };
    for is_later in [false, true] {
        let mut objects = before.clone();
        objects.get_mut(base).unwrap().fill(0);
        let place = Arc::new(MemoryBackend::from_snapshot(objects));
        let repository = world.open_over(place.clone()).unwrap();
        let outcome = if is_later { later(&repository) } else { collect(&repository) }.unwrap();
        assert_eq!(outcome.lost, [removed]);
        assert_eq!(outcome.snapshots.len(), 1);
        // What was condemned goes now, though another program has condemned it.
        let outcome = collect(&repository).unwrap();
        assert_eq!(outcome.lost, [removed]);
        let left = list_snapshots(&repository).unwrap();
        assert!(left.forgotten.is_empty(), "it was carried out");
        for (id, image) in kept {
            world.assert_holds(&repository, *id, image, "kept");
        }
    }
}

/// What is to be forgotten since a plan or a verdict was made cannot be read: neither that nor the next one
/// waits for it for ever.
#[test]
fn what_is_to_be_forgotten_since_and_cannot_be_read_stops_no_prune() {
    let world = World::bare(47);
    let mut made = Vec::new();
    let mut arenas = Vec::new();
    for version in 0..4 {
        let own = world.tree().join("own");
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir_all(world.tree()).unwrap();
        grow(&own, 470 + version, TREE);
        made.push((world.backup().snapshot.id, world.image()));
        arenas.push(names_in(&world.objects.snapshot(), "arenas"));
    }
    let (first, second, kept) = (made[0].0, made[1].0, &made[2..]);
    forget(&world.open(), &[first]).unwrap();
    let is_metadata = |name: &&ObjectName| {
        ArenaContent::of(ArenaName::of(name).unwrap().id) == ArenaContent::Metadata
    };
    let of_second = arenas[1].iter().filter(|name| !arenas[0].contains(name));
    let of_second: Vec<&ObjectName> = of_second.filter(is_metadata).collect();
    let planned = |repository: &Repository| {
        prune_later(repository, &ALL, &Silent, &Cancel::new()).unwrap();
    };
    let decided = |repository: &Repository| {
        planned(repository);
        let plan = Collections::read(repository).unwrap().open.unwrap();
        create_verdict(repository, plan.number, &plan.selection).unwrap();
    };
    for stage in ["planned", "decided"] {
        for (how, damage) in DAMAGES {
            let what = format!("{stage}, {how}");
            let place = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
            let repository = world.open_over(place.clone()).unwrap();
            match stage {
                "planned" => planned(&repository),
                _ => decided(&repository),
            }
            for name in &of_second {
                match damage {
                    None => place.remove(name).unwrap(),
                    Some(damage) => {
                        let mut object = place.snapshot()[*name].clone();
                        damage(&mut object);
                        place.replace(name, &object).unwrap();
                    }
                }
            }
            forget(&repository, &[second]).unwrap();
            let outcome = collect(&repository).unwrap_or_else(|error| panic!("{what}: {error}"));
            let gone: Vec<SnapshotId> = outcome.snapshots.iter().map(|going| going.id).collect();
            assert!(gone.contains(&first) && gone.contains(&second), "{what}: {gone:?}");
            if stage == "decided" && matches!(how, "removed" | "zeros") {
                assert!(outcome.carried.arenas_put_off > 0, "{what}");
            }
            assert!(list_snapshots(&repository).unwrap().forgotten.is_empty(), "{what}");
            for (id, image) in kept {
                world.assert_holds(&world.open_over(place.clone()).unwrap(), *id, image, &what);
            }
        }
    }
}

/// A verdict was not carried out, and then the object of a kept snapshot becomes rubbish: neither does the
/// prune wait for the repair for ever, nor the repair for the prune.
#[test]
fn a_prune_and_a_repair_do_not_wait_for_each_other() {
    let world = World::bare(48);
    let mut made = Vec::new();
    for version in 0..4 {
        let own = world.tree().join("own");
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir_all(world.tree()).unwrap();
        grow(&own, 480 + version, TREE);
        made.push((world.backup().snapshot.id, world.image()));
    }
    forget(&world.open(), &[made[0].0]).unwrap();
    let repository = world.open();
    prune_later(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let plan = Collections::read(&repository).unwrap().open.unwrap();
    assert!(!plan.selection.slots.is_empty());
    create_verdict(&repository, plan.number, &plan.selection).unwrap();
    let spoilt = strongroom_repository::snapshot_object(made[2].0);
    world.objects.replace(&spoilt, &[0x5c; 16]).unwrap();
    let error = collect(&repository).unwrap_err();
    assert!(matches!(error, RepositoryError::NotCollectable { .. }), "{error}");
    assert!(Collections::read(&repository).unwrap().open.is_none());
    let mut plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
    plan_recovery(&repository, &mut plan, &Silent, &Cancel::new()).unwrap();
    let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.recovered, outcome.recover_later.len()), (1, 0), "{outcome:?}");
    collect(&repository).unwrap();
    for (id, image) in &made[1..] {
        world.assert_holds(&repository, *id, image, "after both");
    }
}
