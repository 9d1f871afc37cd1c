//! What can go wrong with a repository, with the data of the failure.

use std::path::PathBuf;
use std::sync::Arc;

use strongroom_arena::ArenaError;
use strongroom_arena::envelope::EnvelopeError;
use strongroom_backend::{BackendError, ObjectName, Withheld};
use strongroom_base::{ArenaId, Cancelled, Fingerprint, Location, ParseIdError, SnapshotId};
use strongroom_catalog::{CatalogError, FormatError, SnapshotHead, TreeWriteError};
use strongroom_chunk::delta::DeltaError;
use strongroom_index::IndexError;

/// Why a key slot cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Argon2id does not take such parameters, or they exceed what a reader accepts.
    #[error("the cost of opening a key is out of bounds")]
    OutOfBounds,
    /// It would be too easy to guess.
    #[error(
        "a passphrase that a person chose needs at least {least_mib} MiB of memory; \
         `strongroom key generate` makes one that needs none"
    )]
    TooCheap {
        /// The least memory.
        least_mib: u32,
    },
}

/// What can go wrong with a repository.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// There is no repository at this place.
    #[error("there is no repository at {place}")]
    NotARepository {
        /// The place.
        place: String,
    },
    /// `init` in a place that is not empty.
    #[error("there is already a repository at {place}")]
    RepositoryExists {
        /// The place.
        place: String,
    },
    /// `init` into a folder that is in use for something else.
    #[error("{place} is not empty, and it is not a repository")]
    PlaceNotEmpty {
        /// The place.
        place: String,
    },
    /// The repository relies on a promise that its place does not keep.
    #[error(
        "{place} lets several creators of one name in at once: backups of several machines, and a \
         prune beside a backup, could lose data there"
    )]
    NotExclusive {
        /// The place.
        place: String,
    },
    /// A copy of one repository is no copy of another.
    #[error("{place} holds another repository")]
    OtherRepository {
        /// The place.
        place: String,
    },
    /// A place that took an object does not have it.
    #[error("{place} took {name}, and does not have it")]
    NotKept {
        /// The object.
        name: ObjectName,
        /// The place.
        place: String,
    },
    /// What a collection removed is not removed from a place that others write to.
    #[error("nothing was removed from {place}: {what}")]
    NotMirrored {
        /// The place.
        place: String,
        /// What it has of its own.
        what: String,
    },
    /// No key slot opens with this passphrase.
    #[error("wrong passphrase")]
    WrongPassphrase {
        /// How many there are.
        slots: usize,
    },
    /// There are more key slots than are tried, and none of those that were opens with this passphrase.
    #[error(
        "there are {slots} key slots, and none of the {tried} cheapest opens with this passphrase: the others were not tried"
    )]
    TooManySlots {
        /// How many there are that could be of this passphrase.
        slots: usize,
        /// How many were tried.
        tried: usize,
    },
    /// Every key slot is gone or damaged.
    #[error("none of the repository's {found} key slots can be read")]
    NoKeySlot {
        /// How many objects there are in the slots' places.
        found: usize,
    },
    /// The last key that reads cannot be removed.
    #[error("key {slot} is the last one that can read")]
    LastKeySlot {
        /// The slot.
        slot: String,
    },
    /// The key by which the repository was opened cannot be removed: that another one opens it is not shown.
    #[error("key {slot} is the one that has just opened the repository")]
    OwnKeySlot {
        /// The slot.
        slot: String,
    },
    /// The configuration was changed without a key.
    #[error("the repository's configuration was changed by someone without a key")]
    ForgedConfig,
    /// The configuration has something that only a newer program knows, needed for storing.
    #[error("the repository's {what} is number {number}, which this program does not know")]
    Unknown {
        /// What it is.
        what: &'static str,
        /// Its number.
        number: u16,
    },
    /// A key slot cannot be made.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A small object cannot be read.
    #[error("{name} cannot be read: {source}")]
    Object {
        /// The object.
        name: ObjectName,
        /// Why.
        source: EnvelopeError,
    },
    /// A small object opens, but its content is invalid.
    #[error("{name} cannot be read: {source}")]
    Format {
        /// The object.
        name: ObjectName,
        /// Why.
        source: FormatError,
    },
    /// A snapshot of a kind, or with a feature, that only a newer program knows.
    #[error("{name} was made by a newer program: {source}")]
    NewerSnapshot {
        /// The object.
        name: ObjectName,
        /// What it says of itself all the same.
        head: Box<SnapshotHead>,
        /// What this program does not know.
        source: FormatError,
    },
    /// A small object was not sealed to this key.
    #[error("{name} does not open with this repository's key")]
    Sealed {
        /// The object.
        name: ObjectName,
    },
    /// Something else has the name of the snapshot that was to be committed.
    #[error("session {session} was ended from outside before it was committed")]
    Fenced {
        /// The session.
        session: SnapshotId,
    },
    /// The place failed while the snapshot was committed, and does not say whether it was.
    #[error("it is unknown whether the snapshot was committed: {source}")]
    CommitUnknown {
        /// The error of the place.
        source: BackendError,
    },
    /// A snapshot that the domain which it names did not make.
    #[error("{name} is forged: the domain that it names did not make it")]
    Forged {
        /// The object.
        name: ObjectName,
    },
    /// The disk is full, and what was kept of it is left for a collection.
    #[error(
        "no space left: {forgotten} of {of} snapshots are forgotten; the rest of the room that was \
         kept is for `prune`"
    )]
    RoomOfPrune {
        /// How many of them are forgotten.
        forgotten: usize,
        /// How many were to be.
        of: usize,
    },
    /// Nothing may be collected, because it is not known what a snapshot needs.
    #[error("nothing was removed: {what} cannot be read: {why}")]
    NotCollectable {
        /// What cannot be read.
        what: String,
        /// Why.
        why: String,
    },
    /// A folder is withheld, and what is in it is needed.
    #[error("{0}")]
    FolderWithheld(Arc<BackendError>),
    /// Nothing may be collected now, because something is withheld that a snapshot may need, or that
    /// says what goes.
    #[error("nothing was removed: {what} cannot be read now: {why}")]
    NotCollectableNow {
        /// What is withheld.
        what: String,
        /// In which way.
        withheld: Withheld,
        /// What the place said.
        why: String,
    },
    /// A second reckoning found that something which was about to be removed is needed.
    #[error(
        "nothing was removed: snapshot {} needs {chunks} of the chunks that were about to go, the \
         first of them in slot {} of arena {}. This is a fault of Strongroom, not of the repository",
        .snapshot.short(), .place.slot, .place.arena
    )]
    Miscounted {
        /// A snapshot that stays.
        snapshot: SnapshotId,
        /// How many chunks that snapshots need were about to go.
        chunks: u64,
        /// Where the first of them is.
        place: Location,
        /// An arena that has it too, in one generation, and not in another.
        doubtful: Option<ArenaId>,
        /// An arena that cannot be read, and may have it too.
        unread: Option<ArenaId>,
    },
    /// A second reckoning found that a snapshot which was stored again differs from the first.
    #[error(
        "nothing was forgotten: snapshot {} stored again would differ at {path:?}. \
         This is a fault of Strongroom, not of the repository",
        .snapshot.short()
    )]
    Miscopied {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Where it differs.
        path: PathBuf,
    },
    /// What a collection removes is not known.
    #[error("nothing was removed: {name} cannot be read, so what goes is not known: {why}")]
    Undecided {
        /// The plan or the verdict.
        name: ObjectName,
        /// Why.
        why: String,
    },
    /// A wish to forget a snapshot does not count, because of a later one.
    #[error("snapshot {} is not forgotten: {name} cannot be read, and may say that it stays", .snapshot.short())]
    NotForgotten {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The later wish.
        name: ObjectName,
    },
    /// A snapshot is held, so it cannot be forgotten.
    #[error("snapshot {} is held: {reason}", .snapshot.short())]
    Held {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Why it is held.
        reason: String,
    },
    /// A snapshot is held for longer than a new hold says, which would end that.
    #[error("snapshot {} is held for longer: {reason}", .snapshot.short())]
    HeldLonger {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Why it is held.
        reason: String,
    },
    /// What a collection condemned cannot be brought back.
    #[error("it is too late: a prune has begun to remove what collection {collection} condemned")]
    Decided {
        /// Its number.
        collection: u64,
    },
    /// Two programs collect at the same time.
    #[error("another program is at work on collection {collection}")]
    OtherCollector {
        /// Its number.
        collection: u64,
    },
    /// A machine that has the domain's keys used the last sequence.
    #[error("the backups of {} have used the last number that there is", domain_text(.domain))]
    SequenceUsedUp {
        /// The name of the domain; empty for the owner's.
        domain: String,
    },
    /// No snapshot and no key is of a domain of this name.
    #[error("no snapshot and no key is of a domain \"{domain}\"")]
    NoSuchDomain {
        /// The name.
        domain: String,
    },
    /// The owner has ended the domain of this key, or that was asked for.
    #[error("the domain \"{domain}\" has ended")]
    DomainEnded {
        /// The name of the domain.
        domain: String,
    },
    /// A snapshot that its domain did not have when it ended.
    #[error(
        "snapshot {} does not count: its domain \"{domain}\" has ended without it",
        .snapshot.short()
    )]
    AfterTheEnd {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The name of the domain.
        domain: String,
    },
    /// The owner has ended a domain, and what was said of it cannot be found any more.
    #[error(
        "a domain has ended, and {name} is missing or cannot be read: which of its snapshots count is not known"
    )]
    EndingLost {
        /// An object that should be there.
        name: ObjectName,
    },
    /// A domain cannot have such a name.
    #[error("\"{name}\" is not a name for a domain")]
    DomainName {
        /// The name.
        name: String,
    },
    /// A key of one domain gives no key of another.
    #[error("this key is of the domain \"{own}\" and gives none of the domain \"{wanted}\"")]
    OtherDomain {
        /// The domain of the key.
        own: String,
        /// The domain that was asked for.
        wanted: String,
    },
    /// The key may only store.
    #[error("this key can only store, not read")]
    PutOnly,
    /// A chunk is lost.
    #[error("chunk {fingerprint} is lost: {why}")]
    ChunkLost {
        /// Its name.
        fingerprint: Fingerprint,
        /// Where it was.
        location: Location,
        /// Why it cannot be read.
        why: String,
    },
    /// No snapshot has this name.
    #[error("no snapshot is named \"{name}\"")]
    NoSuchSnapshot {
        /// What was asked for.
        name: String,
    },
    /// The name means a complete snapshot, and all candidates are incomplete.
    #[error(
        "there is no complete snapshot for \"{name}\"; the newest incomplete one is {}",
        .newest.short()
    )]
    OnlyPartial {
        /// What was asked for.
        name: String,
        /// The newest incomplete one.
        newest: SnapshotId,
    },
    /// A name that means the newest snapshot, if there are several domains to choose from.
    #[error("\"{name}\" could mean the newest of any of {}", .domains.join(", "))]
    AmbiguousDomain {
        /// What was asked for.
        name: String,
        /// The names of the domains.
        domains: Vec<String>,
    },
    /// Several snapshots have this name.
    #[error("\"{name}\" is ambiguous: it could be {}", ids(.candidates))]
    AmbiguousSnapshot {
        /// What was asked for.
        name: String,
        /// What it could mean.
        candidates: Vec<SnapshotId>,
    },
    /// A path is not in a snapshot.
    #[error("{path:?} is not in snapshot {}", .snapshot.short())]
    NoSuchPath {
        /// The path.
        path: PathBuf,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// A path in a snapshot is of another kind than the verb needs.
    #[error("{path:?} is {found} in the snapshot, not {wanted}")]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A text is not an identifier.
    #[error(transparent)]
    Id(#[from] ParseIdError),
    /// A pattern or date on the command line is invalid.
    #[error("{0}")]
    Argument(String),
    /// An arena cannot be read.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// A chunk cannot be made of its bases.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// A tree or recipe cannot be read.
    #[error("{0}")]
    Catalog(#[from] FormatError),
    /// The index failed; it is a cache and can be removed.
    #[error("the index in the cache failed: {0}")]
    Index(#[from] IndexError),
    /// The place that keeps the repository failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A stop was requested.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

fn domain_text(domain: &str) -> String {
    if domain.is_empty() { "the owner's domain".to_owned() } else { format!("domain {domain}") }
}

fn ids(candidates: &[SnapshotId]) -> String {
    let shorts: Vec<String> = candidates.iter().take(5).map(SnapshotId::short).collect();
    let rest = if candidates.len() > 5 { ", …" } else { "" };
    format!("{}{rest}", shorts.join(", "))
}

impl From<CatalogError<RepositoryError>> for RepositoryError {
    fn from(error: CatalogError<RepositoryError>) -> Self {
        match error {
            CatalogError::Chunk(error) => error,
            CatalogError::Format(error) => Self::Catalog(error),
        }
    }
}

impl From<TreeWriteError<RepositoryError>> for RepositoryError {
    fn from(error: TreeWriteError<RepositoryError>) -> Self {
        match error {
            TreeWriteError::Chunk(error) => error,
            TreeWriteError::EntryTooLarge { .. } | TreeWriteError::InvalidName => {
                Self::Argument(error.to_string())
            }
        }
    }
}

impl RepositoryError {
    /// True if a chunk is not in the place that was asked: another place may have it.
    pub fn is_lost_chunk(&self) -> bool {
        match self {
            Self::ChunkLost { .. } => true,
            Self::Arena(error) => !matches!(error, ArenaError::Backend(_) | ArenaError::PutOnly),
            _ => false,
        }
    }

    /// Why an object is not given to the caller, if it exists and nothing is known to be wrong with
    /// it.
    pub fn withheld(&self) -> Option<Withheld> {
        match self {
            Self::Backend(error) => error.withheld(),
            Self::Arena(error) => error.withheld(),
            Self::FolderWithheld(error) => error.withheld(),
            Self::NotCollectableNow { withheld, .. } => Some(*withheld),
            _ => None,
        }
    }

    /// Whether an object exists and is not given to the caller: that is no damage.
    pub fn is_withheld(&self) -> bool {
        self.withheld().is_some()
    }

    /// Whether this object cannot be read, which says nothing of others: it is damaged, or withheld.
    pub fn is_unreadable(&self) -> bool {
        self.is_damage() || self.is_withheld()
    }

    /// That what a collection removes is not known.
    pub fn undecided(name: ObjectName, error: &Self) -> Self {
        let why = error.to_string();
        match error.withheld() {
            Some(withheld) => Self::NotCollectableNow { what: name.to_string(), withheld, why },
            None => Self::Undecided { name, why },
        }
    }

    /// That nothing may be collected, because this cannot be read.
    pub fn not_collectable(what: String, error: &Self) -> Self {
        let why = error.to_string();
        match error.withheld() {
            Some(withheld) => Self::NotCollectableNow { what, withheld, why },
            None => Self::NotCollectable { what, why },
        }
    }

    /// Whether it is an object that a newer program made.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::Object { source: EnvelopeError::Unknown, .. }
                | Self::NewerSnapshot { .. }
                | Self::Format { source: FormatError::Unknown { .. }, .. }
                | Self::Catalog(FormatError::Unknown { .. })
                | Self::Delta(DeltaError::UnknownKind(_))
                | Self::Arena(ArenaError::Unknown { .. })
        )
    }

    /// Whether stored data, and not the caller or the machine, is what is wrong.
    pub fn is_damage(&self) -> bool {
        if let Self::Backend(error) = self {
            return error.is_damage();
        }
        matches!(
            self,
            Self::Object { .. }
                | Self::Format { .. }
                | Self::NewerSnapshot { .. }
                | Self::Sealed { .. }
                | Self::Forged { .. }
                | Self::NotCollectable { .. }
                | Self::Undecided { .. }
                | Self::NotForgotten { .. }
                | Self::EndingLost { .. }
                | Self::ChunkLost { .. }
                | Self::Catalog(_)
                | Self::Delta(_)
                | Self::NoKeySlot { .. }
                | Self::ForgedConfig
                | Self::Arena(
                    ArenaError::Missing { .. }
                        | ArenaError::Damaged { .. }
                        | ArenaError::Unknown { .. }
                        | ArenaError::SlotLost { .. }
                )
        )
    }
}
