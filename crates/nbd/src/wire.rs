//! The protocol's numbers and messages, once for both sides. It knows no sockets.
//!
//! The names are those of `doc/proto.md`, without their prefix `NBD_`.

#![expect(clippy::big_endian_bytes, reason = "the protocol's numbers are big-endian")]

use std::fmt;
use std::io;

/// The most bytes that one request reads or writes: what the protocol says that each side must
/// expect of the other.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The longest string of the protocol, such as the name of an export.
pub const STRING_BYTES_MAX: usize = 4096;
/// The longest data of an option, or of an answer to one, that is taken.
pub const OPTION_BYTES_MAX: usize = 64 << 10;
/// The most extents of one answer about blocks.
pub const DESCRIPTORS_MAX: u32 = 1 << 20;

/// What a server greets with.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Follows the greeting, and begins each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of both sides: fixed newstyle.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of both sides: no padding after `OPT_EXPORT_NAME`.
pub const NO_ZEROES: u16 = 1 << 1;

/// Options that a client asks for.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options.
pub mod answer {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Set in every answer that refuses.
    pub const IS_ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = IS_ERROR + 1;
    pub const ERR_POLICY: u32 = IS_ERROR + 2;
    pub const ERR_INVALID: u32 = IS_ERROR + 3;
    pub const ERR_UNKNOWN: u32 = IS_ERROR + 6;
    pub const ERR_TOO_BIG: u32 = IS_ERROR + 9;
}

/// What `OPT_INFO` and `OPT_GO` say of an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what can be done with an export.
pub mod flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Requests.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;

    /// A request's name, for messages.
    pub fn name(command: u16) -> &'static str {
        match command {
            READ => "read",
            WRITE => "write",
            DISC => "disconnect",
            FLUSH => "flush",
            TRIM => "trim",
            CACHE => "cache",
            WRITE_ZEROES => "write zeroes",
            BLOCK_STATUS => "block status",
            _ => "unknown request",
        }
    }
}

/// Flags of requests.
pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies.
pub mod chunk {
    /// The flag of the last chunk of a reply.
    pub const DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in every type that reports an error.
    pub const IS_ERROR: u16 = 1 << 15;
    pub const ERROR: u16 = IS_ERROR + 1;
    pub const ERROR_OFFSET: u16 = IS_ERROR + 2;
}

/// The context that both sides know.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// In `base:allocation`: nothing is allocated there.
pub const STATUS_HOLE: u32 = 1 << 0;
/// In `base:allocation`: it reads as zeros.
pub const STATUS_ZERO: u32 = 1 << 1;

/// The bytes of a request without its payload.
pub const REQUEST_HEAD_BYTES: usize = 28;
/// The bytes of a simple reply without its data.
pub const SIMPLE_HEAD_BYTES: usize = 16;
/// The bytes of a chunk without its payload.
pub const CHUNK_HEAD_BYTES: usize = 20;
/// The bytes of an option's head, and of the greeting with its flags less two.
pub const OPTION_HEAD_BYTES: usize = 16;
/// The bytes of the head of an answer to an option.
pub const OPTION_REPLY_HEAD_BYTES: usize = 20;

/// What the other side sent breaks the protocol. The text says what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side breaks the NBD protocol: {0}")]
pub struct ProtocolError(pub &'static str);

impl From<ProtocolError> for io::Error {
    fn from(error: ProtocolError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// An error number of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u32);

impl Errno {
    /// Not permitted, such as a write to a disk that is only read.
    pub const EPERM: Self = Self(1);
    /// Reading or writing failed.
    pub const EIO: Self = Self(5);
    /// No memory.
    pub const ENOMEM: Self = Self(12);
    /// An invalid request.
    pub const EINVAL: Self = Self(22);
    /// No space.
    pub const ENOSPC: Self = Self(28);
    /// A request that is too large.
    pub const EOVERFLOW: Self = Self(75);
    /// Not supported, or not fast.
    pub const ENOTSUP: Self = Self(95);
    /// The server is ending.
    pub const ESHUTDOWN: Self = Self(108);

    /// The number for an error of this machine.
    pub fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::EPERM,
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::ENOSPC,
            io::ErrorKind::OutOfMemory => Self::ENOMEM,
            io::ErrorKind::InvalidInput => Self::EINVAL,
            io::ErrorKind::Unsupported => Self::ENOTSUP,
            _ => Self::EIO,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::EPERM => "not permitted",
            Self::EIO => "input or output error",
            Self::ENOMEM => "no memory",
            Self::EINVAL => "invalid request",
            Self::ENOSPC => "no space left",
            Self::EOVERFLOW => "too large",
            Self::ENOTSUP => "not supported",
            Self::ESHUTDOWN => "the server is shutting down",
            Self(number) => return write!(f, "error {number}"),
        };
        f.write_str(text)
    }
}

/// A request, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

impl Request {
    pub fn pack(&self) -> [u8; REQUEST_HEAD_BYTES] {
        let mut head = Vec::with_capacity(REQUEST_HEAD_BYTES);
        head.put_u32(REQUEST_MAGIC);
        head.put_u16(self.flags);
        head.put_u16(self.command);
        head.put_u64(self.cookie);
        head.put_u64(self.offset);
        head.put_u32(self.length);
        head.try_into().expect("the fields of a request are 28 bytes")
    }

    pub fn unpack(head: &[u8; REQUEST_HEAD_BYTES]) -> Result<Self, ProtocolError> {
        let mut fields = Fields(head);
        if fields.u32()? != REQUEST_MAGIC {
            return Err(ProtocolError("a request has the wrong magic number"));
        }
        Ok(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }
}

/// Appends the head of a chunk. `length` is that of its payload.
pub fn put_chunk(into: &mut Vec<u8>, flags: u16, kind: u16, cookie: u64, length: u32) {
    into.put_u32(CHUNK_MAGIC);
    into.put_u16(flags);
    into.put_u16(kind);
    into.put_u64(cookie);
    into.put_u32(length);
}

/// Appends a simple reply without data.
pub fn put_simple(into: &mut Vec<u8>, error: u32, cookie: u64) {
    into.put_u32(SIMPLE_MAGIC);
    into.put_u32(error);
    into.put_u64(cookie);
}

/// Appends an option with its data.
pub fn put_option(into: &mut Vec<u8>, option: u32, data: &[u8]) {
    into.put_u64(OPTION_MAGIC);
    into.put_u32(option);
    into.put_sized(data);
}

/// Appends an answer to an option.
pub fn put_option_reply(into: &mut Vec<u8>, option: u32, answer: u32, data: &[u8]) {
    into.put_u64(OPTION_REPLY_MAGIC);
    into.put_u32(option);
    into.put_u32(answer);
    into.put_sized(data);
}

/// Takes fields from the front of a slice.
#[derive(Debug, Clone)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], ProtocolError> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(ProtocolError("a message ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many bytes were taken"))
    }

    pub fn u16(&mut self) -> Result<u16, ProtocolError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, ProtocolError> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, ProtocolError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length before it.
    pub fn string(&mut self) -> Result<&'a str, ProtocolError> {
        let bytes = self.u32()? as usize;
        if bytes > STRING_BYTES_MAX {
            return Err(ProtocolError("a string is longer than 4096 bytes"));
        }
        text(self.take(bytes)?)
    }

    /// Fails if bytes are left.
    pub fn finish(self) -> Result<(), ProtocolError> {
        if self.0.is_empty() { Ok(()) } else { Err(ProtocolError("a message goes on too long")) }
    }
}

/// Bytes as a string of the protocol.
pub fn text(bytes: &[u8]) -> Result<&str, ProtocolError> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(ProtocolError("a string is longer than 4096 bytes"));
    }
    std::str::from_utf8(bytes).map_err(|_| ProtocolError("a string is not UTF-8"))
}

/// Appends fields.
pub trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// Appends bytes with their length before them. What is sent is never near 4 GiB.
    fn put_sized(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("messages are small"));
        self.put(bytes);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        let request = Request { flags: 3, command: 7, cookie: 1 << 63, offset: 5 << 40, length: 9 };
        assert_eq!(Request::unpack(&request.pack()), Ok(request));
        assert_eq!(request.pack()[..4], [0x25, 0x60, 0x95, 0x13]);
    }

    #[test]
    fn fields_never_run_past_their_end() {
        let mut fields = Fields(&[0, 0, 0, 9, b'x']);
        assert_eq!(fields.string(), Err(ProtocolError("a message ends too early")));
        assert!(Fields(&[0xff, 0xff, 0xff, 0xff]).string().is_err());
        assert!(Fields(&[1]).finish().is_err());
        assert!(Fields(&[0, 0, 0, 1, 0xff]).string().is_err());
    }
}
