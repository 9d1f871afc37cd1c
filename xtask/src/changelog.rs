//! The changelog, assembled from the files in `changes/`, one for each change that users can see.

use crate::tree::Tree;

/// The assembled document.
pub const CHANGELOG: &str = "CHANGELOG.md";
/// The folder of changes that are not assembled yet.
const FOLDER: &str = "changes/";
/// Explains the folder.
const README: &str = "changes/README.md";

/// Kinds of changes: how a file's name begins, and the heading that its text goes under.
const KINDS: [(&str, &str); 4] =
    [("added-", "Added"), ("changed-", "Changed"), ("fixed-", "Fixed"), ("removed-", "Removed")];

/// One change.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<'t> {
    /// The file.
    pub path: &'t str,
    /// The heading that it goes under; none if the file's name has no kind.
    pub heading: Option<&'static str>,
    /// The text.
    pub text: &'t str,
}

/// The changes that are not assembled yet.
pub fn changes(tree: &Tree) -> impl Iterator<Item = Change<'_>> {
    let files = tree.files(".md").filter(|(path, _)| path.starts_with(FOLDER) && *path != README);
    files.map(|(path, text)| {
        let kind = KINDS.iter().find(|(prefix, _)| path[FOLDER.len()..].starts_with(prefix));
        Change { path, heading: kind.map(|(_, heading)| *heading), text: text.trim() }
    })
}

/// The changelog with all changes in its first version.
pub fn assemble(changelog: &str, changes: &[Change]) -> String {
    let version = changelog.find("\n## ").map_or(changelog.len(), |at| at + 1);
    let next = changelog[version..].find("\n## ").map_or(changelog.len(), |at| version + at + 1);
    let mut section = changelog[version..next].trim_end().to_owned();
    for (_, heading) in KINDS {
        let of_kind = changes.iter().filter(|change| change.heading == Some(heading));
        let items: String =
            of_kind.map(|change| format!("- {}\n", change.text.replace('\n', " "))).collect();
        if !items.is_empty() {
            section = with_items(&section, heading, items.trim_end());
        }
    }
    let rest = &changelog[next..];
    let gap = if rest.is_empty() { "\n" } else { "\n\n" };
    format!("{}{section}{gap}{rest}", &changelog[..version])
}

/// A section with items at the end of the part under a heading, which is added if it is missing.
fn with_items(section: &str, heading: &str, items: &str) -> String {
    let title = format!("\n### {heading}\n");
    let Some(at) = section.find(&title) else {
        return format!("{section}\n{title}\n{items}");
    };
    let begin = at + title.len();
    let end = section[begin..].find("\n### ").map_or(section.len(), |at| begin + at);
    let (part, rest) = (section[..end].trim_end(), &section[end..]);
    let gap = if rest.is_empty() { "" } else { "\n" };
    format!("{part}\n{items}{gap}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_go_under_their_headings_in_the_first_version() {
        let tree = Tree::of(&[
            ("changes/README.md", "text"),
            ("changes/added-b.md", "Second.\n"),
            ("changes/fixed-c.md", "Two\nlines.\n"),
            ("changes/removed-d.md", "Third."),
        ]);
        let before = "# Changelog\n\n## 2, unreleased\n\n### Added\n\n- First.\n\n### Fixed\n\n\
                      - Old.\n\n## 1\n\n### Added\n\n- All.\n";
        let after = "# Changelog\n\n## 2, unreleased\n\n### Added\n\n- First.\n- Second.\n\n\
                     ### Fixed\n\n- Old.\n- Two lines.\n\n### Removed\n\n- Third.\n\n## 1\n\n\
                     ### Added\n\n- All.\n";
        assert_eq!(assemble(before, &changes(&tree).collect::<Vec<_>>()), after);
        assert_eq!(assemble(before, &[]), before);
    }

    #[test]
    fn a_change_without_a_kind_has_no_heading() {
        let tree = Tree::of(&[("changes/news.md", "x")]);
        let found: Vec<Change> = changes(&tree).collect();
        assert_eq!(found, [Change { path: "changes/news.md", heading: None, text: "x" }]);
    }
}
