//! What a request expects, and whether a reply is that. It knows no sockets.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Cause;
use crate::wire::{DESCRIPTORS_MAX, Errno, Fields, ProtocolError, STRING_BYTES_MAX, chunk};

/// A reply may have this many chunks, and one more for each piece of data of the next size.
const CHUNKS_MAX: u64 = 64;
/// The protocol wants chunks of data to be multiples of this, but for the first and the last.
const CHUNK_BYTES: u64 = 512;
/// How many bytes of an answer about blocks are taken at a time.
const PART_BYTES: usize = 4096;

/// A part of what a server says of its blocks: how many bytes, and the flags.
pub type Descriptor = (u64, u32);

/// What fills a buffer with the bytes that come next.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<(), Cause>;

/// What a request expects, and what of it has come.
#[derive(Debug)]
pub struct Wanted {
    reply: Reply,
    /// The range of the request, if it is one.
    range: Range<u64>,
    /// Data comes in chunks.
    is_structured: bool,
    /// The bytes that have come.
    covered: Coverage,
    chunks_left: u64,
    /// What the server said went wrong.
    failure: Option<Cause>,
}

/// What a request returns.
#[derive(Debug)]
pub enum Reply {
    Nothing,
    Data(Vec<u8>),
    /// For each context that was chosen, by its number, once it has come.
    Status(BTreeMap<u32, Option<Vec<Descriptor>>>),
}

/// The head of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkHead {
    pub kind: u16,
    pub is_last: bool,
    pub length: u32,
}

impl Wanted {
    /// Nothing but success.
    pub fn nothing() -> Self {
        Self::new(Reply::Nothing, 0..0, true)
    }

    /// What a range holds.
    pub fn data(range: Range<u64>, is_structured: bool) -> Self {
        let bytes = (range.end - range.start) as usize;
        Self::new(Reply::Data(vec![0; bytes]), range, is_structured)
    }

    /// What the chosen contexts say of a range.
    pub fn status(range: Range<u64>, contexts: impl Iterator<Item = u32>) -> Self {
        Self::new(Reply::Status(contexts.map(|id| (id, None)).collect()), range, true)
    }

    fn new(reply: Reply, range: Range<u64>, is_structured: bool) -> Self {
        let chunks_left = CHUNKS_MAX + (range.end - range.start) / CHUNK_BYTES;
        let covered = Coverage::default();
        Self { reply, range, is_structured, covered, chunks_left, failure: None }
    }

    /// Takes a simple reply.
    pub fn take_simple(&mut self, error: u32, fill: Fill<'_>) -> Result<(), Cause> {
        if error != 0 {
            self.fail(error, String::new());
            return Ok(());
        }
        match &mut self.reply {
            Reply::Nothing => Ok(()),
            Reply::Data(data) if !self.is_structured => {
                self.covered.add(self.range.clone());
                fill(data)
            }
            Reply::Data(_) | Reply::Status(_) => {
                Err(ProtocolError("a reply should have been structured").into())
            }
        }
    }

    /// Takes a chunk of a structured reply, with its payload.
    ///
    /// # Errors
    ///
    /// If the chunk is no part of what was asked for. Then the connection is of no use.
    pub fn take_chunk(&mut self, head: ChunkHead, fill: Fill<'_>) -> Result<(), Cause> {
        if !self.is_structured {
            return Err(ProtocolError("structured replies were not agreed on").into());
        }
        self.chunks_left =
            self.chunks_left.checked_sub(1).ok_or(ProtocolError("a reply has too many chunks"))?;
        match head.kind {
            chunk::NONE if head.length == 0 && head.is_last => Ok(()),
            chunk::OFFSET_DATA => self.take_data(head, fill),
            chunk::OFFSET_HOLE => self.take_hole(head, fill),
            chunk::BLOCK_STATUS => self.take_status(head, fill),
            kind if kind & chunk::IS_ERROR != 0 => self.take_error(head, fill),
            _ => Err(ProtocolError("a chunk has an unknown type").into()),
        }
    }

    /// What the request returns, after its last chunk.
    ///
    /// # Errors
    ///
    /// If something is missing. Then the connection is of no use.
    pub fn finish(self) -> Result<Result<Reply, Cause>, ProtocolError> {
        if let Some(failure) = self.failure {
            return Ok(Err(failure));
        }
        let is_whole = match &self.reply {
            Reply::Nothing => true,
            Reply::Data(data) => self.covered.bytes() == data.len() as u64,
            Reply::Status(contexts) => contexts.values().all(Option::is_some),
        };
        if is_whole { Ok(Ok(self.reply)) } else { Err(ProtocolError("a reply is not complete")) }
    }

    fn take_data(&mut self, head: ChunkHead, fill: Fill<'_>) -> Result<(), Cause> {
        let bytes = head.length.checked_sub(8).filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(ProtocolError("a chunk of data is empty"))?;
        let mut offset = [0; 8];
        fill(&mut offset)?;
        let part = self.part(Fields(&offset).u64()?, bytes)?;
        let Reply::Data(data) = &mut self.reply else { return Err(NOT_ASKED.into()) };
        fill(&mut data[part])
    }

    fn take_hole(&mut self, head: ChunkHead, fill: Fill<'_>) -> Result<(), Cause> {
        if head.length != 12 {
            return Err(ProtocolError("a chunk of a hole has the wrong length").into());
        }
        let mut fields = [0; 12];
        fill(&mut fields)?;
        let mut fields = Fields(&fields);
        let (offset, bytes) = (fields.u64()?, fields.u32()?);
        let part = self.part(offset, bytes)?;
        let Reply::Data(data) = &mut self.reply else { return Err(NOT_ASKED.into()) };
        data[part].fill(0);
        Ok(())
    }

    /// The place of a chunk in the data. It must be new and within the range.
    fn part(&mut self, offset: u64, bytes: u32) -> Result<Range<usize>, ProtocolError> {
        let end = offset.checked_add(bytes.into()).filter(|&end| end <= self.range.end);
        let Some(end) = end.filter(|_| offset >= self.range.start && bytes > 0) else {
            return Err(ProtocolError("a chunk is outside of what was asked for"));
        };
        if !matches!(self.reply, Reply::Data(_)) {
            return Err(NOT_ASKED);
        }
        if !self.covered.add(offset..end) {
            return Err(ProtocolError("two chunks of a reply overlap"));
        }
        let begin = (offset - self.range.start) as usize;
        Ok(begin..begin + bytes as usize)
    }

    fn take_status(&mut self, head: ChunkHead, fill: Fill<'_>) -> Result<(), Cause> {
        let Reply::Status(contexts) = &mut self.reply else { return Err(NOT_ASKED.into()) };
        let count = head.length.saturating_sub(4) / 8;
        if head.length != 4 + 8 * count || count == 0 || count > DESCRIPTORS_MAX {
            return Err(ProtocolError("an answer about blocks has an invalid length").into());
        }
        let mut id = [0; 4];
        fill(&mut id)?;
        let Some(descriptors @ None) = contexts.get_mut(&Fields(&id).u32()?) else {
            return Err(ProtocolError("an answer is about a context that is not awaited").into());
        };
        *descriptors = Some(take_descriptors(count as usize * 8, fill)?);
        Ok(())
    }

    fn take_error(&mut self, head: ChunkHead, fill: Fill<'_>) -> Result<(), Cause> {
        let limit = STRING_BYTES_MAX + PART_BYTES;
        if head.length < 6 || head.length as usize > limit {
            return Err(ProtocolError("an error has an invalid length").into());
        }
        let mut payload = vec![0; head.length as usize];
        fill(&mut payload)?;
        let mut fields = Fields(&payload);
        let (error, bytes) = (fields.u32()?, fields.u16()?);
        let words = fields.take(bytes.into())?;
        if head.kind == chunk::ERROR_OFFSET {
            let offset = fields.u64()?;
            if !self.range.contains(&offset) {
                return Err(ProtocolError("an error is outside of what was asked for").into());
            }
        }
        self.fail(error, String::from_utf8_lossy(words).into_owned());
        Ok(())
    }

    /// Notes a failure. The first one counts.
    fn fail(&mut self, error: u32, message: String) {
        let errno = if error == 0 { Errno::EINVAL } else { Errno(error) };
        self.failure.get_or_insert(Cause::Refused { errno, message });
    }
}

const NOT_ASKED: ProtocolError = ProtocolError("a chunk does not belong to its request");

fn take_descriptors(bytes: usize, fill: Fill<'_>) -> Result<Vec<Descriptor>, Cause> {
    let mut descriptors: Vec<Descriptor> = Vec::new();
    let mut part = [0; PART_BYTES];
    let mut left = bytes;
    while left > 0 {
        let part = &mut part[..left.min(PART_BYTES)];
        fill(part)?;
        left -= part.len();
        let mut fields = Fields(part);
        while !fields.0.is_empty() {
            let (bytes, flags) = (u64::from(fields.u32()?), fields.u32()?);
            if bytes == 0 {
                return Err(ProtocolError("an extent is empty").into());
            }
            match descriptors.last_mut() {
                Some(last) if last.1 == flags => last.0 += bytes,
                _ => descriptors.push((bytes, flags)),
            }
        }
    }
    Ok(descriptors)
}

impl Reply {
    /// The data of a read.
    pub fn into_data(self) -> Vec<u8> {
        match self {
            Self::Data(data) => data,
            Self::Nothing | Self::Status(_) => Vec::new(),
        }
    }

    /// What a context says.
    pub fn into_status(self, context: u32) -> Vec<Descriptor> {
        match self {
            Self::Status(mut contexts) => contexts.remove(&context).flatten().unwrap_or_default(),
            Self::Nothing | Self::Data(_) => Vec::new(),
        }
    }
}

/// Ranges that do not overlap. Neighbours are one, so chunks in order take no memory.
#[derive(Debug, Default)]
struct Coverage {
    /// Starts and ends.
    ranges: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Adds a range, which is not empty. Returns false if it overlaps what is there.
    fn add(&mut self, Range { mut start, mut end }: Range<u64>) -> bool {
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back() {
            if before_end > start {
                return false;
            }
            if before_end == start {
                start = before;
            }
        }
        if let Some((&after, &after_end)) = self.ranges.range(start + 1..).next() {
            if after < end {
                return false;
            }
            if after == end {
                self.ranges.remove(&after);
                end = after_end;
            }
        }
        self.ranges.insert(start, end);
        true
    }

    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests;
