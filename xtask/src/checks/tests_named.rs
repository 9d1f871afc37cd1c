//! Every integration test belongs to its crate's one test program.

use super::Finding;
use crate::rust::{Kind, tokens};
use crate::tree::Tree;

/// A file below a folder with a `main.rs` or a file of the folder's name is declared there as a
/// module: Cargo compiles no other, so a forgotten one would never run.
pub fn tests_are_named(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.files(".rs") {
        let Some((folder, name)) = path.rsplit_once('/') else { continue };
        if !folder.contains("/tests/") || name == "main.rs" {
            continue;
        }
        let beside = format!("{folder}.rs");
        let main = format!("{folder}/main.rs");
        let parent = if tree.text(&main).is_some() { main } else { beside };
        let name = name.trim_end_matches(".rs");
        match tree.text(&parent) {
            Some(text) if declares(text, name) => {}
            Some(_) => {
                findings.push(Finding::new(path, 0, format!("{parent} does not declare it")))
            }
            None => findings.push(Finding::new(path, 0, format!("{parent} does not exist"))),
        }
    }
    findings
}

fn declares(text: &str, module: &str) -> bool {
    let tokens = tokens(text);
    let code: Vec<_> = tokens.iter().filter(|token| token.kind != Kind::Comment).collect();
    code.windows(2).any(|pair| pair[0].is("mod") && pair[1].is(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_test_is_found() {
        let tree = Tree::of(&[
            ("crates/a/tests/it/main.rs", "mod one;\nmod parts;\n// mod two;\n"),
            ("crates/a/tests/it/one.rs", ""),
            ("crates/a/tests/it/two.rs", ""),
            ("crates/a/tests/it/parts.rs", "mod three;\n"),
            ("crates/a/tests/it/parts/three.rs", ""),
            ("crates/a/tests/it/parts/four.rs", ""),
            ("crates/a/tests/alone.rs", ""),
        ]);
        let found: Vec<String> = tests_are_named(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/a/tests/it/parts/four.rs: crates/a/tests/it/parts.rs does not declare it",
                "crates/a/tests/it/two.rs: crates/a/tests/it/main.rs does not declare it",
            ]
        );
    }
}
