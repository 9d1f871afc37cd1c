//! `prune --defragment`: what the newest snapshot needs is brought together, and nothing else
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_engine::backup;
use strongroom_repository::{
    Repository, RepositoryError, Session, Wishes, change_remark, list_snapshots,
};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::tree::{TreeOptions, grow, mutate};
use strongroom_testkit::{
    Calls, FaultKind, FaultPlan, FaultyBackend, Image, Listener, Random, noise,
};
use strongroom_upkeep::{
    Gathered, NewAccess, PruneOptions, VerifyDepth, add_key, defragment, forget, prune, remember,
    verify,
};

use crate::world::{LAPTOP, World, options, run, snapshot_ids};

/// Many small files, so that each version leaves most of them alone.
const TREE: TreeOptions =
    TreeOptions { entries: 60, chunk_bytes: 6 << 10, file_bytes_max: 40 << 10 };

const VERSIONS: u64 = 12;

/// A repository of many versions of one tree.
fn history(seed: u64) -> (World, Vec<(SnapshotId, Image)>) {
    let world = World::bare(seed);
    grow(&world.tree(), seed, TREE);
    let mut versions = Vec::new();
    for version in 0..VERSIONS {
        versions.push((world.backup().snapshot.id, world.image()));
        if version + 1 < VERSIONS {
            mutate(&world.tree(), 100 * seed + version, TREE);
        }
    }
    (world, versions)
}

fn gather(
    repository: &Repository,
    id: SnapshotId,
    bytes: u64,
) -> Result<Option<Gathered>, RepositoryError> {
    defragment(repository, id, bytes, &Silent, &Cancel::new())
}

fn prune_all(repository: &Repository) {
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(repository, &all, &Silent, &Cancel::new()).unwrap();
}

#[track_caller]
fn check_sound(repository: &Repository) {
    let outcome = verify(repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.is_sound(), "{:?}, {:?}", outcome.faults, outcome.affected);
    assert!(outcome.missing_sequences.is_empty(), "{:?}", outcome.missing_sequences);
}

#[test]
fn the_newest_lies_together_and_all_others_are_as_before() {
    let (world, versions) = history(1);
    let (newest, image) = versions.last().unwrap();
    let repository = world.open();
    let gathered = gather(&repository, *newest, u64::MAX).unwrap().unwrap();
    let (before, after) = (gathered.before, gathered.after);
    let to = gathered.to.expect("twelve versions are scattered");
    assert!(after.requests <= 4 && before.requests > 4 * after.requests, "{before:?} {after:?}");
    assert!(gathered.copied_bytes > 0);

    let list = list_snapshots(&repository).unwrap();
    let [old] = &list.forgotten[..] else { panic!("{:?}", list.forgotten) };
    let new = list.snapshots.last().unwrap();
    assert_eq!((old.id, new.id, new.parent), (*newest, to, Some(*newest)));
    assert_eq!((new.started, &new.host, &new.paths), (old.started, &old.host, &old.paths));
    assert_eq!(new.stats.files, old.stats.files);

    prune_all(&repository);
    for (id, image) in &versions[..versions.len() - 1] {
        world.assert_holds(&repository, *id, image, "an older one");
    }
    world.assert_holds(&repository, to, image, "the newest");
    assert!(!snapshot_ids(&repository).contains(newest));
    check_sound(&repository);

    let again = gather(&world.open(), to, u64::MAX).unwrap().unwrap();
    assert_eq!((again.to, again.before), (None, again.after), "there is nothing left to gain");
    assert!(world.objects.list("sessions").unwrap().is_empty());

    // The next backup takes everything over from it.
    let next = world.backup();
    assert_eq!(next.snapshot.parent, Some(to));
    assert_eq!(next.files_new + next.files_changed, 0);
    assert_eq!(next.written.data_bytes, 0);
    check_sound(&world.open());
}

#[test]
fn it_keeps_to_its_budget() {
    let (world, versions) = history(2);
    let (newest, image) = versions.last().unwrap();
    let all = gather(&world.open_objects(&world.objects.snapshot()).unwrap(), *newest, u64::MAX);
    let all = all.unwrap().unwrap();
    let some = gather(&world.open(), *newest, all.copied_bytes / 2).unwrap().unwrap();
    assert!(some.copied_bytes <= all.copied_bytes / 2, "{some:?}");
    let requests = (all.after.requests, some.after.requests, some.before.requests);
    assert!(requests.0 < requests.1 && requests.1 < requests.2, "{requests:?}");
    world.assert_holds(&world.open(), some.to.unwrap(), image, "within a budget");
    let none = gather(&world.open(), some.to.unwrap(), 0).unwrap().unwrap();
    assert_eq!((none.to, none.copied_bytes), (None, 0));
}

#[test]
fn a_snapshot_that_is_not_there_or_may_go_is_passed_over() {
    let (world, versions) = history(3);
    let repository = world.open();
    assert_eq!(gather(&repository, SnapshotId([7; 16]), u64::MAX).unwrap(), None);
    let (newest, _) = versions.last().unwrap();
    assert!(gather(&repository, *newest, u64::MAX).unwrap().is_some());
    assert_eq!(gather(&repository, *newest, u64::MAX).unwrap(), None, "it was forgotten");
    // A collection waits for a writer, and the wish is taken back too late.
    let newest = *snapshot_ids(&repository).last().unwrap();
    let session = Session::begin(&repository, "host").unwrap();
    forget(&repository, &[newest]).unwrap();
    prune_all(&repository);
    assert_eq!(remember(&repository, &[newest]).unwrap(), [newest]);
    assert_eq!(gather(&repository, newest, u64::MAX).unwrap(), None);
    drop(session);
}

/// The one in its place would be the newest of all, and rules would take it for that.
#[test]
fn what_is_not_the_newest_of_its_series_is_passed_over() {
    let (world, versions) = history(4);
    let (newest, _) = versions.last().unwrap();
    world.write("only here", b"and in no whole snapshot");
    let cancel = Cancel::new();
    let stop = Listener::on_work({
        let cancel = cancel.clone();
        move |path| {
            if path.ends_with("only here") {
                cancel.cancel()
            }
        }
    });
    let repository = world.open();
    let stopped = backup(&repository, &options(&world.tree()), &stop, &cancel).unwrap();
    assert!(stopped.snapshot.partial && stopped.committed, "{stopped:?}");
    assert_eq!(gather(&repository, *newest, u64::MAX).unwrap(), None);
    assert!(snapshot_ids(&repository).contains(newest));
}

/// Between any two calls to the store: every version can be restored, the newest as the old
/// snapshot or the new one.
#[test]
fn a_crash_at_any_call_loses_nothing() {
    let (world, versions) = history(4);
    let base = world.objects.snapshot();
    let (newest, image) = versions.last().unwrap();
    for at in 0.. {
        let plan =
            if at % 2 == 0 { FaultPlan::crash(at / 2) } else { FaultPlan::crash_after(at / 2) };
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan));
        let outcome =
            world.open_over(faulty).and_then(|repository| gather(&repository, *newest, u64::MAX));
        let repository = world.open_over(objects).unwrap();
        let found = snapshot_ids(&repository);
        let older = versions.len() - 1;
        assert!(
            found.iter().eq(versions.iter().take(older).map(|(id, _)| id).chain(&found[older..]))
        );
        assert!(matches!(found.len() - older, 1 | 2), "call {at}: {found:?}");
        for id in &found[older..] {
            world.assert_holds(&repository, *id, image, &format!("call {at}"));
        }
        if outcome.is_ok() {
            assert_ne!(found[older..], [*newest]);
            break;
        }
    }
}

/// A request that fails once, wherever: of the newest content one snapshot stays that is not forgotten.
#[test]
fn a_fault_at_any_call_forgets_not_both() {
    let (world, versions) = history(4);
    let base = world.objects.snapshot();
    let (newest, image) = versions.last().unwrap();
    let older = versions.len() - 1;
    for kind in [FaultKind::Io, FaultKind::LostAcknowledgement] {
        for at in 0.. {
            let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
            let plan = FaultPlan::hiccup(Calls::all(), at, kind);
            let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan));
            let outcome = world
                .open_over(faulty.clone())
                .and_then(|repository| gather(&repository, *newest, u64::MAX));
            let repository = world.open_over(objects).unwrap();
            let found = snapshot_ids(&repository);
            assert!(found.len() > older, "call {at}, {kind:?}: {outcome:?}");
            for id in &found[older..] {
                world.assert_holds(&repository, *id, image, &format!("call {at}, {kind:?}"));
            }
            if faulty.fired() == 0 {
                break;
            }
        }
    }
}

/// A backup that is still at work has its number already: it would come before what is put in the place of
/// the one before it.
#[test]
fn a_machine_that_is_storing_another_is_passed_over() {
    let (world, versions) = history(8);
    let (newest, _) = versions.last().unwrap();
    let repository = world.open();
    let host = options(&world.tree()).host;
    let session = Session::begin(&repository, &host).unwrap();
    assert_eq!(gather(&repository, *newest, u64::MAX).unwrap(), None);
    drop(session);
    let other = Session::begin(&repository, "another").unwrap();
    assert!(gather(&repository, *newest, u64::MAX).unwrap().unwrap().to.is_some());
    drop(other);
}

/// The description of a snapshot is that of the one which replaces it.
#[test]
fn its_description_goes_with_it() {
    let (world, versions) = history(5);
    let (newest, _) = versions.last().unwrap();
    let repository = world.open();
    change_remark(&repository, *newest, |remark| remark.description = "kept".to_owned()).unwrap();
    let to = gather(&repository, *newest, u64::MAX).unwrap().unwrap().to.unwrap();
    let wishes = Wishes::read(&repository).unwrap();
    assert_eq!(wishes.remarks().about(to).description, "kept");
}

/// Defragmenting knows of the collections before it, and says while it works how far it is.
#[test]
fn it_has_seen_the_collections_before_it() {
    let (world, versions) = history(10);
    let (newest, _) = versions.last().unwrap();
    let repository = world.open();
    forget(&repository, &[versions[0].0]).unwrap();
    prune_all(&repository);
    let listener = Listener::new();
    let gathered = defragment(&repository, *newest, u64::MAX, &listener, &Cancel::new());
    let to = gathered.unwrap().unwrap().to.unwrap();
    let said = listener.last_progress();
    assert!(said.bytes_new > 0, "{said:?}");
    let list = list_snapshots(&repository).unwrap();
    let seen = |id: SnapshotId| list.readable().into_iter().find(|it| it.id == id).unwrap().seen;
    assert_eq!((seen(*newest), seen(to)), (0, 1));
}

/// A snapshot for which only its maker could vouch, or that lacks something, is not replaced.
#[test]
fn what_cannot_be_replaced_stays_as_it_is() {
    let (world, _) = history(6);
    let repository = world.open();
    add_key(&repository, LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    let laptop = world.open_with(world.surroundings(), LAPTOP).unwrap();
    let mut all = options(&world.tree());
    all.host = "laptop".to_owned();
    let foreign = run(&laptop, &all, &Silent).unwrap().snapshot.id;
    let cancel = Cancel::new();
    let (stop, seen) = (cancel.clone(), AtomicU64::new(0));
    let listener = Listener::on_work(move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) == 2 {
            stop.cancel();
        }
    });
    world.mutate(7);
    let partial =
        backup(&repository, &options(&world.tree()), &listener, &cancel).unwrap().snapshot;
    assert!(partial.partial);
    let before = world.objects.snapshot();
    for (id, why) in [(foreign, "can only store"), (partial.id, "incomplete")] {
        match gather(&repository, id, u64::MAX) {
            Err(RepositoryError::Argument(said)) => {
                assert!(said.contains(why) && said.contains(&id.short().to_string()), "{said}");
            }
            other => panic!("{why}: {other:?}"),
        }
    }
    assert!(world.objects.snapshot() == before);
}

/// Chunks of the other arenas are brought together although one arena cannot be read.
#[test]
fn an_arena_that_cannot_be_read_hinders_nothing() {
    let (world, versions) = history(9);
    let (newest, _) = versions.last().unwrap();
    let base = world.objects.snapshot();
    let mut gathered = 0;
    for arena in names_in(&base, "arenas") {
        let mut objects = base.clone();
        objects.insert(arena, b"of this nothing is left".to_vec());
        let repository = world.open_objects(&objects).unwrap();
        let found = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
        let is_affected = found.affected.iter().any(|it| it.snapshot == *newest);
        let outcome = gather(&repository, *newest, u64::MAX);
        gathered += u64::from(is_affected && outcome.is_ok_and(|it| it.unwrap().to.is_some()));
    }
    assert!(gathered > 2, "{gathered}");
}

/// Night after night: where bringing chunks together wins nothing, what was written for it belongs to
/// nothing. No verb takes it for a snapshot that was removed.
#[test]
fn one_that_is_given_up_leaves_nothing_behind() {
    let world = World::bare(7);
    let big = |world: &World, night: u64| {
        let mut bytes = noise(7, 600_000);
        for change in 0..10 * night {
            let at = (change * 57_731) as usize % 600_000;
            bytes[at] = bytes[at].wrapping_add((change % 250) as u8 + 1);
        }
        world.write("big", &bytes);
    };
    let (mut given_up, mut random) = (0, Random::new(7));
    for night in 0..30 {
        big(&world, night);
        world.write(&format!("file {}", night % 5), &noise(100 + night, 80_000));
        world.write("night", format!("{night}").as_bytes());
        let newest = world.backup().snapshot.id;
        let repository = world.open();
        let ids = snapshot_ids(&repository);
        if ids.len() > 4 {
            let mut old: Vec<_> = list_snapshots(&repository).unwrap().readable();
            old.sort_by_key(|snapshot| snapshot.sequence);
            forget(&repository, &[old[0].id]).unwrap();
        }
        let budget = random.below(1 << (14 + night % 6));
        let gathered = gather(&repository, newest, budget).unwrap().unwrap();
        let is_given_up = gathered.to.is_none() && gathered.copied_bytes > 0;
        given_up += u64::from(is_given_up);
        for round in 0..2 {
            let listener = Listener::new();
            let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
            let pruned = prune(&repository, &all, &listener, &Cancel::new()).unwrap();
            assert_eq!(pruned.lost, [], "night {night}, round {round}");
            assert_eq!(listener.problems(), [], "night {night}, round {round}");
        }
        check_sound(&repository);
        let kept = gathered.to.unwrap_or(newest);
        world.assert_holds(&repository, kept, &world.image(), &format!("night {night}"));
    }
    assert!(given_up > 0, "it was never given up");
    assert_eq!(names_in(&world.objects.snapshot(), "forgotten"), [], "no wish is left");
}
