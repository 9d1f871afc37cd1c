//! Text in the columns of a terminal: wrapped between words, or shortened.

use crate::pager;

/// The width of the terminal that standard error goes to.
pub fn console_columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).max(20),
        // A terminal that does not say how wide it is.
        _ => 80,
    }
}

/// Cuts the middle of a text that is too wide. More is kept of its end, which says most about a
/// path.
pub fn shorten(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let head = room / 3;
    let tail: String = text.chars().skip(length - (room - head)).collect();
    let head: String = text.chars().take(head).collect();
    format!("{head}…{tail}")
}

/// A head and a message in lines of at most `columns`, unless a single word is longer. Further lines
/// are indented by as much as the head takes.
pub fn wrapped(head: &str, message: &str, columns: usize) -> String {
    let indent = head.chars().count();
    let mut text = head.to_owned();
    let mut used = indent;
    for (place, word) in message.split(' ').enumerate() {
        let width = word.chars().count();
        if place > 0 && used.saturating_add(1 + width) > columns {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            used = indent;
        } else if place > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += width;
    }
    text.push('\n');
    text
}

/// The width of the terminal that standard output goes to, if it goes to one.
pub fn output_columns() -> Option<usize> {
    let size = match pager::with_terminal(|terminal| rustix::termios::tcgetwinsize(terminal)) {
        Some(size) => size.ok()?,
        None => rustix::termios::tcgetwinsize(std::io::stdout()).ok()?,
    };
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_keep_their_end() {
        assert_eq!(shorten("0123456789", 10), "0123456789");
        assert_eq!(shorten("0123456789ab", 10), "012…6789ab");
        assert_eq!(shorten("0123456789ab", 0), "");
    }

    #[test]
    fn long_messages_break_between_words() {
        let text = wrapped(" hint: ", "run it again with --init to create it", 30);
        assert_eq!(text, " hint: run it again with\n       --init to create it\n");
        assert_eq!(wrapped("", "one two", usize::MAX), "one two\n");
        assert_eq!(wrapped("", "a-very-long-word b", 5), "a-very-long-word\nb\n");
    }
}
