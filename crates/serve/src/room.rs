//! A room: one repository, and what those who were let in may do with it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, proof};
use strongroom_arena::format::{ArenaHead, HEAD_BYTES, SUMMARY_START};
use strongroom_arena::{ARENAS_FOLDER, ArenaName, object_bytes_max};
use strongroom_backend::{
    Backend, BackendError, LocalBackend, ObjectInfo, ObjectName, Operation, Promises, Refusal,
};
use strongroom_base::Stopwatch;
use strongroom_repository::arena_bytes_of;
use strongroom_repository::objects::{
    ASIDE_FOLDER, COLLECTIONS_FOLDER, FORGOTTEN_FOLDER, SESSIONS_FOLDER, expected, is_as_named,
    list_objects,
};

use crate::limits::CHECKED_BYTES;
use crate::log::AuditLog;
use crate::notes;
use crate::rights::{Role, Verb};

/// The largest object that any room takes: the largest arena, with parity and frame.
pub(crate) const OBJECT_BYTES_MAX: u64 = 3 << 30;
/// Sessions of one visitor that may exist at a time. More is a mistake, or an attack: each of them
/// keeps collections from removing anything.
const SESSIONS_MAX: usize = 1000;
/// A quota that seems to be used up is counted again after this time at the earliest.
const COUNTED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How many objects the first listing of a room is expected to have.
const OBJECTS_AT_FIRST: usize = 10_000;

/// Whether objects are checked before they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Only whole objects of a repository, under their own names.
    Envelopes,
    /// Any bytes, for tests of the protocol.
    Nothing,
}

/// One repository.
pub struct Room {
    name: String,
    path: PathBuf,
    checks: Checks,
    log: Option<Arc<AuditLog>>,
    // Plain mutexes: held for a look or an insertion.
    backend: Mutex<Option<Arc<LocalBackend>>>,
    /// Sessions and those who began them.
    sessions: Mutex<BTreeSet<(String, ObjectName)>>,
    /// Held while a session begins: from the look at its name until its object is created.
    beginning: Mutex<()>,
    /// Bytes of all objects; `u64::MAX` as long as they were not counted.
    used: AtomicU64,
    /// When they were last counted again because of a quota.
    counted_again: Mutex<Option<Stopwatch>>,
    /// Objects of the longest listing.
    objects_listed: AtomicUsize,
}

/// A client that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// The name of the token, for the log.
    pub name: String,
    /// What may be done.
    pub role: Role,
    /// The room may have this many bytes when this visitor stores something.
    pub quota: Option<u64>,
}

impl Room {
    /// The room at a folder, which need not exist. What happens is written to the log.
    pub fn new(name: &str, path: &Path, checks: Checks, log: Option<Arc<AuditLog>>) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            checks,
            log,
            backend: Mutex::default(),
            sessions: Mutex::default(),
            beginning: Mutex::default(),
            used: AtomicU64::new(u64::MAX),
            counted_again: Mutex::default(),
            objects_listed: AtomicUsize::new(OBJECTS_AT_FIRST),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is there.
    pub(crate) fn is_there(&self) -> Result<bool, BackendError> {
        match self.backend() {
            Ok(_) => Ok(true),
            Err(BackendError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes it.
    pub(crate) fn make(&self, visitor: &Visitor) -> Result<(), BackendError> {
        if visitor.role != Role::Admin && !self.is_there()? {
            return Err(self.refusal(visitor, Verb::Create, "the room"));
        }
        LocalBackend::create(&self.path).map(drop)
    }

    /// The objects themselves.
    pub(crate) fn backend(&self) -> Result<Arc<LocalBackend>, BackendError> {
        let mut backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = &*backend {
            return Ok(backend.clone());
        }
        let opened = Arc::new(LocalBackend::open(&self.path)?);
        *backend = Some(opened.clone());
        Ok(opened)
    }

    pub(crate) fn promises(&self) -> Promises {
        Promises { proves: true, object_bytes_max: OBJECT_BYTES_MAX, ..Promises::LOCAL }
    }

    pub(crate) fn size(&self, visitor: &Visitor, name: &ObjectName) -> Result<u64, BackendError> {
        self.allow(visitor, Verb::See, name)?;
        self.backend()?.size(name)
    }

    pub(crate) fn list(
        &self,
        visitor: &Visitor,
        folder: &str,
    ) -> Result<Vec<ObjectInfo>, BackendError> {
        if !visitor.role.may(Verb::See, folder) {
            return Err(self.refusal(visitor, Verb::See, folder));
        }
        let infos = self.backend()?.list(folder)?;
        self.objects_listed.fetch_max(infos.len(), Ordering::Relaxed);
        Ok(infos)
    }

    /// How many objects the longest listing had, as far as that is known: about as many the next one may have.
    pub(crate) fn objects_listed(&self) -> usize {
        self.objects_listed.load(Ordering::Relaxed)
    }

    /// Refuses to send these bytes of an object to a visitor who may not read all of them.
    pub(crate) fn allow_reading(
        &self,
        visitor: &Visitor,
        name: &ObjectName,
        offset: u64,
        bytes: u64,
    ) -> Result<(), BackendError> {
        if self.allows(visitor, Verb::Read, name) {
            return Ok(());
        }
        let refused = || self.refusal(visitor, Verb::Read, name.as_str());
        if name.folder() != ARENAS_FOLDER {
            return Err(refused());
        }
        // The front of an arena: its summary, of which nothing can be read without a key.
        let front = self.backend()?.read(name, 0, SUMMARY_START)?;
        let head = front.get(SUMMARY_START - HEAD_BYTES..);
        let head = head.and_then(|head| ArenaHead::unpack(head).ok());
        let blocks_start = head.map_or(0, |head| head.blocks_start());
        match offset.saturating_add(bytes) {
            end if end <= blocks_start => Ok(()),
            // Who does not know yet how long the front is asks for too much: no case for the log.
            _ if offset == 0 && blocks_start > 0 => Err(no_blocks(visitor, name)),
            _ => Err(refused()),
        }
    }

    /// Refuses an object before its bytes are sent, if that is already clear.
    pub(crate) fn may_store(
        &self,
        visitor: &Visitor,
        name: &ObjectName,
        bytes: u64,
        replaces: bool,
    ) -> Result<(), BackendError> {
        self.allow(visitor, if replaces { Verb::Replace } else { Verb::Create }, name)?;
        if ArenaName::of(name).is_some_and(|arena| arena.generation > 0)
            && !visitor.role.rewrites_arenas()
        {
            return Err(self.refusal(visitor, Verb::Replace, name.as_str()));
        }
        let is_ours =
            expected(name).is_some() || is_aside(name) || notes::folder_in(name).is_some();
        if self.checks == Checks::Envelopes && !is_ours {
            let answer = "no object of a repository has this name".to_owned();
            return Err(refused(Operation::Write, name, Refusal::Content, answer));
        }
        if bytes > CHECKED_BYTES as u64 && bytes > self.object_bytes_max()? {
            return Err(BackendError::TooLarge { name: name.clone(), bytes });
        }
        if let Some(quota) = visitor.quota {
            // What a collection needs to make room is let through for some time.
            let limit = match visitor.role.rewrites_arenas() && serves_removal(name) {
                true => quota.saturating_add(quota / 16).saturating_add(REMOVAL_BYTES),
                false => quota,
            };
            let is_beyond = |used: u64| used.saturating_add(bytes) > limit;
            let mut used = self.used()?;
            if is_beyond(used) && self.may_count_again() {
                used = self.count_all()?;
            }
            if is_beyond(used) {
                let answer = format!("the quota of {quota} bytes is used up ({used} are stored)");
                self.note(visitor, "over-quota", name.as_str(), bytes);
                return Err(refused(Operation::Write, name, Refusal::Quota, answer));
            }
        }
        if !replaces && name.folder() == SESSIONS_FOLDER {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            if sessions.iter().filter(|(of, _)| *of == visitor.name).count() >= SESSIONS_MAX {
                let answer = format!("{SESSIONS_MAX} sessions are open already");
                return Err(refused(Operation::Write, name, Refusal::Quota, answer));
            }
        }
        Ok(())
    }

    /// The largest object that is taken: the largest arena of the repository, with parity and frame. It is
    /// checked in memory.
    fn object_bytes_max(&self) -> Result<u64, BackendError> {
        let longest = object_bytes_max(arena_bytes_of(&*self.backend()?));
        Ok(longest.min(OBJECT_BYTES_MAX))
    }

    /// Stores an object that may be stored.
    pub(crate) fn store(
        &self,
        visitor: &Visitor,
        name: &ObjectName,
        bytes: &[u8],
        replaces: bool,
    ) -> Result<(), BackendError> {
        if self.checks == Checks::Envelopes {
            self.check(visitor, name, bytes)?;
        }
        let backend = self.backend()?;
        let begins = !replaces && name.folder() == SESSIONS_FOLDER;
        let _turn = begins.then(|| self.beginning.lock().unwrap_or_else(PoisonError::into_inner));
        let before = backend.size(name);
        if replaces {
            backend.replace(name, bytes)?;
        } else {
            // Succeeds too if the name is there with the same bytes.
            backend.create(name, bytes)?;
        }
        // A session belongs to the visitor who began it, and to no other who stores the same bytes.
        if begins && before.as_ref().is_err_and(BackendError::is_not_found) {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.insert((visitor.name.clone(), name.clone()));
        }
        self.count(bytes.len() as u64, before.unwrap_or(0));
        let verb = if replaces { "replace" } else { "create" };
        self.note(visitor, verb, name.as_str(), bytes.len() as u64);
        Ok(())
    }

    /// Whether the bytes are a whole object, and the one that the name says.
    fn check(
        &self,
        visitor: &Visitor,
        name: &ObjectName,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let wrong = |answer: String| refused(Operation::Write, name, Refusal::Content, answer);
        if notes::folder_in(name).is_some() {
            let is_whole = notes::is_whole(name, bytes);
            return is_whole.then_some(()).ok_or_else(|| wrong("it arrived damaged".to_owned()));
        }
        let inspection = envelope::inspect(bytes).map_err(|error| wrong(error.to_string()))?;
        if !inspection.is_whole() {
            return Err(wrong("it arrived damaged".to_owned()));
        }
        if !is_aside(name) && !is_as_named(name, &inspection.header) {
            return Err(wrong("it is another object than its name says".to_owned()));
        }
        // Who ends a session takes the name of its snapshot.
        if inspection.header.kind == ObjectKind::Tombstone && !visitor.role.ends_sessions() {
            let session = ObjectName::new(SESSIONS_FOLDER, name.file());
            if !self.is_own(visitor, &session) {
                return Err(self.refusal(visitor, Verb::Remove, session.as_str()));
            }
        }
        Ok(())
    }

    pub(crate) fn remove(&self, visitor: &Visitor, name: &ObjectName) -> Result<(), BackendError> {
        if !self.is_own(visitor, name) {
            self.allow(visitor, Verb::Remove, name)?;
        }
        let backend = self.backend()?;
        let bytes = backend.size(name).unwrap_or(0);
        backend.remove(name)?;
        if name.folder() == SESSIONS_FOLDER {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.retain(|(_, session)| session != name);
        }
        self.count(0, bytes);
        self.note(visitor, "remove", name.as_str(), bytes);
        Ok(())
    }

    /// Whether it is a session that this visitor began.
    fn is_own(&self, visitor: &Visitor, name: &ObjectName) -> bool {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.contains(&(visitor.name.clone(), name.clone()))
    }

    pub(crate) fn prove(
        &self,
        visitor: &Visitor,
        name: &ObjectName,
        bytes: &[u8],
        challenge: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        self.allow(visitor, Verb::See, name)?;
        proof::prove(bytes, challenge).ok_or_else(|| {
            let answer = "the challenge is not of a kind that this server knows".to_owned();
            refused(Operation::Read, name, Refusal::Version, answer)
        })
    }

    /// Compares a request with the role.
    pub(crate) fn allow(
        &self,
        visitor: &Visitor,
        verb: Verb,
        name: &ObjectName,
    ) -> Result<(), BackendError> {
        match self.allows(visitor, verb, name) {
            true => Ok(()),
            false => Err(self.refusal(visitor, verb, name.as_str())),
        }
    }

    /// Whether the role allows this, of a note with what it is about too.
    fn allows(&self, visitor: &Visitor, verb: Verb, name: &ObjectName) -> bool {
        let folders = std::iter::once(name.folder()).chain(notes::folder_in(name));
        folders.into_iter().all(|folder| visitor.role.may(verb, folder))
    }

    /// The refusal of something that the role does not allow.
    pub(crate) fn refusal(&self, visitor: &Visitor, verb: Verb, what: &str) -> BackendError {
        self.note(visitor, "refused", what, 0);
        let (operation, verb) = match verb {
            Verb::See => (Operation::List, "see"),
            Verb::Read => (Operation::Read, "read"),
            Verb::Create => (Operation::Write, "create"),
            Verb::Replace => (Operation::Write, "replace"),
            Verb::Remove => (Operation::Remove, "remove"),
            Verb::Retain => (Operation::Write, "lock"),
        };
        let answer = format!("the role {} may not {verb} this", visitor.role);
        BackendError::Refused { operation, what: what.to_owned(), refusal: Refusal::Right, answer }
    }

    /// Bytes of all objects.
    pub(crate) fn used(&self) -> Result<u64, BackendError> {
        let known = self.used.load(Ordering::Relaxed);
        if known != u64::MAX {
            return Ok(known);
        }
        self.count_all()
    }

    fn count_all(&self) -> Result<u64, BackendError> {
        let counted = list_objects(&*self.backend()?)?.iter().map(|info| info.bytes).sum();
        self.used.store(counted, Ordering::Relaxed);
        Ok(counted)
    }

    /// Whether the bytes may be counted again: the owner may have removed objects on this machine, by
    /// another program. A client that is refused often must not have them counted each time.
    fn may_count_again(&self) -> bool {
        let mut last = self.counted_again.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.as_ref().is_none_or(|last| last.elapsed() >= COUNTED_AGAIN_AFTER);
        if may {
            *last = Some(Stopwatch::start());
        }
        may
    }

    fn count(&self, more: u64, less: u64) {
        // Before the first count there is nothing to correct.
        let change =
            |used: u64| (used != u64::MAX).then(|| used.saturating_add(more).saturating_sub(less));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    pub(crate) fn note(&self, visitor: &Visitor, verb: &str, what: &str, bytes: u64) {
        if let Some(log) = &self.log {
            log.write(&visitor.name, &self.name, verb, what, bytes);
        }
    }
}

/// The refusal of a range that reaches into the blocks of an arena.
fn no_blocks(visitor: &Visitor, name: &ObjectName) -> BackendError {
    let answer = format!("the role {} may not read the blocks of arenas", visitor.role);
    refused(Operation::Read, name, Refusal::Right, answer)
}

fn is_aside(name: &ObjectName) -> bool {
    name.folder() == ASIDE_FOLDER
}

fn refused(
    operation: Operation,
    name: &ObjectName,
    refusal: Refusal,
    answer: String,
) -> BackendError {
    BackendError::Refused { operation, what: name.to_string(), refusal, answer }
}

/// Beyond the quota and a sixteenth of it, this much may still be stored of what makes room.
const REMOVAL_BYTES: u64 = 1 << 20;

/// Whether an object says that something may go, or is what is left of an arena of which a part goes.
fn serves_removal(name: &ObjectName) -> bool {
    matches!(name.folder(), COLLECTIONS_FOLDER | FORGOTTEN_FOLDER)
        || ArenaName::of(name).is_some_and(|arena| arena.generation > 0)
}
