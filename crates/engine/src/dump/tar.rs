//! Tar archives, as in POSIX.1-2001: ustar headers, with an extended header in front if a value
//! does not fit.
//!
//! Names of at most 100 bytes that are ASCII, or are not UTF-8 at all, are in the header itself,
//! unchanged. Extended attributes are written as `SCHILY.xattr.NAME`, access control lists as
//! `SCHILY.acl.*`, which GNU tar, star and libarchive read.

use std::io::Write;

use strongroom_base::Timestamp;
use strongroom_catalog::{DeviceNumber, EntryKind, Metadata, Recipe};
use tar::{EntryType, Header};

use super::{Archive, Member, Taken, acl};
use crate::error::EngineError;

const BLOCK_BYTES: usize = 512;
/// Numbers of eleven octal digits end here.
const OCTAL_11_END: u64 = 1 << 33;
/// Numbers of seven octal digits end here.
const OCTAL_7_END: u64 = 1 << 21;

/// An archive being written to a stream.
pub struct TarArchive<'o> {
    out: &'o mut dyn Write,
    /// How much content of the last member is still missing.
    pending: u64,
    /// Zeros after it, up to the next block.
    padding: usize,
}

impl<'o> TarArchive<'o> {
    /// An empty archive.
    pub fn new(out: &'o mut dyn Write) -> Self {
        Self { out, pending: 0, padding: 0 }
    }

    /// Writes the archive's end.
    pub fn finish(mut self) -> Result<(), EngineError> {
        assert_eq!(self.pending, 0, "a member gets all its content");
        self.write(&[0; 2 * BLOCK_BYTES])?;
        self.out.flush().map_err(EngineError::Output)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        self.out.write_all(bytes).map_err(EngineError::Output)
    }
}

impl Archive for TarArchive<'_> {
    fn member(&mut self, member: &Member<'_>) -> Result<Taken, EngineError> {
        assert_eq!(self.pending, 0, "a member gets all its content");
        let Some(header) = TarHeader::of(member) else {
            return Ok(Taken::Not("a tar archive cannot hold a socket: it was left out"));
        };
        let bytes = header.bytes();
        self.write(&bytes)?;
        self.pending = header.content_bytes;
        let past = self.pending % BLOCK_BYTES as u64;
        self.padding = if past == 0 { 0 } else { BLOCK_BYTES - past as usize };
        Ok(Taken::Whole)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        let left = self.pending.checked_sub(bytes.len() as u64);
        self.pending = left.expect("a member has as much content as was announced");
        self.write(bytes)?;
        if self.pending == 0 {
            let padding = std::mem::take(&mut self.padding);
            self.write(&[0; BLOCK_BYTES][..padding])?;
        }
        Ok(())
    }
}

/// The headers of one member.
struct TarHeader {
    header: Header,
    extended: Extended,
    content_bytes: u64,
}

impl TarHeader {
    fn of(member: &Member<'_>) -> Option<Self> {
        let entry = member.entry;
        let (kind, target) = match (member.link, &entry.kind) {
            (_, EntryKind::Socket) => return None,
            (Some(first), _) => (EntryType::Link, Some(first)),
            (None, EntryKind::File { .. }) => (EntryType::Regular, None),
            (None, EntryKind::Directory { .. }) => (EntryType::Directory, None),
            (None, EntryKind::Symlink { target }) => (EntryType::Symlink, Some(&target[..])),
            (None, EntryKind::Fifo) => (EntryType::Fifo, None),
            (None, EntryKind::CharDevice(_)) => (EntryType::Char, None),
            (None, EntryKind::BlockDevice(_)) => (EntryType::Block, None),
        };
        let content = entry.content().filter(|_| member.link.is_none());
        let content_bytes = content.map_or(0, Recipe::stream_bytes);
        let mut headers =
            Self { header: Header::new_ustar(), extended: Extended::default(), content_bytes };
        headers.header.set_entry_type(kind);
        headers.header.set_size(content_bytes);
        if content_bytes >= OCTAL_11_END {
            headers.extended.push(b"size", content_bytes.to_string().as_bytes());
        }
        let mut path = member.path.to_vec();
        if entry.is_directory() {
            path.push(b'/');
        }
        headers.name(b"path", &path, |ustar| &mut ustar.name);
        if let Some(target) = target {
            headers.name(b"linkpath", target, |ustar| &mut ustar.linkname);
        }
        headers.metadata(&entry.metadata);
        if let EntryKind::CharDevice(device) | EntryKind::BlockDevice(device) = &entry.kind {
            headers.device(*device);
        }
        if headers.extended.is_binary {
            headers.extended.records.splice(0..0, record(b"hdrcharset", b"BINARY"));
        }
        headers.header.set_cksum();
        Some(headers)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let records = &self.extended.records;
        if !records.is_empty() {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_size(records.len() as u64);
            header.set_mode(0o644);
            put(&mut ustar(&mut header).name, b"././@PaxHeader");
            header.set_cksum();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(records);
            bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        bytes.extend_from_slice(self.header.as_bytes());
        bytes
    }

    /// A name in its field, and in an extended header if the field cannot hold it.
    fn name<const N: usize>(
        &mut self,
        keyword: &[u8],
        name: &[u8],
        field: impl Fn(&mut tar::UstarHeader) -> &mut [u8; N],
    ) {
        put(field(ustar(&mut self.header)), name);
        let is_utf8 = std::str::from_utf8(name).is_ok();
        if name.len() > N || (is_utf8 && !name.is_ascii()) {
            self.extended.is_binary |= !is_utf8;
            self.extended.push(keyword, name);
        }
    }

    fn metadata(&mut self, metadata: &Metadata) {
        self.header.set_mode(u32::from(metadata.mode));
        for (keyword, number) in [("uid", metadata.uid), ("gid", metadata.gid)] {
            if u64::from(number) >= OCTAL_7_END {
                self.extended.push(keyword.as_bytes(), number.to_string().as_bytes());
            }
        }
        self.header.set_uid(metadata.uid.into());
        self.header.set_gid(metadata.gid.into());
        // One byte of these fields stays zero.
        if let Some(user) = &metadata.user {
            self.name(b"uname", user.as_bytes(), |ustar| {
                ustar.uname.first_chunk_mut::<31>().expect("the field has 32 bytes")
            });
        }
        if let Some(group) = &metadata.group {
            self.name(b"gname", group.as_bytes(), |ustar| {
                ustar.gname.first_chunk_mut::<31>().expect("the field has 32 bytes")
            });
        }
        let seconds = metadata.mtime.0.div_euclid(1_000_000_000);
        self.header.set_mtime(u64::try_from(seconds).unwrap_or(0));
        let whole = metadata.mtime.0.rem_euclid(1_000_000_000) == 0;
        if !whole || !(0..OCTAL_11_END as i64).contains(&seconds) {
            self.extended.push(b"mtime", time_text(metadata.mtime).as_bytes());
        }
        for xattr in &metadata.xattrs {
            let keyword = match &xattr.name[..] {
                acl::ACCESS => &b"SCHILY.acl.access"[..],
                acl::DEFAULT => b"SCHILY.acl.default",
                _ => b"",
            };
            match acl::text(&xattr.value).filter(|_| !keyword.is_empty()) {
                Some(text) => self.extended.push(keyword, text.as_bytes()),
                None => self.extended.push(&xattr_keyword(&xattr.name), &xattr.value),
            }
        }
    }

    fn device(&mut self, device: DeviceNumber) {
        let ustar = ustar(&mut self.header);
        // Linux has twelve bits of major numbers and twenty of minor ones.
        ustar.set_device_major(device.major & 0xfff);
        ustar.set_device_minor(device.minor & 0xf_ffff);
    }
}

fn ustar(header: &mut Header) -> &mut tar::UstarHeader {
    header.as_ustar_mut().expect("it was made as a ustar header")
}

/// As much of a name as the field takes.
fn put(field: &mut [u8], name: &[u8]) {
    let length = name.len().min(field.len());
    field[..length].copy_from_slice(&name[..length]);
}

/// The records of an extended header.
#[derive(Default)]
struct Extended {
    records: Vec<u8>,
    /// Some name in it is not UTF-8.
    is_binary: bool,
}

impl Extended {
    fn push(&mut self, keyword: &[u8], value: &[u8]) {
        self.records.extend(record(keyword, value));
    }
}

/// `length keyword=value\n`, where the length counts itself.
fn record(keyword: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = keyword.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    let mut record = format!("{length} ").into_bytes();
    record.extend_from_slice(keyword);
    record.push(b'=');
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

/// As GNU tar spells it: `%` and `=` would end the keyword too early.
fn xattr_keyword(name: &[u8]) -> Vec<u8> {
    let mut keyword = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'%' => keyword.extend_from_slice(b"%25"),
            b'=' => keyword.extend_from_slice(b"%3D"),
            _ => keyword.push(*byte),
        }
    }
    keyword
}

/// Seconds since the epoch, with as many decimals as needed.
fn time_text(time: Timestamp) -> String {
    let (sign, nanos) = (if time.0 < 0 { "-" } else { "" }, time.0.unsigned_abs());
    let text = format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use strongroom_catalog::{ChunkRef, Entry};

    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for (value, length) in
            [(0, 8), (1, 9), (2, 11), (90, 99), (91, 101), (989, 999), (990, 1001)]
        {
            let record = record(b"path", &vec![b'x'; value]);
            assert!(record.starts_with(format!("{length} path=").as_bytes()), "{value}");
            assert_eq!(record.len(), length, "{value}");
        }
    }

    #[test]
    fn what_does_not_fit_a_field_stands_in_front() {
        let file = |bytes| EntryKind::File {
            content: Recipe { depth: 0, refs: vec![ChunkRef::hole(bytes)] },
        };
        let metadata = Metadata { mode: 0o644, ..Metadata::default() };
        let plain = Entry { name: b"f".to_vec(), kind: file(1), metadata };
        let bytes = |change: &dyn Fn(&mut Entry), path: &[u8]| {
            let mut entry = plain.clone();
            change(&mut entry);
            TarHeader::of(&Member { path, entry: &entry, link: None }).unwrap().bytes()
        };
        let records = |change: &dyn Fn(&mut Entry), path: &[u8]| {
            let bytes = bytes(change, path);
            let text = String::from_utf8_lossy(
                bytes.get(BLOCK_BYTES..bytes.len() - BLOCK_BYTES).unwrap_or(b""),
            );
            text.trim_end_matches('\0').to_owned()
        };
        assert_eq!(bytes(&|_| {}, b"path").len(), BLOCK_BYTES);
        assert_eq!(bytes(&|_| {}, &[b'x'; 100]).len(), BLOCK_BYTES);
        assert_eq!(bytes(&|_| {}, b"raw\xff").len(), BLOCK_BYTES);
        assert_eq!(records(&|e| e.kind = file(9 << 30), b"f"), "19 size=9663676416\n");
        assert_eq!(records(&|e| e.kind = file((8 << 30) - 1), b"f"), "");
        assert_eq!(records(&|e| e.metadata.uid = 4_000_000_000, b"f"), "18 uid=4000000000\n");
        assert_eq!(records(&|e| e.metadata.mtime = Timestamp(-1), b"f"), "22 mtime=-0.000000001\n");
        assert_eq!(records(&|e| e.metadata.user = Some("ä".into()), b"f"), "12 uname=ä\n");
        assert_eq!(records(&|_| {}, "ä".as_bytes()), "11 path=ä\n");
        let long = [&[b'x'; 100][..], b"\xff"].concat();
        let expected = "21 hdrcharset=BINARY\n111 path=";
        assert!(records(&|_| {}, &long).starts_with(expected), "{}", records(&|_| {}, &long));
    }

    #[test]
    fn times_as_pax_tells_them() {
        for (nanos, text) in [
            (0, "0"),
            (1_500_000_000, "1.5"),
            (20_000_000_000, "20"),
            (-1_500_000_000, "-1.5"),
            (1, "0.000000001"),
            (-1, "-0.000000001"),
        ] {
            assert_eq!(time_text(Timestamp(nanos)), text);
        }
    }
}
