//! Where a name occurs.

use strongroom_base::Printable;
use strongroom_base::units::{bytes_text, counted};

use super::files::FilesScreen;
use super::table::draw_list;
use crate::canvas::{Canvas, Ink};
use crate::fit::shortened;
use crate::key::Key;
use crate::list::List;
use crate::message::{FoundRow, Kind, Look, Report, Request};
use crate::screen::{KeyHelp, Screen, Step};

/// What was looked for, and where it is.
pub struct FoundScreen {
    pattern: String,
    list: Option<List<FoundRow>>,
}

impl FoundScreen {
    /// Of this pattern.
    pub fn of(pattern: String) -> Self {
        Self { pattern, list: None }
    }

    /// The folder of what was found, in the newest snapshot that has it.
    fn open(&self) -> Step {
        let Some(row) = self.list.as_ref().and_then(List::current) else { return Step::Stay };
        let slash = row.path.iter().rposition(|byte| *byte == b'/');
        let folder = slash.map_or(Vec::new(), |slash| row.path[..slash].to_vec());
        let screen = FilesScreen::of(row.last.clone(), folder.clone(), Some(row.file.name.clone()));
        let request = Request::Directory { snapshot: row.last.clone(), path: folder };
        Step::OpenAsking(Box::new(screen), request)
    }
}

impl Screen for FoundScreen {
    fn title(&self, _look: &Look) -> String {
        let pattern = Printable::text(&self.pattern);
        match &self.list {
            Some(list) => {
                let count = counted(list.rows.len() as u64, "version", "versions");
                format!("Found \"{pattern}\": {count}")
            }
            None => format!("Finding \"{pattern}\""),
        }
    }

    fn keys(&self) -> &'static [KeyHelp] {
        if self.is_typing() {
            return &[("Enter", "keep the filter"), ("Esc", "show all")];
        }
        &[("Enter", "go to it"), ("/", "filter"), ("Esc", "back")]
    }

    fn is_typing(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.is_typing)
    }

    fn is_empty(&self) -> bool {
        self.list.is_none()
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        if self.list.as_mut().is_some_and(|list| list.key(key)) {
            return Step::Stay;
        }
        match key {
            Key::Enter | Key::Right | Key::Char('l') => self.open(),
            _ => Step::Pass,
        }
    }

    fn report(&mut self, report: Report) -> Step {
        let Report::Found { rows, note } = report else { return Step::Stay };
        self.list = Some(List::new(rows, |row| String::from_utf8_lossy(&row.path).into_owned()));
        match note {
            Some(note) => Step::Say(note),
            None => Step::Stay,
        }
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, look: &Look) {
        let (width, height) = (canvas.width(), canvas.height());
        let Some(list) = &mut self.list else { return };
        canvas.text(2, 0, 19, "changed", Ink::Head);
        canvas.right(22, 0, 10, "size", Ink::Head);
        canvas.text(34, 0, width, "path", Ink::Head);
        let rows = height.saturating_sub(2);
        let mut below = canvas.lines(1, rows);
        draw_list(&mut below, list, "nothing has this name", |line, row, _| {
            let file = &row.file;
            line.text(2, 0, 19, &(look.date)(file.metadata.mtime), Ink::Plain);
            if file.kind == Kind::File {
                line.right(22, 0, 10, &bytes_text(file.metadata.size), Ink::Plain);
            }
            let room = line.width().saturating_sub(34);
            let slash = if matches!(file.kind, Kind::Directory(_)) { "/" } else { "" };
            let path = format!("/{}{slash}", Printable::bytes(&row.path));
            line.text(34, 0, room, &shortened(&path, room), Ink::Plain);
        });
        if let Some(row) = list.current() {
            let text = match row.snapshots {
                1 => format!("in snapshot {}", row.last.id.short()),
                count => format!(
                    "the same in {} from {} to {}",
                    counted(count, "snapshot", "snapshots"),
                    row.first.short(),
                    row.last.id.short()
                ),
            };
            canvas.text(2, height.saturating_sub(1), width.saturating_sub(2), &text, Ink::Dim);
        }
    }
}
