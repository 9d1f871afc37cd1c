//! Whether a tree is whole: each page once, keys in order, counts that agree.

use super::super::area::Area;
use super::super::error::TreeError;
use super::super::page::{Page, next_free};
use super::{Root, node};

/// A node to look at, and which keys it may have.
struct Expected {
    number: u32,
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Reads all of a tree. Memory that another process filled is verified once, before it is served.
pub fn verify(area: &Area, root: &Root) -> Result<(), TreeError> {
    if root.unused > area.pages() {
        return Err(TreeError::Damaged { page: 0, what: "counts more pages than there are" });
    }
    let mut seen = vec![false; root.unused as usize];
    let mut records = 0;
    let first = Expected { number: root.page, level: root.level, low: Vec::new(), high: None };
    let mut left = vec![first];
    while let Some(expected) = left.pop() {
        let Expected { number, level, .. } = expected;
        see(&mut seen, number)?;
        let page = node(area, root, number, level)?;
        if page.count() == 0 && (number != root.page || level > 0) {
            return Err(TreeError::Damaged { page: number, what: "is an empty node" });
        }
        if !is_within(&page, &expected) {
            let what = "has keys that belong to another page";
            return Err(TreeError::Damaged { page: number, what });
        }
        if level == 0 {
            records += page.count() as u64;
        } else {
            left.extend((0..page.count()).map(|index| below(&page, index, &expected)));
        }
    }
    if records != root.records {
        return Err(TreeError::Damaged { page: 0, what: "counts other records than there are" });
    }
    verify_free(area, root, &mut seen)
}

/// What an entry's child must be.
fn below(page: &Page, index: usize, parent: &Expected) -> Expected {
    let high = if index + 1 < page.count() {
        Some(page.key(index + 1).to_vec())
    } else {
        parent.high.clone()
    };
    let low = if index > 0 { page.key(index).to_vec() } else { parent.low.clone() };
    let number = page.child(index);
    Expected { number, level: parent.level - 1, low, high }
}

/// Keys rise within a page, so its ends are enough. The first one above the leaves says nothing.
fn is_within(page: &Page, expected: &Expected) -> bool {
    let first = usize::from(expected.level > 0);
    if page.count() <= first {
        return true;
    }
    let last = page.key(page.count() - 1);
    let is_below = expected.high.as_ref().is_none_or(|high| last < high.as_slice());
    page.key(first) >= expected.low.as_slice() && is_below
}

fn see(seen: &mut [bool], page: u32) -> Result<(), TreeError> {
    match seen.get_mut(page as usize) {
        Some(seen) if !*seen => *seen = true,
        _ => return Err(TreeError::Damaged { page, what: "is used twice" }),
    }
    Ok(())
}

/// The pages that are in no tree are in the list of free ones.
fn verify_free(area: &Area, root: &Root, seen: &mut [bool]) -> Result<(), TreeError> {
    let (mut page, mut count) = (root.free, 0);
    while page != 0 {
        see(seen, page)?;
        let next = next_free(&area.read(page)?);
        page = next.map_err(|what| TreeError::Damaged { page, what })?;
        count += 1;
    }
    if count != root.free_pages || seen.iter().skip(1).any(|seen| !seen) {
        return Err(TreeError::Damaged { page: 0, what: "counts other free pages than there are" });
    }
    Ok(())
}
