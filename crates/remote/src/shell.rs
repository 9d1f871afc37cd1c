//! The user's own `ssh`, with all of its configuration, as a way to another machine.
//!
//! It is started once for a connection, and what it says on its standard error is kept for messages.
//! It asks no questions: who needs a passphrase for a key uses an agent.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use strongroom_backend::Refusal;
use strongroom_base::Stopwatch;

use crate::address::Address;
use crate::failure::Failure;
use crate::settings::Settings;

/// What `ssh` says is kept up to this length.
const COMPLAINT_BYTES_MAX: usize = 8 << 10;
/// How long a program that is at its end may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);
/// The exit code of `ssh` itself, and that of a shell that does not find the command.
const OF_SSH: i32 = 255;
const NO_COMMAND: i32 = 127;

/// What runs at the far end.
pub(crate) enum What<'a> {
    /// A subsystem of the server, such as `sftp`.
    Subsystem(&'a str),
    /// A command, for the shell there.
    Command(&'a str),
}

/// What was heard from the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing yet, by this or an earlier connection to the place.
    Never,
    /// Nothing by this connection, but something by an earlier one.
    Before,
    /// Something by this connection: `ssh` has found the machine and was let in.
    Now,
}

/// A running `ssh`. It ends when this value is dropped.
pub(crate) struct Shell {
    // A plain mutex: held for a look.
    child: Mutex<Child>,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    complaint: Arc<Mutex<Vec<u8>>>,
    /// What collects the complaints, until there can be no more.
    collecting: Option<JoinHandle<()>>,
    is_command: bool,
}

impl Shell {
    /// Starts `ssh`, or the program that `STRONGROOM_SSH` names with its arguments.
    pub(crate) fn spawn(
        address: &Address,
        settings: &Settings,
        what: What<'_>,
    ) -> Result<Self, Failure> {
        let named = settings.variables.text("STRONGROOM_SSH").unwrap_or("ssh");
        let mut words = named.split_whitespace();
        let program = words.next().unwrap_or("ssh");
        let mut command = Command::new(program);
        command.args(words);
        command.args(["-oBatchMode=yes", "-oServerAliveInterval=15", "-oServerAliveCountMax=4"]);
        // Everything that is sent is compressed and encrypted already.
        command.args(["-oCompression=no", "-T", "-x", "-a"]);
        if let Some(port) = address.port {
            command.arg(format!("-p{port}"));
        }
        if let Some(user) = &address.user {
            command.arg(format!("-l{user}"));
        }
        let host = address.host.trim_start_matches('[').trim_end_matches(']');
        match what {
            Subsystem(name) => command.args(["-s", "--", host, name]),
            Command_(line) => command.args(["--", host, line]),
        };
        let pipe = Stdio::piped;
        command.stdin(pipe()).stdout(pipe()).stderr(pipe());
        // A request to stop that is meant for us, such as Ctrl-C, does not reach it: a backup has yet to
        // store what it read. It ends when its input does.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| Failure::Refused {
            refusal: Refusal::Other,
            answer: format!("cannot start {program}: {error}"),
        })?;
        let complaint = Arc::new(Mutex::new(Vec::new()));
        // If there is no thread for them, its complaints are lost, and nothing else.
        let collecting = child.stderr.take().and_then(|stderr| {
            let kept = complaint.clone();
            let thread = std::thread::Builder::new().name("complaints".to_owned());
            thread.spawn(move || collect(stderr, &kept)).ok()
        });
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            child: Mutex::new(child),
            input,
            output,
            complaint,
            collecting,
            is_command: matches!(what, Command_(_)),
        })
    }

    /// What is written to it arrives at the far end. A program there that takes nothing for this time
    /// is given up, although the server of `ssh` may be well.
    pub(crate) fn take_input(&mut self, progress: Duration) -> Input {
        Input { pipe: self.input.take().expect("it is taken once"), progress }
    }

    /// What the far end writes.
    pub(crate) fn take_output(&mut self) -> ChildStdout {
        self.output.take().expect("it is taken once")
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        // It may have ended by itself.
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
    }

    /// Why it ended, as far as it said.
    pub(crate) fn failure(&self, heard: Heard) -> Failure {
        let waited = Stopwatch::start();
        let code = self.exit_code(&waited);
        // What it wrote before it ended may not be collected yet.
        while self.collecting.as_ref().is_some_and(|thread| !thread.is_finished())
            && waited.elapsed() < LAST_WORDS
        {
            std::thread::sleep(LOOK);
        }
        let said = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        let answer = said.lines().last().unwrap_or("the connection ended").trim().to_owned();
        // Another code is that of the program at the far end, whose words mean other things.
        let is_of_ssh = code.is_none_or(|code| code == OF_SSH);
        let refusal = match refusal_in(&said, heard) {
            Some(refusal) if is_of_ssh => refusal,
            _ if code == Some(NO_COMMAND) && self.is_command => {
                let answer = format!(
                    "there is no `strongroom` at the far end, or not in its path ({answer})"
                );
                return Failure::Refused { refusal: Refusal::Version, answer };
            }
            // The far end answered, and ended by itself with a complaint.
            _ if code.is_some_and(|code| code != OF_SSH && code != 0) && !said.is_empty() => {
                Refusal::Other
            }
            _ => return Failure::Lost(io::Error::new(io::ErrorKind::ConnectionAborted, answer)),
        };
        Failure::Refused { refusal, answer }
    }

    /// Its exit code, if it ends within a moment by itself.
    fn exit_code(&self, waited: &Stopwatch) -> Option<i32> {
        loop {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            match child.try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) if waited.elapsed() < LAST_WORDS => {}
                _ => return None,
            }
            drop(child);
            std::thread::sleep(LOOK);
        }
    }
}

use What::{Command as Command_, Subsystem};

/// The input of a running `ssh`.
pub(crate) struct Input {
    pipe: ChildStdin,
    /// For how long nothing may leave.
    progress: Duration,
}

impl Input {
    /// Waits until the pipe has room.
    fn wait(&self) -> io::Result<()> {
        let waited = Stopwatch::start();
        loop {
            let rest = self.progress.saturating_sub(waited.elapsed());
            let rest = Timespec::try_from(rest).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::OUT)], Some(&rest)) {
                Ok(0) => {
                    let why = format!("nothing was taken for {} seconds", self.progress.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Of this end of the pipe alone: the program reads as it did.
        fcntl_setfl(&self.pipe, fcntl_getfl(&self.pipe)? | OFlags::NONBLOCK)?;
        loop {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn collect(mut stderr: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..count]);
        // The last words say most.
        let excess = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
        kept.drain(..excess);
    }
}

/// What the words of `ssh` mean. They have not changed in twenty years.
fn refusal_in(said: &str, heard: Heard) -> Option<Refusal> {
    // All that follows is about how a connection begins. After that, `ssh` may still say that it
    // could not write a file of its own, and the far end may say anything.
    if heard == Heard::Now {
        return None;
    }
    let meanings = [
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", Refusal::Identity),
        ("Host key verification failed", Refusal::Identity),
        // Of a file, the same words have no list of methods behind them.
        (": Permission denied (", Refusal::Credentials),
        ("Too many authentication failures", Refusal::Credentials),
        ("subsystem request failed", Refusal::Version),
    ];
    let found = meanings.into_iter().find(|(words, _)| said.contains(words));
    let last = said.lines().last().unwrap_or_default();
    match found {
        Some((_, refusal)) => Some(refusal),
        None if last.starts_with("Permission denied") => Some(Refusal::Credentials),
        // Without a network no name is found, that of a place which was there neither.
        None if last.contains("Could not resolve hostname")
            && heard == Heard::Never
            && !last.contains("Temporary failure") =>
        {
            Some(Refusal::NoSuchPlace)
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ssh_are_about_how_a_connection_begins() {
        let unknown = "ssh: Could not resolve hostname host: Name or service not known";
        let later = "ssh: Could not resolve hostname host: Temporary failure in name resolution";
        let denied = "me@host: Permission denied (publickey,password).";
        let of_file = "hostfile_replace_entries: link /home/me/.ssh/known_hosts to \
                       /home/me/.ssh/known_hosts.old: Permission denied\n\
                       Connection to host closed by remote host.";
        let no_folder = "Could not create directory '/x/.ssh' (Permission denied).\n\
                         ssh: connect to host host port 22: Connection timed out";
        let jump = "me@jump: Permission denied (publickey).\n\
                    Connection closed by UNKNOWN port 65535";
        let key = "Host key verification failed.";
        for (said, never, before) in [
            (unknown, Some(Refusal::NoSuchPlace), None),
            (later, None, None),
            (denied, Some(Refusal::Credentials), Some(Refusal::Credentials)),
            (jump, Some(Refusal::Credentials), Some(Refusal::Credentials)),
            (of_file, None, None),
            (no_folder, None, None),
            (key, Some(Refusal::Identity), Some(Refusal::Identity)),
            ("", None, None),
        ] {
            assert_eq!(refusal_in(said, Heard::Never), never, "{said}");
            assert_eq!(refusal_in(said, Heard::Before), before, "{said}");
            assert_eq!(refusal_in(said, Heard::Now), None, "{said}");
        }
    }
}
