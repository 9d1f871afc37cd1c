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
/// A map of another domain than the owner's has at most this many items of CBOR, and one more for each
/// [`BYTES_OF_ITEM`] of its first [`COUNTED_BYTES_MAX`]. An item of one byte takes up to 56 in memory,
/// and every verb of the owner opens all snapshots.
const ITEMS_MAX: usize = 4096;
/// The shortest paths and names of long lists have more on average.
const BYTES_OF_ITEM: usize = 8;
const COUNTED_BYTES_MAX: usize = 1 << 20;

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
    if domain != DomainId::ZERO && has_too_many_items(map) {
        return Err(wrong(FormatError::damaged("snapshot", "it has too many items")));
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

/// Whether the owner would refuse this map of another domain: it is small, and large once it is opened.
pub(crate) fn has_too_many_items(map: &[u8]) -> bool {
    count_items(map) > ITEMS_MAX + map.len().min(COUNTED_BYTES_MAX) / BYTES_OF_ITEM
}

/// How many items of CBOR are in these bytes, those in arrays and maps included: no decoder makes more
/// values of them. What is not CBOR ends the count, as it ends the decoder.
fn count_items(mut bytes: &[u8]) -> usize {
    let mut items = 0;
    while let Some((first, rest)) = bytes.split_first() {
        items += 1;
        let argument_bytes = match first & 0x1f {
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => 0,
        };
        let Some((argument, rest)) = rest.split_at_checked(argument_bytes) else { break };
        let short = if argument.is_empty() { u64::from(first & 0x1f) } else { 0 };
        let number = argument.iter().fold(short, |number, byte| number << 8 | u64::from(*byte));
        // Only strings of bytes and texts, of known length, have something behind the argument.
        let is_string = matches!(first >> 5, 2 | 3) && first & 0x1f != 31;
        let content_bytes =
            if is_string { usize::try_from(number).unwrap_or(usize::MAX) } else { 0 };
        bytes = rest.get(content_bytes..).unwrap_or_default();
    }
    items
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
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use strongroom_backend::MemoryBackend;
    use strongroom_base::{FixedClock, SeededEntropy, Timestamp};

    use super::*;
    use crate::keys::{KdfCost, KeySlot, NewSlot, write_slot};
    use crate::repository::{InitOptions, Surroundings};
    use crate::session::Session;

    const OWNER: &[u8] =
        b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
    const LAPTOP: &[u8] =
        b"strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";

    /// A repository as its owner opens it, and as the machine with the put-only key "laptop" does.
    fn owner_and_laptop() -> (Repository, Repository) {
        let surroundings = Surroundings {
            backend: Arc::new(MemoryBackend::new()),
            clock: Arc::new(FixedClock(Timestamp(0))),
            entropy: Arc::new(SeededEntropy::new(1)),
            cache: None,
        };
        let cost = Some(KdfCost::CHEAPEST);
        let options = InitOptions { cost, ..InitOptions::default() };
        let owner = Repository::init(surroundings.clone(), OWNER, &options).unwrap();
        let secret = owner.secret.put_only("laptop").unwrap();
        let new = NewSlot { label: String::new(), created: Timestamp(0), cost };
        let slot = KeySlot::seal(new, &secret, LAPTOP, owner.config.id, &*surroundings.entropy);
        write_slot(owner.backend(), &slot.unwrap()).unwrap();
        (owner, Repository::open(surroundings, LAPTOP).unwrap())
    }

    /// One of four megabytes of empty paths takes a hundred in memory, and a thief stores hundreds.
    #[test]
    fn a_small_snapshot_of_another_domain_is_not_large_once_it_is_opened() {
        let (owner, laptop) = owner_and_laptop();
        let nothing = || Snapshot::empty(SnapshotId([7; 16]));
        let path = |number: usize| format!("/srv/{number:06}").into_bytes();
        let names = vec![b"etc".to_vec(), b"home".to_vec(), b"media".to_vec(), b"tmp".to_vec()];
        let hostile = [
            Snapshot { paths: vec![Vec::new(); (4 << 20) - 1000], ..nothing() },
            Snapshot { paths: vec![Vec::new(); 6000], ..nothing() },
            Snapshot { labels: vec![String::new(); 1 << 20], ..nothing() },
            Snapshot { features: vec![1; 1 << 20], ..nothing() },
            Snapshot { missing: [(vec![], vec![Vec::new(); 1 << 20])].into(), ..nothing() },
        ];
        // What is asked of `--files-from`, and a disk that is not there.
        let missing: BTreeMap<_, _> = (0..2000).map(|n| (path(n), names.clone())).collect();
        let honest = [
            nothing(),
            Snapshot { paths: (0..60_000).map(path).collect(), ..nothing() },
            Snapshot { paths: (0..2000).map(path).collect(), missing, ..nothing() },
            Snapshot { labels: vec!["nightly".to_owned(); 1000], ..nothing() },
        ];
        let of = |mut snapshot: Snapshot, host: &str| {
            (snapshot.sequence, snapshot.host) = (1, host.to_owned());
            snapshot
        };
        for (snapshots, is_read) in [(&hostile[..], false), (&honest, true)] {
            for (case, snapshot) in snapshots.iter().enumerate() {
                let snapshot = of(snapshot.clone(), "laptop");
                let id = snapshot.id;
                let claimed = (laptop.write_keys().domain.id, 1);
                let read = check(&owner, id, &sign(&laptop, &snapshot), claimed);
                match read {
                    Ok(read) => {
                        assert!(is_read, "hostile {case} is read");
                        let domain = "laptop".to_owned();
                        assert_eq!(read, Snapshot { domain, ..snapshot.clone() }, "{case}");
                    }
                    Err(error) => {
                        assert!(!is_read && error.is_damage(), "{is_read} {case}: {error}");
                        assert!(error.to_string().contains("too many items"), "{error}");
                    }
                }
                // What would not be read is not committed.
                let session = Session::begin(&laptop, "laptop").unwrap();
                let committed = session.id;
                let outcome = session.commit(&Snapshot { id: committed, ..snapshot.clone() });
                assert_eq!(outcome.is_ok(), is_read, "{case}: {outcome:?}");
            }
        }
        // The owner is trusted.
        let own = of(hostile[1].clone(), "host");
        assert!(check(&owner, own.id, &sign(&owner, &own), (DomainId::ZERO, 1)).is_ok());
    }

    #[test]
    fn items_of_every_form_are_counted() {
        for (bytes, items) in [
            (&[][..], 0),
            (&[0x00, 0x18, 0xff, 0x1b, 1, 2, 3, 4, 5, 6, 7, 8, 0x20], 4),
            (&[0x43, 1, 2, 3, 0x60, 0x58, 2, 0, 0, 0xf5], 4),
            (&[0x82, 0x40, 0xa1, 0x01, 0x80], 5),
            // An unknown length: an array, two chunks of bytes, and two ends.
            (&[0x9f, 0x5f, 0x41, 0, 0x40, 0xff, 0xff], 6),
            // Cut, in an argument and in a string.
            (&[0x40, 0x59, 1], 2),
            (&[0x40, 0x5b, 255, 255, 255, 255, 255, 255, 255, 255, 0x40], 2),
        ] {
            assert_eq!(count_items(bytes), items, "{bytes:x?}");
        }
    }

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
