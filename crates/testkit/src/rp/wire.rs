//! What clients and servers say to each other.
//!
//! A message is a byte for its kind and its fields, and is sent behind its length (four bytes). All
//! numbers are little-endian; keys, values and texts are behind their length; lists behind their
//! count. Any bytes can be decoded: those that are no message are an error.

mod fields;

use std::net::SocketAddr;

use strongroom_bucket::KeyRange;

use self::fields::{Reader, Writer};
use super::bucket::Records;

/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of records after which no more are put into a message. Another record has room.
pub const BATCH_BYTES: usize = 256 << 10;

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireError(pub &'static str);

/// A split: the bucket that gives, and the version that both have afterwards. A bucket that did not
/// give may use the same name again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SplitId {
    /// The bucket that gives.
    pub bucket: u32,
    /// The split version of both when it is done.
    pub version: u64,
}

/// Where a range is, as a server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The range.
    pub range: KeyRange,
    /// The split version that it had.
    pub split_version: u64,
    /// The server that has it.
    pub address: SocketAddr,
}

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Its bucket is empty: it takes a part of another, or waits for a load.
    Spare,
    /// It answers for its range.
    Serving,
    /// It gives a part of its range away, or takes one.
    Splitting,
    /// It does not know whether the other server took what it gave.
    InDoubt,
    /// It answers nothing about records until it resumes.
    Quiesced,
    /// Its bucket was stored and freed.
    Evicted,
    /// What was loaded into its memory is no bucket, or a damaged one.
    Damaged,
}

/// A server and its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The bucket's number.
    pub bucket: u32,
    /// What the server does.
    pub condition: Condition,
    /// The range, unless the bucket is empty.
    pub range: Option<KeyRange>,
    /// Its split version.
    pub split_version: u64,
    /// How many records it has.
    pub records: u64,
    /// The ranges that it gave away, as far as it knows.
    pub given: Vec<Image>,
}

/// What is asked of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The value of a key.
    Get(Vec<u8>),
    /// Put these records, in order. Those of another server are not put.
    Put(Records),
    /// Remove the record with this key.
    Remove(Vec<u8>),
    /// Some records from this key on, in order.
    Scan(Vec<u8>),
    /// What the server and its bucket are.
    Status,
    /// There is a spare at this address.
    Introduce(SocketAddr),
    /// Take this range. Its records follow on the same connection; if that ends before the commit,
    /// nothing was taken.
    SplitBegin(SplitId, KeyRange),
    /// Records of the range.
    SplitRecords(Records),
    /// All records were sent: serve the range from now on.
    SplitCommit(SplitId),
    /// Was this range taken? If it is still being taken, it is not from now on.
    SplitAsk(SplitId),
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Get`].
    Value(Option<Vec<u8>>),
    /// How many records of the request were put or removed, or that a part of a split was done.
    Done(u32),
    /// To [`Request::Scan`]: records, and the key to go on with, perhaps at another server.
    Records(Records, Option<Vec<u8>>),
    /// To [`Request::Status`].
    Status(Status),
    /// The key is not in this bucket's range. These are the ranges that the server knows, its own
    /// first.
    Moved(Vec<Image>),
    /// The range was taken and is served.
    Taken,
    /// The range was not taken and will not be.
    NotTaken,
    /// The bucket is empty.
    Empty,
    /// The bucket was evicted.
    Evicted,
    /// Not now.
    Busy(String),
    /// It cannot be done.
    Failed(String),
}

impl Request {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Get(key) => Writer::new(1).bytes(key),
            Self::Put(records) => Writer::new(2).records(records),
            Self::Remove(key) => Writer::new(3).bytes(key),
            Self::Scan(from) => Writer::new(4).bytes(from),
            Self::Status => Writer::new(5),
            Self::Introduce(address) => Writer::new(6).address(*address),
            Self::SplitBegin(split, range) => Writer::new(7).split(*split).range(range),
            Self::SplitRecords(records) => Writer::new(8).records(records),
            Self::SplitCommit(split) => Writer::new(9).split(*split),
            Self::SplitAsk(split) => Writer::new(10).split(*split),
        }
        .end()
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Reader::new(bytes);
        let request = match fields.u8()? {
            1 => Self::Get(fields.bytes()?),
            2 => Self::Put(fields.records()?),
            3 => Self::Remove(fields.bytes()?),
            4 => Self::Scan(fields.bytes()?),
            5 => Self::Status,
            6 => Self::Introduce(fields.address()?),
            7 => Self::SplitBegin(fields.split()?, fields.range()?),
            8 => Self::SplitRecords(fields.records()?),
            9 => Self::SplitCommit(fields.split()?),
            10 => Self::SplitAsk(fields.split()?),
            _ => return Err(WireError("an unknown request")),
        };
        fields.end(request)
    }
}

impl Answer {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Value(value) => Writer::new(1).option(value.as_deref()),
            Self::Done(count) => Writer::new(2).u32(*count),
            Self::Records(records, next) => Writer::new(3).records(records).option(next.as_deref()),
            Self::Status(status) => encode_status(status),
            Self::Moved(images) => encode_images(Writer::new(5), images),
            Self::Taken => Writer::new(6),
            Self::NotTaken => Writer::new(7),
            Self::Empty => Writer::new(8),
            Self::Evicted => Writer::new(9),
            Self::Busy(reason) => Writer::new(10).bytes(reason.as_bytes()),
            Self::Failed(reason) => Writer::new(11).bytes(reason.as_bytes()),
        }
        .end()
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Reader::new(bytes);
        let answer = match fields.u8()? {
            1 => Self::Value(fields.option()?),
            2 => Self::Done(fields.u32()?),
            3 => Self::Records(fields.records()?, fields.option()?),
            4 => Self::Status(decode_status(&mut fields)?),
            5 => Self::Moved(decode_images(&mut fields)?),
            6 => Self::Taken,
            7 => Self::NotTaken,
            8 => Self::Empty,
            9 => Self::Evicted,
            10 => Self::Busy(fields.text()?),
            11 => Self::Failed(fields.text()?),
            _ => return Err(WireError("an unknown answer")),
        };
        fields.end(answer)
    }
}

const CONDITIONS: [Condition; 7] = [
    Condition::Spare,
    Condition::Serving,
    Condition::Splitting,
    Condition::InDoubt,
    Condition::Quiesced,
    Condition::Evicted,
    Condition::Damaged,
];

fn encode_status(status: &Status) -> Writer {
    let writer = Writer::new(4).u32(status.bucket).u8(status.condition as u8);
    let writer = writer.u64(status.split_version).u64(status.records);
    let writer = encode_images(writer, &status.given);
    match &status.range {
        Some(range) => writer.u8(1).range(range),
        None => writer.u8(0),
    }
}

fn decode_status(fields: &mut Reader<'_>) -> Result<Status, WireError> {
    let bucket = fields.u32()?;
    let condition = CONDITIONS.get(usize::from(fields.u8()?));
    let condition = *condition.ok_or(WireError("an unknown condition of a server"))?;
    let (split_version, records) = (fields.u64()?, fields.u64()?);
    let given = decode_images(fields)?;
    let range = if fields.flag()? { Some(fields.range()?) } else { None };
    Ok(Status { bucket, condition, range, split_version, records, given })
}

fn encode_images(writer: Writer, images: &[Image]) -> Writer {
    images.iter().fold(writer.u32(images.len() as u32), |writer, image| {
        writer.range(&image.range).u64(image.split_version).address(image.address)
    })
}

/// Each image takes bytes, so a lie about their count ends with the message.
fn decode_images(fields: &mut Reader<'_>) -> Result<Vec<Image>, WireError> {
    (0..fields.u32()?).map(|_| decode_image(fields)).collect()
}

fn decode_image(fields: &mut Reader<'_>) -> Result<Image, WireError> {
    let (range, split_version) = (fields.range()?, fields.u64()?);
    Ok(Image { range, split_version, address: fields.address()? })
}
