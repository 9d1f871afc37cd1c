//! The bytes of what the agent asks and answers.

use super::fields::Fields;
use super::{MessageError, key, kind, pack_range, shortened, unpack_areas, unpack_range_if};
use crate::message::{AreaSize, ToProgram};

impl ToProgram {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let of_epoch = |kind, epoch: &u64| Fields::of(kind).uint(key::EPOCH, *epoch);
        let of_request = |kind, request: &u32| Fields::of(kind).uint(key::REQUEST, *request);
        match self {
            Self::Welcome { protocol } => Fields::of(kind::WELCOME).uint(key::PROTOCOL, *protocol),
            Self::Refused { reason } => {
                Fields::of(kind::REFUSED).text(key::REASON, shortened(reason))
            }
            Self::Quiesce { epoch } => of_epoch(kind::QUIESCE, epoch),
            Self::Load { epoch, keys: None } => of_epoch(kind::AGENT_LOAD, epoch),
            Self::Load { epoch, keys: Some((range, split_version)) } => {
                pack_range(of_epoch(kind::AGENT_LOAD, epoch), range, *split_version)
            }
            Self::Resume { epoch, is_reading } => {
                of_epoch(kind::RESUME, epoch).flag(key::IS_READING, *is_reading)
            }
            Self::EpochCaptured { epoch } => of_epoch(kind::EPOCH_CAPTURED, epoch),
            Self::Evict { epoch } => of_epoch(kind::AGENT_EVICT, epoch),
            Self::Captured { request } => of_request(kind::CAPTURED, request),
            Self::Done { request } => of_request(kind::DONE, request),
            Self::Failed { request, reason } => {
                of_request(kind::FAILED, request).text(key::REASON, shortened(reason))
            }
            Self::Found { request, version, areas } => of_request(kind::FOUND, request)
                .optional(key::VERSION, *version)
                .texts(key::AREAS, areas.iter().map(|area| area.area.as_str()))
                .uints(key::SIZES, areas.iter().map(|area| area.bytes).collect()),
        }
        .pack()
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    ///
    /// If they are no message of an agent. Then the connection is of no use.
    pub fn unpack(bytes: &[u8]) -> Result<Self, MessageError> {
        let fields = Fields::unpack(bytes)?;
        let request = || fields.small(key::REQUEST);
        let epoch = || fields.number(key::EPOCH);
        Ok(match fields.kind {
            kind::WELCOME => Self::Welcome { protocol: fields.small(key::PROTOCOL)? },
            kind::REFUSED => Self::Refused { reason: fields.said(key::REASON)?.to_owned() },
            kind::QUIESCE => Self::Quiesce { epoch: epoch()? },
            kind::AGENT_LOAD => Self::Load { epoch: epoch()?, keys: unpack_range_if(&fields)? },
            kind::RESUME => {
                Self::Resume { epoch: epoch()?, is_reading: fields.is(key::IS_READING)? }
            }
            kind::EPOCH_CAPTURED => Self::EpochCaptured { epoch: epoch()? },
            kind::AGENT_EVICT => Self::Evict { epoch: epoch()? },
            kind::CAPTURED => Self::Captured { request: request()? },
            kind::DONE => Self::Done { request: request()? },
            kind::FAILED => {
                Self::Failed { request: request()?, reason: fields.said(key::REASON)?.to_owned() }
            }
            kind::FOUND => Self::Found {
                request: request()?,
                version: fields.number_if(key::VERSION)?,
                areas: unpack_sizes(&fields)?,
            },
            unknown => return Err(MessageError::Unknown(unknown)),
        })
    }
}

fn unpack_sizes(fields: &Fields<'_>) -> Result<Vec<AreaSize>, MessageError> {
    let areas = unpack_areas(fields)?;
    let sizes = fields.uints_if(key::SIZES)?;
    if areas.len() != sizes.len() {
        return Err(fields.invalid(key::SIZES));
    }
    let pairs = areas.into_iter().zip(sizes);
    Ok(pairs.map(|(area, bytes)| AreaSize { area, bytes: *bytes }).collect())
}
