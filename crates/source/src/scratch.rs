//! Scratch folders: new folders for their owner alone, which are removed at the end with all that is in
//! them.
//!
//! A process that is killed leaves its own. So before the folder a file is made beside it, its *marker*,
//! which says whose it is, and which the process keeps locked as long as it lives. The next one removes
//! what has a marker of its own kind that no process has locked. Nothing else is ever removed.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use strongroom_base::{Entropy, Monitor, Problem, Severity};

use crate::sink::{DirectoryId, Target, TargetError, TargetOptions};

/// What the name of its marker ends with.
const MARKER: &str = ".owner";

/// A marker is shorter: it has an identifier and the name of a machine.
const MARKER_BYTES_MAX: u64 = 4096;

/// How many names are tried: one that is taken is left alone.
const ATTEMPTS_MAX: u32 = 16;

/// Whose scratch folders: runs of one kind remove what others of them left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScratchOwner {
    prefix: &'static str,
    run: &'static str,
    text: String,
}

impl ScratchOwner {
    /// The runs whose folders have names with this beginning, and markers with this text; messages call
    /// one a `run`. The text is not empty, and says on which machine they run: locks of another may not
    /// be seen.
    pub fn new(prefix: &'static str, run: &'static str, text: String) -> Self {
        Self { prefix, run, text }
    }
}

/// A scratch folder; removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    above: PathBuf,
    name: String,
    path: PathBuf,
    /// Locked while it is open.
    _marker: Option<File>,
    is_kept: bool,
}

impl Scratch {
    /// Makes one in this folder.
    ///
    /// # Errors
    ///
    /// The folder does not exist, or nothing can be made in it.
    pub fn create(above: &Path, owner: &ScratchOwner, entropy: &dyn Entropy) -> io::Result<Self> {
        // What is put into it is found below it from any working directory.
        let above = above.canonicalize()?;
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..ATTEMPTS_MAX {
            let mut random = [0; 8];
            entropy.fill(&mut random);
            let name = format!("{}{:016x}", owner.prefix, u64::from_le_bytes(random));
            let marker = above.join(format!("{name}{MARKER}"));
            let path = above.join(&name);
            let made = make_marker(&marker, owner).and_then(|file| {
                let made = DirBuilder::new().mode(0o700).create(&path);
                if made.is_err() {
                    let _ = std::fs::remove_file(&marker);
                }
                made.map(|()| file)
            });
            match made {
                Ok(marker) => {
                    return Ok(Self { above, name, path, _marker: marker, is_kept: false });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it, and what is in it.
    pub fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        let _ = std::fs::remove_file(self.above.join(format!("{}{MARKER}", self.name)));
        self.path.clone()
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    ///
    /// Something in it cannot be removed.
    pub fn remove(mut self) -> Result<(), TargetError> {
        self.is_kept = true;
        remove(&self.above, &self.name).map(drop)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            // What ended the run is the failure to report.
            let _ = remove(&self.above, &self.name);
        }
    }
}

/// Removes what runs of the same owner left in this folder when they were killed, and says so.
pub fn sweep_scratch(above: &Path, owner: &ScratchOwner, monitor: &dyn Monitor) {
    let Ok(above) = above.canonicalize() else { return };
    let listed = std::fs::read_dir(&above).into_iter().flatten().flatten();
    for entry in listed {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(owner.prefix)) else {
            continue;
        };
        let Some(name) = name.strip_suffix(MARKER) else { continue };
        // Locked until it is removed.
        let Some(_marker) = left_marker(&entry.path(), owner) else { continue };
        let path = above.join(name);
        if !is_own_or_nothing(&path) {
            continue;
        }
        let (severity, message) = match remove(&above, name) {
            // It was removed meanwhile, or never made.
            Ok(0) => continue,
            Ok(_) => {
                (Severity::Note, format!("removed: a {} that was killed had left it", owner.run))
            }
            Err(error) => (
                Severity::Warning,
                format!("a {} that was killed has left it, and {error}", owner.run),
            ),
        };
        monitor.problem(Problem { severity, path: Some(&path), message: &message });
    }
}

/// Removes a folder, then its marker. Returns how many names there were below the folder, and it.
fn remove(above: &Path, name: &str) -> Result<u64, TargetError> {
    let options = TargetOptions { owner: false, xattrs: false, ..TargetOptions::default() };
    let target = Target::open(above, options)?;
    let removed = target.remove(DirectoryId::ROOT, name.as_bytes())?;
    target.remove(DirectoryId::ROOT, format!("{name}{MARKER}").as_bytes())?;
    Ok(removed)
}

/// Makes a marker and locks it. None if the file system has no locks: then there is none, because a
/// run that lives would be taken for one that was killed.
fn make_marker(path: &Path, owner: &ScratchOwner) -> io::Result<Option<File>> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Another run may be looking at it, and leaves it alone as long as it is empty.
    let locked = flock(&file, FlockOperation::LockExclusive);
    let made = if locked.is_ok() { file.write_all(owner.text.as_bytes()) } else { Ok(()) };
    if locked.is_err() || made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made.map(|()| locked.is_ok().then_some(file))
}

/// The marker, locked, if it is of this owner and its run has ended.
fn left_marker(path: &Path, owner: &ScratchOwner) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut text = String::new();
    (&file).take(MARKER_BYTES_MAX).read_to_string(&mut text).ok()?;
    (text == owner.text).then_some(file)
}

/// Whether a path is a directory of this user, or nothing.
fn is_own_or_nothing(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(found) => found.is_dir() && found.uid() == rustix::process::geteuid().as_raw(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use strongroom_base::{SeededEntropy, Silent};

    use super::*;

    fn owner(repository: u8, host: &str) -> ScratchOwner {
        ScratchOwner::new("strongroom-drill-", "drill", format!("{repository} {host}"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A folder as a killed run leaves it: the lock goes with the process.
    fn left(above: &Path, owner: &ScratchOwner, seed: u64) -> String {
        let mut scratch = Scratch::create(above, owner, &SeededEntropy::new(seed)).unwrap();
        fs::create_dir(scratch.path().join("tree")).unwrap();
        fs::write(scratch.path().join("tree/file"), "content").unwrap();
        scratch.is_kept = true;
        scratch.name.clone()
    }

    #[test]
    fn only_what_a_dead_run_of_the_same_owner_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (above, own) = (folder.path(), owner(1, "here"));
        left(above, &own, 1);
        let others = [left(above, &owner(2, "here"), 2), left(above, &owner(1, "there"), 3)];
        let alive = Scratch::create(above, &own, &SeededEntropy::new(4)).unwrap();
        let kept = Scratch::create(above, &own, &SeededEntropy::new(5)).unwrap().keep();
        // One without a marker, one with a marker that a run has not written yet, and a marker
        // beside what no run made.
        fs::create_dir(above.join("strongroom-drill-1")).unwrap();
        fs::create_dir(above.join("strongroom-drill-2")).unwrap();
        fs::write(above.join("strongroom-drill-2.owner"), "").unwrap();
        fs::write(above.join("strongroom-drill-3"), "a file").unwrap();
        fs::write(above.join("strongroom-drill-3.owner"), &own.text).unwrap();
        std::os::unix::fs::symlink(
            above.join("strongroom-drill-1"),
            above.join("strongroom-drill-4"),
        )
        .unwrap();
        fs::write(above.join("strongroom-drill-4.owner"), &own.text).unwrap();
        sweep_scratch(above, &own, &Silent);
        let mut expected = vec![alive.name.clone(), format!("{}.owner", alive.name)];
        expected.extend(others.iter().flat_map(|name| [name.clone(), format!("{name}.owner")]));
        expected.push(kept.file_name().unwrap().to_str().unwrap().to_owned());
        expected.extend(
            ["1", "2", "2.owner", "3", "3.owner", "4", "4.owner"]
                .map(|end| format!("strongroom-drill-{end}")),
        );
        expected.sort();
        assert_eq!(names(above), expected);
        let name = alive.name.clone();
        drop(alive);
        assert!(!names(above).iter().any(|found| found.starts_with(&name)));
    }

    /// A run that was killed while it removed its folder, or before it made it.
    #[test]
    fn a_marker_alone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = owner(1, "here");
        let name = left(folder.path(), &own, 1);
        fs::remove_dir_all(folder.path().join(name)).unwrap();
        sweep_scratch(folder.path(), &own, &Silent);
        assert_eq!(names(folder.path()), [] as [String; 0]);
    }
}
