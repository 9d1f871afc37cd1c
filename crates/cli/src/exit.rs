//! Exit codes, errors as people see them, and the next step for each.

use std::process::ExitCode;

use strongroom_access::MountError;
use strongroom_arena::ArenaError;
use strongroom_backend::{BackendError, Refusal, Withheld};
use strongroom_base::Printable;
use strongroom_engine::EngineError;
use strongroom_repository::{ErrorKind, RepositoryError};
use strongroom_source::SourceError;

use crate::terminal::{Events, write_wrapped};

/// What the program ends with. `EXIT_CODES` has the words for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    Done = 0,
    /// Nothing was done, or not what was asked.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// Finished, except for some files, which were listed; or from an incomplete snapshot.
    Incomplete = 3,
    /// Something stored is damaged or lost.
    Damaged = 4,
    /// The passphrase is wrong or missing.
    Passphrase = 5,
    /// There is no repository at the place.
    NoRepository = 6,
    /// The disks of a running machine were lost while they were read.
    MachineLost = 7,
    /// Something stored could not be read, because it waits in an archive or this key may not read
    /// it. Nothing is known to be damaged.
    Withheld = 8,
    /// A fault of this program was found before it did harm.
    Fault = 70,
    /// The machine is not in the state that was asked for: on mains, on a line without costs.
    NotNow = 75,
    /// Stopped by Ctrl-C or a signal.
    Interrupted = 130,
}

/// The exit codes and what each means, for the help and the manual pages.
pub const EXIT_CODES: [(&str, &str); 12] = [
    ("0", "success"),
    ("1", "failed"),
    ("2", "invalid command line"),
    ("3", "finished, but files could not be handled, or a snapshot is incomplete or suspicious"),
    ("4", "something that was stored is damaged or lost"),
    ("5", "the passphrase is wrong or missing"),
    ("6", "there is no repository at that place"),
    ("7", "a running machine's disks were lost while they were read; the machine goes on"),
    ("8", "not read: it waits in an archive, or this key may not read it; no damage is known"),
    ("70", "a fault of Strongroom itself was found before it did harm; nothing was removed"),
    ("75", "not now: the machine runs on a battery, or its line costs by the byte"),
    ("130", "stopped by Ctrl-C or a signal"),
];

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

    /// The reader of the output closed it, so there is no reader to report to.
    fn closed_output() -> Self {
        Self { exit: Exit::Failed, message: String::new(), hint: None }
    }

    /// The same, with what it is about in front.
    pub fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same, with this to be done about it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the reader of the output closed it.
    pub fn is_of_closed_output(&self) -> bool {
        self.message.is_empty()
    }

    /// Whether a passphrase is wrong or missing.
    pub fn is_of_passphrase(&self) -> bool {
        self.exit == Exit::Passphrase
    }

    /// With what to do about it, on a line.
    pub fn in_full(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}: {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// Reports it and gives the exit code.
    pub fn report(&self, json: Option<Events>) -> ExitCode {
        if self.is_of_closed_output() {
            return self.exit.into();
        }
        if let Some(events) = json {
            let line = serde_json::json!({
                "event": "error",
                "message": self.message,
                "hint": self.hint,
                "exit": self.exit as u8,
            });
            // If that stream is closed, there is nowhere left to report to.
            let _ = events.write(&line);
        } else {
            write_wrapped("error: ", &self.message);
            if let Some(hint) = &self.hint {
                write_wrapped(" hint: ", hint);
            }
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
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::closed_output();
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
        let error = match error {
            EngineError::Output(error) => return error.into(),
            EngineError::Repository(error) => return error.into(),
            error => error,
        };
        let hint = match &error {
            EngineError::Source(SourceError::Missing { .. }) => {
                Some("check the path; nothing was stored".to_owned())
            }
            EngineError::NoRoom { free, .. } => Some(format!(
                "choose another folder with --scratch DIR, or a smaller sample: --bytes {}",
                free / 2
            )),
            EngineError::Scratch { .. } => Some(
                "choose a folder that exists and that you may write to, with --scratch DIR"
                    .to_owned(),
            ),
            EngineError::DiskBroken { .. } => {
                let hint = "no snapshot was made";
                return Self::new(Exit::MachineLost, error.to_string(), hint);
            }
            _ => None,
        };
        Self { exit: exit_of(error.kind()), message: error.to_string(), hint }
    }
}

impl From<RepositoryError> for CliError {
    fn from(error: RepositoryError) -> Self {
        let hint = hint_for(&error).map(str::to_owned);
        Self { exit: exit_of(error.kind()), message: error.to_string(), hint }
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
                "DIR must be an existing folder that you own; mounting needs /dev/fuse and the program fusermount3 (package fuse3)",
            ),
            MountError::Busy { .. } => {
                Some("close the files that are open there, and leave the folder")
            }
            MountError::Unmount { mountpoint, .. } | MountError::Session { mountpoint, .. } => {
                let hint =
                    format!("`fusermount3 -uz {}` removes the mount", Printable::path(mountpoint));
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

fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::NoRepository => Exit::NoRepository,
        ErrorKind::Passphrase => Exit::Passphrase,
        ErrorKind::Damaged => Exit::Damaged,
        ErrorKind::Fault => Exit::Fault,
        ErrorKind::Withheld => Exit::Withheld,
        ErrorKind::Cancelled => Exit::Interrupted,
        ErrorKind::Newer
        | ErrorKind::PutOnly
        | ErrorKind::NoSpace
        | ErrorKind::Cache
        | ErrorKind::Other => Exit::Failed,
    }
}

/// The next step: one for the error itself if it has one, otherwise that of its kind.
fn hint_for(error: &RepositoryError) -> Option<&'static str> {
    Some(match error {
        RepositoryError::DomainName { .. } => {
            "a domain's name has 1 to 255 bytes, and no spaces, `/`, `:` or `@`"
        }
        RepositoryError::NoSuchDomain { .. } => {
            "`strongroom snapshots` shows domains as hosts, `strongroom key list` shows those that have ended"
        }
        RepositoryError::DomainEnded { .. } => {
            "a machine gets a key of a domain with a new name: `strongroom key add --put-only --domain NEW-NAME`"
        }
        RepositoryError::AfterTheEnd { .. } => {
            "if it is one of yours, `strongroom key end-domain DOMAIN --keep SNAPSHOT` makes it count; \
             otherwise `strongroom forget SNAPSHOT`"
        }
        RepositoryError::EndingLost { .. } => {
            "nothing was removed; `strongroom repair --from REPLICA` may bring it back; otherwise say it \
             again: `strongroom key end-domain NAME`, with --since if snapshots came meanwhile"
        }
        RepositoryError::OtherDomain { .. } => {
            "only a key that reads gives put-only keys of every domain"
        }
        RepositoryError::RepositoryExists { .. } => {
            "use it without `init`, or choose another place for a new repository"
        }
        RepositoryError::PlaceNotEmpty { .. } => {
            "choose an empty folder, or one that does not exist yet"
        }
        RepositoryError::NotExclusive { .. } => {
            "at WebDAV, see that these credentials may lock; else `strongroom replicate` it to a place that \
             keeps its promises. Reading is safe here"
        }
        RepositoryError::OtherRepository { .. } => {
            "a replica is a copy of one repository: choose an empty place for this one"
        }
        RepositoryError::NotKept { .. } => "run it again; it goes on where it was",
        RepositoryError::NotMirrored { .. } => {
            "what was missing there was copied; `strongroom repair --from` brings back what is lost here"
        }
        RepositoryError::TooManySlots { .. } => {
            "they may be planted: move what is not yours out of the folder `keys`. A machine \
             that has opened this repository with its cache tries its own slot first"
        }
        RepositoryError::NoKeySlot { .. } => {
            "restore a file of the folder `keys` from any other copy of the repository"
        }
        RepositoryError::SequenceUsedUp { domain } if domain.is_empty() => {
            "begin a new repository; this one can still be restored from"
        }
        RepositoryError::SequenceUsedUp { .. } => {
            "give the machines keys of another domain: `strongroom key add --put-only --domain NAME`"
        }
        RepositoryError::NotCollectable { .. } => {
            "run `strongroom repair`: it brings back what it can; if something stays lost, back up the same \
             paths again. Forget only what no repair and no replica brings back"
        }
        RepositoryError::Miscounted { .. } | RepositoryError::Miscopied { .. } => {
            "nothing is lost; do not prune with this version. Please report it (SECURITY.md) with this \
             message, `strongroom --version` and what `strongroom verify` prints"
        }
        RepositoryError::RoomOfPrune { .. } => {
            "run `strongroom prune`, which frees what they need alone; then forget the others"
        }
        RepositoryError::Undecided { .. } => {
            "`strongroom repair` writes it again from its copy, or takes away what is not the owner's; \
             if it stays unreadable, remove the file while no prune runs. Nothing else needs it"
        }
        RepositoryError::NotForgotten { .. } => {
            "run it again: it makes a later wish. `strongroom repair` takes away what is not the owner's"
        }
        RepositoryError::HeldLonger { .. } => {
            "a shorter hold would end that one: if it may end, say `strongroom hold --release` first"
        }
        RepositoryError::Held { .. } => {
            "nothing was forgotten; `strongroom hold --release SNAPSHOT` releases it"
        }
        RepositoryError::Decided { .. } => {
            "`strongroom prune` goes on with it; what snapshots need stays"
        }
        RepositoryError::OtherCollector { .. } => "run it again: it goes on with that collection",
        RepositoryError::Fenced { .. } => "run the backup again: it reuses what was stored",
        RepositoryError::CommitUnknown { .. } => {
            "see with `strongroom snapshots`; running the backup again does no harm"
        }
        RepositoryError::LastKeySlot { .. } => "add another key first: `strongroom key add`",
        RepositoryError::OwnKeySlot { .. } => {
            "give the passphrase of another key that reads: anyone who may store can add a slot that opens nothing"
        }
        RepositoryError::Unknown { .. } => {
            "a newer Strongroom made this; update this one to store into it"
        }
        RepositoryError::Slot(_) => "leave out --kdf-memory, or give it a size from 8MiB to 1GiB",
        RepositoryError::ForgedConfig => {
            "`config` was changed without a key; restore the file from another copy of the repository"
        }
        RepositoryError::NoSuchSnapshot { .. } => {
            "`strongroom snapshots` lists them; name one by its id, `latest`, `latest~1`, a date, or host:path@date"
        }
        RepositoryError::OnlyPartial { .. } => {
            "run the backup again to complete it, or name the incomplete one by its id or as `latest-partial`"
        }
        RepositoryError::AmbiguousDomain { .. } => {
            "name the host too, as host:@latest; `strongroom snapshots` lists them"
        }
        RepositoryError::AmbiguousSnapshot { .. } => "give more digits of the id",
        RepositoryError::NoSuchPath { .. } => {
            "`strongroom ls SNAPSHOT` lists what the snapshot holds"
        }
        error if error.is_withheld() => hint_for_withheld(error)?,
        RepositoryError::Backend(BackendError::Refused { refusal, .. }) => {
            hint_for_refusal(*refusal)
        }
        RepositoryError::Backend(BackendError::Unsupported { .. }) => {
            "docs/places.md says what each kind of place can do"
        }
        error => return hint_for_kind(error.kind()),
    })
}

/// The next step if the place withholds what is wanted: not a repair, as nothing is damaged.
fn hint_for_withheld(error: &RepositoryError) -> Option<&'static str> {
    let is_of_system = matches!(
        error,
        RepositoryError::FolderWithheld(_)
            | RepositoryError::Backend(BackendError::Unreadable { .. } | BackendError::Io { .. })
            | RepositoryError::Arena(ArenaError::Backend(BackendError::Unreadable { .. }))
    );
    Some(match error.withheld()? {
        Withheld::Archived => ARCHIVED,
        Withheld::Forbidden if is_of_system => {
            "run it as the user whom the repository belongs to, or let this one read it"
        }
        Withheld::Forbidden => FORBIDDEN,
    })
}

/// What to do about objects that wait in an archive.
pub const ARCHIVED: &str =
    "no damage is known: bring the objects back with the tools of the store, then run it again";

/// What to do about objects that this key may not read.
pub const FORBIDDEN: &str =
    "no damage is known: use a key, a token or a user that may read what is stored";

fn hint_for_refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoCredentials => {
            "give keys in the variables or files of the service; `strongroom --help` names them"
        }
        Refusal::Credentials => {
            "check the user, the password or the keys; they may be wrong, or no longer valid"
        }
        Refusal::Archived => ARCHIVED,
        Refusal::Right => {
            "ask the owner of the place for this right; nothing was changed by this request"
        }
        Refusal::NoSuchPlace => {
            "check the address; buckets and accounts are created with the tools of their service"
        }
        Refusal::Region => "set AWS_REGION to the region of the bucket",
        Refusal::Clock => "set the clock of this machine: services refuse requests of other times",
        Refusal::Identity => {
            "if the place has a new certificate or host key, compare it with its owner's first, then \
             trust it as you trusted the old one; otherwise another machine answers in its stead"
        }
        Refusal::Quota => "forget snapshots and prune, or ask the owner of the place for more",
        Refusal::Locked => "it can be removed or replaced after its lock has ended",
        Refusal::Content => "run `strongroom verify`; if it finds nothing, run the command again",
        Refusal::NoVersions => {
            "of a place without versions only a replica shows what was there: give it with --repo"
        }
        Refusal::Listings => {
            "keep the repository elsewhere, and a replica here: `strongroom replicate`"
        }
        Refusal::Version => "use the same version of Strongroom at both ends",
        Refusal::Other => "the place said why; `strongroom --help` lists what each place needs",
    }
}

fn hint_for_kind(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::NoRepository => {
            "check --repo, and that its disk is mounted; `strongroom init` creates a new one"
        }
        ErrorKind::Passphrase => "try again; nothing was changed",
        ErrorKind::Newer => "a newer Strongroom wrote this; it is not damaged: update this program",
        ErrorKind::PutOnly => "use the passphrase of a key that may read",
        ErrorKind::NoSpace => {
            "`strongroom prune` removes what is forgotten or condemned already; or free some space, and run it \
             again; snapshots made before are not affected"
        }
        ErrorKind::Cache => {
            "the cache can be removed at any time; the next command builds it again"
        }
        ErrorKind::Cancelled => "what was done is kept; run it again to continue",
        ErrorKind::Damaged => "run `strongroom verify`, then `strongroom repair`",
        ErrorKind::Withheld => FORBIDDEN,
        ErrorKind::Fault | ErrorKind::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use strongroom_base::Cancelled;

    use super::*;

    #[test]
    fn house_6_the_kind_of_an_error_decides_the_exit_code() {
        let place = "/nowhere".to_owned();
        let cases: [(EngineError, Exit, bool); 5] = [
            (RepositoryError::NotARepository { place }.into(), Exit::NoRepository, true),
            (RepositoryError::WrongPassphrase { slots: 1 }.into(), Exit::Passphrase, true),
            (RepositoryError::NoKeySlot { found: 0 }.into(), Exit::Damaged, true),
            (Cancelled.into(), Exit::Interrupted, true),
            (EngineError::Input(std::io::ErrorKind::Other.into()), Exit::Failed, false),
        ];
        for (error, exit, has_hint) in cases {
            let text = error.to_string();
            let error = CliError::from(error);
            assert_eq!((error.exit, error.hint.is_some()), (exit, has_hint), "{text}");
        }
    }
}
