//! Whether names that were one file are one file again.

use strongroom_catalog::{Entry, LinkKey, LinkTable};
use strongroom_source::InodeId;

use super::sample::ENTRIES_MAX;

/// The files with several names that were seen.
pub struct Links(LinkTable<LinkKey, Option<InodeId>>);

impl Links {
    /// None were seen yet.
    pub fn new() -> Self {
        Self(LinkTable::new(ENTRIES_MAX))
    }

    /// Whether a name is what the names before it are, if it belongs together with any. `restored`
    /// is what was restored under it, if anything was.
    pub fn agree(&mut self, entry: &Entry, restored: Option<InodeId>) -> bool {
        let Some(key) = LinkKey::of(entry) else { return true };
        match self.0.take(&key) {
            None => {
                self.0.insert(key, entry.metadata.links, restored);
                true
            }
            Some(first) => first.is_none() || restored.is_none() || first == restored,
        }
    }
}

#[cfg(test)]
mod tests {
    use strongroom_catalog::{EntryKind, Metadata};

    use super::*;

    fn name(inode: u64, links: u64) -> Entry {
        let metadata = Metadata { inode, links, ..Metadata::default() };
        Entry { name: b"name".to_vec(), kind: EntryKind::Fifo, metadata }
    }

    #[test]
    fn names_of_one_file_are_one_file() {
        let mut links = Links::new();
        let at = |inode| Some(InodeId { device: 1, inode });
        assert!(links.agree(&name(1, 3), at(7)) && links.agree(&name(2, 2), at(8)));
        assert!(links.agree(&name(1, 3), at(7)) && !links.agree(&name(1, 3), at(8)));
        assert!(!links.agree(&name(2, 2), at(7)));
        // What was not restored is reported as that.
        assert!(links.agree(&name(3, 3), None) && links.agree(&name(3, 3), at(9)));
        assert!(links.agree(&name(4, 3), at(9)) && links.agree(&name(4, 3), None));
        // Nothing belongs together with a file that has one name.
        assert!(links.agree(&name(5, 1), at(1)) && links.agree(&name(5, 1), at(2)));
    }
}
