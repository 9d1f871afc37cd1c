//! An index whose files another program wrote: damaged ones, and forged ones whose checksums the
//! target sets right.
//!
//! The index is opened from a real directory, which `fuzz/run` puts into memory. It reports
//! `Damaged`, or it behaves: a damaged file never yields a wrong location nor loses a known key,
//! and a forged file never yields a location that is not in a file beside exactly that key. A reset
//! always works.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};
use strongroom_index::{Index, IndexError, Key, Value};
use tempfile::TempDir;

/// Sizes as in the index's document.
const PAGE_BYTES: usize = 4096;
const TRAILER_BYTES: usize = 64;
const MANIFEST_HEAD_BYTES: usize = 32;

/// Which checksums are set right.
const FIX_PAGES: u8 = 1;
const FIX_TRAILER: u8 = 2;
const FIX_DIRECTORY: u8 = 4;
const FIX_MANIFEST: u8 = 8;

struct Original {
    name: String,
    bytes: Vec<u8>,
}

/// The committed index of two segments with which all runs begin.
struct World {
    folder: TempDir,
    /// The manifest first, then the segments by name.
    files: Vec<Original>,
    known: Vec<(Key, Value)>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a folder can be made");
    let known: Vec<(Key, Value)> = (0..250).map(|n| (key(n), Value(n << 8 | 5))).collect();
    let mut index = Index::open(folder.path()).expect("a new index opens");
    for (place, (key, location)) in known.iter().enumerate() {
        index.insert(key, *location).expect("it is inserted");
        if place == 210 {
            index.flush(b"before").expect("it is flushed");
        }
    }
    index.flush(b"note").expect("it is flushed");
    drop(index);
    let listed = std::fs::read_dir(folder.path()).expect("the folder is listed");
    let mut names: Vec<String> = listed
        .map(|entry| entry.expect("the folder is listed").file_name().into_string())
        .map(|name| name.expect("the index names its files in ASCII"))
        .filter(|name| name != "LOCK")
        .collect();
    names.sort_by_key(|name| (name.ends_with(".segment"), name.clone()));
    let read = |name: String| {
        let bytes = std::fs::read(folder.path().join(&name)).expect("the file is read");
        Original { name, bytes }
    };
    let files = names.into_iter().map(read).collect();
    World { folder, files, known }
});

fn key(number: u64) -> Key {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    let mode = input.u8();
    let mut files: Vec<Vec<u8>> = WORLD.files.iter().map(|file| file.bytes.clone()).collect();
    for _ in 0..6 {
        if input.is_empty() {
            break;
        }
        change(&mut files, &mut input);
    }
    fix(&mut files, mode);
    restore_folder(&files);
    check(&files, mode & 15 != 0 || is_forged(&files));
});

/// Changes one file.
fn change(files: &mut [Vec<u8>], input: &mut Input<'_>) {
    let action = input.u8();
    let count = files.len();
    let file = &mut files[usize::from(action >> 4) % count];
    let from_end = action & 8 != 0;
    let place = input.u32() as usize % (file.len() + 1);
    let at = if from_end { file.len() - place } else { place };
    match action & 7 {
        0 => file.truncate(at),
        1 => {
            let length = usize::from(input.u8());
            file.extend(input.bytes(length));
        }
        2 => {
            let end = (at + usize::from(input.u16())).min(file.len());
            file[at..end].fill(input.u8());
        }
        3 => *file = input.rest().to_vec(),
        4 => {
            let end = (at + usize::from(input.u8())).min(file.len());
            drop(file.drain(at..end));
        }
        5 if file.len() > 2 * PAGE_BYTES => {
            // A page of the file, or of a like one, in the place of another.
            let (to, from) =
                (at / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES * usize::from(input.u8() & 3));
            if from.max(to) + PAGE_BYTES <= file.len() {
                file.copy_within(from..from + PAGE_BYTES, to);
            }
        }
        _ => {
            let length = usize::from(input.u8() & 15) + 1;
            let bytes = input.bytes(length.min(file.len() - at));
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Makes the last four bytes the checksum of those before.
fn append_crc(bytes: &mut [u8]) {
    if let Some((covered, checksum)) = bytes.split_last_chunk_mut::<4>() {
        *checksum = crc32c::crc32c(covered).to_le_bytes();
    }
}

fn has_crc(bytes: &[u8]) -> bool {
    let split = bytes.split_last_chunk::<4>();
    split.is_some_and(|(covered, crc)| crc32c::crc32c(covered) == u32::from_le_bytes(*crc))
}

/// True if the fuzzer itself has found a checksum for bytes that were never written. A page in
/// another's place was written.
fn is_forged(files: &[Vec<u8>]) -> bool {
    let originals = || WORLD.files.iter().map(|file| &file.bytes[..]);
    let is_new_page = |page: &[u8]| {
        has_crc(page) && !originals().any(|file| file.chunks(PAGE_BYTES).any(|old| old == page))
    };
    let is_new_trailer = |segment: &[u8]| {
        let trailer = &segment[segment.len().saturating_sub(TRAILER_BYTES)..];
        has_crc(trailer) && !originals().any(|file| file.ends_with(trailer))
    };
    let is_new_manifest = has_crc(&files[0]) && files[0] != WORLD.files[0].bytes;
    let mut segments = files[1..].iter();
    is_new_manifest
        || segments.any(|file| file.chunks(PAGE_BYTES).any(is_new_page) || is_new_trailer(file))
}

fn fix(files: &mut [Vec<u8>], mode: u8) {
    let (manifest, segments) = files.split_first_mut().expect("there is a manifest");
    for segment in segments.iter_mut() {
        let trailer_at = segment.len().saturating_sub(TRAILER_BYTES);
        let (body, trailer) = segment.split_at_mut(trailer_at);
        if mode & FIX_PAGES != 0 {
            body.chunks_exact_mut(PAGE_BYTES).for_each(append_crc);
        }
        let numbers = trailer.get(32..40).and_then(|bytes| bytes.first_chunk());
        let directory_at = numbers.map_or(0, |pages| u64::from_le_bytes(*pages)).saturating_add(1);
        let directory_at = (directory_at as usize).saturating_mul(PAGE_BYTES);
        if mode & FIX_DIRECTORY != 0
            && let Some(directory) = body.get(directory_at..)
        {
            let (bytes, checksum) = (directory.len() as u64, crc32c::crc32c(directory));
            trailer[40..48].copy_from_slice(&bytes.to_le_bytes());
            trailer[48..52].copy_from_slice(&checksum.to_le_bytes());
        }
        if mode & FIX_TRAILER != 0 {
            append_crc(trailer);
        }
    }
    if mode & FIX_MANIFEST != 0 {
        fix_manifest(manifest, segments);
        append_crc(manifest);
    }
}

/// Makes the manifest describe the segments that it names as they are now.
fn fix_manifest(manifest: &mut [u8], segments: &[Vec<u8>]) {
    let mut entries = manifest.get_mut(MANIFEST_HEAD_BYTES..).unwrap_or_default();
    while let Some((entry, rest)) = entries.split_first_chunk_mut::<32>() {
        let name = format!("{:016x}.segment", u64::from_le_bytes(field(entry)));
        let mut named = WORLD.files[1..].iter().zip(segments);
        if let Some((_, bytes)) = named.find(|(original, _)| original.name == name) {
            let trailer = &bytes[bytes.len().saturating_sub(TRAILER_BYTES)..];
            if let (Some(records), Some(checksum)) = (trailer.get(24..32), trailer.get(60..64)) {
                entry[8..16].copy_from_slice(records);
                entry[16..24].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
                entry[24..28].copy_from_slice(checksum);
            }
        }
        entries = rest;
    }
}

fn field(bytes: &[u8]) -> [u8; 8] {
    *bytes.first_chunk().expect("a manifest's entry begins with a number of eight bytes")
}

fn restore_folder(files: &[Vec<u8>]) {
    let folder = WORLD.folder.path();
    for entry in std::fs::read_dir(folder).expect("the folder is listed") {
        let path = entry.expect("the folder is listed").path();
        if !WORLD.files.iter().any(|file| path.ends_with(&file.name)) {
            std::fs::remove_file(path).expect("the file is removed");
        }
    }
    for (original, bytes) in WORLD.files.iter().zip(files) {
        std::fs::write(folder.join(&original.name), bytes).expect("the file is written");
    }
}

fn check(files: &[Vec<u8>], is_forged: bool) {
    let folder = WORLD.folder.path();
    let read: usize = files.iter().map(Vec::len).sum();
    let opened = measure(|| Index::open(folder));
    if !is_forged {
        let bound = 4 * read + (1 << 20);
        assert!(opened.peak_bytes <= bound, "it took {} of {read}", opened.peak_bytes);
    }
    let is_same = files.iter().zip(&WORLD.files).all(|(bytes, original)| *bytes == original.bytes);
    let opened = opened.value;
    assert!(!is_same || opened.is_ok(), "{opened:?}");
    match opened {
        Ok(mut index) => {
            check_known(&index, files, is_forged);
            check_changes(&mut index, is_forged);
        }
        Err(IndexError::Damaged { .. }) => {}
        // A forged manifest can name a number of files that no process may hold open.
        Err(error) => assert!(is_forged, "{error}"),
    }
    check_reset(folder);
}

fn check_known(index: &Index, files: &[Vec<u8>], is_forged: bool) {
    for (place, (key, location)) in WORLD.known.iter().enumerate() {
        if is_forged && place % 10 != 0 {
            continue;
        }
        match index.lookup(key) {
            Ok(Some(found)) if found == *location => {}
            Ok(Some(found)) => {
                assert!(is_forged, "a wrong location");
                assert!(stands_in(files, key, found), "a location that is in no file");
            }
            Ok(None) => assert!(is_forged, "a known key was lost in silence"),
            Err(IndexError::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for number in 1000..1010 {
        match index.lookup(&key(number)) {
            Ok(found) => assert_eq!(found, None, "a key that was never put in"),
            Err(error) => assert!(matches!(error, IndexError::Damaged { .. }), "{error}"),
        }
    }
}

/// True if a file has this record, byte for byte.
fn stands_in(files: &[Vec<u8>], key: &Key, location: Value) -> bool {
    let record = [&key[..], &location.0.to_le_bytes()].concat();
    files.iter().any(|file| file.windows(record.len()).any(|window| window == record))
}

/// Insertions, merges and flushes over existing files work, or report that they are damaged.
fn check_changes(index: &mut Index, is_forged: bool) {
    let fresh = [(key(5000), Value(1)), (key(3), Value(2))];
    for round in 0..4 {
        for (key, location) in &fresh {
            index.insert(key, *location).expect("the table is nearly empty");
            assert_eq!(index.lookup(key).ok().flatten(), Some(*location));
        }
        match index.flush(&[round]) {
            Ok(()) => {}
            Err(IndexError::Damaged { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    match index.retain(|location| location != Value(1)) {
        Ok(()) => {
            let found = index.lookup(&key(5000));
            assert!(matches!(found, Ok(None)) || is_forged, "{found:?}");
        }
        Err(error) => assert!(matches!(error, IndexError::Damaged { .. }), "{error}"),
    }
}

fn check_reset(folder: &Path) {
    let mut index = Index::reset(folder).expect("a reset does not look at what is there");
    assert_eq!(index.stats().records, 0);
    index.insert(&key(1), Value(9)).expect("the table is empty");
    index.flush(b"again").expect("nothing is in the way");
    drop(index);
    let mut index = Index::open(folder).expect("it was just written");
    assert_eq!(index.take_note(), b"again");
    assert_eq!(index.lookup(&key(1)).expect("it was just written"), Some(Value(9)));
}

fn seeds() -> Vec<Vec<u8>> {
    let all = FIX_PAGES | FIX_TRAILER | FIX_DIRECTORY | FIX_MANIFEST;
    let write = |mode: u8, file: u8, from_end: u8, at: u16, bytes: &[u8]| {
        let [low, high] = at.to_le_bytes();
        let length = u8::try_from(bytes.len() - 1).expect("a seed is short");
        [&[mode, file << 4 | from_end << 3 | 7, low, high, 0, 0, length], bytes].concat()
    };
    vec![
        vec![0],
        vec![all],
        // In each part of a segment: header, page; head (prefixes, filter, seed), page, directory,
        // trailer.
        write(0, 1, 0, 20, &[1, 2]),
        write(0, 1, 0, 2 * 4096 + 904, &[1, 2]),
        write(all, 1, 0, 4096 + 8, &[0xff; 8]),
        write(all, 1, 0, 4096 + 240, &[0xff; 16]),
        write(all, 1, 0, 4096 + 4072, &[0; 8]),
        write(all, 1, 0, 2 * 4096 + 33, &[9; 8]),
        write(all, 1, 1, 64 + 8, &[0xff; 8]),
        write(all, 1, 1, 64 - 12, &[0xff; 4]),
        write(all, 1, 1, 64 - 24, &[3, 0, 0, 0, 0, 0, 0, 0]),
        write(all, 1, 1, 64 - 32, &[0xff; 8]),
        // The manifest: how many segments, which, how long a note.
        write(FIX_MANIFEST, 0, 0, 12, &[1, 0]),
        write(FIX_MANIFEST, 0, 0, 16, &[0xff; 8]),
        write(FIX_MANIFEST, 0, 0, 24, &[0xff; 8]),
        write(FIX_MANIFEST, 0, 0, 64, &[0]),
        vec![0, 0x10, 0, 32, 0, 0],
        vec![all, 0x15, 0, 32, 0, 0, 1],
    ]
}
