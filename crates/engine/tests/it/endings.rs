//! A domain ends: what a thief of its key stores counts for nothing, and what counted stays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_catalog::{Recipe, Snapshot};
use strongroom_repository::objects::{ENDED_FOLDER, KEYS_FOLDER};
use strongroom_repository::{
    Repository, RepositoryError, Session, SnapshotList, SnapshotName, end_domain, find_snapshot,
    list_snapshots, read_snapshot,
};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{CallKind, Image, RecordingBackend};
use strongroom_upkeep::{
    EndingOutcome, Fault, NewAccess, PruneOptions, Since, VerifyDepth, VerifyOutcome, add_key,
    carry_out_ending, forget, plan_ending, plan_removals, plan_repair, prune, repair, verify,
    vouch,
};

use crate::domains::put_only;
use crate::world::{LAPTOP, World, options, run};

const SERVER: &[u8] =
    b"strongroom-key-3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3cd814f45f";

/// A machine with two backups, each of which the owner has looked at, and a thief with its key.
struct Stolen {
    world: World,
    thief: Repository,
    made: Vec<(SnapshotId, Image)>,
}

impl Stolen {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let thief = put_only(&world, "laptop", LAPTOP);
        let mut made = Vec::new();
        for turn in 0..2 {
            world.mutate(seed + turn);
            made.push((
                run(&thief, &options(&world.tree()), &Silent).unwrap().snapshot.id,
                world.image(),
            ));
            prune_all(&world).unwrap();
        }
        Self { world, thief, made }
    }

    /// What a thief commits, who does not ask whether the domain has ended.
    fn commit(&self, id: u8, root: &Recipe) -> SnapshotId {
        let id = SnapshotId([id; 16]);
        let session = Session::resume(&self.thief, id, 1000, "laptop").unwrap();
        let snapshot = Snapshot {
            root: root.clone(),
            host: "laptop".to_owned(),
            sequence: 1000,
            paths: vec![b"/".to_vec()],
            ..Snapshot::empty(id)
        };
        session.commit(&snapshot).unwrap();
        id
    }

    fn root(&self, place: usize) -> Recipe {
        read_snapshot(&self.world.open(), self.made[place].0).unwrap().root
    }

    fn end(&self, since: Option<Since>, keep: &[SnapshotId]) -> EndingOutcome {
        let owner = self.world.open();
        let plan = plan_ending(&owner, "laptop", since, keep).unwrap();
        carry_out_ending(&owner, &plan).unwrap()
    }

    fn list(&self) -> SnapshotList {
        list_snapshots(&self.world.open()).unwrap()
    }

    #[track_caller]
    fn assert_made_are_held(&self, when: &str) {
        for (id, image) in &self.made {
            self.world.assert_holds(&self.world.open(), *id, image, when);
        }
    }
}

fn prune_all(world: &World) -> Result<(), RepositoryError> {
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(&world.open(), &all, &Silent, &Cancel::new()).map(drop)
}

fn ids<'s>(snapshots: impl IntoIterator<Item = &'s Snapshot>) -> BTreeSet<SnapshotId> {
    snapshots.into_iter().map(|snapshot| snapshot.id).collect()
}

fn verified(world: &World, depth: VerifyDepth) -> VerifyOutcome {
    verify(&world.open(), depth, &Silent, &Cancel::new()).unwrap()
}

fn faults(outcome: &VerifyOutcome, fault: &Fault) -> Vec<String> {
    let of = outcome.faults.iter().filter(|(_, found)| found == fault);
    of.map(|(name, _)| name.to_string()).collect()
}

/// Kept 2.9: a thief opened the key before it was removed, and goes on to store in its name.
#[test]
fn kept_9_what_a_thief_stores_after_the_end_of_its_domain_counts_for_nothing() {
    let stolen = Stolen::new(4500);
    let Stolen { world, made, .. } = &stolen;
    let outcome = stolen.end(None, &[]);
    assert_eq!((outcome.keys.len(), outcome.late.len()), (1, 0));
    let late = stolen.commit(0xd1, &stolen.root(0));
    let list = stolen.list();
    assert_eq!(ids(&list.snapshots), made.iter().map(|(id, _)| *id).collect());
    assert_eq!(ids(&list.late), [late].into());
    let latest = SnapshotName::Latest(0);
    let latest = find_snapshot(&list.snapshots, &latest, b"", "latest").unwrap();
    assert_eq!(latest.id, made[1].0, "the thief's is not the latest");
    let verified = verified(world, VerifyDepth::Data);
    assert_eq!((&verified.late[..], verified.is_sound()), (&[late][..], true), "it is no damage");
    assert!(!verified.vouchable.is_empty(), "there would be something");
    assert_eq!(
        vouch(&world.open(), &verified).unwrap(),
        0,
        "no voucher is made for an ended domain"
    );
    // Neither a collection nor a repair removes anything of it before it is forgotten, and never what
    // counts.
    prune_all(world).unwrap();
    let owner = world.open();
    let mut plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
    plan_removals(&owner, &mut plan).unwrap();
    assert_eq!(repair(&owner, &plan, &Silent, &Cancel::new()).unwrap().taken_away, 0);
    assert_eq!(ids(&stolen.list().late), [late].into());
    forget(&owner, &[late]).unwrap();
    prune_all(world).unwrap();
    let list = stolen.list();
    assert_eq!((list.late.len(), list.forgotten.len()), (0, 0));
    stolen.assert_made_are_held("after the thief's snapshot was removed");
    assert!(verified_is_sound(world));
}

/// The end is said in two copies, each of which has a snapshot of the honest machine that the other has
/// not, and then they are brought together. Nothing of it is late, and what is said next replaces both.
#[test]
fn kept_ed1_ends_that_two_copies_say_are_united() {
    let stolen = Stolen::new(4506);
    let Stolen { world, thief, made } = &stolen;
    let mut made = made.clone();
    let copy = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    world.mutate(1);
    made.push((run(thief, &options(&world.tree()), &Silent).unwrap().snapshot.id, world.image()));
    stolen.end(None, &[]);
    let there = world.open_over(copy.clone()).unwrap();
    let plan = plan_ending(&there, "laptop", None, &[]).unwrap();
    carry_out_ending(&there, &plan).unwrap();
    assert_ne!(
        names_in(&world.objects.snapshot(), ENDED_FOLDER),
        names_in(&copy.snapshot(), ENDED_FOLDER)
    );
    for (name, object) in copy.snapshot() {
        let _ = world.objects.create(&name, &object);
    }
    assert_eq!((stolen.list().snapshots.len(), stolen.list().late.len()), (3, 0));
    assert!(verified_is_sound(world));
    for (id, image) in &made {
        world.assert_holds(&world.open(), *id, image, "brought together");
    }
    stolen.end(Some(Since::Snapshot(made[2].0)), &[]);
    assert_eq!(ids(&stolen.list().late), [made[2].0].into(), "a later one replaces both");
}

/// The last ending is lost, with its copy: the one before would count again, and that is noticed.
#[test]
fn kept_ed1_the_last_of_several_endings_is_not_lost_unnoticed() {
    let stolen = Stolen::new(4507);
    let Stolen { world, made, .. } = &stolen;
    stolen.end(None, &[]);
    let first = names_in(&world.objects.snapshot(), ENDED_FOLDER);
    stolen.end(Some(Since::Snapshot(made[1].0)), &[]);
    let mut names = names_in(&world.objects.snapshot(), ENDED_FOLDER);
    names.retain(|name| !first.contains(name));
    for name in &names {
        world.objects.remove(name).unwrap();
    }
    assert_eq!(stolen.list().late.len(), 0, "the first counts again");
    let lost = faults(&verified(world, VerifyDepth::Structure), &Fault::EndingLost);
    assert_eq!(lost, [names[0].to_string()]);
    forget(&world.open(), &[made[0].0]).unwrap();
    assert!(matches!(prune_all(world), Err(RepositoryError::EndingLost { .. })));
    stolen.end(Some(Since::Snapshot(made[1].0)), &[]);
    prune_all(world).unwrap();
    assert!(verified_is_sound(world));
}

fn verified_is_sound(world: &World) -> bool {
    verified(world, VerifyDepth::Data).is_sound()
}

/// What counted goes as everything else goes, and only the thief's copy of it needs its chunks then.
#[test]
fn a_late_snapshot_costs_no_counted_one_its_chunks_in_any_order() {
    for late_first in [true, false] {
        let stolen = Stolen::new(4501);
        let Stolen { world, made, .. } = &stolen;
        stolen.end(None, &[]);
        let late = stolen.commit(0xd2, &stolen.root(0));
        let (first, second) = if late_first { (late, made[0].0) } else { (made[0].0, late) };
        for going in [first, second] {
            forget(&world.open(), &[going]).unwrap();
            prune_all(world).unwrap();
            world.assert_holds(&world.open(), made[1].0, &made[1].1, "the other stays");
            assert!(verified(world, VerifyDepth::Data).affected.is_empty());
        }
    }
}

/// "It was stolen on Tuesday": the arrival decides, and what is named counts in any case.
#[test]
fn what_counts_is_what_the_owner_saw_before_or_names() {
    let stolen = Stolen::new(4502);
    let Stolen { world, made, .. } = &stolen;
    let (first, second) = (made[0].0, made[1].0);
    let counted = |since, keep: &[SnapshotId]| {
        let plan = plan_ending(&world.open(), "laptop", since, keep).unwrap();
        let counted = plan.snapshots.iter().filter(|weighed| weighed.counts);
        counted.map(|weighed| weighed.snapshot.id).collect::<Vec<_>>()
    };
    let plan = plan_ending(&world.open(), "laptop", None, &[]).unwrap();
    let seen: Vec<_> = plan.snapshots.iter().map(|weighed| weighed.seen).collect();
    assert!(seen[0] < seen[1], "the owner looked in between");
    assert_eq!(counted(None, &[]), [first, second]);
    assert_eq!(counted(Some(Since::Time(seen[1])), &[]), [first]);
    assert_eq!(counted(Some(Since::Time(seen[0])), &[]), []);
    assert_eq!(counted(Some(Since::Snapshot(second)), &[]), [first]);
    assert_eq!(counted(Some(Since::Snapshot(first)), &[]), []);
    assert_eq!(counted(Some(Since::Snapshot(first)), &[second]), [second]);
    let unknown = plan_ending(&world.open(), "laptop", None, &[SnapshotId([9; 16])]);
    assert!(matches!(unknown, Err(RepositoryError::NoSuchSnapshot { .. })));
    let unknown = plan_ending(&world.open(), "laptopp", None, &[]);
    assert!(matches!(unknown, Err(RepositoryError::NoSuchDomain { .. })));
    // Said too early, and put right: nothing was removed meanwhile.
    stolen.end(Some(Since::Snapshot(first)), &[]);
    assert_eq!(ids(&stolen.list().late), [first, second].into());
    prune_all(world).unwrap();
    stolen.end(None, &[second]);
    assert_eq!(ids(&stolen.list().snapshots), [second].into());
    stolen.end(None, &[first]);
    let list = stolen.list();
    assert_eq!(ids(&list.snapshots), [first, second].into(), "what counted before goes on to");
    stolen.assert_made_are_held("after the end");
}

#[test]
fn an_ended_domain_gets_no_key_stores_nothing_and_loses_its_slots() {
    let stolen = Stolen::new(4503);
    let Stolen { world, thief, .. } = &stolen;
    let server = put_only(world, "server", SERVER);
    let slots = || names_in(&world.objects.snapshot(), KEYS_FOLDER).len();
    let before = slots();
    stolen.end(None, &[]);
    assert_eq!(slots(), before - 2, "the slot and its copy");
    let added = add_key(&world.open(), LAPTOP, "x", NewAccess::PutOnly("laptop"), None);
    assert!(matches!(added, Err(RepositoryError::DomainEnded { .. })));
    // The honest program of a machine with an old copy of its slot says so.
    let begun = run(thief, &options(&world.tree()), &Silent);
    let error = begun.unwrap_err().to_string();
    assert!(error.contains("the domain \"laptop\" has ended"), "{error}");
    run(&server, &options(&world.tree()), &Silent).unwrap();
    world.backup();
    assert_eq!(stolen.list().snapshots.len(), 4, "others store as before");
}

/// The domain ends while a backup of it is on: its snapshot would count for nothing, so it says that.
#[test]
fn a_backup_whose_domain_ends_meanwhile_is_no_success() {
    let stolen = Stolen::new(4508);
    let world = &stolen.world;
    let owner = world.open();
    let is_done = AtomicBool::new(false);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_begin = call.kind == CallKind::Create && call.name.starts_with("arenas/");
        if is_begin && !is_done.swap(true, Ordering::Relaxed) {
            let plan = plan_ending(&owner, "laptop", None, &[]).unwrap();
            carry_out_ending(&owner, &plan).unwrap();
        }
    });
    let machine = world.open_with(world.over(Arc::new(acting)), LAPTOP).unwrap();
    world.mutate(9);
    let refused = run(&machine, &options(&world.tree()), &Silent).unwrap_err().to_string();
    assert!(refused.contains("the domain \"laptop\" has ended"), "{refused}");
    assert_eq!((stolen.list().snapshots.len(), stolen.list().late.len()), (2, 0));
}

#[test]
fn only_the_owner_ends_a_domain() {
    let stolen = Stolen::new(4504);
    let Stolen { world, thief, .. } = &stolen;
    assert!(matches!(
        end_domain(thief, "laptop", BTreeSet::new(), BTreeSet::new()),
        Err(RepositoryError::PutOnly)
    ));
    assert!(
        end_domain(&world.open(), "", BTreeSet::new(), BTreeSet::new()).is_err(),
        "the owner's does not end"
    );
    // The owner's word about one domain, moved to the name of another, ends none.
    stolen.end(None, &[]);
    let server = put_only(world, "server", SERVER);
    let honest = run(&server, &options(&world.tree()), &Silent).unwrap().snapshot.id;
    let of_laptop = names_in(&world.objects.snapshot(), ENDED_FOLDER).remove(0);
    let bytes = world.objects.read(&of_laptop, 0, 1 << 20).unwrap();
    let of_server = world.open().keys.owner.as_ref().unwrap().domain_id("server");
    let moved = ObjectName::new(ENDED_FOLDER, format!("{of_server}.1"));
    world.objects.create(&moved, &bytes).unwrap();
    assert!(ids(&stolen.list().snapshots).contains(&honest));
    run(&server, &options(&world.tree()), &Silent).unwrap();
    assert!(!verified(world, VerifyDepth::Structure).is_sound(), "it is named");
}

/// An end that is lost is read from its copy; if both are, that is noticed, and nothing is removed.
#[test]
fn the_end_of_a_domain_is_not_lost_unnoticed() {
    let stolen = Stolen::new(4505);
    let Stolen { world, made, .. } = &stolen;
    stolen.end(None, &[]);
    let late = stolen.commit(0xd3, &stolen.root(1));
    let names = names_in(&world.objects.snapshot(), ENDED_FOLDER);
    assert_eq!(names.len(), 2);
    for lost in &names {
        let whole = world.objects.snapshot();
        world.objects.remove(lost).unwrap();
        assert_eq!(ids(&stolen.list().late), [late].into(), "without {lost}");
        let found = verified(world, VerifyDepth::Structure);
        assert_eq!(faults(&found, &Fault::Missing), [lost.to_string()]);
        let owner = world.open();
        let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
        repair(&owner, &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(world.objects.snapshot()[lost], whole[lost], "written again from the other");
    }
    for lost in &names {
        world.objects.remove(lost).unwrap();
    }
    let found = verified(world, VerifyDepth::Structure);
    assert_eq!(faults(&found, &Fault::EndingLost), [names[0].to_string()]);
    forget(&world.open(), &[made[0].0]).unwrap();
    assert!(matches!(prune_all(world), Err(RepositoryError::EndingLost { .. })));
    // The owner says it again: with what came meanwhile named as the thief's.
    stolen.end(Some(Since::Snapshot(late)), &[]);
    assert_eq!(ids(&stolen.list().late), [late].into());
    prune_all(world).unwrap();
    world.assert_holds(&world.open(), made[1].0, &made[1].1, "what counts stays");
}
