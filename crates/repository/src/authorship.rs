//! Which domain made a snapshot: what comes before its map, inside the seal.
//!
//! ```text
//! domain (16) | tag (32) | map
//! ```
//!
//! Anybody who may store can seal a snapshot to the public key. The tag is a keyed BLAKE3 hash
//! under the author key of the domain, over the repository's id, the snapshot's id and the map. So
//! a put-only client speaks for its own domain, and for no other.

use strongroom_base::keys::{authenticate, is_authentic};
use strongroom_base::{DomainId, SnapshotId};
use strongroom_catalog::format::{pack_snapshot, unpack_head, unpack_snapshot};
use strongroom_catalog::{FormatError, Snapshot};

use crate::error::RepositoryError;
use crate::objects::snapshot_name;
use crate::repository::Repository;

const TAG_BYTES: usize = 32;
/// A snapshot's map is at most this long: room for the paths of a long command line. What is opened
/// takes some thirty times as much at worst.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 4 << 20;

/// The snapshot's bytes, as its own domain signs them.
pub(crate) fn sign(repository: &Repository, snapshot: &Snapshot) -> Vec<u8> {
    let signed =
        Snapshot { domain: repository.secret.domain_name().to_owned(), ..snapshot.clone() };
    let map = pack_snapshot(&signed);
    let domain = &repository.write_keys().domain;
    let tag = authenticate(&domain.author_key, &message(repository, snapshot.id, &map));
    [&domain.id.0[..], &tag, &map].concat()
}

/// The snapshot in opened bytes, if the domain that it names made it. Its host is one that this
/// domain may speak for.
pub(crate) fn check(
    repository: &Repository,
    id: SnapshotId,
    bytes: &[u8],
    claimed: (DomainId, u64),
) -> Result<Snapshot, RepositoryError> {
    let name = snapshot_name(id);
    let forged = || RepositoryError::Forged { name: snapshot_name(id) };
    let (domain, rest) = bytes.split_first_chunk().ok_or_else(forged)?;
    let (tag, map) = rest.split_first_chunk::<TAG_BYTES>().ok_or_else(forged)?;
    let domain = DomainId(*domain);
    let keys = repository.keys.domain(domain).ok_or_else(forged)?;
    if !is_authentic(&keys.author_key, &message(repository, id, map), tag) {
        return Err(forged());
    }
    let wrong = |source| RepositoryError::Format { name: name.clone(), source };
    if map.len() > SNAPSHOT_BYTES_MAX {
        return Err(wrong(FormatError::damaged("snapshot", "it is too long")));
    }
    let head = unpack_head(map).map_err(wrong)?;
    let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    if owner.domain_id(&head.domain) != domain || claimed != (domain, head.sequence) {
        return Err(forged());
    }
    let mut snapshot = match unpack_snapshot(id, map) {
        Err(source) if source.is_unknown() => {
            return Err(RepositoryError::NewerSnapshot { name, head: Box::new(head), source });
        }
        other => other.map_err(wrong)?,
    };
    snapshot.host = origin(&snapshot.domain, &snapshot.host);
    Ok(snapshot)
}

fn message(repository: &Repository, id: SnapshotId, map: &[u8]) -> Vec<u8> {
    [&repository.config.id.0[..], &id.0, map].concat()
}

/// The host that a snapshot is shown under. The owner's domain may name any host.
fn origin(domain: &str, host: &str) -> String {
    match domain {
        "" => host.to_owned(),
        domain if domain == host => host.to_owned(),
        domain => format!("{domain}/{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_speaks_for_itself_alone() {
        for (domain, host, shown) in [
            ("", "server", "server"),
            ("laptop", "laptop", "laptop"),
            ("laptop", "server", "laptop/server"),
            ("laptop", "", "laptop/"),
        ] {
            assert_eq!(origin(domain, host), shown);
        }
    }
}
