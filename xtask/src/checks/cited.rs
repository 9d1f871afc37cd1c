//! Tests that documents cite must exist.

use super::Finding;
use crate::tree::Tree;

/// Documents in which every `name_of_a_function` in backquotes is a test.
const CITING: [&str; 2] = ["docs/threats.md", "docs/failures.md"];

/// Every test that these documents cite is a function of a crate.
pub fn cited_tests_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in CITING {
        let lines = tree.text(path).unwrap_or_default().lines();
        for (number, line) in (1..).zip(lines) {
            // What is between backquotes is every second part.
            for name in line.split('`').skip(1).step_by(2).filter(|name| is_test_name(name)) {
                let definition = format!("fn {name}(");
                if !tree.files(".rs").any(|(_, text)| text.contains(&definition)) {
                    findings.push(Finding::new(path, number, format!("no test is named {name}")));
                }
            }
        }
    }
    findings
}

fn is_test_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.contains('_') && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        let tree = Tree::of(&[
            ("docs/threats.md", "`it_is_there`, `it_is_not`, `--an-option`, `word`"),
            ("crates/a/src/lib.rs", "#[test]\nfn it_is_there() {}\n"),
        ]);
        let found: Vec<String> = cited_tests_exist(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(found, ["docs/threats.md:1: no test is named it_is_not"]);
    }
}
