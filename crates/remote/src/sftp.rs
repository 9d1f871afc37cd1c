//! Objects as files of an SFTP server, by the user's own `ssh`.
//!
//! A new object is written under a temporary name and flushed (`fsync@openssh.com`). It gets its own
//! as a second name (`hardlink@openssh.com`), which is atomic and refuses a name that is taken; then
//! the first is removed. The plain rename of version 3 would do the same in most places. But if the
//! file system has no links, OpenSSH's server looks whether the name is free and then renames, and
//! another machine, which has another process of the server, may do so at the same time. No trial by
//! one machine finds that out, so a server without links has no exclusive create.
//! `posix-rename@openssh.com` replaces atomically.
//!
//! A writer that is killed may leave a temporary file. It is left alone, as at WebDAV.

mod packet;
mod session;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Promises, Refusal};
use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;

use crate::address::Address;
use crate::calls::{Acquaintance, Link};
use crate::failure::Failure;
use crate::rate::Line;
use crate::service::{Service, read_within};
use crate::settings::Settings;
use crate::shell::{Shell, What};
use packet::{Body, FOR_A_NEW_FILE, FOR_READING, MKDIR, REMOVE, free_blocks};
use session::{Session, done};

/// Requests in flight that are worth having: each of a large object is many by itself.
const IN_FLIGHT: usize = 8;
/// What the names of temporary files begin with; no object's name does.
const TEMPORARY: &str = ".tmp-";
const FLUSH: &str = "fsync@openssh.com";
const LINK: &str = "hardlink@openssh.com";
const REPLACE: &str = "posix-rename@openssh.com";
const SPACE: &str = "statvfs@openssh.com";

/// What a server that makes no second names cannot do.
const EXCLUDE: &str = "keep two clients from creating the same object: it has no links";

/// A folder of an SFTP server.
pub(crate) struct Sftp {
    address: Address,
    settings: Settings,
    /// The folder, without a slash at its end.
    root: String,
    line: Arc<Line>,
    entropy: Arc<dyn Entropy>,
    // A plain mutex: held while a session begins, so that all callers wait for the one.
    session: Mutex<Option<Arc<Session>>>,
    heard: Acquaintance,
}

impl Sftp {
    /// The folder of an address.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let path = address.path.as_str();
        Ok(Self {
            address: address.clone(),
            settings: settings.clone(),
            root: if path.is_empty() { ".".to_owned() } else { path.to_owned() },
            line: Arc::new(Line::new(&settings.rate, &settings.clock)),
            entropy: settings.entropy.clone(),
            session: Mutex::default(),
            heard: Acquaintance::default(),
        })
    }

    fn session(&self) -> Result<Arc<Session>, Failure> {
        let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = kept.as_ref().filter(|session| session.is_alive()) {
            return Ok(session.clone());
        }
        *kept = None;
        let shell = Shell::spawn(&self.address, &self.settings, What::Subsystem("sftp"))?;
        let begun = Arc::new(Session::begin(Link::of(shell, &self.heard), self.line.clone())?);
        *kept = Some(begun.clone());
        Ok(begun)
    }

    fn path(&self, name: &str) -> Vec<u8> {
        if name.is_empty() { self.root.clone() } else { format!("{}/{name}", self.root) }.into()
    }

    /// A new name for a temporary file in a folder.
    fn temporary(&self, folder: &str) -> Vec<u8> {
        let chance: [u8; 12] = random_array(&*self.entropy);
        let hex: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        let slash = if folder.is_empty() { "" } else { "/" };
        self.path(&format!("{folder}{slash}{TEMPORARY}{hex}"))
    }

    /// Writes a temporary file in the folder of an object, and returns its path.
    fn write(
        &self,
        session: &Session,
        name: &ObjectName,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let folder = name.folder();
        let temporary = self.temporary(folder);
        let file = match session.open_file(&temporary, FOR_A_NEW_FILE) {
            Err(Failure::NotFound) => {
                make_folder(session, &self.path(folder))?;
                session.open_file(&temporary, FOR_A_NEW_FILE)?
            }
            other => other?,
        };
        let flush = session.has(FLUSH).then_some(FLUSH);
        match file.write_all(bytes, flush) {
            Ok(()) => Ok(temporary),
            Err(failure) => {
                let _ = session.ask(REMOVE, Body::default().string(&temporary));
                Err(self.or_full(session, failure))
            }
        }
    }

    /// Servers say of a full disk only that something failed.
    fn or_full(&self, session: &Session, failure: Failure) -> Failure {
        if !matches!(failure, Failure::Refused { refusal: Refusal::Other, .. })
            || !session.has(SPACE)
        {
            return failure;
        }
        let space = session.extended(SPACE, Body::default().string(&self.path("")));
        match space.ok().and_then(|body| free_blocks(&body)) {
            Some(0) => Failure::FULL,
            _ => failure,
        }
    }

    /// Whether the server makes second names for the files of a folder.
    fn links(&self, session: &Session, folder: &str) -> Result<bool, Failure> {
        let (first, second) = (self.temporary(folder), self.temporary(folder));
        session.open_file(&first, FOR_A_NEW_FILE)?.write_all(&[], None)?;
        let linked = move_by_link(session, &first, &second);
        let _ = session.ask(REMOVE, Body::default().string(&second));
        match linked {
            Err(failure @ (Failure::Lost(_) | Failure::Busy { .. })) => Err(failure),
            linked => Ok(linked.is_ok()),
        }
    }

    /// What a refusal about an object means: servers say of a folder in its place only that
    /// something failed.
    fn explain(&self, session: &Session, name: &ObjectName, failure: Failure) -> Failure {
        let Failure::Refused { refusal: Refusal::Other, .. } = failure else { return failure };
        match session.stat(&self.path(name.as_str())) {
            Ok(attributes) if attributes.is_folder() => {
                Failure::Unreadable(io::ErrorKind::IsADirectory.into())
            }
            _ => failure,
        }
    }
}

/// Gives a file another name, if that is free. The first is gone in any case.
fn move_by_link(session: &Session, from: &[u8], to: &[u8]) -> Result<(), Failure> {
    let linked = session.send_extended(LINK, Body::default().string(from).string(to))?;
    // In the same flight: the server does one after the other.
    let removed = session.send(REMOVE, Body::default().string(from))?;
    let linked = done(&linked);
    // A name that is left is that of a temporary file.
    let _ = done(&removed);
    linked
}

fn make_folder(session: &Session, path: &[u8]) -> Result<(), Failure> {
    let made = session.ask(MKDIR, Body::default().string(path).no_attributes());
    // Servers say of a folder that exists only that something failed.
    match made {
        Err(Failure::Refused { .. }) if session.stat(path).is_ok_and(|is| is.is_folder()) => Ok(()),
        other => other,
    }
}

impl Service for Sftp {
    fn is_there(&self) -> Result<bool, Failure> {
        match self.session()?.stat(&self.path("")) {
            Ok(attributes) if attributes.is_file() && attributes.mode.is_some() => {
                Err(Failure::Refused {
                    refusal: Refusal::NoSuchPlace,
                    answer: "it is a file, not a folder".to_owned(),
                })
            }
            Ok(_) => Ok(true),
            Err(Failure::NotFound) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn make(&self) -> Result<(), Failure> {
        let session = self.session()?;
        let ends = self.root.match_indices('/').map(|(at, _)| at).chain([self.root.len()]);
        // From the last folder that exists on.
        let ends: Vec<usize> = ends.filter(|end| *end > 0).collect();
        let paths = ends.iter().map(|end| &self.root.as_bytes()[..*end]);
        let mut missing = Vec::new();
        for path in paths.rev() {
            match session.stat(path) {
                Ok(_) => break,
                Err(Failure::NotFound) => missing.push(path),
                Err(failure) => return Err(failure),
            }
        }
        missing.into_iter().rev().try_for_each(|path| make_folder(&session, path))
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        // Servers add up the two as signed numbers.
        if i64::try_from(offset.saturating_add(length as u64)).is_err() {
            return read_within(self, name, offset, length);
        }
        let session = self.session()?;
        let path = self.path(name.as_str());
        let read = session.open_file(&path, FOR_READING).and_then(|file| file.read(offset, length));
        match read.map_err(|failure| self.explain(&session, name, failure)) {
            // Of a bad sector, perhaps: of this object. A missing right is none of its faults.
            Err(Failure::Refused { refusal, answer }) if refusal != Refusal::Right => {
                Err(Failure::Unreadable(io::Error::other(answer)))
            }
            other => other,
        }
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        let attributes = self.session()?.stat(&self.path(name.as_str()))?;
        if !attributes.is_file() {
            return Err(Failure::Unreadable(io::ErrorKind::IsADirectory.into()));
        }
        attributes.bytes.ok_or_else(|| Failure::lost("an answer without the object's length"))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        let session = self.session()?;
        if !session.has(LINK) {
            return Err(Failure::Unsupported(EXCLUDE));
        }
        let temporary = self.write(&session, name, bytes)?;
        match move_by_link(&session, &temporary, &self.path(name.as_str())) {
            // Servers say of a name that is taken only that something failed.
            Err(failure @ (Failure::Refused { .. } | Failure::NotFound)) => {
                if session.is_taken(&self.path(name.as_str()))? {
                    return Err(Failure::Taken);
                }
                match self.or_full(&session, failure) {
                    full @ Failure::Full { .. } => Err(full),
                    // What had the name may have been removed a moment ago.
                    failure if self.links(&session, name.folder())? => {
                        Err(Failure::lost(failure.answer()))
                    }
                    _ => Err(Failure::Unsupported(EXCLUDE)),
                }
            }
            other => other,
        }
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        let session = self.session()?;
        if !session.has(REPLACE) {
            return Err(Failure::Unsupported("replace an object at once"));
        }
        let temporary = self.write(&session, name, bytes)?;
        let body = Body::default().string(&temporary).string(&self.path(name.as_str()));
        let renamed = session.extended(REPLACE, body).map(drop);
        renamed.map_err(|failure| {
            let _ = session.ask(REMOVE, Body::default().string(&temporary));
            self.explain(&session, name, failure)
        })
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        let session = self.session()?;
        let removed = session.ask(REMOVE, Body::default().string(&self.path(name.as_str())));
        removed.map_err(|failure| self.explain(&session, name, failure))
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let entries = match self.session()?.list(&self.path(folder)) {
            Err(Failure::NotFound) => return Ok(Vec::new()),
            other => other?,
        };
        let slash = if folder.is_empty() { "" } else { "/" };
        Ok(entries
            .iter()
            // At the top, folders are folders of objects.
            .filter(|(_, attributes)| !attributes.is_folder() || !folder.is_empty())
            .filter_map(|(file, attributes)| {
                let file = std::str::from_utf8(file).ok()?;
                let name = ObjectName::parse(&format!("{folder}{slash}{file}"))?;
                let bytes = attributes.bytes.filter(|_| attributes.is_file()).unwrap_or(0);
                Some(ObjectInfo { name, bytes })
            })
            .collect())
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        let entries = match self.session()?.list(&self.path("")) {
            Err(Failure::NotFound) => return Ok(true),
            other => other?,
        };
        let expected = [b".".as_slice(), b"..", folder.as_bytes()];
        Ok(entries.iter().all(|(name, _)| expected.contains(&name.as_slice())))
    }

    fn promises(&self) -> Promises {
        Promises {
            is_exclusive: None,
            is_consistent: Some(true),
            // Files are flushed, but their folders cannot be.
            is_durable: false,
            in_flight: IN_FLIGHT,
            sends_parts: true,
            object_bytes_max: u64::MAX,
            copies: false,
            locks: false,
            proves: false,
        }
    }

    fn describe(&self) -> String {
        self.address.to_string()
    }
}
