//! The scratch folder of a drill: a new folder for its owner alone, which is removed at the end with
//! all that is in it.
//!
//! A drill that is killed leaves it. So before the folder a file is made beside it, its *marker*,
//! which says whose drill it is, and which the drill keeps locked as long as it lives. The next drill
//! removes what has a marker of its own kind that no process has locked. Nothing else is ever
//! removed.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use strongroom_base::{Entropy, Monitor, Problem, RepositoryId, Severity};
use strongroom_source::{DirectoryId, Target, TargetError, TargetOptions};

use crate::error::EngineError;

/// What its name begins with.
const NAME: &str = "strongroom-drill-";

/// What the name of its marker ends with.
const MARKER: &str = ".owner";

/// A marker is shorter: it has an identifier and the name of a machine.
const MARKER_BYTES_MAX: u64 = 4096;

/// How many names are tried: one that is taken is left alone.
const ATTEMPTS_MAX: u32 = 16;

/// One part in this many of the free room is left to others.
const LEFT_TO_OTHERS: u64 = 20;

/// Whose drills: those of one repository on one machine remove what others of them left.
pub struct Owner(String);

impl Owner {
    /// The drills of this repository on this machine.
    pub fn new(repository: &RepositoryId, host: &str) -> Self {
        Self(format!(
            "scratch folder of a strongroom drill\nrepository {repository}\nhost {host:?}\n"
        ))
    }
}

/// A scratch folder; removed when it is dropped.
pub struct Scratch {
    above: PathBuf,
    name: String,
    /// Locked while it is open.
    _marker: Option<File>,
    is_kept: bool,
}

impl Scratch {
    /// Makes one in this folder.
    pub fn create(above: &Path, owner: &Owner, entropy: &dyn Entropy) -> Result<Self, EngineError> {
        let failed = |error| EngineError::Scratch { folder: above.to_owned(), error };
        // What is restored is found below it from any working directory.
        let above = above.canonicalize().map_err(failed)?;
        let mut last = std::io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..ATTEMPTS_MAX {
            let mut random = [0; 8];
            entropy.fill(&mut random);
            let name = format!("{NAME}{:016x}", u64::from_le_bytes(random));
            let marker = above.join(format!("{name}{MARKER}"));
            let made = make_marker(&marker, owner).and_then(|file| {
                let made = DirBuilder::new().mode(0o700).create(above.join(&name));
                if made.is_err() {
                    let _ = std::fs::remove_file(&marker);
                }
                made.map(|()| file)
            });
            match made {
                Ok(marker) => return Ok(Self { above, name, _marker: marker, is_kept: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(last))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.above.join(&self.name)
    }

    /// Leaves it, and what is in it.
    pub fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        let _ = std::fs::remove_file(self.above.join(format!("{}{MARKER}", self.name)));
        self.path()
    }

    /// Removes it with all that is in it.
    pub fn remove(mut self) -> Result<(), TargetError> {
        self.is_kept = true;
        remove(&self.above, &self.name).map(drop)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            // What ended the drill is the failure to report.
            let _ = remove(&self.above, &self.name);
        }
    }
}

/// Removes what drills of the same owner left in this folder when they were killed, and says so.
pub fn sweep(above: &Path, owner: &Owner, monitor: &dyn Monitor) {
    let Ok(above) = above.canonicalize() else { return };
    let listed = std::fs::read_dir(&above).into_iter().flatten().flatten();
    for entry in listed {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(NAME)) else { continue };
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
            Ok(_) => (Severity::Note, "removed: a drill that was killed had left it".to_owned()),
            Err(error) => {
                (Severity::Warning, format!("a drill that was killed has left it, and {error}"))
            }
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
/// drill that lives would be taken for one that was killed.
fn make_marker(path: &Path, owner: &Owner) -> std::io::Result<Option<File>> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Another drill may be looking at it, and leaves it alone as long as it is empty.
    let locked = flock(&file, FlockOperation::LockExclusive);
    let made = if locked.is_ok() { file.write_all(owner.0.as_bytes()) } else { Ok(()) };
    if locked.is_err() || made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made.map(|()| locked.is_ok().then_some(file))
}

/// The marker, locked, if it is a drill's of this owner and that drill has ended.
fn left_marker(path: &Path, owner: &Owner) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut text = String::new();
    (&file).take(MARKER_BYTES_MAX).read_to_string(&mut text).ok()?;
    (text == owner.0).then_some(file)
}

/// Whether a path is a directory of this user, or nothing.
fn is_own_or_nothing(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(found) => found.is_dir() && found.uid() == rustix::process::geteuid().as_raw(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Bytes that a drill may write below this folder.
pub fn free_bytes(folder: &Path) -> Result<u64, EngineError> {
    let failed = |error: rustix::io::Errno| EngineError::Scratch {
        folder: folder.to_owned(),
        error: error.into(),
    };
    let found = rustix::fs::statvfs(folder).map_err(failed)?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    Ok(free - free / LEFT_TO_OTHERS)
}

/// A path of the snapshot, as it was before it was restored below this folder.
pub fn path_in_snapshot(scratch: &Path, path: &Path) -> Vec<u8> {
    let below = path.strip_prefix(scratch).unwrap_or(path);
    Path::new(OsStr::new("/")).join(below).as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use strongroom_base::{SeededEntropy, Silent};

    use super::*;

    fn owner(repository: u8, host: &str) -> Owner {
        Owner::new(&RepositoryId([repository; 16]), host)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A folder as a killed drill leaves it: the lock goes with the process.
    fn left(above: &Path, owner: &Owner, seed: u64) -> String {
        let mut scratch = Scratch::create(above, owner, &SeededEntropy::new(seed)).unwrap();
        fs::create_dir(scratch.path().join("tree")).unwrap();
        fs::write(scratch.path().join("tree/file"), "content").unwrap();
        scratch.is_kept = true;
        scratch.name.clone()
    }

    #[test]
    fn only_what_a_dead_drill_of_the_same_owner_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (above, own) = (folder.path(), owner(1, "here"));
        left(above, &own, 1);
        let others = [left(above, &owner(2, "here"), 2), left(above, &owner(1, "there"), 3)];
        let alive = Scratch::create(above, &own, &SeededEntropy::new(4)).unwrap();
        let kept = Scratch::create(above, &own, &SeededEntropy::new(5)).unwrap().keep();
        // One without a marker, one with a marker that a drill has not written yet, and a marker
        // beside what no drill made.
        fs::create_dir(above.join("strongroom-drill-1")).unwrap();
        fs::create_dir(above.join("strongroom-drill-2")).unwrap();
        fs::write(above.join("strongroom-drill-2.owner"), "").unwrap();
        fs::write(above.join("strongroom-drill-3"), "a file").unwrap();
        fs::write(above.join("strongroom-drill-3.owner"), &own.0).unwrap();
        std::os::unix::fs::symlink(
            above.join("strongroom-drill-1"),
            above.join("strongroom-drill-4"),
        )
        .unwrap();
        fs::write(above.join("strongroom-drill-4.owner"), &own.0).unwrap();
        sweep(above, &own, &Silent);
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

    /// A drill that was killed while it removed its folder, or before it made it.
    #[test]
    fn a_marker_alone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = owner(1, "here");
        let name = left(folder.path(), &own, 1);
        fs::remove_dir_all(folder.path().join(name)).unwrap();
        sweep(folder.path(), &own, &Silent);
        assert_eq!(names(folder.path()), [] as [String; 0]);
    }
}
