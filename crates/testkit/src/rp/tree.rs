//! The B+-tree of a bucket, in the pages of an area.
//!
//! - Page 0 is the bucket's head; the tree has the pages from 1 on.
//! - Records are in the leaves, at level 0. A node at level n has children at level n − 1, so no
//!   damage makes a loop of the way down.
//! - The key of an entry above the leaves is at most the first key below it, and above the last key
//!   below the entry before it. The first key of a node says nothing.
//! - Leaves have no links. A scan goes down once for each leaf, with the key that bounds the last.
//! - No node but the root is empty. Nodes are not merged otherwise.
//! - A change that has no room for the pages that it may need changes nothing.

mod pages;
mod verify;

use super::area::Area;
use super::error::TreeError;
use super::page::Page;

pub use super::page::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use verify::verify;

/// Where the tree is in its area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its page.
    pub page: u32,
    /// Its level.
    pub level: u8,
    /// How many records the tree has.
    pub records: u64,
    /// The first page that was never used; all behind it are zeros.
    pub unused: u32,
    /// The first page of the list of free ones, or 0.
    pub free: u32,
    /// How many are in that list.
    pub free_pages: u32,
}

/// A leaf, as a scan needs it.
pub struct Leaf {
    /// Its records.
    pub page: Page,
    /// The first of them that was asked for.
    pub begin: usize,
    /// The first key that may be behind it; none if it is the last leaf. It is above the key that was
    /// asked for, because keys rise within each page, so a scan ends in a damaged tree as well.
    pub next: Option<Vec<u8>>,
}

/// A tree that may be changed.
pub struct Tree<'a> {
    area: &'a mut Area,
    root: &'a mut Root,
}

/// A node on the way down, and its entry that the way goes through.
struct Step {
    number: u32,
    page: Page,
    index: usize,
}

/// Makes an empty tree in an area of zeros.
pub fn create(area: &mut Area) -> Result<Root, TreeError> {
    area.write(1, Page::new(0).bytes())?;
    Ok(Root { page: 1, level: 0, records: 0, unused: 2, free: 0, free_pages: 0 })
}

/// The value of a key.
pub fn get(area: &Area, root: &Root, key: &[u8]) -> Result<Option<Vec<u8>>, TreeError> {
    let Leaf { page, .. } = leaf(area, root, key)?;
    Ok(page.find(key).ok().map(|index| page.value(index).to_vec()))
}

/// The leaf to which a key belongs.
pub fn leaf(area: &Area, root: &Root, key: &[u8]) -> Result<Leaf, TreeError> {
    let (mut number, mut next) = (root.page, None);
    for level in (1..=root.level).rev() {
        let page = node(area, root, number, level)?;
        let index = page.child_for(key);
        if index + 1 < page.count() {
            next = Some(page.key(index + 1).to_vec());
        }
        number = child(&page, number, index)?;
    }
    let page = node(area, root, number, 0)?;
    let begin = page.find(key).unwrap_or_else(|place| place);
    Ok(Leaf { page, begin, next })
}

/// Reads a node and verifies it by itself.
pub fn node(area: &Area, root: &Root, number: u32, level: u8) -> Result<Page, TreeError> {
    if number == 0 || number >= root.unused {
        return Err(TreeError::Damaged { page: number, what: "is used and not part of the tree" });
    }
    let page = Page::parse(area.read(number)?, level);
    page.map_err(|what| TreeError::Damaged { page: number, what })
}

/// The page below an entry.
fn child(page: &Page, number: u32, index: usize) -> Result<u32, TreeError> {
    if index >= page.count() {
        return Err(TreeError::Damaged { page: number, what: "has no child" });
    }
    Ok(page.child(index))
}

impl<'a> Tree<'a> {
    /// A tree in its area.
    pub fn new(area: &'a mut Area, root: &'a mut Root) -> Self {
        Self { area, root }
    }

    /// Puts a record, in place of the one with its key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        check_record(key, value)?;
        let (way, mut leaf) = self.way(key)?;
        let found = leaf.page.find(key);
        let place = found.unwrap_or_else(|place| place);
        if found.is_ok() {
            leaf.page.remove(place);
        }
        if leaf.page.insert(place, key, value) {
            self.area.write(leaf.number, leaf.page.bytes())?;
        } else {
            // Each node on the way may be split, and a root may come.
            if (self.pages_left() as usize) < way.len() + 2 {
                return Err(TreeError::Full);
            }
            self.split(way, leaf, place, (key, value))?;
        }
        self.root.records += u64::from(found.is_err());
        Ok(())
    }

    /// Removes a record; returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, TreeError> {
        let (way, mut leaf) = self.way(key)?;
        let Ok(place) = leaf.page.find(key) else { return Ok(false) };
        leaf.page.remove(place);
        self.forget(leaf.number, 1)?;
        self.settle(way, leaf)?;
        Ok(true)
    }

    /// Removes all records from a key on.
    pub fn truncate(&mut self, from: &[u8]) -> Result<(), TreeError> {
        self.cut(self.root.page, self.root.level, from)?;
        self.lower()
    }

    /// The nodes that lead to a key, and its leaf.
    fn way(&self, key: &[u8]) -> Result<(Vec<Step>, Step), TreeError> {
        let mut way = Vec::new();
        let mut number = self.root.page;
        for level in (1..=self.root.level).rev() {
            let page = node(self.area, self.root, number, level)?;
            let index = page.child_for(key);
            let below = child(&page, number, index)?;
            way.push(Step { number, page, index });
            number = below;
        }
        let page = node(self.area, self.root, number, 0)?;
        Ok((way, Step { number, page, index: 0 }))
    }

    /// Puts an entry into a node that has no room for it, and what follows into those above.
    fn split(
        &mut self,
        mut way: Vec<Step>,
        mut full: Step,
        mut place: usize,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), TreeError> {
        let (mut key, mut value) = (key.to_vec(), value.to_vec());
        for level in 0..=self.root.level {
            let (left, right) = full.page.split_with(place, &key, &value);
            let right_number = self.take_page()?;
            self.area.write(full.number, left.bytes())?;
            self.area.write(right_number, right.bytes())?;
            key = right.key(0).to_vec();
            value = right_number.to_le_bytes().to_vec();
            let Some(mut parent) = way.pop() else {
                return self.raise(level, full.number, &key, right_number);
            };
            place = parent.index + 1;
            if parent.index == 0 {
                parent.page.forget_first_key();
            }
            if parent.page.insert(place, &key, &value) {
                return self.area.write(parent.number, parent.page.bytes());
            }
            full = parent;
        }
        Ok(())
    }

    /// Makes a root above the two halves of the one that was.
    fn raise(&mut self, level: u8, left: u32, key: &[u8], right: u32) -> Result<(), TreeError> {
        let level = level.checked_add(1).ok_or(TreeError::Full)?;
        let number = self.take_page()?;
        let mut page = Page::new(level);
        let has_room =
            page.insert(0, &[], &left.to_le_bytes()) && page.insert(1, key, &right.to_le_bytes());
        assert!(has_room, "two entries have room in a page");
        self.area.write(number, page.bytes())?;
        (self.root.page, self.root.level) = (number, level);
        Ok(())
    }

    /// Writes a node that lost an entry. If it is empty, it is freed, and its parent loses one.
    fn settle(&mut self, mut way: Vec<Step>, mut step: Step) -> Result<(), TreeError> {
        while step.page.count() == 0
            && let Some(mut parent) = way.pop()
        {
            self.free_page(step.number)?;
            parent.page.remove(parent.index);
            step = parent;
        }
        self.area.write(step.number, step.page.bytes())?;
        self.lower()
    }

    /// Removes what is below a node from a key on; returns whether the node is empty then.
    fn cut(&mut self, number: u32, level: u8, from: &[u8]) -> Result<bool, TreeError> {
        let mut page = node(self.area, self.root, number, level)?;
        if level == 0 {
            let kept = page.find(from).unwrap_or_else(|place| place);
            self.forget(number, page.count() - kept)?;
            page.truncate(kept);
        } else {
            let index = page.child_for(from);
            for behind in index + 1..page.count() {
                self.drop_below(page.child(behind), level - 1)?;
            }
            let below = child(&page, number, index)?;
            let is_empty = self.cut(below, level - 1, from)?;
            if is_empty {
                self.free_page(below)?;
            }
            page.truncate(if is_empty { index } else { index + 1 });
        }
        self.area.write(number, page.bytes())?;
        Ok(page.count() == 0)
    }

    /// Frees a node and all that is below it. A page that is met twice is free by then, and no node.
    fn drop_below(&mut self, number: u32, level: u8) -> Result<(), TreeError> {
        let page = node(self.area, self.root, number, level)?;
        if level == 0 {
            self.forget(number, page.count())?;
        } else {
            for index in 0..page.count() {
                self.drop_below(page.child(index), level - 1)?;
            }
        }
        self.free_page(number)
    }

    /// Takes away roots with a single child.
    fn lower(&mut self) -> Result<(), TreeError> {
        while self.root.level > 0 {
            let number = self.root.page;
            let page = node(self.area, self.root, number, self.root.level)?;
            match page.count() {
                0 => {
                    self.root.level = 0;
                    self.area.write(number, Page::new(0).bytes())?;
                }
                1 => {
                    self.free_page(number)?;
                    self.root.page = page.child(0);
                    self.root.level -= 1;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Counts records that are removed from a page.
    fn forget(&mut self, page: u32, records: usize) -> Result<(), TreeError> {
        let left = self.root.records.checked_sub(records as u64);
        let what = "has more records than the whole bucket";
        self.root.records = left.ok_or(TreeError::Damaged { page, what })?;
        Ok(())
    }
}

/// An error if a record is longer than it may be.
pub fn check_record(key: &[u8], value: &[u8]) -> Result<(), TreeError> {
    check_length("key", key.len(), KEY_BYTES_MAX)?;
    check_length("value", value.len(), VALUE_BYTES_MAX)
}

/// An error if a key or value is longer than it may be.
pub fn check_length(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), TreeError> {
    if bytes > bytes_max {
        return Err(TreeError::TooLong { what, bytes, bytes_max });
    }
    Ok(())
}
