//! The bytes of what a program asks and answers.

use super::fields::{Fields, Value};
use super::{MessageError, key, kind, pack_range, shortened, unpack_areas, unpack_range_if};
use crate::message::FromProgram;
use crate::name;

impl FromProgram {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        match self {
            Self::Hello { protocol, file, bucket } => Fields::of(kind::HELLO)
                .uint(key::PROTOCOL, *protocol)
                .text(key::FILE, file)
                .uint(key::BUCKET, *bucket),
            Self::Region { request, area, bytes, base, is_private } => Fields::of(kind::REGION)
                .uint(key::REQUEST, *request)
                .text(key::AREA, area)
                .uint(key::BYTES, *bytes)
                .optional(key::BASE, *base)
                .flag(key::IS_PRIVATE, *is_private),
            Self::Forget { request, area } => {
                Fields::of(kind::FORGET).uint(key::REQUEST, *request).text(key::AREA, area)
            }
            Self::Callbacks { has_callbacks } => {
                Fields::of(kind::CALLBACKS).flag(key::HAS_CALLBACKS, *has_callbacks)
            }
            Self::Range { range, split_version } => {
                pack_range(Fields::of(kind::RANGE), range, *split_version)
            }
            Self::Quiesced { epoch, is_copy, outcome } => {
                pack_outcome(kind::QUIESCED, *epoch, outcome).flag(key::IS_COPY, *is_copy)
            }
            Self::Loaded { epoch, outcome } => pack_outcome(kind::LOADED, *epoch, outcome),
            Self::Evicted { epoch, outcome } => pack_outcome(kind::EVICTED, *epoch, outcome),
            Self::Store { request, name, version, is_copy, areas } => Fields::of(kind::STORE)
                .uint(key::REQUEST, *request)
                .text(key::NAME, name)
                .uint(key::VERSION, *version)
                .flag(key::IS_COPY, *is_copy)
                .texts(key::AREAS, areas.iter().map(String::as_str)),
            Self::Wait { request, name, version } => Fields::of(kind::WAIT)
                .uint(key::REQUEST, *request)
                .text(key::NAME, name)
                .uint(key::VERSION, *version),
            Self::Test { request, name, at_most } => Fields::of(kind::TEST)
                .uint(key::REQUEST, *request)
                .text(key::NAME, name)
                .optional(key::VERSION, *at_most),
            Self::Load { request, name, version, areas } => Fields::of(kind::LOAD)
                .uint(key::REQUEST, *request)
                .text(key::NAME, name)
                .uint(key::VERSION, *version)
                .texts(key::AREAS, areas.iter().map(String::as_str)),
            Self::Evict { request, is_copy } => {
                Fields::of(kind::EVICT).uint(key::REQUEST, *request).flag(key::IS_COPY, *is_copy)
            }
        }
        .pack()
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    ///
    /// If they are no message of a program. Then the connection is of no use.
    pub fn unpack(bytes: &[u8]) -> Result<Self, MessageError> {
        let fields = Fields::unpack(bytes)?;
        let request = || fields.small(key::REQUEST);
        let epoch = || fields.number(key::EPOCH);
        let name = || fields.name(key::NAME, name::check_version_name);
        let area = || fields.name(key::AREA, name::check_area);
        let version = || fields.number(key::VERSION);
        let is_copy = fields.is(key::IS_COPY)?;
        Ok(match fields.kind {
            kind::HELLO => Self::Hello {
                protocol: fields.small(key::PROTOCOL)?,
                file: fields.name(key::FILE, name::check_file)?,
                bucket: fields.small(key::BUCKET)?,
            },
            kind::REGION => Self::Region {
                request: request()?,
                area: area()?,
                bytes: fields.size(key::BYTES)?,
                base: fields.number_if(key::BASE)?,
                is_private: fields.is(key::IS_PRIVATE)?,
            },
            kind::FORGET => Self::Forget { request: request()?, area: area()? },
            kind::CALLBACKS => Self::Callbacks { has_callbacks: fields.is(key::HAS_CALLBACKS)? },
            kind::RANGE => {
                let range = unpack_range_if(&fields)?;
                let (range, split_version) = range.ok_or_else(|| fields.missing(key::LOW))?;
                Self::Range { range, split_version }
            }
            kind::QUIESCED => {
                Self::Quiesced { epoch: epoch()?, is_copy, outcome: unpack_outcome(&fields)? }
            }
            kind::LOADED => Self::Loaded { epoch: epoch()?, outcome: unpack_outcome(&fields)? },
            kind::EVICTED => Self::Evicted { epoch: epoch()?, outcome: unpack_outcome(&fields)? },
            kind::STORE => Self::Store {
                request: request()?,
                name: name()?,
                version: version()?,
                is_copy,
                areas: unpack_areas(&fields)?,
            },
            kind::WAIT => Self::Wait { request: request()?, name: name()?, version: version()? },
            kind::TEST => {
                let at_most = fields.number_if(key::VERSION)?;
                Self::Test { request: request()?, name: name()?, at_most }
            }
            kind::LOAD => Self::Load {
                request: request()?,
                name: name()?,
                version: version()?,
                areas: unpack_areas(&fields)?,
            },
            kind::EVICT => Self::Evict { request: request()?, is_copy },
            unknown => return Err(MessageError::Unknown(unknown)),
        })
    }
}

fn pack_outcome(kind: u64, epoch: u64, outcome: &Result<(), String>) -> Fields<'_> {
    let fields = Fields::of(kind).uint(key::EPOCH, epoch);
    match outcome {
        Ok(()) => fields,
        Err(reason) => fields.text(key::REASON, shortened(reason)),
    }
}

fn unpack_outcome(fields: &Fields<'_>) -> Result<Result<(), String>, MessageError> {
    Ok(match fields.get(key::REASON) {
        None => Ok(()),
        Some(Value::Text(reason)) => Err((*reason).to_owned()),
        Some(_) => return Err(fields.invalid(key::REASON)),
    })
}
