//! What a chapter does: its blocks of commands, of files, and of output, in their order.

/// A fenced block, or a hidden one: a comment of HTML that begins with `test`.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its first line in the document, from 1.
    pub line: usize,
    pub kind: Kind,
    /// Not shown to readers.
    pub is_hidden: bool,
    pub text: String,
}

impl Block {
    fn begin(line: usize, kind: Kind, is_hidden: bool) -> Self {
        Self { line, kind, is_hidden, text: String::new() }
    }
}

/// What is done with a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// `sh`: commands, which end with this code.
    Commands { code: u8 },
    /// `FORMAT,file=PATH`: what the reader writes into a file.
    File { path: String },
    /// `text` directly behind commands: what they print.
    Output,
    /// Anything else, for the reader alone.
    Shown,
}

/// The blocks of a document.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(&str, Block)> = None;
    // Whether at most a line such as "It prints:" is between the last commands and here.
    let mut follows = false;
    for (number, line) in (1..).zip(document.lines()) {
        if let Some((end, mut block)) = open.take() {
            if line.trim_end() == end {
                follows = matches!(block.kind, Kind::Commands { .. });
                blocks.push(block);
            } else {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some((end, block));
            }
        } else if let Some(info) = line.strip_prefix("```") {
            let block = Block::begin(number + 1, kind(info, follows), false);
            open = Some(("```", block));
        } else if line == "<!-- test" {
            let kind = Kind::Commands { code: 0 };
            open = Some(("-->", Block::begin(number + 1, kind, true)));
        } else if !line.trim().is_empty() {
            assert!(
                !line.trim_start().starts_with("```"),
                "line {number}: an indented block is not run"
            );
            follows &= line.ends_with(':');
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

fn kind(info: &str, follows: bool) -> Kind {
    let (format, more) = info.split_once(',').unwrap_or((info, ""));
    match (format, more.split_once('=')) {
        ("sh", None) if more.is_empty() => Kind::Commands { code: 0 },
        ("sh", Some(("exit", code))) => {
            Kind::Commands { code: code.parse().expect("an exit code") }
        }
        (_, Some(("file", path))) => Kind::File { path: path.to_owned() },
        ("text", None) if follows => Kind::Output,
        (_, None) if more.is_empty() && format != "bash" => Kind::Shown,
        _ => panic!("`{info}` says nothing that the test knows"),
    }
}

/// The first line of what is shown that the output lacks: the lines of `shown` must be in it in
/// their order, as far as they do not depend on the day and the machine.
pub fn missing<'a>(shown: &'a str, output: &str) -> Option<&'a str> {
    let mut printed = output.lines().map(gist);
    let mut lines = shown.lines().filter(|line| !["", "…"].contains(&line.trim()));
    lines.find(|line| !printed.any(|other| other == gist(line)))
}

/// A line without its numbers, units, ids and dates.
fn gist(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split([' ', '\t', ',', ';', '(', ')']).filter(|word| !word.is_empty()) {
        let is_id = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = is_id || word.starts_with(|first: char| first.is_ascii_digit());
        let behind_number = words.last() == Some(&"#");
        let unit = word.trim_end_matches("/s").trim_end_matches('.');
        match unit {
            _ if is_number && behind_number => {}
            _ if is_number => words.push("#"),
            "B" | "KiB" | "MiB" | "GiB" | "ms" | "s" | "min" | "%" if behind_number => {}
            // One file, two files.
            _ if behind_number => words.push(word.trim_end_matches('s')),
            _ => words.push(word),
        }
    }
    words.join(" ")
}

#[test]
fn blocks_are_found_with_their_lines() {
    let text = "a\n```sh\nls\n```\n\n```text\nb\n```\n<!-- test\nrm b\n-->\n```text\nc\n```\n\
                ```toml,file=~/c\nd = 1\n```\n```sh,exit=4\nls b\n```\n";
    let found: Vec<_> = blocks(text).into_iter().map(|b| (b.line, b.kind, b.text)).collect();
    let expected = [
        (3, Kind::Commands { code: 0 }, "ls\n"),
        (7, Kind::Output, "b\n"),
        (10, Kind::Commands { code: 0 }, "rm b\n"),
        (13, Kind::Output, "c\n"),
        (16, Kind::File { path: "~/c".to_owned() }, "d = 1\n"),
        (19, Kind::Commands { code: 4 }, "ls b\n"),
    ];
    let expected = expected.map(|(line, kind, text)| (line, kind, text.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn outputs_are_compared_without_what_changes() {
    let shown = "snapshot 613fa41e of /home/anna\n  3,214 files, 1.8 GiB in 6.1 s (302.1 MiB/s)\n";
    let output = "created\nsnapshot 00aa11bb of /home/anna\n  1 file, 3 B in 77 ms (38 B/s)\nend\n";
    assert_eq!(missing(shown, output), None);
    assert_eq!(missing(shown, "snapshot 00aa11bb of /home\n"), shown.lines().next());
    assert_eq!(missing("no damage was found", "damage was found"), Some("no damage was found"));
    assert_eq!(missing("b\na\n", "a\nb\n"), Some("a"));
}
