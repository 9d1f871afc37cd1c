//! Our own protocol, between this program and itself on another machine.
//!
//! It runs over any ordered stream of bytes in both directions: the pipes of `ssh`, or TLS. Both
//! sides begin with a greeting; then each sends frames. Every request has a number that its answer
//! repeats, so several are in flight at a time and are answered in any order. The bytes of an object
//! travel in parts, between which other frames may come. `docs/format/wire.md` is the document;
//! design 0022 says why it is not HTTP.
//!
//! Every length is checked before memory is taken for it: a frame has at most [`FRAME_BYTES_MAX`]
//! bytes, and what a request may ask for or send is bounded by the side that keeps it.

use std::io::{self, Read};

use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Promises, Refusal};
use strongroom_base::Timestamp;
use strongroom_base::le::{LeReader, LeWrite, LengthError};

use crate::failure::Failure;

/// The version of the protocol. Both sides must have the same.
pub const VERSION: u16 = 1;
/// What both sides begin with: the name of the protocol, and its version.
pub const GREETING_BYTES: usize = 10;
const MAGIC: &[u8; 8] = b"STRONGRM";
/// A frame's head: length 4, request 4, kind 1.
pub const FRAME_HEAD_BYTES: usize = 9;
/// Bytes of an object that one frame holds at most.
pub const PART_BYTES_MAX: usize = 64 << 10;
/// A frame has at most this many bytes after its head.
pub const FRAME_BYTES_MAX: usize = PART_BYTES_MAX;
/// The longest message, token, or name of a room.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// The protocol's name in TLS (ALPN).
pub const ALPN: &[u8] = b"strongroom/1";

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The number of the request.
    pub request: u32,
    /// What it is.
    pub kind: u8,
    /// What it holds.
    pub body: Vec<u8>,
}

/// What was received is not this protocol, or breaks its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side speaks something else.
    #[error("the other side is not Strongroom")]
    Stranger,
    /// The other side speaks another version.
    #[error("the other side speaks version {0} of the protocol, and this program {VERSION}")]
    Version(u16),
    /// A frame that breaks the rules.
    #[error("a frame is not of the protocol: {0}")]
    Frame(&'static str),
}

impl From<LengthError> for WireError {
    fn from(_: LengthError) -> Self {
        Self::Frame("its fields do not fill it")
    }
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The greeting of this program.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Reads the other side's greeting.
pub fn receive_greeting(source: &mut dyn Read) -> io::Result<()> {
    let mut bytes = [0; GREETING_BYTES];
    source.read_exact(&mut bytes)?;
    let (magic, version) = bytes.split_at(8);
    if magic != MAGIC {
        return Err(WireError::Stranger.into());
    }
    let version = u16::from_le_bytes([version[0], version[1]]);
    if version == VERSION { Ok(()) } else { Err(WireError::Version(version).into()) }
}

impl Frame {
    /// Appends the frame to what will be sent.
    pub fn pack(request: u32, kind: u8, body: &[u8], into: &mut Vec<u8>) {
        debug_assert!(body.len() <= FRAME_BYTES_MAX, "a body fits into a frame");
        into.put_u32(body.len() as u32);
        into.put_u32(request);
        into.put_u8(kind);
        into.put(body);
    }

    /// The next frame; none if the other side ended between two frames.
    pub fn receive(source: &mut dyn Read) -> io::Result<Option<Self>> {
        let mut head = [0; FRAME_HEAD_BYTES];
        let mut filled = 0;
        while filled < head.len() {
            match source.read(&mut head[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut fields = LeReader::new(&head);
        let length = fields.u32().map_err(WireError::from)? as usize;
        let request = fields.u32().map_err(WireError::from)?;
        let kind = fields.u8().map_err(WireError::from)?;
        if length > FRAME_BYTES_MAX {
            return Err(WireError::Frame("it is too long").into());
        }
        let mut body = vec![0; length];
        source.read_exact(&mut body)?;
        Ok(Some(Self { request, kind, body }))
    }
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// To be let into a room. The first request, and the only one before it is answered.
    Enter {
        /// Who asks; empty where the connection itself says it, as over `ssh`.
        token: String,
        /// Which room; empty if there is only one.
        room: String,
    },
    /// Whether the place is there.
    IsThere,
    /// To make the place.
    Make,
    /// A part of an object.
    Read {
        /// The object.
        name: ObjectName,
        /// Where the part begins.
        offset: u64,
        /// How long it is at most.
        bytes: u64,
    },
    /// An object's size.
    Size {
        /// The object.
        name: ObjectName,
    },
    /// To store a new object; its bytes follow in parts.
    Create {
        /// The object.
        name: ObjectName,
        /// How many bytes follow.
        bytes: u64,
    },
    /// To store an object in the place of what was there; its bytes follow in parts.
    Replace {
        /// The object.
        name: ObjectName,
        /// How many bytes follow.
        bytes: u64,
    },
    /// To remove an object.
    Remove {
        /// The object.
        name: ObjectName,
    },
    /// The objects in a folder.
    List {
        /// The folder; empty for the top.
        folder: String,
    },
    /// Whether nothing but this folder is there.
    HoldsAtMost {
        /// The folder.
        folder: String,
    },
    /// To remove what killed writers left.
    Sweep,
    /// To copy an object.
    Copy {
        /// The object.
        from: ObjectName,
        /// The copy.
        to: ObjectName,
    },
    /// To lock an object until a time.
    Retain {
        /// The object.
        name: ObjectName,
        /// Until when.
        until: Timestamp,
    },
    /// A proof of an object.
    Prove {
        /// The object.
        name: ObjectName,
        /// The challenge.
        challenge: Vec<u8>,
    },
    /// The next bytes of an object that this request stores.
    Part(Vec<u8>),
}

const ENTER: u8 = 1;
const IS_THERE: u8 = 2;
const MAKE: u8 = 3;
const READ: u8 = 4;
const SIZE: u8 = 5;
const CREATE: u8 = 6;
const REPLACE: u8 = 7;
const REMOVE: u8 = 8;
const LIST: u8 = 9;
const HOLDS_AT_MOST: u8 = 10;
const SWEEP: u8 = 11;
const COPY: u8 = 12;
const RETAIN: u8 = 13;
const PROVE: u8 = 14;
/// The kind of a part in both directions.
pub const PART: u8 = 32;
/// The kind of an answer that all is done.
pub const DONE: u8 = 33;
/// The kind of an answer that something failed.
pub const FAILED: u8 = 34;

impl Request {
    /// Whether it changes nothing, so that it is over if no one waits for the answer.
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            Self::IsThere
                | Self::Read { .. }
                | Self::Size { .. }
                | Self::List { .. }
                | Self::HoldsAtMost { .. }
                | Self::Prove { .. }
        )
    }

    /// Its kind and body. A part is sent by [`Frame::pack`] without copying it here.
    pub fn pack(&self) -> (u8, Vec<u8>) {
        let mut body = Vec::new();
        let kind = match self {
            Self::Enter { token, room } => {
                put_text(&mut body, token);
                put_text(&mut body, room);
                ENTER
            }
            Self::IsThere => IS_THERE,
            Self::Make => MAKE,
            Self::Read { name, offset, bytes } => {
                put_text(&mut body, name.as_str());
                body.put_u64(*offset);
                body.put_u64(*bytes);
                READ
            }
            Self::Size { name } => {
                put_text(&mut body, name.as_str());
                SIZE
            }
            Self::Create { name, bytes } => {
                put_text(&mut body, name.as_str());
                body.put_u64(*bytes);
                CREATE
            }
            Self::Replace { name, bytes } => {
                put_text(&mut body, name.as_str());
                body.put_u64(*bytes);
                REPLACE
            }
            Self::Remove { name } => {
                put_text(&mut body, name.as_str());
                REMOVE
            }
            Self::List { folder } => {
                put_text(&mut body, folder);
                LIST
            }
            Self::HoldsAtMost { folder } => {
                put_text(&mut body, folder);
                HOLDS_AT_MOST
            }
            Self::Sweep => SWEEP,
            Self::Copy { from, to } => {
                put_text(&mut body, from.as_str());
                put_text(&mut body, to.as_str());
                COPY
            }
            Self::Retain { name, until } => {
                put_text(&mut body, name.as_str());
                body.put(&until.0.to_le_bytes());
                RETAIN
            }
            Self::Prove { name, challenge } => {
                put_text(&mut body, name.as_str());
                body.put(challenge);
                PROVE
            }
            Self::Part(bytes) => {
                body.put(bytes);
                PART
            }
        };
        (kind, body)
    }

    /// The request that a frame holds.
    pub fn unpack(frame: Frame) -> Result<Self, WireError> {
        if frame.kind == PART {
            return Ok(Self::Part(frame.body));
        }
        let mut fields = LeReader::new(&frame.body);
        let request = match frame.kind {
            ENTER => Self::Enter { token: text(&mut fields)?, room: text(&mut fields)? },
            IS_THERE => Self::IsThere,
            MAKE => Self::Make,
            READ => {
                Self::Read { name: name(&mut fields)?, offset: fields.u64()?, bytes: fields.u64()? }
            }
            SIZE => Self::Size { name: name(&mut fields)? },
            CREATE => Self::Create { name: name(&mut fields)?, bytes: fields.u64()? },
            REPLACE => Self::Replace { name: name(&mut fields)?, bytes: fields.u64()? },
            REMOVE => Self::Remove { name: name(&mut fields)? },
            LIST => Self::List { folder: folder(&mut fields)? },
            HOLDS_AT_MOST => Self::HoldsAtMost { folder: folder(&mut fields)? },
            SWEEP => Self::Sweep,
            COPY => Self::Copy { from: name(&mut fields)?, to: name(&mut fields)? },
            RETAIN => Self::Retain {
                name: name(&mut fields)?,
                until: Timestamp(i64::from_le_bytes(fields.array()?)),
            },
            PROVE => {
                let name = name(&mut fields)?;
                let challenge = fields.take(fields.remaining().min(TEXT_BYTES_MAX))?.to_vec();
                Self::Prove { name, challenge }
            }
            _ => return Err(WireError::Frame("it has an unknown kind")),
        };
        fields.finish()?;
        Ok(request)
    }
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    // What is longer is cut: the other side refuses it then, and nothing overflows.
    let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
    body.put_u16(bytes.len() as u16);
    body.put(bytes);
}

fn text(fields: &mut LeReader<'_>) -> Result<String, WireError> {
    let length = usize::from(fields.u16()?);
    if length > TEXT_BYTES_MAX {
        return Err(WireError::Frame("a text in it is too long"));
    }
    let bytes = fields.take(length)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| WireError::Frame("a text in it is not UTF-8"))
}

fn name(fields: &mut LeReader<'_>) -> Result<ObjectName, WireError> {
    ObjectName::parse(&text(fields)?).ok_or(WireError::Frame("it names no object"))
}

fn folder(fields: &mut LeReader<'_>) -> Result<String, WireError> {
    let folder = text(fields)?;
    // The name of an object at the top has the same rules.
    let is_one = folder.is_empty() || !folder.contains('/') && ObjectName::parse(&folder).is_some();
    if is_one { Ok(folder) } else { Err(WireError::Frame("it names no folder")) }
}

/// What a place promises, as it is sent when a client is let in.
pub fn pack_promises(promises: &Promises) -> Vec<u8> {
    let maybe = |value: Option<bool>| value.map_or(2, u8::from);
    let mut body = vec![
        maybe(promises.is_exclusive),
        maybe(promises.is_consistent),
        u8::from(promises.is_durable),
        u8::from(promises.copies),
        u8::from(promises.locks),
        u8::from(promises.proves),
    ];
    body.put_u64(promises.object_bytes_max);
    body
}

/// What a place promises; how many requests are worth having in flight is for the client to say.
pub fn unpack_promises(body: &[u8], in_flight: usize) -> Result<Promises, WireError> {
    let mut fields = LeReader::new(body);
    let maybe = |value: u8| match value {
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        2 => Ok(None),
        _ => Err(WireError::Frame("it has an unknown promise")),
    };
    let promises = Promises {
        is_exclusive: maybe(fields.u8()?)?,
        is_consistent: maybe(fields.u8()?)?,
        is_durable: fields.u8()? == 1,
        copies: fields.u8()? == 1,
        locks: fields.u8()? == 1,
        proves: fields.u8()? == 1,
        object_bytes_max: fields.u64()?,
        in_flight,
        sends_parts: true,
    };
    fields.finish()?;
    Ok(promises)
}

/// Appends an object to a part of a listing; false if it does not fit any more.
pub fn put_info(part: &mut Vec<u8>, info: &ObjectInfo) -> bool {
    if part.len() + info.name.as_str().len() + 10 > PART_BYTES_MAX {
        return false;
    }
    put_text(part, info.name.as_str());
    part.put_u64(info.bytes);
    true
}

/// The objects in a part of a listing.
pub fn unpack_infos(part: &[u8]) -> Result<Vec<ObjectInfo>, WireError> {
    let mut fields = LeReader::new(part);
    let mut infos = Vec::new();
    while fields.remaining() > 0 {
        infos.push(ObjectInfo { name: name(&mut fields)?, bytes: fields.u64()? });
    }
    Ok(infos)
}

/// The codes of failures.
const NOT_FOUND: u8 = 1;
const TAKEN: u8 = 2;
const FULL: u8 = 3;
const UNSUPPORTED: u8 = 4;
const REFUSED: u8 = 5;
const UNREADABLE: u8 = 6;
const OTHER: u8 = 7;
const FULL_YET_MAY_EXIST: u8 = 8;

/// What is in the place of an unreadable object, in the byte that a refusal has.
const DIRECTORY: u8 = 1;
const NO_FILE: u8 = 2;

/// The refusals by their numbers in a frame.
const REFUSALS: [Refusal; 13] = [
    Refusal::Other,
    Refusal::NoCredentials,
    Refusal::Credentials,
    Refusal::Right,
    Refusal::NoSuchPlace,
    Refusal::Region,
    Refusal::Clock,
    Refusal::Identity,
    Refusal::Quota,
    Refusal::Locked,
    Refusal::Content,
    Refusal::Version,
    Refusal::Archived,
];

/// The body of an answer that something failed.
pub fn pack_failure(error: &BackendError) -> Vec<u8> {
    let number =
        |refusal: Refusal| REFUSALS.iter().position(|known| *known == refusal).unwrap_or(0) as u8;
    let (code, refusal, text) = match error {
        BackendError::NotFound { .. } => (NOT_FOUND, 0, String::new()),
        BackendError::AlreadyExists { .. } => (TAKEN, 0, String::new()),
        BackendError::NoSpace { may_exist: false, .. } => (FULL, 0, String::new()),
        BackendError::NoSpace { may_exist: true, .. } => (FULL_YET_MAY_EXIST, 0, String::new()),
        BackendError::Unsupported { ability, .. } => (UNSUPPORTED, 0, (*ability).to_owned()),
        BackendError::Refused { refusal, answer, .. } => {
            (REFUSED, number(*refusal), answer.clone())
        }
        // Whether an object is read or changed: callers leave such a thing where it is.
        BackendError::Unreadable { source, .. } | BackendError::Io { source, .. }
            if error.is_directory() =>
        {
            (UNREADABLE, DIRECTORY, source.to_string())
        }
        BackendError::Unreadable { source, .. } | BackendError::Io { source, .. }
            if error.is_no_file() =>
        {
            (UNREADABLE, NO_FILE, source.to_string())
        }
        // The server's own user may not read it.
        BackendError::Unreadable { source, .. } if error.is_withheld() => {
            (REFUSED, number(Refusal::Right), source.to_string())
        }
        BackendError::Unreadable { source, .. } => (UNREADABLE, 0, source.to_string()),
        other => (OTHER, 0, other.to_string()),
    };
    let mut body = vec![code, refusal];
    put_text(&mut body, &text);
    body
}

/// The failure that an answer holds.
pub(crate) fn unpack_failure(body: &[u8]) -> Result<Failure, WireError> {
    let mut fields = LeReader::new(body);
    let (code, refusal) = (fields.u8()?, fields.u8()?);
    let answer = text(&mut fields)?;
    fields.finish()?;
    Ok(match code {
        NOT_FOUND => Failure::NotFound,
        TAKEN => Failure::Taken,
        FULL => Failure::FULL,
        FULL_YET_MAY_EXIST => Failure::Full { may_exist: true },
        UNSUPPORTED => Failure::Unsupported("do this"),
        REFUSED => {
            let refusal = REFUSALS.get(usize::from(refusal)).copied().unwrap_or(Refusal::Other);
            Failure::Refused { refusal, answer }
        }
        UNREADABLE => {
            let kind = match refusal {
                DIRECTORY => io::ErrorKind::IsADirectory,
                NO_FILE => io::ErrorKind::Unsupported,
                _ => io::ErrorKind::Other,
            };
            Failure::Unreadable(io::Error::new(kind, answer))
        }
        OTHER => Failure::Refused { refusal: Refusal::Other, answer },
        _ => return Err(WireError::Frame("it has an unknown failure")),
    })
}

#[cfg(test)]
mod tests {
    use strongroom_backend::Operation;

    use super::*;

    fn requests() -> Vec<Request> {
        let name = ObjectName::new("arenas", "a1.0");
        vec![
            Request::Enter { token: "a.b".to_owned(), room: "of-mine".to_owned() },
            Request::IsThere,
            Request::Make,
            Request::Read { name: name.clone(), offset: 7, bytes: u64::MAX },
            Request::Size { name: name.clone() },
            Request::Create { name: name.clone(), bytes: 1 << 40 },
            Request::Replace { name: name.clone(), bytes: 0 },
            Request::Remove { name: name.clone() },
            Request::List { folder: String::new() },
            Request::HoldsAtMost { folder: "keys".to_owned() },
            Request::Sweep,
            Request::Copy { from: name.clone(), to: ObjectName::top("config") },
            Request::Retain { name: name.clone(), until: Timestamp(-5) },
            Request::Prove { name, challenge: vec![1; 33] },
            Request::Part(vec![9; PART_BYTES_MAX]),
        ]
    }

    #[test]
    fn requests_come_back_and_no_shorter_one_does() {
        for request in requests() {
            let (kind, body) = request.pack();
            let mut bytes = Vec::new();
            Frame::pack(3, kind, &body, &mut bytes);
            let frame = Frame::receive(&mut bytes.as_slice()).unwrap().unwrap();
            assert_eq!((frame.request, &frame.body), (3, &body));
            assert_eq!(Request::unpack(frame).unwrap(), request);
            if matches!(request, Request::Part(_) | Request::Prove { .. }) {
                continue;
            }
            for length in 0..body.len() {
                let frame = Frame { request: 3, kind, body: body[..length].to_vec() };
                assert!(Request::unpack(frame).is_err(), "{request:?} of {length}");
            }
            let longer = Frame { request: 3, kind, body: [&body[..], &[0]].concat() };
            assert!(Request::unpack(longer).is_err(), "{request:?}");
        }
    }

    #[test]
    fn frames_of_any_bytes_are_bounded_and_harmless() {
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..seed % 40 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((seed >> 33) as u8);
            }
            seed = seed.wrapping_add(1).wrapping_mul(3);
            let _ = unpack_failure(&bytes);
            let _ = unpack_infos(&bytes);
            let _ = unpack_promises(&bytes, 1);
            let kind = bytes.first().copied().unwrap_or(0) % 36;
            let _ = Request::unpack(Frame { request: 0, kind, body: bytes.clone() });
            let _ = Frame::receive(&mut bytes.as_slice());
        }
        let long = [0xff; 64];
        let error = Frame::receive(&mut &long[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn names_outside_of_the_place_are_no_names() {
        for name in ["../x", "arenas/../x", "/etc", "arenas/.x", "a/b/c", ""] {
            let mut body = Vec::new();
            put_text(&mut body, name);
            let frame = Frame { request: 1, kind: SIZE, body: body.clone() };
            assert!(Request::unpack(frame).is_err(), "{name}");
            let is_top = name.is_empty();
            let frame = Frame { request: 1, kind: LIST, body };
            assert_eq!(Request::unpack(frame).is_ok(), is_top, "{name}");
        }
    }

    #[test]
    fn failures_and_promises_come_back() {
        let name = ObjectName::top("config");
        let refused = BackendError::Refused {
            operation: Operation::Write,
            what: String::new(),
            refusal: Refusal::Quota,
            answer: "it is used up".to_owned(),
        };
        let came = unpack_failure(&pack_failure(&refused)).unwrap();
        let expected = matches!(&came, Failure::Refused { refusal: Refusal::Quota, answer } if answer == "it is used up");
        assert!(expected, "{came:?}");
        let came = unpack_failure(&pack_failure(&BackendError::NotFound { name })).unwrap();
        assert!(matches!(came, Failure::NotFound));
        for may_exist in [false, true] {
            let error = BackendError::NoSpace { name: ObjectName::top("config"), may_exist };
            let came = unpack_failure(&pack_failure(&error)).unwrap();
            let came = came.into_error(Operation::Write, Some(&ObjectName::top("config")), "");
            let found = matches!(came, BackendError::NoSpace { may_exist: found, .. } if found == may_exist);
            assert!(found, "{may_exist}: {came:?}");
        }
        let promises = Promises { is_exclusive: None, ..Promises::LOCAL };
        assert_eq!(unpack_promises(&pack_promises(&promises), 1).unwrap(), promises);
    }

    #[test]
    fn strangers_and_other_versions_are_known_by_their_greeting() {
        receive_greeting(&mut &greeting()[..]).unwrap();
        let mut other = greeting();
        other[8] = 9;
        let error = receive_greeting(&mut &other[..]).unwrap_err().to_string();
        assert!(error.contains("version 9"), "{error}");
        let error = receive_greeting(&mut &b"SSH-2.0-OpenSSH"[..]).unwrap_err().to_string();
        assert!(error.contains("not Strongroom"), "{error}");
    }
}
