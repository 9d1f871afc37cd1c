//! The claim of a snapshot: what comes in the clear before what is sealed.
//!
//! ```text
//! domain (16) | tag (32) | sealed snapshot
//! ```
//!
//! A machine that can only store opens no snapshot, and anybody can write the header of an object.
//! The tag is a keyed BLAKE3 hash under the session key of the domain, over the repository's id, the
//! snapshot's id and its sequence. So each machine of the domain knows which sequences its domain
//! has used, and no other can use them up.

use strongroom_base::keys::{DomainKeys, authenticate, is_authentic};
use strongroom_base::{DomainId, SnapshotId};

use crate::repository::Repository;

const DOMAIN_BYTES: usize = 16;
const TAG_BYTES: usize = 32;
/// Bytes of a claim.
pub(crate) const CLAIM_BYTES: usize = DOMAIN_BYTES + TAG_BYTES;

/// The claim of a snapshot of this repository's writer.
pub(crate) fn make(repository: &Repository, id: SnapshotId, sequence: u64) -> [u8; CLAIM_BYTES] {
    let domain = &repository.write_keys().domain;
    let tag = authenticate(&domain.session_key, &message(repository, id, sequence));
    let mut claim = [0; CLAIM_BYTES];
    claim[..DOMAIN_BYTES].copy_from_slice(&domain.id.0);
    claim[DOMAIN_BYTES..].copy_from_slice(&tag);
    claim
}

/// The domain that made a snapshot of this sequence, and what is sealed; none if the claim is
/// wrong, or is of a domain whose keys are not at hand.
pub(crate) fn check<'b>(
    repository: &Repository,
    id: SnapshotId,
    sequence: u64,
    body: &'b [u8],
) -> Option<(DomainId, &'b [u8])> {
    let (domain, rest) = body.split_first_chunk::<DOMAIN_BYTES>()?;
    let (tag, sealed) = rest.split_first_chunk::<TAG_BYTES>()?;
    let keys: DomainKeys = repository.keys.domain(DomainId(*domain))?;
    let message = message(repository, id, sequence);
    is_authentic(&keys.session_key, &message, tag).then_some((keys.id, sealed))
}

fn message(repository: &Repository, id: SnapshotId, sequence: u64) -> Vec<u8> {
    [&repository.config.id.0[..], &id.0, &sequence.to_le_bytes()].concat()
}
