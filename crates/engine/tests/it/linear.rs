//! What a verb costs grows with the history, not with its square.

use std::fs;
use std::sync::Arc;

use strongroom_backend::MemoryBackend;
use strongroom_base::{Cancel, Silent};
use strongroom_catalog::Snapshot;
use strongroom_engine::{FindPattern, Sighting, find};
use strongroom_repository::{Repository, list_snapshots};
use strongroom_testkit::{CallKind, Random, RecordingBackend};
use strongroom_upkeep::{VerifyDepth, snapshot_stats, verify};

use crate::world::{PASSPHRASE, World, init_options, options, run};

/// Directories of the tree, and files in each.
const SHAPE: (u64, u64) = (24, 6);

/// A repository with this many snapshots of a tree of which each changes a little.
fn history(snapshots: u64) -> World {
    let world = World::empty(snapshots);
    let mut random = Random::new(1);
    let file = |number: u64| {
        let directory = world.tree().join(format!("{}", number % SHAPE.0));
        fs::create_dir_all(&directory).unwrap();
        directory.join(format!("file-{}", number / SHAPE.0))
    };
    for number in 0..SHAPE.0 * SHAPE.1 {
        fs::write(file(number), random.noise(2000)).unwrap();
    }
    Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
    let repository = world.open();
    for _ in 0..snapshots {
        for _ in 0..4 {
            fs::write(file(random.below(SHAPE.0 * SHAPE.1)), random.noise(2000)).unwrap();
        }
        run(&repository, &options(&world.tree()), &Silent).unwrap();
    }
    world
}

/// Reads that a verb makes.
fn reads(world: &World, verb: Verb) -> usize {
    let backend: Arc<RecordingBackend<MemoryBackend>> =
        Arc::new(RecordingBackend::new(world.objects.clone()));
    let repository = world.open_over(backend.clone()).unwrap();
    backend.take();
    verb(&repository);
    backend.take().iter().filter(|call| call.kind == CallKind::Read).count()
}

#[test]
fn trial_06_the_cost_of_verbs_is_linear_in_the_history() {
    let (short, long) = (10, 200);
    let costs = [short, long].map(|snapshots| {
        let world = history(snapshots);
        verbs().map(|(name, verb)| (name, reads(&world, verb)))
    });
    for ((verb, before), (_, after)) in costs[0].iter().zip(&costs[1]) {
        let ratio = *after as f64 / *before as f64;
        assert!(ratio <= 1.3 * (long / short) as f64, "{verb}: {before} reads become {after}");
    }
}

type Verb = fn(&Repository);

fn verbs() -> [(&'static str, Verb); 7] {
    fn verify_to(repository: &Repository, depth: VerifyDepth) {
        assert!(verify(repository, depth, &Silent, &Cancel::new()).unwrap().is_sound());
    }
    fn stats_of(repository: &Repository, snapshots: &[Snapshot]) {
        let stats = snapshot_stats(repository, snapshots, &Silent, &Cancel::new()).unwrap();
        assert!(stats.iter().all(|stat| stat.files == SHAPE.0 * SHAPE.1));
    }
    fn find_all(repository: &Repository, pattern: FindPattern<'_>, expected: usize) {
        let snapshots = list_snapshots(repository).unwrap().snapshots;
        let mut found = 0;
        let mut visit = |_: &Sighting<'_>| {
            found += 1;
            Ok(())
        };
        let cancel = Cancel::new();
        find(repository, &snapshots, pattern, &mut visit, &Silent, &cancel).unwrap();
        assert_eq!(found, expected * snapshots.len());
    }
    [
        ("verify", |repository| verify_to(repository, VerifyDepth::Structure)),
        ("verify --data", |repository| verify_to(repository, VerifyDepth::Data)),
        ("stats of one", |repository| {
            stats_of(repository, &list_snapshots(repository).unwrap().snapshots[..1]);
        }),
        ("stats of all", |repository| {
            stats_of(repository, &list_snapshots(repository).unwrap().snapshots);
        }),
        ("find nothing", |repository| find_all(repository, FindPattern::Name(&|_, _| false), 0)),
        ("find no path", |repository| find_all(repository, FindPattern::Path(&|_, _| false), 0)),
        ("find one", |repository| {
            find_all(
                repository,
                FindPattern::Path(&|path, _| path.ends_with(b"/tree/7/file-3")),
                1,
            );
        }),
    ]
}
