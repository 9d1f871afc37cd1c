//! In what two snapshots differ.

use std::sync::Arc;

use strongroom_base::Printable;
use strongroom_base::units::{bytes_text, count_text};
use strongroom_catalog::Snapshot;
use strongroom_engine::DiffOutcome;

use super::table::draw_list;
use crate::canvas::{Canvas, Ink};
use crate::fit::{columns_of, shortened};
use crate::key::Key;
use crate::list::List;
use crate::message::{ChangeRow, Look, Report};
use crate::screen::{KeyHelp, Screen, Step};

/// Two snapshots and their differences.
pub struct ChangesScreen {
    before: Arc<Snapshot>,
    after: Arc<Snapshot>,
    list: Option<List<ChangeRow>>,
    outcome: DiffOutcome,
    only_times: u64,
}

impl ChangesScreen {
    /// Of these two.
    pub fn of(before: Arc<Snapshot>, after: Arc<Snapshot>) -> Self {
        Self { before, after, list: None, outcome: DiffOutcome::default(), only_times: 0 }
    }

    fn summary(&self) -> String {
        let DiffOutcome { added, removed, changed, metadata, .. } = self.outcome;
        let mut text = format!(
            "{} added, {} removed, {} changed, {} only in metadata",
            count_text(added),
            count_text(removed),
            count_text(changed),
            count_text(metadata.saturating_sub(self.only_times)),
        );
        if self.only_times > 0 {
            text.push_str(&format!(", {} only in a time", count_text(self.only_times)));
        }
        if self.outcome.damaged > 0 {
            text.push_str(&format!("; {} damaged", count_text(self.outcome.damaged)));
        }
        text
    }
}

impl Screen for ChangesScreen {
    fn title(&self, look: &Look) -> String {
        let one = |snapshot: &Snapshot| {
            format!("{} of {}", snapshot.id.short(), (look.date)(snapshot.started))
        };
        format!("From {} to {}", one(&self.before), one(&self.after))
    }

    fn keys(&self) -> &'static [KeyHelp] {
        if self.is_typing() {
            return &[("Enter", "keep the filter"), ("Esc", "show all")];
        }
        &[("/", "filter"), ("Esc", "back")]
    }

    fn is_typing(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.is_typing)
    }

    fn is_empty(&self) -> bool {
        self.list.is_none()
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        match self.list.as_mut().is_some_and(|list| list.key(key)) {
            true => Step::Stay,
            false => Step::Pass,
        }
    }

    fn report(&mut self, report: Report) -> Step {
        if let Report::Changes { rows, outcome, only_times } = report {
            let text = |row: &ChangeRow| {
                format!("{} {} {}", row.sign, String::from_utf8_lossy(&row.path), row.what)
            };
            self.list = Some(List::new(rows, text));
            self.outcome = outcome;
            self.only_times = only_times;
        }
        Step::Stay
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, _look: &Look) {
        let (width, height) = (canvas.width(), canvas.height());
        let summary = self.summary();
        let Some(list) = &mut self.list else { return };
        let rows = height.saturating_sub(1);
        draw_list(&mut canvas.lines(0, rows), list, "no differences", |line, row, _| {
            let ink = match row.sign {
                '+' => Ink::Good,
                '-' => Ink::Bad,
                _ => Ink::Marked,
            };
            line.text(2, 0, 1, &row.sign.to_string(), ink);
            line.right(4, 0, 11, &growth_text(row.growth), Ink::Dim);
            let what = match row.what.is_empty() {
                true => String::new(),
                false => format!(" ({})", row.what),
            };
            let room = line.width().saturating_sub(17);
            let path = format!("/{}", Printable::bytes(&row.path));
            let path = shortened(&path, room.saturating_sub(columns_of(&what)));
            line.text(17, 0, room, &path, Ink::Plain);
            line.text(17 + columns_of(&path), 0, room, &what, Ink::Dim);
        });
        canvas.text(2, rows, width.saturating_sub(2), &summary, Ink::Dim);
    }
}

fn growth_text(bytes: i64) -> String {
    match bytes {
        0 => String::new(),
        1.. => format!("+{}", bytes_text(bytes.unsigned_abs())),
        _ => format!("-{}", bytes_text(bytes.unsigned_abs())),
    }
}
