//! Snapshots of other backup programs, taken over into a repository.
//!
//! The other program reads its own repository: it lists the snapshots, says what they are, and mounts
//! them (`shown.rs`). What its mount does not show as it was, is asked of it in another way
//! (`restic.rs`, `borg.rs`). The tree below the mount is then backed up as any other, with the times,
//! names and labels that the snapshot had.

mod acl;
mod borg;
mod json;
mod names;
mod objects;
mod program;
mod restic;
mod shown;
mod trees;

use std::path::PathBuf;

use strongroom_base::{Cancel, Timestamp};
use strongroom_engine::ChangedFiles;
use strongroom_source::{Accounts, Corrections};

use crate::exit::{CliError, Exit};
use crate::passphrase::Passphrase;
use program::Program;
pub use program::{Kind, LOOK_EVERY};
use shown::Mount;

/// A snapshot as the other program lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// What the program calls it for ever.
    pub id: String,
    /// What identifies it even if it was given other tags since: in most cases its id.
    pub origin: String,
    /// What a person calls it: the id's first digits, or the name of an archive.
    pub name: String,
    /// When its backup began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// The machine.
    pub host: String,
    /// Who ran the backup.
    pub user: String,
    /// What was backed up, absolute; none if only a look into the snapshot shows it.
    pub paths: Vec<Vec<u8>>,
    /// Its tags.
    pub labels: Vec<String>,
}

/// What a repository of another program has.
#[derive(Debug)]
pub struct Listing {
    /// What the program calls the repository.
    pub repository: String,
    /// From the oldest to the newest.
    pub snapshots: Vec<Foreign>,
}

/// A snapshot that is shown below a directory, and what is known of it.
#[derive(Debug)]
pub struct Shown {
    /// The directory that is its `/`.
    pub root: PathBuf,
    /// The snapshot; times and paths may be more exact than in the listing.
    pub snapshot: Foreign,
    /// The users and groups of its machine.
    pub accounts: Accounts,
    /// What the directory does not show as it was.
    pub corrections: Corrections,
    /// The files that are others than in the snapshot it was compared with; none if unknown.
    pub changed: Option<ChangedFiles>,
    /// How many entries it has that are not directories.
    pub files: u64,
    /// What the person should know of it.
    pub notes: Vec<String>,
    /// What could not be found out.
    pub warnings: Vec<String>,
}

/// Why a snapshot is not shown.
#[derive(Debug)]
pub enum Failure {
    /// The program cannot read this one; it may read others.
    OfSnapshot(CliError),
    /// Nothing can be shown.
    OfAll(CliError),
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        Self::OfAll(error)
    }
}

/// A repository of another program.
#[derive(Debug)]
pub enum Source {
    /// Of restic.
    Restic(restic::Restic),
    /// Of Borg.
    Borg(borg::Borg),
}

impl Source {
    /// Takes the program and the place of its repository. Fails if the program is not installed.
    pub fn new(
        kind: Kind,
        repository: &std::ffi::OsStr,
        passphrase: Option<Passphrase>,
        cancel: &Cancel,
    ) -> Result<Self, CliError> {
        let program = Program::find(kind, repository, passphrase, cancel)?;
        Ok(match kind {
            Kind::Restic => Self::Restic(restic::Restic::new(program)),
            Kind::Borg => Self::Borg(borg::Borg::new(program)),
        })
    }

    /// Gives the passphrase, after the program has asked for one.
    pub fn set_passphrase(&mut self, passphrase: Passphrase) {
        match self {
            Self::Restic(restic) => restic.program.set_passphrase(passphrase),
            Self::Borg(borg) => borg.program.set_passphrase(passphrase),
        }
    }

    /// Lists the snapshots.
    pub fn list(&mut self) -> Result<Listing, CliError> {
        let mut listing = match self {
            Self::Restic(restic) => restic.list()?,
            Self::Borg(borg) => borg.list()?,
        };
        // What has the same time stays in the order in which it was listed.
        listing.snapshots.sort_by_key(|snapshot| snapshot.started);
        Ok(listing)
    }

    /// Shows a snapshot, and compares it with another one.
    pub fn show(&mut self, snapshot: &Foreign, before: Option<&Foreign>) -> Result<Shown, Failure> {
        match self {
            Self::Restic(restic) => restic.show(snapshot, before),
            Self::Borg(borg) => borg.show(snapshot, before),
        }
    }

    /// The mount, if there is one.
    pub fn mount(&mut self) -> Option<&mut Mount> {
        match self {
            Self::Restic(restic) => restic.mount.as_mut(),
            Self::Borg(borg) => borg.mount.as_mut(),
        }
    }
}

/// A time as the other program writes it; without a zone, it is UTC.
fn time(kind: Kind, text: &str) -> Result<Timestamp, CliError> {
    let parsed = text.parse().or_else(|_| format!("{text}Z").parse());
    let moment: jiff::Timestamp = parsed.map_err(|_| unclear(kind, &format!("\"{text}\"")))?;
    let nanos = moment.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into());
    Ok(Timestamp(i64::try_from(nanos).unwrap_or_default()))
}

/// An answer of the other program that this one does not understand.
fn unclear(kind: Kind, what: &str) -> CliError {
    let message = format!("cannot understand what {} answers: {what}", kind.name());
    let hint = format!(
        "see which version it is: `{} --version`; restic 0.18 and Borg 1.2 are known to work",
        kind.name()
    );
    CliError::new(Exit::Failed, message, hint)
}
