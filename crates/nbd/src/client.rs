//! The client: one connection to an export of another program.
//!
//! Many threads may use it, and one thread may have many requests in flight
//! ([`Client::begin_read`]). A thread of its own receives the replies ([`connection`]). What a server
//! may send is decided by what was asked: [`reply`] compares each chunk with its request.

mod connection;
mod haggle;
mod reply;
mod status;

use std::ops::Range;
use std::time::Duration;

use crate::error::{Asked, Cause, NbdError};
use crate::stream::Stream;
use crate::wire::{Request, command, flag};
use connection::{Connection, Ticket};
use haggle::{Facts, haggle};
use reply::Wanted;
pub use status::{BlockStatus, StatusRun};

/// The most bytes of one request that carries no data.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// What a client asks of its server, and how long it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// The metadata contexts to choose, such as `base:allocation` or `qemu:dirty-bitmap:NAME`.
    pub contexts: Vec<String>,
    /// Requests in flight. Another one waits.
    pub requests_max: usize,
    /// Bytes in flight that are to be read or written. Another request waits.
    pub bytes_max: usize,
    /// How long the server may send nothing while a request is in flight.
    pub silence_limit: Duration,
    /// How long one request may take, and the handshake.
    pub request_limit: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            contexts: Vec::new(),
            requests_max: 64,
            bytes_max: 64 << 20,
            silence_limit: Duration::from_secs(60),
            request_limit: Duration::from_secs(600),
        }
    }
}

/// A connection to an export. Dropping it ends the connection as the protocol wants it.
pub struct Client {
    export: String,
    facts: Facts,
    connection: Connection,
}

impl Client {
    /// Connects to an export over a stream that nothing was sent on yet.
    ///
    /// # Errors
    ///
    /// [`NbdError::Open`], if the server refuses, breaks the protocol or is too slow. A context that
    /// the server does not have is no error: see [`Client::has_context`].
    pub fn open(stream: Stream, export: &str, options: &ClientOptions) -> Result<Self, NbdError> {
        let opened = haggle(&stream, export, options).and_then(|(facts, receiver)| {
            let connection = Connection::start(stream, receiver, options)?;
            Ok(Self { export: export.to_owned(), facts, connection })
        });
        opened.map_err(|cause| NbdError::Open { export: export.to_owned(), cause })
    }

    /// The size of the disk in bytes.
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// True if the server accepts no writes.
    pub fn is_read_only(&self) -> bool {
        self.has(flag::READ_ONLY)
    }

    /// True if several clients may use this export at once, as parts of one.
    pub fn allows_several_connections(&self) -> bool {
        self.has(flag::CAN_MULTI_CONN)
    }

    /// True if the server has a context that was asked for.
    pub fn has_context(&self, context: &str) -> bool {
        self.facts.context(context).is_some()
    }

    /// Fills `buffer` with what the disk holds at `offset`, by one request or by several at once.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        let asked = self.asked(command::READ, offset, buffer.len() as u64);
        self.check(asked)?;
        let end = offset + buffer.len() as u64;
        let mut begun = Vec::new();
        let mut position = offset;
        while position < end {
            // Whole blocks, so that none is read twice.
            let limit = position + u64::from(self.facts.payload_bytes_max);
            let part_end = self.facts.align_down(limit).min(end);
            begun.push(self.begin_read(position, (part_end - position) as u32)?);
            position = part_end;
        }
        let mut rest = buffer;
        for read in begun {
            let data = read.wait()?;
            let (part, later) = rest.split_at_mut(data.len());
            part.copy_from_slice(&data);
            rest = later;
        }
        Ok(())
    }

    /// Begins to read. Returns as soon as the request is sent, which it is when there is room for it
    /// among those in flight. The blocks of the server that are touched have at most
    /// [`Client::read_bytes_max`] bytes.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn begin_read(&self, offset: u64, bytes: u32) -> Result<PendingRead, NbdError> {
        let asked = self.asked(command::READ, offset, bytes.into());
        self.check(asked)?;
        let range = self.facts.outward(&(offset..offset + u64::from(bytes)));
        let length = range.end.saturating_sub(range.start);
        if length > u64::from(self.facts.payload_bytes_max) {
            return Err(self.failed(asked, Cause::NotOffered("reads of this size")));
        }
        let skip = (offset - range.start) as usize;
        let kept = skip..skip + bytes as usize;
        let ticket = if bytes == 0 {
            None
        } else {
            let request = request(command::READ, range.start, length as u32);
            let wanted = Wanted::data(range, self.facts.is_structured);
            Some(self.begin(asked, request, &[], wanted)?)
        };
        Ok(PendingRead { export: self.export.clone(), asked, kept, ticket })
    }

    /// The most bytes that one request reads.
    pub fn read_bytes_max(&self) -> u32 {
        self.facts.payload_bytes_max
    }

    /// What the server says of a range in a context that was chosen when the connection was made.
    /// It is asked as the iterator goes on.
    ///
    /// # Errors
    ///
    /// [`Cause::NotOffered`] if the server does not have the context.
    pub fn block_status(
        &self,
        context: &str,
        range: Range<u64>,
    ) -> Result<BlockStatus<'_>, NbdError> {
        let bytes = range.end.saturating_sub(range.start);
        let asked = self.asked(command::BLOCK_STATUS, range.start, bytes);
        self.check(asked)?;
        let Some(context) = self.facts.context(context) else {
            return Err(self.failed(asked, Cause::NotOffered("this metadata context")));
        };
        Ok(BlockStatus::new(self, context, range))
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), NbdError> {
        let whole = self.asked(command::WRITE, offset, bytes.len() as u64);
        self.check(whole)?;
        let mut tickets = Vec::new();
        let mut position = offset;
        for part in bytes.chunks(self.facts.payload_bytes_max as usize) {
            let asked = self.asked(command::WRITE, position, part.len() as u64);
            self.check_aligned(asked)?;
            let request = request(command::WRITE, position, part.len() as u32);
            tickets.push((asked, self.begin(asked, request, part, Wanted::nothing())?));
            position += part.len() as u64;
        }
        self.wait_for_all(tickets)
    }

    /// Makes a range zeros.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn write_zeroes(&self, range: Range<u64>) -> Result<(), NbdError> {
        self.over_range(command::WRITE_ZEROES, flag::SEND_WRITE_ZEROES, range)
    }

    /// Says that what a range holds is needed no more. Blocks of the server that are only partly in
    /// the range are left alone.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn trim(&self, range: Range<u64>) -> Result<(), NbdError> {
        let asked = self.asked(command::TRIM, range.start, range.end.saturating_sub(range.start));
        self.check(asked)?;
        self.over_range(command::TRIM, flag::SEND_TRIM, self.facts.inward(&range))
    }

    /// Says that a range will soon be read. A server that cannot prepare for it is not asked.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn cache(&self, range: Range<u64>) -> Result<(), NbdError> {
        let asked = self.asked(command::CACHE, range.start, range.end.saturating_sub(range.start));
        self.check(asked)?;
        if !self.has(flag::SEND_CACHE) {
            return Ok(());
        }
        self.over_range(command::CACHE, flag::SEND_CACHE, self.facts.outward(&range))
    }

    /// Returns when everything that was written before is on the server's medium. A server that
    /// does not know this request needs none.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn flush(&self) -> Result<(), NbdError> {
        if !self.has(flag::SEND_FLUSH) {
            return Ok(());
        }
        let asked = self.asked(command::FLUSH, 0, 0);
        let ticket = self.begin(asked, request(command::FLUSH, 0, 0), &[], Wanted::nothing())?;
        self.wait_for_all(vec![(asked, ticket)])
    }

    /// Sends requests without data over a range, several at once.
    fn over_range(&self, command: u16, needed: u16, range: Range<u64>) -> Result<(), NbdError> {
        let whole = self.asked(command, range.start, range.end.saturating_sub(range.start));
        self.check(whole)?;
        self.check_aligned(whole)?;
        if !self.has(needed) {
            return Err(self.failed(whole, Cause::NotOffered(whole.command)));
        }
        let mut tickets = Vec::new();
        let mut position = range.start;
        while position < range.end {
            let bytes = (range.end - position).min(RANGE_BYTES_MAX);
            let asked = self.asked(command, position, bytes);
            let request = request(command, position, bytes as u32);
            tickets.push((asked, self.begin(asked, request, &[], Wanted::nothing())?));
            position += bytes;
        }
        self.wait_for_all(tickets)
    }

    fn wait_for_all(&self, tickets: Vec<(Asked, Ticket)>) -> Result<(), NbdError> {
        for (asked, ticket) in tickets {
            ticket.wait().map_err(|cause| self.failed(asked, cause))?;
        }
        Ok(())
    }

    fn begin(
        &self,
        asked: Asked,
        request: Request,
        payload: &[u8],
        wanted: Wanted,
    ) -> Result<Ticket, NbdError> {
        let begun = self.connection.begin(request, payload, wanted);
        begun.map_err(|cause| self.failed(asked, cause))
    }

    fn has(&self, flag: u16) -> bool {
        self.facts.flags & flag != 0
    }

    /// Fails if a range is not within the disk.
    fn check(&self, asked: Asked) -> Result<(), NbdError> {
        let end = asked.offset.checked_add(asked.bytes);
        if end.is_some_and(|end| end <= self.facts.size) {
            return Ok(());
        }
        Err(self.failed(asked, Cause::Outside { size: self.facts.size }))
    }

    fn check_aligned(&self, asked: Asked) -> Result<(), NbdError> {
        let range = asked.offset..asked.offset + asked.bytes;
        if self.facts.outward(&range) == range {
            return Ok(());
        }
        Err(self.failed(asked, Cause::Unaligned { block_bytes: self.facts.block_bytes }))
    }

    fn asked(&self, command: u16, offset: u64, bytes: u64) -> Asked {
        Asked { command: command::name(command), offset, bytes }
    }

    fn failed(&self, asked: Asked, cause: Cause) -> NbdError {
        NbdError::Request { export: self.export.clone(), asked, cause }
    }
}

/// A read in flight.
pub struct PendingRead {
    export: String,
    asked: Asked,
    /// What was wanted of what is read: the server reads whole blocks.
    kept: Range<usize>,
    /// Nothing was asked for if nothing was wanted.
    ticket: Option<Ticket>,
}

impl PendingRead {
    /// Waits for the bytes.
    ///
    /// # Errors
    ///
    /// [`NbdError::Request`].
    pub fn wait(self) -> Result<Vec<u8>, NbdError> {
        let Self { export, asked, kept, ticket } = self;
        let Some(ticket) = ticket else { return Ok(Vec::new()) };
        let mut data =
            ticket.wait().map_err(|cause| NbdError::Request { export, asked, cause })?.into_data();
        data.truncate(kept.end);
        data.drain(..kept.start);
        Ok(data)
    }
}

fn request(command: u16, offset: u64, length: u32) -> Request {
    let flags = 0;
    Request { flags, command, cookie: 0, offset, length }
}
