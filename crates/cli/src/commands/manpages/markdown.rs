//! Makes a manual page of one of our documents: headings, paragraphs, lists, tables and blocks of
//! code, which is all of Markdown that our documents use.

use super::{escaped, part_escaped};

/// The document without its title. Links become their words.
pub fn to_roff(document: &str) -> String {
    let mut page = String::new();
    let mut in_code = false;
    let mut rows = 0;
    for line in document.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
            let begin = if follows_heading(&page) { ".RS 4\n.nf\n" } else { ".PP\n.RS 4\n.nf\n" };
            page.push_str(if in_code { begin } else { ".fi\n.RE\n" });
            continue;
        }
        if in_code {
            // An empty line is text here: in front of it roff needs a character.
            page.push_str(if line.is_empty() { "\\&" } else { "" });
            page.push_str(&format!("{}\n", escaped(line)));
            continue;
        }
        rows = if line.starts_with('|') { rows + 1 } else { 0 };
        let block = match line {
            "" => String::new(),
            _ if line.starts_with("# ") => String::new(),
            _ if line.starts_with("## ") => {
                format!(".SH \"{}\"\n", inline(&line[3..]).to_uppercase())
            }
            _ if line.starts_with('#') => {
                format!(".SS \"{}\"\n", inline(line.trim_start_matches(['#', ' '])))
            }
            _ if line.starts_with("- ") => format!(".IP \\(bu 2\n{}\n", inline(&line[2..])),
            // The head of a table and the line below it.
            _ if rows == 1 || rows == 2 => String::new(),
            _ if rows > 2 => row(line),
            // After a heading a paragraph begins by itself.
            _ if follows_heading(&page) => format!("{}\n", inline(line)),
            _ => format!(".PP\n{}\n", inline(line)),
        };
        page.push_str(&block);
    }
    page
}

/// Whether the page ends with a heading, as it does at its beginning.
fn follows_heading(page: &str) -> bool {
    page.lines().last().is_none_or(|line| line.starts_with(".SH ") || line.starts_with(".SS "))
}

fn row(line: &str) -> String {
    let cells: Vec<String> =
        line.trim_matches('|').split('|').map(|cell| inline(cell.trim())).collect();
    match cells.split_first() {
        Some((first, rest)) => format!(".TP\n{first}\n{}\n", rest.join("; ")),
        None => String::new(),
    }
}

/// Text with what is in backquotes, and what is strong, in bold.
fn inline(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('[') {
        let link = rest[start + 1..].split_once("](").and_then(|(word, after)| {
            let (_, after) = after.split_once(')')?;
            (!word.contains(['[', '`'])).then_some((word, after))
        });
        let Some((word, after)) = link else {
            words.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        words.push_str(&rest[..start]);
        words.push_str(word);
        rest = after;
    }
    words.push_str(rest);
    let mut bold = false;
    let parts = words.replace("**", "`");
    let parts = parts.split('`').enumerate().map(|(number, part)| {
        let was = std::mem::replace(&mut bold, number % 2 == 1);
        let font = match (was, bold) {
            (false, true) => "\\fB",
            (true, false) => "\\fR",
            _ => "",
        };
        format!("{font}{}", part_escaped(part))
    });
    let text: String = parts.collect();
    let end = if bold { "\\fR" } else { "" };
    let guard = if text.starts_with('.') { "\\&" } else { "" };
    format!("{guard}{text}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_becomes_a_page() {
        let document = "# Title\n\nSee [places](places.md), a list `[a]`.\n\n## The file\n\n- `-x`: **now**\n\n\
                        ```toml\n[default]\n\n.exclude = 'a\\b'\n```\n\n| name | meaning |\n|---|---|\n| `a` | b |\n";
        let page = "See places, a list \\fB[a]\\fR.\n.SH \"THE FILE\"\n.IP \\(bu 2\n\\fB\\-x\\fR: \\fBnow\\fR\n\
                    .PP\n.RS 4\n.nf\n[default]\n\\&\n\\&.exclude = \\(aqa\\eb\\(aq\n.fi\n.RE\n.TP\n\\fBa\\fR\nb\n";
        assert_eq!(to_roff(document), page);
    }
}
