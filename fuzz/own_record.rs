//! A machine's own record, from any bytes.
//!
//! What unpacks has used every byte, and packs and unpacks to the same; no number in it makes more
//! memory be reserved than its bytes take.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_base::{ArenaSecret, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_fuzz::{measure, write_seeds_if_asked};
use strongroom_repository::own::format::{
    HEADER_BYTES, pack_header, pack_record, unpack_header, unpack_record,
};
use strongroom_repository::{KeptSession, KeptSnapshot, OwnRecord};

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    if let Some(header) = data.first_chunk::<HEADER_BYTES>()
        && let Some(salt) = unpack_header(header)
    {
        assert_eq!(pack_header(&salt), header);
    }
    let unpacked = measure(|| unpack_record(data));
    // A number of a session of 4 bytes becomes its name of 16; what is skipped in a map may be
    // nested, and takes memory for each level.
    assert!(unpacked.peak_bytes <= 64 * data.len() + 4096, "it took {}", unpacked.peak_bytes);
    let Ok(record) = unpacked.value else { return };
    let packed = pack_record(&record);
    let again = unpack_record(&packed).expect("what was packed unpacks");
    assert_eq!((again.sequence, again.newest), (record.sequence, record.newest));
    assert_eq!(again.snapshots.len(), record.snapshots.len());
    assert_eq!(again.sessions.len(), record.sessions.len());
    for (one, other) in record.sessions.iter().zip(&again.sessions) {
        assert_eq!((one.id, one.secret.0, &one.bases), (other.id, other.secret.0, &other.bases));
    }
    for (one, other) in record.snapshots.iter().zip(&again.snapshots) {
        assert_eq!(one, other);
    }
    assert!(unpack_record(&[data, &[0]].concat()).is_err(), "a byte is left over");
});

fn seeds() -> Vec<Vec<u8>> {
    let [one, two] = [1, 2].map(|number| SnapshotId([number; 16]));
    let session = |id, bases| KeptSession { id, secret: ArenaSecret([3; 32]), bases };
    let kept = KeptSnapshot { snapshot: Snapshot::empty(two), needs: vec![one, two] };
    let record = OwnRecord {
        sequence: 2,
        newest: Some(two),
        snapshots: vec![kept],
        sessions: vec![session(one, Vec::new()), session(two, vec![one])],
    };
    vec![
        pack_header(&[4; 32]),
        pack_record(&OwnRecord::default()).to_vec(),
        pack_record(&record).to_vec(),
    ]
}
