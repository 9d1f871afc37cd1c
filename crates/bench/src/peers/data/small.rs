//! Very many small files of which very few change: what a backup costs that has next to nothing to
//! store. Changed files are written in place, as editors do, so all others keep inode and times.

use std::path::{Path, PathBuf};

use strongroom_testkit::Random;

use super::words::Words;
use super::{DataSet, Store, make_once};
use crate::shell::{Done, write};

const FOLDER_FILES: u64 = 100;
const SHORTEST: u64 = 100;
const LONGEST: u64 = 8 << 10;

/// The set.
pub struct Small {
    folder: PathBuf,
    at: PathBuf,
    files: u64,
    words: Words,
}

impl Small {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let folder = store.set("small");
        let at = folder.join("at");
        Self { folder, at, files: store.scale.pick(3_000, 300_000), words: Words::new() }
    }

    /// The version in which a file got the content that it has in `version`.
    fn last_change(&self, file: u64, version: u32) -> u32 {
        match version {
            3 if file % 100 == 50 => 3,
            2.. if file == self.files / 2 => 2,
            _ => 1,
        }
    }

    fn write(&self, file: u64, version: u32) -> Done {
        let mut random = Random::new(file);
        let bytes = SHORTEST + random.below(LONGEST - SHORTEST + 1);
        let mut text = self.words.text(&mut random, bytes as usize);
        let change = self.last_change(file, version);
        if change > 1 {
            let line = format!("\nchanged for version {change}\n");
            let place = text.len() / 2;
            text.splice(place..place, line.into_bytes());
        }
        let folder = file / FOLDER_FILES;
        let folder = format!("{:02}/{:02}", folder % 50, folder / 50);
        write(&self.at.join(folder).join(format!("file-{file:06}.txt")), text)
    }
}

impl DataSet for Small {
    fn about(&self) -> String {
        format!(
            "{} files of {SHORTEST} bytes to {} KiB of text; then one of them changes, then {}",
            self.files,
            LONGEST >> 10,
            self.files / 100
        )
    }

    fn make(&mut self) -> Done {
        let what = format!("{} small files", self.files);
        make_once(&self.folder, &what, || (0..self.files).try_for_each(|file| self.write(file, 1)))
    }

    fn versions(&self) -> u32 {
        3
    }

    fn at(&self) -> &Path {
        &self.at
    }

    fn put_version(&mut self, version: u32) -> Done {
        let changed = (0..self.files).filter(|file| match version {
            1 => self.last_change(*file, 3) > 1 || self.last_change(*file, 2) > 1,
            _ => self.last_change(*file, version) == version,
        });
        changed.into_iter().try_for_each(|file| self.write(file, version))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;
    use crate::shell::{list_files, remove};

    #[test]
    fn few_files_change_and_change_back() {
        let folder = std::env::temp_dir().join(format!("bench-small-{}", std::process::id()));
        let mut small = Small::new(&Store::new(folder.clone(), Scale::Small));
        small.make().unwrap();
        let read = |small: &Small| {
            let paths = list_files(small.at()).unwrap();
            paths
                .iter()
                .map(|path| std::fs::read(small.at().join(path)).unwrap())
                .collect::<Vec<_>>()
        };
        let first = read(&small);
        let changed_since = |before: &[Vec<u8>], after: &[Vec<u8>]| {
            before.iter().zip(after).filter(|(before, after)| before != after).count()
        };
        small.put_version(2).unwrap();
        let second = read(&small);
        assert_eq!((first.len(), changed_since(&first, &second)), (3_000, 1));
        small.put_version(3).unwrap();
        assert_eq!(changed_since(&second, &read(&small)), 30);
        small.put_version(1).unwrap();
        assert_eq!(changed_since(&first, &read(&small)), 0);
        remove(&folder).unwrap();
    }
}
