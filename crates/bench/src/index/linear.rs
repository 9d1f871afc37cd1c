//! A linear-hashed store, as Arrow keeps its chunks in (§4; Litwin, "Linear hashing: a new tool for
//! file and table addressing", VLDB 1980): a block is a page, and the file grows one block at a
//! time.
//!
//! A block that fills beyond seven tenths makes block `n` split, whichever that is; what does not
//! fit into a block is in overflow pages behind it. Only fingerprints and locations are kept
//! here, where Arrow's blocks hold the chunks as well.

use std::fs;
use std::path::{Path, PathBuf};

use super::Result;
use super::keys::{Key, Record};
use super::pages::{Page, Pages};

/// Of a page: entries (2), zero (2), overflow page behind it, from 1 (4).
const HEAD_BYTES: usize = 8;
/// Key (32), location (8).
const ENTRY_BYTES: usize = 40;
/// What fits into a page.
const ENTRIES_MAX: usize = 102;
/// Seven tenths of it: a block with more makes block `n` split.
const LOAD_MAX: usize = 71;
/// Pages of overflow held in memory; there are few.
const OVERFLOW_SLOTS_MAX: usize = 256;

const _: () = assert!(HEAD_BYTES + ENTRIES_MAX * ENTRY_BYTES <= super::pages::PAGE_BYTES);

/// The store.
///
/// Invariant: there are `2^level + split` blocks, and `split < 2^level`.
pub struct LinearHash {
    blocks: Pages,
    overflow: Pages,
    state_path: PathBuf,
    /// Arrow's `i`.
    level: u64,
    /// Arrow's `n`: the block that splits next.
    split: u64,
    /// Overflow pages that were ever used, and those of them that nothing is in.
    overflow_pages: u64,
    free: Vec<u64>,
}

/// A page of a block: the block's own, or one of overflow.
#[derive(Clone, Copy)]
enum At {
    Block(u64),
    Overflow(u64),
}

impl LinearHash {
    /// Opens the store in `folder`, holding at most `memory_bytes` of pages.
    pub fn open(folder: &Path, memory_bytes: usize) -> Result<LinearHash> {
        fs::create_dir_all(folder)?;
        let state_path = folder.join("state");
        let numbers: Vec<u64> = fs::read_to_string(&state_path)
            .unwrap_or_default()
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let (state, free) = numbers.split_at_checked(3).unwrap_or((&[0; 3], &[]));
        Ok(LinearHash {
            blocks: Pages::open(&folder.join("blocks"), memory_bytes / size_of::<Page>())?,
            overflow: Pages::open(&folder.join("overflow"), OVERFLOW_SLOTS_MAX)?,
            state_path,
            level: state[0],
            split: state[1],
            overflow_pages: state[2],
            free: free.to_vec(),
        })
    }

    /// Where `key` is.
    pub fn lookup(&mut self, key: &Key) -> Result<Option<u64>> {
        let mut next = Some(At::Block(self.address(key)));
        while let Some(at) = next {
            let page = self.read(at)?;
            if let Some(slot) = find(page, key) {
                return Ok(Some(entry(page, slot).location));
            }
            next = behind(page);
        }
        Ok(None)
    }

    /// Puts a key where the record says.
    pub fn insert(&mut self, record: &Record) -> Result<()> {
        let block = self.address(&record.key);
        if self.put(block, record)? > LOAD_MAX {
            self.split()?;
        }
        Ok(())
    }

    /// Writes all that was changed.
    pub fn flush(&mut self) -> Result<()> {
        self.blocks.flush()?;
        self.overflow.flush()?;
        let numbers = [self.level, self.split, self.overflow_pages];
        let numbers: Vec<String> =
            numbers.iter().chain(&self.free).map(ToString::to_string).collect();
        Ok(fs::write(&self.state_path, numbers.join(" "))?)
    }

    /// LINEAR-HASH of Arrow's figure 3: the block that `key` belongs to.
    fn address(&self, key: &Key) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *key;
        let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let block = number % (1 << self.level);
        if block < self.split { number % (1 << (self.level + 1)) } else { block }
    }

    /// Puts a record into a block, and returns how many records the block's pages then hold.
    fn put(&mut self, block: u64, record: &Record) -> Result<usize> {
        let (mut at, mut room, mut count) = (At::Block(block), None, 0);
        loop {
            let page = self.read(at)?;
            count += entries(page);
            if let Some(slot) = find(page, &record.key) {
                set_entry(self.write(at)?, slot, record);
                return Ok(count);
            }
            if room.is_none() && entries(page) < ENTRIES_MAX {
                room = Some(at);
            }
            match behind(page) {
                Some(next) => at = next,
                None => break,
            }
        }
        let room = match room {
            Some(room) => room,
            None => self.append_overflow(at)?,
        };
        let page = self.write(room)?;
        let slot = entries(page);
        set_entry(page, slot, record);
        set_entries(page, slot + 1);
        Ok(count + 1)
    }

    /// Puts an empty page behind the last one of a block.
    fn append_overflow(&mut self, last: At) -> Result<At> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.overflow_pages += 1;
            self.overflow_pages - 1
        });
        self.overflow.write(number)?.fill(0);
        let link = u32::try_from(number + 1)?;
        self.write(last)?[4..8].copy_from_slice(&link.to_le_bytes());
        Ok(At::Overflow(number))
    }

    /// Adds a block, and moves to it what now belongs there of block `split`.
    fn split(&mut self) -> Result<()> {
        let (from, mut records) = (self.split, Vec::new());
        let mut next = Some(At::Block(from));
        while let Some(at) = next {
            let page = self.write(at)?;
            records.extend((0..entries(page)).map(|slot| entry(page, slot)));
            next = behind(page);
            page.fill(0);
            if let At::Overflow(number) = at {
                self.free.push(number);
            }
        }
        self.split += 1;
        if self.split == 1 << self.level {
            self.level += 1;
            self.split = 0;
        }
        for record in &records {
            let block = self.address(&record.key);
            self.put(block, record)?;
        }
        Ok(())
    }

    fn read(&mut self, at: At) -> Result<&Page> {
        match at {
            At::Block(number) => self.blocks.read(number),
            At::Overflow(number) => self.overflow.read(number),
        }
    }

    fn write(&mut self, at: At) -> Result<&mut Page> {
        match at {
            At::Block(number) => self.blocks.write(number),
            At::Overflow(number) => self.overflow.write(number),
        }
    }
}

fn entries(page: &Page) -> usize {
    usize::from(u16::from_le_bytes([page[0], page[1]])).min(ENTRIES_MAX)
}

fn set_entries(page: &mut Page, count: usize) {
    page[..2].copy_from_slice(&(count as u16).to_le_bytes());
}

fn behind(page: &Page) -> Option<At> {
    let link = u32::from_le_bytes([page[4], page[5], page[6], page[7]]);
    link.checked_sub(1).map(|number| At::Overflow(number.into()))
}

/// The linear search that Arrow does, a few words at a time.
fn find(page: &Page, key: &Key) -> Option<usize> {
    let slots = page[HEAD_BYTES..].as_chunks::<ENTRY_BYTES>().0;
    slots[..entries(page)].iter().position(|slot| slot[..key.len()] == key[..])
}

fn entry(page: &Page, slot: usize) -> Record {
    let slot = &page[HEAD_BYTES..].as_chunks::<ENTRY_BYTES>().0[slot];
    Record::unpack(slot)
}

fn set_entry(page: &mut Page, slot: usize, record: &Record) {
    page[HEAD_BYTES..].as_chunks_mut::<ENTRY_BYTES>().0[slot] = record.pack();
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::keys::key;
    use super::*;

    /// A key of few; every third belongs to the same block however many there are.
    fn of_few(n: u16) -> Key {
        let mut key = key(1, n.into());
        if n.is_multiple_of(3) {
            key[..8].fill(0x55);
        }
        key
    }

    #[derive(Clone, Debug)]
    enum Action {
        Insert { first: u16, count: u16, location: u64 },
        Flush,
        Reopen,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            6 => (0u16..2000, 1u16..500, 0u64..1000)
                .prop_map(|(first, count, location)| Action::Insert { first, count, location }),
            1 => Just(Action::Flush),
            1 => Just(Action::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn as_a_hash_map(
            actions in prop::collection::vec(action(), 1..20),
            pages in 1usize..20,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let open = || LinearHash::open(folder.path(), pages * size_of::<Page>()).unwrap();
            let (mut store, mut model) = (open(), HashMap::new());
            for action in actions {
                match action {
                    Action::Insert { first, count, location } => {
                        for n in first..first + count {
                            let record = Record { key: of_few(n), location: location + n as u64 };
                            model.insert(record.key, record.location);
                            store.insert(&record).unwrap();
                        }
                    }
                    Action::Flush => store.flush().unwrap(),
                    Action::Reopen => {
                        store.flush().unwrap();
                        store = open();
                    }
                }
            }
            for n in 0..2600 {
                let key = of_few(n);
                prop_assert_eq!(store.lookup(&key).unwrap(), model.get(&key).copied(), "{}", n);
            }
        }
    }

    /// Keys that are spread evenly fill about half of the blocks and need hardly any overflow.
    #[test]
    fn it_grows_by_one_block_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = LinearHash::open(folder.path(), 1 << 20).unwrap();
        for n in 0..50_000 {
            store.insert(&Record { key: key(2, n), location: n }).unwrap();
        }
        let blocks = (1 << store.level) + store.split;
        let load = 50_000.0 / (blocks as f64 * ENTRIES_MAX as f64);
        assert!((0.4..0.7).contains(&load), "{load:.2} in {blocks} blocks");
        assert!(store.overflow_pages < blocks / 100 + 2, "{} of overflow", store.overflow_pages);
    }
}
