//! Which pages of an area a tree uses.

use super::super::error::TreeError;
use super::super::page::{free_page, next_free};
use super::Tree;

impl Tree<'_> {
    /// How many pages may still be taken.
    pub(super) fn pages_left(&self) -> u32 {
        self.area.pages().saturating_sub(self.root.unused).saturating_add(self.root.free_pages)
    }

    /// Takes a page that is not used.
    pub(super) fn take_page(&mut self) -> Result<u32, TreeError> {
        let page = self.root.free;
        if page == 0 {
            let page = self.root.unused;
            if page >= self.area.pages() {
                return Err(TreeError::Full);
            }
            self.root.unused += 1;
            return Ok(page);
        }
        let damaged = |what| TreeError::Damaged { page, what };
        self.root.free = next_free(&self.area.read(page)?).map_err(damaged)?;
        let left = self.root.free_pages.checked_sub(1);
        self.root.free_pages = left.ok_or_else(|| damaged("is free and was not counted"))?;
        Ok(page)
    }

    /// Puts a page into the list of free ones.
    pub(super) fn free_page(&mut self, number: u32) -> Result<(), TreeError> {
        self.area.write(number, &free_page(self.root.free))?;
        self.root.free = number;
        self.root.free_pages = self.root.free_pages.saturating_add(1);
        Ok(())
    }
}
