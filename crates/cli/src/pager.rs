//! A pager between a long list and the terminal, as `git` has one.
//!
//! It starts with the first line of output, so that passphrases are asked for before, and a command
//! that prints nothing needs none. Warnings go through it as well: it has the screen.

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What `less` does unless `LESS` says otherwise: it ends if all fits on one screen, shows colours,
/// and leaves what it showed on the screen.
const LESS: &str = "FRX";

enum Pager {
    /// None is wanted, or it has ended.
    Off,
    /// To be started with the first line.
    Wanted,
    On(Running),
}

struct Running {
    child: Child,
    /// The terminal, whose places the pipe to the pager has taken.
    output: OwnedFd,
    errors: Option<OwnedFd>,
}

static PAGER: Mutex<Pager> = Mutex::new(Pager::Off);

/// Has a pager started with the first line of output, if that is a terminal.
pub fn allow() {
    let can_move = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    if can_move && std::io::stdout().is_terminal() && !is_typed_ahead() {
        *pager() = Pager::Wanted;
    }
}

/// Whether more was typed or pasted: it is for the shell, and a pager would take it for itself.
fn is_typed_ahead() -> bool {
    let input = std::io::stdin();
    let mut watched = [PollFd::new(&input, PollFlags::IN)];
    input.is_terminal() && poll(&mut watched, Some(&Timespec::default())).is_ok_and(|some| some > 0)
}

/// Whether the list is shown by one, or will be.
pub fn is_used() -> bool {
    !matches!(*pager(), Pager::Off)
}

/// Before a line of output.
pub fn begin() {
    let mut pager = pager();
    if matches!(*pager, Pager::Wanted) {
        // Without a pager, the terminal still has its own memory of lines.
        *pager = start().map_or(Pager::Off, Pager::On);
    }
}

/// Whether one has the screen.
pub fn is_on() -> bool {
    matches!(*pager(), Pager::On(_))
}

/// Waits until it has been left.
pub fn end() {
    let Pager::On(mut running) = std::mem::replace(&mut *pager(), Pager::Off) else { return };
    // It may have been left before the end.
    let _ = std::io::stdout().flush();
    // The pager sees the end once nothing holds the pipe.
    let _ = rustix::stdio::dup2_stdout(&running.output);
    if let Some(errors) = &running.errors {
        let _ = rustix::stdio::dup2_stderr(errors);
    }
    ignore_interrupts();
    let _ = running.child.wait();
}

/// The terminal, while a pager is between it and the output.
pub fn with_terminal<T>(act: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
    match &*pager() {
        Pager::On(running) => Some(act(&running.output)),
        _ => None,
    }
}

fn pager() -> std::sync::MutexGuard<'static, Pager> {
    // Nothing in here panics halfway.
    PAGER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// None if there is no such program, or none is wanted.
fn start() -> Option<Running> {
    let mut child = command()?.stdin(Stdio::piped()).spawn().ok()?;
    let pipe = child.stdin.take().expect("it was asked for");
    let take_place = || {
        let output = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
        let of_errors = std::io::stderr();
        let errors = match of_errors.is_terminal() {
            true => Some(rustix::io::fcntl_dupfd_cloexec(of_errors.as_fd(), 3)?),
            false => None,
        };
        rustix::stdio::dup2_stdout(&pipe)?;
        if errors.is_some() {
            rustix::stdio::dup2_stderr(&pipe)?;
        }
        Ok::<_, rustix::io::Errno>((output, errors))
    };
    match take_place() {
        Ok((output, errors)) => Some(Running { child, output, errors }),
        Err(_) => {
            drop(pipe);
            let _ = child.wait();
            None
        }
    }
}

/// The pager that `STRONGROOM_PAGER` or `PAGER` names, or `less`.
fn command() -> Option<Command> {
    let named = ["STRONGROOM_PAGER", "PAGER"].into_iter().find_map(std::env::var_os);
    let text = named.map_or(Some("less".to_owned()), |text| text.into_string().ok())?;
    let mut words = text.split_ascii_whitespace();
    let program = words.next().filter(|program| *program != "cat")?;
    let mut command = match text.contains(|character| "|&;<>()$`\\\"'*?[#~=%".contains(character)) {
        true => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &text]);
            shell
        }
        false => {
            let mut plain = Command::new(program);
            plain.args(words);
            plain
        }
    };
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    Some(command)
}

/// While the pager is on after our last line, Ctrl-C is for it alone.
fn ignore_interrupts() {
    // SAFETY: the call takes two numbers and changes only what a signal does. The handler that it
    // replaces has nothing left to stop.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
