//! All keys of a screen.

use crate::canvas::{Canvas, Ink};
use crate::key::Key;
use crate::message::{Look, Report};
use crate::screen::{KeyHelp, Screen, Step};

/// Keys that move in every list, and what they do.
const MOVES: [KeyHelp; 5] = [
    ("↑ ↓  j k", "move"),
    ("PgUp PgDn", "a page up or down"),
    ("Home End  g G", "to the first, to the last"),
    ("Esc Backspace", "back; Esc in the first screen ends"),
    ("Ctrl-C", "stop what is running, or end"),
];

/// The keys of the screen below.
pub struct HelpScreen {
    keys: Vec<KeyHelp>,
}

impl HelpScreen {
    /// Of these keys.
    pub fn of(mut keys: Vec<KeyHelp>) -> Self {
        keys.extend(MOVES);
        Self { keys }
    }
}

impl Screen for HelpScreen {
    fn title(&self, _look: &Look) -> String {
        "Keys".to_owned()
    }

    fn keys(&self) -> &'static [KeyHelp] {
        &[("Esc", "back")]
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        match key {
            Key::Char('q') => Step::Pass,
            _ => Step::Back,
        }
    }

    fn report(&mut self, _report: Report) -> Step {
        Step::Stay
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, _look: &Look) {
        let width = canvas.width();
        for (y, (key, what)) in self.keys.iter().enumerate() {
            canvas.text(2, y + 1, 15, key, Ink::Head);
            canvas.text(18, y + 1, width.saturating_sub(18), what, Ink::Plain);
        }
    }
}
