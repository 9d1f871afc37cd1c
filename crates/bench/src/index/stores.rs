//! The stores that are compared, behind one trait. Each may hold about 64 MiB in memory, for what
//! it caches and what it gathers.

use std::path::Path;
use std::time::Duration;

use fjall::config::PartitioningPolicy;
use fjall::{Database as Fjall, Keyspace, KeyspaceCreateOptions, PersistMode};
use redb::{Database as Redb, ReadOnlyTable, ReadableDatabase, TableDefinition};
use strongroom_index::{Index, Value};

use super::Result;
use super::keys::{Key, Record};
use super::linear::LinearHash;
use super::venti::VentiIndex;

/// What a store may hold in memory, if it takes a limit.
const MEMORY_BYTES: usize = 64 << 20;

/// A store of fingerprints.
pub trait Store {
    /// Inserts the records and commits them: a crash of the process loses none.
    fn insert(&mut self, records: &mut dyn Iterator<Item = Record>) -> Result<()>;

    /// Where `key` is.
    fn lookup(&mut self, key: &Key) -> Result<Option<u64>>;

    /// Waits until nothing is done behind the caller's back.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Brings everything into the form in which it is read best; false if the store knows no such
    /// thing.
    fn merge(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// The stores by name, with what they are.
pub const STORES: [(&str, &str); 5] = [
    ("ours", "strongroom-index"),
    ("redb", "B-tree"),
    ("fjall", "log-structured merge tree"),
    ("linear", "linear hashing, Arrow §4"),
    ("venti", "Venti's buckets"),
];

/// Opens the store called `name` in `folder`; `keys` are expected in it.
pub fn open(name: &str, folder: &Path, keys: u64) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(folder)?;
    Ok(match name {
        "ours" => Box::new(Ours(Index::open(folder)?)),
        "redb" => Box::new(RedbStore::open(folder)?),
        "fjall" => Box::new(FjallStore::open(folder)?),
        "linear" => Box::new(LinearHash::open(folder, MEMORY_BYTES)?),
        "venti" => Box::new(VentiIndex::open(folder, keys, MEMORY_BYTES / 64)?),
        _ => return Err(format!("there is no store {name}").into()),
    })
}

struct Ours(Index);

/// The engine's note has this for each arena,
const NOTE_BYTES_PER_ARENA: u64 = 25;
/// And an arena of 16 MiB holds as many chunks of 64 KiB, if they cannot be compressed.
const CHUNKS_PER_ARENA: u64 = 256;

impl Store for Ours {
    fn insert(&mut self, records: &mut dyn Iterator<Item = Record>) -> Result<()> {
        for record in records {
            self.0.insert(&record.key, Value(record.location))?;
        }
        let note_bytes = self.0.stats().records / CHUNKS_PER_ARENA * NOTE_BYTES_PER_ARENA;
        Ok(self.0.flush(&vec![7; note_bytes as usize])?)
    }

    fn lookup(&mut self, key: &Key) -> Result<Option<u64>> {
        Ok(self.0.lookup(key)?.map(|location| location.0))
    }

    fn merge(&mut self) -> Result<bool> {
        self.0.retain(|_| true)?;
        let note = self.0.take_note();
        self.0.flush(&note)?;
        Ok(true)
    }
}

impl Store for LinearHash {
    fn insert(&mut self, records: &mut dyn Iterator<Item = Record>) -> Result<()> {
        for record in records {
            LinearHash::insert(self, &record)?;
        }
        self.flush()
    }

    fn lookup(&mut self, key: &Key) -> Result<Option<u64>> {
        LinearHash::lookup(self, key)
    }
}

impl Store for VentiIndex {
    fn insert(&mut self, records: &mut dyn Iterator<Item = Record>) -> Result<()> {
        for record in records {
            VentiIndex::insert(self, &record)?;
        }
        self.flush()
    }

    fn lookup(&mut self, key: &Key) -> Result<Option<u64>> {
        VentiIndex::lookup(self, key)
    }
}

const REDB_TABLE: TableDefinition<'_, &[u8; 32], u64> = TableDefinition::new("index");

struct RedbStore {
    database: Redb,
    /// What look-ups read, until something is inserted.
    reader: Option<ReadOnlyTable<&'static [u8; 32], u64>>,
}

impl RedbStore {
    fn open(folder: &Path) -> Result<RedbStore> {
        let mut builder = Redb::builder();
        builder.set_cache_size(MEMORY_BYTES);
        Ok(RedbStore { database: builder.create(folder.join("redb"))?, reader: None })
    }
}

impl Store for RedbStore {
    fn insert(&mut self, records: &mut dyn Iterator<Item = Record>) -> Result<()> {
        self.reader = None;
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(REDB_TABLE)?;
            for record in records {
                table.insert(&record.key, record.location)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn lookup(&mut self, key: &Key) -> Result<Option<u64>> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.database.begin_read()?.open_table(REDB_TABLE)?,
        };
        let found = reader.get(key)?.map(|location| location.value());
        self.reader = Some(reader);
        Ok(found)
    }

    fn merge(&mut self) -> Result<bool> {
        self.reader = None;
        self.database.compact()?;
        Ok(true)
    }
}

struct FjallStore {
    database: Fjall,
    keyspace: Keyspace,
}

impl FjallStore {
    fn open(folder: &Path) -> Result<FjallStore> {
        let database = Fjall::builder(folder).cache_size(MEMORY_BYTES as u64 / 2).open()?;
        // One memtable being filled and one being written. Filters and indices in blocks of 4 KiB on
        // every level: whole, they do not fit into the cache, and each look-up reads some of them.
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMORY_BYTES as u64 / 4)
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        let keyspace = database.keyspace("index", options)?;
        Ok(FjallStore { database, keyspace })
    }
}

impl Store for FjallStore {
    fn insert(&mut self, records: &mut dyn Iterator<Item = Record>) -> Result<()> {
        for record in records {
            self.keyspace.insert(record.key, record.location.to_le_bytes())?;
        }
        Ok(self.database.persist(PersistMode::Buffer)?)
    }

    fn lookup(&mut self, key: &Key) -> Result<Option<u64>> {
        let Some(value) = self.keyspace.get(key)? else { return Ok(None) };
        let bytes = value.first_chunk().ok_or("a location has eight bytes")?;
        Ok(Some(u64::from_le_bytes(*bytes)))
    }

    fn settle(&mut self) -> Result<()> {
        while self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn merge(&mut self) -> Result<bool> {
        self.keyspace.rotate_memtable_and_wait()?;
        self.settle()?;
        self.keyspace.major_compact()?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each store keeps what it is given, over two openings and a merge.
    #[test]
    fn every_store_answers() {
        for (name, _) in STORES {
            let folder = tempfile::tempdir().unwrap();
            let mut store = open(name, folder.path(), 20_000).unwrap();
            store.insert(&mut (0..9_000).map(|n| Record::nth(1, n))).unwrap();
            store.insert(&mut (9_000..10_000).map(|n| Record::nth(1, n))).unwrap();
            store.settle().unwrap();
            drop(store);
            for merged in [false, true] {
                let mut store = open(name, folder.path(), 20_000).unwrap();
                if merged && !store.merge().unwrap() {
                    continue;
                }
                for n in (0..20_000).step_by(7) {
                    let expected = (n < 10_000).then_some(n);
                    let found = store.lookup(&Record::nth(1, n).key).unwrap();
                    assert_eq!(found, expected, "{name}, {n}");
                }
            }
        }
    }
}
