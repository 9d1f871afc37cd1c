//! What documents and comments name must exist: links, and paths of this repository.

use super::Finding;
use crate::markdown::{anchor, headings, links};
use crate::tree::Tree;

/// Every relative link of a document leads to a file or folder, and to a heading if it names
/// one.
pub fn links_resolve(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(".md") {
        for link in links(text) {
            let is_elsewhere = link.text.contains("://") || link.text.starts_with("mailto:");
            if !is_elsewhere && let Some(what) = broken(tree, path, text, &link.text) {
                findings.push(Finding::new(path, link.line, what));
            }
        }
    }
    findings
}

fn broken(tree: &Tree, path: &str, text: &str, link: &str) -> Option<String> {
    let (target, heading) = link.split_once('#').map_or((link, None), |(t, h)| (t, Some(h)));
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let target_path = if target.is_empty() { Some(path.to_owned()) } else { join(folder, target) };
    let target_text = match &target_path {
        Some(target) if tree.has(target) => tree.text(target),
        _ => return Some(format!("the link leads nowhere: {link}")),
    };
    let heading = heading?;
    let target_text = if target.is_empty() { text } else { target_text.unwrap_or_default() };
    let has = headings(target_text).iter().any(|found| anchor(&found.text) == heading);
    (!has).then(|| format!("there is no such heading: {link}"))
}

/// `target`, seen from `folder`; `None` if it leads out of the repository.
fn join(folder: &str, target: &str) -> Option<String> {
    let mut names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// Folders whose paths, where documents or comments name them, must exist.
const NAMED: [&str; 3] = ["crates/", "docs/", "xtask/"];
/// Files that name them.
const NAMING: [&str; 3] = [".md", ".rs", ".toml"];

/// Every path below one of the house's folders that is named exists.
pub fn paths_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in NAMING.iter().flat_map(|ending| tree.files(ending)) {
        // What was is not what is; and the checks' own tests name what is not.
        if path == "CHANGELOG.md" || path.starts_with("xtask/") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            for named in named_paths(line) {
                if !tree.has(named) {
                    findings.push(Finding::new(path, index + 1, format!("there is no {named}")));
                }
            }
        }
    }
    findings
}

/// The paths in a line that begin with one of [`NAMED`], up to what cannot be part of a path.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    NAMED.iter().flat_map(move |folder| {
        line.match_indices(folder).filter_map(move |(at, _)| {
            // `/` before it: a path of something else ends so.
            let is_start = !line[..at].ends_with(|before: char| {
                before.is_alphanumeric() || ['/', '-', '_', '.'].contains(&before)
            });
            let rest = &line[at..];
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/-_.".contains(letter);
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            // A pattern names files as far as its folder.
            let is_pattern = rest[end..].starts_with(['*', '<', '{']);
            let named = &rest[..end];
            let named = if is_pattern { &named[..named.rfind('/')?] } else { named };
            is_start.then(|| named.trim_end_matches(['.', '/']))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_are_seen_from_their_document() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md) [top](.) [x](https://x.example/no) [no](docs/b.md)"),
            ("docs/a.md", "# A heading\n[up](../README.md) [here](#a-heading) [no](#other)"),
            ("docs/c/d.md", "[a](../a.md#a-heading) [no](../a.md#b) [out](../../../e.md)"),
        ]);
        assert_eq!(
            texts(links_resolve(&tree)),
            [
                "README.md:1: the link leads nowhere: docs/b.md",
                "docs/a.md:2: there is no such heading: #other",
                "docs/c/d.md:1: there is no such heading: ../a.md#b",
                "docs/c/d.md:1: the link leads nowhere: ../../../e.md",
            ]
        );
    }

    #[test]
    fn named_paths_exist() {
        let tree = Tree::of(&[
            ("crates/base/src/lib.rs", "//! See `docs/keys.md`, and docs/none.md."),
            ("docs/keys.md", "`crates/base/src/lib.rs`, crates/base. `crates/*/src`, crates/no"),
            ("CHANGELOG.md", "docs/gone.md is gone"),
        ]);
        assert_eq!(
            texts(paths_exist(&tree)),
            [
                "docs/keys.md:1: there is no crates/no",
                "crates/base/src/lib.rs:1: there is no docs/none.md",
            ]
        );
    }

    #[test]
    fn what_is_a_path_of_ours() {
        let paths = |line| named_paths(line).collect::<Vec<_>>();
        assert_eq!(paths("see `crates/a-b/src/c_d.rs`:"), ["crates/a-b/src/c_d.rs"]);
        assert_eq!(paths("crates/a/src/*.rs and crates/b/."), ["crates/a/src", "crates/b"]);
        assert!(paths("https://host.example/docs/a and mydocs/b").is_empty());
    }
}
