//! Shared memory that a load of a cluster has filled in part. Its program has said that it has keys
//! there, so a round would store it for what these keys have: none does, until the memory is loaded, or
//! zeros, or gone.
//!
//! What is known of it is in a file beside the records of rounds, which outlives the agent and counts
//! until the machine is started again. It is there before the first byte is written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use strongroom_source::memory::writers::FileNumber;

use crate::files::replace;
use crate::keeper::{Area, Areas, BucketName};

/// Memory files of a bucket that may have parts of two times.
#[derive(Debug, Clone, Default)]
pub struct Torn {
    /// Where it is written down; nowhere without a cluster.
    path: Option<PathBuf>,
    files: Vec<FileNumber>,
    /// What was written down cannot be read.
    is_unknown: bool,
}

impl Torn {
    /// What is written down of a bucket.
    pub fn read(folder: Option<&Path>, bucket: &BucketName) -> Self {
        let name = format!("{}.bucket-{}.loading", bucket.file, bucket.number);
        let Some(path) = folder.map(|folder| folder.join(name)) else { return Self::default() };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                let is_unknown = error.kind() != io::ErrorKind::NotFound;
                return Self { path: Some(path), files: Vec::new(), is_unknown };
            }
        };
        let mut lines = text.lines();
        let is_of_now = lines.next() == Some(boot().as_str());
        let files: Option<Vec<FileNumber>> = lines.map(number).collect();
        let is_unknown = is_of_now && files.is_none();
        let files = files.filter(|_| is_of_now).unwrap_or_default();
        Self { path: Some(path), files, is_unknown }
    }

    /// Whether one of these areas is so.
    pub fn has(&self, areas: &Areas) -> bool {
        self.is_unknown && !areas.is_empty()
            || areas.values().any(|area| self.files.contains(&area.file.number()))
    }

    /// The same, once these areas are written to. A shadow is none: what is in it is not put back.
    pub fn with<'a>(&self, areas: impl Iterator<Item = &'a Area>) -> Self {
        let mut torn = self.clone();
        for area in areas.filter(|area| !area.is_private) {
            let number = area.file.number();
            if !torn.files.contains(&number) {
                torn.files.push(number);
            }
        }
        torn
    }

    /// These areas are whole. If they are all that there are, what could not be read concerns none.
    ///
    /// # Errors
    ///
    /// It cannot be written down.
    pub fn remove(&mut self, areas: &Areas, is_whole: impl Fn(&str) -> bool) -> io::Result<()> {
        if self.files.is_empty() && !self.is_unknown {
            return Ok(());
        }
        let whole = areas.iter().filter(|(name, _)| is_whole(name));
        let whole: Vec<_> = whole.map(|(_, area)| area.file.number()).collect();
        self.files.retain(|file| !whole.contains(file));
        self.is_unknown &= !areas.keys().all(|name| is_whole(name));
        self.write()
    }

    /// Nothing is torn.
    ///
    /// # Errors
    ///
    /// It cannot be written down.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.files.is_empty() && !self.is_unknown {
            return Ok(());
        }
        (self.files, self.is_unknown) = (Vec::new(), false);
        self.write()
    }

    /// Writes it down. What cannot be read stays.
    ///
    /// # Errors
    ///
    /// The folder cannot be written to.
    pub fn write(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if self.is_unknown {
            return Ok(());
        }
        if self.files.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let files = self.files.iter().map(|file| format!("{} {}\n", file.device, file.inode));
        replace(path, format!("{}\n{}", boot(), files.collect::<String>()).as_bytes())
    }
}

/// What the kernel calls the time since the machine was started.
fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim_end().to_owned()
}

fn number(line: &str) -> Option<FileNumber> {
    let (device, inode) = line.split_once(' ')?;
    Some(FileNumber { device: device.parse().ok()?, inode: inode.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::opened::{Closers, Opened};

    fn areas(is_private: bool) -> Areas {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10).unwrap();
        let file = Arc::new(Opened::take(file, 10, 1, &Closers::default()).unwrap());
        Areas::from([("data".to_owned(), Area { file, bytes: 10, base: None, is_private })])
    }

    #[test]
    fn kept_1_12_what_is_torn_is_known_until_it_is_whole_or_the_machine_starts() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = BucketName { file: "file".to_owned(), number: 3 };
        let read = || Torn::read(Some(folder.path()), &bucket);
        let (shared, other, private) = (areas(false), areas(false), areas(true));
        assert!(!read().has(&shared));
        let torn = read().with(shared.values().chain(private.values()));
        torn.write().unwrap();
        assert_eq!(
            (read().has(&shared), read().has(&other), read().has(&private)),
            (true, false, false)
        );
        let path = folder.path().join("file.bucket-3.loading");
        let text = fs::read_to_string(&path).unwrap();
        // Of an earlier start, nothing counts; of what cannot be read, everything.
        fs::write(&path, format!("another{text}")).unwrap();
        assert!(!read().has(&shared));
        fs::write(&path, format!("{text}x")).unwrap();
        assert!(read().has(&shared) && read().has(&other));
        fs::write(&path, text).unwrap();
        let mut torn = read();
        torn.remove(&shared, |_| false).unwrap();
        torn.remove(&other, |_| true).unwrap();
        assert!(torn.has(&shared) && read().has(&shared));
        torn.remove(&shared, |_| true).unwrap();
        assert!(!torn.has(&shared) && !read().has(&shared) && !path.exists());
        // What cannot be read concerns no area once all are whole.
        fs::write(&path, format!("{}\nx", boot())).unwrap();
        let mut torn = read();
        torn.remove(&shared, |_| false).unwrap();
        assert!(torn.has(&shared) && read().has(&shared));
        torn.remove(&shared, |_| true).unwrap();
        assert!(!torn.has(&shared) && !read().has(&shared) && !path.exists());
    }
}
