//! What a look doubts of what it sees for the first time.

use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Arrivals, Doubt};

use super::{DAY, SLACK, new_look};

/// One that a machine says to have made at these times, of this many files.
fn snapshot(number: u8, started: i64, ended: i64, files: u64) -> Snapshot {
    let mut snapshot = Snapshot::empty(SnapshotId([number; 16]));
    (snapshot.started, snapshot.ended) = (Timestamp(started), Timestamp(ended));
    snapshot.domain = "laptop".to_owned();
    snapshot.stats.files = files;
    snapshot.stats.bytes = files * 1000;
    snapshot
}

/// What looks at these times make of what each sees besides: the doubts, in order.
fn doubts(looks: &[(i64, &[Snapshot])]) -> Vec<Option<Doubt>> {
    let (mut known, mut all, mut doubts) = (Arrivals::default(), Vec::new(), Vec::new());
    for (now, new) in looks {
        all.extend(*new);
        let look = new_look(&all, &known, Timestamp(*now));
        for snapshot in *new {
            let arrival = look.arrivals.iter().find(|arrival| arrival.snapshot == snapshot.id);
            doubts.push(arrival.expect("it is new").doubt);
        }
        known.push(&look);
    }
    doubts
}

/// The times that a snapshot says of itself lie between the looks, as far as clocks agree.
#[test]
fn what_is_dated_outside_of_the_looks_is_doubted() {
    const BEFORE: i64 = 100 * DAY;
    const NOW: i64 = 107 * DAY;
    let first = snapshot(1, BEFORE - 60, BEFORE - 50, 100);
    for (started, ended, doubt) in [
        (BEFORE, BEFORE + 60, None),
        (BEFORE - SLACK - 60, BEFORE - SLACK, None),
        (BEFORE - SLACK - 60, BEFORE - SLACK - 1, Some(Doubt::Dated)),
        (NOW + SLACK, NOW + SLACK + 60, None),
        (NOW + SLACK + 1, NOW + SLACK + 60, Some(Doubt::Dated)),
        (BEFORE - 30 * DAY, NOW, None),
        (i64::MIN, i64::MIN, Some(Doubt::Dated)),
        (i64::MAX, i64::MAX, Some(Doubt::Dated)),
    ] {
        let second = snapshot(2, started, ended, 100);
        let found = doubts(&[(BEFORE, std::slice::from_ref(&first)), (NOW, &[second])]);
        assert_eq!(found, [None, doubt], "{started} to {ended}");
    }
}

/// What has far less than the ones before it is doubted, also when both are new; but not what was stopped,
/// nor the first that is ever seen.
#[test]
fn what_has_shrunk_is_doubted() {
    let at = |number: u8, files| {
        let time = i64::from(number) * DAY;
        snapshot(number, time, time + 60, files)
    };
    let shrunken = Some(Doubt::Shrunken);
    let week = [at(1, 1000), at(2, 1010), at(3, 990)];
    // The first look has nothing to compare with.
    assert_eq!(doubts(&[(4 * DAY, &[at(1, 1000), at(2, 10)])]), [None, None]);
    let seen = |new: &[Snapshot]| doubts(&[(4 * DAY, &week), (20 * DAY, new)])[3..].to_vec();
    assert_eq!(seen(&[at(5, 900)]), [None]);
    assert_eq!(seen(&[at(5, 10)]), [shrunken]);
    assert_eq!(seen(&[Snapshot { partial: true, ..at(5, 10) }]), [None]);
    assert_eq!(seen(&[at(5, 10), at(6, 10), at(7, 1000)]), [shrunken, shrunken, None]);
    // What grows within one look is usual for what follows in it.
    let grown: Vec<Snapshot> = (5..11).map(|number| at(number, 20_000)).collect();
    let mut expected = vec![None; 6];
    assert_eq!(seen(&grown), expected);
    expected.push(shrunken);
    assert_eq!(seen(&[grown, vec![at(11, 1000)]].concat()), expected);
}
