//! A part of this machine's `/usr`, before and after changes as an upgrade makes them: of some
//! packages all files are replaced, some packages go, some come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strongroom_testkit::Random;

use super::sources::copy_changes;
use super::words::number_of;
use super::{DataSet, Store, make_once};
use crate::shell::{Doing, Done, Failure, Invocation, list_files, run, write};

/// Folders of `/usr` that are looked at.
const PARTS: [&str; 2] = ["lib", "share"];
/// Seconds by which a replaced file is younger.
const LATER_SECONDS: i64 = 30 * 24 * 60 * 60;

/// The set.
pub struct Usr {
    folder: PathBuf,
    at: PathBuf,
    bytes: u64,
}

/// What becomes of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    /// Its files are built again.
    Replaced,
    Goes,
    Comes,
}

impl Usr {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let folder = store.set("usr");
        let at = folder.join("at");
        Self { folder, at, bytes: store.scale.pick(30 << 20, 1_500 << 20) }
    }

    /// A version's own folder.
    pub fn version(&self, version: u32) -> PathBuf {
        self.folder.join(format!("version-{version}"))
    }

    /// Which of the machine's files are taken, from `/usr`.
    fn choose(&self) -> Done<Vec<PathBuf>> {
        let mut packages: BTreeMap<u64, (u64, Vec<PathBuf>)> = BTreeMap::new();
        for part in PARTS {
            let part = Path::new(part);
            for path in list_files(&Path::new("/usr").join(part))? {
                let path = part.join(path);
                let metadata = std::fs::symlink_metadata(Path::new("/usr").join(&path));
                let (bytes, paths) = packages.entry(number(&path)).or_default();
                *bytes += metadata.doing("look at a file of /usr")?.len();
                paths.push(path);
            }
        }
        // In the order of their numbers, so as if drawn; but none that would be most of it.
        let mut chosen = Vec::new();
        let mut left = self.bytes;
        for (bytes, paths) in packages.into_values() {
            if bytes <= left.min(self.bytes / 8) {
                left -= bytes;
                chosen.extend(paths);
            }
        }
        Ok(chosen)
    }

    fn make_versions(&self) -> Done {
        let chosen = self.choose()?;
        if chosen.is_empty() {
            return Err(Failure::Other("there is nothing in /usr to take".to_owned()));
        }
        let list = self.folder.join("files");
        let names: Vec<&str> = chosen.iter().filter_map(|path| path.to_str()).collect();
        write(&list, names.join("\n"))?;
        let (before, after) = (self.version(1), self.version(2));
        let from = format!("--files-from={}", list.display());
        for target in [&before, &after] {
            crate::shell::make_folder(target)?;
            run("rsync", ["-aHAX", &from, "/usr/", &format!("{}/", target.display())])?;
        }
        for name in names {
            match fate(Path::new(name)) {
                Fate::Stays => {}
                Fate::Replaced => rebuild(&after.join(name), name)?,
                Fate::Goes => remove_file(&after.join(name))?,
                Fate::Comes => remove_file(&before.join(name))?,
            }
        }
        Ok(())
    }
}

impl DataSet for Usr {
    fn about(&self) -> String {
        "a part of this machine's /usr/lib and /usr/share, then after an upgrade: of one package \
         in ten every file is replaced by one that differs in places, two in a hundred go, three \
         come"
            .to_owned()
    }

    fn make(&mut self) -> Done {
        let what = format!("two versions of {} MiB of packages in /usr", self.bytes >> 20);
        make_once(&self.folder, &what, || self.make_versions())
    }

    fn versions(&self) -> u32 {
        2
    }

    fn at(&self) -> &Path {
        &self.at
    }

    /// As an upgrade does it: what is equal stays in its place, the rest is renamed into it.
    fn put_version(&mut self, version: u32) -> Done {
        copy_changes(&self.version(version), &self.at)
    }
}

/// What a file would be installed and upgraded with: its folder two steps below `/usr`, or three
/// where the second holds all packages' files.
fn package(path: &Path) -> PathBuf {
    let parts: Vec<_> = path.iter().take(3).collect();
    let is_shared =
        |name: &str| name.contains("-linux-") || ["doc", "man", "locale"].contains(&name);
    let second = parts.get(1).map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    parts.iter().take(if is_shared(&second) { 3 } else { 2 }).collect()
}

/// A package's number.
fn number(path: &Path) -> u64 {
    number_of(package(path).as_os_str().as_encoded_bytes())
}

fn fate(path: &Path) -> Fate {
    // Other bits than those by which packages are ordered.
    match number(path) % 100 {
        0..10 => Fate::Replaced,
        10..12 => Fate::Goes,
        12..15 => Fate::Comes,
        _ => Fate::Stays,
    }
}

/// A file as if built again: a few bytes differ here and there, as addresses and dates do, and in
/// every second file something was put in.
fn rebuild(path: &Path, name: &str) -> Done {
    let what = || format!("rebuild {}", path.display());
    let metadata = std::fs::metadata(path).doing(what())?;
    let mut content = std::fs::read(path).doing(what())?;
    let mut random = Random::new(number_of(name.as_bytes()));
    for _ in 0..1 + content.len() / (256 << 10) {
        let at = random.below(content.len().saturating_sub(16).max(1) as u64) as usize;
        let end = content.len().min(at + 16);
        random.fill(&mut content[at..end]);
    }
    if random.below(2) == 0 {
        let at = random.below(content.len().max(1) as u64) as usize;
        let mut more = vec![0; 1 + random.below(400) as usize];
        random.fill(&mut more);
        content.splice(at..at, more);
    }
    // Beside it and renamed, so that no other name of the old file changes too.
    let beside = path.with_file_name(".rebuilt");
    write(&beside, content)?;
    std::fs::set_permissions(&beside, metadata.permissions()).doing(what())?;
    let later = std::time::Duration::from_secs(LATER_SECONDS.unsigned_abs());
    let time = metadata.modified().doing(what())? + later;
    let file = std::fs::File::options().write(true).open(&beside).doing(what())?;
    file.set_modified(time).doing(what())?;
    std::fs::rename(&beside, path).doing(what())
}

fn remove_file(path: &Path) -> Done {
    std::fs::remove_file(path).doing(format!("remove {}", path.display()))
}

/// Removes one file in `every` below a folder; returns how many.
pub fn thin_out(folder: &Path, every: usize) -> Done<usize> {
    let paths = list_files(folder)?;
    let going: Vec<_> = paths.iter().skip(every / 2).step_by(every).collect();
    going.iter().try_for_each(|path| remove_file(&folder.join(path)))?;
    Ok(going.len())
}

/// Copies a folder as it is.
pub fn copy(source: &Path, target: &Path) -> Done {
    Invocation::new("cp").arg("-a").arg(source).arg(target).run().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_folders() {
        let of = |path: &str| package(Path::new(path)).display().to_string();
        assert_eq!(of("share/doc/bash/README"), "share/doc/bash");
        assert_eq!(of("share/perl/5.36/strict.pm"), "share/perl");
        assert_eq!(of("lib/x86_64-linux-gnu/libm.so.6"), "lib/x86_64-linux-gnu/libm.so.6");
        assert_eq!(fate(Path::new("share/perl/a")), fate(Path::new("share/perl/5/b")));
    }

    #[test]
    fn a_rebuilt_file_differs_in_places() {
        let folder = std::env::temp_dir().join(format!("bench-usr-{}", std::process::id()));
        let path = folder.join("file");
        write(&path, vec![7; 100_000]).unwrap();
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::hard_link(&path, folder.join("other")).unwrap();
        rebuild(&path, "lib/a").unwrap();
        let content = std::fs::read(&path).unwrap();
        let changed = content.iter().filter(|byte| **byte != 7).count();
        assert!((1..500).contains(&changed), "{changed}");
        assert!(std::fs::metadata(&path).unwrap().modified().unwrap() > before);
        assert_eq!(std::fs::read(folder.join("other")).unwrap(), vec![7; 100_000]);
        write(&folder.join("empty"), "").unwrap();
        rebuild(&folder.join("empty"), "lib/b").unwrap();
        assert_eq!(thin_out(&folder, 3).unwrap(), 1);
        crate::shell::remove(&folder).unwrap();
    }
}
