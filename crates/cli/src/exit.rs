//! Exit codes, errors as people see them, and the next step for each.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use strongroom_access::MountError;
use strongroom_arena::ArenaError;
use strongroom_arena::envelope::EnvelopeError;
use strongroom_arena::envelope::format::HeaderError;
use strongroom_backend::BackendError;
use strongroom_engine::EngineError;
use strongroom_repository::RepositoryError;
use strongroom_source::SourceError;

use crate::terminal::{Events, printable_bytes};

/// What the program ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All was done.
    Done = 0,
    /// Nothing was done, or not what was asked.
    Failed = 1,
    /// Done, but for some files, which were named.
    Incomplete = 3,
    /// Something stored is damaged or lost.
    Damaged = 4,
    /// The passphrase is wrong or missing.
    Passphrase = 5,
    /// There is no repository at the place.
    NoRepository = 6,
    /// Stopped by Ctrl-C or a signal.
    Interrupted = 130,
}

/// The end of the long help.
pub const EXIT_CODES_HELP: &str = "\
The passphrase is taken from --password-file or --password-command, or else from the variable
STRONGROOM_PASSWORD, or else asked for.

Exit codes:
  0    all was done
  1    it failed
  2    the command line makes no sense
  3    done, but for some files, which were named
  4    something stored is damaged or lost
  5    the passphrase is wrong or missing
  6    there is no repository at that place
  130  stopped by Ctrl-C or a signal";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What ends a command early.
#[derive(Debug)]
pub struct CliError {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

impl CliError {
    /// A failure with what to do about it.
    pub fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: Some(hint.into()) }
    }

    /// Tells it and gives the exit code.
    pub fn report(&self, json: Option<Events>) -> ExitCode {
        if let Some(events) = json {
            let line = serde_json::json!({
                "event": "error",
                "message": self.message,
                "hint": self.hint,
                "exit": self.exit as u8,
            });
            // Whoever closed the stream does not want to hear.
            let _ = events.tell(&line.to_string());
        } else if !self.message.is_empty() {
            let mut text = format!("error: {}\n", printable_bytes(self.message.as_bytes()));
            if let Some(hint) = &self.hint {
                let _ = writeln!(text, " hint: {hint}");
            }
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        self.exit.into()
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<std::io::Error> for CliError {
    /// The output was closed: nobody is left to be told.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Failed, message: String::new(), hint: None };
        }
        Self {
            exit: Exit::Failed,
            message: format!("cannot write the output: {error}"),
            hint: None,
        }
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Output(error) => error.into(),
            EngineError::Repository(error) => error.into(),
            error => {
                let hint = match &error {
                    EngineError::Source(SourceError::Missing { .. }) => {
                        Some("check the path; nothing was stored".to_owned())
                    }
                    _ => None,
                };
                Self { exit: Exit::Failed, message: error.to_string(), hint }
            }
        }
    }
}

impl From<RepositoryError> for CliError {
    fn from(error: RepositoryError) -> Self {
        let (exit, hint) = classify(&error);
        Self { exit, message: error.to_string(), hint: hint.map(str::to_owned) }
    }
}

impl From<BackendError> for CliError {
    fn from(error: BackendError) -> Self {
        RepositoryError::from(error).into()
    }
}

impl From<MountError> for CliError {
    fn from(error: MountError) -> Self {
        let hint = match &error {
            MountError::Repository(_) => None,
            MountError::Mount { .. } => Some(
                "DIR must be a folder that exists and is yours; mounting needs /dev/fuse and the program fusermount3",
            ),
            MountError::Busy { .. } => Some("close what is open there, and leave the folder"),
            MountError::Unmount { mountpoint, .. } | MountError::Session { mountpoint, .. } => {
                let hint = format!("`fusermount3 -uz {}` takes it away", mountpoint.display());
                return Self::new(Exit::Failed, error.to_string(), hint);
            }
        };
        match error {
            MountError::Repository(error) => error.into(),
            other => Self {
                exit: Exit::Failed,
                message: other.to_string(),
                hint: hint.map(str::to_owned),
            },
        }
    }
}

fn classify(error: &RepositoryError) -> (Exit, Option<&'static str>) {
    match error {
        RepositoryError::Object {
            source: EnvelopeError::Header(HeaderError::NewerVersion { .. }),
            ..
        } => (Exit::Failed, Some("a newer Strongroom made this; nothing is wrong with it")),
        RepositoryError::NotARepository { .. } => (
            Exit::NoRepository,
            Some("check --repo, or make one: `strongroom init`, or `strongroom backup --init`"),
        ),
        RepositoryError::RepositoryExists { .. } => {
            (Exit::Failed, Some("leave out `init`; to begin anew, choose another place"))
        }
        RepositoryError::PlaceNotEmpty { .. } => {
            (Exit::Failed, Some("choose an empty folder, or one that does not exist yet"))
        }
        RepositoryError::WrongPassphrase { .. } => {
            (Exit::Passphrase, Some("try again; nothing was changed"))
        }
        RepositoryError::NoKeySlot { .. } => (
            Exit::Damaged,
            Some("bring back a file of the folder `keys` from wherever it was copied to"),
        ),
        RepositoryError::LastKeySlot { .. } => {
            (Exit::Failed, Some("add another key first: `strongroom key add`"))
        }
        RepositoryError::ForgedConfig => (
            Exit::Damaged,
            Some("somebody without a key changed `config`; bring back the file as it was"),
        ),
        RepositoryError::NoSuchSnapshot { .. } => (
            Exit::Failed,
            Some(
                "`strongroom snapshots` lists them; name one by its id, `latest`, `latest~1`, a date, or host:path@date",
            ),
        ),
        RepositoryError::AmbiguousSnapshot { .. } => (Exit::Failed, Some("write more of its id")),
        RepositoryError::NoSuchPath { .. } => {
            (Exit::Failed, Some("`strongroom ls SNAPSHOT` shows what is there"))
        }
        RepositoryError::PutOnly | RepositoryError::Arena(ArenaError::PutOnly) => {
            (Exit::Failed, Some("use a passphrase that opens the repository for reading"))
        }
        RepositoryError::Backend(BackendError::NoSpace { .. }) => (
            Exit::Failed,
            Some(
                "nothing that was stored before is touched; free some space and run it again, it goes on where it stopped",
            ),
        ),
        RepositoryError::Index(_) => (
            Exit::Failed,
            Some("the cache can be removed at any time; it is made anew: `strongroom repair`"),
        ),
        RepositoryError::Cancelled(_) => {
            (Exit::Interrupted, Some("what was done is kept; run it again to go on"))
        }
        error if error.is_damage() => {
            (Exit::Damaged, Some("run `strongroom verify`, then `strongroom repair`"))
        }
        _ => (Exit::Failed, None),
    }
}
