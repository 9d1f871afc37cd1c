//! Putting back what was chosen: where to, whether to replace what exists, and what came of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_base::Printable;
use strongroom_base::printable::printable_line;
use strongroom_base::units::{bytes_text, counted};
use strongroom_catalog::Snapshot;
use strongroom_engine::RestoreOutcome;

use super::prompt::draw_prompt;
use crate::canvas::{Canvas, Ink};
use crate::fit::{shortened, wrapped};
use crate::key::Key;
use crate::list::{Input, List};
use crate::message::{Look, Report, Request};
use crate::screen::{KeyHelp, Screen, Step};

/// A restore, from the question to its result.
pub struct RestoreScreen {
    snapshot: Arc<Snapshot>,
    /// The folder of the snapshot that names in the target are relative to.
    base: Vec<u8>,
    /// The paths that are restored; one empty path for all of it.
    chosen: Vec<Vec<u8>>,
    folder: Input,
    home: Option<PathBuf>,
    state: State,
}

enum State {
    /// The folder is typed.
    Asking,
    /// Some of it exists, and whether to replace that is asked.
    Confirming(Vec<PathBuf>),
    /// It was begun.
    Running,
    /// It is done.
    Done(Box<RestoreOutcome>, List<String>),
}

impl RestoreScreen {
    /// Of these paths of a snapshot.
    pub fn of(snapshot: Arc<Snapshot>, base: Vec<u8>, chosen: Vec<Vec<u8>>, look: &Look) -> Self {
        let (folder, home) = (Input::default(), look.home.clone());
        Self { snapshot, base, chosen, folder, home, state: State::Asking }
    }

    /// The folder that was typed.
    fn target(&self) -> Option<PathBuf> {
        let typed = self.folder.text.trim();
        if typed.is_empty() {
            return None;
        }
        match (typed.strip_prefix('~'), &self.home) {
            (Some(""), Some(home)) => Some(home.clone()),
            (Some(rest), Some(home)) if rest.starts_with('/') => Some(home.join(&rest[1..])),
            _ => Some(PathBuf::from(typed)),
        }
    }

    /// Where each path will be.
    fn places(&self, target: &Path) -> Vec<PathBuf> {
        let place = |path: &Vec<u8>| target.join(OsStr::from_bytes(self.relative(path)));
        self.chosen.iter().map(place).collect()
    }

    fn relative<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let rest = path.strip_prefix(&self.base[..]).unwrap_or(path);
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    fn begin(&mut self) -> Step {
        let Some(target) = self.target() else { return Step::Back };
        self.state = State::Running;
        let places = self.places(&target);
        let parts = self.chosen.iter().cloned().zip(places).collect();
        Step::Ask(Request::Restore { snapshot: self.snapshot.clone(), parts })
    }

    fn lines(&self) -> Vec<String> {
        let shown = |path: &[u8]| format!("/{}", Printable::bytes(path));
        let what = match &self.chosen[..] {
            [all] if all.is_empty() => "the whole snapshot, with its paths".to_owned(),
            [one] => shown(one),
            [first, ..] => {
                format!("{} entries, the first {}", self.chosen.len(), shown(first))
            }
            [] => String::new(),
        };
        vec![format!("Restore {what}"), format!("from snapshot {}", self.snapshot.id.short())]
    }
}

impl Screen for RestoreScreen {
    fn title(&self, look: &Look) -> String {
        let date = (look.date)(self.snapshot.started);
        format!("Restore from {} of {date}", self.snapshot.id.short())
    }

    fn keys(&self) -> &'static [KeyHelp] {
        match self.state {
            State::Asking => &[("Enter", "restore into this folder"), ("Esc", "cancel")],
            State::Confirming(_) => &[("y", "replace what differs"), ("n", "another folder")],
            State::Running | State::Done(..) => &[("Esc", "back")],
        }
    }

    fn is_typing(&self) -> bool {
        matches!(self.state, State::Asking | State::Confirming(_))
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        match &mut self.state {
            State::Asking => match key {
                Key::Esc => Step::Back,
                Key::Enter => match self.target() {
                    Some(target) => {
                        let mut places = self.places(&target);
                        if self.chosen == [Vec::new()] {
                            // A folder that is empty has nothing to lose.
                            places = vec![target.join("*")];
                        }
                        Step::Ask(Request::Existing(places))
                    }
                    None => Step::Say("type the name of a folder".to_owned()),
                },
                key => {
                    self.folder.key(key);
                    Step::Stay
                }
            },
            State::Confirming(_) => match key {
                Key::Char('y') => self.begin(),
                Key::Char('n') | Key::Esc => {
                    self.state = State::Asking;
                    Step::Stay
                }
                _ => Step::Stay,
            },
            // It was stopped or failed.
            State::Running => Step::Pass,
            State::Done(_, problems) => match problems.key(key) {
                true => Step::Stay,
                false if key == Key::Enter => Step::Back,
                false => Step::Pass,
            },
        }
    }

    fn report(&mut self, report: Report) -> Step {
        match report {
            Report::Existing(existing) if existing.is_empty() => self.begin(),
            Report::Existing(existing) => {
                self.state = State::Confirming(existing);
                Step::Stay
            }
            Report::Restored { outcome, problems } => {
                self.state = State::Done(Box::new(outcome), List::new(problems, Clone::clone));
                Step::Stay
            }
            _ => Step::Stay,
        }
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, _look: &Look) {
        let (width, height) = (canvas.width(), canvas.height());
        let room = width.saturating_sub(4);
        let mut y = 1;
        for text in self.lines() {
            canvas.text(2, y, room, &shortened(&text, room), Ink::Plain);
            y += 1;
        }
        y += 1;
        match &mut self.state {
            State::Asking => {
                draw_prompt(&mut canvas.lines(y, 1), 0, "  Into the folder:", &self.folder);
                let hint = "It is made if it does not exist.";
                canvas.text(2, y + 2, room, hint, Ink::Dim);
            }
            State::Confirming(existing) => {
                let question = match existing.len() {
                    1 => "This exists already:".to_owned(),
                    count => format!("{count} of these exist already:"),
                };
                canvas.text(2, y, room, &question, Ink::Marked);
                let most = height.saturating_sub(y + 5);
                for path in existing.iter().take(most) {
                    y += 1;
                    let path = Printable::path(path).to_string();
                    canvas.text(4, y, room, &shortened(&path, room.saturating_sub(2)), Ink::Plain);
                }
                let text = "Replace what differs there? y/n";
                canvas.text(2, y + 2, room, text, Ink::Head);
            }
            State::Running => {
                let into = format!("into {}", Printable::text(&self.folder.text));
                canvas.text(2, y, room, &shortened(&into, room), Ink::Plain);
            }
            State::Done(outcome, problems) => {
                for (text, ink) in result_lines(outcome) {
                    for line in wrapped(&text, room) {
                        canvas.text(2, y, room, &line, ink);
                        y += 1;
                    }
                }
                y += 1;
                if !problems.rows.is_empty() {
                    let mut below = canvas.lines(y, height.saturating_sub(y));
                    super::table::draw_list(&mut below, problems, "", |line, text, _| {
                        let room = line.width().saturating_sub(2);
                        line.text(2, 0, room, &shortened(text, room), Ink::Plain);
                    });
                }
            }
        }
    }
}

/// What came of it.
fn result_lines(outcome: &RestoreOutcome) -> Vec<(String, Ink)> {
    let withheld = outcome.withheld.len() as u64;
    let left_out = outcome.files_failed + withheld;
    let mut lines = vec![(
        format!(
            "Restored {}, {}; {} written, {} already up to date.",
            counted(outcome.files.saturating_sub(left_out), "file", "files"),
            bytes_text(outcome.bytes),
            bytes_text(outcome.bytes_written),
            counted(outcome.files_right, "file", "files"),
        ),
        Ink::Plain,
    )];
    if outcome.problems > 0 {
        let problems = counted(outcome.problems, "problem", "problems");
        lines.push((format!("{problems}:"), Ink::Bad));
    }
    if withheld > 0 {
        let files = counted(withheld, "file", "files");
        let text = format!(
            "{files} left out: the place keeps parts of them from this key, or in an archive"
        );
        lines.push((text, Ink::Bad));
    }
    for path in &outcome.damaged {
        let path = Printable::path(path).to_string();
        let text = format!("damaged in the repository: {}", printable_line(&path));
        lines.push((text, Ink::Bad));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_the_place_withheld_is_not_restored() {
        let outcome = RestoreOutcome {
            files: 3,
            withheld: vec![(PathBuf::from("/archived"), "it is in an archive".to_owned())],
            ..RestoreOutcome::default()
        };
        let lines = result_lines(&outcome);
        assert!(lines[0].0.starts_with("Restored 2 files"), "{lines:?}");
        assert!(lines[1].0.starts_with("1 file left out"), "{lines:?}");
    }
}
