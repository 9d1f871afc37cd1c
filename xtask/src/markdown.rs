//! As much of Markdown as the checks need: links, headings, and prose without code.

/// A link or heading, and its line, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// From 1.
    pub line: usize,
    /// The link's target, or the heading's text.
    pub text: String,
}

/// The lines outside of fenced code, with their numbers from 1.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// The lines outside of fenced code, without what backquotes enclose.
pub fn without_code(text: &str) -> Vec<(usize, String)> {
    prose(text).map(|(line, content)| (line, without_spans(content))).collect()
}

/// A line without what backquotes enclose.
pub fn without_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of all links `[text](target)` outside of code.
pub fn links(text: &str) -> Vec<Found> {
    let mut links = Vec::new();
    for (line, content) in prose(text) {
        // Every second part between backquotes is code.
        for part in content.split('`').step_by(2) {
            let mut rest = part;
            while let Some((_, behind)) = rest.split_once("](") {
                let Some((target, behind)) = behind.split_once(')') else { break };
                links.push(Found { line, text: target.to_owned() });
                rest = behind;
            }
        }
    }
    // Links whose text is code were torn apart above; they are between the parts.
    for (line, content) in prose(text) {
        for (at, _) in content.match_indices("`](") {
            if let Some((target, _)) = content[at + 3..].split_once(')') {
                let found = Found { line, text: target.to_owned() };
                if !links.contains(&found) {
                    links.push(found);
                }
            }
        }
    }
    links.sort_by_key(|found| found.line);
    links
}

/// All headings, without their marks.
pub fn headings(text: &str) -> Vec<Found> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(line, heading)| Found {
            line,
            text: heading.trim_start_matches('#').trim().to_owned(),
        })
        .collect()
}

/// What a link to a heading is made of, after `#`.
pub fn anchor(heading: &str) -> String {
    let keep = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: Vec<Found>) -> Vec<String> {
        found.into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn links_outside_of_code() {
        let text = "[a](b.md) and [`c`](d.md#e), `[no](no.md)`\n```text\n[no](no.md)\n```\n[f](g)";
        assert_eq!(texts(links(text)), ["b.md", "d.md#e", "g"]);
        assert_eq!(links(text)[2].line, 5);
    }

    #[test]
    fn links_around_code_are_told_once() {
        assert_eq!(texts(links("`a` [b](c) `d` [`e`](f)")), ["c", "f"]);
    }

    #[test]
    fn headings_and_their_anchors() {
        let text = "# One thing\n```sh\n# a comment\n```\n## The rule (algorithm 1)";
        let headings = texts(headings(text));
        assert_eq!(headings, ["One thing", "The rule (algorithm 1)"]);
        assert_eq!(anchor(&headings[1]), "the-rule-algorithm-1");
    }
}
