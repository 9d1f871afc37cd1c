//! What people see, and what programs read: lines, progress, problems.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use strongroom_base::units::{bytes_text, count_text, duration_text};
use strongroom_base::{Monitor, Problem, Progress, Severity};

/// How the program talks.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    json: bool,
    quiet: bool,
    verbose: u8,
}

/// Progress is told at most so often.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Programs are told at most so often.
const TELL_JSON_EVERY: Duration = Duration::from_millis(500);

impl Terminal {
    /// As the command line says.
    pub fn new(json: bool, quiet: bool, verbose: u8) -> Self {
        Self { json, quiet, verbose }
    }

    /// True where progress is shown to a person.
    pub fn shows_progress(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// True where details are wanted.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// A line of the result; nothing for programs and with `--quiet`.
    pub fn line(&self, text: impl AsRef<str>) -> std::io::Result<()> {
        if self.json || self.quiet {
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
        if !self.json {
            return Ok(());
        }
        self.result(value.to_string())
    }

    /// A note beside the result, for people.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            // Whoever closed the stream does not want to hear.
            let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
        }
    }

    /// A monitor for one verb, such as `backing up`.
    pub fn monitor(&self, verb: &'static str) -> TerminalMonitor {
        let bar = self.shows_progress().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.set_style(spinner());
            bar.enable_steady_tick(TELL_EVERY);
            bar
        });
        let state = MonitorState { told: None, has_bar: false, what: String::new() };
        TerminalMonitor {
            terminal: *self,
            verb,
            bar,
            began: Instant::now(),
            state: Mutex::new(state),
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

/// Tells a person, or a program, how a verb gets on.
pub struct TerminalMonitor {
    terminal: Terminal,
    verb: &'static str,
    bar: Option<ProgressBar>,
    began: Instant,
    // A plain mutex: held for the formatting of a line, ten times a second.
    state: Mutex<MonitorState>,
}

struct MonitorState {
    told: Option<Instant>,
    has_bar: bool,
    what: String,
}

fn spinner() -> ProgressStyle {
    let style = ProgressStyle::with_template("{spinner} {msg}");
    style.expect("the template is a valid one")
}

fn bar_style() -> ProgressStyle {
    let style = ProgressStyle::with_template("[{bar:24}] {percent:>3}%  {msg}");
    style.expect("the template is a valid one").progress_chars("=> ")
}

impl TerminalMonitor {
    /// Takes the progress off the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// How long the verb has been at it.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A line above the progress.
    fn above(&self, text: &str) {
        let print = || {
            let _ = writeln!(std::io::stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn show(&self, bar: &ProgressBar, progress: &Progress, state: &mut MonitorState) {
        if let Some(total) = progress.bytes_total.filter(|total| *total > 0) {
            if !state.has_bar {
                bar.set_style(bar_style());
                state.has_bar = true;
            }
            bar.set_length(total);
            bar.set_position(progress.bytes.min(total));
        }
        bar.set_message(self.message(progress, &state.what));
    }

    fn message(&self, progress: &Progress, what: &str) -> String {
        let elapsed = self.elapsed();
        let rate = (progress.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        let mut text = format!(
            "{} {}  {} files  {}/s",
            self.verb,
            bytes_text(progress.bytes),
            count_text(progress.files),
            bytes_text(rate)
        );
        if progress.bytes_new > 0 {
            text.push_str(&format!("  new {}", bytes_text(progress.bytes_new)));
        }
        if let Some(left) = time_left(progress, elapsed) {
            text.push_str(&format!("  {} left", duration_text(left)));
        }
        if !what.is_empty() {
            text.push_str("  ");
            text.push_str(what);
        }
        let width = console_width();
        let room = if progress.bytes_total.is_some() {
            width.saturating_sub(35)
        } else {
            width.saturating_sub(4)
        };
        shorten(&text, room)
    }
}

/// Once a hundredth is done, the rest is thought to go as fast.
fn time_left(progress: &Progress, elapsed: Duration) -> Option<Duration> {
    let total = progress.bytes_total?;
    if progress.bytes * 100 < total || progress.bytes == 0 || elapsed < Duration::from_secs(1) {
        return None;
    }
    let rest = total.saturating_sub(progress.bytes) as f64 / progress.bytes as f64;
    Some(Duration::from_secs_f64(elapsed.as_secs_f64() * rest))
}

fn console_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr())
        .map_or(80, |size| usize::from(size.ws_col).max(40))
}

/// Cut in the middle of what is last, so that the name of a file stays readable.
fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let tail: String = text.chars().skip(length - width / 3).collect();
    let head: String = text.chars().take(width.saturating_sub(width / 3 + 1)).collect();
    format!("{head}…{tail}")
}

impl Monitor for TerminalMonitor {
    fn progress(&self, progress: &Progress) {
        let every = if self.terminal.json { TELL_JSON_EVERY } else { TELL_EVERY };
        if !self.terminal.json && self.bar.is_none() {
            return;
        }
        let mut state = self.lock();
        if state.told.is_some_and(|told| told.elapsed() < every) {
            return;
        }
        state.told = Some(Instant::now());
        match &self.bar {
            Some(bar) => self.show(bar, progress, &mut state),
            None => {
                let value = json!({
                    "event": "progress",
                    "seconds": self.elapsed().as_secs_f64(),
                    "files": progress.files,
                    "bytes": progress.bytes,
                    "bytes_new": progress.bytes_new,
                    "bytes_stored": progress.bytes_stored,
                    "files_total": progress.files_total,
                    "bytes_total": progress.bytes_total,
                    "file": state.what,
                });
                let _ = self.terminal.json(&value);
            }
        }
    }

    fn working_on(&self, what: &Path) {
        if self.bar.is_some() || self.terminal.json {
            let mut state = self.lock();
            state.what.clear();
            state.what.push_str(&printable(what));
        }
    }

    fn problem(&self, problem: Problem<'_>) {
        let severity = match problem.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Damage => "damage",
        };
        if self.terminal.json {
            let value = json!({
                "event": "problem",
                "severity": severity,
                "path": problem.path.map(|path| path.to_string_lossy()),
                "message": problem.message,
            });
            let _ = self.terminal.json(&value);
            return;
        }
        if self.terminal.quiet && problem.severity == Severity::Note {
            return;
        }
        match problem.path {
            Some(path) if !problem.message.contains(&*path.to_string_lossy()) => {
                self.above(&format!("{severity}: {}: {}", printable(path), problem.message));
            }
            _ => self.above(&format!("{severity}: {}", problem.message)),
        }
    }

    fn detail(&self, line: &str) {
        if self.terminal.json {
            if self.terminal.verbose > 0 {
                let _ = self.terminal.json(&json!({ "event": "detail", "message": line }));
            }
        } else if self.terminal.verbose > 0 {
            self.above(line);
        }
    }
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

    #[test]
    fn long_lines_keep_their_end() {
        assert_eq!(shorten("0123456789", 10), "0123456789");
        assert_eq!(shorten("0123456789ab", 9), "01234…9ab");
    }
}
