//! A house: rooms, the tokens that open them, a log, and the server's identity.
//!
//! ```text
//! HOUSE/rooms/NAME/      a repository
//! HOUSE/tokens/ID        what a token opens (token.rs)
//! HOUSE/log              what was done and refused (log.rs)
//! HOUSE/certificate.pem  the server's own certificate, made at the first start
//! HOUSE/key.pem          its key
//! ```
//!
//! All of it is files that a person can read. There is no database: what the server remembers beside
//! the rooms is small, and a token that was added or removed counts at once (design 0022).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_backend::{BackendError, Operation, Refusal};
use strongroom_base::{Clock, Entropy, Timestamp};
use zeroize::Zeroizing;

use crate::attend::{Door, Entrance, not_let_in};
use crate::log::{AuditLog, LogError};
use crate::room::{Checks, Room, Visitor};
use crate::token::{self, NewToken, Token, TokenError};

/// Rooms, and the tokens that open them.
pub struct House {
    path: PathBuf,
    checks: Checks,
    clock: Arc<dyn Clock>,
    log: Option<Arc<AuditLog>>,
    // Plain mutexes: held for a look or an insertion.
    rooms: Mutex<HashMap<String, Arc<Room>>>,
    turned_down: Mutex<TurnedDown>,
}

/// Strangers who were not let in, of which the log names a number in a minute.
#[derive(Default)]
struct TurnedDown {
    minute: i64,
    named: u32,
    unnamed: u64,
}

/// How many strangers the log names in a minute: anybody can make it longer.
const NAMED_MAX: u32 = 60;

/// What can be wrong with a house.
#[derive(Debug, thiserror::Error)]
pub enum HouseError {
    /// One of its folders cannot be used.
    #[error("cannot use {}: {source}", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// Its log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its tokens.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nothing was ever served from there.
    #[error("{} is no folder that is served: no token was ever made there", .0.display())]
    NoHouse(PathBuf),
    /// A name that is no room's.
    #[error("{0:?} cannot be the name of a room: use lower-case letters, digits, - and .")]
    RoomName(String),
}

impl House {
    /// Opens a house, which is made if it does not exist, without serving it.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, HouseError> {
        for folder in ["rooms", "tokens"].map(|folder| path.join(folder)) {
            fs::create_dir_all(&folder)
                .map_err(|source| HouseError::Io { path: folder, source })?;
        }
        Self::find(path, clock)
    }

    /// Opens a house that exists, to look at it or to take something away: creates nothing.
    pub fn find(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, HouseError> {
        if !path.join("tokens").is_dir() {
            return Err(HouseError::NoHouse(path.to_owned()));
        }
        let path = path.to_owned();
        Ok(Self {
            path,
            checks: Checks::Envelopes,
            clock,
            log: None,
            rooms: Mutex::default(),
            turned_down: Mutex::default(),
        })
    }

    /// Opens it to serve it: only one server at a time does.
    pub fn serve(path: &Path, checks: Checks, clock: Arc<dyn Clock>) -> Result<Self, HouseError> {
        let house = Self::open(path, clock.clone())?;
        let log = Arc::new(AuditLog::open(&house.log_path(), clock)?);
        Ok(Self { checks, log: Some(log), ..house })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its log's file.
    pub fn log_path(&self) -> PathBuf {
        self.path.join("log")
    }

    fn tokens(&self) -> PathBuf {
        self.path.join("tokens")
    }

    /// Makes a token, with its room. Returns the text that its owner needs, which is kept nowhere.
    pub fn add_token(
        &self,
        new: NewToken,
        entropy: &dyn Entropy,
    ) -> Result<(Token, Zeroizing<String>), HouseError> {
        if !is_room(&new.room) {
            return Err(HouseError::RoomName(new.room));
        }
        let room = self.path.join("rooms").join(&new.room);
        fs::create_dir_all(&room).map_err(|source| HouseError::Io { path: room, source })?;
        Ok(token::make(&self.tokens(), new, entropy)?)
    }

    /// All tokens.
    pub fn list_tokens(&self) -> Result<Vec<Token>, HouseError> {
        Ok(token::all(&self.tokens())?)
    }

    /// Removes a token; those who came in by it are sent away within seconds.
    pub fn remove_token(&self, id: &str) -> Result<(), HouseError> {
        Ok(token::remove(&self.tokens(), id)?)
    }

    /// Whether a token is still one.
    pub(crate) fn has_token(&self, id: &str) -> bool {
        token::read(&self.tokens(), id)
            .is_ok_and(|token| token.until.is_none_or(|until| until >= self.clock.now()))
    }

    /// The names of all rooms.
    pub(crate) fn room_names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path.join("rooms"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if is_room(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// A room by its name.
    pub(crate) fn room(&self, name: &str) -> Arc<Room> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let room = rooms.entry(name.to_owned()).or_insert_with(|| {
            let path = self.path.join("rooms").join(name);
            Arc::new(Room::new(name, &path, self.checks, self.log.clone()))
        });
        room.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Writes that a stranger was not let in, or how many more were not in an earlier minute.
    fn note_stranger(&self, who: &str, room: &str) {
        let mut down = self.turned_down.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = self.clock.now().0.div_euclid(60_000_000_000);
        if minute != down.minute {
            let before =
                std::mem::replace(&mut *down, TurnedDown { minute, ..TurnedDown::default() });
            if before.unnamed > 0 {
                self.note("-", "not-let-in", &format!("{}-more", before.unnamed));
            }
        }
        if down.named < NAMED_MAX {
            down.named += 1;
            self.note(who, "not-let-in", room);
        } else {
            down.unnamed += 1;
        }
    }

    /// Writes a line about the server itself.
    pub(crate) fn note(&self, who: &str, verb: &str, what: &str) {
        if let Some(log) = &self.log {
            log.write(who, "", verb, what, 0);
        }
    }
}

impl Door for House {
    fn enter(&self, token: &str, room: &str) -> Result<Entrance, BackendError> {
        let found = token::find(&self.tokens(), token, self.clock.now());
        let found = found.map_err(|error| BackendError::Io {
            operation: Operation::Open,
            what: "the tokens".to_owned(),
            source: io::Error::other(error),
        })?;
        let Some(found) = found else {
            // The public half, if it is one, helps to find who it was.
            let id: String = token.chars().take_while(|c| *c != '.').take(12).collect();
            self.note_stranger(&id, room);
            let answer = "the token is wrong, was removed, or has ended";
            return Err(not_let_in(Refusal::Credentials, answer));
        };
        if found.room != room {
            self.note_stranger(&found.id, room);
            let answer = "the token is for another room";
            return Err(not_let_in(Refusal::Right, answer));
        }
        let room = self.room(&found.room);
        let visitor = Visitor {
            name: format!("{}/{}", found.id, found.name),
            role: found.role,
            quota: found.quota,
        };
        room.note(&visitor, "enter", found.role.as_str(), 0);
        Ok(Entrance { room, visitor })
    }
}

/// Whether a name can be that of a room: a folder's that leads nowhere else.
fn is_room(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 100
        && !name.starts_with('.')
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
}
