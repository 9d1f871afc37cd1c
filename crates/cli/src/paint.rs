//! Colours, and names as a person can paste them: only where the output is a terminal.

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;
use strongroom_base::Printable;
use strongroom_base::printable::{is_unsafe, printable_line};
use strongroom_catalog::{Entry, EntryKind};

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Also in a pipe.
    Always,
    /// Never.
    Never,
}

/// What the output is, found out once: a pager takes its place later.
#[derive(Debug, Clone, Copy)]
struct Facts {
    is_terminal: bool,
    output_colours: bool,
    error_colours: bool,
}

static FACTS: OnceLock<Facts> = OnceLock::new();

/// Decides about colours, before the first output.
pub fn choose(when: When) {
    let _ = FACTS.set(Facts::look(when));
}

fn facts() -> Facts {
    *FACTS.get_or_init(|| Facts::look(When::Auto))
}

impl Facts {
    fn look(when: When) -> Self {
        let has_any = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        let colours = |is_terminal: bool| match when {
            When::Auto => is_terminal && has_any && is_wanted,
            When::Always => true,
            When::Never => false,
        };
        Self {
            is_terminal,
            output_colours: colours(is_terminal),
            error_colours: colours(std::io::stderr().is_terminal()),
        }
    }
}

/// Whether what is printed has colours.
pub fn output_has_colours() -> bool {
    facts().output_colours
}

/// How something looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The name of a snapshot.
    Id,
    /// Something to look at.
    Warning,
    /// Damage, an error, what was removed.
    Bad,
    /// What is sound, and what was added.
    Good,
    /// As GNU `ls` has them.
    Directory,
    /// A symbolic link.
    Link,
    /// A file that can be run.
    Executable,
    /// A device, a socket, a pipe.
    Special,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Id | Self::Warning => "33",
            Self::Bad => "1;31",
            Self::Good => "32",
            Self::Directory => "1;34",
            Self::Link => "1;36",
            Self::Executable => "1;32",
            Self::Special => "1;33",
        }
    }

    /// That of an entry, if its kind has one.
    pub fn of(entry: &Entry) -> Option<Self> {
        match entry.kind {
            EntryKind::Directory { .. } => Some(Self::Directory),
            EntryKind::Symlink { .. } => Some(Self::Link),
            EntryKind::File { .. } if entry.metadata.mode & 0o111 != 0 => Some(Self::Executable),
            EntryKind::File { .. } => None,
            _ => Some(Self::Special),
        }
    }

    fn paint(self, text: &str) -> String {
        format!("\x1b[{}m{text}\x1b[0m", self.code())
    }
}

/// A line of the result, part by part. What is put in is made safe first, so the only escape
/// sequences in it are its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line(String);

impl Line {
    /// One that begins with this.
    pub fn plain(text: &str) -> Self {
        Self::default().then(text)
    }

    /// More of it.
    pub fn then(mut self, text: &str) -> Self {
        self.0.push_str(&printable_line(text));
        self
    }

    /// More of it, in a style.
    pub fn styled(mut self, style: impl Into<Option<Style>>, text: &str) -> Self {
        match style.into().filter(|_| output_has_colours() && !text.is_empty()) {
            Some(style) => self.0.push_str(&style.paint(&printable_line(text))),
            None => self.0.push_str(&printable_line(text)),
        }
        self
    }

    /// And another one.
    pub fn and(mut self, line: &Self) -> Self {
        self.0.push_str(&line.0);
        self
    }

    /// All of it.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Paints the first word of a message to a person, if it says how grave that is.
pub fn paint_message(text: String) -> String {
    let heads = [("warning:", Style::Warning), ("damage:", Style::Bad), ("error:", Style::Bad)];
    let found = heads.into_iter().find(|(head, _)| text.starts_with(head));
    match found.filter(|_| facts().error_colours) {
        Some((head, style)) => format!("{}{}", style.paint(head), &text[head.len()..]),
        None => text,
    }
}

/// A name in the output: on a terminal as a shell takes it, else with escapes for what is no text.
pub fn name_text(name: &[u8]) -> String {
    if facts().is_terminal { quoted(name) } else { Printable::bytes(name).to_string() }
}

/// A name as a shell takes it, in quotes if it needs some, as GNU `ls` quotes it. A name with
/// characters on which a terminal acts, or with invalid UTF-8, is quoted as `$'…'`.
fn quoted(name: &[u8]) -> String {
    const PLAIN: &str = "/._-+:@%,=";
    match std::str::from_utf8(name) {
        Ok(text) if text.contains(is_unsafe) => {}
        Ok(text) => {
            let is_plain = |c: char| c.is_alphanumeric() || PLAIN.contains(c);
            return match text {
                "" => "''".to_owned(),
                _ if text.chars().all(is_plain) => text.to_owned(),
                _ if !text.contains('\'') => format!("'{text}'"),
                _ if !text.contains(['"', '$', '`', '\\', '!']) => format!("\"{text}\""),
                _ => format!("'{}'", text.replace('\'', "'\\''")),
            };
        }
        Err(_) => {}
    }
    let mut quoted = String::from("$'");
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\'' | '\\' => quoted.extend(['\\', character]),
                _ if is_unsafe(character) => {
                    let mut bytes = [0; 4];
                    character.encode_utf8(&mut bytes);
                    bytes[..character.len_utf8()].iter().for_each(|byte| octal(&mut quoted, *byte));
                }
                _ => quoted.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut quoted, *byte));
    }
    quoted.push('\'');
    quoted
}

fn octal(text: &mut String, byte: u8) {
    text.push_str(&format!("\\{byte:03o}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_quoted_name_for_what_it_is() {
        for (name, expected) in [
            (&b"/home/me/a-b.txt"[..], "/home/me/a-b.txt"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $1", "'it'\\''s $1'"),
            (b"a\nb'\\", "$'a\\nb\\'\\\\'"),
            (b"\x1b[2J", "$'\\033[2J'"),
            (b"\xff1", "$'\\3771'"),
            ("\u{202e}x".as_bytes(), "$'\\342\\200\\256x'"),
            ("größe".as_bytes(), "größe"),
            (b"~", "'~'"),
            (b"#x", "'#x'"),
        ] {
            assert_eq!(quoted(name), expected);
            let mut shell = std::process::Command::new("bash");
            let printed = shell.arg("-c").arg(format!("printf %s {expected}")).output().unwrap();
            assert_eq!(printed.stdout, name, "{expected}");
        }
    }

    #[test]
    fn a_line_has_no_escape_sequence_of_a_name() {
        let line = Line::plain("a\x1b[2Jb").styled(Style::Id, "c\x1bd");
        assert!(!line.text().contains('\x1b'), "{:?}", line.text());
        assert_eq!(Style::Id.paint("x"), "\x1b[33mx\x1b[0m");
    }
}
