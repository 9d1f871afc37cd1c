//! A replica that is brought up to date and mirrored, night after night, beside a plain copy of the places.

use std::time::Duration;

use strongroom_upkeep::{PruneOptions, preview_mirror, remember};

use super::*;

fn names(plan: &[strongroom_backend::ObjectInfo]) -> BTreeSet<(String, u64)> {
    plan.iter().map(|info| (info.name.to_string(), info.bytes)).collect()
}

/// The objects of a place, without those that a replica never has.
fn lasting(objects: &Objects) -> Objects {
    let lasts = |name: &ObjectName| name.folder() != "sessions" && !name.file().ends_with(".plan");
    objects
        .iter()
        .filter(|(name, _)| lasts(name))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}

/// After each night the replica is the repository, what was removed is what the rehearsal said, and the
/// sums are what is gone.
#[test]
fn a_mirror_does_what_its_rehearsal_says() {
    let world = World::new(670);
    let memory = Arc::new(MemoryBackend::new());
    let target: Arc<dyn Backend> = memory.clone();
    let mut ids = Vec::new();
    let mut most = 0;
    for night in 0..8_u64 {
        let repository = world.open();
        ids.push(world.backup().snapshot.id);
        world.mutate(680 + night);
        if night == 4 {
            // Forgotten, and taken back before anything was removed.
            forget(&repository, &ids[..1]).unwrap();
            remember(&repository, &ids[..1]).unwrap();
        }
        // In some nights several collections end.
        for _ in 0..[0, 1, 0, 2, 1, 0, 1, 1][night as usize] {
            forget(&repository, &[ids.remove(0)]).unwrap();
            prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        }
        let rehearsed = preview_mirror(&repository, &target).unwrap();
        copy(repository.backend(), &*target).unwrap();
        let plan = plan_mirror(&repository, &target).unwrap();
        assert_eq!(names(&rehearsed.remove), names(&plan.remove), "night {night}");
        assert_eq!(names(&rehearsed.collections), names(&plan.collections), "night {night}");
        let before = memory.snapshot();
        let done = mirror(&repository, &target, &plan, &Silent, &Cancel::new()).unwrap();
        let again = plan_mirror(&repository, &target).unwrap();
        assert_eq!((again.collections, again.remove), (vec![], vec![]), "night {night}");
        let after = memory.snapshot();
        let gone: Vec<_> = before.iter().filter(|(name, _)| !after.contains_key(*name)).collect();
        let bytes = gone.iter().map(|(_, object)| object.len() as u64).sum();
        assert_eq!(done, MirrorOutcome { removed: gone.len() as u64, removed_bytes: bytes });
        most = most.max(done.removed);
        let (here, there) = (lasting(&world.objects.snapshot()), lasting(&after));
        let differing: Vec<&ObjectName> = here
            .keys()
            .chain(there.keys())
            .filter(|name| here.get(*name) != there.get(*name))
            .collect();
        assert!(differing.is_empty(), "night {night}: {differing:?}");
    }
    assert!(most > 3, "{most}");
}

/// A verdict that is there before the copy begins is carried out during it: what is rewritten meanwhile is
/// sent, though no verdict is new.
#[test]
fn a_verdict_is_carried_out_during_a_copy() {
    for late in 0..12 {
        let world = World::new(690);
        let mut kept = Vec::new();
        for night in 0..4_u64 {
            kept.push((world.backup().snapshot.id, world.image()));
            world.mutate(700 + night);
        }
        let repository = world.open();
        forget(&repository, &[kept[0].0, kept[1].0]).unwrap();
        let hasty = PruneOptions { time_max: Some(Duration::ZERO), ..ALL };
        let begun = prune(&repository, &hasty, &Silent, &Cancel::new()).unwrap().carried;
        assert!(begun.arenas_left > 2, "{begun:?}");
        let (other, reads) = (world.open(), AtomicU64::new(0));
        let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
            let is_sent = call.kind == CallKind::Read && call.folder() == "arenas";
            if is_sent && reads.fetch_add(1, Ordering::Relaxed) == late {
                let rest = prune(&other, &ALL, &Silent, &Cancel::new()).unwrap().carried;
                assert_eq!(rest.arenas_left, 0);
            }
        });
        let target = Arc::new(MemoryBackend::new());
        copy(&acting, &*target).unwrap();
        check_complete(&world, target, &kept[2..], &format!("after {late} reads"));
    }
}
