//! What goes between the screens, the program that shows them, and the thread that does the work.

use std::path::PathBuf;
use std::sync::Arc;

use strongroom_base::{Progress, SnapshotId, Timestamp};
use strongroom_catalog::{Metadata, Snapshot};
use strongroom_engine::{DiffOutcome, RestoreOutcome};

/// What the screens are given by the program.
#[derive(Debug, Clone)]
pub struct Look {
    /// The repository's place.
    pub place: String,
    /// Whether colours are used.
    pub colours: bool,
    /// A time as people read it, in at most 19 columns.
    pub date: fn(Timestamp) -> String,
    /// What `~` means in a path that is typed.
    pub home: Option<PathBuf>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(crate::Key),
    /// The work of this number has come this far, or to its end.
    Report(u64, Report),
    /// These backups run on this machine.
    Running(Vec<Running>),
}

/// What the program is to do.
#[derive(Debug)]
pub enum Effect {
    /// Begin this work.
    Begin(Work),
    /// Stop the work of this number, and all before it.
    Cancel(u64),
    /// End; with true if the person interrupted it.
    Quit {
        /// Ctrl-C ended it.
        interrupted: bool,
    },
}

/// A request with its number.
#[derive(Debug)]
pub struct Work {
    /// Numbers only grow.
    pub number: u64,
    /// What is asked for.
    pub request: Request,
}

/// What takes long.
#[derive(Debug, Clone)]
pub enum Request {
    /// All snapshots.
    Snapshots,
    /// What is in a directory of a snapshot.
    Directory {
        /// The snapshot.
        snapshot: Arc<Snapshot>,
        /// The directory, without a leading slash.
        path: Vec<u8>,
    },
    /// In what two snapshots differ.
    Compare {
        /// The first.
        before: Arc<Snapshot>,
        /// The second.
        after: Arc<Snapshot>,
    },
    /// Where a name occurs.
    Find {
        /// A part of a name, or a pattern with `*`, `?` or `[…]`.
        pattern: String,
    },
    /// How a file begins.
    Text {
        /// The snapshot.
        snapshot: Arc<Snapshot>,
        /// The file.
        path: Vec<u8>,
    },
    /// Which of these exist.
    Existing(Vec<PathBuf>),
    /// Put parts of a snapshot back.
    Restore {
        /// The snapshot.
        snapshot: Arc<Snapshot>,
        /// Each part, and the folder that it is put into.
        parts: Vec<(Vec<u8>, PathBuf)>,
    },
    /// Which sessions are open.
    Sessions,
}

/// How far a work has come.
#[derive(Debug)]
pub enum Report {
    /// This far.
    Progress {
        /// The numbers.
        progress: Progress,
        /// What is being worked on.
        what: Vec<u8>,
    },
    /// It was stopped.
    Cancelled,
    /// It failed.
    Failed(Failure),
    /// All snapshots, newest first.
    Snapshots {
        /// Those that can be read.
        rows: Vec<SnapshotRow>,
        /// What is to be said of the others.
        notes: Vec<String>,
    },
    /// What is in a directory.
    Directory {
        /// Its entries.
        rows: Vec<FileRow>,
        /// Why some are missing.
        lost: Option<String>,
    },
    /// Differences.
    Changes {
        /// The first ones.
        rows: Vec<ChangeRow>,
        /// All of them, in numbers.
        outcome: DiffOutcome,
        /// Those that differ only in a time, and are not shown.
        only_times: u64,
    },
    /// Where a name occurs.
    Found {
        /// The first ones.
        rows: Vec<FoundRow>,
        /// What is to be said of them.
        note: Option<String>,
    },
    /// How a file begins.
    Text {
        /// The first bytes.
        bytes: Vec<u8>,
        /// Whether there is more.
        is_cut: bool,
    },
    /// Those that exist.
    Existing(Vec<PathBuf>),
    /// What was put back.
    Restored {
        /// The numbers of all parts.
        outcome: RestoreOutcome,
        /// The problems, one a line.
        problems: Vec<String>,
    },
    /// The open sessions.
    Sessions(Vec<SessionRow>),
}

/// Why a work failed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub message: String,
}

/// A snapshot in the list.
#[derive(Debug, Clone)]
pub struct SnapshotRow {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Why it is held, if it is.
    pub held: Option<String>,
    /// What the owner says of it.
    pub description: String,
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory; true if a part of it was left out of the backup.
    Directory(bool),
    /// A symbolic link, and where it points.
    Symlink(Vec<u8>),
    /// A named pipe, a socket, or a device: the letter that `ls` shows.
    Special(char),
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct FileRow {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// The rest; without the values of extended attributes.
    pub metadata: Metadata,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRow {
    /// `+`, `-`, `M` or `T`.
    pub sign: char,
    /// The path.
    pub path: Vec<u8>,
    /// What differs.
    pub what: String,
    /// How many bytes longer it is now.
    pub growth: i64,
}

/// A path that looks the same in some successive snapshots.
#[derive(Debug, Clone)]
pub struct FoundRow {
    /// The path, without a leading slash.
    pub path: Vec<u8>,
    /// The entry in the newest of them.
    pub file: FileRow,
    /// The oldest of these snapshots.
    pub first: SnapshotId,
    /// The newest of them.
    pub last: Arc<Snapshot>,
    /// How many they are.
    pub snapshots: u64,
}

/// A session that is open, of any machine, or that a writer left when it died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its identifier.
    pub id: SnapshotId,
    /// The machine and since when, or why that is not known.
    pub writer: Result<(String, Timestamp), String>,
}

/// A backup that runs on this machine, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// Where it stores.
    pub repository: String,
    /// What it stores.
    pub paths: Vec<String>,
    /// For how many seconds it has run.
    pub seconds: u64,
    /// How far it has come.
    pub progress: Progress,
    /// The file that it has reached.
    pub what: String,
}
