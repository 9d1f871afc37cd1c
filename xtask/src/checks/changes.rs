//! The files of `changes/` can be assembled into the changelog.

use super::Finding;
use crate::changelog::changes;
use crate::tree::Tree;

/// Each has a kind and a text.
pub fn changes_can_be_assembled(tree: &Tree) -> Vec<Finding> {
    let what = |change: &crate::changelog::Change| match change.heading {
        None => Some("its name should begin with added-, changed-, fixed- or removed-"),
        Some(_) if change.text.is_empty() => Some("it has no text"),
        Some(_) if change.text.starts_with(['-', '#']) => Some("it should be plain sentences"),
        Some(_) => None,
    };
    let wrong = changes(tree).filter_map(|change| Some((change.path, what(&change)?)));
    wrong.map(|(path, what)| Finding::new(path, 0, what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_text_are_required() {
        let tree = Tree::of(&[
            ("changes/README.md", ""),
            ("changes/added-a.md", "A.\n"),
            ("changes/fixed-b.md", "\n"),
            ("changes/news.md", "C.\n"),
            ("changes/removed-d.md", "- D.\n"),
        ]);
        let found: Vec<String> =
            changes_can_be_assembled(&tree).into_iter().map(|found| found.path).collect();
        assert_eq!(found, ["changes/fixed-b.md", "changes/news.md", "changes/removed-d.md"]);
    }
}
