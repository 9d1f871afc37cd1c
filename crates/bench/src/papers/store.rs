//! One release after the other stored by Strongroom, at one path, and looked at from outside: by
//! `diff`, by `rsync`, and file by file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::series::Series;
use crate::peers::{Swap, Usage, measure};
use crate::say;
use crate::shell::{
    Doing, Done, Failure, Invocation, count_files, list_files, make_folder, remove, warm,
};

/// What one release is, and what storing it took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it is to the one before.
    pub change: Option<Change>,
    /// What the backup took.
    pub usage: Usage,
    /// Bytes in the repository afterwards.
    pub stored: u64,
    /// By how much that is more.
    pub growth: u64,
    /// Bytes of content in chunks that were not known.
    pub new_bytes: u64,
    /// Chunks in the repository afterwards.
    pub chunks: u64,
    /// Bytes of compressed content in it.
    pub data_bytes: u64,
    /// Bytes of trees and recipes in it, compressed.
    pub tree_bytes: u64,
    /// Bytes of parity, signatures, summaries and small objects in it.
    pub overhead_bytes: u64,
}

/// What is different from the release before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Length of `diff -ruNa`.
    pub patch_bytes: u64,
    /// Its length once `gzip -9` is done with it.
    pub gzip_bytes: u64,
    /// Files that it changes, makes or removes.
    pub patch_files: u64,
    /// Files of the same path and content.
    pub same_files: u64,
    /// Their bytes.
    pub same_bytes: u64,
    /// Bytes that `rsync` would send beside references.
    pub rsync_bytes: u64,
}

/// Stores all releases into a new repository below `folder`.
pub fn store(series: &Series, program: &Path, folder: &Path) -> Done<Vec<Version>> {
    remove(&folder.join("repository"))?;
    remove(&folder.join("cache"))?;
    make_folder(folder)?;
    let strongroom = |arguments: &[&str]| {
        let environment = vec![
            ("STRONGROOM_REPOSITORY", folder.join("repository").into()),
            ("STRONGROOM_CACHE", folder.join("cache").into()),
            ("STRONGROOM_PASSWORD", "papers".into()),
        ];
        Invocation::new(program).with(environment).arg("--json").args(arguments)
    };
    strongroom(&["init"]).run()?;
    let mut swap = Swap::open(folder.join("at"))?;
    // Compared while all of them are at home.
    let homes: Vec<&PathBuf> = series.releases.iter().map(|(_, home)| home).collect();
    let changes = homes.windows(2).map(|pair| change(pair[0], pair[1], folder));
    let changes = changes.collect::<Done<Vec<Change>>>()?;
    swap.set_homes(homes.into_iter().cloned().collect());
    let mut versions: Vec<Version> = Vec::new();
    let mut before = count_files(&folder.join("repository"))?.1;
    for (number, (name, _)) in (1..).zip(&series.releases) {
        swap.put_version(number)?;
        let (files, bytes) = count_files(swap.at())?;
        warm(swap.at())?;
        rustix::fs::sync();
        let said = folder.join("said");
        let at = swap.at().to_string_lossy().into_owned();
        let usage = measure(&strongroom(&["backup", &at]), &said)?;
        let said = std::fs::read_to_string(&said).doing("read what the backup said")?;
        let backup = summary(&said)?;
        let stats = summary(&strongroom(&["stats"]).run()?)?;
        let stored = count_files(&folder.join("repository"))?.1;
        let version = Version {
            name: name.clone(),
            files,
            bytes,
            change: (number as usize).checked_sub(2).and_then(|at| changes.get(at).copied()),
            usage,
            stored,
            growth: stored - before,
            new_bytes: count(&backup, &["bytes_new"])?,
            chunks: count(&stats, &["data", "chunks"])?,
            data_bytes: count(&stats, &["data", "block_bytes"])?,
            tree_bytes: count(&stats, &["metadata", "block_bytes"])?,
            overhead_bytes: count(&stats, &["data", "overhead_bytes"])?
                + count(&stats, &["metadata", "overhead_bytes"])?
                + count(&stats, &["small_bytes"])?,
        };
        say(&format!("  {name}: {:+.3} MB in {:.2} s", version.growth as f64 / 1e6, usage.wall));
        before = stored;
        versions.push(version);
    }
    swap.put_away()?;
    remove(folder)?;
    Ok(versions)
}

/// The last object that was printed.
fn summary(said: &str) -> Done<Value> {
    let last = said.lines().rev().find(|line| line.starts_with('{'));
    let value = last.and_then(|line| serde_json::from_str(line).ok());
    value.ok_or_else(|| Failure::Other("Strongroom printed no summary".to_owned()))
}

fn count(value: &Value, path: &[&str]) -> Done<u64> {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    let found = found.and_then(Value::as_u64);
    found.ok_or_else(|| Failure::Other(format!("Strongroom does not report {}", path.join("."))))
}

fn change(old: &Path, new: &Path, folder: &Path) -> Done<Change> {
    let patch = folder.join("patch");
    // In it the releases are named by the folders' names alone.
    let line = "cd \"$1/..\" && LC_ALL=C diff -ruNa --no-dereference \"$(basename \"$1\")\" \
                \"$(realpath \"$2\")\" >\"$3\"; [ $? -lt 2 ]";
    Invocation::script(line, &[old, new, &patch]).run()?;
    let number = |line: &str| -> Done<u64> {
        let said = Invocation::script(line, &[&patch]).run()?;
        said.trim().parse().map_err(|_| Failure::Other(format!("`{line}` gave no number")))
    };
    let patch_bytes = number("wc -c <\"$1\"")?;
    let gzip_bytes = number("gzip -9 -n -c \"$1\" | wc -c")?;
    let patch_files = number("grep -ac '^diff ' \"$1\" || true")?;
    std::fs::remove_file(&patch).doing("remove the patch")?;
    let (same_files, same_bytes) = same(old, new)?;
    let rsync_bytes = rsync_bytes(old, new, folder)?;
    Ok(Change { patch_bytes, gzip_bytes, patch_files, same_files, same_bytes, rsync_bytes })
}

/// Files of the same path and content, and their bytes.
fn same(old: &Path, new: &Path) -> Done<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for path in list_files(new)? {
        let (before, after) = (old.join(&path), new.join(&path));
        let lengths = [&before, &after].map(|path| std::fs::symlink_metadata(path).ok());
        let [Some(old_file), Some(new_file)] = lengths else { continue };
        if !old_file.is_file() || old_file.len() != new_file.len() {
            continue;
        }
        let read = |path: &Path| std::fs::read(path).doing(format!("read {}", path.display()));
        if read(&before)? == read(&after)? {
            files += 1;
            bytes += new_file.len();
        }
    }
    Ok((files, bytes))
}

/// What `rsync` finds no reference for. It only writes down what it would do.
fn rsync_bytes(old: &Path, new: &Path, folder: &Path) -> Done<u64> {
    let batch = folder.join("batch");
    let slashed = |path: &Path| format!("{}/", path.display());
    let said = Invocation::new("rsync")
        .args(["-ac", "--no-whole-file", "--stats", "--no-human-readable"])
        .arg(format!("--only-write-batch={}", batch.display()))
        .args([slashed(new), slashed(old)])
        .run()?;
    for file in [batch.clone(), batch.with_extension("sh")] {
        std::fs::remove_file(&file).doing("remove what rsync wrote")?;
    }
    let line = said.lines().find_map(|line| line.strip_prefix("Literal data: "));
    let number = line.and_then(|line| line.split(' ').next()?.replace(',', "").parse().ok());
    number.ok_or_else(|| Failure::Other("rsync reported no literal data".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::write;

    #[test]
    fn two_releases_are_compared() {
        let folder = std::env::temp_dir().join(format!("bench-papers-{}", std::process::id()));
        let (old, new) = (folder.join("old"), folder.join("new"));
        let lines: String = (0..3_000).map(|line| format!("line {line}\n")).collect();
        for release in [&old, &new] {
            write(&release.join("same"), "as it was\n").unwrap();
            write(&release.join("changed"), &lines).unwrap();
        }
        write(&old.join("gone"), "gone\n").unwrap();
        write(&new.join("changed"), lines.replace("line 1500\n", "line x\n")).unwrap();
        let change = change(&old, &new, &folder).unwrap();
        assert_eq!((change.patch_files, change.same_files, change.same_bytes), (2, 1, 10));
        assert!(change.patch_bytes > change.gzip_bytes && change.gzip_bytes > 100, "{change:?}");
        assert!((1..2_000).contains(&change.rsync_bytes), "{change:?}");
        assert!(old.join("gone").exists() && !folder.join("batch").exists());
        remove(&folder).unwrap();
    }

    #[test]
    fn summaries_are_the_last_that_was_said() {
        let said = "warning\n{\"event\":\"x\"}\n{\"data\":{\"chunks\":7}}\nbye\n";
        let value = summary(said).unwrap();
        assert_eq!(count(&value, &["data", "chunks"]).unwrap(), 7);
        let failure = count(&value, &["data", "blocks"]).unwrap_err();
        assert_eq!(failure.to_string(), "Strongroom does not report data.blocks");
        assert!(summary("nothing").is_err());
    }
}
