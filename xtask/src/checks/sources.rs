//! What every file keeps to: a head that says what it is for, and nothing of the machine it was
//! written on.

use super::Finding;
use crate::tree::Tree;

/// Every Rust file opens with `//!`.
pub fn heads_say_what_for(tree: &Tree) -> Vec<Finding> {
    tree.files(".rs")
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| Finding::new(path, 1, "it does not open with //!"))
        .collect()
}

/// Top folders of machines where this was written, which no user has. Without slashes, so that
/// this file does not show what it looks for.
const MACHINE_FOLDERS: [&str; 3] = ["work", "farm", "root"];
/// Tables and keys of Cargo's configuration that name a registry, at the start of a line.
const CARGO_SETTINGS: [&str; 3] = ["[registries", "[source", "replace-with"];
/// How other clients are sent to a registry of one's own.
const INDEX_OPTION: &str = "index-url";
/// Where a lock file says that a package is from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// No path of a machine and no registry but the public one.
pub fn no_machine_shows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files("") {
        for (index, line) in text.lines().enumerate() {
            if let Some(folder) = machine_folder(line) {
                let what = format!("a path of a machine: /{folder}/");
                findings.push(Finding::new(path, index + 1, what));
            }
            if names_registry(path, line) {
                findings.push(Finding::new(path, index + 1, "it names a registry"));
            }
        }
    }
    findings
}

fn names_registry(path: &str, line: &str) -> bool {
    if path.ends_with("Cargo.lock") {
        let source = line.strip_prefix("source = \"");
        return source.is_some_and(|source| source.trim_end_matches('"') != REGISTRY);
    }
    let sets_one = CARGO_SETTINGS.iter().any(|setting| line.starts_with(setting));
    path.ends_with(".toml") && sets_one || line.contains(&format!("-{INDEX_OPTION}"))
}

fn machine_folder(line: &str) -> Option<&'static str> {
    MACHINE_FOLDERS.into_iter().find(|folder| {
        let path = format!("/{folder}/");
        line.match_indices(&path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            // The same name further down in a path may be any folder.
            before.is_none_or(|before| !before.is_ascii_alphanumeric() && !"_.-".contains(before))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let tree = Tree::of(&[("a.rs", "//! A.\n"), ("b.rs", "// B\n"), ("c.rs", "")]);
        let found: Vec<_> = heads_say_what_for(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["b.rs", "c.rs"]);
    }

    #[test]
    fn machines() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(machine_folder(&format!("in `/{folder}/x`")), Some(folder));
            assert_eq!(machine_folder(&format!("crates/{folder}/x")), None);
            assert_eq!(machine_folder(&format!("../{folder}/x")), None);
        }
        assert_eq!(machine_folder("/home/me/x"), None);
    }

    #[test]
    fn registries() {
        let other = REGISTRY.replace("github.com", "elsewhere.example");
        let lock = format!("source = \"{REGISTRY}\"\nsource = \"{other}\"\n");
        let tree = Tree::of(&[
            ("Cargo.lock", &lock),
            (".cargo/config.toml", "[registries.x]"),
            ("a.rs", "[source.y]"),
            ("setup", &format!("pip install --extra-{INDEX_OPTION} x")),
        ]);
        let found: Vec<_> = no_machine_shows(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        let expected = [(".cargo/config.toml", 1), ("Cargo.lock", 2), ("setup", 1)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
