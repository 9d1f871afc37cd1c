//! Asks for a passphrase on the terminal, whatever standard input is, and never shows it.
//!
//! The terminal is waited for rather than read from at once, so that Ctrl-C is seen: the echo is
//! turned on again before the program ends.

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
    /// Somebody asked to stop.
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

/// The wish to stop is looked at so often.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Longer lines are cut by the terminal itself.
const LINE_BYTES_MAX: usize = 4096;

/// The line that is typed, without its end.
pub fn ask(question: &str, cancel: &Cancel) -> Result<Zeroizing<Vec<u8>>, PromptError> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let silence = Silence::begin(terminal.try_clone()?)?;
    terminal.write_all(question.as_bytes())?;
    let line = read_line(&mut terminal, cancel);
    // The end of the line was not shown either.
    let _ = terminal.write_all(b"\n");
    drop(silence);
    line
}

fn read_line(terminal: &mut File, cancel: &Cancel) -> Result<Zeroizing<Vec<u8>>, PromptError> {
    // As long as it may get, so that no part of it is left behind where it grew.
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
        // What was typed before the question is no answer to it.
        tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
