//! Entries chosen of a snapshot, and the directories that lead to them.

use std::collections::HashSet;

/// The chosen entries. Paths begin with a slash.
#[derive(Debug, Default)]
pub struct Chosen {
    paths: HashSet<Vec<u8>>,
    /// The chosen directories, and all directories above what is chosen.
    directories: HashSet<Vec<u8>>,
    /// How many of them are no directories.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

impl Chosen {
    /// Adds a directory, without what it holds.
    pub fn add_directory(&mut self, path: &[u8]) {
        self.directories.insert(path.to_vec());
        self.paths.insert(path.to_vec());
        self.add_way(path);
    }

    /// Adds an entry that is no directory, with the bytes of its content.
    pub fn add_file(&mut self, path: &[u8], bytes: u64) {
        self.paths.insert(path.to_vec());
        self.add_way(path);
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether this entry was chosen.
    pub fn has(&self, path: &[u8]) -> bool {
        self.paths.contains(path)
    }

    /// Whether a directory, or something below it, was chosen. The top has an empty path.
    pub fn leads_on(&self, path: &[u8]) -> bool {
        path.is_empty() || self.directories.contains(path)
    }

    /// How many entries were chosen.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// How many directories there are, those on the way included.
    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    fn add_way(&mut self, mut path: &[u8]) {
        while let Some(slash) = path.iter().rposition(|byte| *byte == b'/').filter(|at| *at > 0) {
            path = &path[..slash];
            if !self.directories.insert(path.to_vec()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_what_is_chosen_is_known() {
        let mut chosen = Chosen::default();
        chosen.add_file(b"/a/b/c", 7);
        chosen.add_directory(b"/a/d");
        chosen.add_file(b"/e", 0);
        for path in [&b""[..], b"/a", b"/a/b", b"/a/d"] {
            assert!(chosen.leads_on(path));
        }
        for path in [&b"/a/b/c"[..], b"/e", b"/f", b"/"] {
            assert!(!chosen.leads_on(path));
        }
        assert!(chosen.has(b"/a/b/c") && chosen.has(b"/a/d") && !chosen.has(b"/a/b"));
        assert_eq!((chosen.files, chosen.bytes, chosen.len()), (2, 7, 3));
    }

    #[test]
    fn a_chosen_directory_does_not_hide_the_way_above_it() {
        let mut chosen = Chosen::default();
        chosen.add_directory(b"/a/b");
        chosen.add_file(b"/a/b/c", 0);
        assert!(chosen.leads_on(b"/a"));
    }
}
