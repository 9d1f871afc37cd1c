//! Envelopes: forged ones, whose checksums the target sets right, and damaged ones.
//!
//! For any claim in a header, memory stays within the documented bounds, and repair gives a whole
//! object or none. Damage within the reach of parity is repaired bit for bit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_arena::Redundancy;
use strongroom_arena::envelope::format::{
    HEADER_BYTES, Header, HeaderError, Layout, ObjectKind, Origin, PROOF_BYTES, unpack_table,
};
use strongroom_arena::envelope::{
    EnvelopeError, HEADROOM, Identity, Inspection, inspect, open, peek, repair, salvage, seal,
};
use strongroom_base::SnapshotId;
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};
use strongroom_galois::signature;

/// What inspection takes besides the object, as documented.
const INSPECT_BYTES_MAX: usize = 1 << 20;

const DAMAGED: u8 = 0x80;
const FIX_HEADER: u8 = 1;
const FIX_TRAILER: u8 = 2;
const FIX_TABLES: u8 = 4;
const FIX_BODY_HASH: u8 = 8;
const COPY_HEADER: u8 = 16;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    let mode = input.u8();
    if mode & DAMAGED != 0 {
        check_damaged(&mut input);
    } else {
        let mut object = input.rest().to_vec();
        forge(&mut object, mode);
        check_any(&object);
    }
});

/// Sets checksums right, as far as the mode says.
fn forge(object: &mut [u8], mode: u8) {
    if object.len() < HEADER_BYTES {
        return;
    }
    fix_header(object, mode & FIX_HEADER != 0);
    if let Ok(header) = peek(object) {
        let layout = header.layout();
        if mode & FIX_BODY_HASH != 0
            && let Some(body) = object.get(HEADROOM..layout.first_table)
        {
            let hash = *blake3::hash(body).as_bytes();
            let end = HEADER_BYTES - 4 - PROOF_BYTES;
            object[end - 32..end].copy_from_slice(&hash);
            fix_header(object, true);
        }
        if mode & FIX_TABLES != 0 {
            for at in [layout.first_table, layout.second_table] {
                if let Some(table) = object.get_mut(at..at + layout.table_bytes) {
                    append_crc(table);
                }
            }
        }
    }
    let (front, trailer) = object.split_at_mut(object.len() - HEADER_BYTES);
    if mode & COPY_HEADER != 0 && front.len() >= HEADER_BYTES {
        trailer.copy_from_slice(&front[..HEADER_BYTES]);
    }
    fix_header(trailer, mode & FIX_TRAILER != 0);
}

fn fix_header(bytes: &mut [u8], wanted: bool) {
    if wanted {
        append_crc(&mut bytes[..HEADER_BYTES]);
    }
}

/// Makes the last four bytes the checksum of those before.
fn append_crc(bytes: &mut [u8]) {
    if let Some((covered, checksum)) = bytes.split_last_chunk_mut::<4>() {
        *checksum = crc32c::crc32c(covered).to_le_bytes();
    }
}

/// What holds for any bytes.
fn check_any(object: &[u8]) {
    let inspected = measure(|| inspect(object));
    assert!(inspected.peak_bytes <= INSPECT_BYTES_MAX, "inspect took {}", inspected.peak_bytes);
    let repaired = measure(|| repair(object));
    let bound = 6 * object.len() + INSPECT_BYTES_MAX;
    assert!(repaired.peak_bytes <= bound, "repair took {}", repaired.peak_bytes);
    match inspected.value {
        Err(error) => {
            assert_eq!(repaired.value, Err(error));
            assert!(matches!(error, EnvelopeError::Header(_)), "{error}");
            assert_eq!(salvage(object), Err(error));
        }
        Ok(inspection) => {
            check_salvage(object, &inspection);
            check_open(object, &inspection, &repaired.value);
            check_repaired(&inspection, repaired.value);
        }
    }
}

fn check_repaired(inspection: &Inspection, repaired: Result<Vec<u8>, EnvelopeError>) {
    let header = &inspection.header;
    let lost = &inspection.lost_shards;
    assert!(lost.is_sorted_by(|a, b| a < b), "each lost shard once");
    assert!(lost.iter().all(|shard| *shard < header.shards()), "only shards that there are");
    assert_eq!(Header::unpack(&header.pack()).as_ref(), Ok(header));
    match repaired {
        Err(error) => {
            assert!(!inspection.is_whole());
            let parity = header.parity_shards as usize;
            let shards = header.shards();
            assert_eq!(error, EnvelopeError::BeyondRepair { lost: lost.len(), shards, parity });
        }
        Ok(object) => {
            assert!(inspection.is_repairable());
            let again = inspect(&object).expect("a repaired object has a header");
            assert!(again.is_whole(), "{again:?}");
            assert_eq!(&again.header, header);
            assert_eq!(object.len(), header.layout().object_bytes);
            let body = &object[HEADROOM..header.layout().first_table];
            assert_eq!(*blake3::hash(body).as_bytes(), header.body_hash);
            assert_eq!(repair(&object), Ok(object));
        }
    }
}

fn check_salvage(object: &[u8], inspection: &Inspection) {
    let salvaged = measure(|| salvage(object));
    assert!(salvaged.peak_bytes <= object.len() + 4096);
    let salvaged = salvaged.value.expect("what can be inspected can be salvaged");
    assert_eq!(salvaged.header, inspection.header);
    assert!(salvaged.body.len() <= inspection.header.body_bytes());
    assert!(object[HEADROOM.min(object.len())..].starts_with(&salvaged.body));
}

fn check_open(object: &[u8], inspection: &Inspection, repaired: &Result<Vec<u8>, EnvelopeError>) {
    let header = &inspection.header;
    if header.is_unknown() {
        for kind in ObjectKind::KNOWN {
            assert_eq!(open(object, kind, None), Err(EnvelopeError::Unknown));
        }
        return;
    }
    match open(object, header.kind, Some(&header.id)) {
        Ok((opened, body, was_repaired)) => {
            assert_eq!(&opened, header);
            assert_eq!(was_repaired, !inspection.is_whole());
            assert_eq!(*blake3::hash(&body).as_bytes(), header.body_hash);
            assert_eq!(body.len(), header.body_bytes());
        }
        Err(error) => assert_eq!(Some(&error), repaired.as_ref().err()),
    }
    let wanted = ObjectKind::KNOWN.into_iter().find(|kind| *kind != header.kind);
    let wanted = wanted.expect("there is more than one kind");
    let swapped = Err(EnvelopeError::Swapped { wanted, found: header.kind });
    assert_eq!(open(object, wanted, None), swapped);
    let id = header.id.map(|byte| !byte);
    let swapped = Err(EnvelopeError::Swapped { wanted: header.kind, found: header.kind });
    assert_eq!(open(object, header.kind, Some(&id)), swapped);
}

/// Seals a body, damages the object, and repairs it.
fn check_damaged(input: &mut Input<'_>) {
    let kind = ObjectKind::KNOWN[input.below(ObjectKind::KNOWN.len())];
    let (id, generation) = (input.array(), input.u32());
    let origin = Origin { session: SnapshotId([9; 16]), sequence: u64::from(generation) << 7 };
    let identity = Identity { kind, id, generation, origin };
    let redundancy = Redundancy { per_mille: u32::from(input.u16() & 0x7ff) };
    let body_bytes = 1 + usize::from(input.u16() & 0x7fff);
    let mut object = vec![0; HEADROOM];
    object.extend(input.expanded(body_bytes));
    let whole = seal(object, identity, redundancy);
    assert!(inspect(&whole).is_ok_and(|inspection| inspection.is_whole()));
    let mut damaged = whole.clone();
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        damage(&mut damaged, input);
    }
    check_any(&damaged);
    if is_within_reach(&whole, &damaged) {
        assert_eq!(repair(&damaged).as_deref(), Ok(&whole[..]));
        assert_eq!(inspect(&damaged).is_ok_and(|found| found.is_whole()), whole == damaged);
    }
}

fn damage(object: &mut Vec<u8>, input: &mut Input<'_>) {
    let action = input.u8();
    let at = input.u32() as usize % object.len().max(1);
    let count = usize::from(input.u16() & 0xfff) + 1;
    let range = at..(at + count).min(object.len());
    match action % 6 {
        0 => object[range].iter_mut().for_each(|byte| *byte ^= action | 1),
        1 => object[range].fill(0),
        2 => object.truncate(at),
        3 => object.extend(vec![action; count]),
        4 => drop(object.drain(range)),
        _ => {
            let bytes = input.bytes(range.len().min(16));
            object[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// True if the documents promise that `damaged` can be repaired.
fn is_within_reach(whole: &[u8], damaged: &[u8]) -> bool {
    let header = peek(whole).expect("it was just sealed");
    let layout = header.layout();
    let is_same = |range: std::ops::Range<usize>| damaged.get(range.clone()) == Some(&whole[range]);
    let has_header = match Header::unpack(damaged) {
        Ok(found) => found == header,
        Err(HeaderError::NewerVersion { .. }) => false,
        Err(_) => damaged.ends_with(&header.pack()),
    };
    has_header
        && has_table(&layout, damaged, &is_same)
        && lost_shards(&header, &layout, whole, damaged)
            .is_some_and(|lost| lost <= header.parity_shards as usize)
}

/// True if the first table that can be read is the right one.
fn has_table(
    layout: &Layout,
    damaged: &[u8],
    is_same: &dyn Fn(std::ops::Range<usize>) -> bool,
) -> bool {
    let first = layout.first_table..layout.first_table + layout.table_bytes;
    let second = layout.second_table..layout.second_table + layout.table_bytes;
    if is_same(first.clone()) {
        return true;
    }
    let is_refused = damaged.get(first).is_none_or(|table| unpack_table(table).is_none());
    is_refused && is_same(second)
}

/// How many shards differ; `None` if a forged shard has the signature of the original.
fn lost_shards(header: &Header, layout: &Layout, whole: &[u8], damaged: &[u8]) -> Option<usize> {
    let shard_bytes = header.shard_bytes();
    let data = (HEADROOM..layout.first_table)
        .step_by(shard_bytes)
        .map(|start| start..(start + shard_bytes).min(layout.first_table));
    let parity = (layout.parity..layout.second_table)
        .step_by(shard_bytes)
        .map(|start| start..start + shard_bytes);
    let mut lost = 0;
    for range in data.chain(parity) {
        let right = &whole[range.clone()];
        match damaged.get(range) {
            Some(bytes) if bytes == right => {}
            Some(bytes) if signature::<2>(bytes) == signature::<2>(right) => return None,
            _ => lost += 1,
        }
    }
    Some(lost)
}

fn seeds() -> Vec<Vec<u8>> {
    let sealed = |body_bytes: u8, per_mille| {
        let mut object = vec![0; HEADROOM];
        object.extend(0..body_bytes);
        let kind = ObjectKind::Snapshot;
        let identity = Identity { kind, id: [7; 16], generation: 1, origin: Origin::NONE };
        seal(object, identity, Redundancy { per_mille })
    };
    let forged = |mode: u8, object: Vec<u8>| [vec![mode], object].concat();
    let all = FIX_HEADER | FIX_TABLES | FIX_BODY_HASH;
    let mut damaged = vec![DAMAGED, 2, 0];
    damaged.extend([9; 20]);
    damaged.extend([0xe8, 3, 0, 8, 0x80, 1]);
    let with = |action: &[u8]| [&damaged[..], action].concat();
    vec![
        forged(0, sealed(40, 0)),
        forged(0, sealed(100, 1000)),
        forged(all | FIX_TRAILER, sealed(90, 1000)),
        forged(all | COPY_HEADER, sealed(90, 500)),
        forged(FIX_TRAILER, [vec![0; 30], sealed(30, 1000)].concat()),
        with(&[]),
        with(&[0, 200, 0, 0, 0, 10, 0, 1, 0, 8, 0, 0, 1, 0]),
        with(&[2, 0, 9, 0, 0, 0, 0]),
        with(&[1, 0, 0, 0, 0, 95, 0]),
        with(&[4, 0, 16, 0, 0, 9, 0, 3, 0, 0, 0, 0, 9, 0]),
    ]
}
