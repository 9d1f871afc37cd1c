//! The handshake: what the server offers, and what is agreed on.

use std::io;
use std::ops::Range;

use super::ClientOptions;
use crate::error::Cause;
use crate::stream::{Deadline, Receiver, Stream};
use crate::wire::{
    FIXED_NEWSTYLE, Fields, GREETING_MAGIC, NO_ZEROES, OPTION_BYTES_MAX, OPTION_MAGIC,
    OPTION_REPLY_HEAD_BYTES, OPTION_REPLY_MAGIC, ProtocolError, Put, REQUEST_BYTES_MAX, answer,
    flag, info, option, put_option, text,
};

/// The most answers to one option.
const ANSWERS_MAX: usize = 1024;
/// The largest block that the protocol allows.
const BLOCK_BYTES_MAX: u32 = 64 << 10;
/// The largest disk that is believed: what a file can have.
const SIZE_MAX: u64 = i64::MAX as u64;

/// What is known of an export.
///
/// Invariants: `block_bytes` is a power of two of at most 64 KiB, and `payload_bytes_max` a multiple
/// of it, at least one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    pub is_structured: bool,
    /// Offsets and lengths of requests are multiples of this.
    pub block_bytes: u32,
    /// The most data of one request.
    pub payload_bytes_max: u32,
    /// The contexts that were agreed on, with the server's numbers for them.
    pub contexts: Vec<(String, u32)>,
}

impl Facts {
    pub fn context(&self, name: &str) -> Option<u32> {
        self.contexts.iter().find(|(known, _)| known == name).map(|&(_, id)| id)
    }

    pub fn align_down(&self, offset: u64) -> u64 {
        offset & !(u64::from(self.block_bytes) - 1)
    }

    fn align_up(&self, offset: u64) -> u64 {
        // The size of a disk is less than 2^63.
        self.align_down(offset + u64::from(self.block_bytes) - 1)
    }

    /// The blocks that a range touches. The last one may end with the disk.
    pub fn outward(&self, range: &Range<u64>) -> Range<u64> {
        self.align_down(range.start)..self.align_up(range.end).min(self.size)
    }

    /// The blocks that are in a range completely.
    pub fn inward(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.align_up(range.start).min(range.end);
        let end = if range.end == self.size { range.end } else { self.align_down(range.end) };
        start..end.max(start)
    }
}

/// Negotiates with a server.
pub fn haggle(
    stream: &Stream,
    export: &str,
    options: &ClientOptions,
) -> Result<(Facts, Receiver), Cause> {
    let shortest = options.silence_limit.min(options.request_limit);
    stream.set_tick((shortest / 4).min(std::time::Duration::from_secs(1)))?;
    let receiver = Receiver::new(stream.try_clone()?);
    let deadline = Deadline::within(options.silence_limit);
    let mut haggling = Haggling { receiver, stream, deadline };
    let flags = haggling.greet()?;
    let is_structured = haggling.structured_replies()?;
    let contexts = if is_structured && !options.contexts.is_empty() {
        haggling.contexts(export, &options.contexts)?
    } else {
        Vec::new()
    };
    let mut facts = Facts {
        size: 0,
        flags: 0,
        is_structured,
        block_bytes: 1,
        payload_bytes_max: REQUEST_BYTES_MAX,
        contexts,
    };
    haggling.go(export, flags, &mut facts)?;
    if facts.size > SIZE_MAX {
        return Err(ProtocolError("the export is larger than any disk").into());
    }
    if facts.flags & flag::HAS_FLAGS == 0 {
        return Err(ProtocolError("the export has no flags").into());
    }
    Ok((facts, haggling.receiver))
}

struct Haggling<'a> {
    receiver: Receiver,
    stream: &'a Stream,
    deadline: Deadline,
}

impl Haggling<'_> {
    /// Exchanges greetings, and returns the server's flags.
    fn greet(&mut self) -> Result<u16, Cause> {
        let mut greeting = [0; 18];
        self.fill(&mut greeting)?;
        let mut fields = Fields(&greeting);
        if fields.u64()? != GREETING_MAGIC {
            return Err(ProtocolError("it is not an NBD server").into());
        }
        let (magic, flags) = (fields.u64()?, fields.u16()?);
        if magic != OPTION_MAGIC || flags & FIXED_NEWSTYLE == 0 {
            return Err(ProtocolError("the server does not speak fixed newstyle").into());
        }
        let mut ours = Vec::new();
        ours.put_u32(u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)));
        self.stream.send(&ours, self.deadline.left())?;
        Ok(flags)
    }

    fn structured_replies(&mut self) -> Result<bool, Cause> {
        self.ask(option::STRUCTURED_REPLY, &[])?;
        match self.answer(option::STRUCTURED_REPLY)? {
            (answer::ACK, _) => Ok(true),
            (answer, _) if answer & answer::IS_ERROR != 0 => Ok(false),
            _ => Err(UNEXPECTED.into()),
        }
    }

    /// Chooses contexts, and returns those that the server has.
    fn contexts(&mut self, export: &str, wanted: &[String]) -> Result<Vec<(String, u32)>, Cause> {
        let mut data = Vec::new();
        data.put_sized(export.as_bytes());
        data.put_u32(wanted.len() as u32);
        for context in wanted {
            data.put_sized(context.as_bytes());
        }
        self.ask(option::SET_META_CONTEXT, &data)?;
        let mut chosen: Vec<(String, u32)> = Vec::new();
        // One for each context, and the end.
        for _ in 0..=wanted.len() {
            match self.answer(option::SET_META_CONTEXT)? {
                (answer::META_CONTEXT, data) => {
                    let mut fields = Fields(&data);
                    let id = fields.u32()?;
                    let name = text(fields.0)?.to_owned();
                    let is_known = chosen.iter().any(|known| known.0 == name || known.1 == id);
                    if is_known || !wanted.contains(&name) {
                        return Err(ProtocolError("a context was not asked for").into());
                    }
                    chosen.push((name, id));
                }
                (answer::ACK, _) => return Ok(chosen),
                // The server knows no contexts, or not this export: the next option says it.
                (answer, _) if answer & answer::IS_ERROR != 0 => return Ok(Vec::new()),
                _ => return Err(UNEXPECTED.into()),
            }
        }
        Err(ProtocolError("there is no end of contexts").into())
    }

    /// Chooses the export.
    fn go(&mut self, export: &str, flags: u16, facts: &mut Facts) -> Result<(), Cause> {
        let mut data = Vec::new();
        data.put_sized(export.as_bytes());
        data.put_u16(1);
        data.put_u16(info::BLOCK_SIZE);
        self.ask(option::GO, &data)?;
        let mut is_described = false;
        for _ in 0..ANSWERS_MAX {
            match self.answer(option::GO)? {
                (answer::INFO, data) => is_described |= learn(&data, facts)?,
                (answer::ACK, _) if is_described => return Ok(()),
                (answer::ERR_UNSUP, _) => return self.export_name(export, flags, facts),
                (answer, words) if answer & answer::IS_ERROR != 0 => {
                    // The farewell of a client that goes no further. The server may be gone.
                    let _ = self.ask(option::ABORT, &[]);
                    let message = text(&words).unwrap_or_default().to_owned();
                    return Err(Cause::NotOpened { answer, message });
                }
                _ => return Err(UNEXPECTED.into()),
            }
        }
        Err(ProtocolError("there is no end of information").into())
    }

    /// The way of servers that do not know `OPT_GO`.
    fn export_name(&mut self, export: &str, flags: u16, facts: &mut Facts) -> Result<(), Cause> {
        self.ask(option::EXPORT_NAME, export.as_bytes())?;
        let mut reply = [0; 10];
        self.fill(&mut reply)?;
        let mut fields = Fields(&reply);
        (facts.size, facts.flags) = (fields.u64()?, fields.u16()?);
        if flags & NO_ZEROES == 0 {
            self.fill(&mut [0; 124])?;
        }
        Ok(())
    }

    fn ask(&self, option: u32, data: &[u8]) -> Result<(), Cause> {
        let mut message = Vec::new();
        put_option(&mut message, option, data);
        Ok(self.stream.send(&message, self.deadline.left())?)
    }

    /// The next answer to an option, and its data.
    fn answer(&mut self, option: u32) -> Result<(u32, Vec<u8>), Cause> {
        let mut head = [0; OPTION_REPLY_HEAD_BYTES];
        self.fill(&mut head)?;
        let mut fields = Fields(&head);
        if fields.u64()? != OPTION_REPLY_MAGIC || fields.u32()? != option {
            return Err(UNEXPECTED.into());
        }
        let (answer, bytes) = (fields.u32()?, fields.u32()? as usize);
        if bytes > OPTION_BYTES_MAX {
            return Err(ProtocolError("an answer to an option is too long").into());
        }
        let mut data = vec![0; bytes];
        self.fill(&mut data)?;
        Ok((answer, data))
    }

    fn fill(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.receiver.fill_until(into, self.deadline)
    }
}

const UNEXPECTED: ProtocolError = ProtocolError("an answer does not belong to its option");

/// Takes one piece of information. Returns true if it is the one that must be there.
fn learn(data: &[u8], facts: &mut Facts) -> Result<bool, ProtocolError> {
    let mut fields = Fields(data);
    match fields.u16()? {
        info::EXPORT => {
            (facts.size, facts.flags) = (fields.u64()?, fields.u16()?);
            fields.finish()?;
            return Ok(true);
        }
        info::BLOCK_SIZE => {
            let (block, _preferred, payload) = (fields.u32()?, fields.u32()?, fields.u32()?);
            fields.finish()?;
            if !block.is_power_of_two() || block > BLOCK_BYTES_MAX || payload < block {
                return Err(ProtocolError("the sizes of blocks are invalid"));
            }
            facts.block_bytes = block;
            facts.payload_bytes_max = payload.min(REQUEST_BYTES_MAX) & !(block - 1);
        }
        _ => {}
    }
    Ok(false)
}
