//! Venti's index (Quinlan and Dorward, "Venti: a new approach to archival storage", FAST 2002, §5):
//! a file of buckets of 8 KiB, as many as the keys expected need. A bucket holds the keys of one
//! section of all fingerprints, sorted; what does not fit is in the bucket behind it.
//!
//! A look-up is one read at random, for an unknown key too. What is inserted is gathered, sorted by
//! bucket and written in one pass, as Foundation does it; each pass reads and writes nearly
//! every bucket.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Result;
use super::keys::{Key, Record};

const BUCKET_BYTES: usize = 8192;
/// Of a bucket: entries (2), zero (6).
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 40;
const ENTRIES_MAX: usize = (BUCKET_BYTES - HEAD_BYTES) / ENTRY_BYTES;
/// Entries of a bucket, on average, when as many keys are in as were expected: three quarters, so
/// that one in 50,000 buckets overflows.
const ENTRIES_EXPECTED: u64 = ENTRIES_MAX as u64 * 3 / 4;

/// The index.
pub struct VentiIndex {
    file: File,
    path: PathBuf,
    buckets: u64,
    /// What is not written yet, in the order in which it came.
    pending: Vec<Record>,
    pending_max: usize,
}

/// A bucket in memory.
struct Bucket {
    number: u64,
    bytes: Box<[u8; BUCKET_BYTES]>,
    is_dirty: bool,
}

impl VentiIndex {
    /// Opens the index in `folder`, made for `keys_expected` if there is none yet, gathering at most
    /// `pending_max` records.
    pub fn open(folder: &Path, keys_expected: u64, pending_max: usize) -> Result<VentiIndex> {
        fs::create_dir_all(folder)?;
        let path = folder.join("buckets");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        if file.metadata()?.len() == 0 {
            let buckets = keys_expected.div_ceil(ENTRIES_EXPECTED).max(1);
            file.set_len(buckets * BUCKET_BYTES as u64)?;
        }
        let buckets = file.metadata()?.len() / BUCKET_BYTES as u64;
        Ok(VentiIndex { file, path, buckets, pending: Vec::new(), pending_max })
    }

    /// Puts a key where the record says.
    pub fn insert(&mut self, record: &Record) -> Result<()> {
        self.pending.push(*record);
        if self.pending.len() >= self.pending_max { self.flush() } else { Ok(()) }
    }

    /// Where `key` is.
    pub fn lookup(&self, key: &Key) -> Result<Option<u64>> {
        // Venti asks a cache of its own first. The phases look nothing up while something is pending.
        if let Some(record) = self.pending.iter().rev().find(|record| record.key == *key) {
            return Ok(Some(record.location));
        }
        let mut bytes = [0; BUCKET_BYTES];
        let first = self.bucket_of(key);
        for number in self.from(first) {
            self.file.read_exact_at(&mut bytes, number * BUCKET_BYTES as u64)?;
            match search(&bytes, key) {
                Ok(at) => return Ok(Some(Record::unpack(&slots(&bytes)[at]).location)),
                Err(_) if entries(&bytes) < ENTRIES_MAX => break,
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Writes what is pending, in one pass over the file.
    pub fn flush(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        // Stable: of equal keys the newest comes last and wins.
        pending.sort_by_key(|record| record.key);
        let bytes = Box::new([0; BUCKET_BYTES]);
        let mut bucket = Bucket { number: u64::MAX, bytes, is_dirty: false };
        for record in &pending {
            self.put(&mut bucket, record)?;
        }
        self.write_back(&mut bucket)?;
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    fn put(&self, bucket: &mut Bucket, record: &Record) -> Result<()> {
        let first = self.bucket_of(&record.key);
        for number in self.from(first) {
            if bucket.number != number {
                self.write_back(bucket)?;
                self.file.read_exact_at(&mut bucket.bytes[..], number * BUCKET_BYTES as u64)?;
                bucket.number = number;
            }
            let count = entries(&bucket.bytes);
            let at = match search(&bucket.bytes, &record.key) {
                Ok(at) => at,
                Err(_) if count == ENTRIES_MAX => continue,
                Err(at) => {
                    let begin = HEAD_BYTES + at * ENTRY_BYTES;
                    let end = HEAD_BYTES + count * ENTRY_BYTES;
                    bucket.bytes.copy_within(begin..end, begin + ENTRY_BYTES);
                    bucket.bytes[..2].copy_from_slice(&(count as u16 + 1).to_le_bytes());
                    at
                }
            };
            bucket.bytes[HEAD_BYTES..].as_chunks_mut::<ENTRY_BYTES>().0[at] = record.pack();
            bucket.is_dirty = true;
            return Ok(());
        }
        Err(format!("all buckets of {} are full", self.path.display()).into())
    }

    fn write_back(&self, bucket: &mut Bucket) -> Result<()> {
        if std::mem::take(&mut bucket.is_dirty) {
            self.file.write_all_at(&bucket.bytes[..], bucket.number * BUCKET_BYTES as u64)?;
        }
        Ok(())
    }

    /// The bucket whose section `key` is in: its first eight bytes, scaled.
    fn bucket_of(&self, key: &Key) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *key;
        let top = u64::from_le_bytes([h, g, f, e, d, c, b, a]);
        ((u128::from(top) * u128::from(self.buckets)) >> 64) as u64
    }

    /// All buckets, from one on.
    fn from(&self, first: u64) -> impl Iterator<Item = u64> + use<> {
        (first..self.buckets).chain(0..first)
    }
}

fn entries(bytes: &[u8; BUCKET_BYTES]) -> usize {
    usize::from(u16::from_le_bytes([bytes[0], bytes[1]])).min(ENTRIES_MAX)
}

fn slots(bytes: &[u8; BUCKET_BYTES]) -> &[[u8; ENTRY_BYTES]] {
    &bytes[HEAD_BYTES..].as_chunks().0[..entries(bytes)]
}

fn search(bytes: &[u8; BUCKET_BYTES], key: &Key) -> Result<usize, usize> {
    slots(bytes).binary_search_by(|slot| slot[..key.len()].cmp(key))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::keys::key;
    use super::*;

    /// A key of few; every fifth belongs to the last bucket, which they overflow.
    fn of_few(n: u16) -> Key {
        let mut key = key(1, n.into());
        if n.is_multiple_of(5) {
            key[..2].fill(0xff);
        }
        key
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn as_a_hash_map(
            inserts in prop::collection::vec((0u16..1500, 1u16..300, 0u64..1000, 0u8..4), 1..20),
            pending_max in 1usize..2000,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let open = || VentiIndex::open(folder.path(), 1800, pending_max).unwrap();
            let (mut index, mut model) = (open(), HashMap::new());
            for (first, count, location, then) in inserts {
                for n in first..first + count {
                    let record = Record { key: of_few(n), location: location + u64::from(n) };
                    model.insert(record.key, record.location);
                    index.insert(&record).unwrap();
                }
                if then == 0 {
                    index.flush().unwrap();
                    index = open();
                }
            }
            for n in 0..2000 {
                let key = of_few(n);
                prop_assert_eq!(index.lookup(&key).unwrap(), model.get(&key).copied(), "{}", n);
            }
        }
    }

    #[test]
    fn a_full_index_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = VentiIndex::open(folder.path(), 100, 1000).unwrap();
        assert_eq!(index.buckets, 1);
        for n in 0..=ENTRIES_MAX as u64 {
            index.insert(&Record::nth(4, n)).unwrap();
        }
        let error = index.flush().unwrap_err().to_string();
        assert!(error.contains("full"), "{error}");
    }
}
