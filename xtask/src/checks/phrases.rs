//! Phrases that the style guide bars (docs/style.md), in documents, comments and strings.

use super::Finding;
use crate::markdown::{without_code, without_spans};
use crate::rust::{Kind, tokens};
use crate::tree::Tree;

/// Files that show barred phrases on purpose: the guide, and this check.
const SHOWING: [&str; 2] = ["docs/style.md", "xtask/src/checks/phrases.rs"];

/// Barred words, and what to write instead. Words are compared whole and in lower case.
const BARRED: [(&str, &str); 31] = [
    ("stand", "is, exists"),
    ("stands", "is, exists"),
    ("stood", "was, existed"),
    ("standing", "existing"),
    ("tell", "report, say, return"),
    ("tells", "reports, says, returns"),
    ("told", "reported, said"),
    ("whoever", "the caller, the reader, another process"),
    ("whatever", "any"),
    ("nobody", "no reader, no process, nothing"),
    ("somebody", "a person, another process"),
    ("so many", "at most N, this many"),
    ("so much", "at most N, this much"),
    ("as good as", "the same as"),
    ("could be had", "the recovered parts"),
    ("can be had", "is available"),
    ("be had whole", "is damaged"),
    ("makes no sense", "is invalid, and why"),
    ("make no sense", "are invalid, and why"),
    ("how-manieth", "how many times"),
    ("held against", "compared with"),
    ("holds against", "compares with"),
    ("anew", "again"),
    ("lest", "so that … not"),
    ("bears", "has, contains"),
    ("bear", "have, contain"),
    ("goes by", "is named, uses"),
    ("where it is not", "if it is not"),
    ("where there is no", "if there is no"),
    ("where there are no", "if there are no"),
    ("where that is", "if that is"),
];

/// No document, comment or string has a barred phrase.
pub fn phrases_are_plain(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files(".rs").map(|(path, text)| (path, source_prose(text)));
    let documents = tree.files(".md").map(|(path, text)| (path, without_code(text)));
    // What was said of earlier versions stays as it was said.
    let is_checked = |path: &str| !SHOWING.contains(&path) && path != "CHANGELOG.md";
    let checked = sources.chain(documents).filter(|(path, _)| is_checked(path));
    checked.flat_map(|(path, prose)| findings_in(path, &prose)).collect()
}

fn findings_in(path: &str, prose: &[(usize, String)]) -> Vec<Finding> {
    let found = prose.iter().flat_map(|(line, text)| {
        barred(text).into_iter().map(move |(phrase, instead)| {
            Finding::new(path, *line, format!("\"{phrase}\": write {instead} (docs/style.md)"))
        })
    });
    found.collect()
}

/// Comments and strings, with their lines. Code within backquotes is left out.
fn source_prose(text: &str) -> Vec<(usize, String)> {
    let is_prose = |kind| matches!(kind, Kind::Comment | Kind::Text);
    let found = tokens(text).into_iter().filter(|token| is_prose(token.kind));
    let lines = found.flat_map(|token| {
        token
            .text
            .lines()
            .enumerate()
            .map(move |(index, text)| (token.line + index, without_spans(text)))
    });
    lines.collect()
}

fn barred(text: &str) -> Vec<(&'static str, &'static str)> {
    let text = text.to_lowercase();
    let has = |phrase: &str| {
        text.match_indices(phrase).any(|(at, _)| {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
            !text[..at].ends_with(is_part) && !text[at + phrase.len()..].starts_with(is_part)
        })
    };
    BARRED.into_iter().filter(|(phrase, _)| has(phrase)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        phrases_are_plain(&Tree::of(files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn comments_strings_and_documents_are_read_and_code_is_not() {
        let source = "//! It stands here.\nfn tell() { say(\"Nobody knows `told`\"); }\n";
        let document = "Whoever\nreads `nobody`\n```sh\ntold\n```\nunderstands.\n";
        assert_eq!(
            found(&[("a.rs", source), ("b.md", document), ("c.toml", "# told")]),
            [
                "a.rs:1: \"stands\": write is, exists (docs/style.md)",
                "a.rs:2: \"nobody\": write no reader, no process, nothing (docs/style.md)",
                "b.md:1: \"whoever\": write the caller, the reader, another process (docs/style.md)",
            ]
        );
    }
}
