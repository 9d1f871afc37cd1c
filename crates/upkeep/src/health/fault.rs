//! What is wrong with an object, found without a key.
//!
//! An object's envelope alone shows whether it is whole and whether it can be computed again; its
//! name says what it should be. Verify and repair both begin here.

use strongroom_arena::envelope::format::{HEADER_BYTES, Header, HeaderError};
use strongroom_arena::envelope::{self, EnvelopeError, Inspection};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName};
use strongroom_repository::objects::{is_as_named, read_whole, rightful_name};

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Damaged, and parity can repair it: this many shards, and whether the frame is damaged too.
    Repairable {
        /// Damaged shards.
        lost_shards: usize,
    },
    /// Damaged beyond what parity can repair.
    Beyond {
        /// What is wrong.
        why: String,
    },
    /// The object is whole, and some chunks in it are not what their fingerprints say.
    WrongChunks {
        /// How many.
        count: u64,
    },
    /// Whole, but of another name or kind: files were swapped.
    Swapped {
        /// The name that it should have.
        rightful: ObjectName,
    },
    /// It does not exist, though its copy does.
    Missing,
    /// Whole, and changed by someone without a key; its copy is right.
    Forged,
    /// Whole, and made by someone who may not: under a name that only the owner gives, or a
    /// generation of another domain's arena.
    Planted,
    /// An arena's generation, of which it is not known whether it is one: domains claim the arena, and
    /// none can prove it.
    Disputed,
    /// It does not exist or cannot be read, though the owner is known to have made it: what the owner
    /// says of the end of a domain.
    EndingLost,
    /// Whole, and made by a newer program: not damaged, but not understood either.
    Unknown,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repairable { lost_shards: 0 } => {
                write!(f, "its frame is damaged; repair can undo it")
            }
            Self::Repairable { lost_shards: 1 } => {
                write!(f, "1 shard is damaged; parity can undo it")
            }
            Self::Repairable { lost_shards } => {
                write!(f, "{lost_shards} shards are damaged; parity can undo it")
            }
            Self::Beyond { why } => write!(f, "damaged beyond parity: {why}"),
            Self::WrongChunks { count } => {
                write!(f, "{count} of its chunks are not what their fingerprints say")
            }
            Self::Swapped { rightful } => {
                write!(f, "{rightful} is in its place")
            }
            Self::Missing => write!(f, "missing; its copy is there"),
            Self::Forged => {
                write!(f, "changed by someone without a key; repair restores it from its copy")
            }
            Self::Planted => {
                write!(f, "planted by someone who may not make it; repair takes it away")
            }
            Self::Disputed => write!(
                f,
                "of the same arena there are generations of several domains, and nothing says of \
                 which it is: nothing of it is removed"
            ),
            Self::EndingLost => write!(
                f,
                "a domain has ended, and this is missing or cannot be read: what came since counts \
                 again; `strongroom key end-domain NAME` says it again"
            ),
            Self::Unknown => write!(f, "made by a newer program; update Strongroom to read it"),
        }
    }
}

impl Fault {
    /// Whether parity can repair it.
    pub fn is_repairable(&self) -> bool {
        matches!(self, Self::Repairable { .. })
    }
}

/// Reads every byte of an object. Returns its bytes, with zeros for what the medium refuses, and
/// what is wrong with it, if anything. `arena_bytes` bounds what is read of an arena.
pub fn look_whole(
    backend: &dyn Backend,
    name: &ObjectName,
    arena_bytes: u32,
) -> Result<(Vec<u8>, Option<Fault>), BackendError> {
    let object = match read_whole(backend, name, arena_bytes) {
        Err(error) if error.is_damage() => {
            return Ok((Vec::new(), Some(Fault::Beyond { why: error.to_string() })));
        }
        other => other?,
    };
    let fault = fault_of(name, envelope::inspect(&object.bytes));
    // Bytes that the medium refuses are written again, even if zeros happen to be right.
    let refused = (object.refused_bytes > 0).then_some(Fault::Repairable { lost_shards: 0 });
    Ok((object.bytes, fault.or(refused)))
}

/// Checks only the ends of an object: its header, its trailer, its length. Returns the header if
/// they are sound.
pub fn look_at_ends(
    backend: &dyn Backend,
    info: &ObjectInfo,
) -> Result<Option<Header>, BackendError> {
    let read = |offset| match backend.read(&info.name, offset, HEADER_BYTES) {
        Err(error) if error.is_damage() => Ok(Vec::new()),
        other => other,
    };
    let start = read(0)?;
    let end = read(info.bytes.saturating_sub(HEADER_BYTES as u64))?;
    let header = Header::unpack(&start).ok().filter(|_| start == end);
    Ok(header.filter(|header| {
        let fits = header.layout().object_bytes as u64 == info.bytes;
        fits && is_as_named(&info.name, header)
    }))
}

fn fault_of(name: &ObjectName, inspected: Result<Inspection, EnvelopeError>) -> Option<Fault> {
    let inspection = match inspected {
        Ok(inspection) => inspection,
        Err(EnvelopeError::Header(HeaderError::NewerVersion { .. })) => {
            return Some(Fault::Unknown);
        }
        Err(error) => return Some(Fault::Beyond { why: error.to_string() }),
    };
    let header = &inspection.header;
    let rightful = if header.is_unknown() { None } else { rightful_name(header) };
    if let Some(rightful) = rightful.filter(|_| !is_as_named(name, header)) {
        return Some(Fault::Swapped { rightful });
    }
    let lost_shards = inspection.lost_shards.len();
    match (inspection.is_whole(), inspection.is_repairable()) {
        (true, _) => header.is_unknown().then_some(Fault::Unknown),
        (false, true) => Some(Fault::Repairable { lost_shards }),
        (false, false) => {
            let why = EnvelopeError::BeyondRepair {
                lost: lost_shards,
                shards: header.shards(),
                parity: header.parity_shards as usize,
            };
            Some(Fault::Beyond { why: why.to_string() })
        }
    }
}
