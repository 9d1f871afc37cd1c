//! Down from snapshots to every chunk that they name.
//!
//! Which trees and nodes were read already is known by their places, a bit each, and separately for
//! each kind and level: nothing that is read as one can be taken for another.

use std::collections::{HashMap, HashSet};

use strongroom_base::{Cancel, Fingerprint, Monitor, SnapshotId};
use strongroom_catalog::format::{EntryUnpacker, unpack_node};
use strongroom_catalog::{ChunkRef, EntryKind, FormatError, Recipe, Snapshot};
use strongroom_repository::{ChunkReader, Places, RepositoryError};

use super::Absent;
use super::remains::Remains;

/// What a reference is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// A node of the recipe of a file, this many levels above its chunks; or, at level 0, such a
    /// chunk.
    Content { level: u8 },
    /// The same of a directory.
    Tree { level: u8 },
}

impl Role {
    fn below(self) -> Option<Self> {
        match self {
            Self::Content { level } => Some(Self::Content { level: level.checked_sub(1)? }),
            Self::Tree { level } => Some(Self::Tree { level: level.checked_sub(1)? }),
        }
    }
}

/// A descent through any number of snapshots.
pub struct Descent<'d> {
    reader: &'d ChunkReader,
    remains: &'d Remains,
    monitor: &'d dyn Monitor,
    cancel: &'d Cancel,
    /// What was read, by where it is.
    read: HashMap<Role, Places>,
    /// The same of what is not where the references say.
    read_elsewhere: HashSet<(Role, Fingerprint)>,
    /// Chunks that are not where the references say.
    absent: HashMap<Fingerprint, Absent>,
    /// References that are still to be followed.
    rest: Vec<(Role, ChunkRef)>,
    /// Whether what cannot be read counts as absent, instead of ending the descent.
    is_lenient: bool,
}

impl<'d> Descent<'d> {
    /// Nothing was read yet.
    pub fn new(
        reader: &'d ChunkReader,
        remains: &'d Remains,
        monitor: &'d dyn Monitor,
        cancel: &'d Cancel,
    ) -> Self {
        Self {
            reader,
            remains,
            monitor,
            cancel,
            read: HashMap::new(),
            read_elsewhere: HashSet::new(),
            absent: HashMap::new(),
            rest: Vec::new(),
            is_lenient: false,
        }
    }

    /// The same, in which what cannot be read counts as absent.
    pub fn lenient(self) -> Self {
        Self { is_lenient: true, ..self }
    }

    /// The chunks that are not where the references say, since this was asked last.
    pub fn take_absent(&mut self) -> HashMap<Fingerprint, Absent> {
        std::mem::take(&mut self.absent)
    }

    /// Follows a snapshot to its last reference.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), RepositoryError> {
        let what = format!("snapshot {}", snapshot.id.short());
        self.monitor.detail(&format!("{what}, once more"));
        self.follow(snapshot).map_err(|error| match error.is_damage() {
            true => RepositoryError::NotCollectable { what, why: error.to_string() },
            false => error,
        })
    }

    fn follow(&mut self, snapshot: &Snapshot) -> Result<(), RepositoryError> {
        self.rest.clear();
        self.tree(&snapshot.root, snapshot.id)?;
        while let Some((role, chunk)) = self.rest.pop() {
            self.cancel.check()?;
            if self.was_read(role, &chunk) {
                continue;
            }
            let bytes = match self.reader.read_metadata(&chunk) {
                Err(error) if self.is_lenient && error.is_unreadable() => {
                    self.note_absent(&chunk, snapshot.id);
                    continue;
                }
                other => other?,
            };
            match role.below() {
                None => self.entries(&bytes, snapshot.id)?,
                Some(below) => {
                    for part in unpack_node(&bytes)?.iter().rev() {
                        self.reference(below, part, snapshot.id)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The entries of a chunk of a tree.
    fn entries(&mut self, bytes: &[u8], snapshot: SnapshotId) -> Result<(), RepositoryError> {
        let (mut unpacker, mut at) = (EntryUnpacker::default(), 0);
        while at < bytes.len() {
            at = unpacker.unpack(bytes, at)?;
            match &unpacker.entry().kind {
                EntryKind::Directory { tree, .. } => self.tree(tree, snapshot)?,
                EntryKind::File { content } => {
                    let role = Role::Content { level: content.depth };
                    self.recipe(role, content, snapshot)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn tree(&mut self, tree: &Recipe, snapshot: SnapshotId) -> Result<(), RepositoryError> {
        self.recipe(Role::Tree { level: tree.depth }, tree, snapshot)
    }

    fn recipe(
        &mut self,
        role: Role,
        recipe: &Recipe,
        snapshot: SnapshotId,
    ) -> Result<(), RepositoryError> {
        for part in recipe.refs.iter().rev() {
            self.reference(role, part, snapshot)?;
        }
        Ok(())
    }

    /// Looks whether a chunk will be where a reference says. All but chunks of content are followed.
    fn reference(
        &mut self,
        role: Role,
        chunk: &ChunkRef,
        snapshot: SnapshotId,
    ) -> Result<(), RepositoryError> {
        if chunk.stream_bytes == 0 {
            return Err(FormatError::damaged("recipe", "a reference to no bytes").into());
        }
        if chunk.is_hole() {
            return Ok(());
        }
        let place = chunk.location;
        if !self.remains.holds(place) {
            if let Some(why) = self.remains.why_unreadable(place).filter(|_| !self.is_lenient) {
                let what = format!("arena {}", place.arena);
                return Err(RepositoryError::NotCollectable { what, why: why.to_owned() });
            }
            self.note_absent(chunk, snapshot);
        } else if !self.remains.is_in_all(place) {
            let doubtful = Absent { place, snapshot, is_doubtful: true };
            self.absent.entry(chunk.fingerprint).or_insert(doubtful);
        }
        if role != (Role::Content { level: 0 }) {
            self.rest.push((role, *chunk));
        }
        Ok(())
    }

    fn note_absent(&mut self, chunk: &ChunkRef, snapshot: SnapshotId) {
        let absent = Absent { place: chunk.location, snapshot, is_doubtful: false };
        let noted = self.absent.entry(chunk.fingerprint).or_insert(absent);
        if noted.is_doubtful {
            *noted = absent;
        }
    }

    /// Whether a chunk was read before in the same role; from now on it was.
    fn was_read(&mut self, role: Role, chunk: &ChunkRef) -> bool {
        if !self.remains.holds(chunk.location) {
            return !self.read_elsewhere.insert((role, chunk.fingerprint));
        }
        let read = self.read.entry(role).or_default();
        let was_read = read.contains(chunk.location);
        read.insert(chunk.location);
        was_read
    }
}
