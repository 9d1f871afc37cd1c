//! Asks for a passphrase on the terminal, even if standard input is another one, and never shows it.
//!
//! Reading waits for input with a time limit, so that Ctrl-C is noticed: the echo is turned on
//! again before the program ends.

use std::fs::File;
use std::io::{Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use strongroom_base::Cancel;
use zeroize::Zeroizing;

/// Why there is no answer.
#[derive(Debug)]
pub enum PromptError {
    /// There is no terminal, or it is gone.
    NoTerminal,
    /// The user asked to stop.
    Cancelled,
}

impl From<std::io::Error> for PromptError {
    fn from(_: std::io::Error) -> Self {
        Self::NoTerminal
    }
}

impl From<rustix::io::Errno> for PromptError {
    fn from(_: rustix::io::Errno) -> Self {
        Self::NoTerminal
    }
}

/// How often the program looks if it was asked to stop.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The longest line that a terminal delivers.
const LINE_BYTES_MAX: usize = 4096;

/// The line that is typed, without its end.
pub fn ask(question: &str, cancel: &Cancel) -> Result<Zeroizing<Vec<u8>>, PromptError> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let silence = Silence::begin(terminal.try_clone()?)?;
    terminal.write_all(question.as_bytes())?;
    let line = read_line(&mut terminal, cancel);
    // With the echo off, the terminal did not show the end of the line.
    let _ = terminal.write_all(b"\n");
    drop(silence);
    line
}

fn read_line(terminal: &mut File, cancel: &Cancel) -> Result<Zeroizing<Vec<u8>>, PromptError> {
    // Allocated at its full size, so that no copy of it is left in memory when it grows.
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_BYTES_MAX));
    let mut buffer = Zeroizing::new([0; LINE_BYTES_MAX]);
    loop {
        if cancel.is_cancelled() {
            return Err(PromptError::Cancelled);
        }
        let mut waiting = [PollFd::new(terminal, PollFlags::IN)];
        match poll(&mut waiting, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let count = terminal.read(&mut buffer[..])?;
        if count == 0 && line.is_empty() {
            return Err(PromptError::NoTerminal);
        }
        let end = buffer[..count].iter().position(|byte| *byte == b'\n');
        let room = LINE_BYTES_MAX - line.len();
        line.extend_from_slice(&buffer[..end.unwrap_or(count).min(room)]);
        if end.is_some() || count == 0 {
            return Ok(line);
        }
    }
}

/// While it lives, the terminal does not show what is typed.
struct Silence {
    terminal: File,
    before: Termios,
}

impl Silence {
    fn begin(terminal: File) -> Result<Self, PromptError> {
        let before = tcgetattr(&terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        // What was typed before the question is not an answer to it.
        tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
