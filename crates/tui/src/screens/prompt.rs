//! A line that is asked for, at the bottom of a screen.

use strongroom_base::Printable;

use crate::canvas::{Canvas, Ink};
use crate::fit::columns_of;
use crate::list::Input;

/// Draws a question with what was typed so far. Of a long text the end is shown.
pub fn draw_prompt(canvas: &mut Canvas<'_>, y: usize, question: &str, input: &Input) {
    let width = canvas.width();
    let question = format!("{question} ");
    let begin = columns_of(&question);
    canvas.text(0, y, width, &question, Ink::Head);
    let room = width.saturating_sub(begin + 1);
    let before = Printable::text(&input.text[..input.cursor]).to_string();
    let after = Printable::text(&input.text[input.cursor..]).to_string();
    // As much of the text before the cursor as fits.
    let mut from = before.as_str();
    while columns_of(from) > room {
        let first = from.chars().next().map_or(0, char::len_utf8);
        from = &from[first..];
    }
    canvas.text(begin, y, room, from, Ink::Plain);
    let x = begin + columns_of(from);
    canvas.text(x, y, width.saturating_sub(x), &after, Ink::Plain);
    canvas.caret(x, y);
}
