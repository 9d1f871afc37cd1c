//! Phrases that the style guide bars (docs/style.md), in documents, comments and strings.
//!
//! A file that still has some is on a list, which may only shrink: a file on it that is clean must
//! be removed from it, and a file that is not on it must be clean. `cargo xtask shrink-lists`
//! brings the list up to date.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::markdown::{without_code, without_spans};
use crate::rust::{Kind, tokens};
use crate::tree::Tree;

/// Files that are not rewritten yet, one path per line.
pub const LIST: &str = "xtask/src/checks/phrases.txt";

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

/// No barred phrase but in files on the list, and each of those has one.
pub fn phrases_are_plain(tree: &Tree) -> Vec<Finding> {
    let listed: Vec<&str> = tree.text(LIST).unwrap_or_default().lines().collect();
    let found = find_phrases(tree);
    let mut findings: Vec<Finding> = found
        .iter()
        .filter(|(path, _)| !listed.contains(path))
        .flat_map(|(_, found)| found.clone())
        .collect();
    for (index, path) in listed.iter().enumerate() {
        if !found.contains_key(path) {
            let what = format!("{path} is clean or gone: run cargo xtask shrink-lists");
            findings.push(Finding::new(LIST, index + 1, what));
        }
    }
    findings
}

/// The list without files that are clean or gone. A file that was moved stays listed, under its
/// new path, which is known by its name: nothing else is added.
pub fn shrunk_list(tree: &Tree) -> String {
    let listed: BTreeSet<&str> = tree.text(LIST).unwrap_or_default().lines().collect();
    let found = find_phrases(tree);
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let moved: BTreeSet<String> =
        listed.iter().filter(|path| !tree.has(path)).map(|path| name(path)).collect();
    let stays = |path: &&&str| listed.contains(**path) || moved.contains(&name(path));
    found.keys().filter(stays).map(|path| format!("{path}\n")).collect()
}

/// What is wrong with each file that has barred phrases.
fn find_phrases(tree: &Tree) -> BTreeMap<&str, Vec<Finding>> {
    let sources = tree.files(".rs").map(|(path, text)| (path, source_prose(text)));
    let documents = tree.files(".md").map(|(path, text)| (path, without_code(text)));
    let mut found = BTreeMap::new();
    for (path, prose) in sources.chain(documents) {
        // What was said of earlier versions stays as it was said.
        if SHOWING.contains(&path) || path == "CHANGELOG.md" {
            continue;
        }
        let wrong = prose.iter().flat_map(|(line, text)| {
            barred(text).into_iter().map(move |(phrase, instead)| {
                Finding::new(path, *line, format!("\"{phrase}\": write {instead} (docs/style.md)"))
            })
        });
        let wrong: Vec<Finding> = wrong.collect();
        if !wrong.is_empty() {
            found.insert(path, wrong);
        }
    }
    found
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

    #[test]
    fn the_list_only_shrinks() {
        let files = [
            ("a.rs", "// told"),
            ("b.rs", "// said"),
            ("d/e.rs", "// tells"),
            ("f.rs", "// so many"),
        ];
        let list = [(LIST, "a.rs\nb.rs\nc/e.rs\n")];
        let all = [&files[..], &list].concat();
        assert_eq!(
            found(&all),
            [
                "d/e.rs:1: \"tells\": write reports, says, returns (docs/style.md)".to_owned(),
                "f.rs:1: \"so many\": write at most N, this many (docs/style.md)".to_owned(),
                format!("{LIST}:2: b.rs is clean or gone: run cargo xtask shrink-lists"),
                format!("{LIST}:3: c/e.rs is clean or gone: run cargo xtask shrink-lists"),
            ]
        );
        assert_eq!(shrunk_list(&Tree::of(&all)), "a.rs\nd/e.rs\n");
    }
}
