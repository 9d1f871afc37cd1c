//! Identifiers, and where a chunk is. Each identifier is a newtype, so that an arena is never
//! mistaken for a snapshot.

use std::fmt;
use std::str::FromStr;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not an identifier: {digits} hexadecimal digits are expected")]
pub struct ParseIdError {
    /// What was given.
    pub text: String,
    /// How many digits such an identifier has.
    pub digits: usize,
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// Bytes of such an identifier, on disk as in memory.
            pub const BYTES: usize = $bytes;
            /// The identifier of nothing: all zero.
            pub const ZERO: Self = Self([0; $bytes]);

            /// The first eight hexadecimal digits, for people.
            pub fn short(&self) -> String {
                let mut text = self.to_string();
                text.truncate(8);
                text
            }

            /// True if `prefix`, in hexadecimal digits, begins this identifier.
            pub fn starts_with(&self, prefix: &str) -> bool {
                self.to_string().starts_with(&prefix.to_ascii_lowercase())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let wrong = || ParseIdError { text: text.to_owned(), digits: $bytes * 2 };
                if text.len() != $bytes * 2 || !text.is_ascii() {
                    return Err(wrong());
                }
                let mut id = [0; $bytes];
                for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
                    let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
                    if !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
                        return Err(wrong());
                    }
                    *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
                }
                Ok(Self(id))
            }
        }
    };
}

identifier! {
    /// Names a repository for ever; made at random by `init`.
    RepositoryId, 16
}
identifier! {
    /// Names an arena; made at random by the writer, kept through rewriting.
    ArenaId, 16
}
identifier! {
    /// Names a writer's session and, once it commits, its snapshot.
    SnapshotId, 16
}
identifier! {
    /// Names a domain: a machine, or a group of machines that trust each other. All zero is the
    /// owner's domain; any other is derived from the domain's name.
    DomainId, 16
}
identifier! {
    /// Names an object that vouches for arenas; made at random.
    VoucherId, 16
}
identifier! {
    /// Names one key slot of a repository.
    SlotId, 8
}
identifier! {
    /// Names a chunk: keyed BLAKE3-256 of its bytes.
    Fingerprint, 32
}

impl Fingerprint {
    /// The name of a chunk in a repository that compares by value: its place, which no other chunk
    /// has.
    pub fn of_place(place: Location) -> Self {
        let mut name = Self::ZERO;
        name.0[..ArenaId::BYTES].copy_from_slice(&place.arena.0);
        name.0[ArenaId::BYTES..][..4].copy_from_slice(&place.slot.to_le_bytes());
        name
    }

    /// Whether this is the name of the chunk that a summary has in a place, by its fingerprint there
    /// or by the place.
    pub fn names(&self, place: Location, in_summary: &Self) -> bool {
        self == in_summary || (*in_summary != Self::ZERO && *self == Self::of_place(place))
    }
}

/// Where a chunk is stored. Slots keep their numbers for ever, so a location never goes stale when
/// an arena is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The arena that has it.
    pub arena: ArenaId,
    /// Its number in that arena.
    pub slot: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = ArenaId([0xa7; 16]);
        assert_eq!(id.to_string().parse::<ArenaId>(), Ok(id));
        assert_eq!(id.short(), "a7a7a7a7");
        assert!(id.starts_with("A7A"));
        assert!(!id.starts_with("b"));
    }

    #[test]
    fn a_place_is_the_name_of_one_chunk() {
        let name =
            |arena, slot| Fingerprint::of_place(Location { arena: ArenaId([arena; 16]), slot });
        assert_eq!(name(1, 5), name(1, 5));
        assert_ne!(name(1, 5), name(2, 5));
        assert_ne!(name(1, 5), name(1, 5 << 8));
        assert_ne!(name(1, 0), Fingerprint::ZERO);
        let (place, tag) = (Location { arena: ArenaId([1; 16]), slot: 5 }, Fingerprint([9; 32]));
        assert!(name(1, 5).names(place, &tag) && tag.names(place, &tag));
        assert!(!name(1, 6).names(place, &tag));
        assert!(!name(1, 5).names(place, &Fingerprint::ZERO), "nothing is in the place");
    }

    #[test]
    fn what_is_no_identifier_is_refused() {
        for text in ["", "a7", &"g".repeat(32), &"é".repeat(16), &"+1".repeat(16)[..31]] {
            assert!(text.parse::<ArenaId>().is_err(), "{text}");
        }
    }
}
