//! The bytes of commands, acknowledgements and records (`docs/format/cluster.md`). Bytes from the
//! network are never trusted: each length is compared with its limit before memory is used for it.

use strongroom_base::SnapshotId;
use strongroom_base::keys::derive_object_key;
use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_bucket::{KEY_BYTES_MAX, KeyRange};

use crate::message::{
    ANSWERED_MAX, Acknowledgement, BucketNumber, Command, Content, Cut, Description, Epoch,
    FileName, NodeId, NodeTag, PARTS_MAX, Part, REASON_BYTES_MAX, RunId, State, Verb,
};
use crate::record::{Kept, Record};

/// Why bytes are no message or record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They end too early, or go on too long.
    #[error("a message of the cluster has the wrong length")]
    Length,
    /// A field has a value that this version does not know, or that is never written.
    #[error("a message of the cluster has an invalid {0}")]
    Field(&'static str),
    /// The record on the disk is damaged.
    #[error("the record of a file's epochs is damaged: its checksum does not fit")]
    Checksum,
}

impl From<LengthError> for FormatError {
    fn from(_: LengthError) -> Self {
        Self::Length
    }
}

const VERBS: [&str; 7] = ["status", "prepare", "cut", "abort", "evict", "load", "prepare all"];

const STATES: [State; 13] = [
    State::Idle,
    State::Preparing,
    State::Ready,
    State::Captured,
    State::Stored,
    State::Evicting,
    State::Evicted,
    State::Changed,
    State::Loading,
    State::Loaded,
    State::Failed,
    State::Refused,
    State::Empty,
];

const CONTENTS: [Content; 3] = [Content::Unknown, Content::Empty, Content::Filled];

impl Command {
    /// The bytes that are signed. Lists that are too long are cut off: a client lists no more.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        put_short(&mut bytes, self.file.as_str().as_bytes());
        bytes.put_u64(self.run.0);
        bytes.put_u64(self.epoch.0);
        bytes.put_u32(self.deadline_ms);
        let (verb, listed) = match &self.verb {
            Verb::Status => (0, None),
            Verb::Prepare => (1, None),
            Verb::Cut => (2, None),
            Verb::Abort => (3, None),
            Verb::Evict { cut, parts } => (4, Some((cut, parts))),
            Verb::Load { cut, parts } => (5, Some((cut, parts))),
            Verb::PrepareAll => (6, None),
        };
        bytes.put_u8(verb);
        if let Some((cut, parts)) = listed {
            put_cut(&mut bytes, *cut);
            put_count(&mut bytes, parts.len().min(PARTS_MAX));
            for part in parts.iter().take(PARTS_MAX) {
                bytes.put_u32(part.bucket.0);
                bytes.put(&part.node.0);
                bytes.put(&part.snapshot.0);
            }
        }
        // Both lists at their longest are more than a datagram. Parts are listed until they answer.
        let answered_max = if listed.is_some() { 0 } else { ANSWERED_MAX };
        put_count(&mut bytes, self.answered.len().min(answered_max));
        for node in self.answered.iter().take(answered_max) {
            bytes.put(&node.0);
        }
        bytes
    }

    /// What [`Command::pack`] made.
    pub(crate) fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = LeReader::new(bytes);
        let name = take_text(&mut fields)?;
        let file = FileName::new(name).map_err(|_| FormatError::Field("name of a file"))?;
        let run = RunId(fields.u64()?);
        let epoch = Epoch(fields.u64()?);
        let deadline_ms = fields.u32()?;
        let verb = match VERBS.get(usize::from(fields.u8()?)) {
            Some(&"status") => Verb::Status,
            Some(&"prepare") => Verb::Prepare,
            Some(&"cut") => Verb::Cut,
            Some(&"abort") => Verb::Abort,
            Some(&"evict") => {
                Verb::Evict { cut: take_cut(&mut fields)?, parts: take_parts(&mut fields)? }
            }
            Some(&"prepare all") => Verb::PrepareAll,
            Some(_) => Verb::Load { cut: take_cut(&mut fields)?, parts: take_parts(&mut fields)? },
            None => return Err(FormatError::Field("verb")),
        };
        let is_listing = matches!(verb, Verb::Evict { .. } | Verb::Load { .. });
        let max = if is_listing { 0 } else { ANSWERED_MAX };
        let count = take_count(&mut fields, max, "number of nodes that answered")?;
        let answered = (0..count).map(|_| fields.array().map(NodeTag));
        let answered = answered.collect::<Result<_, _>>()?;
        fields.finish()?;
        Ok(Self { file, run, epoch, verb, deadline_ms, answered })
    }
}

impl Acknowledgement {
    /// All but the node, which the datagram has in the clear.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.put_u64(self.run.0);
        bytes.put_u64(self.epoch.0);
        bytes.put_u64(self.highest.0);
        bytes.put_u8(u8::from(self.bucket.is_some()));
        bytes.put_u32(self.bucket.map_or(0, |bucket| bucket.0));
        bytes.put_u16(self.buckets);
        let state = STATES.iter().position(|state| *state == self.state);
        put_short_count(&mut bytes, state.expect("the table has every state"));
        put_description(&mut bytes, &self.description);
        bytes.put_u8(u8::from(self.snapshot.is_some()));
        bytes.put(&self.snapshot.unwrap_or(SnapshotId::ZERO).0);
        let end = self.reason.floor_char_boundary(REASON_BYTES_MAX);
        put_short(&mut bytes, &self.reason.as_bytes()[..end]);
        bytes
    }

    /// What [`Acknowledgement::pack`] made, from this node.
    pub(crate) fn unpack(node: NodeId, bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = LeReader::new(bytes);
        let run = RunId(fields.u64()?);
        let epoch = Epoch(fields.u64()?);
        let highest = Epoch(fields.u64()?);
        let has_bucket = take_bool(&mut fields)?;
        let number = fields.u32()?;
        let buckets = fields.u16()?;
        let state = STATES.get(usize::from(fields.u8()?)).ok_or(FormatError::Field("state"))?;
        let description = take_description(&mut fields)?;
        let has_snapshot = take_bool(&mut fields)?;
        let snapshot = SnapshotId(fields.array()?);
        let reason = take_text(&mut fields)?.to_owned();
        if reason.len() > REASON_BYTES_MAX {
            return Err(FormatError::Field("reason"));
        }
        fields.finish()?;
        if !has_bucket && number != 0 || !has_snapshot && snapshot != SnapshotId::ZERO {
            return Err(FormatError::Field("field that should be zero"));
        }
        Ok(Self {
            run,
            epoch,
            node,
            highest,
            bucket: has_bucket.then_some(BucketNumber(number)),
            buckets,
            state: *state,
            description,
            snapshot: has_snapshot.then_some(snapshot),
            reason,
        })
    }
}

const RECORD_MAGIC: [u8; 8] = *b"SRCLUST\0";
const RECORD_VERSION: u32 = 0;
const RECORD_CONTEXT: &str = "strongroom v0 checksum of a cluster record";
const CHECKSUM_BYTES: usize = 32;

impl Record {
    /// The bytes that a node keeps.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = RECORD_MAGIC.to_vec();
        bytes.put_u32(RECORD_VERSION);
        bytes.put_u64(self.epoch.0);
        bytes.put_u32(u32::try_from(self.kept.len()).expect("buckets are numbered by a u32"));
        for (bucket, kept) in &self.kept {
            bytes.put_u32(bucket.0);
            let (kind, cut) = match *kept {
                Kept::Stored { epoch, snapshot } => (0, Cut { epoch, snapshot }),
                Kept::Evicted(cut) => (1, cut),
                Kept::Loaded(cut) => (2, cut),
            };
            bytes.put_u8(kind);
            put_cut(&mut bytes, cut);
        }
        let checksum = derive_object_key(RECORD_CONTEXT, &[0; 32], &bytes);
        bytes.put(&checksum);
        bytes
    }

    /// What [`Record::pack`] made.
    ///
    /// # Errors
    ///
    /// If the bytes are damaged, or of another version.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let content = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(FormatError::Length)?;
        let (content, checksum) = bytes.split_at(content);
        if derive_object_key(RECORD_CONTEXT, &[0; 32], content) != checksum {
            return Err(FormatError::Checksum);
        }
        let mut fields = LeReader::new(content);
        if fields.array()? != RECORD_MAGIC || fields.u32()? != RECORD_VERSION {
            return Err(FormatError::Field("version of a record"));
        }
        let mut record = Self { epoch: Epoch(fields.u64()?), ..Self::default() };
        for _ in 0..fields.u32()? {
            let bucket = BucketNumber(fields.u32()?);
            let kind = fields.u8()?;
            let cut = take_cut(&mut fields)?;
            let kept = match kind {
                0 => Kept::Stored { epoch: cut.epoch, snapshot: cut.snapshot },
                1 => Kept::Evicted(cut),
                2 => Kept::Loaded(cut),
                _ => return Err(FormatError::Field("kind of a bucket's record")),
            };
            record.kept.insert(bucket, kept);
        }
        fields.finish()?;
        Ok(record)
    }
}

fn put_short_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.put_u8(u8::try_from(count).expect("the limits of messages are below 256"));
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.put_u16(u16::try_from(count).expect("the limits of messages are below 65,536"));
}

fn take_count(
    fields: &mut LeReader<'_>,
    max: usize,
    what: &'static str,
) -> Result<usize, FormatError> {
    let count = usize::from(fields.u16()?);
    if count <= max { Ok(count) } else { Err(FormatError::Field(what)) }
}

/// Bytes with their length before them, one byte.
fn put_short(bytes: &mut Vec<u8>, value: &[u8]) {
    put_short_count(bytes, value.len());
    bytes.put(value);
}

fn take_short<'b>(fields: &mut LeReader<'b>) -> Result<&'b [u8], FormatError> {
    let length = fields.u8()?;
    Ok(fields.take(usize::from(length))?)
}

fn take_text<'b>(fields: &mut LeReader<'b>) -> Result<&'b str, FormatError> {
    std::str::from_utf8(take_short(fields)?).map_err(|_| FormatError::Field("text"))
}

fn take_bool(fields: &mut LeReader<'_>) -> Result<bool, FormatError> {
    match fields.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FormatError::Field("flag")),
    }
}

fn put_cut(bytes: &mut Vec<u8>, cut: Cut) {
    bytes.put_u64(cut.epoch.0);
    bytes.put(&cut.snapshot.0);
}

fn take_cut(fields: &mut LeReader<'_>) -> Result<Cut, FormatError> {
    Ok(Cut { epoch: Epoch(fields.u64()?), snapshot: SnapshotId(fields.array()?) })
}

fn take_parts(fields: &mut LeReader<'_>) -> Result<Vec<Part>, FormatError> {
    let count = take_count(fields, PARTS_MAX, "number of parts")?;
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        parts.push(Part {
            bucket: BucketNumber(fields.u32()?),
            node: NodeId(fields.array()?),
            snapshot: SnapshotId(fields.array()?),
        });
    }
    Ok(parts)
}

/// 0: no range. 1: from a first key on. 2: up to a key.
fn put_description(bytes: &mut Vec<u8>, description: &Description) {
    bytes.put_u64(description.split_version);
    bytes.put_u64(description.bytes);
    let content = CONTENTS.iter().position(|content| *content == description.content);
    put_short_count(bytes, content.expect("the table has every one"));
    let range = description.range.as_ref().filter(|range| range.is_valid());
    let Some(range) = range else { return bytes.put_u8(0) };
    bytes.put_u8(if range.high.is_some() { 2 } else { 1 });
    put_short(bytes, &range.low);
    if let Some(high) = &range.high {
        put_short(bytes, high);
    }
}

fn take_description(fields: &mut LeReader<'_>) -> Result<Description, FormatError> {
    let split_version = fields.u64()?;
    let bytes = fields.u64()?;
    let content = CONTENTS.get(usize::from(fields.u8()?)).ok_or(FormatError::Field("content"))?;
    let kind = fields.u8()?;
    let range = match kind {
        0 => None,
        1 => Some(KeyRange { low: take_key(fields)?, high: None }),
        2 => Some(KeyRange { low: take_key(fields)?, high: Some(take_key(fields)?) }),
        _ => return Err(FormatError::Field("range")),
    };
    if range.as_ref().is_some_and(|range| !range.is_valid()) {
        return Err(FormatError::Field("range"));
    }
    Ok(Description { range, split_version, bytes, content: *content })
}

fn take_key(fields: &mut LeReader<'_>) -> Result<Vec<u8>, FormatError> {
    let key = take_short(fields)?;
    if key.len() <= KEY_BYTES_MAX { Ok(key.to_vec()) } else { Err(FormatError::Field("key")) }
}

#[cfg(test)]
mod tests;
