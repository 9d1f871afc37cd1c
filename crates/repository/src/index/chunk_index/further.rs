//! Places of chunks besides those that the index knows: it knows one of each, and two backups at the
//! same time may both have stored a chunk; of arenas of other domains without a voucher it knows none.
//!
//! Most chunks are never asked for, and there may be billions of them. So of each slot only a part of
//! its fingerprint is kept; the summary of its arena is read again for a chunk that may be in it.

use strongroom_arena::{ArenaStore, ListedArenas};
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Fingerprint, Location};

use super::ChunkIndex;
use crate::error::RepositoryError;

/// The first bytes of a fingerprint, which is a keyed hash. Of 8 million tags, one in 500 chunks that are
/// nowhere meets an equal one, and a summary is read in vain.
type Tag = u32;

/// Slots that the index does not know.
///
/// Invariants: an arena is in `arenas` or in `without_tags`, and in none if the index knows all its slots. The ends in
/// `arenas` ascend, and the last is the length of `tags`.
#[derive(Default)]
pub struct FurtherPlaces {
    /// Those of the slots, arena by arena.
    tags: Vec<Tag>,
    /// Each arena with such slots, and where its tags end.
    arenas: Vec<(ArenaId, usize)>,
    /// Arenas for whose tags there was no room.
    without_tags: Vec<ArenaId>,
}

impl FurtherPlaces {
    /// Reads every summary. In 32 MiB are the tags of 8 million chunks, of half a terabyte or so. The
    /// arenas behind these are read again for each chunk that is asked for.
    pub const TAGS_MAX: usize = 8 << 20;

    /// Those besides the places in an index, with at most this many tags.
    pub fn read(
        index: &ChunkIndex,
        backend: &dyn Backend,
        store: &ArenaStore,
        tags_max: usize,
    ) -> Result<Self, RepositoryError> {
        let mut further = Self::default();
        for newest in ListedArenas::list(backend)?.newest() {
            let id = newest.name.id;
            let begin = further.tags.len();
            let mut has_room = true;
            each_slot(index, store, id, |slot, fingerprint| {
                let is_indexed = || index.lookup(fingerprint) == Some(Location { arena: id, slot });
                if *fingerprint == Fingerprint::ZERO || is_indexed() {
                    return true;
                }
                has_room = further.tags.len() < tags_max;
                if has_room {
                    further.tags.push(tag_of(fingerprint));
                }
                has_room
            })?;
            if !has_room {
                further.tags.truncate(begin);
                further.without_tags.push(id);
            } else if further.tags.len() > begin {
                further.arenas.push((id, further.tags.len()));
            }
        }
        Ok(further)
    }

    /// A place of this chunk that was not tried yet.
    pub fn find(
        &self,
        fingerprint: &Fingerprint,
        tried: &[Location],
        index: &ChunkIndex,
        store: &ArenaStore,
    ) -> Result<Option<Location>, RepositoryError> {
        let tag = tag_of(fingerprint);
        let mut begin = 0;
        let with_tag = self.arenas.iter().filter_map(|(id, end)| {
            let tags = &self.tags[std::mem::replace(&mut begin, *end)..*end];
            tags.contains(&tag).then_some(*id)
        });
        for id in with_tag.chain(self.without_tags.iter().copied()) {
            let mut found = None;
            each_slot(index, store, id, |slot, of| {
                let place = Location { arena: id, slot };
                if of == fingerprint && !tried.contains(&place) {
                    found = Some(place);
                }
                found.is_none()
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.tags.capacity() * size_of::<Tag>()
            + self.arenas.capacity() * size_of::<(ArenaId, usize)>()
            + self.without_tags.capacity() * size_of::<ArenaId>()
    }
}

fn tag_of(fingerprint: &Fingerprint) -> Tag {
    Tag::from_le_bytes(*fingerprint.0.first_chunk().expect("a fingerprint is longer"))
}

/// Calls `take` with the slots of an arena, until it returns false. An arena is the union of its
/// generations; one that cannot be read, or is withheld, has none.
fn each_slot(
    index: &ChunkIndex,
    store: &ArenaStore,
    id: ArenaId,
    mut take: impl FnMut(u32, &Fingerprint) -> bool,
) -> Result<(), RepositoryError> {
    let arenas = match store.arenas(id) {
        Err(error) if error.is_unreadable() || index.notes_withheld(id, &error) => return Ok(()),
        other => other?,
    };
    for (slot, entry) in arenas.iter().flat_map(|arena| arena.slots()) {
        if !take(slot, &entry.fingerprint) {
            break;
        }
    }
    Ok(())
}
