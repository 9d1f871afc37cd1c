//! How a file begins: as text, or as bytes if it is none.

use strongroom_base::Printable;
use strongroom_base::printable::printable_line;
use strongroom_base::units::bytes_text;

use super::table::draw_list;
use crate::canvas::{Canvas, Ink};
use crate::fit::cut;
use crate::key::Key;
use crate::list::List;
use crate::message::{Look, Report};
use crate::screen::{KeyHelp, Screen, Step};

/// Tabs go to the next column that this divides.
const TAB_COLUMNS: usize = 8;
/// Bytes in a line of a file that is no text.
const BYTES_PER_LINE: usize = 16;

/// A file.
pub struct TextScreen {
    path: Vec<u8>,
    size: u64,
    lines: Option<List<String>>,
    is_cut: bool,
    /// The first column that is shown.
    left: usize,
}

impl TextScreen {
    /// Of this size.
    pub fn of(path: Vec<u8>, size: u64) -> Self {
        Self { path, size, lines: None, is_cut: false, left: 0 }
    }
}

impl Screen for TextScreen {
    fn title(&self, _look: &Look) -> String {
        let part = if self.is_cut { ", only the beginning" } else { "" };
        format!("/{}  ({}{part})", Printable::bytes(&self.path), bytes_text(self.size))
    }

    fn keys(&self) -> &'static [KeyHelp] {
        if self.is_typing() {
            return &[("Enter", "keep the filter"), ("Esc", "show all")];
        }
        &[("← →", "sideways"), ("/", "only lines with a text"), ("Esc", "back")]
    }

    fn is_typing(&self) -> bool {
        self.lines.as_ref().is_some_and(|lines| lines.is_typing)
    }

    fn is_empty(&self) -> bool {
        self.lines.is_none()
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        if self.lines.as_mut().is_some_and(|lines| lines.key(key)) {
            return Step::Stay;
        }
        match key {
            Key::Left => self.left = self.left.saturating_sub(TAB_COLUMNS),
            Key::Right => self.left += TAB_COLUMNS,
            Key::Char('v') => return Step::Back,
            _ => return Step::Pass,
        }
        Step::Stay
    }

    fn report(&mut self, report: Report) -> Step {
        if let Report::Text { bytes, is_cut } = report {
            self.lines = Some(List::new(lines_of(&bytes), Clone::clone));
            self.is_cut = is_cut;
        }
        Step::Stay
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, _look: &Look) {
        let left = self.left;
        let Some(lines) = &mut self.lines else { return };
        draw_list(canvas, lines, "the file is empty", |line, text, _| {
            let text: String = text.chars().skip(left).collect();
            let width = line.width();
            line.text(0, 0, width, &cut(&text, width), Ink::Plain);
        });
    }
}

/// A file with a NUL byte is no text.
fn lines_of(bytes: &[u8]) -> Vec<String> {
    if bytes.contains(&0) {
        return bytes.chunks(BYTES_PER_LINE).enumerate().map(hex_line).collect();
    }
    let mut lines: Vec<String> = bytes.split(|byte| *byte == b'\n').map(text_line).collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

fn text_line(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let (mut line, mut columns) = (String::new(), 0);
    for character in String::from_utf8_lossy(bytes).chars() {
        if character == '\t' {
            let room = TAB_COLUMNS - columns % TAB_COLUMNS;
            line.push_str(&" ".repeat(room));
            columns += room;
        } else {
            line.push(character);
            columns += 1;
        }
    }
    printable_line(&line).into_owned()
}

fn hex_line((place, bytes): (usize, &[u8])) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let graph = |byte: &u8| if matches!(byte, 0x20..0x7f) { char::from(*byte) } else { '.' };
    let text: String = bytes.iter().map(graph).collect();
    format!("{:08x}  {:47}  {text}", place * BYTES_PER_LINE, hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_command_the_terminal() {
        assert_eq!(
            lines_of(b"a\tb\r\n\x1b[2J\\n\xff\n"),
            ["a       b".to_owned(), "\\u{1b}[2J\\n\u{fffd}".to_owned()]
        );
        assert_eq!(lines_of(b""), Vec::<String>::new());
    }

    #[test]
    fn a_long_line_of_tabs_is_shown_at_once() {
        let lines = lines_of(&[b'\t'; 1 << 20]);
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), 8 << 20);
    }

    #[test]
    fn what_is_no_text_is_shown_as_bytes() {
        let lines = lines_of(b"\x00\x01ELF and seventeen");
        assert_eq!(
            lines[0],
            "00000000  00 01 45 4c 46 20 61 6e 64 20 73 65 76 65 6e 74  ..ELF and sevent"
        );
        assert_eq!(lines[1].trim_end(), format!("00000010  {:47}  een", "65 65 6e"));
    }
}
