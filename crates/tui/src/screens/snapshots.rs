//! The list of snapshots.

use std::sync::Arc;

use strongroom_base::Printable;
use strongroom_base::units::{bytes_text, counted};
use strongroom_catalog::Snapshot;

use super::changes::ChangesScreen;
use super::files::FilesScreen;
use super::found::FoundScreen;
use super::prompt::draw_prompt;
use super::restore::RestoreScreen;
use super::table::{DETAIL_LINES, draw_list};
use super::watch::WatchScreen;
use crate::canvas::{Canvas, Ink};
use crate::fit::shortened;
use crate::key::Key;
use crate::list::{Input, List};
use crate::message::{Look, Report, Request, SnapshotRow};
use crate::screen::{KeyHelp, Screen, Step};

/// All snapshots, the newest first.
#[derive(Default)]
pub struct SnapshotsScreen {
    list: Option<List<SnapshotRow>>,
    notes: Vec<String>,
    /// The name that is to be found, while it is typed.
    wanted: Option<Input>,
}

impl SnapshotsScreen {
    fn current(&self) -> Option<Arc<Snapshot>> {
        self.list.as_ref()?.current().map(|row| row.snapshot.clone())
    }

    /// Compares the two marked ones, or the marked one with that under the cursor.
    fn compare(&mut self) -> Step {
        let Some(list) = &mut self.list else { return Step::Stay };
        let Some(place) = list.place() else { return Step::Stay };
        let mut two = list.marks.clone();
        if two.len() < 2 {
            two.insert(place);
        }
        let two: Vec<usize> = two.into_iter().collect();
        match two[..] {
            // The list has the newest first.
            [newer, older] => {
                list.marks.clear();
                let of = |place: usize| list.rows[place].snapshot.clone();
                let (before, after) = (of(older), of(newer));
                let screen = ChangesScreen::of(before.clone(), after.clone());
                Step::OpenAsking(Box::new(screen), Request::Compare { before, after })
            }
            [_] => {
                list.marks.insert(place);
                Step::Say("marked: go to another snapshot and press d again".to_owned())
            }
            _ => Step::Say("mark two snapshots at most to compare them".to_owned()),
        }
    }

    fn key_of_name(&mut self, key: Key) -> Step {
        let Some(wanted) = &mut self.wanted else { return Step::Stay };
        match key {
            Key::Esc => self.wanted = None,
            Key::Enter => {
                let pattern = std::mem::take(&mut wanted.text);
                self.wanted = None;
                if !pattern.is_empty() {
                    let screen = FoundScreen::of(pattern.clone());
                    return Step::OpenAsking(Box::new(screen), Request::Find { pattern });
                }
            }
            key => {
                wanted.key(key);
            }
        }
        Step::Stay
    }
}

impl Screen for SnapshotsScreen {
    fn title(&self, look: &Look) -> String {
        let place = Printable::text(&look.place);
        match &self.list {
            Some(list) => {
                let count = counted(list.rows.len() as u64, "snapshot", "snapshots");
                format!("Strongroom  {count} in {place}")
            }
            None => format!("Strongroom  {place}"),
        }
    }

    fn keys(&self) -> &'static [KeyHelp] {
        if self.wanted.is_some() {
            return &[("Enter", "search all snapshots"), ("Esc", "cancel")];
        }
        if self.is_typing() {
            return &[("Enter", "keep the filter"), ("Esc", "show all")];
        }
        &[
            ("Enter", "open"),
            ("d", "compare"),
            ("r", "restore"),
            ("f", "find"),
            ("/", "filter"),
            ("w", "watch"),
            ("Space", "mark"),
            ("R", "reload"),
        ]
    }

    fn is_typing(&self) -> bool {
        self.wanted.is_some() || self.list.as_ref().is_some_and(|list| list.is_typing)
    }

    fn key(&mut self, key: Key, look: &Look) -> Step {
        if self.wanted.is_some() {
            return self.key_of_name(key);
        }
        if self.list.as_mut().is_some_and(|list| list.key(key)) {
            return Step::Stay;
        }
        match key {
            Key::Char('R') => Step::Ask(Request::Snapshots),
            Key::Char('w') => Step::OpenAsking(Box::<WatchScreen>::default(), Request::Sessions),
            Key::Char('f') => {
                self.wanted = Some(Input::default());
                Step::Stay
            }
            Key::Char('d') => self.compare(),
            Key::Char(' ') => {
                if let Some(list) = &mut self.list {
                    list.toggle_mark();
                }
                Step::Stay
            }
            Key::Char('r') => match self.current() {
                Some(snapshot) => {
                    let parts = vec![Vec::new()];
                    Step::Open(Box::new(RestoreScreen::of(snapshot, Vec::new(), parts, look)))
                }
                None => Step::Stay,
            },
            Key::Enter | Key::Right | Key::Char('l') => match self.current() {
                Some(snapshot) => {
                    let screen = FilesScreen::of_sources(snapshot);
                    let request = screen.request();
                    Step::OpenAsking(Box::new(screen), request)
                }
                None => Step::Stay,
            },
            _ => Step::Pass,
        }
    }

    fn report(&mut self, report: Report) -> Step {
        if let Report::Snapshots { rows, notes } = report {
            self.list = Some(List::new(rows, text_of));
            self.notes = notes;
        }
        match self.notes.first() {
            Some(note) => Step::Say(note.clone()),
            None => Step::Stay,
        }
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, look: &Look) {
        let (width, height) = (canvas.width(), canvas.height());
        let Some(list) = &mut self.list else { return };
        let columns = Columns::of(width);
        let host = columns.host;
        canvas.text(2, 0, 8, "id", Ink::Head);
        canvas.text(12, 0, 19, "time", Ink::Head);
        canvas.text(33, 0, host, "host", Ink::Head);
        canvas.right(33 + host + 1, 0, 10, "size", Ink::Head);
        canvas.text(columns.paths, 0, width, "paths", Ink::Head);
        let rows = height.saturating_sub(1 + DETAIL_LINES);
        draw_list(
            &mut canvas.lines(1, rows),
            list,
            "there are no snapshots yet",
            |line, row, _| {
                draw_row(line, row, look, columns);
            },
        );
        let details = height.saturating_sub(DETAIL_LINES);
        if let Some(wanted) = &self.wanted {
            draw_prompt(canvas, details, "Name, or a part of it, or with * and ?:", wanted);
        } else if let Some(row) = list.current() {
            draw_details(&mut canvas.lines(details, DETAIL_LINES), row);
        }
    }
}

/// Where the columns are.
#[derive(Clone, Copy)]
struct Columns {
    host: usize,
    paths: usize,
}

impl Columns {
    fn of(width: usize) -> Self {
        let host = if width >= 120 { 24 } else { 12 };
        Self { host, paths: 33 + host + 13 }
    }
}

/// What the filter looks at.
fn text_of(row: &SnapshotRow) -> String {
    let snapshot = &row.snapshot;
    let paths: Vec<_> = snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    format!(
        "{} {} {} {} {}",
        snapshot.id.short(),
        snapshot.host,
        paths.join(" "),
        snapshot.labels.join(" "),
        row.description
    )
}

fn draw_row(line: &mut Canvas<'_>, row: &SnapshotRow, look: &Look, columns: Columns) {
    let snapshot = &row.snapshot;
    let Columns { host, paths: mut x } = columns;
    line.text(2, 0, 8, &snapshot.id.short(), Ink::Plain);
    line.text(12, 0, 19, &(look.date)(snapshot.started), Ink::Plain);
    let name = Printable::text(&snapshot.host).to_string();
    line.text(33, 0, host, &shortened(&name, host), Ink::Plain);
    line.right(33 + host + 1, 0, 10, &bytes_text(snapshot.stats.bytes), Ink::Plain);
    let flags =
        [(snapshot.partial, "incomplete", Ink::Bad), (row.held.is_some(), "held", Ink::Good)];
    for (is_set, flag, ink) in flags {
        if is_set {
            line.text(x, 0, flag.len(), flag, ink);
            x += flag.len() + 1;
        }
    }
    let paths: Vec<String> =
        snapshot.paths.iter().map(|path| Printable::bytes(path).to_string()).collect();
    let mut text = paths.join(", ");
    if !snapshot.labels.is_empty() {
        text.push_str(&format!("  [{}]", Printable::text(&snapshot.labels.join(", "))));
    }
    let room = line.width().saturating_sub(x);
    line.text(x, 0, room, &shortened(&text, room), Ink::Plain);
}

fn draw_details(canvas: &mut Canvas<'_>, row: &SnapshotRow) {
    let (width, snapshot) = (canvas.width(), &row.snapshot);
    let stats = &snapshot.stats;
    let mut first = format!(
        "{} in {}, {} new, stored in {}; by {}",
        counted(stats.files, "file", "files"),
        counted(stats.directories, "directory", "directories"),
        bytes_text(stats.bytes_new),
        bytes_text(stats.bytes_stored),
        Printable::text(&snapshot.user),
    );
    if stats.problems > 0 {
        first.push_str(&format!("; {}", counted(stats.problems, "problem", "problems")));
    }
    canvas.text(2, 0, width.saturating_sub(2), &first, Ink::Dim);
    let mut second = Vec::new();
    if snapshot.partial {
        second.push("its backup was stopped before the end".to_owned());
    }
    if let Some(reason) = &row.held {
        second.push(format!("held: {}", Printable::text(reason)));
    }
    if !row.description.is_empty() {
        second.push(Printable::text(&row.description).to_string());
    }
    canvas.text(2, 1, width.saturating_sub(2), &second.join("; "), Ink::Dim);
}
