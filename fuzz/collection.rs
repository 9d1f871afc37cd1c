//! A plan or a verdict, from any bytes, and the slots in it; and a remark or a look.
//!
//! What unpacks has used every byte, and packs and unpacks to the same; it takes no more memory than
//! its bound allows.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use strongroom_base::{ArenaId, SnapshotId, Timestamp};
use strongroom_fuzz::{measure, write_seeds_if_asked};
use strongroom_repository::{
    ArenaSlots, Arrival, Doubt, End, Forgotten, Hold, Look, Remark, SLOTS_BYTES_MAX, Selection,
    SeriesId, SlotSets,
};

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let unpacked = measure(|| SlotSets::unpack(data));
    // A set of 20 bytes becomes a node of a map.
    assert!(unpacked.peak_bytes <= 16 * data.len() + 4096, "it took {}", unpacked.peak_bytes);
    if let Some(sets) = unpacked.value {
        assert_eq!(sets.pack(), data);
    }
    let unpacked = measure(|| Remark::unpack(data));
    assert!(unpacked.peak_bytes <= 128 * data.len() + 4096, "it took {}", unpacked.peak_bytes);
    if let Ok(remark) = unpacked.value {
        assert_eq!(Remark::unpack(&remark.pack()).as_ref(), Ok(&remark));
    }
    if let Ok(end) = End::unpack(data, u64::MAX) {
        assert_eq!(End::unpack(&end.pack(), u64::MAX).as_ref(), Ok(&end));
    }
    let unpacked = measure(|| Look::unpack(data));
    assert!(unpacked.peak_bytes <= 64 * data.len() + 4096, "it took {}", unpacked.peak_bytes);
    if let Ok(look) = unpacked.value {
        assert_eq!(Look::unpack(&look.pack()).as_ref(), Ok(&look));
    }
    let unpacked = measure(|| Selection::unpack(data));
    let bound = 16 * SLOTS_BYTES_MAX + 64 * data.len();
    assert!(unpacked.peak_bytes <= bound, "it took {}", unpacked.peak_bytes);
    let Ok(selection) = unpacked.value else { return };
    assert_eq!(Selection::unpack(&selection.pack()).as_ref(), Ok(&selection));
    assert!(Selection::unpack(&[data, &[0]].concat()).is_err(), "a byte is left over");
});

fn seeds() -> Vec<Vec<u8>> {
    let runs = ArenaSlots::Runs(vec![(3, 4), (9, 1)]);
    let arenas = BTreeMap::from([(ArenaId([1; 16]), runs), (ArenaId([2; 16]), ArenaSlots::All)]);
    let slots = SlotSets(arenas);
    let forgotten =
        Forgotten { id: SnapshotId([7; 16]), domain: "laptop".to_owned(), sequence: 1 << 40 };
    let selection = Selection { snapshots: vec![forgotten], slots: slots.clone() };
    let mut remark = Remark::default();
    remark.labels = Some(vec!["gold".to_owned()]);
    remark.description = "before the move".to_owned();
    remark.hold = Some(Hold { reason: "audit".to_owned(), until: Some(Timestamp(1 << 60)) });
    let end = End { since: 5, removed: selection.clone() };
    let (snapshot, series) = (SnapshotId([3; 16]), SeriesId([4; 16]));
    let arrival = Arrival { snapshot, series, time: Timestamp(1 << 50), doubt: Some(Doubt::Dated) };
    let look = Look {
        time: Timestamp(1 << 51),
        arrivals: vec![arrival],
        accepted: vec![snapshot],
        ended: Vec::new(),
    };
    vec![
        slots.pack(),
        selection.pack(),
        Selection::default().pack(),
        end.pack(),
        remark.pack(),
        look.pack(),
    ]
}
