//! `docs/format/index.md` against the files: a reader that knows the document and nothing of the
//! program finds what was put in. The bytes are frozen.

use std::collections::BTreeMap;
use std::fs;

use strongroom_index::Index;

use crate::{insert, key, location};

const PAGE_BYTES: usize = 4096;

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut number = [0; 8];
    number[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(number)
}

/// Checks the checksum at the end.
fn checked(bytes: &[u8]) -> &[u8] {
    let (covered, checksum) = bytes.split_at(bytes.len() - 4);
    assert_eq!(u64::from(crc32c::crc32c(covered)), number(checksum, 0, 4));
    covered
}

/// Page `page` of segment `segment`: a head or a page of records.
fn page(file: &[u8], segment: u64, page: usize) -> &[u8] {
    let bytes = checked(&file[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]);
    assert_eq!((number(bytes, 4080, 8), number(bytes, 4088, 4)), (segment, page as u64));
    bytes
}

fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ (key >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ (key >> 33)
}

fn filter_affirms(head: &[u8], key: &[u8]) -> bool {
    let filter = &head[240..240 + 3828];
    let seed = number(head, 4072, 8);
    let hash = mix(number(key, 8, 8).wrapping_add(seed));
    let place = |bits: u64| ((bits % (1 << 16)) * 1276 / (1 << 16)) as usize;
    let places = [place(hash), 1276 + place(hash >> 16), 2552 + place(hash >> 32)];
    let found = places.iter().fold(0, |found, at| found ^ filter[*at]);
    seed == 0 || u64::from(found) == hash >> 56
}

/// The records of a segment, in order.
fn read_segment(file: &[u8], segment: u64) -> Vec<(Vec<u8>, u64)> {
    let header = checked(&file[..PAGE_BYTES]);
    assert_eq!((&header[..8], number(header, 8, 4)), (&b"SRINDEXS"[..], 2));
    assert_eq!(number(header, 16, 8), segment);
    let trailer = checked(&file[file.len() - 64..]);
    assert_eq!((&trailer[..8], number(trailer, 8, 4)), (&b"SRINDEXT"[..], 2));
    let [partitions, records] = [(12, 4), (24, 8)].map(|(at, size)| number(trailer, at, size));
    let directory_at = (1 + number(trailer, 32, 8) as usize) * PAGE_BYTES;
    let directory = &file[directory_at..directory_at + number(trailer, 40, 8) as usize];
    assert_eq!(directory_at + directory.len() + 64, file.len());
    assert_eq!(u64::from(crc32c::crc32c(directory)), number(trailer, 48, 4));
    assert_eq!(directory.len() as u64, partitions * 8);

    let mut found: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut at = 1;
    for first in directory.chunks(8) {
        let head = page(file, segment, at);
        assert_eq!(first, &head[..8]);
        for prefix in head[..240].chunks(8) {
            let left = records as usize - found.len();
            if left == 0 {
                assert_eq!(number(prefix, 0, 8), 0);
                continue;
            }
            at += 1;
            let records = page(file, segment, at)[..4080].chunks(40);
            for (place, record) in records.take(left).enumerate() {
                let (key, location) = record.split_at(32);
                assert!(place > 0 || key.starts_with(prefix));
                assert!(filter_affirms(head, key));
                found.push((key.to_vec(), number(location, 0, 8)));
            }
        }
        at += 1;
    }
    assert_eq!(found.len() as u64, records);
    assert!(found.is_sorted_by(|a, b| a.0 < b.0));
    found
}

#[test]
fn the_document_is_enough_to_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    insert(&mut index, 0, 10_000);
    index.flush(b"first").unwrap();
    insert(&mut index, 9_000, 12_000);
    index.flush(b"the note").unwrap();

    let manifest = fs::read(directory.path().join("MANIFEST")).unwrap();
    let manifest = checked(&manifest);
    assert_eq!((&manifest[..8], number(manifest, 8, 4)), (&b"SRINDEXM"[..], 2));
    assert_eq!((number(manifest, 12, 4), number(manifest, 16, 8)), (2, 2));
    assert_eq!(number(manifest, 24, 8), 8);
    assert_eq!(&manifest[32 + 2 * 32..], b"the note");
    let mut found = BTreeMap::new();
    for entry in manifest[32..32 + 2 * 32].chunks(32) {
        let segment = number(entry, 0, 8);
        let file = fs::read(directory.path().join(format!("{segment:016x}.segment"))).unwrap();
        assert_eq!(file.len() as u64, number(entry, 16, 8));
        assert_eq!(number(&file, file.len() - 4, 4), number(entry, 24, 4));
        let records = read_segment(&file, segment);
        assert_eq!(records.len() as u64, number(entry, 8, 8));
        found.extend(records);
    }
    assert_eq!(found.len(), 12_000);
    for n in 0..12_000 {
        assert_eq!(found.get(&key(n)[..]), Some(&location(n).0), "{n}");
    }
}

/// Frozen: when this changes, the version of the files does.
#[test]
fn golden_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    insert(&mut index, 0, 4_000);
    index.flush(b"note").unwrap();
    // FNV-1a: parts that end in their own CRC add nothing to a CRC of the whole.
    let hash = |name: &str| {
        let file = fs::read(directory.path().join(name)).unwrap();
        let hash = file.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        (file.len(), hash)
    };
    assert_eq!(hash("0000000000000000.segment"), (176_208, 9_312_093_094_536_702_966));
    assert_eq!(hash("MANIFEST"), (72, 15_964_537_816_595_769_379));
}
