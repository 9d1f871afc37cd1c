//! Requests of SFTP, several in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use strongroom_backend::Refusal;

use super::packet::{
    Attributes, Body, CLOSE, END_OF_FILE, EXTENDED, FSTAT, INIT, LSTAT, NO_SUCH_FILE, OK, OPEN,
    OPENDIR, PERMISSION_DENIED, Packet, READ, READDIR, STAT, UNSUPPORTED, WRITE, packet,
};
use crate::calls::{Call, Calls, Link};
use crate::failure::Failure;
use crate::rate::Line;

/// What one request reads or writes: more than one of 32 KiB is not promised by every server.
const PIECE_BYTES: usize = 32 << 10;
/// Requests of one object in flight: OpenSSH's own client has as many.
const PIECES_IN_FLIGHT: usize = 64;
/// Requests for the rest of a folder in flight.
const PAGES_IN_FLIGHT: usize = 16;
/// The most entries of a folder.
const ENTRIES_MAX: usize = 64 << 20;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The version of the protocol, and the number of the call that asks for it.
const VERSION: u32 = 3;

/// A session with a server of SFTP.
pub(super) struct Session {
    calls: Calls<Packet>,
    line: Arc<Line>,
    extensions: Vec<String>,
}

impl Session {
    pub(super) fn begin(link: Link, line: Arc<Line>) -> Result<Self, Failure> {
        let calls = Calls::begin(link, line.clone(), PATIENCE, |_| Ok(()))?;
        // The first call has number 1, and so has the answer to the first packet.
        let call = calls.call()?;
        let mut hello = Body::default().number(5).0;
        hello.push(INIT);
        call.send(&Body(hello).number(VERSION).0)?;
        let Packet::Version { version, extensions } = call.next()? else {
            return Err(call.broken("the server does not speak SFTP".to_owned()));
        };
        if version < VERSION {
            return Err(Failure::Refused {
                refusal: Refusal::Version,
                answer: format!("the server speaks version {version} of SFTP, not {VERSION}"),
            });
        }
        drop(call);
        let extensions = extensions.into_iter().map(|(name, _)| name).collect();
        Ok(Self { calls, line, extensions })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.calls.is_alive()
    }

    pub(super) fn has(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known == extension)
    }

    /// Sends a request.
    pub(super) fn send(&self, kind: u8, body: Body) -> Result<Call<Packet>, Failure> {
        let call = self.calls.call()?;
        call.send(&packet(kind, call.number, &body.0))?;
        Ok(call)
    }

    /// A request that is answered by its success alone.
    pub(super) fn ask(&self, kind: u8, body: Body) -> Result<(), Failure> {
        done(&self.send(kind, body)?)
    }

    /// Sends a request of an extension.
    pub(super) fn send_extended(&self, name: &str, body: Body) -> Result<Call<Packet>, Failure> {
        let mut whole = Body::default().string(name.as_bytes());
        whole.0.extend(body.0);
        self.send(EXTENDED, whole)
    }

    /// The answer of an extension.
    pub(super) fn extended(&self, name: &str, body: Body) -> Result<Vec<u8>, Failure> {
        let call = self.send_extended(name, body)?;
        match call.next()? {
            Packet::Extended(body) => Ok(body),
            other => status(&call, other).map(|()| Vec::new()),
        }
    }

    /// Whether anything has a name: a link that leads nowhere does too.
    pub(super) fn is_taken(&self, path: &[u8]) -> Result<bool, Failure> {
        match self.attributes(LSTAT, path) {
            Ok(_) => Ok(true),
            Err(Failure::NotFound) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn stat(&self, path: &[u8]) -> Result<Attributes, Failure> {
        self.attributes(STAT, path)
    }

    fn attributes(&self, kind: u8, path: &[u8]) -> Result<Attributes, Failure> {
        let call = self.send(kind, Body::default().string(path))?;
        match call.next()? {
            Packet::Attributes(attributes) => Ok(attributes),
            other => Err(unexpected(&call, other)),
        }
    }

    fn open(&self, kind: u8, body: Body) -> Result<Handle<'_>, Failure> {
        let call = self.send(kind, body)?;
        match call.next()? {
            Packet::Handle(handle) => Ok(Handle { session: self, handle, is_open: true }),
            other => Err(unexpected(&call, other)),
        }
    }

    pub(super) fn open_file(&self, path: &[u8], flags: u32) -> Result<Handle<'_>, Failure> {
        self.open(OPEN, Body::default().string(path).number(flags).no_attributes())
    }

    /// The entries of a folder.
    pub(super) fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Attributes)>, Failure> {
        let folder = self.open(OPENDIR, Body::default().string(path))?;
        let mut pages = VecDeque::new();
        let mut entries = Vec::new();
        let mut is_over = false;
        loop {
            while pages.len() < PAGES_IN_FLIGHT && !is_over {
                pages.push_back(self.send(READDIR, Body::default().string(&folder.handle))?);
            }
            let Some(call) = pages.pop_front() else { return Ok(entries) };
            match call.next()? {
                // One that gives no names would give none for ever.
                Packet::Names(names) if names.is_empty() => is_over = true,
                Packet::Names(names) => entries.extend(names),
                Packet::Status { code: END_OF_FILE, .. } => is_over = true,
                other => return Err(unexpected(&call, other)),
            }
            if entries.len() > ENTRIES_MAX {
                return Err(call.broken("a folder without an end".to_owned()));
            }
        }
    }
}

/// An open file or folder.
pub(super) struct Handle<'a> {
    session: &'a Session,
    handle: Vec<u8>,
    is_open: bool,
}

impl Handle<'_> {
    /// Sends its end, and does not wait for the answer.
    fn send_close(&mut self) -> Option<Result<Call<Packet>, Failure>> {
        std::mem::take(&mut self.is_open)
            .then(|| self.session.send(CLOSE, Body::default().string(&self.handle)))
    }

    /// At most `length` bytes from `offset` on.
    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut pieces = VecDeque::new();
        let mut asked = 0;
        // In the same flight: a last piece that is short need not be asked for again.
        let size = self.session.send(FSTAT, Body::default().string(&self.handle))?;
        let mut end = None;
        loop {
            while pieces.len() < PIECES_IN_FLIGHT && asked < length {
                let wanted = PIECE_BYTES.min(length - asked);
                pieces.push_back((
                    self.ask_for(offset.saturating_add(asked as u64), wanted)?,
                    wanted,
                ));
                asked += wanted;
            }
            let Some((call, wanted)) = pieces.pop_front() else { return Ok(bytes) };
            let Some(mut piece) = answered(&call)? else { return Ok(bytes) };
            // A server may give less than was asked for, and the file may end here.
            while piece.len() < wanted {
                let at = offset.saturating_add((bytes.len() + piece.len()) as u64);
                if end.get_or_insert_with(|| size_in(&size)).is_some_and(|end| end == at) {
                    bytes.extend(piece);
                    return Ok(bytes);
                }
                let call = self.ask_for(at, wanted - piece.len())?;
                match answered(&call)? {
                    Some(more) if !more.is_empty() => piece.extend(more),
                    _ => {
                        bytes.extend(piece);
                        return Ok(bytes);
                    }
                }
            }
            if piece.len() > wanted {
                return Err(call.broken("more bytes than were asked for".to_owned()));
            }
            bytes.extend(piece);
        }
    }

    fn ask_for(&self, offset: u64, length: usize) -> Result<Call<Packet>, Failure> {
        let body = Body::default().string(&self.handle).offset(offset).number(length as u32);
        self.session.send(READ, body)
    }

    /// Writes all of a new file, has it flushed if the server can do that, and closes it.
    pub(super) fn write_all(mut self, bytes: &[u8], flush: Option<&str>) -> Result<(), Failure> {
        let mut pieces = VecDeque::new();
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            if pieces.len() == PIECES_IN_FLIGHT {
                done(&pieces.pop_front().expect("there are many"))?;
            }
            self.session.line.send(piece.len());
            let body = Body::default().string(&self.handle).offset((number * PIECE_BYTES) as u64);
            pieces.push_back(self.session.send(WRITE, body.string(piece))?);
        }
        if let Some(extension) = flush {
            let body = Body::default().string(extension.as_bytes()).string(&self.handle);
            pieces.push_back(self.session.send(EXTENDED, body)?);
        }
        // In the same flight: the server does one after the other.
        if let Some(closed) = self.send_close() {
            pieces.push_back(closed?);
        }
        pieces.iter().try_for_each(done)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // The answer is of no use; a lost connection closes all of its files.
        drop(self.send_close());
    }
}

/// The file's length, if the server says it.
fn size_in(call: &Call<Packet>) -> Option<u64> {
    match call.next() {
        Ok(Packet::Attributes(attributes)) => attributes.bytes,
        _ => None,
    }
}

/// The bytes that a call is answered by; none at the end of the file.
fn answered(call: &Call<Packet>) -> Result<Option<Vec<u8>>, Failure> {
    match call.next()? {
        Packet::Data(bytes) => Ok(Some(bytes)),
        Packet::Status { code: END_OF_FILE, .. } => Ok(None),
        other => Err(unexpected(call, other)),
    }
}

/// Waits for an answer that says no more than how a request ended.
pub(super) fn done(call: &Call<Packet>) -> Result<(), Failure> {
    let answer = call.next()?;
    status(call, answer)
}

fn status(call: &Call<Packet>, answer: Packet) -> Result<(), Failure> {
    match answer {
        Packet::Status { code: OK, .. } => Ok(()),
        other => Err(unexpected(call, other)),
    }
}

/// The failure that an answer is which is not the wanted one.
fn unexpected(call: &Call<Packet>, answer: Packet) -> Failure {
    let refused = |refusal, answer: String| Failure::Refused { refusal, answer };
    match answer {
        Packet::Status { code: NO_SUCH_FILE, .. } => Failure::NotFound,
        Packet::Status { code: PERMISSION_DENIED, text } => refused(Refusal::Right, text),
        Packet::Status { code: UNSUPPORTED, text } => refused(Refusal::Version, text),
        Packet::Status { text, .. } => refused(Refusal::Other, text),
        _ => call.broken("an answer to another question".to_owned()),
    }
}
