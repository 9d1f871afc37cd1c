//! Objects as files of an FTP server, with TLS (RFC 4217) or without.
//!
//! FTP has no exclusive create. A new object is sent under a temporary name, its length is asked for,
//! because a server takes any end of the data for the end of the file, and it is renamed over its own
//! name: every common server renames as the file system does, at once. A reply 550 may mean many things,
//! so after one we look. Nor has it a request for a part of an object: a server sends from a place
//! on to the end, so a reader closes the connection when it has what it wants.
//!
//! A connection does one thing at a time; several are kept for the next requests.

mod control;
mod listing;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal};
use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;
use zeroize::Zeroizing;

use crate::address::{Address, Scheme};
use crate::authority;
use crate::failure::Failure;
use crate::rate::{Line, PIECE_BYTES};
use crate::secret;
use crate::service::Service;
use crate::settings::Settings;
use control::{Control, Reply, Server};
use listing::{Entry, from_facts, from_long_line};

/// Connections that are worth having: servers allow few.
const IN_FLIGHT: usize = 4;
const PORT: u16 = 21;
/// The port at which TLS begins with the first byte.
const IMPLICIT_PORT: u16 = 990;
/// An object of at most this many bytes is sent before the server agrees to take it. While a part of
/// at most this many is received, fewer bytes of what follows it are on their way.
const SHORT_BYTES: usize = 1 << 20;
/// What follows a part that is received: at most this much of it is on its way.
const SHORT_BYTES_KEPT: usize = 64 << 10;
const LONG_BYTES_KEPT: usize = 512 << 10;
/// Memory that is reserved for a part before any of it has come, at most.
const RESERVED_BYTES_MAX: usize = 32 << 20;
/// What the names of temporary files begin with; no object's name does.
const TEMPORARY: &str = ".tmp-";
/// The longest listing: about a million objects.
const LISTING_BYTES_MAX: usize = 128 << 20;

/// A folder of an FTP server.
pub(crate) struct Ftp {
    server: Server,
    user: String,
    password: Zeroizing<String>,
    root: String,
    line: Line,
    entropy: Arc<dyn Entropy>,
    // Plain mutexes: held for a look or an insertion, never during a request.
    idle: Mutex<Vec<Control>>,
    description: String,
}

impl Ftp {
    /// The folder of an address. The password is the secret `FTP_PASSWORD`; without a user it is
    /// anonymous.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let description = address.to_string();
        let failed =
            |failure: Failure| failure.into_error(Operation::Open, None, &address.to_string());
        let has_controls = |text: &String| text.chars().any(char::is_control);
        if has_controls(&address.path) || address.user.as_ref().is_some_and(has_controls) {
            return Err(failed(Failure::Refused {
                refusal: Refusal::NoSuchPlace,
                answer: "the address has control characters in it".to_owned(),
            }));
        }
        let host = address.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match address.scheme {
            Scheme::Ftps => {
                // A session of version 1.3 is used again once; a server that wants the session of the
                // control connection for all data can be content only with 1.2.
                let versions = [&rustls::version::TLS12];
                let config = authority::client(settings, &versions).map_err(failed)?;
                Some((Arc::new(config), authority::server_name(&host).map_err(failed)?))
            }
            _ => None,
        };
        let port = address.port.unwrap_or(PORT);
        let is_implicit = tls.is_some() && port == IMPLICIT_PORT;
        let (user, password) = credentials(address, settings).map_err(failed)?;
        Ok(Self {
            server: Server { host, port, tls, is_implicit, was_let_in: Arc::default() },
            user,
            password,
            root: if address.path.is_empty() { ".".to_owned() } else { address.path.clone() },
            line: Line::new(&settings.rate, &settings.clock),
            entropy: settings.entropy.clone(),
            idle: Mutex::default(),
            description,
        })
    }

    fn path(&self, name: &str) -> String {
        if name.is_empty() { self.root.clone() } else { format!("{}/{name}", self.root) }
    }

    /// Does something over a connection, which is kept for the next if it is at its beginning again.
    fn with<T>(&self, act: impl FnOnce(&mut Control) -> Result<T, Failure>) -> Result<T, Failure> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut control = match kept {
            Some(control) => control,
            None => Control::open(&self.server, &self.user, &self.password)?,
        };
        let done = act(&mut control);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match &done {
            // Others that were kept as long are probably gone too.
            Err(Failure::Lost(_) | Failure::Busy { .. }) => idle.clear(),
            _ if control.is_busy => {}
            _ => idle.push(control),
        }
        done
    }

    /// Sends an object under a temporary name, and gives it its own.
    fn store(
        &self,
        control: &mut Control,
        temporary: &str,
        name: &ObjectName,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        self.send(control, temporary, bytes)?;
        control.send(&[&format!("SIZE {temporary}"), &format!("RNFR {temporary}")])?;
        let (size, from) = (control.reply()?, control.reply()?);
        // A connection for data that was ended on the way is an end like any other to the server.
        let stored = size_in(&size.is(&[213])?)?;
        if stored != bytes.len() as u64 {
            // Best effort: the next attempt has a file of its own.
            let _ = control.ask(&format!("DELE {temporary}"));
            let why = format!("{stored} of {} bytes arrived", bytes.len());
            return Err(Failure::lost(why));
        }
        from.is(&[350])?;
        control.ask(&format!("RNTO {}", self.path(name.as_str())))?.is(&[250]).map(drop)
    }

    /// Sends bytes to a file.
    fn send(&self, control: &mut Control, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        let mut stream = control.upload(&format!("STOR {path}"))?;
        if bytes.len() > SHORT_BYTES {
            control.agree()?;
        }
        let sent = bytes
            .chunks(PIECE_BYTES)
            .try_for_each(|piece| {
                self.line.send(piece.len());
                stream.write_all(piece)
            })
            .and_then(|()| stream.finish());
        match sent {
            Ok(()) => control.end_of_upload(),
            // A server that takes no more, such as one whose disk is full, closes the data and says
            // why on the other connection.
            Err(error) if is_closed(&error) => match control.end_of_upload() {
                Err(refusal @ (Failure::Refused { .. } | Failure::Full { .. })) => Err(refusal),
                _ => Err(Failure::Lost(error)),
            },
            Err(error) => Err(Failure::Lost(error)),
        }
    }

    /// Makes a folder, with those above it as far as they are missing.
    fn make_folder(&self, control: &mut Control, folder: &str) -> Result<(), Failure> {
        let path = self.path(folder);
        // What it replies for a folder that exists is no failure; the next request shows the rest.
        for (end, _) in path.match_indices('/').filter(|(end, _)| *end > 0) {
            if folder.is_empty() {
                control.ask(&format!("MKD {}", &path[..end]))?;
            }
        }
        control.ask(&format!("MKD {path}")).map(drop)
    }

    /// The entries of a folder; none if there is no such folder.
    fn entries(&self, folder: &str) -> Result<Vec<Entry>, Failure> {
        self.with(|control| self.entries_over(control, folder))
    }

    fn entries_over(&self, control: &mut Control, folder: &str) -> Result<Vec<Entry>, Failure> {
        // vsftpd shows a folder that it may not read as an entry by itself: that is not empty, and
        // what is in it is unknown. It shows the same of a folder that another connection makes
        // while it looks; that one can be read a moment later.
        for _ in 0..2 {
            let entries = self.list_over(control, folder)?;
            match entries.as_slice() {
                [only] if only.is_folder && !folder.is_empty() && only.name == folder => {}
                _ => return Ok(entries),
            }
        }
        let answer = format!("the folder {folder} cannot be read");
        Err(Failure::Refused { refusal: Refusal::Right, answer })
    }

    fn list_over(&self, control: &mut Control, folder: &str) -> Result<Vec<Entry>, Failure> {
        let path = self.path(folder);
        let has_facts = control.has_facts;
        let verb = if has_facts { "MLSD" } else { "LIST" };
        let mut stream = match control.download(None, &format!("{verb} {path}"), None) {
            Err(Failure::Refused { refusal: Refusal::Right, answer }) => {
                // There is no such folder, or it may not be read. The folder above says which.
                let above =
                    if folder.is_empty() { Vec::new() } else { self.entries_over(control, "")? };
                if above.iter().any(|entry| entry.is_folder && entry.name == folder) {
                    return Err(Failure::Refused { refusal: Refusal::Right, answer });
                }
                return Ok(Vec::new());
            }
            other => other?,
        };
        let mut text = Vec::new();
        if !self.receive(&mut stream, LISTING_BYTES_MAX, &mut text)? {
            return Err(Failure::lost("a listing without an end"));
        }
        drop(stream);
        let end = control.end_of_transfer()?.is(&[226, 250])?.text;
        if end.to_ascii_lowercase().contains("truncated") {
            let end = end.lines().last().unwrap_or_default();
            let answer = format!(
                "the server shows only a part of the folder {path} ({end}): let it show more, in \
                 Pure-FTPd by the first number of `LimitRecursion` (`-L`)"
            );
            return Err(Failure::Refused { refusal: Refusal::Other, answer });
        }
        let text = String::from_utf8_lossy(&text);
        let parse = if has_facts { from_facts } else { from_long_line };
        Ok(text.lines().filter_map(|line| parse(line.trim_end())).collect())
    }

    /// Receives at most this many bytes. True if the stream ended before.
    fn receive(
        &self,
        stream: &mut impl Read,
        max: usize,
        into: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let mut piece = vec![0; PIECE_BYTES.min(max)];
        while into.len() < max {
            let wanted = piece.len().min(max - into.len());
            match stream.read(&mut piece[..wanted]) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    self.line.receive(count);
                    into.extend_from_slice(&piece[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::Lost(error)),
            }
        }
        Ok(false)
    }

    /// What a refusal about an object means: servers say 550 of a missing one too.
    fn explain(&self, control: &mut Control, name: &ObjectName, failure: Failure) -> Failure {
        let Failure::Refused { refusal: Refusal::Right, answer } = failure else { return failure };
        let entries = match self.entries_over(control, name.folder()) {
            Ok(entries) => entries,
            Err(failure) => return failure,
        };
        match entries.into_iter().find(|entry| entry.name == name.file()) {
            None => Failure::NotFound,
            Some(Entry { bytes: None, .. }) => {
                Failure::Unreadable(io::ErrorKind::IsADirectory.into())
            }
            Some(_) => Failure::Refused { refusal: Refusal::Right, answer },
        }
    }

    fn read_over(
        &self,
        control: &mut Control,
        name: &ObjectName,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Failure> {
        let before = (offset > 0).then(|| format!("REST {offset}"));
        let command = format!("RETR {}", self.path(name.as_str()));
        // What follows the part is on its way too, as far as there is room for it.
        // Behind a whole object is nothing.
        let is_whole = offset == 0 && length > RESERVED_BYTES_MAX;
        let kept = if length <= SHORT_BYTES { SHORT_BYTES_KEPT } else { LONG_BYTES_KEPT };
        let kept = (!is_whole).then_some(kept);
        let mut stream = control.download(before.as_deref(), &command, kept)?;
        let mut bytes = Vec::with_capacity(length.min(RESERVED_BYTES_MAX));
        let ended = self.receive(&mut stream, length, &mut bytes)?;
        drop(stream);
        // A server whose data is not taken says so, in its own words.
        let reply = control.end_of_transfer()?;
        if ended {
            reply.is(&[226, 250])?
        } else {
            reply
        };
        Ok(bytes)
    }
}

/// The length in a reply to `SIZE`.
fn size_in(reply: &Reply) -> Result<u64, Failure> {
    let length = reply.text.trim().parse();
    length.map_err(|_| Failure::lost("an answer without the object's length"))
}

/// Whether the other side closed the connection while it was written to.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

fn credentials(
    address: &Address,
    settings: &Settings,
) -> Result<(String, Zeroizing<String>), Failure> {
    let Some(user) = &address.user else {
        return Ok(("anonymous".to_owned(), Zeroizing::new("strongroom@".to_owned())));
    };
    let password =
        secret::find(&settings.variables, "FTP_PASSWORD")?.ok_or_else(|| Failure::Refused {
            refusal: Refusal::NoCredentials,
            answer: format!(
                "there is no password of {user}: set FTP_PASSWORD, FTP_PASSWORD_FILE or \
                 FTP_PASSWORD_COMMAND"
            ),
        })?;
    if password.chars().any(char::is_control) {
        return Err(Failure::Refused {
            refusal: Refusal::NoCredentials,
            answer: "the password has control characters in it".to_owned(),
        });
    }
    Ok((user.clone(), password))
}

impl Service for Ftp {
    fn is_there(&self) -> Result<bool, Failure> {
        if self.root == "." {
            return self.with(|_| Ok(true));
        }
        // `CWD` asks it directly. The connection is in that folder then, so it is not kept.
        let mut control = Control::open(&self.server, &self.user, &self.password)?;
        let reply = control.ask(&format!("CWD {}", self.root))?;
        match reply.code {
            200 | 250 => Ok(true),
            550 => Ok(false),
            _ => Err(reply.failure()),
        }
    }

    fn make(&self) -> Result<(), Failure> {
        self.with(|control| self.make_folder(control, ""))
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        // An object that is read from its beginning ends by itself; others may be shorter than
        // the offset, which servers answer in several ways.
        let size = if offset == 0 { u64::MAX } else { self.size(name)? };
        let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(rest);
        if length == 0 {
            return Ok(Vec::new());
        }
        self.with(|control| {
            self.read_over(control, name, offset, length)
                .map_err(|failure| self.explain(control, name, failure))
        })
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        self.with(|control| {
            let reply = control.ask(&format!("SIZE {}", self.path(name.as_str())))?;
            match reply.is(&[213]) {
                Ok(reply) => size_in(&reply),
                Err(failure) => Err(self.explain(control, name, failure)),
            }
        })
    }

    fn create(&self, _name: &ObjectName, _bytes: &[u8]) -> Result<(), Failure> {
        Err(Failure::Unsupported("create an object only if its name is free"))
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        let chance: [u8; 12] = random_array(&*self.entropy);
        let hex: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        let slash = if name.folder().is_empty() { "" } else { "/" };
        let temporary = self.path(&format!("{}{slash}{TEMPORARY}{hex}", name.folder()));
        self.with(|control| {
            let mut stored = self.store(control, &temporary, name, bytes);
            // Mostly the folder is there, so it is made if that failed.
            if matches!(&stored, Err(Failure::Refused { refusal: Refusal::Right, .. }))
                && !control.is_busy
            {
                self.make_folder(control, name.folder())?;
                stored = self.store(control, &temporary, name, bytes);
            }
            if !control.is_busy && !matches!(&stored, Ok(()) | Err(Failure::Lost(_))) {
                // Why it was not stored matters more than whether this succeeds.
                let _ = control.ask(&format!("DELE {temporary}"));
            }
            match stored {
                Err(Failure::Refused { refusal: Refusal::Right, answer }) if !control.is_busy => {
                    let refused = |answer| Failure::Refused { refusal: Refusal::Right, answer };
                    Err(match self.explain(control, name, refused(answer.clone())) {
                        folder @ Failure::Unreadable(_) => folder,
                        _ => refused(answer),
                    })
                }
                other => other,
            }
        })
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        self.with(|control| {
            let reply = control.ask(&format!("DELE {}", self.path(name.as_str())))?;
            reply.is(&[250]).map(drop).map_err(|failure| self.explain(control, name, failure))
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let slash = if folder.is_empty() { "" } else { "/" };
        Ok(self
            .entries(folder)?
            .into_iter()
            // At the top, folders are folders of objects.
            .filter(|entry| !entry.is_folder || !folder.is_empty())
            .filter_map(|entry| {
                let name = ObjectName::parse(&format!("{folder}{slash}{}", entry.name))?;
                Some(ObjectInfo { name, bytes: entry.bytes.unwrap_or(0) })
            })
            .collect())
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        let entries = self.entries("")?;
        Ok(entries.iter().all(|entry| entry.is_folder && entry.name == folder))
    }

    fn promises(&self) -> Promises {
        Promises {
            is_exclusive: Some(false),
            is_consistent: Some(true),
            // Servers do not flush.
            is_durable: false,
            in_flight: IN_FLIGHT,
            sends_parts: false,
            object_bytes_max: u64::MAX,
            copies: false,
            locks: false,
            proves: false,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}
