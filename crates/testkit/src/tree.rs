//! File trees from a seed, with everything in them that a backup has to cope with, and edits of
//! them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::image::at;
use crate::random::Random;

/// What a tree is to be like.
#[derive(Debug, Clone, Copy)]
pub struct TreeOptions {
    /// How many entries below the root, about.
    pub entries: usize,
    /// Around which length files are laid, off by one either way: that of a chunk.
    pub chunk_bytes: usize,
    /// The largest file.
    pub file_bytes_max: usize,
}

impl Default for TreeOptions {
    /// Some sixty entries, two to four MiB.
    fn default() -> Self {
        Self { entries: 60, chunk_bytes: 16 << 10, file_bytes_max: 600 << 10 }
    }
}

/// Makes a tree at `root`, which must not be there. The same seed makes the same tree.
///
/// With any seed the tree has an empty file, a sparse one, one of several MiB less
/// than the largest allowed, hard links across directories, a link, a dangling link, a pipe, a
/// name that is no text, and a path ten directories deep.
pub fn grow(root: &Path, seed: u64, options: TreeOptions) {
    let mut grower = Grower { random: Random::new(seed), options, directories: vec![root.into()] };
    at(root, fs::create_dir(root));
    grower.landmarks(root);
    for number in 0..options.entries {
        grower.entry(number);
    }
    grower.finish(root);
}

/// Makes a few edits of every kind below `root`, and returns a line for each: content changed in
/// place, appended, cut; files and directories made, moved, removed; a file replaced by a directory
/// and the other way round; metadata alone changed.
pub fn mutate(root: &Path, seed: u64, options: TreeOptions) -> Vec<String> {
    let mut grower = Grower { random: Random::new(seed), options, directories: Vec::new() };
    let mut edits = Vec::new();
    for edit in 0..10 {
        // Directories and files as they are now, the root not among those that move.
        let (directories, files) = listing(root);
        let mut all = vec![root.to_owned()];
        all.extend(directories.iter().cloned());
        grower.directories = all;
        if let Some(line) = grower.edit(edit, &directories, &files) {
            edits.push(line);
        }
    }
    edits
}

struct Grower {
    random: Random,
    options: TreeOptions,
    directories: Vec<PathBuf>,
}

impl Grower {
    fn landmarks(&mut self, root: &Path) {
        let file = |name: &[u8]| root.join(OsStr::from_bytes(name));
        let write = |name: &[u8], bytes: &[u8]| at(root, fs::write(file(name), bytes));
        write(b"empty", b"");
        write(b"not\xfftext\n", b"its name is no text");
        let large = self.random.noise(self.options.file_bytes_max);
        write(b"large", &large);
        sparse(&file(b"sparse"), &[(0, b"begins"), (1 << 20, b"middle")], 3 << 20);
        sparse(&file(b"hole"), &[], 1 << 20);
        let mut deep = root.to_owned();
        for level in 0..10 {
            deep.push(format!("level{level}"));
        }
        at(&deep, fs::create_dir_all(&deep));
        at(&deep, fs::write(deep.join("bottom"), b"deep down"));
        at(&deep, fs::hard_link(file(b"large"), deep.join("large-too")));
        at(&deep, fs::hard_link(file(b"empty"), root.join("empty-too")));
        at(&deep, symlink("large", root.join("link")));
        at(&deep, fs::hard_link(root.join("link"), root.join("link-too")));
        at(&deep, symlink("no/such/file", root.join("dangling")));
        fifo(&root.join("pipe"));
        at(root, fs::create_dir(root.join("empty-directory")));
        self.directories.push(deep);
    }

    fn entry(&mut self, number: usize) {
        let directory = self.random.pick(&self.directories).clone();
        let path = directory.join(self.name(number));
        match self.random.below(12) {
            0 | 1 => {
                at(&path, fs::create_dir(&path));
                self.directories.push(path);
            }
            2 => {
                let target = format!("../{}", self.random.below(100));
                at(&path, symlink(target, &path));
            }
            3 if self.random.once_in(3) => fifo(&path),
            4 if self.random.once_in(3) => {
                let place = self.random.below(8) << 16;
                let bytes = self.random.content(1 << 16);
                sparse(&path, &[(place, &bytes)], place + (1 << 16) + (self.random.below(4) << 16));
            }
            _ => self.file(&path),
        }
    }

    fn file(&mut self, path: &Path) {
        let length = self.length();
        let bytes = self.random.content(length);
        at(path, fs::write(path, bytes));
    }

    fn length(&mut self) -> usize {
        let chunk = self.options.chunk_bytes;
        let length = match self.random.below(12) {
            0 => 0,
            1..=4 => self.random.below(300) as usize,
            5 => chunk - 1,
            6 => chunk,
            7 => chunk + 1,
            8 => chunk * 4 + 1,
            9..=10 => self.random.below(3 * chunk as u64) as usize,
            _ => self.random.below(self.options.file_bytes_max as u64) as usize,
        };
        length.min(self.options.file_bytes_max)
    }

    fn name(&mut self, number: usize) -> OsString {
        let mut name = match self.random.below(6) {
            0 => format!(".hidden {number}").into_bytes(),
            1 => format!("größe-{number}").into_bytes(),
            2 => [b"raw\xf0\x28".as_slice(), number.to_string().as_bytes()].concat(),
            3 => format!("{number:b}.tar").into_bytes(),
            _ => format!("name{number}").into_bytes(),
        };
        if self.random.once_in(20) {
            name.resize(255, b'n');
        }
        OsStr::from_bytes(&name).to_owned()
    }

    /// Owners, rights, attributes and times, from the bottom up.
    fn finish(&mut self, root: &Path) {
        let (directories, files) = listing(root);
        let mut all: Vec<PathBuf> = files.into_iter().chain(directories).collect();
        all.sort_by(|one, two| two.cmp(one));
        all.push(root.to_owned());
        for path in &all {
            self.dress(path);
        }
    }

    fn dress(&mut self, path: &Path) {
        let stat = at(path, fs::symlink_metadata(path));
        if rustix::process::geteuid().is_root() && self.random.once_in(3) {
            let (user, group) = (self.random.below(70_000), self.random.below(70_000));
            at(path, lchown(path, Some(user as u32), Some(group as u32)));
        }
        if !stat.is_symlink() && self.random.once_in(2) {
            let mode = *self.random.pick(&[0o600, 0o644, 0o755, 0o4755, 0o2770, 0o1777, 0o640]);
            at(path, fs::set_permissions(path, fs::Permissions::from_mode(mode)));
        }
        if (stat.is_file() || stat.is_dir()) && self.random.once_in(4) {
            let length = self.random.below(200) as usize;
            let value = self.random.noise(length);
            match rustix::fs::setxattr(path, "user.note", &value, XattrFlags::empty()) {
                Err(rustix::io::Errno::OPNOTSUPP) => {}
                other => at(path, other),
            }
        }
        let seconds = self.random.below(4_000_000_000) as i64 - 500_000_000;
        set_mtime(path, seconds, self.random.below(1_000_000_000) as i64);
    }

    fn edit(&mut self, edit: usize, directories: &[PathBuf], files: &[PathBuf]) -> Option<String> {
        let regular: Vec<&PathBuf> = files.iter().filter(|path| is_regular(path)).collect();
        let name = OsString::from(format!("edit{edit}-{:x}", self.random.below(1 << 32)));
        let new_path = self.random.pick(&self.directories).join(name);
        if regular.is_empty() || (directories.is_empty() && matches!(edit, 7 | 9)) {
            return None;
        }
        let picked = (*self.random.pick(&regular)).clone();
        let shown = picked.display();
        Some(match edit {
            0 => {
                let bytes = self.random.content(50);
                let length = at(&picked, fs::metadata(&picked)).len();
                let place = self.random.below(length + 1);
                write_at(&picked, &bytes, place);
                format!("{shown}: 50 bytes changed at {place}")
            }
            1 => {
                let length = at(&picked, fs::metadata(&picked)).len();
                let bytes = self.random.content(5000);
                write_at(&picked, &bytes, length);
                format!("{shown}: 5000 bytes appended")
            }
            2 => {
                let length = at(&picked, fs::metadata(&picked)).len();
                at(
                    &picked,
                    File::options().write(true).open(&picked).and_then(|f| f.set_len(length / 2)),
                );
                format!("{shown}: cut to half")
            }
            3 => {
                self.file(&new_path);
                self.dress(&new_path);
                format!("{}: new", new_path.display())
            }
            4 => {
                at(&picked, fs::remove_file(&picked));
                format!("{shown}: removed")
            }
            5 => {
                at(&picked, fs::rename(&picked, &new_path));
                format!("{shown}: moved to {}", new_path.display())
            }
            6 => {
                at(&picked, fs::remove_file(&picked));
                at(&picked, fs::create_dir(&picked));
                self.file(&picked.join("inside"));
                format!("{shown}: a directory now")
            }
            7 => {
                let directory = self.random.pick(directories).clone();
                at(&directory, fs::remove_dir_all(&directory));
                self.file(&directory);
                format!("{}: a file now", directory.display())
            }
            8 => {
                self.dress(&picked);
                format!("{shown}: metadata changed")
            }
            _ => {
                let directory = self.random.pick(directories);
                if new_path.starts_with(directory) {
                    return None;
                }
                at(directory, fs::rename(directory, &new_path));
                format!("{}: moved to {}", directory.display(), new_path.display())
            }
        })
    }
}

/// All directories below a root, and all else, sorted.
pub fn listing(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut directories, mut files) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in at(&directory, fs::read_dir(&directory)) {
            let path = at(&directory, entry).path();
            if at(&path, fs::symlink_metadata(&path)).is_dir() {
                rest.push(path.clone());
                directories.insert(path);
            } else {
                files.insert(path);
            }
        }
    }
    (directories.into_iter().collect(), files.into_iter().collect())
}

/// Sets a path's time of last change, of a link itself.
pub fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    at(path, rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW));
}

/// Makes a file with some runs of data and holes around them.
pub fn sparse(path: &Path, runs: &[(u64, &[u8])], length: u64) {
    let file = at(path, File::create(path));
    at(path, file.set_len(length));
    for (offset, bytes) in runs {
        at(path, file.write_all_at(bytes, *offset));
    }
}

fn write_at(path: &Path, bytes: &[u8], offset: u64) {
    let file = at(path, File::options().write(true).open(path));
    at(path, file.write_all_at(bytes, offset));
}

fn is_regular(path: &Path) -> bool {
    at(path, fs::symlink_metadata(path)).is_file()
}

fn fifo(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    at(path, rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, Kind};

    #[test]
    fn a_seed_makes_one_tree() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two, other] = ["one", "two", "other"].map(|name| folder.path().join(name));
        grow(&one, 1, TreeOptions::default());
        grow(&two, 1, TreeOptions::default());
        grow(&other, 2, TreeOptions::default());
        let image = Image::of(&one);
        image.assert_same(&Image::of(&two), "the same seed");
        assert!(!image.differences(&Image::of(&other)).is_empty());
        for (what, found) in [
            ("holes", image.nodes.values().any(|node| matches!(&node.kind, Kind::File(content) if content.bytes > 0 && content.runs.is_empty()))),
            ("pipe", image.nodes.values().any(|node| node.kind == Kind::Fifo)),
            ("links", image.nodes.values().any(|node| node.linked_to.is_some())),
            ("attributes", image.nodes.values().any(|node| !node.xattrs.is_empty())),
        ] {
            assert!(found, "{what}");
        }
    }

    #[test]
    fn edits_change_a_tree_and_are_returned() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tree");
        grow(&root, 3, TreeOptions::default());
        let mut before = Image::of(&root);
        for seed in 0..5 {
            let edits = mutate(&root, seed, TreeOptions::default());
            assert!(edits.len() >= 8, "{edits:?}");
            let after = Image::of(&root);
            assert!(before.differences(&after).len() >= 8);
            before = after;
        }
    }
}
