//! Drawing: texts at places of a screen, with the few styles that there are.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use crate::fit::{columns_of, cut};

/// How a text differs from plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Not at all.
    Plain,
    /// The line at the top.
    Title,
    /// The head of a table, and keys.
    Head,
    /// Less important.
    Dim,
    /// The row under the cursor.
    Cursor,
    /// A directory; what is new.
    Good,
    /// What is marked or changed.
    Marked,
    /// What went wrong or is gone.
    Bad,
}

/// A part of the screen.
pub struct Canvas<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    colours: bool,
}

impl<'b> Canvas<'b> {
    /// All of a buffer.
    pub fn new(buffer: &'b mut Buffer, colours: bool) -> Self {
        let area = buffer.area;
        Self { buffer, area, colours }
    }

    /// How wide it is.
    pub fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// How many lines it has.
    pub fn height(&self) -> usize {
        usize::from(self.area.height)
    }

    /// The lines from `top` on, `height` of them.
    pub fn lines(&mut self, top: usize, height: usize) -> Canvas<'_> {
        let top = small(top).min(self.area.height);
        let height = small(height).min(self.area.height - top);
        let area = Rect { y: self.area.y + top, height, ..self.area };
        Canvas { buffer: self.buffer, area, colours: self.colours }
    }

    /// Writes a text, of which the end is left out if it does not fit. The text must be safe.
    pub fn text(&mut self, x: usize, y: usize, columns: usize, text: &str, ink: Ink) {
        if y >= self.height() || x >= self.width() {
            return;
        }
        let columns = columns.min(self.width() - x);
        let text = cut(text, columns);
        let (x, y) = (self.area.x + small(x), self.area.y + small(y));
        let style = style(ink, self.colours);
        self.buffer.set_stringn(x, y, text, columns, style);
    }

    /// As [`Self::text`], aligned at the right.
    pub fn right(&mut self, x: usize, y: usize, columns: usize, text: &str, ink: Ink) {
        let indent = columns.saturating_sub(columns_of(text));
        self.text(x + indent, y, columns - indent, text, ink);
    }

    /// Gives a whole line a style, over that of the texts in it.
    pub fn line(&mut self, y: usize, ink: Ink) {
        if y < self.height() {
            let line = Rect { y: self.area.y + small(y), height: 1, ..self.area };
            self.buffer.set_style(line, style(ink, self.colours));
        }
    }

    /// Shows where the next character goes.
    pub fn caret(&mut self, x: usize, y: usize) {
        if y < self.height() && x < self.width() {
            let place =
                Rect { x: self.area.x + small(x), y: self.area.y + small(y), width: 1, height: 1 };
            self.buffer.set_style(place, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn style(ink: Ink, colours: bool) -> Style {
    let plain = Style::new();
    let coloured = |colour| if colours { plain.fg(colour) } else { plain };
    match ink {
        Ink::Plain => plain,
        Ink::Title | Ink::Cursor => plain.add_modifier(Modifier::REVERSED),
        Ink::Head => plain.add_modifier(Modifier::BOLD),
        Ink::Dim => plain.add_modifier(Modifier::DIM),
        Ink::Good => coloured(Color::Cyan),
        Ink::Marked => coloured(Color::Yellow).add_modifier(Modifier::BOLD),
        Ink::Bad => coloured(Color::Red).add_modifier(Modifier::BOLD),
    }
}
