//! Keys, and the bytes by which a terminal sends them.

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// The key that removes what is left of the cursor.
    Backspace,
    /// The key that removes what is under the cursor.
    Delete,
    /// Tab.
    Tab,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// The first one.
    Home,
    /// The last one.
    End,
    /// A letter with the control key held.
    Ctrl(char),
}

/// Makes keys of bytes, which may end in the middle of a key.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

/// Longer than any sequence of a key.
const SEQUENCE_BYTES_MAX: usize = 16;

impl Keys {
    /// The keys in these bytes, and in those that came before them.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        while let Some((key, used)) = next_key(&self.pending[at..]) {
            keys.extend(key);
            at += used;
        }
        self.pending.drain(..at);
        keys
    }

    /// Whether the bytes so far may be the beginning of a key.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// No further bytes came: what looked like a beginning was the key Escape.
    pub fn idle(&mut self) -> Option<Key> {
        let was_escape = self.pending.first() == Some(&0x1b);
        self.pending.clear();
        was_escape.then_some(Key::Esc)
    }
}

/// The first key, if it is one that this program knows, and how many bytes it has; none if more
/// bytes are needed.
fn next_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        0x1b => after_escape(rest).map(|(key, used)| (key, used + 1)),
        b'\r' | b'\n' => Some((Some(Key::Enter), 1)),
        b'\t' => Some((Some(Key::Tab), 1)),
        0x7f | 0x08 => Some((Some(Key::Backspace), 1)),
        1..=26 => Some((Some(Key::Ctrl(char::from(b'a' + first - 1))), 1)),
        0..0x20 => Some((None, 1)),
        _ => character(bytes),
    }
}

fn after_escape(rest: &[u8]) -> Option<(Option<Key>, usize)> {
    match rest.split_first()? {
        // Escape was pressed twice, or before a key.
        (0x1b, _) => Some((Some(Key::Esc), 0)),
        (b'[' | b'O', sequence) => {
            let is_end = |byte: &u8| matches!(byte, 0x40..=0x7e);
            match sequence.iter().position(is_end) {
                Some(end) => Some((named(&sequence[..=end]), end + 2)),
                None if sequence.len() > SEQUENCE_BYTES_MAX => Some((None, sequence.len() + 1)),
                None => None,
            }
        }
        // Alt with a key: none of ours.
        (_, _) => Some((Some(Key::Esc), 0)),
    }
}

fn named(sequence: &[u8]) -> Option<Key> {
    let (&end, numbers) = sequence.split_last()?;
    // A second number has the modifiers: `1;5A`.
    let first = numbers.split(|byte| *byte == b';').next().unwrap_or_default();
    Some(match (end, first) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'~', b"3") => Key::Delete,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        (b'M', b"") => Key::Enter,
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let length = match bytes[0] {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((None, 1)),
    };
    let bytes = bytes.get(..length)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Some((text.chars().next().map(Key::Char), length)),
        Err(_) => Some((None, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        for (bytes, keys) in [
            (&b"q"[..], vec![Key::Char('q')]),
            (b"\r\x7f\t\x03", vec![Key::Enter, Key::Backspace, Key::Tab, Key::Ctrl('c')]),
            (b"\x1b[A\x1bOB\x1b[1;5C", vec![Key::Up, Key::Down, Key::Right]),
            (b"\x1b[5~\x1b[6~\x1b[3~", vec![Key::PageUp, Key::PageDown, Key::Delete]),
            (b"\x1b[H\x1b[4~\x1b[1~", vec![Key::Home, Key::End, Key::Home]),
            ("größe".as_bytes(), "größe".chars().map(Key::Char).collect()),
            (b"\x1b\x1b[A", vec![Key::Esc, Key::Up]),
            (b"\xffa\x00", vec![Key::Char('a')]),
            // Nothing that this program knows.
            (b"\x1b[200~x", vec![Key::Char('x')]),
        ] {
            assert_eq!(Keys::default().feed(bytes), keys, "{bytes:?}");
        }
    }

    #[test]
    fn a_key_may_come_in_parts() {
        let mut keys = Keys::default();
        for byte in b"\x1b[5" {
            assert_eq!(keys.feed(&[*byte]), []);
            assert!(keys.is_waiting());
        }
        assert_eq!(keys.feed(b"~"), [Key::PageUp]);
        assert_eq!(keys.feed(b"\xc3"), []);
        assert_eq!(keys.feed(b"\xb6"), [Key::Char('ö')]);
        assert_eq!(keys.feed(b"\x1b"), []);
        assert_eq!(keys.idle(), Some(Key::Esc));
        assert_eq!(keys.idle(), None);
    }

    #[test]
    fn any_bytes_are_taken_in_the_end() {
        let mut keys = Keys::default();
        for round in 0..2000_u32 {
            let noise = round.wrapping_mul(2_654_435_761).to_le_bytes();
            keys.feed(&noise);
            assert!(keys.pending.len() <= SEQUENCE_BYTES_MAX + 8, "{:?}", keys.pending);
        }
    }
}
