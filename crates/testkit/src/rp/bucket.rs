//! A bucket: a tree with a head that says which range of the keys it holds.
//!
//! Page 0 is the head. All else is found from it by numbers of pages, so the bytes mean the same at
//! any address and in any process. An area of zeros is an empty bucket.
//!
//! ```text
//! offset  size
//!      0     8  "RP*BUCK1"
//!      8     4  bytes of a page
//!     12     4  how many pages
//!     16     8  split version: rises each time that the bucket gives a part of its range away
//!     24     8  how many records
//!     32     4  the page of the root
//!     36     4  the level of the root
//!     40     4  the first page that was never used
//!     44     4  the first free page, or 0
//!     48     4  how many free pages
//!     52     2  length of the first key of the range
//!     54     2  length of the first key behind it, or 0xffff if there is none
//!     56    32  the first key
//!     88    32  the first key behind the range
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use strongroom_bucket::KeyRange;

use super::area::{Area, PAGE_BYTES, PageBytes};
use super::error::{RpError, TreeError};
use super::tree::{self, KEY_BYTES_MAX, Root, Tree};

const MAGIC: [u8; 8] = *b"RP*BUCK1";
const NO_KEY: u16 = u16::MAX;
/// The head, and a tree that can be split.
const PAGES_MIN: u32 = 8;

/// Records, each a key and a value.
pub type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// A bucket in its memory.
#[derive(Debug)]
pub struct Bucket {
    area: Area,
    /// The same as in page 0; none if the bucket is empty.
    head: Option<Head>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    range: KeyRange,
    split_version: u64,
    root: Root,
}

impl Bucket {
    /// An empty bucket with room for this many pages, but at least 8.
    pub fn create(pages: u32) -> io::Result<Self> {
        Ok(Self { area: Area::create(pages.max(PAGES_MIN))?, head: None })
    }

    /// The bucket in an area of another process, verified.
    pub fn open(fd: OwnedFd) -> Result<Self, RpError> {
        let area = Area::open(fd).map_err(RpError::Memory)?;
        let mut bucket = Self { area, head: None };
        bucket.refresh()?;
        Ok(bucket)
    }

    /// Looks at the memory again, after another process has loaded a bucket into it, and verifies
    /// it. If it is damaged, the bucket is empty until the next time.
    pub fn refresh(&mut self) -> Result<(), TreeError> {
        self.head = None;
        let head = self.read_head()?;
        if let Some(head) = &head {
            tree::verify(&self.area, &head.root)?;
        }
        self.head = head;
        Ok(())
    }

    /// Whether the head in the memory is another than this process has written.
    pub fn was_replaced(&self) -> bool {
        self.read_head().map_or(true, |head| head != self.head)
    }

    /// Makes an empty bucket hold a range without records.
    pub fn begin(&mut self, range: KeyRange, split_version: u64) -> Result<(), TreeError> {
        for key in range.high.iter().chain([&range.low]) {
            tree::check_length("key", key.len(), KEY_BYTES_MAX)?;
        }
        let root = tree::create(&mut self.area)?;
        self.head = Some(Head { range, split_version, root });
        self.write_head()
    }

    /// Makes the bucket empty and gives back its memory.
    pub fn clear(&mut self) -> io::Result<()> {
        self.head = None;
        self.area.clear()
    }

    /// The range of the keys, unless it is empty.
    pub fn range(&self) -> Option<&KeyRange> {
        self.head.as_ref().map(|head| &head.range)
    }

    /// How many times this range was split.
    pub fn split_version(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.split_version)
    }

    /// How many records it has.
    pub fn records(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.root.records)
    }

    /// How long its memory is.
    pub fn bytes(&self) -> u64 {
        self.area.bytes()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TreeError> {
        tree::get(&self.area, &self.head()?.root, key)
    }

    /// Puts a record, in place of the one with its key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        self.change(|tree| tree.put(key, value))
    }

    /// Removes a record; returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, TreeError> {
        self.change(|tree| tree.remove(key))
    }

    /// Records from a key on, in order, until they have more than this many bytes, and the key to
    /// go on with: at last the end of the range.
    pub fn scan(
        &self,
        from: &[u8],
        bytes_max: usize,
    ) -> Result<(Records, Option<Vec<u8>>), TreeError> {
        let head = self.head()?;
        let (mut records, mut bytes) = (Records::new(), 0);
        let mut from = from.to_vec();
        loop {
            let leaf = tree::leaf(&self.area, &head.root, &from)?;
            for index in leaf.begin..leaf.page.count() {
                let (key, value) = (leaf.page.key(index), leaf.page.value(index));
                if bytes > bytes_max {
                    return Ok((records, Some(key.to_vec())));
                }
                bytes += key.len() + value.len();
                records.push((key.to_vec(), value.to_vec()));
            }
            let Some(next) = leaf.next else { return Ok((records, head.range.high.clone())) };
            from = next;
        }
    }

    /// The key from which on about half of the records are; none if there are fewer than two.
    pub fn middle(&self) -> Result<Option<Vec<u8>>, TreeError> {
        let head = self.head()?;
        let (mut passed, half) = (0, head.root.records / 2);
        let mut from = Vec::new();
        loop {
            let leaf = tree::leaf(&self.area, &head.root, &from)?;
            let count = leaf.page.count() as u64;
            if half > 0 && passed + count > half {
                return Ok(Some(leaf.page.key((half - passed) as usize).to_vec()));
            }
            passed += count;
            let Some(next) = leaf.next else { return Ok(None) };
            from = next;
        }
    }

    /// Gives away the range from a key on, with its records.
    pub fn truncate(&mut self, from: Vec<u8>, split_version: u64) -> Result<(), TreeError> {
        self.change(|tree| tree.truncate(&from))?;
        let head = self.head.as_mut().ok_or(TreeError::Empty)?;
        head.range.high = Some(from);
        head.split_version = split_version;
        self.write_head()
    }

    /// Gives a bucket all keys, for tests.
    #[cfg(test)]
    pub fn widen(&mut self) -> Result<(), TreeError> {
        self.head.as_mut().ok_or(TreeError::Empty)?.range = KeyRange::whole();
        self.write_head()
    }

    /// How many levels its tree has, for tests.
    #[cfg(test)]
    pub fn levels(&self) -> u32 {
        self.head.as_ref().map_or(0, |head| u32::from(head.root.level) + 1)
    }

    /// Reads all of it and verifies the order of the keys and the counts.
    pub fn verify(&self) -> Result<(), TreeError> {
        tree::verify(&self.area, &self.head()?.root)
    }

    fn read_head(&self) -> Result<Option<Head>, TreeError> {
        let head = Head::parse(&*self.area.read(0)?, self.area.pages());
        head.map_err(|what| TreeError::Damaged { page: 0, what })
    }

    fn head(&self) -> Result<&Head, TreeError> {
        self.head.as_ref().ok_or(TreeError::Empty)
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Tree<'_>) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        let head = self.head.as_mut().ok_or(TreeError::Empty)?;
        let before = head.root.clone();
        let changed = change(&mut Tree::new(&mut self.area, &mut head.root));
        if head.root != before {
            self.write_head()?;
        }
        changed
    }

    fn write_head(&mut self) -> Result<(), TreeError> {
        let bytes = self.head()?.pack(self.area.pages());
        self.area.write(0, &bytes)
    }
}

impl AsFd for Bucket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.area.as_fd()
    }
}

impl Head {
    fn pack(&self, pages: u32) -> PageBytes {
        let Root { page, level, records, unused, free, free_pages } = self.root;
        let mut bytes: PageBytes = Box::new([0; PAGE_BYTES]);
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        for (at, number) in [(8, PAGE_BYTES as u32), (12, pages), (32, page), (36, level.into())] {
            put(at, &number.to_le_bytes());
        }
        for (at, number) in [(40, unused), (44, free), (48, free_pages)] {
            put(at, &number.to_le_bytes());
        }
        put(16, &self.split_version.to_le_bytes());
        put(24, &records.to_le_bytes());
        put(52, &(self.range.low.len() as u16).to_le_bytes());
        put(56, &self.range.low);
        let high = self.range.high.as_ref();
        put(54, &high.map_or(NO_KEY, |high| high.len() as u16).to_le_bytes());
        put(88, high.map_or(&[], Vec::as_slice));
        bytes
    }

    /// None is an empty bucket.
    fn parse(bytes: &[u8; PAGE_BYTES], pages: u32) -> Result<Option<Self>, &'static str> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes[..8] != MAGIC {
            return Err("is no head of a bucket");
        }
        let u64_at = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let u32_at = |at: usize| u64_at(at) as u32;
        if u32_at(8) != PAGE_BYTES as u32 || u32_at(12) != pages {
            return Err("is of a bucket of another size");
        }
        let key = |length_at: usize, at: usize| {
            let length = usize::from(u64_at(length_at) as u16);
            (length <= KEY_BYTES_MAX).then(|| bytes[at..at + length].to_vec())
        };
        let has_high = u64_at(54) as u16 != NO_KEY;
        let low = key(52, 56).ok_or("has a range with too long a key")?;
        let high = has_high.then(|| key(54, 88).ok_or("has a range with too long a key"));
        let range = KeyRange { low, high: high.transpose()? };
        if !range.is_valid() {
            return Err("has a range without keys");
        }
        let root = Root {
            page: u32_at(32),
            level: u8::try_from(u32_at(36)).map_err(|_| "has too many levels")?,
            records: u64_at(24),
            unused: u32_at(40),
            free: u32_at(44),
            free_pages: u32_at(48),
        };
        Ok(Some(Self { range, split_version: u64_at(16), root }))
    }
}
