//! A page of a tree: entries sorted by key, in a page of fixed length.
//!
//! ```text
//! offset  size
//!      0     1  kind: 1 is a node, 2 is free
//!      1     1  level: 0 is a leaf; a node's children are one level below it
//!      2     2  how many entries
//!      4     2  where the cells begin
//!      6     2  zero
//!      8     4  free: the next free page, or 0
//!     12     4  zero
//!     16    2n  slots: where each entry's cell begins, in the order of the keys
//!    ...        cells, up to the end: length of the key (1), of the value (2), key, value
//! ```
//!
//! All numbers are little-endian. A page that was parsed is whole: each slot leads to a cell within
//! the page, the keys rise, no entry is too long, and all of them together have room in a page.

use super::area::{PAGE_BYTES, PageBytes};

/// Bytes that a key may have at most.
pub const KEY_BYTES_MAX: usize = 32;
/// Bytes that a value may have at most.
pub const VALUE_BYTES_MAX: usize = 4 << 10;

const NODE: u8 = 1;
const FREE: u8 = 2;

const KIND: usize = 0;
const LEVEL: usize = 1;
const COUNT: usize = 2;
const CELLS: usize = 4;
const NEXT: usize = 8;
const SLOTS: usize = 16;
const SLOT_BYTES: usize = 2;
/// The value of an entry above the leaves: the number of a page.
const CHILD_BYTES: usize = 4;
/// The lengths at the begin of a cell.
const CELL_HEAD_BYTES: usize = 3;

/// A node.
#[derive(Clone)]
pub struct Page(PageBytes);

impl Page {
    /// A node without entries.
    pub fn new(level: u8) -> Self {
        let mut page = Self(Box::new([0; PAGE_BYTES]));
        page.0[KIND] = NODE;
        page.0[LEVEL] = level;
        page.set(CELLS, PAGE_BYTES);
        page
    }

    /// Verifies that the bytes are a node of this level.
    pub fn parse(bytes: PageBytes, level: u8) -> Result<Self, &'static str> {
        if bytes[KIND] != NODE {
            return Err("is no node");
        }
        if bytes[LEVEL] != level {
            return Err("is of another level of the tree");
        }
        let page = Self(bytes);
        let slots_end = SLOTS + page.count() * SLOT_BYTES;
        let cells = page.get(CELLS);
        if slots_end > cells || cells > PAGE_BYTES {
            return Err("has more entries than have room");
        }
        let mut last: Option<&[u8]> = None;
        for index in 0..page.count() {
            let at = page.slot(index);
            let is_whole = at >= cells
                && at + CELL_HEAD_BYTES <= PAGE_BYTES
                && at + page.cell_bytes(at) <= PAGE_BYTES;
            if !is_whole {
                return Err("has an entry outside of it");
            }
            if !page.has_right_lengths(index) {
                return Err("has an entry of a wrong length");
            }
            let key = page.key(index);
            if last.is_some_and(|last| last >= key) {
                return Err("has keys that do not rise");
            }
            last = Some(key);
        }
        // Cells could lie on each other.
        if page.used() > PAGE_BYTES - SLOTS {
            return Err("has more entries than have room");
        }
        Ok(page)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.0
    }

    /// How many entries.
    pub fn count(&self) -> usize {
        self.get(COUNT)
    }

    /// The key of an entry.
    pub fn key(&self, index: usize) -> &[u8] {
        let at = self.slot(index);
        &self.0[at + CELL_HEAD_BYTES..][..self.0[at].into()]
    }

    /// The value of an entry.
    pub fn value(&self, index: usize) -> &[u8] {
        let at = self.slot(index);
        let begin = at + CELL_HEAD_BYTES + usize::from(self.0[at]);
        &self.0[begin..][..self.get(at + 1)]
    }

    /// The child of an entry above the leaves.
    pub fn child(&self, index: usize) -> u32 {
        let mut number = [0; CHILD_BYTES];
        number.copy_from_slice(self.value(index));
        u32::from_le_bytes(number)
    }

    /// The child below which a key belongs. The first one has all keys below the second.
    pub fn child_for(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(index) => index,
            Err(place) => place.saturating_sub(1),
        }
    }

    /// The entry with this key, or the place for it.
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Puts an entry at its place; returns false if the page has no room for it.
    pub fn insert(&mut self, index: usize, key: &[u8], value: &[u8]) -> bool {
        let needed = entry_bytes(key, value);
        if self.gap() < needed {
            if PAGE_BYTES - SLOTS - self.used() < needed {
                return false;
            }
            self.compact();
        }
        let count = self.count();
        let at = self.get(CELLS) - (needed - SLOT_BYTES);
        let cell = &mut self.0[at..][..needed - SLOT_BYTES];
        cell[0] = key.len() as u8;
        cell[1..3].copy_from_slice(&(value.len() as u16).to_le_bytes());
        cell[CELL_HEAD_BYTES..][..key.len()].copy_from_slice(key);
        cell[CELL_HEAD_BYTES + key.len()..].copy_from_slice(value);
        let slot = SLOTS + index * SLOT_BYTES;
        self.0.copy_within(slot..SLOTS + count * SLOT_BYTES, slot + SLOT_BYTES);
        self.set(slot, at);
        self.set(CELLS, at);
        self.set(COUNT, count + 1);
        true
    }

    /// Removes an entry. Its cell stays until the room is needed.
    pub fn remove(&mut self, index: usize) {
        let count = self.count();
        let slot = SLOTS + index * SLOT_BYTES;
        self.0.copy_within(slot + SLOT_BYTES..SLOTS + count * SLOT_BYTES, slot);
        self.set(COUNT, count - 1);
    }

    /// Makes the first key empty, in a page above the leaves: keys below those that were there when
    /// it was made may come to be below it.
    pub fn forget_first_key(&mut self) {
        let child = self.child(0);
        self.remove(0);
        let has_room = self.insert(0, &[], &child.to_le_bytes());
        assert!(has_room, "an entry has room in its own place");
    }

    /// Keeps only the first entries.
    pub fn truncate(&mut self, count: usize) {
        self.set(COUNT, count.min(self.count()));
    }

    /// This page with one more entry, as two pages of about the same length. Each entry is at most
    /// a quarter of a page, so both have room.
    pub fn split_with(&self, index: usize, key: &[u8], value: &[u8]) -> (Self, Self) {
        let mut entries: Vec<(&[u8], &[u8])> =
            (0..self.count()).map(|index| (self.key(index), self.value(index))).collect();
        entries.insert(index, (key, value));
        let total: usize = entries.iter().map(|(key, value)| entry_bytes(key, value)).sum();
        let (mut left, mut right) = (Self::new(self.0[LEVEL]), Self::new(self.0[LEVEL]));
        let mut passed = 0;
        for (key, value) in &entries {
            let page = if passed * 2 < total { &mut left } else { &mut right };
            let has_room = page.insert(page.count(), key, value);
            assert!(has_room, "half of a page and one entry more have room");
            passed += entry_bytes(key, value);
        }
        (left, right)
    }

    /// Bytes between the slots and the cells.
    fn gap(&self) -> usize {
        self.get(CELLS) - (SLOTS + self.count() * SLOT_BYTES)
    }

    /// Bytes that entries need.
    fn used(&self) -> usize {
        (0..self.count()).map(|index| SLOT_BYTES + self.cell_bytes(self.slot(index))).sum()
    }

    fn has_right_lengths(&self, index: usize) -> bool {
        let (key, value) = (self.key(index).len(), self.value(index).len());
        let is_value =
            if self.0[LEVEL] == 0 { value <= VALUE_BYTES_MAX } else { value == CHILD_BYTES };
        key <= KEY_BYTES_MAX && is_value
    }

    /// Moves all cells to the end.
    fn compact(&mut self) {
        let mut page = Self::new(self.0[LEVEL]);
        for index in 0..self.count() {
            let has_room = page.insert(index, self.key(index), self.value(index));
            assert!(has_room, "the same entries have room in a page");
        }
        *self = page;
    }

    fn cell_bytes(&self, at: usize) -> usize {
        CELL_HEAD_BYTES + usize::from(self.0[at]) + self.get(at + 1)
    }

    fn slot(&self, index: usize) -> usize {
        self.get(SLOTS + index * SLOT_BYTES)
    }

    fn get(&self, at: usize) -> usize {
        u16::from_le_bytes([self.0[at], self.0[at + 1]]).into()
    }

    fn set(&mut self, at: usize, number: usize) {
        self.0[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
    }
}

/// Bytes that an entry takes, with its slot.
fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    SLOT_BYTES + CELL_HEAD_BYTES + key.len() + value.len()
}

/// The bytes of a free page.
pub fn free_page(next: u32) -> PageBytes {
    let mut bytes = Box::new([0; PAGE_BYTES]);
    bytes[KIND] = FREE;
    bytes[NEXT..NEXT + 4].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// The free page behind this one, or 0.
pub fn next_free(bytes: &PageBytes) -> Result<u32, &'static str> {
    if bytes[KIND] != FREE {
        return Err("is in the list of free pages and not free");
    }
    let [one, two, three, four] = [NEXT, NEXT + 1, NEXT + 2, NEXT + 3].map(|at| bytes[at]);
    Ok(u32::from_le_bytes([one, two, three, four]))
}
