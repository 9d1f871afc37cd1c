//! The progress of a verb, for a person or a program.
//!
//! On a terminal, two lines are kept up to date: how much is done, and what is being worked on.
//! They are cleared at the end.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_base::{Monitor, Problem, Progress, Severity};

use crate::columns::{console_columns, shorten};
use crate::pager;
use crate::paint::Line;
use crate::terminal::{Terminal, name_json, path_json, printable_bytes, write_wrapped};

/// How often progress is shown to a person, at most.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// How often progress is reported to a program, at most.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// The rate is an average over about this time.
const RATE_SECONDS: f64 = 5.0;
/// Columns of the bar between its brackets.
const BAR_COLUMNS: usize = 16;

/// How the progress of a verb is worded.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// For all bytes, such as `stored`.
    pub done: &'static str,
    /// For new bytes and for the others, if they are counted apart.
    pub new_and_known: Option<(&'static str, &'static str)>,
    /// What is counted: one of it, and many.
    pub things: (&'static str, &'static str),
}

impl Words {
    /// Files are counted, and new bytes are not counted apart.
    pub const fn files(done: &'static str) -> Self {
        Self { done, new_and_known: None, things: ("file", "files") }
    }

    /// Objects of the repository are counted.
    pub const fn objects(done: &'static str) -> Self {
        Self { done, new_and_known: None, things: ("object", "objects") }
    }
}

/// Shows the progress and the problems of a verb.
pub struct TerminalMonitor {
    terminal: Terminal,
    words: Words,
    bar: Option<ProgressBar>,
    began: Instant,
    // A plain mutex: held for the formatting of two lines, ten times a second.
    state: Mutex<State>,
}

struct State {
    shown: Option<Instant>,
    rate: Rate,
    /// The path that is being worked on, not yet escaped.
    what: Vec<u8>,
}

/// Recent bytes per second.
struct Rate {
    at: Duration,
    bytes: u64,
    bytes_per_second: f64,
}

impl Rate {
    fn update(&mut self, now: Duration, bytes: u64) {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let recent = bytes.saturating_sub(self.bytes) as f64 / seconds;
        // The first measurement has nothing to be averaged with.
        let weight = 1.0 - (-seconds / now.as_secs_f64().min(RATE_SECONDS)).exp();
        let weight = if self.at.is_zero() { 1.0 } else { weight };
        self.bytes_per_second += weight * (recent - self.bytes_per_second);
        (self.at, self.bytes) = (now, bytes);
    }
}

impl Terminal {
    /// A monitor that shows the progress of a verb.
    pub fn monitor(&self, words: Words) -> TerminalMonitor {
        TerminalMonitor::new(*self, words, self.shows_progress())
    }

    /// A monitor that reports problems and details only.
    pub fn monitor_of_problems(&self) -> TerminalMonitor {
        TerminalMonitor::new(*self, Words::files(""), false)
    }

    /// Reports a problem to people or programs.
    pub fn problem(&self, severity: Severity, message: &str) {
        self.monitor_of_problems().problem(Problem { severity, path: None, message });
    }
}

impl TerminalMonitor {
    /// One that shows progress, or one that does not.
    pub fn new(terminal: Terminal, words: Words, shows_progress: bool) -> Self {
        let bar = shows_progress.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{spinner} {msg}");
            bar.set_style(style.expect("the template is a valid one"));
            bar.enable_steady_tick(SHOW_EVERY);
            bar
        });
        let rate = Rate { at: Duration::ZERO, bytes: 0, bytes_per_second: 0.0 };
        let state = Mutex::new(State { shown: None, rate, what: Vec::new() });
        Self { terminal, words, bar, began: Instant::now(), state }
    }

    /// Takes the progress off the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// How long the verb has been running.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A line of the result, above the progress; a pager takes its place.
    pub fn painted(&self, line: &Line) -> std::io::Result<()> {
        match &self.bar {
            Some(bar) if pager::is_used() => {
                bar.finish_and_clear();
                bar.set_draw_target(ProgressDrawTarget::hidden());
                self.terminal.painted(line)
            }
            Some(bar) => bar.suspend(|| self.terminal.painted(line)),
            None => self.terminal.painted(line),
        }
    }

    /// A line for the person, above the progress.
    fn above(&self, text: &str) {
        let print = || write_wrapped("", text);
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for TerminalMonitor {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Whether a message has this path in it, and not only as a part of a word.
fn names(message: &str, path: &str) -> bool {
    let ends = |side: &str, character: Option<char>| {
        side.is_empty() || character.is_some_and(|character| !character.is_alphanumeric())
    };
    message.match_indices(path).any(|(at, _)| {
        let (before, after) = (&message[..at], &message[at + path.len()..]);
        ends(before, before.chars().next_back()) && ends(after, after.chars().next())
    })
}

/// What the two lines show.
struct View<'v> {
    words: Words,
    progress: &'v Progress,
    bytes_per_second: f64,
    elapsed: Duration,
    what: &'v [u8],
}

impl View<'_> {
    /// Both lines, each at most `columns` wide.
    fn lines(&self, columns: usize) -> String {
        let first = self.first(columns);
        let second = self.second(columns);
        if second.is_empty() { first } else { format!("{first}\n  {second}") }
    }

    /// How much is done. If there is not enough room, the least important parts are left out.
    fn first(&self, columns: usize) -> String {
        let Progress { bytes, files, bytes_total, files_total, .. } = *self.progress;
        let (one, many) = self.words.things;
        let count = match files_total {
            Some(total) => format!("{} of {}", count_text(files), counted(total, one, many)),
            None => counted(files, one, many),
        };
        let count = (files > 0).then_some(count);
        let total = bytes_total.filter(|total| *total > 0);
        let (done, count) = match (total, count) {
            (Some(total), count) => {
                let percent = bytes.min(total) as f64 / total as f64 * 100.0;
                (format!("{percent:.0} % of {}", bytes_text(total)), count)
            }
            // Some verbs count no bytes.
            (None, Some(count)) if bytes == 0 => (count, None),
            (None, count) => (bytes_text(bytes), count),
        };
        let done = format!("{} {done}", self.words.done);
        let left = self.left().map(|left| format!("{} left", left_text(left)));
        let rate = (bytes > 0).then(|| format!("{}/s", bytes_text(self.bytes_per_second as u64)));
        let bar = total.map(|total| bar_text(bytes, total));
        // Most important first, each with its place in the line.
        let parts = [(1, Some(done)), (4, left), (3, rate), (2, count), (0, bar)];
        let mut shown: Vec<(usize, String)> = Vec::new();
        let mut used = 0;
        for (place, text) in parts {
            let Some(text) = text else { continue };
            let gap = if shown.is_empty() { 0 } else { 2 };
            let width = text.chars().count() + gap;
            if shown.is_empty() || used + width <= columns {
                used += width;
                shown.push((place, text));
            }
        }
        shown.sort_by_key(|(place, _)| *place);
        let texts: Vec<String> = shown.into_iter().map(|(_, text)| text).collect();
        shorten(&texts.join("  "), columns)
    }

    /// What is new, and which file is being worked on.
    fn second(&self, columns: usize) -> String {
        let Progress { bytes, bytes_new, .. } = *self.progress;
        let what = printable_bytes(self.what);
        let Some((new, known)) = self.words.new_and_known.filter(|_| bytes > 0) else {
            return shorten(&what, columns);
        };
        let known_bytes = bytes_text(bytes.saturating_sub(bytes_new));
        let text = format!("{} {new}, {known_bytes} {known}", bytes_text(bytes_new));
        let width = text.chars().count();
        match columns.checked_sub(width + 2) {
            Some(room) if room >= 16 && !what.is_empty() => {
                format!("{text}  {}", shorten(&what, room))
            }
            _ => shorten(&text, columns),
        }
    }

    /// The time that the rest takes at the present rate, once that has settled.
    fn left(&self) -> Option<Duration> {
        let Progress { bytes, bytes_total, .. } = *self.progress;
        let total = bytes_total?;
        let settled = bytes.saturating_mul(100) >= total && self.elapsed.as_secs() >= 1;
        if !settled || self.bytes_per_second < 1.0 {
            return None;
        }
        let seconds = total.saturating_sub(bytes) as f64 / self.bytes_per_second;
        Some(Duration::from_secs(seconds.min(1e9).ceil() as u64))
    }
}

/// Without tenths of seconds, which would only flicker.
fn left_text(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        _ => duration_text(left),
    }
}

fn bar_text(bytes: u64, total: u64) -> String {
    let done = bytes.min(total) as f64 / total as f64 * BAR_COLUMNS as f64;
    let done = "=".repeat(done as usize);
    let head = if done.len() < BAR_COLUMNS { ">" } else { "" };
    format!("[{:BAR_COLUMNS$}]", format!("{done}{head}"))
}

impl Monitor for TerminalMonitor {
    fn progress(&self, progress: &Progress) {
        let is_json = self.terminal.is_json();
        if !is_json && self.bar.is_none() {
            return;
        }
        let every = if is_json { REPORT_EVERY } else { SHOW_EVERY };
        let mut state = self.lock();
        if state.shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        state.shown = Some(Instant::now());
        let elapsed = self.elapsed();
        state.rate.update(elapsed, progress.bytes);
        if let Some(bar) = &self.bar {
            let view = View {
                words: self.words,
                progress,
                bytes_per_second: state.rate.bytes_per_second,
                elapsed,
                what: &state.what,
            };
            // The spinner takes two columns; the last column stays free, as some terminals wrap.
            bar.set_message(view.lines(console_columns().saturating_sub(3)));
            return;
        }
        let value = json!({
            "event": "progress",
            "seconds": elapsed.as_secs_f64(),
            "files": progress.files,
            "bytes": progress.bytes,
            "bytes_new": progress.bytes_new,
            "bytes_stored": progress.bytes_stored,
            "files_total": progress.files_total,
            "bytes_total": progress.bytes_total,
            "path": name_json(&state.what),
        });
        // A closed stream is noticed when the result is written.
        let _ = self.terminal.json(&value);
    }

    fn working_on(&self, what: &Path) {
        if self.bar.is_some() || self.terminal.is_json() {
            let mut state = self.lock();
            state.what.clear();
            state.what.extend_from_slice(what.as_os_str().as_bytes());
        }
    }

    fn problem(&self, problem: Problem<'_>) {
        let severity = match problem.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Damage => "damage",
        };
        if self.terminal.is_json() {
            let value = json!({
                "event": "problem",
                "severity": severity,
                "path": problem.path.map(path_json),
                "message": problem.message,
            });
            let _ = self.terminal.json(&value);
            return;
        }
        if self.terminal.is_quiet() && problem.severity == Severity::Note {
            return;
        }
        let message = problem.message;
        match problem.path {
            Some(path) if !names(message, &path.to_string_lossy()) => {
                let path = printable_bytes(path.as_os_str().as_bytes());
                self.above(&format!("{severity}: {path}: {message}"));
            }
            _ => self.above(&format!("{severity}: {message}")),
        }
    }

    fn detail(&self, line: &str) {
        if !self.terminal.is_verbose() {
            return;
        }
        if self.terminal.is_json() {
            let _ = self.terminal.json(&json!({ "event": "detail", "message": line }));
        } else {
            self.above(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(columns: usize, progress: &Progress) -> String {
        let words = Words { new_and_known: Some(("new", "known")), ..Words::files("stored") };
        lines_in(words, columns, progress)
    }

    fn lines_in(words: Words, columns: usize, progress: &Progress) -> String {
        let view = View {
            words,
            progress,
            bytes_per_second: 100.0 * 1024.0 * 1024.0,
            elapsed: Duration::from_secs(10),
            what: b"/usr/share/doc/\x1b[2Jpackage/changelog.gz",
        };
        view.lines(columns)
    }

    #[test]
    fn the_least_important_part_is_left_out() {
        let progress = Progress {
            files: 12_345,
            bytes: 1 << 30,
            bytes_new: 300 << 20,
            bytes_stored: 100 << 20,
            files_total: Some(40_000),
            bytes_total: Some(4 << 30),
        };
        for (columns, text) in [
            (
                97,
                "[====>           ]  stored 25 % of 4.0 GiB  12,345 of 40,000 files  100.0 MiB/s  31 s left\n  \
                 300.0 MiB new, 724.0 MiB known  /usr/share/doc/\\u{1b}[2Jpackage/changelog.gz",
            ),
            (
                70,
                "stored 25 % of 4.0 GiB  12,345 of 40,000 files  100.0 MiB/s  31 s left\n  \
                 300.0 MiB new, 724.0 MiB known  /usr/share/d…b}[2Jpackage/changelog.gz",
            ),
            (
                50,
                "stored 25 % of 4.0 GiB  100.0 MiB/s  31 s left\n  300.0 MiB new, 724.0 MiB known  /usr/…changelog.gz",
            ),
            (30, "stored 25 % of 4.0 GiB\n  300.0 MiB new, 724.0 MiB known"),
            (17, "store… of 4.0 GiB\n  300.0…0 MiB known"),
        ] {
            assert_eq!(lines(columns, &progress), text, "{columns}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let progress = Progress { files: 3, bytes: 700, ..Progress::default() };
        let text = lines(80, &progress);
        assert!(text.starts_with("stored 700 B  3 files  100.0 MiB/s\n"), "{text}");
        assert!(lines(80, &Progress::default()).starts_with("stored 0 B\n"));
        let objects = Progress { files: 3, files_total: Some(12), ..Progress::default() };
        let text = lines_in(Words::objects("checked"), 80, &objects);
        assert!(text.starts_with("checked 3 of 12 objects\n"), "{text}");
    }

    #[test]
    fn a_path_is_named_if_it_is_no_part_of_a_word() {
        assert!(names("\"r\" does not exist", "r") && names("cannot read /etc/x: why", "/etc/x"));
        assert!(!names("it is the repository", "r") && !names("nothing", "/etc"));
    }

    #[test]
    fn the_rate_follows_what_happens() {
        let mut rate = Rate { at: Duration::ZERO, bytes: 0, bytes_per_second: 0.0 };
        for tick in 1..=100 {
            rate.update(Duration::from_millis(tick * 100), tick * 1000);
        }
        assert_eq!(rate.bytes_per_second.round(), 10_000.0);
        for tick in 101..=400 {
            rate.update(Duration::from_millis(tick * 100), 100_000);
        }
        assert!(rate.bytes_per_second < 100.0);
    }
}
