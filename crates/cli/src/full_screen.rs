//! Takes the terminal for a program that draws on all of it, and gives it back in any case: at
//! the end, after an error, and before the message of a panic.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::sync::{Mutex, Once};

use ratatui_core::terminal::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use strongroom_tui::AnsiBackend;

/// Another screen, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// The usual one, with a cursor and without a style.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// How the terminal was before it was taken; none while it is not.
static BEFORE: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// Gives the terminal back, if it is taken.
fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    if let Some((mut terminal, modes)) = before {
        // If it is gone, there is nothing to give back.
        let _ = terminal.write_all(LEAVE);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
    }
}

/// The terminal, while it is taken.
pub struct FullScreen {
    input: File,
    size: (u16, u16),
    /// Where is drawn.
    pub drawing: Terminal<AnsiBackend<File>>,
}

impl FullScreen {
    /// Whether the program is at a terminal that can be drawn on.
    pub fn is_possible() -> bool {
        let can_move = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        can_move && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Takes the terminal.
    pub fn take() -> std::io::Result<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty")?;
        let before = tcgetattr(&terminal)?;
        give_back_before_panics();
        *BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some((terminal.try_clone()?, before.clone()));
        let size = size_of(&terminal);
        let mut output = terminal.try_clone()?;
        let backend = AnsiBackend::new(terminal.try_clone()?, size.0, size.1);
        let screen = Self { drawing: Terminal::new(backend)?, input: terminal, size };
        let mut raw = before;
        raw.make_raw();
        tcsetattr(&screen.input, OptionalActions::Now, &raw)?;
        output.write_all(ENTER)?;
        Ok(screen)
    }

    /// Adapts to a terminal that has another size now; true if it has.
    pub fn adapt(&mut self) -> std::io::Result<bool> {
        let size = size_of(&self.input);
        if size == self.size {
            return Ok(false);
        }
        self.size = size;
        self.drawing.backend_mut().resize(size.0, size.1);
        self.drawing.autoresize()?;
        Ok(true)
    }

    /// The bytes of keys that are pressed within this time; none if none are.
    pub fn read(&mut self, milliseconds: u32) -> std::io::Result<Vec<u8>> {
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
        let mut waiting = [PollFd::new(&self.input, PollFlags::IN)];
        match poll(&mut waiting, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            other => other?,
        };
        let mut buffer = [0; 1024];
        let count = self.input.read(&mut buffer)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(buffer[..count].to_vec())
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        give_back();
    }
}

fn size_of(terminal: &File) -> (u16, u16) {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        // A terminal that does not say how large it is.
        _ => (80, 24),
    }
}

/// A message on the other screen would be lost with it.
fn give_back_before_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
        }));
    });
}
