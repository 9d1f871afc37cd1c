//! What the screens with lists have in common.

use strongroom_base::Printable;
use strongroom_base::units::count_text;

use crate::canvas::{Canvas, Ink};
use crate::list::List;
use crate::message::{FileRow, Kind};

/// Lines below a list that say more of the row under the cursor.
pub const DETAIL_LINES: usize = 2;

/// Draws the rows of a list, and what is under them. `row` draws one at line zero; the line of the
/// cursor is highlighted after it.
pub fn draw_list<T>(
    canvas: &mut Canvas<'_>,
    list: &mut List<T>,
    when_empty: &str,
    mut row: impl FnMut(&mut Canvas<'_>, &T, bool),
) {
    let height = canvas.height();
    let has_filter = list.is_typing || !list.filter.text.is_empty();
    let rows_height = height - usize::from(has_filter).min(height);
    let marks = list.marks.clone();
    let shown = list.on_screen(rows_height);
    if shown.is_empty() {
        let text = if list.rows.is_empty() { when_empty } else { "nothing fits the filter" };
        canvas.text(2, 0, canvas.width(), text, Ink::Dim);
    }
    for (y, (place, is_current)) in shown.into_iter().enumerate() {
        let is_marked = marks.contains(&place);
        let mut line = canvas.lines(y, 1);
        row(&mut line, &list.rows[place], is_marked);
        if is_marked {
            line.text(0, 0, 1, "*", Ink::Marked);
        }
        if is_current {
            line.line(0, Ink::Cursor);
        }
    }
    if has_filter {
        let y = height.saturating_sub(1);
        let before = Printable::text(&list.filter.text[..list.filter.cursor]).to_string();
        let text = format!("/{}", Printable::text(&list.filter.text));
        let width = canvas.width();
        canvas.text(0, y, width, &text, Ink::Head);
        if list.is_typing {
            canvas.caret(1 + crate::fit::columns_of(&before), y);
        }
        let count = format!("{} of {}", count_text(list.len() as u64), list.rows.len());
        canvas.right(width.saturating_sub(24), y, 24, &count, Ink::Dim);
    }
}

/// A name as it is shown: a directory ends with a slash.
pub fn shown_name(name: &[u8], kind: &Kind) -> String {
    let slash = if matches!(kind, Kind::Directory(_)) { "/" } else { "" };
    format!("{}{slash}", Printable::bytes(name))
}

/// Kind and permissions, as `ls -l` shows them.
pub fn mode_text(file: &FileRow) -> String {
    let kind = match file.kind {
        Kind::File => '-',
        Kind::Directory(_) => 'd',
        Kind::Symlink(_) => 'l',
        Kind::Special(letter) => letter,
    };
    format!("{kind}{}", file.metadata.permissions_text())
}

/// The owner by name, or by number.
pub fn owner_text(file: &FileRow) -> String {
    let metadata = &file.metadata;
    match &metadata.user {
        Some(user) => Printable::text(user).to_string(),
        None => metadata.uid.to_string(),
    }
}

/// The group by name, or by number.
pub fn group_text(file: &FileRow) -> String {
    let metadata = &file.metadata;
    match &metadata.group {
        Some(group) => Printable::text(group).to_string(),
        None => metadata.gid.to_string(),
    }
}
