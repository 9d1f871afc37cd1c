//! The bytes of messages: a map of CBOR with integer keys. The document: `docs/format/bucket.md`.
//!
//! Keys ascend, and a decoder skips those that it does not know. Each field has one key in all
//! messages. A decoder checks names, ranges and counts, so no other code meets bad ones.

mod agent;
mod fields;
mod program;

use fields::Fields;

use crate::name::{self, AREAS_MAX};
use crate::range::KeyRange;

/// Bytes of a reason at most: longer ones are cut.
pub const REASON_BYTES_MAX: usize = 4096;

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// They are no map of CBOR, or not in the agreed form.
    #[error("a message is malformed: {0}")]
    Malformed(String),
    /// A field is not there.
    #[error("a message of kind {kind} has no field {key}")]
    Missing {
        /// The kind.
        kind: u64,
        /// The key of the field.
        key: u64,
    },
    /// A field has a value that it may not have.
    #[error("a message of kind {kind} has an invalid field {key}")]
    Invalid {
        /// The kind.
        kind: u64,
        /// The key of the field.
        key: u64,
    },
    /// The kind is of a newer program, or of none.
    #[error("a message is of the unknown kind {0}")]
    Unknown(u64),
}

/// The keys of fields.
mod key {
    pub const KIND: u64 = 0;
    pub const REQUEST: u64 = 1;
    pub const EPOCH: u64 = 2;
    pub const PROTOCOL: u64 = 3;
    pub const FILE: u64 = 4;
    pub const BUCKET: u64 = 5;
    pub const AREA: u64 = 6;
    pub const BYTES: u64 = 7;
    pub const BASE: u64 = 8;
    pub const IS_PRIVATE: u64 = 9;
    pub const HAS_CALLBACKS: u64 = 10;
    pub const LOW: u64 = 11;
    pub const HIGH: u64 = 12;
    pub const SPLIT_VERSION: u64 = 13;
    pub const IS_COPY: u64 = 14;
    pub const REASON: u64 = 15;
    pub const NAME: u64 = 16;
    pub const VERSION: u64 = 17;
    pub const AREAS: u64 = 18;
    pub const SIZES: u64 = 19;
    pub const IS_READING: u64 = 20;
}

/// The kinds of messages: of programs below 64, of the agent from there on.
mod kind {
    pub const HELLO: u64 = 1;
    pub const REGION: u64 = 2;
    pub const FORGET: u64 = 3;
    pub const CALLBACKS: u64 = 4;
    pub const RANGE: u64 = 5;
    pub const QUIESCED: u64 = 6;
    pub const LOADED: u64 = 7;
    pub const EVICTED: u64 = 8;
    pub const STORE: u64 = 9;
    pub const WAIT: u64 = 10;
    pub const TEST: u64 = 11;
    pub const LOAD: u64 = 12;
    pub const EVICT: u64 = 13;

    pub const WELCOME: u64 = 64;
    pub const REFUSED: u64 = 65;
    pub const QUIESCE: u64 = 66;
    pub const AGENT_LOAD: u64 = 67;
    pub const RESUME: u64 = 68;
    pub const EPOCH_CAPTURED: u64 = 69;
    pub const AGENT_EVICT: u64 = 70;
    pub const CAPTURED: u64 = 71;
    pub const DONE: u64 = 72;
    pub const FAILED: u64 = 73;
    pub const FOUND: u64 = 74;
}

fn pack_range<'f>(fields: Fields<'f>, range: &'f KeyRange, split_version: u64) -> Fields<'f> {
    let fields = fields.bytes(key::LOW, &range.low);
    let fields = match &range.high {
        Some(high) => fields.bytes(key::HIGH, high),
        None => fields,
    };
    fields.uint(key::SPLIT_VERSION, split_version)
}

/// A range and its split version, if there is a first key.
fn unpack_range_if(fields: &Fields<'_>) -> Result<Option<(KeyRange, u64)>, MessageError> {
    let Some(low) = fields.bytes_if(key::LOW)? else { return Ok(None) };
    let high = fields.bytes_if(key::HIGH)?.map(<[u8]>::to_vec);
    let range = KeyRange { low: low.to_vec(), high };
    if !range.is_valid() {
        return Err(fields.invalid(key::HIGH));
    }
    Ok(Some((range, fields.number(key::SPLIT_VERSION)?)))
}

fn unpack_areas(fields: &Fields<'_>) -> Result<Vec<String>, MessageError> {
    let areas = fields.texts_if(key::AREAS)?;
    if areas.len() > AREAS_MAX || areas.iter().any(|area| name::check_area(area).is_err()) {
        return Err(fields.invalid(key::AREAS));
    }
    Ok(areas.iter().map(|area| (*area).to_owned()).collect())
}

/// As much of a reason as is sent.
fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

#[cfg(test)]
mod tests;
