//! What people see, and what programs read: lines, tables, names.
//!
//! Everything that is printed goes through here, and no line for a person has a control character in
//! it, even if its author forgot to escape a name: hosts, labels and paths were chosen by others.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use strongroom_base::Printable;
use strongroom_base::printable::{is_unsafe, printable_line};
use strongroom_base::units::count_text;

use crate::columns::{console_columns, wrapped};
use crate::pager;
use crate::paint::{Line, Style, paint_message};

/// Where events for programs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// With the results.
    StandardOutput,
    /// Apart from the content that a command writes to standard output.
    StandardError,
}

impl Events {
    /// Writes an event as one line.
    pub fn write(self, event: &Value) -> std::io::Result<()> {
        let line = format!("{}\n", json_line(event));
        match self {
            Self::StandardOutput => std::io::stdout().write_all(line.as_bytes()),
            Self::StandardError => std::io::stderr().write_all(line.as_bytes()),
        }
    }
}

/// Whether the event that ends a command was written.
static IS_SUMMED_UP: AtomicBool = AtomicBool::new(false);

/// JSON without characters on which a terminal could act. JSON itself only escapes the first 32.
fn json_line(event: &Value) -> String {
    let text = event.to_string();
    if !text.contains(is_unsafe) {
        return text;
    }
    let mut line = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        // All of these are below U+10000, and occur in strings only.
        if is_unsafe(character) {
            line.push_str(&format!("\\u{:04x}", character as u32));
        } else {
            line.push(character);
        }
    }
    line
}

/// Where output goes, and how much of it.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// None if the output is for people.
    json: Option<Events>,
    /// The command, such as `key add`.
    command: &'static str,
    began: Instant,
    quiet: bool,
    verbose: bool,
}

impl Terminal {
    /// As the command line says; with `json`, the output is events for programs.
    pub fn new(json: Option<Events>, command: &'static str, quiet: bool, verbose: bool) -> Self {
        Self { json, command, began: Instant::now(), quiet, verbose }
    }

    /// Where events for a program go, if the output is these.
    pub fn events(&self) -> Option<Events> {
        self.json
    }

    /// Whether the output is events for a program.
    pub fn is_json(&self) -> bool {
        self.json.is_some()
    }

    /// Whether progress is shown to a person.
    pub fn shows_progress(&self) -> bool {
        let can_move = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        self.json.is_none() && !self.quiet && can_move && std::io::stderr().is_terminal()
    }

    /// Whether details are wanted.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether only errors and warnings are wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// A line of the result; not printed for programs and with `--quiet`.
    pub fn line(&self, text: impl AsRef<str>) -> std::io::Result<()> {
        if self.json.is_some() || self.quiet {
            return Ok(());
        }
        self.result(text)
    }

    /// A line that was asked for, such as an entry of a list. Programs get it as an event instead.
    pub fn result(&self, text: impl AsRef<str>) -> std::io::Result<()> {
        match self.json {
            Some(_) => Ok(()),
            None => write_out(&printable_line(text.as_ref())),
        }
    }

    /// A line for people for which there is no event of its own: programs get it as it is.
    pub fn text(&self, text: impl AsRef<str>) -> std::io::Result<()> {
        match self.json {
            Some(_) => self.json(&json!({ "event": "text", "text": text.as_ref() })),
            None => self.result(text),
        }
    }

    /// Text of several lines that holds nothing from a repository, such as a script.
    pub fn raw(&self, text: &str) -> std::io::Result<()> {
        match self.json {
            Some(_) => self.json(&json!({ "event": "text", "text": text })),
            None => write_out(text),
        }
    }

    /// As [`Self::line`], of text that holds nothing from a repository, and perhaps colours.
    pub fn safe_line(&self, text: &str) -> std::io::Result<()> {
        if self.json.is_some() || self.quiet {
            return Ok(());
        }
        write_out(text)
    }

    /// As [`Self::result`], of parts with styles.
    pub fn painted(&self, line: &Line) -> std::io::Result<()> {
        match self.json {
            Some(_) => Ok(()),
            None => write_out(line.text()),
        }
    }

    /// As [`Self::line`], in a style.
    pub fn styled_line(&self, style: Style, text: &str) -> std::io::Result<()> {
        self.safe_line(Line::default().styled(style, text).text())
    }

    /// An event for programs; nothing for people. A summary or plan also says of which command it
    /// is, and a summary how long that took.
    pub fn json(&self, event: &Value) -> std::io::Result<()> {
        let Some(events) = self.json else { return Ok(()) };
        let mut event = event.clone();
        debug_assert!(
            !IS_SUMMED_UP.load(Ordering::Relaxed) || event["event"] == "summary",
            "the last line is the summary, not {event}"
        );
        if let Value::Object(fields) = &mut event
            && fields.get("event").is_some_and(|kind| kind == "summary" || kind == "plan")
        {
            fields.insert("command".to_owned(), json!(self.command));
            if fields["event"] == "summary" {
                IS_SUMMED_UP.store(true, Ordering::Relaxed);
                let seconds = || json!(self.began.elapsed().as_secs_f64());
                fields.entry("seconds").or_insert_with(seconds);
            }
        }
        spell_names(&mut event);
        events.write(&event)
    }

    /// Ends the events of a command that has nothing to sum up.
    pub fn end(&self) -> std::io::Result<()> {
        match IS_SUMMED_UP.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.json(&json!({ "event": "summary" })),
        }
    }

    /// A note beside the result, for people.
    pub fn note(&self, text: impl AsRef<str>) {
        if self.json.is_none() && !self.quiet {
            write_wrapped("", text.as_ref());
        }
    }
}

fn write_out(text: &str) -> std::io::Result<()> {
    pager::begin();
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")
}

/// No field of an event has this name, so it marks a name that is not UTF-8.
const NOT_UTF8: &str = "\0";

/// A path or another name, for a field of an event or a list in it.
///
/// One that is not UTF-8 is written with replacement characters, and [`Terminal::json`] puts its
/// bytes beside it: next to `path`, in `path_hex`.
pub fn name_json(name: &[u8]) -> Value {
    match std::str::from_utf8(name) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ NOT_UTF8: [String::from_utf8_lossy(name), hex(name)] }),
    }
}

/// As [`name_json`], of a path.
pub fn path_json(path: &Path) -> Value {
    name_json(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Splits the names that are not UTF-8 into their two fields.
fn spell_names(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(spell_names),
        Value::Object(fields) => {
            let mut found = Vec::new();
            for (field, value) in fields.iter_mut() {
                let is_list_of_names =
                    value.as_array().is_some_and(|names| names.iter().any(is_marked));
                if is_marked(value) {
                    let (text, bytes) = spelled(value);
                    found.push((format!("{field}_hex"), bytes));
                    *value = text;
                } else if is_list_of_names {
                    let names = value.as_array().into_iter().flatten().map(spelled);
                    let (texts, bytes): (Vec<Value>, Vec<Value>) = names.unzip();
                    found.push((format!("{field}_hex"), Value::from(bytes)));
                    *value = Value::from(texts);
                } else {
                    spell_names(value);
                }
            }
            fields.extend(found);
        }
        _ => {}
    }
}

fn is_marked(value: &Value) -> bool {
    value.get(NOT_UTF8).is_some()
}

/// A name as text, and its bytes.
fn spelled(name: &Value) -> (Value, Value) {
    match name.get(NOT_UTF8) {
        Some(both) => (both[0].clone(), both[1].clone()),
        None => (name.clone(), Value::from(hex(name.as_str().unwrap_or_default().as_bytes()))),
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

/// A path as a terminal can take it.
pub fn printable(path: &Path) -> String {
    Printable::path(path).to_string()
}

/// As [`printable`], of bytes.
pub fn printable_bytes(bytes: &[u8]) -> String {
    Printable::bytes(bytes).to_string()
}

/// The paths of a snapshot in a line: all of a few, and how many more there are.
pub fn printable_paths<'p>(
    paths: impl IntoIterator<Item = &'p Vec<u8>, IntoIter: ExactSizeIterator>,
    between: &str,
) -> String {
    const SHOWN_MAX: usize = 8;
    let mut paths = paths.into_iter();
    let count = paths.len();
    let shown: Vec<String> =
        paths.by_ref().take(SHOWN_MAX).map(|path| printable_bytes(path)).collect();
    let more = count.saturating_sub(SHOWN_MAX);
    let more = (more > 0).then(|| format!("and {} more", count_text(more as u64)));
    shown.into_iter().chain(more).collect::<Vec<_>>().join(between)
}

/// As [`printable`], of a text.
pub fn printable_text(text: &str) -> String {
    Printable::text(text).to_string()
}

/// Writes a message to standard error, broken between words if that is a terminal.
pub fn write_wrapped(head: &str, message: &str) {
    let columns = match std::io::stderr().is_terminal() {
        true => console_columns(),
        false => usize::MAX,
    };
    let text = paint_message(wrapped(head, &printable_line(message), columns));
    // If that stream is closed, there is nowhere left to report to.
    let _ = std::io::stderr().write_all(text.as_bytes());
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
    fn few_paths_are_shown_and_many_are_counted() {
        let paths = |count: u8| (0..count).map(|n| vec![b'a' + n]).collect::<Vec<_>>();
        assert_eq!(printable_paths(&paths(2), ", "), "a, b");
        assert_eq!(printable_paths(&paths(10), " "), "a b c d e f g h and 2 more");
    }

    #[test]
    fn json_is_safe_on_a_terminal_and_means_the_same() {
        let event = json!({ "host": "a\u{9b}31m\u{202e}\x1b\\" });
        let line = json_line(&event);
        assert!(!line.contains(is_unsafe), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), event);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_beside_their_name() {
        let mut event = json!({
            "path": name_json(b"a\xff"),
            "paths": [name_json(b"b"), name_json(b"\xfe")],
            "inner": [{ "path": name_json("\u{e4}".as_bytes()) }, { "path": name_json(b"\xfd") }],
        });
        spell_names(&mut event);
        let expected = json!({
            "path": "a\u{fffd}", "path_hex": "61ff",
            "paths": ["b", "\u{fffd}"], "paths_hex": ["62", "fe"],
            "inner": [{ "path": "\u{e4}" }, { "path": "\u{fffd}", "path_hex": "fd" }],
        });
        assert_eq!(event, expected);
    }
}
