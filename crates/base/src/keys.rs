//! The keys of a repository: what they are derived from, and what each is for.
//!
//! ```text
//! naming secret (random, in every slot) ─┬─ fingerprint key of data
//!                                        ├─ fingerprint key of metadata
//!                                        ├─ chunker key
//!                                        └─ voucher key
//! master secret ─┬─ private key ── public key
//!                ├─ authority key ── authority's public half
//!                ├─ owner's voucher key
//!                ├─ key of domain names
//!                └─ domain secret, one for each domain ─┬─ summary key
//!                                                       ├─ author key
//!                                                       ├─ session key
//!                                                       └─ machine key
//! arena secret (random, for one session) ─── key of each arena of the session
//! ```
//!
//! A full key has both secrets: it reads and writes. A *put-only* key belongs to one domain. It
//! has the naming secret, the secret of its domain and the two public keys: enough to deduplicate
//! and to store, not enough to read, and not enough to speak for another domain
//! (`docs/design/0015-domains-and-generations.md`). The public key is nowhere in the clear, so an
//! attacker who copies a repository today and has a quantum computer tomorrow lacks a half of every
//! key exchange (`docs/design/0004-keys.md`).
//!
//! Every derivation is BLAKE3 in its key-derivation mode; the contexts below are part of the
//! format (`docs/format/keys.md`). All secrets are overwritten when they are dropped.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::ids::{ArenaId, DomainId, Fingerprint, Location};
use crate::seal::{AuthorityKey, AuthorityPublicKey, PrivateKey, PublicKey};

/// Derivation contexts, frozen.
mod context {
    pub const DATA_FINGERPRINT: &str = "strongroom v0 data fingerprint key";
    pub const METADATA_FINGERPRINT: &str = "strongroom v0 metadata fingerprint key";
    pub const CHUNKER: &str = "strongroom v0 chunker key";
    pub const VOUCHER: &str = "strongroom v0 voucher key";
    pub const ENVELOPE: &str = "strongroom v0 envelope key";

    pub const PRIVATE: &str = "strongroom v0 private key";
    pub const AUTHORITY: &str = "strongroom v0 authority key";
    pub const OWNER_VOUCHER: &str = "strongroom v0 owner voucher key";
    pub const DOMAIN_NAMES: &str = "strongroom v0 domain names key";
    pub const DOMAIN: &str = "strongroom v0 domain secret";

    pub const SUMMARY: &str = "strongroom v0 summary key";
    pub const AUTHOR: &str = "strongroom v0 author key";
    pub const SESSION: &str = "strongroom v0 session key";
    pub const MACHINE: &str = "strongroom v0 machine key";

    pub const ARENA: &str = "strongroom v0 key of an arena of a session";
}

/// The secret of the owner: reading, and all domains.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterSecret(pub [u8; 32]);

/// The secret that names chunks and places cuts. It is random and does not depend on the master
/// secret, so the master secret can be replaced without renaming a chunk.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct NamingSecret(pub [u8; 32]);

/// The secret of one domain.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct DomainSecret(pub [u8; 32]);

/// What the keys of one session's arenas are derived from. It is random, and the machine that draws
/// it keeps it: so a put-only machine can read its own last snapshot when it makes the next one
/// (`docs/design/0016-own-record.md`).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ArenaSecret(pub [u8; 32]);

/// The keys that the holder of an open repository has.
#[derive(Clone)]
pub struct RepositoryKeys {
    /// Present for every holder.
    pub write: WriteKeys,
    /// `None` for a put-only holder.
    pub owner: Option<OwnerKeys>,
}

/// What is needed to store into a repository.
#[derive(Clone)]
pub struct WriteKeys {
    /// Names chunks and places cuts.
    pub naming: NamingKeys,
    /// The domain that this holder writes for.
    pub domain: DomainKeys,
    /// Seals what only a reader may open.
    pub public_key: PublicKey,
    /// Verifies what the owner decided.
    pub authority: AuthorityPublicKey,
}

/// The keys that every holder has.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct NamingKeys {
    /// Names chunks of content.
    pub data: Fingerprinter,
    /// Names chunks of trees and recipes: a file whose content equals a tree has another name.
    pub metadata: Fingerprinter,
    /// Decides where streams are cut.
    pub chunker_key: [u8; 8],
    /// Seals what the owner has signed and every holder may read.
    pub voucher_key: [u8; 32],
    /// Proves that a newer program made an object.
    pub envelope_key: [u8; 32],
}

/// The keys of one domain.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct DomainKeys {
    /// The domain.
    #[zeroize(skip)]
    pub id: DomainId,
    /// Seals the summaries of arenas; each arena's own key is derived from it.
    pub summary_key: [u8; 32],
    /// Proves which domain made a snapshot.
    pub author_key: [u8; 32],
    /// Proves which domain a session belongs to.
    pub session_key: [u8; 32],
    /// Seals what a machine of the domain remembers between its backups.
    pub machine_key: [u8; 32],
}

/// The keys of the owner.
#[derive(Clone)]
pub struct OwnerKeys {
    /// Opens arena keys and snapshots.
    pub private_key: PrivateKey,
    /// Signs the configuration and vouchers.
    pub authority: AuthorityKey,
    /// Seals vouchers, which the owner alone reads.
    pub voucher_key: [u8; 32],
    master: MasterSecret,
}

impl MasterSecret {
    /// All the keys of a full holder, who writes for the owner's domain.
    pub fn keys(&self, naming: &NamingSecret) -> RepositoryKeys {
        let owner = self.owner_keys();
        let write = WriteKeys {
            naming: naming.keys(),
            domain: owner.domain(DomainId::ZERO),
            public_key: owner.private_key.public(),
            authority: owner.authority.public(),
        };
        RepositoryKeys { write, owner: Some(owner) }
    }

    /// The keys that the owner alone has.
    pub fn owner_keys(&self) -> OwnerKeys {
        let derive = |context| blake3::derive_key(context, &self.0);
        OwnerKeys {
            private_key: PrivateKey::new(derive(context::PRIVATE)),
            authority: AuthorityKey::new(derive(context::AUTHORITY)),
            voucher_key: derive(context::OWNER_VOUCHER),
            master: self.clone(),
        }
    }

    /// The domain of this name; the owner's has none.
    pub fn domain_id(&self, name: &str) -> DomainId {
        if name.is_empty() {
            return DomainId::ZERO;
        }
        let key = blake3::derive_key(context::DOMAIN_NAMES, &self.0);
        let hash = blake3::keyed_hash(&key, name.as_bytes());
        DomainId(*hash.as_bytes().first_chunk().expect("a hash is longer than a domain's id"))
    }

    /// The secret that the put-only holders of a domain are given.
    pub fn domain_secret(&self, domain: DomainId) -> DomainSecret {
        DomainSecret(derive_object_key(context::DOMAIN, &self.0, &domain.0))
    }
}

impl NamingSecret {
    /// The keys that follow from it.
    pub fn keys(&self) -> NamingKeys {
        let derive = |context| blake3::derive_key(context, &self.0);
        let chunker = derive(context::CHUNKER);
        NamingKeys {
            data: Fingerprinter::new(derive(context::DATA_FINGERPRINT)),
            metadata: Fingerprinter::new(derive(context::METADATA_FINGERPRINT)),
            chunker_key: *chunker.first_chunk().expect("a key is longer than eight bytes"),
            voucher_key: derive(context::VOUCHER),
            envelope_key: derive(context::ENVELOPE),
        }
    }
}

impl NamingKeys {
    /// The keys of a repository that compares by value (Foundation §3): summaries and the index
    /// have a tag of each chunk, which says only what to compare, and a chunk's name is its place.
    /// A repository's tags have [`TAG_BYTES`]; shorter ones, down to a byte, serve tests.
    #[must_use]
    pub fn by_value(mut self, tag_bytes: usize) -> Self {
        assert!((1..=TAG_BYTES).contains(&tag_bytes), "a tag has one to eight bytes");
        self.data.kept_bytes = tag_bytes;
        self.metadata.kept_bytes = tag_bytes;
        self
    }

    /// Whether chunks are named by their places.
    pub fn is_by_value(&self) -> bool {
        self.data.makes_tags()
    }

    /// How recipes name the chunk that a summary has in this place; zero for none.
    pub fn name_in(&self, place: Location, in_summary: Fingerprint) -> Fingerprint {
        match self.is_by_value() && in_summary != Fingerprint::ZERO {
            true => Fingerprint::of_place(place),
            false => in_summary,
        }
    }
}

impl DomainSecret {
    /// The keys of the domain.
    pub fn keys(&self, id: DomainId) -> DomainKeys {
        let derive = |context| blake3::derive_key(context, &self.0);
        DomainKeys {
            id,
            summary_key: derive(context::SUMMARY),
            author_key: derive(context::AUTHOR),
            session_key: derive(context::SESSION),
            machine_key: derive(context::MACHINE),
        }
    }
}

impl ArenaSecret {
    /// The key of an arena's blocks.
    pub fn arena_key(&self, arena: ArenaId) -> [u8; 32] {
        derive_object_key(context::ARENA, &self.0, &arena.0)
    }
}

impl RepositoryKeys {
    /// False for a put-only holder.
    pub fn can_read(&self) -> bool {
        self.owner.is_some()
    }

    /// The keys of a domain, if this holder may have them: a full holder has those of all
    /// domains, a put-only holder those of its own.
    pub fn domain(&self, id: DomainId) -> Option<DomainKeys> {
        let own = &self.write.domain;
        if own.id == id {
            return Some(own.clone());
        }
        self.owner.as_ref().map(|owner| owner.domain(id))
    }
}

impl OwnerKeys {
    /// The keys of any domain.
    pub fn domain(&self, id: DomainId) -> DomainKeys {
        self.master.domain_secret(id).keys(id)
    }

    /// The domain of this name.
    pub fn domain_id(&self, name: &str) -> DomainId {
        self.master.domain_id(name)
    }
}

/// Names chunks by keyed BLAKE3-256, so that a name reveals nothing about the bytes without the
/// key.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Fingerprinter {
    key: [u8; 32],
    /// The rest is zeros.
    kept_bytes: usize,
}

/// Bytes of a tag: as many as Foundation has (§3), four that lead to a place in its index and four
/// that are kept there.
pub const TAG_BYTES: usize = 8;

impl Fingerprinter {
    fn new(key: [u8; 32]) -> Self {
        Self { key, kept_bytes: Fingerprint::BYTES }
    }

    /// Whether comparing is by value.
    pub fn makes_tags(&self) -> bool {
        self.kept_bytes < Fingerprint::BYTES
    }

    /// The fingerprint of a chunk's bytes; where comparing is by value their tag, and zeros. It is
    /// never all zeros.
    pub fn fingerprint(&self, chunk: &[u8]) -> Fingerprint {
        let mut fingerprint = Fingerprint(*blake3::keyed_hash(&self.key, chunk).as_bytes());
        fingerprint.0[self.kept_bytes..].fill(0);
        if fingerprint == Fingerprint::ZERO {
            fingerprint.0[0] = 1;
        }
        fingerprint
    }
}

/// A key for one purpose and one object, derived from `key`.
pub fn derive_object_key(context: &str, key: &[u8; 32], object: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(key);
    hasher.update(object);
    *hasher.finalize().as_bytes()
}

/// A tag that only holders of `key` can make over `message`.
pub fn authenticate(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, message).as_bytes()
}

/// True if `tag` is what [`authenticate`] makes of the message. Takes the same time for every
/// wrong tag.
pub fn is_authentic(key: &[u8; 32], message: &[u8], tag: &[u8; 32]) -> bool {
    // The comparison of BLAKE3's hashes is in constant time.
    blake3::keyed_hash(key, message) == *tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER: MasterSecret = MasterSecret([0; 32]);
    const NAMING: NamingSecret = NamingSecret([1; 32]);

    #[test]
    fn a_put_only_holder_agrees_with_the_owner_on_its_own_domain() {
        let owner = MASTER.keys(&NAMING);
        let id = MASTER.domain_id("laptop");
        let domain = MASTER.domain_secret(id).keys(id);
        let of_owner = owner.domain(id).unwrap();
        assert_eq!(domain.summary_key, of_owner.summary_key);
        assert_eq!(domain.author_key, of_owner.author_key);
        let put_only =
            RepositoryKeys { write: WriteKeys { domain, ..owner.write.clone() }, owner: None };
        assert!(put_only.domain(id).is_some());
        assert!(put_only.domain(DomainId::ZERO).is_none());
        assert!(put_only.domain(MASTER.domain_id("server")).is_none());
    }

    #[test]
    fn data_and_metadata_have_different_names() {
        let keys = NAMING.keys();
        assert_ne!(keys.data.fingerprint(b"x"), keys.metadata.fingerprint(b"x"));
    }

    #[test]
    fn by_value_a_fingerprint_is_a_tag_and_a_name_is_a_place() {
        let keys = NAMING.keys().by_value(TAG_BYTES);
        let (tag, whole) = (keys.data.fingerprint(b"x"), NAMING.keys().data.fingerprint(b"x"));
        assert_eq!(
            (&tag.0[..TAG_BYTES], &tag.0[TAG_BYTES..]),
            (&whole.0[..TAG_BYTES], &[0; 24][..])
        );
        let place = Location { arena: ArenaId([3; 16]), slot: 7 };
        assert_eq!(keys.name_in(place, tag), Fingerprint::of_place(place));
        assert_eq!(keys.name_in(place, Fingerprint::ZERO), Fingerprint::ZERO);
        assert_eq!(NAMING.keys().name_in(place, whole), whole);
        let short = NAMING.keys().by_value(1);
        assert!(
            (0..2000_u16).all(|n| short.data.fingerprint(&n.to_le_bytes()) != Fingerprint::ZERO)
        );
    }

    #[test]
    fn a_tag_belongs_to_its_key_and_message() {
        let tag = authenticate(&[1; 32], b"message");
        assert!(is_authentic(&[1; 32], b"message", &tag));
        assert!(!is_authentic(&[2; 32], b"message", &tag));
        assert!(!is_authentic(&[1; 32], b"massage", &tag));
    }

    /// Frozen: a repository written today is read with these derivations for ever.
    #[test]
    fn derivations_are_frozen() {
        let keys = MASTER.keys(&NAMING);
        let naming = &keys.write.naming;
        let laptop = MASTER.domain_id("laptop");
        let domain = keys.domain(laptop).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let derived = [
            hex(&naming.data.fingerprint(b"strongroom").0),
            hex(&naming.metadata.fingerprint(b"strongroom").0),
            hex(&naming.chunker_key),
            hex(&naming.voucher_key),
            hex(&naming.envelope_key),
            hex(&keys.write.public_key.0),
            hex(&keys.write.authority.0),
            hex(&keys.owner.as_ref().unwrap().voucher_key),
            hex(&keys.write.domain.summary_key),
            hex(&laptop.0),
            hex(&domain.summary_key),
            hex(&domain.author_key),
            hex(&domain.session_key),
            hex(&domain.machine_key),
            hex(&ArenaSecret([2; 32]).arena_key(ArenaId([3; 16]))),
        ];
        assert_eq!(derived, GOLDEN);
    }

    const GOLDEN: [&str; 15] = [
        "ec848c94448ff5d86a78fe1825da9f7d666a44b86b74aced5971f82d1aecc200",
        "bc706dbc3d6a01d3874119abaf2b3c6e74373457cf921958729e8742f2612dd5",
        "0c97e93f06337757",
        "e4892d43482337a012ee1a693901df4480a6ccecfff7c6780dbf2bdc6185f020",
        "92afcd8544af78ed88523ca52e623de89471806d4dc3ddb442b558dc712be7a1",
        "d2d0b967079b2b12eab16b335671d0f05ca3bf82e302dc437960b8d19d4fef35",
        "4ca6b04b9a75786ceb061bc4848c1d6e5115965d12146635b65542d598331c2a",
        "b91804b9b1c75dc95c3bffb4e5ac1bf237d077d80cd0f7a3d60b3a5761683600",
        "fa7bcd287a2e4390d19cf6f5315622c6de95231e2c9be2a9dc766e1ea31ed5c9",
        "4c25a790716f995f64434c44e30ad684",
        "daee79b87366228bfde97a01106909b8fd68bc0a3ba3eb147a68236cc0092b66",
        "3fddf5af2f3c05867b6880e0d3f2bd3e2e7021a695207cd5aa1f8065e7ea3b2b",
        "cafda31d2e7e9b7e62fd94aec0e979a833fba0b6cb268ed162fc2987cc0b0ece",
        "ad73fb71b789a304cdf16fe74506cb972a299b9b090b96d35c606392e467863d",
        "bcf7872e0b7adff32d486786bd12c9186039042ebdb4ebed33b1d356453c6a98",
    ];
}
