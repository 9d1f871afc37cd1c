//! The glossary: each word once, in order, so that one noun means one thing.

use super::Finding;
use crate::tree::Tree;

const GLOSSARY: &str = "docs/glossary.md";

/// Each line is `- **word**: …`; words occur once, in the order of the alphabet.
pub fn words_stand_once(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(GLOSSARY) else {
        return vec![Finding::new(GLOSSARY, 0, "there is no glossary")];
    };
    let mut findings = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("- ")) {
        let Some((word, _)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("**: "))
        else {
            findings.push(Finding::new(GLOSSARY, index + 1, "it is not `- **word**: …`"));
            continue;
        };
        let word = word.to_lowercase();
        if words.contains(&word) {
            findings.push(Finding::new(GLOSSARY, index + 1, format!("{word} occurs twice")));
        } else if words.last().is_some_and(|last| *last > word) {
            findings.push(Finding::new(GLOSSARY, index + 1, format!("{word} is out of order")));
        }
        words.push(word);
    }
    if words.is_empty() {
        findings.push(Finding::new(GLOSSARY, 0, "it has no words"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let tree = Tree::of(&[(GLOSSARY, text)]);
        words_stand_once(&tree).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn sorted_and_once() {
        assert!(texts("# Glossary\n\n- **Arena**: one.\n- **block**: two.\n").is_empty());
        assert_eq!(
            texts("- **b**: 1.\n- **a**: 2.\n- **b**: 3.\n"),
            ["a is out of order", "b occurs twice"]
        );
        assert_eq!(texts("- a word\n"), ["it is not `- **word**: …`", "it has no words"]);
        assert_eq!(words_stand_once(&Tree::of(&[])).len(), 1);
    }
}
