//! The keys of a repository: what they are derived from, and what each is for.
//!
//! ```text
//! master secret ─┬─ private key ── public key
//!                └─ write secret ─┬─ fingerprint key
//!                                 ├─ chunker key
//!                                 ├─ summary key
//!                                 └─ config key
//! ```
//!
//! Whoever holds the master secret reads and writes. A *put-only* holder has the write secret and
//! the public key: enough to deduplicate and to store, not enough to read. The public key stands
//! nowhere in the clear, so that somebody who copies a repository today and has a quantum computer
//! tomorrow lacks a half of every key exchange (`docs/design/0004-keys.md`).
//!
//! Every derivation is BLAKE3 in its key-derivation mode; the contexts below are part of the
//! format (`docs/format/keys.md`).

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::ids::{DomainId, Fingerprint};
use crate::seal::{PrivateKey, PublicKey};

/// Derivation contexts, frozen.
mod context {
    pub const PRIVATE: &str = "strongroom v0 private key";
    pub const WRITE: &str = "strongroom v0 write secret";
    pub const FINGERPRINT: &str = "strongroom v0 fingerprint key";
    pub const CHUNKER: &str = "strongroom v0 chunker key";
    pub const SUMMARY: &str = "strongroom v0 summary key";
    pub const CONFIG: &str = "strongroom v0 config key";
}

/// The secret from which all else follows.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterSecret(pub [u8; 32]);

/// The secret of those who may only put.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct WriteSecret(pub [u8; 32]);

/// What is needed to store into a repository.
#[derive(Clone)]
pub struct WriteKeys {
    /// Whose keys they are.
    pub domain: DomainId,
    /// Names chunks.
    pub fingerprinter: Fingerprinter,
    /// Decides where streams are cut.
    pub chunker_key: [u8; 8],
    /// Seals the summaries of arenas; each arena's own key is derived from it.
    pub summary_key: [u8; 32],
    /// Authenticates the repository's configuration.
    pub config_key: [u8; 32],
    /// Seals what only a reader may open.
    pub public_key: PublicKey,
}

/// What somebody who opened a repository holds.
#[derive(Clone)]
pub struct RepositoryKeys {
    /// Always there.
    pub write: WriteKeys,
    /// Missing for a put-only holder.
    pub private_key: Option<PrivateKey>,
}

impl MasterSecret {
    /// All the keys.
    pub fn keys(&self) -> RepositoryKeys {
        let private_key = PrivateKey::new(blake3::derive_key(context::PRIVATE, &self.0));
        let write = self.write_secret().keys(private_key.public());
        RepositoryKeys { write, private_key: Some(private_key) }
    }

    /// The secret that a put-only holder is given, together with the public key.
    pub fn write_secret(&self) -> WriteSecret {
        WriteSecret(blake3::derive_key(context::WRITE, &self.0))
    }
}

impl WriteSecret {
    /// The keys of a writer.
    pub fn keys(&self, public_key: PublicKey) -> WriteKeys {
        let derive = |context| blake3::derive_key(context, &self.0);
        let chunker = derive(context::CHUNKER);
        WriteKeys {
            domain: DomainId::ZERO,
            fingerprinter: Fingerprinter { key: derive(context::FINGERPRINT) },
            chunker_key: chunker[..8].try_into().expect("eight bytes are an array of eight"),
            summary_key: derive(context::SUMMARY),
            config_key: derive(context::CONFIG),
            public_key,
        }
    }
}

/// Names chunks by keyed BLAKE3-256, so that a name tells a stranger nothing about the bytes.
#[derive(Clone)]
pub struct Fingerprinter {
    key: [u8; 32],
}

impl Fingerprinter {
    /// The fingerprint of a chunk's bytes.
    pub fn fingerprint(&self, chunk: &[u8]) -> Fingerprint {
        Fingerprint(*blake3::keyed_hash(&self.key, chunk).as_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_only_keys_agree_with_the_reader_s() {
        let master = MasterSecret([3; 32]);
        let reader = master.keys();
        let writer = master.write_secret().keys(reader.write.public_key.clone());
        let chunk = b"some bytes";
        assert_eq!(
            reader.write.fingerprinter.fingerprint(chunk),
            writer.fingerprinter.fingerprint(chunk)
        );
        assert_eq!(reader.write.summary_key, writer.summary_key);
        assert_eq!(reader.write.chunker_key, writer.chunker_key);
    }

    /// Frozen: a repository written today is read with these derivations for ever.
    #[test]
    fn derivations_are_frozen() {
        let keys = MasterSecret([0; 32]).keys();
        let fingerprint = keys.write.fingerprinter.fingerprint(b"strongroom");
        assert_eq!(
            (fingerprint.to_string(), Fingerprint(keys.write.public_key.0).to_string()),
            (GOLDEN_FINGERPRINT.to_owned(), GOLDEN_PUBLIC_KEY.to_owned())
        );
    }

    const GOLDEN_FINGERPRINT: &str =
        "41df5865a774f3b3fd584e70a800902b5b7cfb0d722755ee61a5554790b9ef50";
    const GOLDEN_PUBLIC_KEY: &str =
        "d2d0b967079b2b12eab16b335671d0f05ca3bf82e302dc437960b8d19d4fef35";
}
