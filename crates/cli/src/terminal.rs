//! What people see, and what programs read: lines, tables, names.

use std::io::{IsTerminal, Write};
use std::path::Path;

use serde_json::Value;

/// Where events for programs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// Where results go.
    StandardOutput,
    /// Beside what a command writes to standard output.
    StandardError,
}

impl Events {
    /// Tells a line.
    pub fn tell(self, line: &str) -> std::io::Result<()> {
        let line = format!("{line}\n");
        match self {
            Self::StandardOutput => std::io::stdout().write_all(line.as_bytes()),
            Self::StandardError => std::io::stderr().write_all(line.as_bytes()),
        }
    }
}

/// How the program talks.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// None where people are talked to.
    json: Option<Events>,
    quiet: bool,
    verbose: bool,
}

impl Terminal {
    /// As the command line says; with `json`, events for programs go there.
    pub fn new(json: Option<Events>, quiet: bool, verbose: bool) -> Self {
        Self { json, quiet, verbose }
    }

    /// True where events are told to a program.
    pub fn is_json(&self) -> bool {
        self.json.is_some()
    }

    /// True where progress is shown to a person.
    pub fn shows_progress(&self) -> bool {
        let can_move = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        self.json.is_none() && !self.quiet && can_move && std::io::stderr().is_terminal()
    }

    /// True where details are wanted.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// True where nothing but errors and warnings is.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// A line of the result; nothing for programs and with `--quiet`.
    pub fn line(&self, text: impl AsRef<str>) -> std::io::Result<()> {
        if self.json.is_some() || self.quiet {
            return Ok(());
        }
        self.result(text)
    }

    /// A line that was asked for, such as an entry of a list.
    pub fn result(&self, text: impl AsRef<str>) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_ref().as_bytes())?;
        out.write_all(b"\n")
    }

    /// An object for programs; nothing for people.
    pub fn json(&self, value: &Value) -> std::io::Result<()> {
        match self.json {
            Some(events) => events.tell(&value.to_string()),
            None => Ok(()),
        }
    }

    /// A note beside the result, for people.
    pub fn note(&self, text: impl AsRef<str>) {
        if self.json.is_none() && !self.quiet {
            // Whoever closed the stream does not want to hear.
            let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
        }
    }
}

/// A table with aligned columns, as lines. The first row is the head.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            if right.contains(&column) { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A path as a terminal can take it: control characters are spelt out.
pub fn printable(path: &Path) -> String {
    printable_bytes(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

/// As [`printable`], of bytes.
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let lines = table(&[row(["id", "size"]), row(["abc", "7 B"])], &[1]);
        assert_eq!(lines, ["id   size", "abc   7 B"]);
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(printable_bytes(b"a\x1b[2J\xffb\n"), "a\\u{1b}[2J\\xffb\\n");
    }
}
