//! Trees that are no longer needed, and when they may be removed.
//!
//! ext4 without a journal gives no inode away that was freed in the last minute, or in the last six
//! where its neighbours in the same block were written since, and finds that out by looking at each
//! of them (`recently_deleted` in the kernel's `fs/ext4/ialloc.c`): 15,000 files took one second of
//! processor time to create, and ten seconds right after as many had been removed. So trees that
//! were restored are put aside while there is room, and a step that creates many files waits until
//! the last removal is old. With a journal, and on other file systems, no step waits.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::say;
use crate::shell::{Doing, Done, count_files, free_bytes, make_folder, remove};

/// The kernel's six minutes, and a little.
const SETTLED: Duration = Duration::from_secs(6 * 60 + 6);
/// Fewer are looked at in no time.
const MANY: u64 = 5_000;
/// What should be free besides what is asked for.
const SPARE_BYTES: u64 = 4 << 30;

/// Where trees are put aside.
pub struct Attic {
    folder: PathBuf,
    trees: u32,
    /// When many files were last removed.
    removed: Option<Instant>,
    /// It takes minutes until the file system forgets a removal.
    remembers: bool,
}

impl Attic {
    /// In a folder of its own, on the file system of the trees.
    pub fn new(folder: PathBuf) -> Self {
        let remembers = folder.ancestors().find(|above| above.exists()).is_some_and(lacks_journal);
        Self { folder, trees: 0, removed: None, remembers }
    }

    /// Takes a tree out of the way. One of few files is removed.
    pub fn put(&mut self, tree: &Path) -> Done {
        if !tree.exists() || count_files(tree)?.0 < MANY {
            return remove(tree);
        }
        make_folder(&self.folder)?;
        self.trees += 1;
        let place = self.folder.join(self.trees.to_string());
        std::fs::rename(tree, place).doing(format!("put {} aside", tree.display()))
    }

    /// Makes room for this many bytes.
    pub fn make_room(&mut self, bytes: u64) -> Done {
        if free_bytes(self.folder.parent().unwrap_or(&self.folder))? > bytes + SPARE_BYTES {
            return Ok(());
        }
        self.clear()
    }

    /// Removes all that was put aside.
    pub fn clear(&mut self) -> Done {
        let folder = self.folder.clone();
        self.remove(&folder)
    }

    /// Removes a tree.
    pub fn remove(&mut self, tree: &Path) -> Done {
        if !tree.exists() {
            return Ok(());
        }
        let files = count_files(tree)?.0;
        remove(tree)?;
        self.note_removal(files);
        Ok(())
    }

    /// Notes that this many files were removed just now.
    pub fn note_removal(&mut self, files: u64) {
        if self.remembers && files >= MANY {
            self.removed = Some(Instant::now());
        }
    }

    /// Waits until removals no longer matter to who makes files.
    pub fn settle(&mut self) {
        if let Some(removed) = self.removed.take() {
            let rest = SETTLED.saturating_sub(removed.elapsed());
            if !rest.is_zero() {
                say(&format!("  {} s until what was removed is forgotten", rest.as_secs()));
                std::thread::sleep(rest);
            }
        }
    }
}

/// True for a folder on an ext4 that keeps no journal, as the kernel reports it.
fn lacks_journal(folder: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(folder) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let device = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let name = device.ok().and_then(|device| Some(device.file_name()?.to_owned()));
    let task = name.map(|name| Path::new("/sys/fs/ext4").join(name).join("journal_task"));
    task.and_then(|task| std::fs::read_to_string(task).ok())
        .is_some_and(|task| task.contains("none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::write;

    #[test]
    fn many_files_are_put_aside_and_few_removed() {
        let folder = std::env::temp_dir().join(format!("bench-attic-{}", std::process::id()));
        let mut attic = Attic::new(folder.join("attic"));
        let tree = folder.join("tree");
        write(&tree.join("file"), "").unwrap();
        attic.put(&tree).unwrap();
        assert!(!tree.exists() && !folder.join("attic").exists());
        (0..MANY).for_each(|file| write(&tree.join(file.to_string()), "").unwrap());
        attic.put(&tree).unwrap();
        attic.put(&tree).unwrap();
        attic.make_room(0).unwrap();
        assert!(!tree.exists() && attic.removed.is_none());
        attic.clear().unwrap();
        assert!(!folder.join("attic").exists());
        assert_eq!(attic.removed.is_some(), lacks_journal(&std::env::temp_dir()));
        attic.make_room(u64::MAX / 2).unwrap();
        remove(&folder).unwrap();
    }
}
