//! Releases of one large source tree, and thirty small changes of the first of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use strongroom_testkit::Random;

use super::words::{Words, number_of};
use super::{DataSet, Scale, Store, Swap, make_once};
use crate::shell::{
    Doing, Done, Failure, Invocation, count_files, list_files, make_folder, run, write,
};

/// The package, of Debian 12.
const PACKAGE: &str = "linux-source-6.1";
/// Its archive within the package.
const ARCHIVE: &str = "./usr/src/linux-source-6.1.tar.xz";
/// How the folders of unpacked releases begin.
const PREFIX: &str = "linux-";
/// How many releases make the set.
const RELEASES: usize = 3;
/// Folders of a release that the small scale takes.
const SMALL_PARTS: [&str; 4] = ["fs/ext4", "include/linux", "kernel/sched", "mm"];

/// Releases as they come: each at the same path, with inodes and times of its own.
pub struct Sources {
    store: Store,
    swap: Option<Swap>,
    at: PathBuf,
}

impl Sources {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let at = store.set("sources").join("at");
        Self { store: store.clone(), swap: None, at }
    }

    fn swap(&mut self) -> Done<&mut Swap> {
        self.swap.as_mut().ok_or_else(|| Failure::Other("the sources are not made".to_owned()))
    }
}

impl DataSet for Sources {
    fn about(&self) -> String {
        format!(
            "{RELEASES} releases of a large source tree ({PACKAGE} of Debian, oldest first), each \
             at the same path with inodes and times of its own"
        )
    }

    fn make(&mut self) -> Done {
        let mut swap = Swap::open(self.at.clone())?;
        swap.set_homes(releases(&self.store)?);
        self.swap = Some(swap);
        Ok(())
    }

    fn versions(&self) -> u32 {
        self.swap.as_ref().map_or(0, Swap::versions)
    }

    fn at(&self) -> &Path {
        &self.at
    }

    fn put_version(&mut self, version: u32) -> Done {
        self.swap()?.put_version(version)
    }

    fn put_away(&mut self) -> Done {
        self.swap()?.put_away()
    }
}

/// The first release, changed a little twenty-nine times.
pub struct Thirty {
    store: Store,
    at: PathBuf,
    home: PathBuf,
    files: Vec<PathBuf>,
}

/// How many versions there are.
const VERSIONS: u32 = 30;
/// One file in this many changes from a version to the next.
const CHANGES_EVERY: usize = 499;

impl Thirty {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let at = store.set("thirty").join("at");
        Self { store: store.clone(), at, home: PathBuf::new(), files: Vec::new() }
    }
}

impl DataSet for Thirty {
    fn about(&self) -> String {
        format!(
            "the first release of the sources, and {} changes of it: each adds a line to one file \
             in {CHANGES_EVERY}, in its middle",
            VERSIONS - 1
        )
    }

    fn make(&mut self) -> Done {
        // The first release must be at home.
        Sources::new(&self.store).make()?;
        self.home = releases(&self.store)?.swap_remove(0);
        self.files = list_files(&self.home)?;
        make_folder(&self.at)
    }

    fn versions(&self) -> u32 {
        VERSIONS
    }

    fn at(&self) -> &Path {
        &self.at
    }

    fn put_version(&mut self, version: u32) -> Done {
        if version == 1 {
            return copy_changes(&self.home, &self.at);
        }
        add_lines(&self.at, &self.files, version).map(drop)
    }

    fn truth(&self, version: u32) -> PathBuf {
        if version == 1 { self.home.clone() } else { self.at.clone() }
    }
}

/// Adds a line to one file in [`CHANGES_EVERY`], in its middle; returns which.
fn add_lines(folder: &Path, files: &[PathBuf], version: u32) -> Done<Vec<PathBuf>> {
    let turn = version as usize * 17 % CHANGES_EVERY;
    let mut changed = Vec::new();
    for path in files.iter().skip(turn).step_by(CHANGES_EVERY) {
        let path = folder.join(path);
        let mut text = std::fs::read(&path).doing(format!("read {}", path.display()))?;
        let middle = text.len() / 2;
        let line_end = text[middle..].iter().position(|byte| *byte == b'\n');
        let place = middle + line_end.map_or(0, |at| at + 1);
        let line = format!("/* version {version} changed this */\n");
        text.splice(place..place, line.into_bytes());
        write(&path, text)?;
        changed.push(path);
    }
    Ok(changed)
}

/// Each of the releases, changed a little nineteen times before the next one comes. One version
/// more than the sixty can be put: what is backed up beside a prune.
pub struct Sixty {
    store: Store,
    at: PathBuf,
    homes: Vec<PathBuf>,
}

/// A release, and its changes.
const VERSIONS_OF_RELEASE: u32 = 20;

impl Sixty {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        Self { store: store.clone(), at: store.set("sixty").join("at"), homes: Vec::new() }
    }

    /// Says which version is at `at`.
    fn marker(&self) -> PathBuf {
        self.store.set("sixty").join("version")
    }

    fn current(&self) -> u32 {
        let text = std::fs::read_to_string(self.marker()).unwrap_or_default();
        text.parse().unwrap_or_default()
    }

    /// Puts the version that follows on the one that is there.
    fn put_next(&self, version: u32) -> Done {
        let release = ((version - 1) / VERSIONS_OF_RELEASE) as usize;
        let home = &self.homes[release.min(self.homes.len() - 1)];
        let is_release = release < self.homes.len() && version % VERSIONS_OF_RELEASE == 1;
        // A version that is made again has the same times as before.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + u64::from(version));
        if is_release {
            return copy_changes(home, &self.at);
        }
        for path in add_lines(&self.at, &list_files(home)?, version)? {
            let file = std::fs::File::options().write(true).open(&path);
            let set = file.and_then(|file| file.set_modified(time));
            set.doing(format!("set the time of {}", path.display()))?;
        }
        Ok(())
    }
}

impl DataSet for Sixty {
    fn about(&self) -> String {
        format!(
            "the {RELEASES} releases of the sources, each followed by {} changes of it: each adds \
             a line to one file in {CHANGES_EVERY}, in its middle",
            VERSIONS_OF_RELEASE - 1
        )
    }

    fn make(&mut self) -> Done {
        Sources::new(&self.store).make()?;
        self.homes = releases(&self.store)?;
        make_folder(&self.at)
    }

    fn versions(&self) -> u32 {
        RELEASES as u32 * VERSIONS_OF_RELEASE
    }

    fn at(&self) -> &Path {
        &self.at
    }

    /// Any version may follow on any other.
    fn put_version(&mut self, version: u32) -> Done {
        let current = self.current();
        if current == version {
            return Ok(());
        }
        let last = self.homes.len() as u32 - 1;
        let release = ((version - 1) / VERSIONS_OF_RELEASE).min(last) * VERSIONS_OF_RELEASE + 1;
        let first = if current > version { release } else { release.max(current + 1) };
        // What is half made is made again.
        write(&self.marker(), "")?;
        (first..=version).try_for_each(|version| self.put_next(version))?;
        write(&self.marker(), version.to_string())
    }
}

/// Makes one folder what another is, and leaves alone what is so already.
pub fn copy_changes(source: &Path, target: &Path) -> Done {
    make_folder(target)?;
    let (mut from, mut to) = (source.as_os_str().to_owned(), target.as_os_str().to_owned());
    from.push("/");
    to.push("/");
    Invocation::new("rsync").args(["-aHAX", "--delete"]).args([from, to]).run().map(drop)
}

/// Folders of the releases, oldest first; fetched and unpacked if they are missing.
fn releases(store: &Store) -> Done<Vec<PathBuf>> {
    let folder = store.set("sources").join("versions");
    let mut full = linux_versions(&store.folder)?;
    if store.scale == Scale::Small {
        return if full.len() < 2 {
            make_once(&folder, "sources that are drawn", || draw_releases(&folder))?;
            linux_versions(&folder)
        } else {
            full.truncate(RELEASES);
            smaller_copies(&full, &folder)
        };
    }
    if full.len() < RELEASES {
        fetch(&store.folder)?;
        full = linux_versions(&store.folder)?;
    }
    full.truncate(RELEASES);
    Ok(full)
}

/// Unpacked releases in a folder, oldest first.
pub fn linux_versions(folder: &Path) -> Done<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.doing(format!("read {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && entry.path().is_dir() {
            found.push((version_key(&name), entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The numbers in a name, which order versions.
fn version_key(name: &str) -> Vec<u64> {
    name.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// Copies of a part of each release.
pub fn smaller_copies(full: &[PathBuf], folder: &Path) -> Done<Vec<PathBuf>> {
    let names: Vec<String> = full
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    make_once(folder, &format!("parts of {}", names.join(", ")), || {
        for (release, name) in full.iter().zip(&names) {
            for part in SMALL_PARTS {
                let target = folder.join(name).join(part);
                copy_changes(&release.join(part), &target)?;
            }
        }
        Ok(())
    })?;
    linux_versions(folder)
}

/// Random sources, for a machine that has no others: in each version one file in ten changes.
fn draw_releases(folder: &Path) -> Done {
    let words = Words::new();
    for version in 1..=RELEASES as u64 {
        for file in 0..400_u64 {
            let path = format!("linux-0.{version}/part-{:02}/file-{file:03}.c", file % 30);
            let mut random = Random::new(file);
            let bytes = 200 + random.below(9_000) as usize;
            let mut text = words.text(&mut random, bytes);
            for earlier in 2..=version {
                let mut random = Random::new(number_of(path.as_bytes()) ^ earlier);
                if random.below(10) == 0 {
                    let place = random.below(text.len() as u64) as usize;
                    let line = words.text(&mut random, 60);
                    text.splice(place..place, line);
                }
            }
            write(&folder.join(path), text)?;
        }
    }
    Ok(())
}

/// Gets the oldest releases that the package archive offers, and unpacks them.
fn fetch(folder: &Path) -> Done {
    let listed = run("apt-cache", ["madison", PACKAGE])?;
    let mut versions: Vec<&str> =
        listed.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    versions.sort_by_key(|version| version_key(version));
    versions.dedup();
    if versions.len() < RELEASES {
        let what = format!("the package archive offers {} versions of {PACKAGE}", versions.len());
        return Err(Failure::Other(what));
    }
    let packages = folder.join("debs");
    make_folder(&packages)?;
    for version in versions.into_iter().take(RELEASES) {
        let target = folder.join(format!("{PREFIX}{version}"));
        if target.exists() {
            continue;
        }
        crate::say(&format!("fetching {PACKAGE} {version}"));
        Invocation::new("apt-get")
            .args(["download", "-q", &format!("{PACKAGE}={version}")])
            .inside(&packages)
            .run()?;
        let package = packages.join(format!("{PACKAGE}_{version}_all.deb"));
        let unpacked = folder.join(format!("unpacking-{version}"));
        crate::shell::remove(&unpacked)?;
        make_folder(&unpacked)?;
        let line = format!(
            "dpkg-deb --fsys-tarfile \"$1\" | tar -xO {ARCHIVE} | tar -xJ -C \"$2\" \
            --strip-components=1"
        );
        Invocation::script(&line, &[&package, &unpacked]).run()?;
        if count_files(&unpacked)?.0 == 0 {
            return Err(Failure::Other(format!("{} holds no sources", package.display())));
        }
        std::fs::rename(&unpacked, &target).doing(format!("name {}", target.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut names = ["linux-6.1.90-1", "linux-6.1.170-3", "linux-5.10.2-1"];
        names.sort_by_key(|name| version_key(name));
        assert_eq!(names, ["linux-5.10.2-1", "linux-6.1.90-1", "linux-6.1.170-3"]);
    }

    #[test]
    fn drawn_sources_stand_and_change() {
        let folder = std::env::temp_dir().join(format!("bench-sources-{}", std::process::id()));
        let store = Store::new(folder.clone(), Scale::Small);
        let mut sources = Sources::new(&store);
        sources.make().unwrap();
        assert_eq!(sources.versions(), 3);
        sources.put_version(1).unwrap();
        let first = count_files(sources.at()).unwrap();
        sources.put_version(2).unwrap();
        let second = count_files(sources.at()).unwrap();
        assert!(first.0 == 400 && second.0 == 400 && second.1 > first.1, "{first:?} {second:?}");
        sources.put_away().unwrap();

        let mut thirty = Thirty::new(&store);
        thirty.make().unwrap();
        thirty.put_version(1).unwrap();
        assert_eq!(count_files(thirty.at()).unwrap(), first);
        thirty.put_version(2).unwrap();
        assert!(count_files(thirty.at()).unwrap().1 > first.1);
        thirty.put_version(1).unwrap();
        assert_eq!(count_files(thirty.at()).unwrap(), first);
        assert_ne!(thirty.truth(1), thirty.truth(2));

        let mut sixty = Sixty::new(&store);
        sixty.make().unwrap();
        assert_eq!(sixty.versions(), 60);
        let of_version = |sixty: &mut Sixty, version| {
            sixty.put_version(version).unwrap();
            let text = run(
                "sh",
                [
                    "-c",
                    "cd \"$1\" && find . -type f -exec ls -l {} + | sort",
                    "sh",
                    sixty.at().to_str().unwrap(),
                ],
            )
            .unwrap();
            (text, count_files(sixty.at()).unwrap())
        };
        let second = of_version(&mut sixty, 2);
        assert!(second.1.1 > first.1);
        let last = of_version(&mut sixty, 60);
        let beyond = of_version(&mut sixty, 61);
        assert!(beyond.1.1 > last.1.1);
        assert_eq!(of_version(&mut sixty, 2), second);
        assert_eq!(of_version(&mut sixty, 60), last);
        crate::shell::remove(&folder).unwrap();
    }
}
