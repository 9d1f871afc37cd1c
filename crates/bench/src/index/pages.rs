//! Pages of a file, through a cache of bounded size that writes behind.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Result;

/// The bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// A page.
pub type Page = [u8; PAGE_BYTES];

/// The pages of a file.
///
/// Invariants: `places` maps the number of a page to its slot. A page from
/// `file_pages` on was never written and is zeros.
pub struct Pages {
    file: File,
    file_pages: u64,
    slots: Vec<Slot>,
    slots_max: usize,
    places: HashMap<u64, usize>,
    /// The slot that is looked at next when one must go.
    hand: usize,
}

struct Slot {
    number: u64,
    page: Box<Page>,
    is_dirty: bool,
    /// Used since the hand came by: it goes only at the next time.
    is_used: bool,
}

impl Pages {
    /// Opens the file at `path`, made if need be, holding at most `slots_max` pages in memory.
    pub fn open(path: &Path, slots_max: usize) -> Result<Pages> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file_pages = file.metadata()?.len().div_ceil(PAGE_BYTES as u64);
        let (slots, places) = (Vec::new(), HashMap::new());
        Ok(Pages { file, file_pages, slots, slots_max, places, hand: 0 })
    }

    /// A page to look at.
    pub fn read(&mut self, number: u64) -> Result<&Page> {
        let slot = self.load(number)?;
        Ok(&self.slots[slot].page)
    }

    /// A page to change.
    pub fn write(&mut self, number: u64) -> Result<&mut Page> {
        let slot = self.load(number)?;
        self.slots[slot].is_dirty = true;
        Ok(&mut self.slots[slot].page)
    }

    /// Writes what was changed, in the order of the file.
    pub fn flush(&mut self) -> Result<()> {
        let mut dirty: Vec<&mut Slot> =
            self.slots.iter_mut().filter(|slot| slot.is_dirty).collect();
        dirty.sort_unstable_by_key(|slot| slot.number);
        for slot in dirty {
            self.file.write_all_at(&slot.page[..], slot.number * PAGE_BYTES as u64)?;
            self.file_pages = self.file_pages.max(slot.number + 1);
            slot.is_dirty = false;
        }
        Ok(())
    }

    /// The slot that holds page `number`.
    fn load(&mut self, number: u64) -> Result<usize> {
        if let Some(&at) = self.places.get(&number) {
            self.slots[at].is_used = true;
            return Ok(at);
        }
        let at = self.vacate()?;
        let slot = &mut self.slots[at];
        if number < self.file_pages {
            self.file.read_exact_at(&mut slot.page[..], number * PAGE_BYTES as u64)?;
        } else {
            slot.page.fill(0);
        }
        slot.number = number;
        slot.is_used = true;
        self.places.insert(number, at);
        Ok(at)
    }

    /// A slot that nothing is in.
    fn vacate(&mut self) -> Result<usize> {
        if self.slots.len() < self.slots_max.max(1) {
            let page = Box::new([0; PAGE_BYTES]);
            self.slots.push(Slot { number: 0, page, is_dirty: false, is_used: false });
            return Ok(self.slots.len() - 1);
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if std::mem::take(&mut slot.is_used) {
                continue;
            }
            if std::mem::take(&mut slot.is_dirty) {
                self.file.write_all_at(&slot.page[..], slot.number * PAGE_BYTES as u64)?;
                self.file_pages = self.file_pages.max(slot.number + 1);
            }
            self.places.remove(&slot.number);
            return Ok(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_whatever_the_cache() {
        for slots_max in [0, 1, 3, 100] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pages");
            let mut pages = Pages::open(&path, slots_max).unwrap();
            for number in [5, 0, 9, 5, 3, 9] {
                let page = pages.write(number).unwrap();
                page[0] = number as u8 + 1;
                page[PAGE_BYTES - 1] += 1;
            }
            pages.flush().unwrap();
            let mut again = Pages::open(&path, slots_max).unwrap();
            for pages in [&mut pages, &mut again] {
                for (number, times) in [(0, 1), (3, 1), (4, 0), (5, 2), (9, 2), (10, 0)] {
                    let page = pages.read(number).unwrap();
                    let first = if times == 0 { 0 } else { number as u8 + 1 };
                    assert_eq!((page[0], page[PAGE_BYTES - 1]), (first, times), "{number}");
                }
            }
        }
    }
}
