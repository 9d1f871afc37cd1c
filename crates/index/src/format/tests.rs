//! What is packed is unpacked, and nothing else is.

use super::*;

fn pack_manifest(next: u64, segments: &[ManifestSegment], note: &[u8]) -> Vec<u8> {
    let (head, checksum) = pack_manifest_around(next, segments, note);
    [&head, note, &checksum].concat()
}

fn record(n: u8) -> Record {
    Record { key: [n; 32], location: Value(u64::from(n) * 1000) }
}

#[test]
fn a_page_keeps_its_records() {
    for count in [1, 2, 101, 102] {
        let records: Vec<Record> = (0..count).map(|n| record(n + 1)).collect();
        let bytes = pack_page(&records, 7, 3);
        let bytes = bytes.first_chunk().unwrap();
        let page = unpack_page(bytes, 7, 3, count.into()).unwrap();
        for (at, record) in records.iter().enumerate() {
            assert_eq!(page.get(at), Some(*record));
            assert_eq!(page.find(&record.key), Ok(record.location));
        }
        assert_eq!(page.get(count.into()), None);
        assert_eq!(page.find(&[0; 32]), Err(0));
        let misplaced = Damage::Misplaced { section: "page" };
        assert_eq!(unpack_page(bytes, 8, 3, 1).err(), Some(misplaced));
        assert_eq!(unpack_page(bytes, 7, 4, 1).err(), Some(misplaced));
        assert_eq!(unpack_page(bytes, 7, 3, 103).err(), Some(misplaced));
    }
}

/// Found by fuzzing: a header's zeros are not the numbers of a page of segment 0.
#[test]
fn a_header_is_no_page() {
    let bytes = pack_header(0);
    let misplaced = Damage::Misplaced { section: "page" };
    assert_eq!(unpack_page(bytes.first_chunk().unwrap(), 0, 1, 102).err(), Some(misplaced));
}

#[test]
fn header_trailer_and_manifest() {
    assert_eq!(pack_header(9).len(), PAGE_BYTES);
    assert_eq!(unpack_header(&pack_header(9), 9), Ok(()));
    assert_eq!(unpack_header(&pack_header(9), 8), Err(Damage::Misplaced { section: "header" }));

    let trailer = Trailer { number: 5, records: 103, directory_checksum: 1 };
    let bytes = trailer.pack();
    // Header, head, two pages, the directory with one partition.
    let file_bytes = 4 * 4096 + 8 + 64;
    assert_eq!(bytes.len(), TRAILER_BYTES);
    assert_eq!(Trailer::unpack(&bytes, 5, file_bytes), Ok(trailer));
    assert_eq!(Trailer::unpack(&bytes, 5, file_bytes + 1), Err(Damage::Length));
    assert!(Trailer::unpack(&bytes, 6, file_bytes).is_err());
    assert_eq!((trailer.page_records(0, 0), trailer.page_records(0, 1)), (102, 1));

    let segment = ManifestSegment { number: 3, records: 8, file_bytes: 9, trailer_checksum: 10 };
    let manifest = Manifest { next: 4, segments: vec![segment; 2], note: b"note".to_vec() };
    let packed = |next| pack_manifest(next, &manifest.segments, &manifest.note);
    assert_eq!(Manifest::unpack(packed(4)), Ok(manifest.clone()));
    assert!(Manifest::unpack(packed(3)).is_err());
    assert!(Manifest::unpack(packed(NUMBERS_END)).is_ok());
    assert!(Manifest::unpack(packed(u64::MAX)).is_err());
    assert_eq!(Manifest::unpack(pack_manifest(0, &[], b"")), Ok(Manifest::default()));
}

/// A trailer whose numbers do not fit together is no trailer, however large they are.
#[test]
fn impossible_trailers_are_refused() {
    let good = Trailer { number: 5, records: 103, directory_checksum: 1 }.pack();
    for (at, value) in [(12, 2), (24, 0), (24, 3061), (24, u64::MAX), (32, 2), (40, 16)] {
        let mut bytes = good[..TRAILER_BYTES - 4].to_vec();
        let width = if at == 12 { 4 } else { 8 };
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        let unpacked = Trailer::unpack(&append_checksum(bytes), 5, 4 * 4096 + 8 + 64);
        assert_eq!(unpacked, Err(Damage::Misplaced { section: "trailer" }), "{value} at {at}");
    }
}

#[test]
fn a_head_leads_to_the_page() {
    let mut filter_keys = vec![11, 22, 33];
    let bytes = pack_head(&[5, 5, 9], &mut filter_keys, 7, 32);
    let bytes = bytes.first_chunk().unwrap();
    let misplaced = Damage::Misplaced { section: "partition head" };
    assert_eq!(unpack_head(bytes, 8, 32).err(), Some(misplaced));
    assert_eq!(unpack_head(bytes, 7, 33).err(), Some(misplaced));
    let kept = unpack_head(bytes, 7, 32).unwrap().keep();
    let head = kept.as_head();
    assert!([11, 22, 33].into_iter().all(|key| head.may_contain(key)));
    let key = |prefix: u8| {
        let mut key = [0xee; 32];
        key[..8].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, prefix]);
        key
    };
    let found = [4, 5, 8, 9, 10].map(|prefix| head.pages_up_to(&key(prefix), 3));
    assert_eq!(found, [0, 2, 2, 3, 3]);
}

#[test]
fn where_pages_stand() {
    let trailer = Trailer { number: 0, records: 3061, directory_checksum: 0 };
    assert_eq!((trailer.pages(), trailer.partitions()), (31, 2));
    assert_eq!((trailer.partition_pages(0), trailer.partition_pages(1)), (30, 1));
    assert_eq!((trailer.partition_pages(2), trailer.page_records(1, 1)), (0, 0));
    assert_eq!((head_number(0), head_number(1)), (1, 32));
    assert_eq!(trailer.directory_at(), 34 * 4096);
}

type Accepts = fn(&[u8]) -> bool;

/// Every byte of the fixed parts, changed, is noticed; and so is every shorter length.
#[test]
fn every_change_is_noticed() {
    let manifest = pack_manifest(4, &[], b"note");
    let header = pack_header(2);
    let head = pack_head(&[1], &mut vec![2], 2, 1);
    let page = pack_page(&[record(1)], 2, 0);
    let checks: [(&[u8], Accepts); 4] = [
        (&manifest, |bytes| Manifest::unpack(bytes.to_vec()).is_ok()),
        (&header, |bytes| unpack_header(bytes, 2).is_ok()),
        (&head, |bytes| bytes.first_chunk().is_some_and(|head| unpack_head(head, 2, 1).is_ok())),
        (&page, |bytes| bytes.first_chunk().is_some_and(|page| unpack_page(page, 2, 0, 1).is_ok())),
    ];
    for (bytes, accepts) in checks {
        assert!(accepts(bytes));
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1 << (at % 8);
            assert!(!accepts(&changed), "{at}");
            assert!(!accepts(&bytes[..at]), "{at}");
        }
        assert!(!accepts(&vec![0; bytes.len()]));
    }
}

#[test]
fn another_version_is_told() {
    let mut bytes = pack_manifest(0, &[], b"");
    bytes[8] = 1;
    bytes.truncate(bytes.len() - 4);
    assert_eq!(Manifest::unpack(append_checksum(bytes)), Err(Damage::Version { version: 1 }));
}
