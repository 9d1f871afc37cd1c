//! The house: ARCHITECTURE.md draws its floors, and Cargo's arrows must point down.

use std::collections::BTreeMap;

use super::Finding;
use crate::tree::Tree;

/// Where the floors are drawn.
const DRAWING: &str = "ARCHITECTURE.md";
/// A package's name is this, and then its folder.
const PREFIX: &str = "strongroom-";

/// The place of a crate in the house.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Floor {
    /// On this floor: it uses lower floors only, and its tests also those beside it.
    Number(u32),
    /// Beside the house, for tests and measurements: it may use all, and none but tests use it.
    Beside,
}

/// Each crate is drawn, and none uses a crate of its own floor or of a higher one.
pub fn floors_hold(tree: &Tree) -> Vec<Finding> {
    let drawn = drawn_floors(tree.text(DRAWING).unwrap_or_default());
    let manifests: Vec<(&str, &str)> = tree
        .files("/Cargo.toml")
        .filter_map(|(path, text)| {
            Some((path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?, text))
        })
        .collect();
    let mut findings = Vec::new();
    for name in drawn.keys() {
        if !manifests.iter().any(|(folder, _)| folder == name) {
            let what = format!("it draws the crate {name}, which does not exist");
            findings.push(Finding::new(DRAWING, 0, what));
        }
    }
    for (folder, text) in manifests {
        let path = format!("crates/{folder}/Cargo.toml");
        let Some(&floor) = drawn.get(folder) else {
            findings.push(Finding::new(&path, 0, format!("{DRAWING} draws no such crate")));
            continue;
        };
        for used in dependencies(text) {
            if let Some(what) = wrong_way(folder, floor, &used, &drawn) {
                findings.push(Finding::new(&path, used.line, what));
            }
        }
    }
    findings
}

fn wrong_way(
    folder: &str,
    floor: Floor,
    used: &Dependency,
    drawn: &BTreeMap<String, Floor>,
) -> Option<String> {
    let Some(&below) = drawn.get(&used.folder) else {
        return Some(format!("{DRAWING} draws no crate {}", used.folder));
    };
    let fits = match (floor, below) {
        (Floor::Beside, _) => true,
        (Floor::Number(_), Floor::Beside) => used.for_tests,
        (Floor::Number(floor), Floor::Number(below)) => {
            below < floor || used.for_tests && below == floor
        }
    };
    (!fits).then(|| format!("{folder} may not use {}: it is not on a lower floor", used.folder))
}

/// The lines `  NAME  FLOOR  …` of fenced blocks, behind the line `crates/`, up to the first that
/// is not indented. A floor is a number, or `(dev)`.
fn drawn_floors(text: &str) -> BTreeMap<String, Floor> {
    let lines = text.lines().skip_while(|line| line.trim_end() != "crates/").skip(1);
    lines
        .take_while(|line| line.starts_with(' '))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, floor) = (words.next()?, words.next()?);
            let floor = match floor.parse() {
                Ok(number) => Floor::Number(number),
                Err(_) if floor == "(dev)" => Floor::Beside,
                Err(_) => return None,
            };
            Some((name.to_owned(), floor))
        })
        .collect()
}

/// A crate of the house that a manifest names.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    folder: String,
    line: usize,
    for_tests: bool,
}

fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        let mut name = None;
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // `[dependencies.NAME]`
            name = section.rsplit_once("dependencies.").map(|(_, name)| name);
        } else if section.ends_with("dependencies") {
            name = line.split(['.', '=', ' ']).next();
        }
        if let Some(folder) = name.and_then(|name| name.trim_matches('"').strip_prefix(PREFIX)) {
            let for_tests = section.contains("dev-dependencies");
            found.push(Dependency { folder: folder.to_owned(), line: index + 1, for_tests });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = "# A\n```text\ncrates/\n  top      2  uses both\n  middle   1  uses base\n  \
        base     0  uses nothing\n  testkit  (dev)  for tests\nxtask/\n  none 9\n```\n";

    fn texts(manifests: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![(DRAWING, DRAWN)];
        files.extend(manifests);
        floors_hold(&Tree::of(&files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn arrows_point_down() {
        let found = texts(&[
            ("crates/top/Cargo.toml", "[dependencies]\nstrongroom-base.workspace = true\n"),
            ("crates/middle/Cargo.toml", "[dependencies]\nstrongroom-top = { path = \"x\" }\n"),
            ("crates/base/Cargo.toml", "[dev-dependencies]\nstrongroom-testkit.workspace = true\n"),
            ("crates/testkit/Cargo.toml", "[dependencies.strongroom-top]\nworkspace = true\n"),
        ]);
        assert_eq!(
            found,
            ["crates/middle/Cargo.toml:2: middle may not use top: it is not on a lower floor"]
        );
    }

    #[test]
    fn one_floor_is_not_below_itself_and_tests_use_no_higher_one() {
        let dev = "[target.'cfg(unix)'.dev-dependencies]\nstrongroom-top.workspace = true\n";
        let found = texts(&[
            ("crates/top/Cargo.toml", "[build-dependencies]\nstrongroom-top.workspace = true\n"),
            ("crates/middle/Cargo.toml", dev),
            ("crates/base/Cargo.toml", "[dependencies]\nstrongroom-testkit.workspace = true\n"),
            ("crates/testkit/Cargo.toml", ""),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn tests_use_what_stands_beside() {
        let drawn = DRAWN.replace("  base ", "  beside   1  uses base\n  base ");
        let dev = "[dev-dependencies]\nstrongroom-middle.workspace = true\n";
        let found = |manifest| {
            let names = ["top", "middle", "base", "testkit"];
            let paths = names.map(|name| format!("crates/{name}/Cargo.toml"));
            let mut files: Vec<(&str, &str)> = vec![(DRAWING, &drawn)];
            files.extend(paths.iter().map(|path| (path.as_str(), "")));
            files.push(("crates/beside/Cargo.toml", manifest));
            floors_hold(&Tree::of(&files)).len()
        };
        assert_eq!(found(dev), 0);
        assert_eq!(found(&dev.replace("dev-", "")), 1);
    }

    #[test]
    fn drawing_and_folders_are_the_same() {
        let found = texts(&[
            ("crates/top/Cargo.toml", ""),
            ("crates/middle/Cargo.toml", "[dependencies]\nstrongroom-attic.workspace = true\n"),
            ("crates/base/Cargo.toml", ""),
            ("crates/cellar/Cargo.toml", ""),
        ]);
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md: it draws the crate testkit, which does not exist",
                "crates/cellar/Cargo.toml: ARCHITECTURE.md draws no such crate",
                "crates/middle/Cargo.toml:2: ARCHITECTURE.md draws no crate attic",
            ]
        );
    }
}
