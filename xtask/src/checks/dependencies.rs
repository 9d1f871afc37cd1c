//! The table of docs/design/0002-dependencies.md names the dependencies that the manifests have.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::Tree;

const TABLE: &str = "docs/design/0002-dependencies.md";
const WORKSPACE: &str = "Cargo.toml";
/// Names of packages of this repository begin so.
const OURS: &str = "strongroom";

/// Each dependency from the registry is in the document with the version that the manifests ask
/// for, and each that the document gives a version for is in a manifest.
pub fn dependencies_are_explained(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.text(TABLE) else { return Vec::new() };
    let explained = explained(document);
    let used = used(tree);
    let mut findings = Vec::new();
    for Used { name, version, path, line } in &used {
        match explained.iter().find(|(known, ..)| known == name) {
            None => {
                let what = format!("{TABLE} does not explain {name}");
                findings.push(Finding::new(path, *line, what));
            }
            Some((_, Some(known), known_line)) if !version.is_empty() && !is_of(version, known) => {
                let what = format!("{name} {known}: {path} asks for {version}");
                findings.push(Finding::new(TABLE, *known_line, what));
            }
            Some(_) => {}
        }
    }
    for (name, version, line) in &explained {
        let is_row = document.lines().nth(line - 1).is_some_and(|line| line.starts_with("| "));
        if is_row && version.is_some() && !used.iter().any(|used| used.name == *name) {
            findings.push(Finding::new(TABLE, *line, format!("no manifest asks for {name}")));
        }
    }
    findings
}

/// True if both begin with the same numbers: `=0.18.0` is of 0.18, and 1 of 1.4.
fn is_of(asked: &str, explained: &str) -> bool {
    let numbers = |version: &str| {
        version.trim_start_matches('=').split('.').map(str::to_owned).collect::<Vec<_>>()
    };
    let (asked, explained) = (numbers(asked), numbers(explained));
    asked.iter().zip(&explained).all(|(one, other)| one == other)
}

/// Names in backquotes of the decision's first part, with the version behind each.
fn explained(document: &str) -> Vec<(&str, Option<&str>, usize)> {
    let part = document.split("\n## Why").next().unwrap_or_default();
    let mut found = Vec::new();
    for (index, line) in part.lines().enumerate() {
        // A row explains what its first cell names; a paragraph all that it names.
        let text =
            line.strip_prefix("| ").map_or(line, |row| row.split(" | ").next().unwrap_or_default());
        let mut rest = text;
        while let Some((_, behind)) = rest.split_once('`') {
            let Some((name, behind)) = behind.split_once('`') else { break };
            let word = behind.strip_prefix(' ').and_then(|behind| behind.split(' ').next());
            let version = word.map(|word| word.trim_end_matches([',', '.', ';', ':', ')']));
            let version = version.filter(|word| {
                word.starts_with(['=', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
            });
            found.push((name, version, index + 1));
            rest = behind;
        }
    }
    found
}

/// A dependency from the registry.
struct Used {
    name: String,
    version: String,
    path: String,
    line: usize,
}

/// What the manifests ask for; the workspace's is where most versions are.
fn used(tree: &Tree) -> Vec<Used> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, text) in tree.files(WORKSPACE) {
        let mut section = "";
        for (index, line) in text.lines().enumerate() {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']');
            } else if section.ends_with("dependencies")
                && let Some((name, value)) = line.split_once('=')
            {
                let name = name.trim().trim_end_matches(".workspace").trim_matches('"');
                let is_ours = name.starts_with(OURS) || value.contains("path =");
                let version = version(value);
                if !is_ours
                    && !name.starts_with('#')
                    && seen.insert((name.to_owned(), version.clone()))
                {
                    let (name, path) = (name.to_owned(), path.to_owned());
                    found.push(Used { name, version, path, line: index + 1 });
                }
            }
        }
    }
    found
}

/// The version in `"1.2"` or `{ version = "1.2", … }`; empty if it is the workspace's.
fn version(value: &str) -> String {
    let value = value.trim();
    let text = match value.split_once("version") {
        Some((_, behind)) if value.starts_with('{') => behind,
        _ if value.starts_with('"') => value,
        _ => return String::new(),
    };
    text.split('"').nth(1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_manifests_agree() {
        let document = "| crate | for |\n|---|---|\n| `a` 1.2, `b` | x instead of `z` |\n| `gone` 7 | y |\n\
            | `c` =0.18.0 | w |\n\nIn tests: `d` 2, `e`.\n\n## Why\n`f` 3\n";
        let tree = Tree::of(&[
            (TABLE, document),
            (
                "Cargo.toml",
                "[workspace.dependencies]\nours = { path = \"x\" }\na = \"1.3\"\nb = \"2\"\nc = \"=0.18.0\"\n\
                d = { version = \"2.1\", features = [] }\n",
            ),
            (
                "crates/x/Cargo.toml",
                "[dependencies]\na.workspace = true\ne = \"1\"\n[dev-dependencies]\nf = \"3\"\n",
            ),
        ]);
        let found: Vec<String> =
            dependencies_are_explained(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                format!("{TABLE}:3: a 1.2: Cargo.toml asks for 1.3"),
                format!("crates/x/Cargo.toml:5: {TABLE} does not explain f"),
                format!("{TABLE}:4: no manifest asks for gone"),
            ]
        );
    }
}
