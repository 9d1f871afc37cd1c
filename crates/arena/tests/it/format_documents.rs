//! The documents in `docs/format` against the program: tables of fixed structures add up to the
//! sizes they state, these are the program's constants, and the example of the code is right.
//!
//! A table is checked if a marker precedes it: `<!-- fields: NAME, N bytes -->` for `| offset |
//! size | name | meaning |`, `<!-- keys: NAME -->` for `| key | type | …`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strongroom_arena::envelope::format as envelope;
use strongroom_arena::format as arena;
use strongroom_galois::{Code, Signature, signature};

/// Every structure with a table, and its length in the program. Structures of floors that this
/// crate must not know are sums of their parts here.
fn structures() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([
        ("envelope header", envelope::HEADER_BYTES),
        ("signature", envelope::SIGNATURE_BYTES),
        ("arena head", arena::HEAD_BYTES),
        ("block frame", arena::FRAME_BYTES),
        ("block head", arena::BLOCK_HEAD_BYTES),
        ("directory entry", arena::DIRECTORY_ENTRY_BYTES),
        ("base location", arena::BASE_BYTES),
        ("summary lengths", arena::SUMMARY_LENGTHS_BYTES),
        ("summary head", arena::SUMMARY_HEAD_BYTES),
        ("summary block", arena::SUMMARY_BLOCK_BYTES),
        ("summary slot", arena::SUMMARY_SLOT_BYTES),
        ("summary base", arena::SUMMARY_BASE_BYTES),
        ("voucher", strongroom_arena::Voucher::BYTES),
        ("chunk reference", 32 + 16 + 4 + 8),
        ("place reference", 16 + 4 + 8),
        ("full secret", 1 + 32 + 32),
        ("put-only secret", 1 + 16 + 4 * 32),
        ("index segment header", 4096),
        ("index page", 102 * 40 + 8 + 4 + 4),
        ("index record", 32 + 8),
        ("index partition head", 30 * 8 + 3828 + 4 + 8 + 8 + 4 + 4),
        ("index trailer", 64),
        ("index manifest head", 32),
        ("index manifest segment", 32),
        ("opened snapshots header", 8 + 4 + 32 + 8),
        ("opened snapshots snapshot", 16 + 8 + 16 + 8 + 4),
        ("own record header", 8 + 4 + 32),
        ("own record head", 8 + 16 + 4 + 4),
        ("own record session", 16 + 32 + 4),
        ("own record snapshot", 16 + 4 + 4),
        ("index note arena", 16 + 4 + 8 + 8 + 4 + 1),
    ])
}

/// The structures of CBOR that have a table.
const MAPS: [&str; 11] = [
    "boot",
    "collection",
    "configuration",
    "drill",
    "end of a domain",
    "entry",
    "key slot",
    "look",
    "remark",
    "session",
    "snapshot",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format")
}

fn documents() -> Vec<(String, String)> {
    let mut documents: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    documents.sort();
    assert!(documents.len() >= 11, "the documents are where they should be");
    documents
}

/// The rows of each table after a marker of this kind, without the head.
fn tables(kind: &str) -> Vec<(String, String, Vec<Vec<String>>)> {
    let mut tables = Vec::new();
    for (document, text) in documents() {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let marker = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
            let Some(title) = marker.and_then(|marker| marker.strip_prefix(kind)) else { continue };
            let rows: Vec<Vec<String>> = lines
                .by_ref()
                .take_while(|line| line.starts_with('|'))
                .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
                .skip(2)
                .collect();
            assert!(!rows.is_empty(), "{document}: a marker without a table: {title}");
            tables.push((document.clone(), title.to_owned(), rows));
        }
    }
    tables
}

#[test]
fn tables_of_fields_add_up_to_the_program_s_constants() {
    let mut expected = structures();
    for (document, title, rows) in tables("fields: ") {
        let (name, bytes) = title.rsplit_once(", ").unwrap();
        let bytes: usize = bytes.strip_suffix(" bytes").unwrap().parse().unwrap();
        let mut end = 0;
        for row in rows {
            let [offset, size] = [&row[1], &row[2]].map(|cell| cell.parse::<usize>().unwrap());
            assert_eq!(offset, end, "{document}, {name}: {} begins where the last ends", row[3]);
            assert!(!row[3].is_empty() && size > 0, "{document}, {name}: a field has a name");
            end += size;
        }
        assert_eq!(end, bytes, "{document}, {name}: fields add up to its size");
        let constant = expected.remove(name);
        assert_eq!(constant, Some(bytes), "{document}, {name}: the program's constant");
    }
    assert!(expected.is_empty(), "structures without a table: {expected:?}");
}

#[test]
fn tables_of_keys_ascend() {
    let mut found: Vec<String> = Vec::new();
    for (document, name, rows) in tables("keys: ") {
        for (key, row) in rows.iter().enumerate() {
            assert_eq!(row[1], key.to_string(), "{document}, {name}: keys ascend without gaps");
            assert!(!row[2].is_empty() && !row[3].is_empty(), "{document}, {name}: {key}");
        }
        found.push(name);
    }
    found.sort();
    assert_eq!(found, MAPS);
}

#[test]
fn links_lead_somewhere() {
    for (document, text) in documents() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(folder().join(link).exists(), "{document}: {link}");
        }
    }
}

/// The example in `parity.md`.
#[test]
fn the_example_of_the_code_is_right() {
    assert_eq!(signature::<2>(b"strongroom"), Signature([30326, 51328]));
    let code = Code::new(3, 3).unwrap();
    let mut parity = [0; 12];
    code.encode(b"abcdefghijkl", 4, &mut parity).unwrap();
    let expected = [0x24, 0x5d, 0x0e, 0xc3, 0x45, 0x2c, 0x63, 0x9e, 0x59, 0x16, 0x63, 0xf8];
    assert_eq!(parity, expected);
    let data = [[10136, 15342], [63763, 56049], [56858, 50242]].map(Signature);
    assert_eq!([&b"abcd"[..], b"efgh", b"ijkl"].map(signature::<2>), data);
    let signatures = [[36276, 33387], [20569, 48314], [28862, 18212]].map(Signature);
    assert_eq!(code.parity_of_signatures(&data), signatures);
    assert_eq!([&parity[..4], &parity[4..8], &parity[8..]].map(signature::<2>), signatures);
}
