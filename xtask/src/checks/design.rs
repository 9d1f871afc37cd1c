//! Decisions: each has its document, its number, its parts, and a link from ARCHITECTURE.md.

use super::Finding;
use crate::markdown::{headings, links};
use crate::tree::Tree;

const FOLDER: &str = "docs/design/";
const OVERVIEW: &str = "ARCHITECTURE.md";
/// Headings that each decision has.
const PARTS: [&str; 3] = ["Decision", "Why", "Rejected"];

/// The overview links every decision.
pub fn documents_are_linked(tree: &Tree) -> Vec<Finding> {
    let linked = links(tree.text(OVERVIEW).unwrap_or_default());
    let unlinked = tree.files(".md").filter(|(path, _)| {
        path.starts_with(FOLDER) && !linked.iter().any(|link| link.text == *path)
    });
    unlinked
        .map(|(path, _)| Finding::new(path, 0, format!("{OVERVIEW} does not link it")))
        .collect()
}

/// Each is named `NNNN-title.md`, numbered without a gap, and says what, why, and what else.
pub fn documents_have_their_parts(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let documents = tree.files(".md").filter(|(path, _)| path.starts_with(FOLDER));
    for (index, (path, text)) in documents.enumerate() {
        let number = format!("{:04}", index + 1);
        if !path[FOLDER.len()..].starts_with(&format!("{number}-")) {
            let what = format!("its name should begin with {number}-");
            findings.push(Finding::new(path, 0, what));
        }
        for part in PARTS {
            if !headings(text).iter().any(|found| found.text == part) {
                findings.push(Finding::new(path, 0, format!("it has no part \"{part}\"")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "# T\n## Decision\n## Why\n## Rejected\n";

    #[test]
    fn each_is_linked() {
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", "[one](docs/design/0001-one.md)"),
            ("docs/design/0001-one.md", WHOLE),
            ("docs/design/0002-two.md", WHOLE),
        ]);
        let found = documents_are_linked(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/design/0002-two.md");
        assert!(documents_have_their_parts(&tree).is_empty());
    }

    #[test]
    fn numbers_have_no_gap_and_parts_are_there() {
        let tree = Tree::of(&[
            ("docs/design/0001-one.md", WHOLE),
            ("docs/design/0003-three.md", "# T\n## Decision\n"),
        ]);
        let found: Vec<String> =
            documents_have_their_parts(&tree).into_iter().map(|found| found.what).collect();
        let wrong_number = "its name should begin with 0002-";
        assert_eq!(found, [wrong_number, "it has no part \"Why\"", "it has no part \"Rejected\""]);
    }
}
