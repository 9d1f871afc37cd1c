//! A backend of `ratatui` that writes the control sequences which every terminal of today knows.

use std::io::{Error, Write};

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// Draws on a terminal.
pub struct AnsiBackend<W> {
    out: W,
    size: Size,
    /// Written at once, so that no half of a picture is seen.
    pending: Vec<u8>,
}

impl<W: Write> AnsiBackend<W> {
    /// On a terminal of this size.
    pub fn new(out: W, columns: u16, rows: u16) -> Self {
        Self { out, size: Size::new(columns, rows), pending: Vec::new() }
    }

    /// The terminal has another size now.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.size = Size::new(columns, rows);
    }

    fn put(&mut self, text: &str) -> Result<(), Error> {
        self.pending.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<W: Write> Backend for AnsiBackend<W> {
    type Error = Error;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Error>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut style = None;
        let mut next = None;
        for (x, y, cell) in content {
            // A wide character, or one of which a terminal thinks otherwise, moves the cursor by an
            // amount that is not relied on.
            if next != Some((x, y)) {
                self.put(&format!("\x1b[{};{}H", y + 1, x + 1))?;
            }
            if style != Some((cell.fg, cell.modifier)) {
                self.put(&sequence_of(cell.fg, cell.modifier))?;
                style = Some((cell.fg, cell.modifier));
            }
            self.put(cell.symbol())?;
            next = cell.symbol().is_ascii().then_some((x + 1, y));
        }
        self.put("\x1b[0m")
    }

    fn hide_cursor(&mut self) -> Result<(), Error> {
        self.put("\x1b[?25l")
    }

    fn show_cursor(&mut self) -> Result<(), Error> {
        self.put("\x1b[?25h")
    }

    /// The cursor is hidden, and every drawing says where it begins.
    fn get_cursor_position(&mut self) -> Result<Position, Error> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Error> {
        let Position { x, y } = position.into();
        self.put(&format!("\x1b[{};{}H", y + 1, x + 1))
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.put("\x1b[0m\x1b[2J")
    }

    fn clear_region(&mut self, clear_type: ClearType) -> Result<(), Error> {
        self.put(match clear_type {
            ClearType::All => "\x1b[0m\x1b[2J",
            ClearType::AfterCursor => "\x1b[0m\x1b[J",
            ClearType::BeforeCursor => "\x1b[0m\x1b[1J",
            ClearType::CurrentLine => "\x1b[0m\x1b[2K",
            ClearType::UntilNewLine => "\x1b[0m\x1b[K",
        })
    }

    fn size(&self) -> Result<Size, Error> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Error> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        self.out.flush()
    }
}

/// The styles that the screens use.
fn sequence_of(colour: Color, modifier: Modifier) -> String {
    let mut sequence = "\x1b[0".to_owned();
    for (wanted, number) in [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::UNDERLINED, ";4"),
        (Modifier::REVERSED, ";7"),
    ] {
        if modifier.contains(wanted) {
            sequence.push_str(number);
        }
    }
    sequence.push_str(match colour {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Cyan => ";36",
        _ => "",
    });
    sequence.push('m');
    sequence
}

#[cfg(test)]
mod tests {
    use ratatui_core::style::Style;
    use ratatui_core::terminal::Terminal;

    use super::*;

    #[test]
    fn a_picture_is_written_with_its_styles() {
        let mut out = Vec::new();
        let mut terminal = Terminal::new(AnsiBackend::new(&mut out, 10, 2)).unwrap();
        let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        terminal
            .draw(|frame| {
                frame.buffer_mut().set_string(0, 0, "a日b", Style::new());
                frame.buffer_mut().set_string(1, 1, "c", style);
            })
            .unwrap();
        drop(terminal);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\x1b[1;1H\x1b[0ma日\x1b[1;4Hb"), "{text:?}");
        assert!(text.contains("\x1b[2;2H\x1b[0;1;31mc\x1b[0m"), "{text:?}");
    }
}
