//! A file with all its attributes, in as many records as it takes.

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, le64, part};

use super::mft::Mft;
use super::record::{Attribute, DOS_NAME, Record, kind, number_of, sequence_of};
use super::stream::Stream;

/// Windows makes no longer list of attributes.
const LIST_BYTES_MAX: u64 = 256 << 10;
const LIST_ENTRY_BYTES: usize = 26;

/// A file, a directory, or a part of the file system itself.
pub(super) struct Inode {
    /// Its first record.
    pub base: Record,
    /// What it has, sorted by kind, name and cluster as Windows sorts them.
    parts: Vec<Part>,
}

/// A part of an attribute, and the record that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub kind: u32,
    pub name: Box<[u8]>,
    lowest: u64,
    record: u64,
    id: u16,
}

impl Part {
    /// The number of the record.
    pub(super) fn number(&self) -> u64 {
        number_of(self.record)
    }
}

impl Inode {
    /// The file that a reference means. A reference without a sequence means the file that has the
    /// record now.
    pub(super) fn load(mft: &Mft<'_>, reference: u64) -> Result<Self> {
        let base = mft.record(number_of(reference))?;
        let is_same =
            matches!(sequence_of(reference), 0) || sequence_of(reference) == base.sequence();
        if !base.is_in_use() || base.base() != 0 || !is_same {
            return Err(DiskError::damaged("a name leads to no file, by record", base.number));
        }
        let mut parts = Vec::new();
        let mut list = None;
        for attribute in base.attributes() {
            let attribute = attribute?;
            if attribute.kind() == kind::ATTRIBUTE_LIST {
                list = Some(attribute);
                continue;
            }
            parts.push(Part {
                kind: attribute.kind(),
                name: attribute.name().into(),
                lowest: attribute.lowest(),
                record: base.reference(),
                id: attribute.id(),
            });
        }
        if let Some(list) = list {
            let stream = Stream::new(vec![list], base.number)?;
            if stream.bytes > LIST_BYTES_MAX {
                return Err(DiskError::damaged("a list of attributes, by record", base.number));
            }
            parts = listed(&stream.read_all(mft)?);
        }
        parts.sort_by(|one, other| {
            (one.kind, &one.name, one.lowest).cmp(&(other.kind, &other.name, other.lowest))
        });
        Ok(Self { base, parts })
    }

    pub(super) fn damaged(&self, what: &'static str) -> DiskError {
        DiskError::damaged(what, self.base.number)
    }

    /// The names of the streams beside the content.
    pub(super) fn stream_names(&self) -> impl Iterator<Item = &[u8]> {
        let named = self.parts.iter().filter(|part| part.kind == kind::DATA);
        let mut last: &[u8] = &[];
        named
            .map(|part| &*part.name)
            .filter(move |name| std::mem::replace(&mut last, name) != *name)
    }

    /// The parts of the attributes of a kind that have a name, in order.
    pub(super) fn parts<'i>(
        &'i self,
        kind: u32,
        name: &'i [u8],
    ) -> impl Iterator<Item = &'i Part> + 'i {
        let first = self.parts.partition_point(|part| (part.kind, &*part.name) < (kind, name));
        let rest = self.parts[first..].iter();
        rest.take_while(move |part| part.kind == kind && *part.name == *name)
    }

    /// Reads a part.
    pub(super) fn part(&self, mft: &Mft<'_>, part: &Part) -> Result<Attribute> {
        let is_own = part.number() == self.base.number;
        let record = if is_own { self.base.clone() } else { mft.record(part.number())? };
        let is_right = record.is_in_use()
            && record.sequence() == sequence_of(part.record)
            && (is_own || number_of(record.base()) == self.base.number);
        let found = record.attributes().filter_map(Result::ok).find(|attribute| {
            attribute.kind() == part.kind
                && attribute.id() == part.id
                && attribute.lowest() == part.lowest
                && *attribute.name() == *part.name
        });
        found.filter(|_| is_right).ok_or_else(|| self.damaged("parts of a file, by record"))
    }

    /// The value of an attribute; `None` if the file does not have it.
    pub(super) fn stream(&self, mft: &Mft<'_>, kind: u32, name: &[u8]) -> Result<Option<Stream>> {
        let parts = self.parts(kind, name).map(|part| self.part(mft, part));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        if parts.is_empty() { Ok(None) } else { Stream::new(parts, self.base.number).map(Some) }
    }

    /// The value of an attribute that is always in a record; empty if the file does not have it.
    pub(super) fn value(&self, mft: &Mft<'_>, kind: u32, name: &[u8]) -> Result<Vec<u8>> {
        let Some(part) = self.parts(kind, name).next() else { return Ok(Vec::new()) };
        Ok(self.part(mft, part)?.value().to_vec())
    }

    /// How many names it has, without those for DOS. Each has another form for Windows.
    pub(super) fn names(&self, mft: &Mft<'_>) -> Result<u64> {
        let mut names = 0;
        for part in self.parts(kind::FILE_NAME, b"") {
            let attribute = self.part(mft, part)?;
            names += u64::from(byte(attribute.value(), 0x41) != DOS_NAME);
        }
        Ok(names)
    }
}

/// Takes a list of attributes apart. What is behind a damaged entry is left out: reading the file
/// then fails, as parts are missing.
fn listed(list: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = list;
    while rest.len() >= LIST_ENTRY_BYTES {
        let bytes = usize::from(le16(rest, 4));
        let name_bytes = usize::from(byte(rest, 6)) * 2;
        let Some(behind) = rest.get(bytes..).filter(|_| bytes >= LIST_ENTRY_BYTES) else { break };
        parts.push(Part {
            kind: le32(rest, 0),
            name: part(&rest[..bytes], byte(rest, 7).into(), name_bytes).into(),
            lowest: le64(rest, 8),
            record: le64(rest, 16),
            id: le16(rest, 24),
        });
        rest = behind;
    }
    parts
}
