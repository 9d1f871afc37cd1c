//! The packets of SFTP version 3 (draft-ietf-secsh-filexfer-02), as far as they are needed. Numbers
//! are big-endian.

use std::io::{self, Read};

use crate::calls::Answer;

/// The longest packet that a server may send: OpenSSH's own limit.
const PACKET_BYTES_MAX: usize = 256 << 10;

pub(super) const INIT: u8 = 1;
const VERSION: u8 = 2;
pub(super) const OPEN: u8 = 3;
pub(super) const CLOSE: u8 = 4;
pub(super) const READ: u8 = 5;
pub(super) const WRITE: u8 = 6;
pub(super) const LSTAT: u8 = 7;
pub(super) const FSTAT: u8 = 8;
pub(super) const OPENDIR: u8 = 11;
pub(super) const READDIR: u8 = 12;
pub(super) const REMOVE: u8 = 13;
pub(super) const MKDIR: u8 = 14;
pub(super) const STAT: u8 = 17;
pub(super) const EXTENDED: u8 = 200;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED_REPLY: u8 = 201;

/// Flags of [`OPEN`].
pub(super) const FOR_READING: u32 = 1;
pub(super) const FOR_A_NEW_FILE: u32 = 0x2 | 0x8 | 0x20;

/// Codes of [`Packet::Status`].
pub(super) const OK: u32 = 0;
pub(super) const END_OF_FILE: u32 = 1;
pub(super) const NO_SUCH_FILE: u32 = 2;
pub(super) const PERMISSION_DENIED: u32 = 3;
pub(super) const UNSUPPORTED: u32 = 8;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packet {
    /// The version and the extensions. It has no number: it answers call 1.
    Version { version: u32, extensions: Vec<(String, Vec<u8>)> },
    /// How a request ended.
    Status { code: u32, text: String },
    /// An open file or folder.
    Handle(Vec<u8>),
    /// Bytes of a file.
    Data(Vec<u8>),
    /// Entries of a folder.
    Names(Vec<(Vec<u8>, Attributes)>),
    /// What a file is.
    Attributes(Attributes),
    /// The answer of an extension.
    Extended(Vec<u8>),
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Attributes {
    pub(super) bytes: Option<u64>,
    pub(super) mode: Option<u32>,
}

impl Attributes {
    const KIND: u32 = 0o170_000;

    pub(super) fn is_folder(&self) -> bool {
        self.mode.is_some_and(|mode| mode & Self::KIND == 0o040_000)
    }

    /// Whether it is a file; a server that gives no modes has files only.
    pub(super) fn is_file(&self) -> bool {
        self.mode.is_none_or(|mode| matches!(mode & Self::KIND, 0o100_000 | 0))
    }
}

/// Appends the fields of a request.
#[derive(Default)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    #[expect(clippy::big_endian_bytes, reason = "the protocol's")]
    pub(super) fn number(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    #[expect(clippy::big_endian_bytes, reason = "the protocol's")]
    pub(super) fn offset(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn string(self, bytes: &[u8]) -> Self {
        let mut body = self.number(bytes.len() as u32);
        body.0.extend_from_slice(bytes);
        body
    }

    /// No attributes.
    pub(super) fn no_attributes(self) -> Self {
        self.number(0)
    }
}

/// A whole packet.
pub(super) fn packet(kind: u8, number: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32 + 5;
    let mut head = Body::default().number(length).0;
    head.push(kind);
    let mut packet = Body(head).number(number).0;
    packet.extend_from_slice(body);
    packet
}

/// Takes fields off the front of a packet.
struct Fields<'a>(&'a [u8]);

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a packet of SFTP is too short")
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    #[expect(clippy::big_endian_bytes, reason = "the protocol's")]
    fn number(&mut self) -> io::Result<u32> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(short)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    #[expect(clippy::big_endian_bytes, reason = "the protocol's")]
    fn offset(&mut self) -> io::Result<u64> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(short)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*taken))
    }

    fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number()? as usize;
        self.take(length)
    }

    fn attributes(&mut self) -> io::Result<Attributes> {
        let flags = self.number()?;
        let mut attributes = Attributes::default();
        if flags & 1 != 0 {
            attributes.bytes = Some(self.offset()?);
        }
        if flags & 2 != 0 {
            self.take(8)?;
        }
        if flags & 4 != 0 {
            attributes.mode = Some(self.number()?);
        }
        if flags & 8 != 0 {
            self.take(8)?;
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.number()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(attributes)
    }
}

/// The eleven numbers of `statvfs@openssh.com`, of which the fifth are the blocks that are free for
/// this user. None if it is not such an answer.
pub(super) fn free_blocks(body: &[u8]) -> Option<u64> {
    let mut fields = Fields(body);
    for _ in 0..4 {
        fields.offset().ok()?;
    }
    fields.offset().ok()
}

impl Answer for Packet {
    fn receive(source: &mut dyn Read) -> io::Result<Option<(u32, Self)>> {
        let mut head = [0; 4];
        let first = source.read(&mut head)?;
        if first == 0 {
            return Ok(None);
        }
        source.read_exact(&mut head[first..])?;
        let length = Fields(&head).number()? as usize;
        if length > PACKET_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet that is too long"));
        }
        let mut packet = vec![0; length];
        source.read_exact(&mut packet)?;
        unpack(&packet).map(Some)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Data(bytes) => bytes.len(),
            Self::Names(names) => names.iter().map(|(name, _)| 2 * name.len() + 100).sum(),
            _ => 16,
        }
    }
}

fn unpack(packet: &[u8]) -> io::Result<(u32, Packet)> {
    let (kind, rest) = packet.split_first().ok_or_else(short)?;
    let mut fields = Fields(rest);
    if *kind == VERSION {
        let version = fields.number()?;
        let mut extensions = Vec::new();
        while !fields.0.is_empty() {
            let name = String::from_utf8_lossy(fields.string()?).into_owned();
            extensions.push((name, fields.string()?.to_vec()));
        }
        return Ok((1, Packet::Version { version, extensions }));
    }
    let number = fields.number()?;
    let answer = match *kind {
        STATUS => {
            let code = fields.number()?;
            // Old servers send no text.
            let text = fields.string().unwrap_or_default();
            Packet::Status { code, text: String::from_utf8_lossy(text).into_owned() }
        }
        HANDLE => Packet::Handle(fields.string()?.to_vec()),
        DATA => Packet::Data(fields.string()?.to_vec()),
        NAME => {
            let count = fields.number()?;
            let mut names = Vec::new();
            for _ in 0..count {
                let name = fields.string()?.to_vec();
                // For people, as `ls -l` prints it.
                fields.string()?;
                names.push((name, fields.attributes()?));
            }
            Packet::Names(names)
        }
        ATTRS => Packet::Attributes(fields.attributes()?),
        EXTENDED_REPLY => Packet::Extended(fields.0.to_vec()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet of unknown kind")),
    };
    Ok((number, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_bounded_and_harmless() {
        let mut seed = 11_u64;
        for round in 0..30_000 {
            let mut bytes =
                vec![[VERSION, STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED_REPLY][round % 7]];
            for _ in 0..seed % 60 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Mostly small numbers, so that lengths fit now and then.
                bytes.push(if seed & 3 == 0 { (seed >> 50) as u8 } else { (seed >> 61) as u8 });
            }
            seed = seed.wrapping_add(1).wrapping_mul(5);
            let _ = unpack(&bytes);
            let _ = Packet::receive(&mut bytes.as_slice());
            let _ = free_blocks(&bytes);
        }
        let long = [0xff; 64];
        assert!(Packet::receive(&mut &long[..]).is_err());
    }

    #[test]
    fn answers_are_taken_apart() {
        let names = Body::default()
            .number(7)
            .number(1)
            .string(b"a")
            .string(b"-rw a")
            .number(5)
            .offset(300)
            .number(0o100_644);
        let mut bytes = vec![NAME];
        bytes.extend(names.0);
        let (number, packet) = unpack(&bytes).unwrap();
        let attributes = Attributes { bytes: Some(300), mode: Some(0o100_644) };
        assert_eq!((number, packet), (7, Packet::Names(vec![(b"a".to_vec(), attributes)])));
        assert!(attributes.is_file() && !attributes.is_folder());
        for length in 0..bytes.len() {
            assert!(unpack(&bytes[..length]).is_err(), "{length}");
        }
    }
}
