//! For a key that cannot read: which arenas its machine can read all the same, and which sessions
//! the snapshot in the making depends on. What is done with that: `crates/repository/src/own.rs`.

use std::cell::RefCell;
use std::collections::HashMap;

use strongroom_arena::ArenaStore;
use strongroom_base::{ArenaId, Location, SnapshotId};

use crate::index::arenas::SessionTag;
use crate::index::chunk_index::ChunkIndex;
use crate::own::Needs;

/// The sessions whose secrets a machine has, and what of them a snapshot needs.
pub struct KeptSessions {
    sessions: HashMap<SessionTag, SnapshotId>,
    // Noted by questions that change nothing else; one thread asks them.
    noted: RefCell<Noted>,
}

#[derive(Default)]
struct Noted {
    needs: Needs,
    /// The arena that was noted last: neighbouring chunks are mostly in the same one.
    last: Option<ArenaId>,
}

impl KeptSessions {
    /// The sessions that a store knows, if the session in the making is one of them: else the next
    /// backup will not read what this one writes.
    pub fn of(store: &ArenaStore, session: SnapshotId) -> Option<Self> {
        store.secret_of(session)?;
        let sessions = store.known_sessions().map(|known| (SessionTag::of(known), known));
        Some(Self { sessions: sessions.collect(), noted: RefCell::default() })
    }

    /// True if this machine can read the arena.
    pub fn can_read(&self, arena: ArenaId, index: &ChunkIndex) -> bool {
        index.session_of(arena).is_some_and(|session| self.sessions.contains_key(&session))
    }

    /// Notes that a chunk of the snapshot is in this arena.
    pub fn note(&self, arena: ArenaId, index: &ChunkIndex) {
        let mut noted = self.noted.borrow_mut();
        if noted.last == Some(arena) {
            return;
        }
        noted.last = Some(arena);
        let session = index.session_of(arena).and_then(|session| self.sessions.get(&session));
        noted.needs.sessions.extend(session);
    }

    /// Notes the bases of a delta that is stored.
    pub fn note_bases(&self, bases: &[Location], index: &ChunkIndex) {
        let sessions = bases.iter().filter_map(|base| index.session_of(base.arena));
        let sessions = sessions.filter_map(|session| self.sessions.get(&session));
        self.noted.borrow_mut().needs.bases.extend(sessions);
    }

    /// What was noted.
    pub fn needs(&self) -> Needs {
        self.noted.borrow().needs.clone()
    }
}
