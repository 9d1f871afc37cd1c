//! All that a snapshot says of an entry.

use strongroom_base::Printable;
use strongroom_base::units::{bytes_text, count_text};

use super::table::{group_text, mode_text, owner_text, shown_name};
use crate::canvas::{Canvas, Ink};
use crate::fit::wrapped;
use crate::key::Key;
use crate::message::{FileRow, Kind, Look, Report};
use crate::screen::{KeyHelp, Screen, Step};

/// One entry.
pub struct DetailsScreen {
    path: Vec<u8>,
    row: FileRow,
}

impl DetailsScreen {
    /// Of this entry.
    pub fn of(path: Vec<u8>, row: FileRow) -> Self {
        Self { path, row }
    }

    fn lines(&self, look: &Look) -> Vec<(&'static str, String)> {
        let metadata = &self.row.metadata;
        let kind = match &self.row.kind {
            Kind::File => "file",
            Kind::Directory(false) => "directory",
            Kind::Directory(true) => "directory, of which a part is not in the snapshot",
            Kind::Symlink(_) => "symbolic link",
            Kind::Special('p') => "named pipe",
            Kind::Special('s') => "socket",
            Kind::Special('c') => "character device",
            Kind::Special(_) => "block device",
        };
        let size = format!("{} ({} bytes)", bytes_text(metadata.size), count_text(metadata.size));
        let mut lines =
            vec![("path", format!("/{}", Printable::bytes(&self.path))), ("kind", kind.to_owned())];
        if let Kind::Symlink(target) = &self.row.kind {
            lines.push(("points to", Printable::bytes(target).to_string()));
        }
        lines.extend([
            ("size", size),
            ("mode", format!("{}  {:04o}", mode_text(&self.row), metadata.mode)),
            ("owner", format!("{} ({})", owner_text(&self.row), metadata.uid)),
            ("group", format!("{} ({})", group_text(&self.row), metadata.gid)),
            ("changed", (look.date)(metadata.mtime)),
            ("inode changed", (look.date)(metadata.ctime)),
            ("inode", metadata.inode.to_string()),
            ("names", metadata.links.to_string()),
        ]);
        let names = metadata.xattrs.iter().map(|xattr| Printable::bytes(&xattr.name).to_string());
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            lines.push(("attributes", names.join(", ")));
        }
        lines
    }
}

impl Screen for DetailsScreen {
    fn title(&self, _look: &Look) -> String {
        shown_name(
            self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
            &self.row.kind,
        )
    }

    fn keys(&self) -> &'static [KeyHelp] {
        &[("Esc", "back")]
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        match key {
            Key::Enter | Key::Char('i') => Step::Back,
            _ => Step::Pass,
        }
    }

    fn report(&mut self, _report: Report) -> Step {
        Step::Stay
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, look: &Look) {
        let room = canvas.width().saturating_sub(17);
        let mut y = 1;
        for (name, value) in self.lines(look) {
            canvas.text(2, y, 14, name, Ink::Head);
            for part in wrapped(&value, room) {
                canvas.text(17, y, room, &part, Ink::Plain);
                y += 1;
            }
        }
    }
}
