//! Names and texts from outside, made safe for a terminal.
//!
//! A name may hold any byte, and every writer of a repository chooses the host, the labels and the
//! paths that others will read. An escape sequence in one of them must not reach a terminal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name, displayed so that it can be read in only one way: control characters, characters that
/// change the direction of a line, invalid UTF-8 and the backslash itself are written as escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printable<'n>(&'n [u8]);

impl<'n> Printable<'n> {
    /// Of any bytes.
    pub fn bytes(bytes: &'n [u8]) -> Self {
        Self(bytes)
    }

    /// Of a path.
    pub fn path(path: &'n Path) -> Self {
        Self(path.as_os_str().as_bytes())
    }

    /// Of a text.
    pub fn text(text: &'n str) -> Self {
        Self(text.as_bytes())
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    _ if is_unsafe(character) => write!(f, "{}", character.escape_default())?,
                    _ => f.write_char(character)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Whether a terminal may act on the character instead of showing it: control characters, line
/// separators, and what changes the direction of the text that follows.
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A line of text that may hold unescaped names: the last guard before a terminal. It leaves
/// backslashes alone, so a name that is already escaped passes unchanged.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_command_the_terminal() {
        for (name, shown) in [
            (&b"a\x1b[2J\xffb\n"[..], "a\\u{1b}[2J\\xffb\\n"),
            (b"\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            ("fdp.\u{202e}exe".as_bytes(), "fdp.\\u{202e}exe"),
            ("\u{2066}x\u{200f}".as_bytes(), "\\u{2066}x\\u{200f}"),
            ("größe".as_bytes(), "größe"),
        ] {
            assert_eq!(Printable::bytes(name).to_string(), shown);
        }
    }

    #[test]
    fn an_escape_and_its_spelling_differ() {
        assert_eq!(Printable::bytes(b"cr\r").to_string(), "cr\\r");
        assert_eq!(Printable::bytes(b"cr\\r").to_string(), "cr\\\\r");
    }

    #[test]
    fn a_line_is_guarded_once() {
        assert_eq!(printable_line("plain"), "plain");
        let name = Printable::text("a\n\u{202e}b\\").to_string();
        assert_eq!(printable_line(&name), name);
        assert_eq!(printable_line("host \x1b[31m\nmore"), "host \\u{1b}[31m\\nmore");
    }
}
