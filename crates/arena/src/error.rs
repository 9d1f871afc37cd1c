//! Why something cannot be read from an arena.

use strongroom_backend::{BackendError, Withheld};
use strongroom_base::{ArenaId, DomainId};

use crate::envelope::EnvelopeError;
use crate::format::FormatError;

/// Why something cannot be read from an arena.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The arena does not exist.
    #[error("arena {arena} is missing")]
    Missing {
        /// The arena.
        arena: ArenaId,
    },
    /// Its bytes are not what was stored, and parity cannot recover them.
    #[error("arena {arena} is damaged: {what}")]
    Damaged {
        /// The arena.
        arena: ArenaId,
        /// What is wrong with it.
        what: String,
    },
    /// A newer program made it: it is not damaged, but this program does not understand it.
    #[error("arena {arena} was made by a newer program: update Strongroom")]
    Unknown {
        /// The arena.
        arena: ArenaId,
    },
    /// The arena exists, but this slot of it was lost.
    #[error("slot {slot} of arena {arena} is lost")]
    SlotLost {
        /// The arena.
        arena: ArenaId,
        /// The slot.
        slot: u32,
    },
    /// Another domain wrote the arena, and the key at hand does not open that domain's summaries.
    #[error("arena {arena} is of another domain, whose arenas this key does not open")]
    Foreign {
        /// The arena.
        arena: ArenaId,
        /// The domain.
        domain: DomainId,
    },
    /// Another domain wrote the arena, and what is read is of a domain that had only its own to name.
    #[error(
        "arena {arena} is of another domain: a machine that can only store names what it has \
         stored itself, and nothing else"
    )]
    NotPossessed {
        /// The arena.
        arena: ArenaId,
        /// The domain that wrote it.
        domain: DomainId,
    },
    /// Reading needs the private key, and only put-only keys are given.
    #[error("this key can only store, not read")]
    PutOnly,
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl ArenaError {
    /// Whether the arena as a whole cannot be read: by any program, by this one, or with this key.
    pub fn is_unreadable(&self) -> bool {
        self.is_lost() || matches!(self, Self::Unknown { .. } | Self::Foreign { .. })
    }

    /// Why the arena is not given to the caller, if it exists and nothing is known to be wrong with
    /// it.
    pub fn withheld(&self) -> Option<Withheld> {
        match self {
            Self::Backend(error) => error.withheld(),
            _ => None,
        }
    }

    /// Whether another generation of the arena may hold what this one does not.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. } | Self::NotPossessed { .. })
    }
}

/// What an error of the backend says about an arena.
pub(crate) fn backend_error(id: ArenaId, error: BackendError) -> ArenaError {
    match error {
        error if error.is_not_found() => ArenaError::Missing { arena: id },
        error if error.is_damage() => damaged(id, error),
        error => error.into(),
    }
}

pub(crate) fn format_error(arena: ArenaId, error: FormatError) -> ArenaError {
    match error {
        FormatError::Unknown(_) => ArenaError::Unknown { arena },
        FormatError::Damaged(_) => damaged(arena, error),
    }
}

pub(crate) fn envelope_error(arena: ArenaId, error: EnvelopeError) -> ArenaError {
    damaged(arena, error)
}

pub(crate) fn damaged(arena: ArenaId, what: impl std::fmt::Display) -> ArenaError {
    ArenaError::Damaged { arena, what: what.to_string() }
}
