//! One request: whether it is valid, what it does, and its answer. It knows no sockets.

use std::io;
use std::ops::Range;

use super::haggle::{ALLOCATION_ID, Agreed};
use crate::export::{Export, Extent, Zeroing};
use crate::wire::{
    CHUNK_HEAD_BYTES, Errno, Put, REQUEST_BYTES_MAX, Request, SIMPLE_HEAD_BYTES, STATUS_HOLE,
    STATUS_ZERO, chunk, command, command_flag, put_chunk, put_simple,
};

/// The most extents of one answer about blocks. A client asks again for the rest.
const DESCRIPTORS: usize = 64 << 10;
/// A read below this is answered as data: to look for holes would take longer than to send zeros.
const HOLES_FROM_BYTES: u32 = 32 << 10;
/// A hole below this is sent as zeros, so that an answer has few chunks.
const HOLE_BYTES_MIN: u64 = 4 << 10;
/// How often the disk is asked where it has holes, for one answer. The rest is sent as data.
const QUESTIONS_MAX: usize = 256;
/// The most words of an error.
const MESSAGE_BYTES_MAX: usize = 512;

/// Why a request fails, for its client.
struct Failure {
    errno: Errno,
    message: String,
}

impl Failure {
    fn new(errno: Errno, message: &str) -> Self {
        Self { errno, message: message.to_owned() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { errno: Errno::of(&error), message: error.to_string() }
    }
}

/// How much memory a request and its answer may take.
pub fn memory_bytes(request: &Request) -> usize {
    const SMALL: usize = 4 << 10;
    match request.command {
        command::READ | command::WRITE if request.length <= REQUEST_BYTES_MAX => {
            // Of 4 KiB each, holes and data need heads of 32 and 28 bytes.
            request.length as usize + request.length as usize / 64 + SMALL
        }
        command::BLOCK_STATUS => DESCRIPTORS * 8 + SMALL,
        _ => SMALL,
    }
}

/// Does what a request asks for and returns the answer to send.
pub fn carry_out(agreed: &Agreed, request: &Request, payload: &[u8]) -> Vec<u8> {
    let done = check(agreed, request).and_then(|range| match request.command {
        command::READ => Ok(read(agreed, request, range)?),
        command::BLOCK_STATUS => Ok(block_status(agreed, request, range)?),
        _ => change(&*agreed.export, request, range, payload).map(|()| success(agreed, request)),
    });
    done.unwrap_or_else(|Failure { errno, message }| failure(agreed, request, errno, &message))
}

/// The answer to a request that failed.
pub fn failure(agreed: &Agreed, request: &Request, errno: Errno, message: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    if !agreed.has_structured_replies {
        put_simple(&mut answer, errno.0, request.cookie);
        return answer;
    }
    let message = &message.as_bytes()[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
    let length = 6 + message.len() as u32;
    put_chunk(&mut answer, chunk::DONE, chunk::ERROR, request.cookie, length);
    answer.put_u32(errno.0);
    answer.put_u16(message.len() as u16);
    answer.put(message);
    answer
}

fn success(agreed: &Agreed, request: &Request) -> Vec<u8> {
    let mut answer = Vec::with_capacity(CHUNK_HEAD_BYTES);
    if agreed.has_structured_replies {
        put_chunk(&mut answer, chunk::DONE, chunk::NONE, request.cookie, 0);
    } else {
        put_simple(&mut answer, 0, request.cookie);
    }
    answer
}

/// The range of a valid request.
fn check(agreed: &Agreed, request: &Request) -> Result<Range<u64>, Failure> {
    let invalid = |message| Err(Failure::new(Errno::EINVAL, message));
    let allowed = match request.command {
        command::READ if agreed.has_structured_replies => command_flag::DF,
        command::READ | command::WRITE | command::TRIM | command::FLUSH | command::CACHE => 0,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => command_flag::REQ_ONE,
        _ => return invalid("the server does not know this request"),
    };
    // It means nothing to a request that writes nothing, and clients set it there all the same.
    if request.flags & !(allowed | command_flag::FUA) != 0 {
        return invalid("the request has a flag that it cannot have");
    }
    let writes = matches!(request.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
    if writes && agreed.export.is_read_only() {
        return Err(Failure::new(Errno::EPERM, "the export is read-only"));
    }
    if request.command == command::FLUSH {
        return Ok(0..0);
    }
    let end = request.offset.checked_add(request.length.into());
    let Some(end) = end.filter(|&end| end <= agreed.size) else {
        let errno = match request.command {
            command::WRITE | command::WRITE_ZEROES => Errno::ENOSPC,
            _ => Errno::EINVAL,
        };
        return Err(Failure::new(errno, "the range is not within the export"));
    };
    if request.command == command::READ && request.length > REQUEST_BYTES_MAX {
        return Err(Failure::new(Errno::EOVERFLOW, "at most 32 MiB can be read at a time"));
    }
    if request.command == command::BLOCK_STATUS {
        if !agreed.has_allocation {
            return invalid("no metadata context was chosen for this export");
        }
        if request.length == 0 {
            return invalid("the range is empty");
        }
    }
    Ok(request.offset..end)
}

/// Requests that are answered without data.
fn change(
    export: &dyn Export,
    request: &Request,
    range: Range<u64>,
    payload: &[u8],
) -> Result<(), Failure> {
    let must_last = request.flags & command_flag::FUA != 0;
    match request.command {
        command::FLUSH => return Ok(export.flush()?),
        command::CACHE => return Ok(export.cache(range)?),
        _ if range.is_empty() => return Ok(()),
        command::WRITE => export.write_at(range.start, payload)?,
        command::TRIM => export.trim(range)?,
        _ => {
            let zeroing = Zeroing {
                keeps_space: request.flags & command_flag::NO_HOLE != 0,
                only_if_fast: request.flags & command_flag::FAST_ZERO != 0,
            };
            export.write_zeroes(range, zeroing)?;
        }
    }
    if must_last {
        export.flush()?;
    }
    Ok(())
}

fn read(agreed: &Agreed, request: &Request, range: Range<u64>) -> io::Result<Vec<u8>> {
    let export = &*agreed.export;
    if !agreed.has_structured_replies {
        let mut answer = Vec::with_capacity(SIMPLE_HEAD_BYTES + request.length as usize);
        put_simple(&mut answer, 0, request.cookie);
        append(export, range, &mut answer)?;
        return Ok(answer);
    }
    if range.is_empty() {
        return Ok(success(agreed, request));
    }
    let is_whole = request.flags & command_flag::DF != 0 || request.length < HOLES_FROM_BYTES;
    let parts = if is_whole { vec![(range, false)] } else { data_and_holes(export, range) };
    let mut answer = Vec::with_capacity(parts.iter().map(chunk_bytes).sum());
    let last = parts.len() - 1;
    for (number, (part, is_hole)) in parts.into_iter().enumerate() {
        let flags = if number == last { chunk::DONE } else { 0 };
        // A part is no longer than its request.
        let bytes = (part.end - part.start) as u32;
        if is_hole {
            put_chunk(&mut answer, flags, chunk::OFFSET_HOLE, request.cookie, 12);
            answer.put_u64(part.start);
            answer.put_u32(bytes);
        } else {
            put_chunk(&mut answer, flags, chunk::OFFSET_DATA, request.cookie, bytes + 8);
            answer.put_u64(part.start);
            append(export, part, &mut answer)?;
        }
    }
    Ok(answer)
}

fn chunk_bytes((part, is_hole): &(Range<u64>, bool)) -> usize {
    CHUNK_HEAD_BYTES + 12 + if *is_hole { 0 } else { (part.end - part.start) as usize }
}

fn append(export: &dyn Export, part: Range<u64>, answer: &mut Vec<u8>) -> io::Result<()> {
    let end = answer.len() + (part.end - part.start) as usize;
    export.append(part, answer)?;
    if answer.len() == end { Ok(()) } else { Err(io::Error::other("the disk read another length")) }
}

/// Cuts a range, which is not empty, into data and holes; neighbours differ.
fn data_and_holes(export: &dyn Export, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
    let mut parts = Vec::new();
    let mut position = range.start;
    for _ in 0..QUESTIONS_MAX {
        if position == range.end {
            return parts;
        }
        // What the disk does not know is read. If that fails too, the read says why.
        let Ok(extents) = known_extents(export, position..range.end) else { break };
        for Extent { bytes, is_hole } in extents {
            let end = position + bytes;
            append_part(&mut parts, position..end, is_hole && bytes >= HOLE_BYTES_MIN);
            position = end;
        }
    }
    if position < range.end {
        append_part(&mut parts, position..range.end, false);
    }
    parts
}

fn append_part(parts: &mut Vec<(Range<u64>, bool)>, part: Range<u64>, is_hole: bool) {
    match parts.last_mut() {
        Some((last, last_is_hole)) if *last_is_hole == is_hole => last.end = part.end,
        _ => parts.push((part, is_hole)),
    }
}

/// What an export says of a range, which is not empty: at least one extent, none of them empty, none
/// behind the range, neighbours different.
fn known_extents(export: &dyn Export, range: Range<u64>) -> io::Result<Vec<Extent>> {
    let mut known: Vec<Extent> = Vec::new();
    let mut left = range.end - range.start;
    for extent in export.extents(range)? {
        let bytes = extent.bytes.min(left);
        left -= bytes;
        let is_full = known.len() == DESCRIPTORS;
        match known.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if last.is_hole == extent.is_hole => last.bytes += bytes,
            _ if is_full => break,
            _ => known.push(Extent { bytes, ..extent }),
        }
    }
    if known.is_empty() {
        known.push(Extent { bytes: left, is_hole: false });
    }
    Ok(known)
}

fn block_status(agreed: &Agreed, request: &Request, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut extents = known_extents(&*agreed.export, range)?;
    if request.flags & command_flag::REQ_ONE != 0 {
        extents.truncate(1);
    }
    let length = 4 + 8 * extents.len() as u32;
    let mut answer = Vec::with_capacity(CHUNK_HEAD_BYTES + length as usize);
    put_chunk(&mut answer, chunk::DONE, chunk::BLOCK_STATUS, request.cookie, length);
    answer.put_u32(ALLOCATION_ID);
    for extent in extents {
        // An extent is no longer than its request.
        answer.put_u32(extent.bytes as u32);
        answer.put_u32(if extent.is_hole { STATUS_HOLE | STATUS_ZERO } else { 0 });
    }
    Ok(answer)
}

#[cfg(test)]
mod tests;
