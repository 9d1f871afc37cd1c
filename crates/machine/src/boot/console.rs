//! What a machine says on its serial port: the end of it is kept, and words are looked for.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is kept.
const KEPT_BYTES: usize = 256 << 10;
/// A longer line is given out in pieces.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Hears each line, without its end. Bytes that are not UTF-8 are replaced.
pub type OnLine = Box<dyn FnMut(&str) + Send>;

/// The serial port of a machine.
#[derive(Debug, Clone, Default)]
pub struct Console(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    kept: VecDeque<u8>,
    /// Words that are looked for, and whether they were said.
    wanted: Vec<(Vec<u8>, bool)>,
}

impl Console {
    /// Looks for these words from now on.
    pub fn look_for(words: &[String]) -> Self {
        let wanted = words.iter().map(|words| (words.clone().into_bytes(), words.is_empty()));
        Self(Arc::new(Mutex::new(Said { kept: VecDeque::new(), wanted: wanted.collect() })))
    }

    /// Whether words that are looked for were said.
    pub fn has_said(&self, words: &str) -> bool {
        self.said().wanted.iter().any(|(wanted, is_said)| *is_said && wanted == words.as_bytes())
    }

    /// The end of what was said.
    pub fn text(&self) -> String {
        let kept: Vec<u8> = self.said().kept.iter().copied().collect();
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// Takes what is said until the other side closes.
    pub(super) fn listen(&self, mut stream: impl Read, mut on_line: OnLine) {
        let mut buffer = [0; 4096];
        let mut line = Vec::new();
        while let Ok(length) = stream.read(&mut buffer) {
            if length == 0 {
                break;
            }
            self.said().take(&buffer[..length]);
            for &byte in &buffer[..length] {
                if byte == b'\n' || line.len() == LINE_BYTES_MAX {
                    on_line(String::from_utf8_lossy(&line).trim_end_matches('\r'));
                    line.clear();
                }
                if byte != b'\n' {
                    line.push(byte);
                }
            }
        }
        if !line.is_empty() {
            on_line(&String::from_utf8_lossy(&line));
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn take(&mut self, bytes: &[u8]) {
        // Words may have begun in what was said before.
        let overlap = self.wanted.iter().map(|(words, _)| words.len()).max().unwrap_or(0);
        let from = self.kept.len().saturating_sub(overlap);
        let mut recent: Vec<u8> = self.kept.iter().skip(from).copied().collect();
        recent.extend_from_slice(bytes);
        for (words, is_said) in self.wanted.iter_mut().filter(|(_, is_said)| !is_said) {
            *is_said = recent.windows(words.len()).any(|window| window == words);
        }
        self.kept.extend(bytes);
        let excess = self.kept.len().saturating_sub(KEPT_BYTES);
        self.kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out one byte at a time.
    struct Slow(VecDeque<u8>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let Some(byte) = self.0.pop_front() else { return Ok(0) };
            buffer[0] = byte;
            Ok(1)
        }
    }

    #[test]
    fn words_are_found_wherever_reads_are_cut() {
        let console = Console::look_for(&["login: ".to_owned(), "never".to_owned()]);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = lines.clone();
        let on_line = Box::new(move |line: &str| heard.lock().unwrap().push(line.to_owned()));
        console.listen(Slow(b"booting\r\n\xff\ndebian login: ".to_vec().into()), on_line);
        assert!(console.has_said("login: ") && !console.has_said("never"));
        assert!(!console.has_said("booting"), "it was not looked for");
        assert_eq!(*lines.lock().unwrap(), ["booting", "\u{fffd}", "debian login: "]);
    }

    #[test]
    fn a_machine_that_never_stops_talking_takes_no_memory() {
        let console = Console::look_for(&["x".to_owned()]);
        console.listen(
            std::io::repeat(b'a').take(4 << 20),
            Box::new(|line| {
                assert!(line.len() <= LINE_BYTES_MAX);
            }),
        );
        assert_eq!(console.text().len(), KEPT_BYTES);
    }
}
