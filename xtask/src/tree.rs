//! The repository's files, as the checks see them: paths and texts, no file system.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

/// Every file that is or could be committed.
#[derive(Debug, Default)]
pub struct Tree {
    /// Text by path from the top, with `/` between folders. Files that are no text have an empty
    /// one.
    files: BTreeMap<String, String>,
    folders: BTreeSet<String>,
}

impl Tree {
    /// The files below `root` that git tracks or would; every file if git cannot say.
    pub fn read(root: &Path) -> io::Result<Self> {
        let paths = match git_paths(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut tree = Self::default();
        for path in paths {
            match std::fs::read(root.join(&path)) {
                Ok(bytes) => tree.add(&path, &String::from_utf8(bytes).unwrap_or_default()),
                // Removed, and not yet committed so; or a link to a folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tree)
    }

    /// A tree of these files.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        files.iter().for_each(|(path, text)| tree.add(path, text));
        tree
    }

    fn add(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
        let mut folder = path;
        while let Some((above, _)) = folder.rsplit_once('/') {
            self.folders.insert(above.to_owned());
            folder = above;
        }
    }

    /// Path and text of each file whose name ends so, by path.
    pub fn files<'t>(&'t self, ending: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        let files = self.files.iter().filter(move |(path, _)| path.ends_with(ending));
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// True for a file and for a folder that holds one. The top has the empty path.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty() || self.files.contains_key(path) || self.folders.contains(path)
    }
}

fn git_paths(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root);
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> =
        text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (!paths.is_empty()).then_some(paths)
}

/// Every file but those of hidden folders and of builds.
fn walk(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if !entry.file_type()?.is_dir() {
                paths.push(path);
            } else if name != "target" && name != ".git" {
                folders.push(path);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_that_hold_files() {
        let tree = Tree::of(&[("a/b/c.md", "text"), ("d.rs", "")]);
        for path in ["", "a", "a/", "a/b", "a/b/c.md", "d.rs"] {
            assert!(tree.has(path), "{path:?}");
        }
        for path in ["b", "a/b/c", "a/b/c.md/d"] {
            assert!(!tree.has(path), "{path:?}");
        }
        assert_eq!(tree.files(".md").collect::<Vec<_>>(), [("a/b/c.md", "text")]);
        assert_eq!(tree.text("a/b/c.md"), Some("text"));
    }

    #[test]
    fn this_repository_is_read_with_git_and_without() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = Tree::read(root).unwrap();
        assert!(tree.text("xtask/src/tree.rs").is_some_and(|text| text.starts_with("//!")));
        assert!(!tree.has("target"));
        assert!(walk(&root.join("xtask")).unwrap().contains(&"src/tree.rs".to_owned()));
    }
}
