//! A place behind our own program: over `ssh://`, or at a server over TLS (`https://`).
//!
//! One connection carries all requests ([`wire`](crate::wire)). A thread of it receives, and gives
//! each frame to the call that waits for it. The caller sends by itself, a part at a time, so
//! that short questions pass between the parts of long objects. A connection that ends fails the
//! calls that wait; the next call makes another one.

mod connection;
mod transport;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal};
use strongroom_base::Timestamp;
use zeroize::Zeroizing;

use crate::address::{Address, Scheme};
use crate::failure::Failure;
use crate::rate::Line;
use crate::secret;
use crate::service::Service;
use crate::settings::Settings;
use crate::wire::{Request, unpack_infos};
use connection::Connection;
use transport::Transport;

/// Requests in flight that are worth having.
const IN_FLIGHT: usize = 16;
/// How long the other side may take until the next frame of an answer comes.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest answer that is no object.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The most objects that a listing has: about a petabyte in arenas.
const LISTED_MAX: usize = 64 << 20;

/// A place behind our own program.
pub(crate) struct Own {
    transport: Transport,
    token: Zeroizing<String>,
    room: String,
    line: Arc<Line>,
    // A plain mutex: held while a connection is made, so that all callers wait for the one.
    connection: Mutex<Option<Arc<Connection>>>,
    description: String,
}

impl Own {
    /// The place of an address. A server's token is the secret `STRONGROOM_TOKEN`.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let description = address.to_string();
        let failed =
            |failure: Failure| failure.into_error(Operation::Open, None, &address.to_string());
        let (token, room) = match address.scheme {
            Scheme::Https => (token(settings).map_err(failed)?, address.path.clone()),
            // The user of `ssh` is who asks, and the command there names the place.
            _ => (Zeroizing::default(), String::new()),
        };
        Ok(Self {
            transport: Transport::new(address, settings).map_err(failed)?,
            token,
            room,
            line: Arc::new(Line::new(&settings.rate, &settings.clock)),
            connection: Mutex::default(),
            description,
        })
    }

    /// The connection, which is made if there is none that works.
    fn connection(&self) -> Result<Arc<Connection>, Failure> {
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = kept.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(connection.clone());
        }
        *kept = None;
        let link = self.transport.connect()?;
        let entrance = Request::Enter { token: self.token.to_string(), room: self.room.clone() };
        let made = Arc::new(Connection::enter(link, &entrance, self.line.clone(), IN_FLIGHT)?);
        *kept = Some(made.clone());
        Ok(made)
    }

    fn ask(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        self.connection()?.call(request, None, ANSWER_BYTES_MAX)
    }
}

fn token(settings: &Settings) -> Result<Zeroizing<String>, Failure> {
    secret::find(&settings.variables, "STRONGROOM_TOKEN")?.ok_or_else(|| Failure::Refused {
        refusal: Refusal::NoCredentials,
        answer: "there is no token: set STRONGROOM_TOKEN, STRONGROOM_TOKEN_FILE or \
                 STRONGROOM_TOKEN_COMMAND"
            .to_owned(),
    })
}

impl Service for Own {
    fn is_there(&self) -> Result<bool, Failure> {
        match self.ask(&Request::IsThere)?.as_slice() {
            [is_there] => Ok(*is_there == 1),
            _ => Err(Failure::lost("an answer of the wrong length")),
        }
    }

    fn make(&self) -> Result<(), Failure> {
        self.ask(&Request::Make).map(drop)
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let request = Request::Read { name: name.clone(), offset, bytes: length as u64 };
        self.connection()?.call(&request, None, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        let answer = self.ask(&Request::Size { name: name.clone() })?;
        let bytes =
            answer.try_into().map_err(|_| Failure::lost("an answer of the wrong length"))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        let request = Request::Create { name: name.clone(), bytes: bytes.len() as u64 };
        self.connection()?.call(&request, Some(bytes), 0).map(drop)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        let request = Request::Replace { name: name.clone(), bytes: bytes.len() as u64 };
        self.connection()?.call(&request, Some(bytes), 0).map(drop)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        self.ask(&Request::Remove { name: name.clone() }).map(drop)
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let request = Request::List { folder: folder.to_owned() };
        let mut infos = Vec::new();
        self.connection()?.call_for_parts(&request, None, |part| {
            infos.extend(unpack_infos(&part).map_err(Failure::lost)?);
            if infos.len() > LISTED_MAX {
                return Err(Failure::lost("a listing without an end"));
            }
            Ok(())
        })?;
        let is_of_folder = |info: &ObjectInfo| info.name.folder() == folder;
        if !infos.iter().all(is_of_folder) {
            return Err(Failure::lost("a listing of another folder"));
        }
        Ok(infos)
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        match self.ask(&Request::HoldsAtMost { folder: folder.to_owned() })?.as_slice() {
            [holds] => Ok(*holds == 1),
            _ => Err(Failure::lost("an answer of the wrong length")),
        }
    }

    fn sweep(&self) -> Result<usize, Failure> {
        let answer = self.ask(&Request::Sweep)?;
        let bytes =
            answer.try_into().map_err(|_| Failure::lost("an answer of the wrong length"))?;
        Ok(usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX))
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), Failure> {
        self.ask(&Request::Copy { from: from.clone(), to: to.clone() }).map(drop)
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), Failure> {
        self.ask(&Request::Retain { name: name.clone(), until }).map(drop)
    }

    fn prove(&self, name: &ObjectName, challenge: &[u8]) -> Result<Vec<u8>, Failure> {
        self.ask(&Request::Prove { name: name.clone(), challenge: challenge.to_vec() })
    }

    fn promises(&self) -> Promises {
        let kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref().and_then(|connection| connection.promises()) {
            Some(promises) => promises,
            // Nothing was heard of it yet: what any of our programs promises.
            None => Promises { in_flight: IN_FLIGHT, proves: true, ..Promises::LOCAL },
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}
