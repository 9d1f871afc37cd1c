//! A list with a cursor, marks and a filter; and a line that is typed.

use std::collections::BTreeSet;

use crate::key::Key;

/// A line that a person types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// What was typed.
    pub text: String,
    /// Before which byte the next character goes.
    pub cursor: usize,
}

impl Input {
    /// Changes the line; false if the key is not one that does.
    pub fn key(&mut self, key: Key) -> bool {
        let before = self.text[..self.cursor].chars().next_back().map_or(0, char::len_utf8);
        let after = self.text[self.cursor..].chars().next().map_or(0, char::len_utf8);
        match key {
            Key::Char(character) => {
                self.text.insert(self.cursor, character);
                self.cursor += character.len_utf8();
            }
            Key::Backspace => {
                self.text.drain(self.cursor - before..self.cursor);
                self.cursor -= before;
            }
            Key::Delete => {
                self.text.drain(self.cursor..self.cursor + after);
            }
            Key::Left => self.cursor -= before,
            Key::Right => self.cursor += after,
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.text.len(),
            Key::Ctrl('u') => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            _ => return false,
        }
        true
    }
}

/// A list of rows. Places are those in `rows`, whether the filter shows them or not.
#[derive(Debug)]
pub struct List<T> {
    /// All rows.
    pub rows: Vec<T>,
    /// What the filter looks at, in lower case.
    texts: Vec<String>,
    /// The rows that are shown.
    shown: Vec<usize>,
    /// Which of those the cursor is on.
    cursor: usize,
    /// Which of those is the first on the screen.
    top: usize,
    /// How many are on the screen.
    height: usize,
    /// The marked ones.
    pub marks: BTreeSet<usize>,
    /// What those that are shown contain; empty for all.
    pub filter: Input,
    /// Whether the filter is being typed.
    pub is_typing: bool,
}

impl<T> List<T> {
    /// Of these rows, each with the text that the filter looks at.
    pub fn new(rows: Vec<T>, text: impl Fn(&T) -> String) -> Self {
        let texts = rows.iter().map(|row| text(row).to_lowercase()).collect();
        let shown = (0..rows.len()).collect();
        Self {
            rows,
            texts,
            shown,
            cursor: 0,
            top: 0,
            height: 1,
            marks: BTreeSet::new(),
            filter: Input::default(),
            is_typing: false,
        }
    }

    /// How many rows are shown.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    /// The place of the row under the cursor.
    pub fn place(&self) -> Option<usize> {
        self.shown.get(self.cursor).copied()
    }

    /// The row under the cursor.
    pub fn current(&self) -> Option<&T> {
        self.place().map(|place| &self.rows[place])
    }

    /// Puts the cursor on a row, if it is shown.
    pub fn go_to(&mut self, place: usize) {
        if let Some(at) = self.shown.iter().position(|shown| *shown == place) {
            self.cursor = at;
        }
    }

    /// Marks the row under the cursor, or takes its mark, and goes on to the next.
    pub fn toggle_mark(&mut self) {
        if let Some(place) = self.place() {
            if !self.marks.remove(&place) {
                self.marks.insert(place);
            }
            self.move_by(1);
        }
    }

    /// Moves the cursor, or changes the filter; false if the key is not one that does.
    pub fn key(&mut self, key: Key) -> bool {
        if self.is_typing {
            return self.filter_key(key);
        }
        let page = self.height.saturating_sub(1).max(1) as isize;
        match key {
            Key::Up | Key::Char('k') => self.move_by(-1),
            Key::Down | Key::Char('j') => self.move_by(1),
            Key::PageUp => self.move_by(-page),
            Key::PageDown => self.move_by(page),
            Key::Home | Key::Char('g') => self.cursor = 0,
            Key::End | Key::Char('G') => self.cursor = self.shown.len().saturating_sub(1),
            Key::Char('/') => self.is_typing = true,
            Key::Esc if !self.filter.text.is_empty() => self.clear_filter(),
            _ => return false,
        }
        true
    }

    fn filter_key(&mut self, key: Key) -> bool {
        match key {
            Key::Enter | Key::Down | Key::Up => self.is_typing = false,
            Key::Esc => self.clear_filter(),
            Key::Backspace if self.filter.text.is_empty() => self.clear_filter(),
            key => {
                if self.filter.key(key) {
                    self.apply_filter();
                }
            }
        }
        true
    }

    fn clear_filter(&mut self) {
        self.filter = Input::default();
        self.is_typing = false;
        self.apply_filter();
    }

    fn apply_filter(&mut self) {
        let place = self.place();
        let wanted = self.filter.text.to_lowercase();
        let fits = |place: &usize| self.texts[*place].contains(&wanted);
        self.shown = (0..self.rows.len()).filter(fits).collect();
        self.cursor = 0;
        if let Some(place) = place {
            self.go_to(place);
        }
    }

    fn move_by(&mut self, rows: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(rows).min(last);
    }

    /// The rows that fit on a screen of this height, scrolled so that the cursor is among them:
    /// their places, and whether the cursor is on them.
    pub fn on_screen(&mut self, height: usize) -> Vec<(usize, bool)> {
        self.height = height.max(1);
        let last_top = self.shown.len().saturating_sub(self.height);
        let top = self.top.min(last_top).min(self.cursor);
        self.top = top.max((self.cursor + 1).saturating_sub(self.height));
        let rows = self.shown.iter().enumerate().skip(self.top).take(height);
        rows.map(|(at, place)| (*place, at == self.cursor)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> List<String> {
        List::new((0..count).map(|n| format!("Row {n}")).collect(), Clone::clone)
    }

    #[test]
    fn the_cursor_stays_on_the_screen() {
        let mut list = list(100);
        assert_eq!(list.on_screen(10).len(), 10);
        for key in [Key::PageDown, Key::Down, Key::End, Key::Down, Key::PageUp, Key::Home, Key::Up]
        {
            assert!(list.key(key));
            let rows = list.on_screen(10);
            assert_eq!(rows.iter().filter(|(_, is_current)| *is_current).count(), 1, "{key:?}");
        }
        assert_eq!(list.place(), Some(0));
    }

    #[test]
    fn an_empty_list_has_no_row() {
        let mut list = list(0);
        for key in [Key::Up, Key::Down, Key::PageDown, Key::End, Key::Char('/'), Key::Char('x')] {
            list.key(key);
        }
        list.toggle_mark();
        assert_eq!((list.place(), list.on_screen(0).len()), (None, 0));
    }

    #[test]
    fn a_filter_keeps_the_cursor_on_its_row() {
        let mut list = list(30);
        list.go_to(12);
        for key in [Key::Char('/'), Key::Char('r'), Key::Char('O'), Key::Char('w')] {
            assert!(list.key(key));
        }
        assert_eq!((list.len(), list.place()), (30, Some(12)));
        for key in [Key::Char(' '), Key::Char('1'), Key::Char('2'), Key::Enter] {
            assert!(list.key(key));
        }
        assert_eq!((list.len(), list.place()), (1, Some(12)));
        assert!(list.key(Key::Esc));
        assert_eq!((list.len(), list.place()), (30, Some(12)));
        assert!(!list.key(Key::Esc));
    }

    #[test]
    fn a_line_is_edited_by_characters() {
        let mut input = Input { text: "grö".to_owned(), cursor: 4 };
        for key in [Key::Left, Key::Backspace, Key::Char('日'), Key::Right, Key::Char('x')] {
            assert!(input.key(key));
        }
        assert_eq!(input.text, "g日öx");
        for key in [Key::Home, Key::Delete, Key::End, Key::Backspace, Key::Left, Key::Left] {
            assert!(input.key(key));
        }
        assert_eq!((input.text.as_str(), input.cursor), ("日ö", 0));
        assert!(input.key(Key::Backspace) && input.key(Key::Ctrl('u')));
        assert!(!input.key(Key::Enter));
    }
}
