//! Running the other program: with what it needs to open its repository, in a session of its own,
//! and with errors that say what to do.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, setsid};
use strongroom_base::Cancel;
use strongroom_repository::RepositoryError;

use crate::exit::{CliError, Exit};
use crate::passphrase::Passphrase;
use crate::terminal::printable;

/// How often is looked whether the user wants to stop.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// At most this many of the last lines of its errors are kept.
const ERROR_LINES_MAX: usize = 20;
/// At most this much of a line of its errors is kept.
const ERROR_LINE_BYTES_MAX: u64 = 4096;

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A repository of restic; restic must be installed
    Restic,
    /// A repository of Borg; borg must be installed, with what its `borg mount` needs
    Borg,
}

impl Kind {
    /// The name of the program, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restic => "restic",
            Self::Borg => "borg",
        }
    }

    /// Debian's packages that have the program and all it needs to mount.
    pub fn packages(self) -> &'static str {
        match self {
            Self::Restic => "restic fuse3",
            Self::Borg => "borgbackup python3-pyfuse3 fuse3",
        }
    }
}

/// The program, and the repository that it is to open.
#[derive(Debug)]
pub struct Program {
    /// Which.
    pub kind: Kind,
    repository: OsString,
    passphrase: Option<Passphrase>,
    cancel: Cancel,
}

/// The last words of a program on its standard error.
#[derive(Debug)]
pub struct LastWords {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl LastWords {
    fn of(errors: impl Read + Send + 'static) -> Self {
        let lines = Arc::<Mutex<VecDeque<String>>>::default();
        let kept = lines.clone();
        let reader = std::thread::spawn(move || {
            let mut errors = BufReader::new(errors);
            let mut line = Vec::new();
            loop {
                line.clear();
                match (&mut errors).take(ERROR_LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let text = String::from_utf8_lossy(line.trim_ascii()).into_owned();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(text);
                if kept.len() > ERROR_LINES_MAX {
                    kept.pop_front();
                }
            }
        });
        Self { lines, reader: Some(reader) }
    }

    /// What there is; if the program has ended, all of it.
    pub fn text(&mut self, has_ended: bool) -> String {
        if let Some(reader) = self.reader.take_if(|_| has_ended) {
            // What the program left behind may keep its errors open.
            for _ in 0..20 {
                if reader.is_finished() {
                    break;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl Program {
    /// Finds it.
    pub fn find(
        kind: Kind,
        repository: &OsStr,
        passphrase: Option<Passphrase>,
        cancel: &Cancel,
    ) -> Result<Self, CliError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there =
            std::env::split_paths(&path).any(|folder| folder.join(kind.name()).is_file());
        if !is_there {
            return Err(missing(kind));
        }
        let repository = repository.to_owned();
        Ok(Self { kind, repository, passphrase, cancel: cancel.clone() })
    }

    /// Uses this passphrase from now on.
    pub fn set_passphrase(&mut self, passphrase: Passphrase) {
        self.passphrase = Some(passphrase);
    }

    /// A command of the program. Where the repository is and its passphrase are in variables: other
    /// users see arguments.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(self.kind.name());
        command.args(arguments).stdin(Stdio::null());
        let passphrase = self.passphrase.as_ref().map(|text| OsStr::from_bytes(text));
        match self.kind {
            Kind::Restic => {
                command.env("RESTIC_REPOSITORY", &self.repository);
                // A host in the variable would hide the snapshots of others.
                command.env_remove("RESTIC_REPOSITORY_FILE").env_remove("RESTIC_HOST");
                if let Some(passphrase) = passphrase {
                    command.env("RESTIC_PASSWORD", passphrase);
                    command
                        .env_remove("RESTIC_PASSWORD_FILE")
                        .env_remove("RESTIC_PASSWORD_COMMAND");
                }
            }
            Kind::Borg => {
                // Borg writes times without a zone: those of the zone that it is in.
                command.env("BORG_REPO", &self.repository).env("TZ", "UTC");
                if let Some(passphrase) = passphrase {
                    command.env("BORG_PASSPHRASE", passphrase);
                    command.env_remove("BORG_PASSCOMMAND").env_remove("BORG_PASSPHRASE_FD");
                }
                // It would ask, and has no terminal. The person has named this repository, and
                // nothing is written into it.
                for question in ["RELOCATED_REPO", "UNKNOWN_UNENCRYPTED_REPO"] {
                    let name = format!("BORG_{question}_ACCESS_IS_OK");
                    if std::env::var_os(&name).is_none() {
                        command.env(name, "yes");
                    }
                }
            }
        }
        command
    }

    /// Starts a command in a session of its own: Ctrl-C reaches it only through us, and it finds no
    /// terminal at which it could wait for an answer. If this program is killed, it is ended too.
    pub fn start(&self, mut command: Command) -> Result<(Child, LastWords), CliError> {
        command.stderr(Stdio::piped());
        // SAFETY: between fork and exec, the new process makes two system calls and allocates
        // nothing.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::INT))?)
            });
        }
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing(self.kind),
            _ => {
                let message = format!("cannot run {}: {error}", self.kind.name());
                CliError::new(Exit::Failed, message, "see that it runs by itself")
            }
        })?;
        let errors = child.stderr.take().expect("it was asked for");
        Ok((child, LastWords::of(errors)))
    }

    /// Runs a command to its end, and gives each line that it writes.
    pub fn each_line<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        self.read_all(arguments, |output| read_lines(output, each))
    }

    /// Runs a command to its end, and gives what it writes.
    pub fn read_all<A: AsRef<OsStr>, T>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        read: impl FnOnce(ChildStdout) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        Ok(self.read_with_words(arguments, read)?.0)
    }

    /// The same, and what it writes to its errors.
    pub fn read_with_words<A: AsRef<OsStr>, T>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        read: impl FnOnce(ChildStdout) -> Result<T, CliError>,
    ) -> Result<(T, String), CliError> {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped());
        let (mut child, mut words) = self.start(command)?;
        let output = child.stdout.take().expect("it was asked for");
        let group = Pid::from_child(&child);
        let ended = AtomicBool::new(false);
        let read = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if self.cancel.is_cancelled() {
                        // If it has ended, there is nothing to stop.
                        let _ = kill_process_group(group, Signal::TERM);
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
            });
            let read = read(output);
            if read.is_err() {
                let _ = kill_process_group(group, Signal::TERM);
            }
            let status = child.wait();
            ended.store(true, Ordering::Relaxed);
            read.map(|read| (read, status))
        });
        self.check_cancel()?;
        let (read, status) = read?;
        let status = status.map_err(CliError::from)?;
        let words = words.text(true);
        match status.success() {
            true => Ok((read, words)),
            // Borg warns with 1, and has answered.
            false if self.kind == Kind::Borg && status.code() == Some(1) => Ok((read, words)),
            false => Err(self.failure(Some(status), &words)),
        }
    }

    /// All that a command writes.
    pub fn output<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Vec<u8>, CliError> {
        let mut output = Vec::new();
        self.each_line(arguments, &mut |line| {
            output.extend_from_slice(line);
            output.push(b'\n');
            Ok(())
        })?;
        Ok(output)
    }

    /// Fails once the user wants to stop.
    pub fn check_cancel(&self) -> Result<(), CliError> {
        Ok(self.cancel.check().map_err(RepositoryError::from)?)
    }

    /// Why it failed, and what to do.
    pub fn failure(&self, status: Option<ExitStatus>, words: &str) -> CliError {
        let name = self.kind.name();
        let place = printable(self.repository.as_ref());
        let says = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
        let code = status.and_then(|status| status.code());
        let is_restic = self.kind == Kind::Restic;
        let no_passphrase = [
            "empty password is not allowed",
            "Resolving password failed",
            "can not acquire a passphrase",
        ];
        if says(&no_passphrase) {
            let message = format!("{name} was given no passphrase for {place}");
            let hint = "give --from-password-file or --from-password-command, or set the variable \
                        that it reads: RESTIC_PASSWORD, BORG_PASSPHRASE";
            return CliError::new(Exit::Passphrase, message, hint);
        }
        if (is_restic && code == Some(12))
            || says(&["wrong password", "passphrase supplied", "Incorrect passphrase"])
        {
            let message = format!("wrong passphrase for the {name} repository {place}");
            return CliError::new(Exit::Passphrase, message, "try again; nothing was changed");
        }
        if says(&["Is there a repository at", "does not exist", "not a valid repository"]) {
            let message = format!("there is no {name} repository at {place}");
            let hint = format!("see that `{name}` itself opens it; nothing was changed");
            return CliError::new(Exit::NoRepository, message, hint);
        }
        let last = words.lines().rev().find(|line| !line.is_empty());
        let how = status.map(|status| format!(" ({status})")).unwrap_or_default();
        let message = match last {
            Some(last) => format!("{name} failed{how}: {last}"),
            None => format!("{name} failed{how} and did not say why"),
        };
        let hint = if says(&["fusermount", "/dev/fuse", "no FUSE support", "llfuse", "pyfuse3"]) {
            format!(
                "mounting needs /dev/fuse and, in Debian, the packages {}",
                self.kind.packages()
            )
        } else if says(&["already locked", "acquire the lock", "LockTimeout"]) {
            format!("wait until no other {name} uses the repository, and run it again")
        } else {
            "run it again when that is put right: what was imported is kept".to_owned()
        };
        CliError::new(Exit::Failed, message, hint)
    }
}

fn missing(kind: Kind) -> CliError {
    let message = format!("{} is not installed, and only it can read its repository", kind.name());
    let hint = format!("install it: in Debian, `apt install {}`", kind.packages());
    CliError::new(Exit::Failed, message, hint)
}

pub fn read_lines(
    output: impl Read,
    each: &mut dyn FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = output.read_until(b'\n', &mut line).map_err(CliError::from)?;
        if count == 0 {
            return Ok(());
        }
        each(line.strip_suffix(b"\n").unwrap_or(&line))?;
    }
}
