//! The kind of an error, by which a caller decides without naming the floors below.

use strongroom_arena::ArenaError;
use strongroom_arena::envelope::EnvelopeError;
use strongroom_arena::envelope::format::HeaderError;
use strongroom_backend::BackendError;

use crate::error::RepositoryError;

/// The kinds of errors that lead to different next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no repository at the place.
    NoRepository,
    /// The passphrase opens no key slot.
    Passphrase,
    /// A newer program made what was read. It is not damaged.
    Newer,
    /// Stored data is damaged or lost.
    Damaged,
    /// What was to be read waits in an archive, or this key may not read it. It is not damaged.
    Withheld,
    /// The key may only store.
    PutOnly,
    /// There is no room where the repository is.
    NoSpace,
    /// The local cache failed; it can be removed.
    Cache,
    /// A fault of this program, noticed before it did harm.
    Fault,
    /// A stop was requested.
    Cancelled,
    /// The caller, its arguments or the machine.
    Other,
}

impl RepositoryError {
    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotARepository { .. } => ErrorKind::NoRepository,
            Self::WrongPassphrase { .. } => ErrorKind::Passphrase,
            Self::Object {
                source: EnvelopeError::Header(HeaderError::NewerVersion { .. }),
                ..
            } => ErrorKind::Newer,
            error if error.is_unknown() => ErrorKind::Newer,
            error if error.is_withheld() => ErrorKind::Withheld,
            Self::PutOnly | Self::Arena(ArenaError::PutOnly) => ErrorKind::PutOnly,
            Self::RoomOfPrune { .. }
            | Self::Backend(BackendError::NoSpace { .. })
            | Self::Arena(ArenaError::Backend(BackendError::NoSpace { .. })) => ErrorKind::NoSpace,
            Self::Index(_) => ErrorKind::Cache,
            Self::Miscounted { .. } | Self::Miscopied { .. } => ErrorKind::Fault,
            Self::Cancelled(_) => ErrorKind::Cancelled,
            error if error.is_damage() => ErrorKind::Damaged,
            _ => ErrorKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use strongroom_backend::ObjectName;
    use strongroom_base::{ArenaId, Cancelled};

    use super::*;

    #[test]
    fn house_6_what_a_newer_program_made_is_not_damaged() {
        let name = ObjectName::top("config");
        let newer = RepositoryError::Object { name, source: EnvelopeError::Unknown };
        assert_eq!(newer.kind(), ErrorKind::Newer);
        let arena = ArenaId([1; 16]);
        for (error, kind) in [
            (ArenaError::Unknown { arena }, ErrorKind::Newer),
            (ArenaError::Missing { arena }, ErrorKind::Damaged),
            (ArenaError::PutOnly, ErrorKind::PutOnly),
        ] {
            assert_eq!(RepositoryError::from(error).kind(), kind);
        }
        assert_eq!(RepositoryError::from(Cancelled).kind(), ErrorKind::Cancelled);
        assert_eq!(RepositoryError::ForgedConfig.kind(), ErrorKind::Damaged);
        let none = RepositoryError::WrongPassphrase { slots: 1 };
        assert_eq!(none.kind(), ErrorKind::Passphrase);
    }
}
