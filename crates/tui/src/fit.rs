//! Texts in columns of a screen. Some characters take two columns, some none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a text takes.
pub fn columns_of(text: &str) -> usize {
    text.width()
}

/// The text in at most this many columns; if it is longer, its middle is left out. More is kept of
/// its end, which says most about a path.
pub fn shortened(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let head = beginning(text, room / 3);
    let room = room - columns_of(head);
    format!("{head}…{}", ending(text, room))
}

/// The text in at most this many columns; if it is longer, its end is left out.
pub fn cut(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    match columns.checked_sub(1) {
        Some(room) => format!("{}…", beginning(text, room)),
        None => String::new(),
    }
}

/// As many characters of the beginning as fit.
fn beginning(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += character.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// As many characters of the end as fit.
fn ending(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices().rev() {
        used += character.width().unwrap_or(0);
        if used > columns {
            return &text[at + character.len_utf8()..];
        }
    }
    text
}

/// Lines of at most this many columns, broken between words, or in a word that is longer.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        let room = columns.saturating_sub(columns_of(line) + usize::from(!line.is_empty()));
        if !line.is_empty() && columns_of(word) <= room {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        let mut rest = word;
        if line.is_empty() {
            lines.pop();
        }
        loop {
            let part = beginning(rest, columns);
            // A line takes at least one character.
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let (part, more) = rest.split_at(part.len().max(first));
            lines.push(part.to_owned());
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(columns_of("日本語"), 6);
        assert_eq!(shortened("日本語日本語", 7), "日…本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        for columns in 0..20 {
            assert!(columns_of(&shortened("a日b本c語d日e本f語", columns)) <= columns, "{columns}");
            assert!(columns_of(&cut("a日b本c語d日e本f語", columns)) <= columns, "{columns}");
        }
    }

    #[test]
    fn long_texts_keep_their_end() {
        assert_eq!(shortened("0123456789", 10), "0123456789");
        assert_eq!(shortened("0123456789ab", 10), "012…6789ab");
        assert_eq!(shortened("0123456789ab", 0), "");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
    }
}
