//! Which paths are wanted, as one tree of names below `/`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::error::SourceError;
use crate::inode;

/// The wanted paths. Node 0 is `/`.
#[derive(Debug)]
pub(crate) struct Plan {
    nodes: Vec<PlanNode>,
}

/// A directory on the way to a wanted path, or a wanted path.
#[derive(Debug, Default)]
pub(crate) struct PlanNode {
    /// What is wanted below, even if the rest is not.
    pub(crate) children: BTreeMap<CString, usize>,
    /// Wanted completely: it was given.
    pub(crate) given: bool,
    /// If this is a symbolic link, what it leads to is meant.
    ///
    /// Invariant: never set below a given node, because there the link itself is wanted too.
    pub(crate) follow: bool,
}

/// A path as it was given, made absolute.
struct Wanted {
    given: PathBuf,
    names: Vec<CString>,
    /// The path ended in a slash: a symbolic link at its end is followed.
    follow: bool,
}

impl Plan {
    /// Resolves the given paths. Each must exist.
    pub(crate) fn new(paths: &[PathBuf]) -> Result<Self, SourceError> {
        if paths.is_empty() {
            return Err(SourceError::NoPaths);
        }
        let mut wanted = paths.iter().map(|path| absolute(path)).collect::<Result<Vec<_>, _>>()?;
        wanted.iter().try_for_each(find)?;
        // Below another given path every link is stored as a link, so the way to a nested path must
        // lead through none.
        let all: Vec<Vec<CString>> = wanted.iter().map(|path| path.names.clone()).collect();
        for path in &mut wanted {
            let nested = |outer: &Vec<CString>| {
                outer.len() < path.names.len() && path.names.starts_with(outer)
            };
            if all.iter().any(nested) {
                path.names = canonical(path)?;
                path.follow = false;
            }
        }
        let mut plan = Self { nodes: vec![PlanNode::default()] };
        // Shorter ones first, so that a node knows whether it is below a given one.
        wanted.sort_by_key(|path| path.names.len());
        wanted.iter().for_each(|path| plan.insert(path));
        Ok(plan)
    }

    /// All of a tree.
    pub(crate) fn whole() -> Self {
        Self { nodes: vec![PlanNode { given: true, ..PlanNode::default() }] }
    }

    /// The given paths, absolute, sorted; those below another left out.
    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        let mut roots = Vec::new();
        let mut rest = vec![(0, PathBuf::from("/"))];
        while let Some((place, path)) = rest.pop() {
            let node = self.node(place);
            if node.given {
                roots.push(path);
                continue;
            }
            for (name, child) in &node.children {
                rest.push((*child, path.join(OsStr::from_bytes(name.to_bytes()))));
            }
        }
        roots.sort();
        roots
    }

    pub(crate) fn node(&self, place: usize) -> &PlanNode {
        &self.nodes[place]
    }

    pub(crate) fn child(&self, parent: Option<usize>, name: &CStr) -> Option<usize> {
        self.nodes[parent?].children.get(name).copied()
    }

    fn insert(&mut self, path: &Wanted) {
        let mut place = 0;
        let mut below_given = self.nodes[0].given;
        for name in &path.names {
            place = match self.nodes[place].children.get(name) {
                Some(&child) => child,
                None => {
                    let child = self.nodes.len();
                    let follow = !below_given;
                    self.nodes.push(PlanNode { follow, ..PlanNode::default() });
                    self.nodes[place].children.insert(name.clone(), child);
                    child
                }
            };
            below_given |= self.nodes[place].given;
        }
        let node = &mut self.nodes[place];
        if !node.given {
            node.given = true;
            // A node that is only on the way follows links; a wanted one is stored as it is.
            node.follow &= path.follow;
        }
    }
}

/// The folder that relative paths start from.
#[expect(clippy::disallowed_methods, reason = "a relative path has no other meaning")]
fn current_folder() -> io::Result<PathBuf> {
    std::env::current_dir()
}

/// Makes a path absolute by its text alone, except for `..`, which asks where links lead.
fn absolute(given: &Path) -> Result<Wanted, SourceError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => SourceError::Missing { path: given.to_owned() },
        _ => SourceError::io("find", given, error),
    };
    if given.as_os_str().is_empty() {
        return Err(SourceError::Missing { path: given.to_owned() });
    }
    let mut path = PathBuf::from("/");
    if given.is_relative() {
        path = current_folder().map_err(failed)?;
    }
    let mut follow = given.as_os_str().as_bytes().ends_with(b"/");
    for component in given.components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                path = std::fs::canonicalize(&path).map_err(failed)?;
                path.pop();
            }
            Component::Normal(name) => path.push(name),
        }
    }
    // `link/.` means the directory, as in all programs.
    follow |= given.as_os_str().as_bytes().ends_with(b"/.");
    let names = names_of(&path).map_err(failed)?;
    Ok(Wanted { given: given.to_owned(), names, follow })
}

fn names_of(path: &Path) -> Result<Vec<CString>, io::Error> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(CString::new(name.as_bytes()).map_err(io::Error::from)),
            _ => None,
        })
        .collect()
}

/// Goes to the path name by name, so that it may be longer than a path that the kernel accepts.
fn find(path: &Wanted) -> Result<(), SourceError> {
    let failed = |error: Errno| match error {
        Errno::NOENT | Errno::NOTDIR => SourceError::Missing { path: path.given.clone() },
        _ => SourceError::io("find", &path.given, error),
    };
    let Some((last, way)) = path.names.split_last() else { return Ok(()) };
    let mut directory = inode::open_way(rustix::fs::CWD, c"/", true).map_err(failed)?;
    for name in way {
        directory = inode::open_way(&directory, name, true).map_err(failed)?;
    }
    let found = match path.follow {
        true => inode::stat_at_following(directory.as_fd(), last),
        false => inode::stat_at(directory.as_fd(), last),
    };
    found.map(|_| ()).map_err(failed)
}

/// The names of the path without a link on the way; a link at its end stays unless followed.
fn canonical(path: &Wanted) -> Result<Vec<CString>, SourceError> {
    let text: Vec<u8> =
        path.names.iter().flat_map(|name| [b"/", name.as_bytes()].concat()).collect();
    let absolute = PathBuf::from(OsStr::from_bytes(&text));
    let failed = |error| SourceError::io("find", &path.given, error);
    let resolved = match (path.follow, absolute.parent(), absolute.file_name()) {
        (false, Some(parent), Some(name)) => {
            std::fs::canonicalize(parent).map_err(failed)?.join(name)
        }
        _ => std::fs::canonicalize(&absolute).map_err(failed)?,
    };
    names_of(Path::new(&std::ffi::OsString::from_vec(resolved.into_os_string().into_vec())))
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The plan as text: names in order, `*` after a given one, `@` after one that follows.
    fn text(plan: &Plan, place: usize) -> String {
        let node = plan.node(place);
        let mut text = String::new();
        if node.given {
            text.push('*');
        }
        if node.follow {
            text.push('@');
        }
        let children: Vec<String> = (node.children.iter())
            .map(|(name, &child)| format!("{}{}", name.to_str().unwrap(), self::text(plan, child)))
            .collect();
        if !children.is_empty() {
            text += &format!("({})", children.join(" "));
        }
        text
    }

    #[test]
    fn paths_merge_into_one_tree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("c")).unwrap();
        symlink("a", root.join("link")).unwrap();
        let check = |paths: &[&str], expected: &str| {
            let paths: Vec<_> = paths
                .iter()
                .map(|path| PathBuf::from(format!("{}/{path}", root.display())))
                .collect();
            let plan = Plan::new(&paths).unwrap();
            let mut place = 0;
            for component in names_of(&root).unwrap() {
                place = plan.child(Some(place), &component).unwrap();
            }
            assert_eq!(text(&plan, place), expected, "{paths:?}");
        };
        check(&["a/b", "c"], "@(a@(b*) c*)");
        check(&["c", "a", "c/"], "@(a* c*)");
        check(&["a", "a/b"], "@(a*(b*))");
        check(&["link"], "@(link*)");
        check(&["link/"], "@(link*@)");
        check(&["link/."], "@(link*@)");
        check(&["link/b"], "@(link@(b*))");
        check(&["link/../c"], "@(c*)");
        check(&["a/b/../../c/./"], "@(c*@)");
        // Below a given directory the link is a link, and what it leads to is elsewhere.
        check(&["", "link/b"], "*@(a(b*))");
        check(&["link", "link/b"], "@(a@(b*) link*)");
    }

    #[test]
    fn a_missing_path_is_named() {
        for path in ["/nowhere/at/all", "/etc/passwd/x", "", "/nowhere/../x"] {
            let error = Plan::new(&[PathBuf::from("/"), PathBuf::from(path)]).unwrap_err();
            assert!(
                matches!(&error, SourceError::Missing { path: named } if named == Path::new(path)),
                "{error}"
            );
        }
        assert!(matches!(Plan::new(&[]), Err(SourceError::NoPaths)));
    }
}
