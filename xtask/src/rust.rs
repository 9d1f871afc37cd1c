//! As much of Rust as the checks need: where code, comments and strings are, and which words of
//! code are tests.

/// What a part of a source file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier, a keyword or a number.
    Word,
    /// A mark: one character, or `::`.
    Mark,
    /// A comment, with its marks.
    Comment,
    /// A string literal, with its quotes.
    Text,
}

/// A part of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'t> {
    /// What it is.
    pub kind: Kind,
    /// The part.
    pub text: &'t str,
    /// The line it begins on, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// True for this mark or word of code.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// All parts of a source file but white space, in order.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let (kind, length) = if first.is_whitespace() {
            (None, first.len_utf8())
        } else {
            let (kind, length) = token(rest, first);
            (Some(kind), length)
        };
        let text = &rest[..length];
        if let Some(kind) = kind {
            found.push(Token { kind, text, line });
        }
        line += text.matches('\n').count();
        at += length;
    }
    found
}

/// The kind and length of the token that `rest` begins with.
fn token(rest: &str, first: char) -> (Kind, usize) {
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if let Some(length) = string(rest) {
        return (Kind::Text, length);
    }
    if is_word(first) {
        return (Kind::Word, rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()));
    }
    match first {
        '\'' => (Kind::Mark, quote(rest)),
        ':' if rest.starts_with("::") => (Kind::Mark, 2),
        _ => (Kind::Mark, first.len_utf8()),
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    for (at, _) in rest.match_indices(['/', '*']) {
        if rest[at..].starts_with("/*") {
            depth += 1;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            if depth == 0 {
                return at + 2;
            }
        }
    }
    rest.len()
}

/// The length of the string literal that `rest` begins with, of any form.
fn string(rest: &str) -> Option<usize> {
    let begins =
        |prefix: &&str| rest.strip_prefix(*prefix).is_some_and(|rest| rest.starts_with(['"', '#']));
    let prefix = ["", "b", "c", "r", "br", "cr"].into_iter().find(begins)?.len();
    let is_raw = rest[..prefix].contains('r');
    let hashes = rest[prefix..].len() - rest[prefix..].trim_start_matches('#').len();
    let quote = prefix + hashes;
    if !rest[quote..].starts_with('"') || (hashes > 0 && !is_raw) {
        return None;
    }
    let body = &rest[quote + 1..];
    if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(quote + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()));
    }
    let mut escaped = false;
    for (at, letter) in body.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(quote + 1 + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// The length of a character literal; 1 for the mark of a lifetime.
fn quote(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            // The escaped character itself may be a quote.
            let end = letters.skip(1).find(|(_, letter)| *letter == '\'');
            end.map_or(1, |(at, _)| at + 1)
        }
        Some(_) => match letters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// The words and marks of a source file that are not tests: without items behind `#[cfg(test)]`
/// and `#[test]`.
pub fn product_code(source: &str) -> Vec<Token<'_>> {
    let code = tokens(source).into_iter();
    let code: Vec<Token> =
        code.filter(|token| matches!(token.kind, Kind::Word | Kind::Mark)).collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if let Some(length) = test_attribute(&code[at..]) {
            at = item_end(&code, at + length);
        } else {
            kept.push(code[at]);
            at += 1;
        }
    }
    kept
}

/// The length of `#[test]` or `#[cfg(test)]`, if `code` begins with it.
fn test_attribute(code: &[Token]) -> Option<usize> {
    const FORMS: [&[&str]; 2] =
        [&["#", "[", "test", "]"], &["#", "[", "cfg", "(", "test", ")", "]"]];
    let begins = |form: &&&[&str]| {
        form.len() <= code.len() && form.iter().zip(code).all(|(text, token)| token.is(text))
    };
    FORMS.iter().find(begins).map(|form| form.len())
}

/// The place behind the item that begins at `at`: behind its `;`, or its outermost braces.
fn item_end(code: &[Token], mut at: usize) -> usize {
    let mut depth = 0_i32;
    while let Some(token) = code.get(at) {
        at += 1;
        if token.is("(") || token.is("[") || token.is("{") {
            depth += 1;
        } else if token.is(")") || token.is("]") || token.is("}") {
            depth -= 1;
            if depth == 0 && token.is("}") {
                break;
            }
        } else if depth == 0 && token.is(";") {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str, kind: Kind) -> Vec<&str> {
        tokens(source).iter().filter(|token| token.kind == kind).map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_strings_are_parted_from_code() {
        let source = "//! head\nuse a::b; /* x /* y */ z */ let s = \"a \\\" // no\"; // end\n";
        assert_eq!(texts(source, Kind::Comment), ["//! head", "/* x /* y */ z */", "// end"]);
        assert_eq!(texts(source, Kind::Text), ["\"a \\\" // no\""]);
        assert_eq!(texts(source, Kind::Word), ["use", "a", "b", "let", "s"]);
        let raw = "r#\"a \"b\" c\"# + b\"d\" + r\"\\\" + c'x'";
        assert_eq!(texts(raw, Kind::Text), ["r#\"a \"b\" c\"#", "b\"d\"", "r\"\\\""]);
    }

    #[test]
    fn characters_are_no_strings_and_lifetimes_no_characters() {
        let source = "fn f<'a>(x: &'a str) { x.find(['\"', '\\'', '\\\\', 'é']) } // end";
        assert_eq!(texts(source, Kind::Comment), ["// end"]);
        assert!(texts(source, Kind::Text).is_empty());
        assert_eq!(texts("let r#type = 1; #[x]", Kind::Text), [""; 0]);
    }

    #[test]
    fn lines_are_counted() {
        let found = tokens("a\n\"b\nc\"\n/*\n*/ d");
        let lines: Vec<usize> = found.iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 4, 5]);
    }

    #[test]
    fn tests_are_no_product_code() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c(); } }\n#[cfg(test)]\nmod d;\n\
                      #[test]\n#[should_panic]\nfn e() {}\nfn f() {}";
        let words: Vec<&str> = product_code(source)
            .iter()
            .filter(|token| token.kind == Kind::Word)
            .map(|token| token.text)
            .collect();
        assert_eq!(words, ["fn", "a", "fn", "f"]);
    }
}
