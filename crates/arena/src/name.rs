//! The names of arenas' objects, and which of them exist.
//!
//! An arena's object is `arenas/ID.G`, G its generation. No object is ever replaced by other bytes:
//! a rewriting creates the next generation and then removes the one before.

use std::fmt;
use std::str::FromStr;

use strongroom_backend::{Backend, BackendError, ObjectName};
use strongroom_base::ArenaId;

/// The folder of arenas.
pub const ARENAS_FOLDER: &str = "arenas";

/// An arena in one of its generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArenaName {
    /// The arena.
    pub id: ArenaId,
    /// How often it was rewritten.
    pub generation: u32,
}

impl ArenaName {
    /// An arena as it was first written.
    pub fn first(id: ArenaId) -> Self {
        Self { id, generation: 0 }
    }

    /// The arena after one more rewriting; `None` if it was rewritten 2^32 times.
    pub fn next(self) -> Option<Self> {
        Some(Self { generation: self.generation.checked_add(1)?, ..self })
    }

    /// The arena in a generation above this one, for a rewriting that is made of these bytes; `None`
    /// if there are no more numbers. Two copies of a repository that rewrite an arena differently give
    /// the results different names, so that both can be brought together.
    pub fn rewritten(self, made_of: &[u8]) -> Option<Self> {
        let hash = blake3::hash(made_of);
        let [a, b, ..] = *hash.as_bytes();
        let step = 1 + u32::from(u16::from_le_bytes([a, b]));
        Some(Self { generation: self.generation.checked_add(step)?, ..self })
    }

    /// Whether there are numbers above this one for every rewriting.
    pub fn has_room_above(self) -> bool {
        self.generation.checked_add(1 + u32::from(u16::MAX)).is_some()
    }

    /// The name of its object.
    pub fn object(self) -> ObjectName {
        ObjectName::new(ARENAS_FOLDER, self)
    }

    /// The arena that an object's name denotes; `None` for other objects.
    pub fn of(object: &ObjectName) -> Option<Self> {
        if object.folder() == ARENAS_FOLDER { object.file().parse().ok() } else { None }
    }
}

impl fmt::Display for ArenaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.generation)
    }
}

/// A text that is not an arena's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an arena's name is its identifier, a dot, and its generation")]
pub struct ParseArenaNameError;

impl FromStr for ArenaName {
    type Err = ParseArenaNameError;

    /// Each arena and generation has exactly one name: numbers written in another way, with leading
    /// zeros or in upper case, are refused.
    fn from_str(text: &str) -> Result<Self, ParseArenaNameError> {
        let (id, generation) = text.split_once('.').ok_or(ParseArenaNameError)?;
        let id = id.parse().map_err(|_| ParseArenaNameError)?;
        let generation = generation.parse().map_err(|_| ParseArenaNameError)?;
        let name = Self { id, generation };
        if name.to_string() == text { Ok(name) } else { Err(ParseArenaNameError) }
    }
}

/// An arena in one of its generations, from a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedArena {
    /// Its name.
    pub name: ArenaName,
    /// Bytes of its object.
    pub object_bytes: u64,
}

/// The arenas of a listing in all their generations. The listing itself takes several times the
/// memory.
#[derive(Debug, Default)]
pub struct ListedArenas {
    /// In order.
    arenas: Vec<ListedArena>,
}

impl ListedArenas {
    /// Lists the arenas.
    pub fn list(backend: &dyn Backend) -> Result<Self, BackendError> {
        let listed = backend.list(ARENAS_FOLDER)?.into_iter();
        let arenas = listed.filter_map(|info| {
            Some(ListedArena { name: ArenaName::of(&info.name)?, object_bytes: info.bytes })
        });
        let mut arenas: Vec<_> = arenas.collect();
        // Already the case if the backend lists names in order.
        arenas.sort_unstable();
        Ok(Self { arenas })
    }

    /// Lists the arenas twice, and gives all that was in either listing. While an arena is rewritten
    /// one listing may show neither the generation that goes nor the one that replaces it.
    pub fn list_twice(backend: &dyn Backend) -> Result<Self, BackendError> {
        let (mut first, second) = (Self::list(backend)?, Self::list(backend)?);
        first.arenas.extend(second.arenas);
        first.arenas.sort_unstable();
        first.arenas.dedup_by_key(|arena| arena.name);
        Ok(first)
    }

    /// The generations of an arena that exist, ascending.
    pub fn generations(&self, id: ArenaId) -> &[ListedArena] {
        let begin = self.arenas.partition_point(|arena| arena.name.id < id);
        let end = self.arenas.partition_point(|arena| arena.name.id <= id);
        &self.arenas[begin..end]
    }

    /// All of them, those of an arena in their order.
    pub fn all(&self) -> &[ListedArena] {
        &self.arenas
    }

    /// Whether all is there that another listing has, as long as it was then.
    pub fn has_all_of(&self, other: &Self) -> bool {
        other.arenas.iter().all(|arena| self.arenas.binary_search(arena).is_ok())
    }

    /// Each arena in its greatest generation, in the order of their identifiers.
    pub fn newest(&self) -> impl Iterator<Item = ListedArena> {
        let groups = self.arenas.chunk_by(|one, next| one.name.id == next.name.id);
        groups.filter_map(|generations| generations.last().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn names_come_back() {
        for generation in [0, 1, 9, 10, u32::MAX] {
            let name = ArenaName { id: ID.parse().unwrap(), generation };
            assert_eq!(name.to_string(), format!("{ID}.{generation}"));
            assert_eq!(ArenaName::of(&name.object()), Some(name));
        }
        let last = ArenaName { id: ID.parse().unwrap(), generation: u32::MAX };
        assert_eq!((ArenaName::first(last.id).next().unwrap().generation, last.next()), (1, None));
    }

    #[test]
    fn a_listing_lacks_what_is_gone_or_of_another_length() {
        let id = |last: char| format!("{}{last}", &ID[1..]).parse().unwrap();
        let listed = |arenas: &[(char, u32, u64)]| ListedArenas {
            arenas: arenas
                .iter()
                .map(|(last, generation, bytes)| ListedArena {
                    name: ArenaName { id: id(*last), generation: *generation },
                    object_bytes: *bytes,
                })
                .collect(),
        };
        let before = listed(&[('1', 0, 10), ('2', 0, 20), ('2', 1, 15)]);
        let later = |arenas: &[_]| listed(arenas).has_all_of(&before);
        assert!(before.has_all_of(&before) && before.has_all_of(&listed(&[])));
        assert!(later(&[('1', 0, 10), ('2', 0, 20), ('2', 1, 15), ('3', 0, 9)]), "one more");
        assert!(!later(&[('1', 0, 10), ('2', 1, 15)]), "a generation is gone");
        assert!(!later(&[('1', 0, 11), ('2', 0, 20), ('2', 1, 15)]), "one is longer");
    }

    #[test]
    fn no_arena_has_two_names() {
        let refused = [
            ID.to_owned(),
            format!("{ID}."),
            format!("{ID}.00"),
            format!("{ID}.01"),
            format!("{ID}.+1"),
            format!("{ID}.-1"),
            format!("{ID}. 1"),
            format!("{ID}.4294967296"),
            format!("{ID}.1.2"),
            format!("{ID}.copy"),
            format!("{ID}.0.copy"),
            format!("{}.0", ID.to_uppercase()),
            format!("{}.0", &ID[1..]),
            ".0".to_owned(),
        ];
        for text in refused {
            assert_eq!(text.parse::<ArenaName>(), Err(ParseArenaNameError), "{text}");
        }
        let name: ArenaName = format!("{ID}.7").parse().unwrap();
        assert_eq!(ArenaName::of(&ObjectName::new("snapshots", name)), None);
    }
}
