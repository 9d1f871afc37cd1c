//! What is packed is unpacked, and nothing else is.

use super::*;

fn record(n: u8) -> Record {
    Record { key: [n; 32], location: Location(u64::from(n) * 1000) }
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

/// Found by fuzzing: a header's zeros are not the numbers of segment 0's first page.
#[test]
fn a_header_is_no_page() {
    let bytes = pack_header(0);
    let misplaced = Damage::Misplaced { section: "page" };
    assert_eq!(unpack_page(bytes.first_chunk().unwrap(), 0, 0, 102).err(), Some(misplaced));
}

#[test]
fn header_trailer_and_manifest() {
    assert_eq!(pack_header(9).len(), PAGE_BYTES);
    assert_eq!(unpack_header(&pack_header(9), 9), Ok(()));
    assert_eq!(unpack_header(&pack_header(9), 8), Err(Damage::Misplaced { section: "header" }));

    let trailer = Trailer {
        partitions: 1,
        number: 5,
        records: 103,
        pages: 2,
        directory_bytes: 99,
        directory_checksum: 1,
    };
    let bytes = trailer.pack();
    let file_bytes = 3 * 4096 + 99 + 64;
    assert_eq!(bytes.len(), TRAILER_BYTES);
    assert_eq!(Trailer::unpack(&bytes, 5, file_bytes), Ok(trailer));
    assert_eq!(Trailer::unpack(&bytes, 5, file_bytes + 1), Err(Damage::Length));
    assert!(Trailer::unpack(&bytes, 6, file_bytes).is_err());
    assert_eq!((trailer.page_records(0), trailer.page_records(1)), (102, 1));

    let segment = ManifestSegment { number: 3, records: 8, file_bytes: 9, trailer_checksum: 10 };
    let manifest = Manifest { next: 4, segments: vec![segment; 2], note: b"note".to_vec() };
    assert_eq!(Manifest::unpack(&manifest.pack()), Ok(manifest.clone()));
    assert!(Manifest::unpack(&Manifest { next: 3, ..manifest }.pack()).is_err());
    assert_eq!(Manifest::unpack(&Manifest::default().pack()), Ok(Manifest::default()));
}

type Accepts = fn(&[u8]) -> bool;

/// Every byte of the fixed parts, changed, is noticed; and so is every shorter length.
#[test]
fn every_change_is_noticed() {
    let manifest = Manifest { next: 4, segments: Vec::new(), note: b"note".to_vec() }.pack();
    let header = pack_header(2);
    let page = pack_page(&[record(1)], 2, 0);
    let checks: [(&[u8], Accepts); 3] = [
        (&manifest, |bytes| Manifest::unpack(bytes).is_ok()),
        (&header, |bytes| unpack_header(bytes, 2).is_ok()),
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
    let mut bytes = Manifest::default().pack();
    bytes[8] = 2;
    bytes.truncate(bytes.len() - 4);
    assert_eq!(Manifest::unpack(&append_checksum(bytes)), Err(Damage::Version { version: 2 }));
}
