//! What is in a directory of a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_base::Printable;
use strongroom_base::units::{bytes_text, counted};
use strongroom_catalog::Snapshot;

use super::details::DetailsScreen;
use super::restore::RestoreScreen;
use super::table::{DETAIL_LINES, draw_list, group_text, mode_text, owner_text, shown_name};
use super::text::TextScreen;
use crate::canvas::{Canvas, Ink};
use crate::fit::shortened;
use crate::key::Key;
use crate::list::List;
use crate::message::{FileRow, Kind, Look, Report, Request};
use crate::screen::{KeyHelp, Screen, Step};

/// A directory, and what was marked in this snapshot.
pub struct FilesScreen {
    snapshot: Arc<Snapshot>,
    /// The directory, without a leading slash.
    path: Vec<u8>,
    list: Option<List<FileRow>>,
    lost: Option<String>,
    /// On which name the cursor goes when the directory was read.
    wanted: Option<Vec<u8>>,
    /// The directory that was asked for.
    asked: Vec<u8>,
    /// What is marked in directories that are not shown: their paths.
    marked: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

impl FilesScreen {
    /// A directory, with the cursor on a name.
    pub fn of(snapshot: Arc<Snapshot>, path: Vec<u8>, wanted: Option<Vec<u8>>) -> Self {
        Self {
            snapshot,
            asked: path.clone(),
            path,
            list: None,
            lost: None,
            wanted,
            marked: BTreeMap::new(),
        }
    }

    /// The innermost directory of all that was backed up, with the cursor on the first of it.
    pub fn of_sources(snapshot: Arc<Snapshot>) -> Self {
        let (base, name) = first_look(&snapshot.paths);
        Self::of(snapshot, base, name)
    }

    /// What it asks for first.
    pub fn request(&self) -> Request {
        Request::Directory { snapshot: self.snapshot.clone(), path: self.asked.clone() }
    }

    fn ask(&mut self, path: Vec<u8>, wanted: Option<Vec<u8>>) -> Step {
        self.asked = path;
        self.wanted = wanted;
        Step::Ask(self.request())
    }

    /// The directory above, with the cursor on this one.
    fn up(&mut self) -> Step {
        if self.path.is_empty() {
            return Step::Back;
        }
        let (above, name) = split(&self.path);
        let (above, name) = (above.to_vec(), name.to_vec());
        self.ask(above, Some(name))
    }

    fn path_of(&self, row: &FileRow) -> Vec<u8> {
        joined(&self.path, &row.name)
    }

    fn keep_marks(&mut self) {
        let Some(list) = &self.list else { return };
        let marked: Vec<Vec<u8>> =
            list.marks.iter().map(|place| list.rows[*place].name.clone()).collect();
        match marked.is_empty() {
            true => self.marked.remove(&self.path),
            false => self.marked.insert(self.path.clone(), marked),
        };
    }

    /// The paths of what is marked; if nothing is, of what the cursor is on.
    fn chosen(&mut self) -> Vec<Vec<u8>> {
        self.keep_marks();
        let marked = self.marked.iter();
        let mut chosen: Vec<Vec<u8>> = marked
            .flat_map(|(folder, names)| names.iter().map(|name| joined(folder, name)))
            .collect();
        if chosen.is_empty() {
            let current = self.list.as_ref().and_then(List::current);
            chosen.extend(current.map(|row| self.path_of(row)));
        }
        chosen
    }

    fn restore(&mut self, look: &Look) -> Step {
        let chosen = outermost(self.chosen());
        if chosen.is_empty() {
            return Step::Stay;
        }
        let base = common_folder(&chosen);
        Step::Open(Box::new(RestoreScreen::of(self.snapshot.clone(), base, chosen, look)))
    }

    fn view(&self) -> Step {
        let Some(row) = self.list.as_ref().and_then(List::current) else { return Step::Stay };
        let path = self.path_of(row);
        if row.kind != Kind::File {
            return Step::Say(format!("{} is not a file", shown_name(&row.name, &row.kind)));
        }
        let screen = TextScreen::of(path.clone(), row.metadata.size);
        let request = Request::Text { snapshot: self.snapshot.clone(), path };
        Step::OpenAsking(Box::new(screen), request)
    }

    fn details(&self) -> Step {
        match self.list.as_ref().and_then(List::current) {
            Some(row) => Step::Open(Box::new(DetailsScreen::of(self.path_of(row), row.clone()))),
            None => Step::Stay,
        }
    }

    fn marked_count(&self) -> usize {
        let elsewhere = self.marked.iter().filter(|(folder, _)| **folder != self.path);
        let elsewhere: usize = elsewhere.map(|(_, names)| names.len()).sum();
        elsewhere + self.list.as_ref().map_or(0, |list| list.marks.len())
    }
}

impl Screen for FilesScreen {
    fn title(&self, look: &Look) -> String {
        let path = Printable::bytes(&self.path);
        let date = (look.date)(self.snapshot.started);
        format!("{} of {date}:/{path}", self.snapshot.id.short())
    }

    fn keys(&self) -> &'static [KeyHelp] {
        if self.is_typing() {
            return &[("Enter", "keep the filter"), ("Esc", "show all")];
        }
        &[
            ("Enter", "open"),
            ("Backspace", "up"),
            ("Space", "mark"),
            ("r", "restore"),
            ("v", "view"),
            ("i", "details"),
            ("/", "filter"),
            ("u", "unmark all"),
        ]
    }

    fn is_typing(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.is_typing)
    }

    fn is_empty(&self) -> bool {
        self.list.is_none()
    }

    fn key(&mut self, key: Key, look: &Look) -> Step {
        if self.list.as_mut().is_some_and(|list| list.key(key)) {
            return Step::Stay;
        }
        let list = match &mut self.list {
            Some(list) => list,
            None => return Step::Pass,
        };
        match key {
            Key::Backspace | Key::Left | Key::Char('h') => self.up(),
            Key::Esc => Step::Back,
            Key::Char(' ') => {
                list.toggle_mark();
                Step::Stay
            }
            Key::Char('u') => {
                list.marks.clear();
                self.marked.clear();
                Step::Stay
            }
            Key::Char('r') => self.restore(look),
            Key::Char('v') => self.view(),
            Key::Char('i') => self.details(),
            Key::Enter | Key::Right | Key::Char('l') => match list.current() {
                Some(row) if matches!(row.kind, Kind::Directory(_)) => {
                    let path = joined(&self.path, &row.name);
                    self.ask(path, None)
                }
                Some(row) if row.kind == Kind::File => self.view(),
                Some(_) => self.details(),
                None => Step::Stay,
            },
            _ => Step::Pass,
        }
    }

    fn report(&mut self, report: Report) -> Step {
        if let Report::Directory { rows, lost } = report {
            self.keep_marks();
            self.path = std::mem::take(&mut self.asked);
            let mut list = List::new(rows, |row| String::from_utf8_lossy(&row.name).into_owned());
            let place = |name: &Vec<u8>| list.rows.iter().position(|row| row.name == *name);
            let marks = self.marked.get(&self.path).into_iter().flatten().filter_map(place);
            list.marks = marks.collect();
            if let Some(place) = self.wanted.take().as_ref().and_then(place) {
                list.go_to(place);
            }
            self.list = Some(list);
            self.lost = lost;
        }
        match &self.lost {
            Some(lost) => Step::Say(format!("some entries are lost: {lost}")),
            None => Step::Stay,
        }
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, look: &Look) {
        let (width, height) = (canvas.width(), canvas.height());
        let marked = self.marked_count();
        let Some(list) = &mut self.list else { return };
        let owner = if width >= 120 { 16 } else { 8 };
        let name = 2 + 11 + owner + 1 + 11 + 20 + 1;
        for (x, head) in [(2, "mode"), (13, "owner"), (name - 20, "changed"), (name, "name")] {
            canvas.text(x, 0, width, head, Ink::Head);
        }
        canvas.right(13 + owner, 0, 10, "size", Ink::Head);
        let rows = height.saturating_sub(1 + DETAIL_LINES);
        draw_list(&mut canvas.lines(1, rows), list, "empty", |line, row, _| {
            line.text(2, 0, 10, &mode_text(row), Ink::Dim);
            line.text(13, 0, owner, &shortened(&owner_text(row), owner), Ink::Plain);
            if row.kind == Kind::File {
                let size = bytes_text(row.metadata.size);
                line.right(13 + owner, 0, 10, &size, Ink::Plain);
            }
            line.text(name - 20, 0, 19, &(look.date)(row.metadata.mtime), Ink::Plain);
            let ink = if matches!(row.kind, Kind::Directory(_)) { Ink::Good } else { Ink::Plain };
            let room = line.width().saturating_sub(name);
            line.text(name, 0, room, &shortened(&name_text(row), room), ink);
        });
        let mut details = canvas.lines(height.saturating_sub(DETAIL_LINES), DETAIL_LINES);
        if let Some(row) = list.current() {
            let room = width.saturating_sub(2);
            let text = shortened(&name_text(row), room);
            details.text(2, 0, room, &text, Ink::Plain);
        }
        let counts = match marked {
            0 => counted(list.rows.len() as u64, "entry", "entries"),
            marked => format!(
                "{}, {} marked",
                counted(list.rows.len() as u64, "entry", "entries"),
                marked
            ),
        };
        let of = list.current().map_or(String::new(), |row| {
            let (owner, group) = (owner_text(row), group_text(row));
            let bytes = counted(row.metadata.size, "byte", "bytes");
            let size = if row.kind == Kind::File { format!("  {bytes}") } else { String::new() };
            format!("{owner}:{group}{size}")
        });
        details.text(2, 1, width.saturating_sub(34), &of, Ink::Dim);
        details.right(width.saturating_sub(32), 1, 31, &counts, Ink::Dim);
    }
}

/// A name with where it points, and whether something is missing in it.
fn name_text(row: &FileRow) -> String {
    let name = shown_name(&row.name, &row.kind);
    match &row.kind {
        Kind::Symlink(target) => format!("{name} -> {}", Printable::bytes(target)),
        Kind::Directory(true) => format!("{name} (in part)"),
        _ => name,
    }
}

/// A path and a name in it.
fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder.is_empty() {
        true => name.to_vec(),
        false => [folder, b"/", name].concat(),
    }
}

/// The folder of a path, and its name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// Without those that are in others.
fn outermost(mut paths: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    // A folder is sorted before what is in it, though perhaps not right before it.
    paths.sort();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for path in paths {
        let is_in = |folder: &Vec<u8>| {
            path.strip_prefix(&folder[..]).is_some_and(|rest| rest.starts_with(b"/"))
        };
        if !kept.iter().any(is_in) {
            kept.push(path);
        }
    }
    kept
}

/// The innermost folder that all of these are in.
fn common_folder(paths: &[Vec<u8>]) -> Vec<u8> {
    let mut common = paths.first().map_or(Vec::new(), |path| split(path).0.to_vec());
    for path in paths {
        let folder = split(path).0;
        while !(common.is_empty()
            || folder == common
            || folder.strip_prefix(&common[..]).is_some_and(|rest| rest.starts_with(b"/")))
        {
            common = split(&common).0.to_vec();
        }
    }
    common
}

/// The innermost directory of what was backed up, and the name in it that leads to the first.
fn first_look(sources: &[Vec<u8>]) -> (Vec<u8>, Option<Vec<u8>>) {
    let plain = |path: &Vec<u8>| path.strip_prefix(b"/").unwrap_or(path).to_vec();
    let sources: Vec<Vec<u8>> = sources.iter().map(plain).collect();
    let base = common_folder(&sources);
    let below = sources.first().and_then(|first| first.strip_prefix(&base[..]));
    let below = below.map(|below| below.strip_prefix(b"/").unwrap_or(below));
    let name = below.and_then(|below| below.split(|byte| *byte == b'/').next());
    (base, name.filter(|name| !name.is_empty()).map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<Vec<u8>> {
        text.split_whitespace().map(|path| path.as_bytes().to_vec()).collect()
    }

    #[test]
    fn what_is_in_another_is_restored_with_it() {
        assert_eq!(outermost(paths("a/b a a.txt a/c b/c b/cd")), paths("a a.txt b/c b/cd"));
    }

    #[test]
    fn a_snapshot_opens_where_it_was_made() {
        for (sources, folder, name) in [
            ("/home/me", "home", Some("me")),
            ("/home/me/a /home/me/b", "home/me", Some("a")),
            ("/home/me /etc", "", Some("home")),
            ("/srv/a/b /srv/c", "srv", Some("a")),
            ("/", "", None),
            ("", "", None),
        ] {
            let expected = (folder.as_bytes().to_vec(), name.map(|name| name.as_bytes().to_vec()));
            assert_eq!(first_look(&paths(sources)), expected, "{sources}");
        }
    }

    #[test]
    fn marks_keep_their_folders_below_the_common_one() {
        for (marked, folder) in [
            ("a/b/c", "a/b"),
            ("a/b/c a/d", "a"),
            ("a/b ab/c", ""),
            ("x", ""),
            ("a/b/c a/bc/d", "a"),
        ] {
            assert_eq!(common_folder(&paths(marked)), folder.as_bytes(), "{marked}");
        }
    }
}
