//! Reads, files and memory.

use strongroom_index::{Index, TABLE_RECORDS_MAX};

use crate::{assert_known, assert_unknown, insert, key, location};

/// Spills, a merge, and the bounds on what look-ups cost.
#[test]
fn a_million_records() {
    const COUNT: u64 = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    insert(&mut index, 0, COUNT);
    // Four tables were spilled, and merged.
    assert_eq!(COUNT as usize / TABLE_RECORDS_MAX, 4);
    assert_eq!(index.stats().segments, 1);
    index.flush(b"a million").unwrap();
    drop(index);

    let index = Index::open(directory.path()).unwrap();
    let stats = index.stats();
    assert_eq!((stats.records, stats.segments, stats.page_reads), (COUNT, 2, 0));
    assert!(stats.disk_bytes < COUNT * 42, "{stats:?}");
    // Room for heads, eleven bits a record, even for those that were not asked for yet.
    assert!(stats.memory_bytes < COUNT as usize * 11 / 8, "{stats:?}");

    // One page for a key that is known, and 1 in 256 for each newer segment.
    assert_known(&index, 0, 100_000);
    let hits = index.stats();
    assert_eq!((hits.lookups, hits.filter_negatives), (100_000, 0));
    assert!((100_000..101_500).contains(&hits.page_reads), "{hits:?}");

    // Each head once; then it is in memory.
    let partitions = COUNT / (30 * 102) + 2;
    assert!(hits.head_reads <= partitions, "{hits:?}");
    let bits = hits.memory_bytes as f64 * 8.0 / COUNT as f64;
    assert!(bits < 11.0, "{bits:.2} bits a record");

    // None for a key that is not, but for 1 in 256 for each segment.
    assert_unknown(&index, COUNT, COUNT + 100_000);
    let misses = index.stats();
    let page_reads = misses.page_reads - hits.page_reads;
    assert!(page_reads < 2_000, "{misses:?}");
    assert!(misses.filter_negatives > 98_000, "{misses:?}");
}

/// A head that is not kept in memory is read: one for each segment and look-up.
#[test]
fn heads_that_are_not_kept() {
    const COUNT: u64 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    insert(&mut index, 0, COUNT);
    index.flush(b"").unwrap();
    insert(&mut index, COUNT, COUNT + 1_000);
    index.flush(b"").unwrap();
    // The head of the small segment, which is the newer one, and two of the seven of the other.
    for (heads, range) in [(0, 2_000..2_001), (1, 1_001..1_002), (3, 600..900), (8, 8..9)] {
        let index = Index::open(directory.path()).unwrap().with_heads_max(heads);
        assert_eq!(index.stats().segments, 2);
        assert_unknown(&index, COUNT + 1_000, COUNT + 2_000);
        let stats = index.stats();
        assert!(range.contains(&stats.head_reads), "{heads} kept: {stats:?}");
        assert!(stats.memory_bytes < heads * 4_200 + 100, "{heads} kept: {stats:?}");
        assert_known(&index, 0, 1_000);
    }
}

/// A key that is the first of its page, and every other one, costs one page in a lone segment.
#[test]
fn every_hit_reads_one_page() {
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    insert(&mut index, 0, 10_000);
    index.flush(b"").unwrap();
    assert_known(&index, 0, 10_000);
    assert_eq!(index.stats().page_reads, 10_000);
}

/// Keys that are not random cost more, but are found: one prefix over all pages of seven partitions.
#[test]
fn keys_that_share_their_prefix() {
    const COUNT: u64 = 20_000;
    let shared = |n: u64| {
        let mut key = key(n);
        key[..8].fill(0x55);
        key[8..16].copy_from_slice(&(n * 2).swap_bytes().to_le_bytes());
        key
    };
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    for n in 0..COUNT {
        index.insert(&shared(n), location(n)).unwrap();
    }
    index.flush(b"").unwrap();
    let partition = 102 * 30;
    let edges = [0, 101, 102, 103, partition - 102, partition - 1, partition, COUNT - 1];
    for n in edges {
        assert_eq!(index.lookup(&shared(n)).unwrap(), Some(location(n)), "{n}");
    }
    for n in [0, partition - 1, COUNT - 1] {
        let mut between = shared(n);
        between[15] += 1;
        assert_eq!(index.lookup(&between).unwrap(), None);
    }
}

#[test]
fn the_table_reads_nothing() {
    let mut index = Index::in_memory();
    insert(&mut index, 0, 1_000);
    assert_known(&index, 0, 1_000);
    assert_unknown(&index, 1_000, 2_000);
    let stats = index.stats();
    assert_eq!((stats.lookups, stats.filter_negatives, stats.page_reads), (2_000, 1_000, 0));
    assert_eq!((stats.disk_bytes, stats.segments), (0, 0));
}

#[test]
fn memory_is_bounded_whatever_is_inserted() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Index::open(directory.path()).unwrap().with_table_records_max(1_000);
    let mut reader = Index::open(directory.path()).unwrap().with_table_records_max(1_000);
    for index in [&mut writer, &mut reader] {
        insert(index, 0, 100_000);
        let stats = index.stats();
        assert!(stats.segments < 16, "{stats:?}");
        assert!(stats.memory_bytes < 100_000 * 2 + 2_048 * 41, "{stats:?}");
        assert_known(index, 0, 100_000);
    }
}

#[test]
fn many_flushes_leave_few_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    for n in 0..200 {
        insert(&mut index, n * 50, n * 50 + 50);
        index.flush(&n.to_le_bytes()).unwrap();
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert!(index.stats().segments <= 12 && files <= 14, "{files} files");
    }
    assert_known(&index, 0, 10_000);
    // Flushing nothing makes no segment.
    let before = index.stats();
    index.flush(b"again").unwrap();
    assert_eq!(index.stats().segments, before.segments);
}
