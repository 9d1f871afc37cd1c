//! What the owner says of snapshots after they were made: holds, labels, descriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_backend::{Backend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId, Timestamp};
use strongroom_repository::objects::{REMARKS_FOLDER, expected};
use strongroom_repository::{
    Hold, Repository, RepositoryError, Session, Wishes, change_remark, list_snapshots,
    list_wishes_and_remarks,
};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{CallKind, RecordingBackend, TickingClock};
use strongroom_upkeep::{
    NewAccess, PruneOptions, PruneOutcome, add_key, forget, hold, prune, release, remember,
};

use crate::world::{LAPTOP, World, snapshot_ids};

fn audit() -> Hold {
    Hold { reason: "audit".to_owned(), until: None }
}

fn collect(repository: &Repository) -> PruneOutcome {
    prune(repository, &PruneOptions::default(), &Silent, &Cancel::new()).unwrap()
}

/// A repository of three snapshots.
fn three(seed: u64) -> (World, [SnapshotId; 3]) {
    let world = World::bare(seed);
    let ids = [0, 1, 2].map(|version| {
        world.write("file", format!("version {version}").as_bytes());
        world.backup().snapshot.id
    });
    (world, ids)
}

fn is_held(repository: &Repository, id: SnapshotId) -> bool {
    Wishes::read(repository).unwrap().hold(id).is_some()
}

fn remark_name(id: SnapshotId, number: u32) -> ObjectName {
    ObjectName::new(REMARKS_FOLDER, format!("{id}.{number}"))
}

#[test]
fn a_held_snapshot_is_not_forgotten_until_it_is_released() {
    let (world, [one, two, _]) = three(1);
    let repository = world.open();
    assert_eq!(hold(&repository, &[one], &audit()).unwrap(), []);
    let refused = forget(&repository, &[two, one]);
    assert!(matches!(refused, Err(RepositoryError::Held { snapshot, .. }) if snapshot == one));
    assert_eq!(list_snapshots(&repository).unwrap().forgotten.len(), 0, "the other one neither");
    assert_eq!(collect(&repository).snapshots.len(), 0);
    release(&repository, &[one, two]).unwrap();
    assert_eq!(forget(&repository, &[one]).unwrap(), 1);
    assert_eq!(collect(&repository).snapshots.len(), 1);
    assert_eq!(snapshot_ids(&repository).len(), 2);
    let left = names_in(&world.objects.snapshot(), REMARKS_FOLDER);
    assert_eq!(left, [], "what was said of it went with it");
}

/// A second hold for another reason ends no first one before its time, and hides no reason.
#[test]
fn a_hold_ends_no_longer_one() {
    let (world, [one, ..]) = three(9);
    let repository = world.open();
    let until = |seconds: i64| Some(Timestamp(TickingClock::START.0 + seconds * 1_000_000_000));
    let report = Hold { reason: "report".to_owned(), until: until(100_000) };
    hold(&repository, &[one], &report).unwrap();
    let longer = Hold { reason: "court".to_owned(), until: None };
    hold(&repository, &[one], &longer).unwrap();
    let held = Wishes::read(&repository).unwrap().hold(one).unwrap();
    assert_eq!((held.reason.as_str(), held.until), ("report; court", None));
    let refused = hold(&repository, &[one], &report);
    let is_it = |error: &RepositoryError| matches!(error, RepositoryError::HeldLonger { .. });
    assert!(refused.as_ref().is_err_and(is_it), "{refused:?}");
    hold(&repository, &[one], &longer).unwrap();
    let held = Wishes::read(&repository).unwrap().hold(one).unwrap();
    assert_eq!((held.reason.as_str(), held.until), ("report; court", None), "said again");
    let more = Hold { reason: "report; court, and its appeal".to_owned(), until: None };
    hold(&repository, &[one], &more).unwrap();
    let held = Wishes::read(&repository).unwrap().hold(one).unwrap();
    assert_eq!(held.reason, more.reason, "it says all that was said before");
}

#[test]
fn a_hold_ends_by_the_clock_of_the_owner() {
    let (world, [one, ..]) = three(2);
    let repository = world.open();
    let until = |seconds: i64| Some(Timestamp(TickingClock::START.0 + seconds * 1_000_000_000));
    hold(&repository, &[one], &Hold { until: until(100_000), ..audit() }).unwrap();
    assert!(is_held(&repository, one));
    hold(&repository, &[one], &Hold { until: until(1), ..audit() }).unwrap();
    assert!(!is_held(&repository, one), "it is over");
    assert_eq!(forget(&repository, &[one]).unwrap(), 1);
}

/// A hold that was acknowledged holds, also if a wish came first.
#[test]
fn to_hold_takes_a_wish_back_until_a_plan_has_it() {
    let (world, [one, two, three]) = three(3);
    let repository = world.open();
    forget(&repository, &[one, two]).unwrap();
    assert_eq!(hold(&repository, &[one], &audit()).unwrap(), []);
    release(&repository, &[one]).unwrap();
    assert!(snapshot_ids(&repository).contains(&one), "the wish is taken back");
    // An open session keeps the collection from its verdict.
    let session = Session::begin(&repository, "host").unwrap();
    assert_eq!(collect(&repository).waiting.len(), 1);
    assert_eq!(hold(&repository, &[two], &audit()).unwrap(), [two], "it may be too late");
    drop(session);
    assert_eq!(collect(&repository).snapshots, [], "the collector has read it again");
    assert_eq!(snapshot_ids(&repository), [one, two, three]);
}

/// A wish and a hold that know nothing of each other: the snapshot stays.
#[test]
fn a_hold_is_stronger_than_a_wish() {
    let (world, [one, ..]) = three(4);
    let repository = world.open();
    forget(&repository, &[one]).unwrap();
    change_remark(&repository, one, |remark| remark.hold = Some(audit())).unwrap();
    assert!(snapshot_ids(&repository).contains(&one));
    assert_eq!(collect(&repository).snapshots, []);
    assert_eq!(remember(&repository, &[one]).unwrap(), [], "the wish can still be taken back");
    release(&repository, &[one]).unwrap();
    assert!(snapshot_ids(&repository).contains(&one));
}

/// Between the two looks of `forget`, another process holds the snapshot.
#[test]
fn a_hold_during_a_forget_is_noticed() {
    let (world, [one, two, _]) = three(5);
    let holder = world.open();
    let is_done = AtomicBool::new(false);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_wish = call.kind == CallKind::Create && call.name.starts_with("forgotten/");
        if is_wish && !is_done.swap(true, Ordering::Relaxed) {
            change_remark(&holder, one, |remark| remark.hold = Some(audit())).unwrap();
        }
    });
    let forgetter = world.open_over(Arc::new(acting)).unwrap();
    let refused = forget(&forgetter, &[one, two]);
    assert!(matches!(refused, Err(RepositoryError::Held { snapshot, .. }) if snapshot == one));
    let repository = world.open();
    release(&repository, &[one]).unwrap();
    assert_eq!(snapshot_ids(&repository).len(), 3, "its wishes are taken back");
}

#[test]
fn labels_and_descriptions_are_given_later() {
    let (world, [one, two, _]) = three(6);
    let repository = world.open();
    change_remark(&repository, one, |remark| remark.labels = Some(vec!["gold".to_owned()]))
        .unwrap();
    hold(&repository, &[one], &audit()).unwrap();
    change_remark(&repository, one, |remark| remark.description = "the first".to_owned()).unwrap();
    let list = list_snapshots(&repository).unwrap();
    let labels: Vec<&[String]> = list.snapshots.iter().map(|s| s.labels.as_slice()).collect();
    assert_eq!(labels, [&["gold".to_owned()][..], &[], &[]]);
    assert_eq!(list.wishes.remarks().about(one).description, "the first");
    assert_eq!(list.wishes.hold(one), Some(audit()), "nothing is lost by another change");
    assert_eq!(list.wishes.hold(two), None);
    let before = world.objects.snapshot().len();
    change_remark(&repository, one, |remark| remark.description = "the first".to_owned()).unwrap();
    assert_eq!(world.objects.snapshot().len(), before, "what changes nothing is not stored");
}

/// Two changes at the same time: the second begins with what the first has left.
#[test]
fn changes_at_the_same_time_are_both_kept() {
    let (world, [one, ..]) = three(7);
    let other = world.open();
    let is_done = AtomicBool::new(false);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_remark = call.kind == CallKind::Create && call.name.starts_with("remarks/");
        if is_remark && !is_done.swap(true, Ordering::Relaxed) {
            change_remark(&other, one, |remark| remark.hold = Some(audit())).unwrap();
        }
    });
    let first = world.open_over(Arc::new(acting)).unwrap();
    change_remark(&first, one, |remark| remark.description = "the first".to_owned()).unwrap();
    let wishes = Wishes::read(&world.open()).unwrap();
    assert_eq!(wishes.hold(one), Some(audit()));
    assert_eq!(wishes.remarks().about(one).description, "the first");
}

#[test]
fn only_the_owner_says_something_of_a_snapshot() {
    let (world, [one, two, three]) = three(8);
    let repository = world.open();
    add_key(&repository, LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    let laptop = Repository::open(world.surroundings(), LAPTOP).unwrap();
    let refused = change_remark(&laptop, one, |remark| remark.hold = Some(audit()));
    assert!(matches!(refused, Err(RepositoryError::PutOnly)));
    // Another owner's does not count, nor does one of another snapshot.
    let other = World::bare(9);
    let theirs = Hold { reason: "of another owner".to_owned(), until: None };
    change_remark(&other.open(), one, |remark| remark.hold = Some(theirs.clone())).unwrap();
    let forged = names_in(&other.objects.snapshot(), REMARKS_FOLDER).remove(0);
    world.objects.create(&forged, &other.objects.snapshot()[&forged]).unwrap();
    change_remark(&repository, two, |remark| remark.hold = Some(audit())).unwrap();
    let names = names_in(&world.objects.snapshot(), REMARKS_FOLDER);
    let of_two = names.iter().find(|name| **name != forged).unwrap();
    let (_, number) = of_two.file().split_once('.').unwrap();
    let of_two = world.objects.snapshot()[of_two].clone();
    let as_of_one = remark_name(one, number.parse().unwrap());
    world.objects.create(&as_of_one, &of_two).unwrap();
    assert!(!is_held(&repository, one));
    hold(&repository, &[one], &audit()).unwrap();
    assert!(is_held(&repository, one));
    assert!(!is_held(&repository, three));
}

/// What cannot be read may have been a hold, also if something else is said since.
#[test]
fn a_damaged_remark_holds_until_the_owner_releases_it() {
    let (world, [one, two, _]) = three(10);
    let repository = world.open();
    for name in [remark_name(one, 1), remark_name(two, 5000), remark_name(two, u32::MAX)] {
        world.objects.create(&name, b"rubbish").unwrap();
    }
    assert!(is_held(&repository, one));
    assert!(!is_held(&repository, two), "the owner takes no number so far away");
    assert!(matches!(forget(&repository, &[one]), Err(RepositoryError::Held { .. })));
    change_remark(&repository, one, |remark| remark.labels = Some(vec!["y".to_owned()])).unwrap();
    assert!(is_held(&repository, one), "a label ends no hold");
    release(&repository, &[one]).unwrap();
    assert_eq!(forget(&repository, &[one, two]).unwrap(), 2);
}

#[test]
fn a_remark_shows_its_number_and_snapshot_in_its_envelope() {
    let found = expected(&remark_name(SnapshotId([3; 16]), 9)).unwrap();
    assert_eq!((found.kind, found.id, found.generation), (ObjectKind::Remark, Some([3; 16]), 9));
}

/// A collector removes them so: one that is killed in between leaves the release, and not the hold.
#[test]
fn wishes_and_remarks_are_listed_in_the_order_in_which_they_were_said() {
    let (world, [id, ..]) = three(97);
    for number in [500, 3000, 20_000, 7] {
        let name = ObjectName::new(REMARKS_FOLDER, format!("{id}.{number}"));
        world.objects.create(&name, b"a remark").unwrap();
    }
    let listed = list_wishes_and_remarks(&world.open()).unwrap();
    let numbers: Vec<&str> =
        listed.iter().map(|(_, name)| name.file().rsplit('.').next().unwrap()).collect();
    assert_eq!(numbers, ["7", "500", "3000", "20000"]);
}
