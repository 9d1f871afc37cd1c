//! Reading a whole object: within a bound, and around what the medium refuses.
//!
//! Neither the size of a file nor a header, which any program can write, decides how much memory is
//! used: the caller gives a bound. A bad sector costs only the bytes around it: they are read as
//! zeros, so the signatures of their shards do not match, and parity computes them again.

use strongroom_backend::{Backend, BackendError, ObjectName};

use super::format::{Header, HeaderError};

/// The first read of an object: it has all of a small one, and the header of any.
const START_BYTES: u64 = 64 << 10;
/// Parts that the medium refuses are read again in pieces of this size …
const COARSE_BYTES: u64 = 64 << 10;
/// … and refused pieces of these, in pieces of this size: a physical sector.
const FINE_BYTES: u64 = 4 << 10;
/// If a medium refuses more pieces of one object than this, it is not asked for each of them: that takes
/// seconds. What follows a refused piece is passed over, twice as much each time.
const REFUSALS_MAX: u32 = 512;

/// The parts of an object that can be read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RawObject {
    /// Its bytes, up to one more than its header says; zeros if the medium refused them.
    pub bytes: Vec<u8>,
    /// How many bytes the medium refused.
    pub refused_bytes: u64,
    /// How many of these were passed over, and may be given to who asks for them.
    pub unasked_bytes: u64,
}

/// Reads an object whole, unless it has more than `bytes_max` bytes.
///
/// # Errors
///
/// [`BackendError::TooLarge`], and [`BackendError::Unreadable`] if not a single piece can be read:
/// both are damage. Anything else says nothing about the object; that includes an answer that is
/// shorter than the object is by the word of the place itself.
pub fn read_object(
    backend: &dyn Backend,
    name: &ObjectName,
    bytes_max: u64,
) -> Result<RawObject, BackendError> {
    let mut last = (0, 0);
    // Between two questions, an object may be replaced by a longer one: it is asked twice.
    for _ in 0..2 {
        let object = read_as_sent(backend, name, bytes_max)?;
        let sent = object.bytes.len() as u64;
        if !is_too_short(&object.bytes) {
            return Ok(object);
        }
        match backend.size(name) {
            Ok(bytes) if bytes > sent => last = (sent, bytes),
            // What is too short by the word of the place too is damage.
            Ok(_) => return Ok(object),
            Err(error) if error.is_unreadable() => return Ok(object),
            Err(error) => return Err(error),
        }
    }
    Err(BackendError::cut_short(name, last.0, last.1))
}

/// Whether an object has fewer bytes than its header says, or no header that says anything. What
/// a newer program made is not read to its end.
fn is_too_short(bytes: &[u8]) -> bool {
    match Header::unpack(bytes) {
        Ok(header) => (bytes.len() as u64) < header.layout().object_bytes as u64,
        Err(HeaderError::NewerVersion { .. }) => false,
        Err(HeaderError::NotAnObject | HeaderError::Damaged) => true,
    }
}

fn read_as_sent(
    backend: &dyn Backend,
    name: &ObjectName,
    bytes_max: u64,
) -> Result<RawObject, BackendError> {
    let start = read_start(backend, name, START_BYTES)?;
    if (start.bytes.len() as u64) < START_BYTES {
        return Ok(start);
    }
    let wanted = match Header::unpack(&start.bytes) {
        // One byte more shows whether something follows the object.
        Ok(header) => header.layout().object_bytes as u64 + 1,
        // The start is enough to report that.
        Err(HeaderError::NewerVersion { .. }) => return Ok(start),
        // The header at the end may still be right.
        Err(HeaderError::NotAnObject | HeaderError::Damaged) => backend.size(name)?,
    };
    if wanted > bytes_max.saturating_add(1) {
        return Err(BackendError::TooLarge { name: name.clone(), bytes: wanted });
    }
    if wanted <= START_BYTES { Ok(start) } else { read_start(backend, name, wanted) }
}

/// The first bytes of an object, at most `length`.
fn read_start(
    backend: &dyn Backend,
    name: &ObjectName,
    length: u64,
) -> Result<RawObject, BackendError> {
    match backend.read(name, 0, to_length(length)) {
        Ok(bytes) => Ok(RawObject { bytes, ..RawObject::default() }),
        Err(error) if error.is_unreadable() => read_around(backend, name, length, error),
        Err(error) => Err(error),
    }
}

/// The same, piece by piece, around what the medium refuses. `refusal` is its error for all of
/// them.
fn read_around(
    backend: &dyn Backend,
    name: &ObjectName,
    length: u64,
    refusal: BackendError,
) -> Result<RawObject, BackendError> {
    let end = match backend.size(name) {
        Ok(size) => length.min(size),
        Err(error) if error.is_unreadable() => return Err(refusal),
        Err(error) => return Err(error),
    };
    let bytes = Vec::with_capacity(to_length(end));
    let mut object = RawObject { bytes, ..RawObject::default() };
    let mut refusals = 0;
    let mut fine_until = 0;
    let mut passed_over = COARSE_BYTES;
    loop {
        let at = object.bytes.len() as u64;
        if at >= end {
            break;
        }
        let is_fine = at < fine_until;
        let piece = if is_fine { FINE_BYTES } else { COARSE_BYTES }.min(end - at);
        match backend.read(name, at, to_length(piece)) {
            // The object has become shorter meanwhile.
            Ok(bytes) if bytes.is_empty() => return Ok(object),
            Ok(bytes) => {
                object.bytes.extend(bytes);
                passed_over = COARSE_BYTES;
            }
            Err(error) if !error.is_unreadable() => return Err(error),
            Err(_) if refusals == REFUSALS_MAX => {
                let passed = passed_over.min(end - at);
                object.refused_bytes += passed;
                object.unasked_bytes += passed;
                object.bytes.resize(to_length(at + passed), 0);
                passed_over = passed_over.saturating_mul(2);
            }
            Err(_) if is_fine => {
                refusals += 1;
                object.refused_bytes += piece;
                object.bytes.resize(to_length(at + piece), 0);
            }
            Err(_) => fine_until = at + piece,
        }
    }
    if object.refused_bytes == end { Err(refusal) } else { Ok(object) }
}

fn to_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
